"""The terms of pods on nodes, found by the labels of those that they may select."""

from __future__ import annotations

import itertools
import random

from gangsched.model.inter_pod import (
    InterPodConstraints,
    PodTerm,
    Requirement,
    Selector,
    WeightedPodTerm,
    selects,
)
from gangsched.model.objects import Pod
from gangsched.model.term_index import (
    FEW_VALUES,
    TermBook,
    TermEntry,
    TermIndex,
    TermOwner,
    entries_of,
)
from tests.builders import pod, shape

KEYS, VALUES, NAMESPACES = ("app", "tier", "zone"), ("a", "b", "c"), ("x", "y")
MANY_VALUES = tuple(f"v{number}" for number in range(FEW_VALUES)) + VALUES


def requirement(chance: random.Random) -> Requirement:
    """Any requirement."""
    operator = chance.choice(("In", "In", "NotIn", "Exists", "DoesNotExist", "Gt"))
    values: tuple[str, ...] = ()
    if operator in {"In", "NotIn"}:
        few = tuple(chance.sample(VALUES, chance.randint(1, 2)))
        values = chance.choice((few, MANY_VALUES, few + few))

    return Requirement(chance.choice(KEYS), operator, values)


def term(chance: random.Random) -> PodTerm:
    """Any term."""
    selector: Selector = None
    if chance.random() < 0.9:
        selector = tuple(requirement(chance) for _ in range(chance.randint(0, 2)))

    return PodTerm(
        topology_key=chance.choice(("host", "rack")),
        selector=selector,
        namespaces=chance.choice(((), ("y",))),
        namespace_selector=chance.choice((None, (), (requirement(chance),))),
    )


def owner(chance: random.Random) -> TermOwner:
    """A shape with one to three terms of a namespace."""
    kinds = [chance.randint(0, 2) for _ in range(chance.randint(1, 3))]
    terms = [(kind, term(chance)) for kind in kinds]
    constraints = InterPodConstraints(
        affinity=tuple(each for kind, each in terms if kind == 0),
        anti_affinity=tuple(each for kind, each in terms if kind == 1),
        preferred=tuple(WeightedPodTerm(-3, each) for kind, each in terms if kind == 2),
    )
    return shape(0, 1, inter_pod=constraints), chance.choice(NAMESPACES)


def may_select(entry: TermEntry, about: Pod) -> bool:
    """Whether a term selects the labels of a pod, and may be about its namespace."""
    _, stated, _ = entry
    is_own = not stated.namespaces and stated.namespace_selector is None
    if is_own and about.namespace != entry.owner[1]:
        return False

    return selects(stated.selector, about.labels)


def led_to(index: TermIndex, about: Pod) -> list[TermEntry]:
    """The terms to which the labels of a pod lead."""
    return [entry for entries in index.about(about) for entry in entries]


def everybody() -> list[Pod]:
    """Pods with any labels in both namespaces."""
    values = (None, *VALUES)
    result = []
    for number, labels in enumerate(itertools.product(values, repeat=len(KEYS))):
        pairs = {key: value for key, value in zip(KEYS, labels, strict=True) if value}
        result += [pod(f"{number}", namespace=each, labels=pairs) for each in NAMESPACES]

    return result


def test_the_labels_of_a_pod_lead_to_all_terms_that_may_select_it() -> None:
    """Once to each, while pods come and go; what was shown stays as it was."""
    chance = random.Random(48)
    pods = everybody()
    for _ in range(12):
        book = TermBook()
        owners = [owner(chance) for _ in range(12)]
        there: list[TermOwner] = []
        for _ in range(60):
            if there and chance.random() < 0.45:
                gone = there.pop(chance.randrange(len(there)))
                book.count(gone, -1)
            else:
                there.append(chance.choice(owners))
                book.count(there[-1], +1)

            if chance.random() < 0.8:
                continue

            index = book.shown()
            entries = [entry for each in dict.fromkeys(there) for entry in entries_of(each)]
            assert dict(index.owners) == {each: there.count(each) for each in set(there)}
            assert set(index.label_keys) == {
                key for each in there for key in each[0].constraints.keys
            }
            assert set(index.anti_affinity_keys) == {
                entry.term.topology_key for entry in entries if entry.weight is None
            }
            for about in chance.sample(pods, 20):
                led = [entry for entry in led_to(index, about) if may_select(entry, about)]
                assert sorted(map(repr, led)) == sorted(
                    repr(entry) for entry in entries if may_select(entry, about)
                )

        before = book.shown()
        led_before = [led_to(before, about) for about in pods]
        for each in there:
            book.count(each, -1)

        assert book.shown().entries == {}
        assert book.shown() is book.shown()
        assert [led_to(before, about) for about in pods] == led_before


def test_terms_about_others_lead_nowhere() -> None:
    """Ten thousand pods with terms about pods of their own, and none is looked at for another."""
    book = TermBook()
    for number in range(10_000):
        own = PodTerm("host", (Requirement("app", "In", (f"a{number}",)),), (), ())
        constraints = InterPodConstraints(anti_affinity=(own,))
        book.count((shape(0, 1, inter_pod=constraints), "x"), +1)

    index = book.shown()
    assert led_to(index, pod("p", namespace="y", labels={"app": "b", "tier": "a7"})) == []
    assert len(led_to(index, pod("p", namespace="y", labels={"app": "a7"}))) == 1
