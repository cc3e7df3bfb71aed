"""Questions about the pods of all nodes, read as columns, against one look at every pod."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import suppress

import numpy as np
import pytest

from gangsched.core.cycle import Limits, plan
from gangsched.core.filter import count_cache, pod_columns, selector_table, term_columns
from gangsched.core.filter.count_cache import CountCache
from gangsched.core.filter.pod_columns import PodColumns
from gangsched.core.filter.term_columns import Kind
from gangsched.core.plan_cache import PlanCache
from gangsched.core.work import OutOfWork, Work
from gangsched.model.inter_pod import (
    HostPort,
    InterPodConstraints,
    PodTerm,
    Requirement,
    WeightedPodTerm,
    selects,
)
from gangsched.model.objects import Pod, Shape
from gangsched.model.pods_by_node import (
    Addressee,
    OwnedBy,
    OwnedByAny,
    PodsByNode,
    Question,
    ResolvedTerm,
    Selected,
    TermsAbout,
    UsingPort,
)
from gangsched.model.term_index import entries_of
from tests.builders import amounts, gang, group, node, pod, snapshot
from tests.sizes import of_size

KEYS = ("app", "tier", "pod", "gone")
NAMESPACES = ("a", "b", "c")
OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Later")


def some_selector(dice: random.Random, keys: Sequence[str] = KEYS) -> tuple[Requirement, ...]:
    """A few requirements."""
    requirements = []
    for _ in range(dice.randrange(4)):
        values = tuple(f"v{dice.randrange(6)}" for _ in range(dice.randrange(1, 3)))
        requirements.append(Requirement(dice.choice(keys), dice.choice(OPERATORS), values))

    return tuple(requirements)


def some_pod_term(dice: random.Random) -> PodTerm:
    """A term of a pod, about some namespaces."""
    key = dice.choice(("zone", "host"))
    selector = some_selector(dice) if dice.random() < 0.9 else None
    match dice.randrange(4):
        case 0:
            return PodTerm(key, selector, namespace_selector=some_selector(dice, ("team",)))
        case 1:
            names = tuple(dice.choices(NAMESPACES, k=dice.randrange(1, 3)))
            by_labels = some_selector(dice, ("team",)) if dice.random() < 0.5 else None
            return PodTerm(key, selector, names, by_labels)
        case _:
            return PodTerm(key, selector)


def some_shape(dice: random.Random, number: int) -> Shape:
    """A shape, of which most have terms and ports."""
    affinity, anti_affinity = (
        tuple(some_pod_term(dice) for _ in range(dice.randrange(3))) for _ in range(2)
    )
    preferred = []
    for _ in range(dice.randrange(3)):
        preferred.append(WeightedPodTerm(dice.randrange(-9, 9), some_pod_term(dice)))

    ports = tuple(some_port(dice) for _ in range(dice.randrange(3)))
    constraints = InterPodConstraints(
        ports=ports,
        preferred=tuple(preferred),
        affinity=affinity,
        anti_affinity=anti_affinity,
    )
    requests = amounts(cpu_milli=number + 1, pods=1)
    return Shape(requests=requests, inter_pod=constraints if number else None)


def some_port(dice: random.Random) -> HostPort:
    """A port of a few, and of few addresses."""
    ip = dice.choice(("0.0.0.0", "0.0.0.0", "10.0.0.1", "10.0.0.2", "::"))
    return HostPort(dice.choice(("TCP", "UDP")), 80 + dice.randrange(3), ip)


SHAPES = [some_shape(random.Random(number), number) for number in range(12)]


def some_addressee(dice: random.Random) -> Addressee:
    """A pod that terms may be about."""
    labels = frozenset((key, f"v{dice.randrange(4)}") for key in KEYS if dice.random() < 0.6)
    of_namespace = frozenset({("team", f"v{dice.randrange(4)}")} if dice.random() < 0.7 else ())
    is_known = dice.random() < 0.8
    return Addressee(dice.choice(NAMESPACES), labels, of_namespace if is_known else None)


def some_pod(dice: random.Random, number: int) -> Pod:
    """A pod with some labels, of which one may be its own."""
    labels = {key: f"v{dice.randrange(4)}" for key in KEYS[:2] if dice.random() < 0.7}
    if dice.random() < 0.5:
        labels["pod"] = str(number)

    return pod(
        f"p{number}",
        uid=f"p{number}",
        of=dice.choice(SHAPES),
        namespace=dice.choice(NAMESPACES),
        labels=labels,
        deleting=dice.random() < 0.2,
    )


def some_term(dice: random.Random) -> ResolvedTerm:
    """A term of a few requirements."""
    if dice.random() < 0.1:
        return ResolvedTerm(None, None)

    namespaces = None
    if dice.random() < 0.5:
        namespaces = frozenset(dice.sample((*NAMESPACES, "other"), dice.randrange(4)))

    return ResolvedTerm(namespaces, some_selector(dice))


def some_question(dice: random.Random) -> Question:
    """A question of any kind."""
    owners = [(shape, namespace) for shape in SHAPES for namespace in (*NAMESPACES, "other")]
    match dice.randrange(7):
        case 0:
            return OwnedBy(dice.choice(owners))
        case 1:
            chosen = dice.sample(owners, dice.randrange(1, 6))
            return OwnedByAny.of({owner: dice.randrange(-9, 9) for owner in chosen})
        case 2:
            return UsingPort(some_port(dice))
        case 3 | 4:
            key = dice.choice(("zone", "host", "other"))
            return TermsAbout(some_addressee(dice), key, is_required=dice.random() < 0.5)
        case _:
            terms = tuple(some_term(dice) for _ in range(dice.randrange(1, 3)))
            return Selected(terms, staying=dice.random() < 0.5)


def by_looking(question: Question, nodes: Sequence[dict[str, Pod]]) -> list[int]:
    """What a look at every pod counts."""
    return [sum(question.counts(pod) for pod in there.values()) for there in nodes]


def kinds_by_looking(addressee: Addressee, nodes: Sequence[dict[str, Pod]]) -> list[Kind]:
    """The kinds of the terms that mean a pod."""
    known = addressee.namespace_labels
    namespace_labels = None if known is None else dict(known)
    kinds = set()
    for there in nodes:
        for of in there.values():
            for _, term, weight in entries_of((of.shape, of.namespace)):
                if not selects(term.selector, dict(addressee.labels)):
                    continue
                if term.means_namespace(of.namespace, addressee.namespace, namespace_labels):
                    kinds.add((term.topology_key, weight is None))

    return sorted(kinds)


def changed(dice: random.Random, nodes: list[dict[str, Pod]], number: int) -> None:
    """Pods that come and go or get other labels, and nodes that do; mappings stay as they were."""
    for _ in range(dice.randrange(1, 6)):
        at = dice.randrange(len(nodes))
        there = dict(nodes[at])
        number += 1
        if there and dice.random() < 0.4:
            del there[dice.choice([*there])]
        else:
            new = some_pod(dice, number)
            there[dice.choice([*there, new.uid])] = new

        nodes[at] = there

    if dice.random() < 0.3:
        nodes.insert(dice.randrange(len(nodes) + 1), {})
    if dice.random() < 0.3 and len(nodes) > 1:
        del nodes[dice.randrange(len(nodes))]
    if dice.random() < 0.2:
        nodes.append(dice.choice(nodes))
    if dice.random() < 0.2:
        dice.shuffle(nodes)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(of_size(40, 1_000)))
def test_counts_are_those_of_a_look_at_every_pod(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever pods and nodes come, go, move or change between questions, and wherever plans ended
    in between.
    """
    dice = random.Random(seed)
    monkeypatch.setattr(pod_columns, "FEW", dice.choice((0, 3, 500)))
    monkeypatch.setattr(pod_columns, "FEW_ROWS", dice.choice((0, 20, 4_096)))
    monkeypatch.setattr(pod_columns, "MOST_CELLS", dice.choice((50, 4_000_000)))
    monkeypatch.setattr(pod_columns, "ROWS_A_STEP", dice.choice((1, 3, 2_000)))
    monkeypatch.setattr(pod_columns, "ANEW_AT_ONCE", dice.choice((20, 1_000)))
    monkeypatch.setattr(term_columns, "ROWS_A_STEP", dice.choice((1, 3, 500)))
    monkeypatch.setattr(selector_table, "ADDED_AT_ONCE", dice.choice((1, 3, 4_096)))
    monkeypatch.setattr(term_columns, "FEW_OWNERS", dice.choice((0, 3, 1_000)))
    monkeypatch.setattr(count_cache, "MOST_ONE_BY_ONE", dice.choice((0, 0, 5)))
    cache = CountCache()
    nodes: list[dict[str, Pod]] = [{} for _ in range(dice.randrange(1, 8))]
    version = 0

    for turn in range(30):
        changed(dice, nodes, 100 * turn)
        versions = np.arange(len(nodes)) + version
        version += len(nodes)
        pods = PodsByNode(residents=tuple(nodes), versions=versions)
        for _ in range(3):
            question = some_question(dice)
            if dice.random() < 0.3:
                with suppress(OutOfWork):
                    cache.counts(question, pods, Work(dice.randrange(60)))

            counts = cache.counts(question, pods, Work())
            assert counts.tolist() == by_looking(question, nodes), (turn, question)

        addressee = some_addressee(dice)
        keys = {*dice.choices(("zone", "host", "other"), k=2)}
        kinds = cache.kinds(addressee, keys, pods, Work())
        expected = kinds_by_looking(addressee, nodes)
        assert kinds == [kind for kind in expected if kind[0] in keys]

        if dice.random() < 0.1:
            cache.new_age()

        del pods  # others may get the identity of what only it had


def many(number: int) -> tuple[PodsByNode, list[dict[str, Pod]]]:
    """Pods with labels of their own on ten nodes."""
    nodes: list[dict[str, Pod]] = [{} for _ in range(10)]
    for name in range(number):
        labels = {"app": f"v{name % 7}", "pod": str(name)}
        one = pod(f"p{name}", uid=f"p{name}", of=SHAPES[0], labels=labels)
        nodes[name % 10][one.uid] = one

    return PodsByNode(residents=tuple(nodes), versions=np.arange(10)), nodes


def selecting(*requirements: Requirement) -> Selected:
    """The question about pods of all namespaces that meet these."""
    return Selected((ResolvedTerm(None, requirements),))


def test_what_was_read_for_one_question_is_there_for_the_next() -> None:
    """A column is charged by its pods, once; another value of the label costs a comparison."""
    pods, nodes = many(20_000)
    cache, work = CountCache(), Work()
    cache.counts(selecting(Requirement("app", "In", ("v1",))), pods, work)
    assert work.used > 20_000 // pod_columns.LABELS_A_UNIT
    before = work.used
    question = selecting(Requirement("app", "In", ("v2", "v3")))
    assert cache.counts(question, pods, work).tolist() == by_looking(question, nodes)
    assert work.used - before < 20_000 // pod_columns.LABELS_A_UNIT // 2


def test_a_question_that_one_plan_has_not_done_goes_on_in_the_next() -> None:
    """Ten labels that no pod has been asked for take more than a plan; each plan reads some."""
    pods, nodes = many(20_000)
    requirements = [Requirement(f"k{number}", "DoesNotExist") for number in range(10)]
    question = selecting(*requirements)
    cache = CountCache()
    plans = 0
    while plans < 20:
        plans += 1
        try:
            counts = cache.counts(question, pods, Work(5_000))
            break
        except OutOfWork:
            continue

    assert 1 < plans < 20
    assert counts.tolist() == by_looking(question, nodes)


def with_terms(number: int, first: int = 0) -> PodsByNode:
    """Pods of which each has a term and a port of its own, on ten nodes."""
    nodes: list[dict[str, Pod]] = [{} for _ in range(10)]
    for name in range(first, first + number):
        term = PodTerm("zone", (Requirement(f"not-{name}", "DoesNotExist"),))
        ports = (HostPort("TCP", name),)
        of = Shape(
            requests=amounts(pods=1),
            inter_pod=InterPodConstraints(anti_affinity=(term,), ports=ports),
        )
        namespace = "ns" if name % 2 else f"ns-{name}"
        one = pod(f"p{name}", uid=f"p{name}", of=of, namespace=namespace)
        nodes[name % 10][one.uid] = one

    return PodsByNode(residents=tuple(nodes), versions=np.arange(10))


QUESTIONS: dict[str, Question] = {
    "labels": selecting(Requirement("app", "Exists"), Requirement("pod", "DoesNotExist")),
    "namespaces": Selected((ResolvedTerm(frozenset({"ns"}), (Requirement("a", "Exists"),)),)),
    "ports": UsingPort(HostPort("TCP", 80)),
    "owners": OwnedBy((SHAPES[1], "ns")),
    "terms": TermsAbout(Addressee("ns", frozenset()), "zone", is_required=True),
}


@pytest.mark.parametrize("kind", QUESTIONS)
def test_no_plan_does_more_than_it_may_and_each_comes_further(kind: str) -> None:
    """However many pods there are, and whatever they have: a step is the most that is too much."""
    pods = with_terms(4_500)
    cache = CountCache()
    most = 800
    read = [0]
    while len(read) < 200:
        work = Work(most)
        try:
            counts = cache.counts(QUESTIONS[kind], pods, work)
        except OutOfWork:
            # What was charged last was not done.
            assert work.used < 2 * most
            read.append(cache.read)
            continue

        break

    assert 1 < len(read) < 200
    # A group is given up after three plans without progress.
    assert all(later > earlier for earlier, later in zip(read, read[3:], strict=False))
    assert counts.tolist() == by_looking(QUESTIONS[kind], pods.residents)  # type: ignore[arg-type]


def test_rows_of_pods_that_are_gone_are_forgotten() -> None:
    """They are never more than those that are there, but for a few thousand."""
    columns = PodColumns()
    question = selecting(Requirement("app", "In", ("v1",)))
    for turn in range(6):
        pods, nodes = many(3_000 - turn)
        assert columns.counts(question, pods, Work()).tolist() == by_looking(question, nodes)
        assert len(columns) <= 2 * 3_000


def test_owners_of_terms_that_are_gone_are_forgotten() -> None:
    """Those that are there are read anew beside them, some for each question."""
    columns = PodColumns()
    question = QUESTIONS["terms"]
    for turn in range(60):
        pods = with_terms(1_500, first=500 * turn)
        counts = columns.counts(question, pods, Work())
        assert counts.tolist() == by_looking(question, pods.residents)  # type: ignore[arg-type]
        assert columns.owners < 4 * 1_500


def test_a_gang_waits_while_plans_count_for_it_and_is_not_given_up() -> None:
    """Each plan has work for a column or two of the twelve that its terms ask for."""
    placed = []
    for number in range(5_000):
        name = f"p{number}"
        one = pod(name, uid=name, of=Shape(requests=amounts(pods=1)), labels={"pod": name})
        placed.append((one, f"n{number % 10}"))

    nodes = [node(f"n{number}", cpu_milli=1_000, pods=1_000) for number in range(11)]
    terms = []
    for number in range(6):
        requirements = (Requirement(f"k{number}", "DoesNotExist"), Requirement("none", "Exists"))
        terms.append(PodTerm("zone", requirements))

    of = Shape(
        requests=amounts(cpu_milli=10, pods=1),
        inter_pod=InterPodConstraints(anti_affinity=tuple(terms)),
    )
    waiting = group(gang("ns/g", [pod("g-0", of=of)]))
    shot = snapshot(nodes, placed)
    cache, unfinished = PlanCache(), None
    plans = 0
    while plans < 50:
        plans += 1
        made = plan(
            shot,
            [waiting],
            now_s=0.0,
            limits=Limits(work=1_800),
            cache=cache,
            unfinished=unfinished,
        )
        unfinished = made.unfinished
        if made.verdicts:
            break

    assert plans > 4
    (verdict,) = made.verdicts
    assert len(verdict.binds) == 1
