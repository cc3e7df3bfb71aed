"""Terms of existing pods about one pod: very many, asked by kind, against each by itself."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from msgspec import structs

from gangsched.core.filter import pod_counts
from gangsched.core.reserve import Ledger
from gangsched.core.work import Work
from gangsched.model.inter_pod import InterPodConstraints, PodTerm, Requirement
from gangsched.model.objects import Pod
from gangsched.model.snapshot import Snapshot
from tests.builders import node, pod, shape, snapshot
from tests.sizes import of_size
from tests.unit.core.filter.test_pod_columns import NAMESPACES, some_pod

NODES = [node(f"n{number}", 64, labels={"zone": f"z{number % 3}"}) for number in range(6)]
NODES.append(node("host", 64, labels={"host": "h"}))


def cluster(dice: random.Random, pods: int) -> Snapshot:
    """Pods with terms on some nodes, in namespaces of which one may be unknown."""
    placed = []
    for number in range(pods):
        placed.append((some_pod(dice, number), dice.choice(NODES).name))

    namespaces: dict[str, Mapping[str, str]] = {}
    for name in NAMESPACES:
        if dice.random() < 0.8:
            namespaces[name] = {"team": f"v{dice.randrange(4)}"}

    shot = snapshot(NODES, placed)
    pods_by_node = structs.replace(shot.pods_by_node, namespaces=namespaces)
    return structs.replace(shot, pods_by_node=pods_by_node)


def asked(pods: Sequence[Pod], ledger: Ledger) -> list[object]:
    """By pod which nodes are refused for its sake, and the sum of what prefers others."""
    answers: list[object] = []
    counts = ledger.occupancy.pods
    for one in pods:
        terms = counts.existing_terms(one)
        refused = np.zeros(len(ledger.table), dtype=np.bool_)
        for question, key in terms.anti_affinity:
            refused |= counts.by_domain(question, key).by_node() > 0

        score = np.zeros(len(ledger.table), dtype=np.int64)
        for question, key, weight in terms.preferred:
            score += counts.by_domain(question, key).by_node() * weight

        answers.append((refused.tolist(), score.tolist()))

    return answers


def history(dice: random.Random, shot: Snapshot) -> list[object]:
    """What pods are told while others come, go and come back in a plan."""
    ledger = Ledger(shot)
    waiting = [some_pod(dice, 1_000 + number) for number in range(6)]
    for number, one in enumerate(waiting):
        of = pod(f"w{number}", uid=f"w{number}", of=one.shape, namespace=one.namespace)
        waiting[number] = structs.replace(of, labels=one.labels)

    answers = asked(waiting, ledger)
    for number in range(8):
        checkpoint = ledger.checkpoint()
        came = some_pod(dice, 2_000 + number)
        ledger.reserve_many([came], [dice.randrange(len(NODES))])
        answers += asked(dice.sample(waiting, 3), ledger)
        if dice.random() < 0.4:
            ledger.rollback(checkpoint)

    return answers + asked(waiting, ledger)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(of_size(60, 1_000)))
def test_terms_asked_by_kind_keep_off_and_attract_as_each_by_itself(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those of pods that came in the plan, and were taken back."""
    shot = cluster(random.Random(seed), pods=seed % 20)
    expected = history(random.Random(seed), shot)
    for few_terms, few_owners in ((0, 1_000), (3, 2), (-1, 0)):
        monkeypatch.setattr(pod_counts, "FEW_TERMS", few_terms)
        monkeypatch.setattr(pod_counts, "FEW_OWNERS", few_owners)
        assert history(random.Random(seed), shot) == expected


def test_what_comes_in_a_plan_is_charged_by_its_terms_once_for_each_owner(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ten pods of one shape with sixty terms cost as one, and far more than pods without."""
    monkeypatch.setattr(pod_counts, "FEW_OWNERS", 0)
    terms = tuple(PodTerm("zone", (Requirement(f"k{number}", "Exists"),)) for number in range(60))
    of = shape(1, inter_pod=InterPodConstraints(anti_affinity=terms))
    for number in (1, 10):
        work = Work()
        ledger = Ledger(snapshot(NODES, []), work=work)
        waits = pod("w", of=shape(1), labels={"k7": "x"})
        members = [pod(f"p{each}", uid=f"p{each}", of=of) for each in range(number)]
        ledger.reserve_many(members, [1] * number)
        (question, key), *others = ledger.occupancy.pods.existing_terms(waits).anti_affinity
        assert not others
        before = work.used
        assert ledger.occupancy.pods.by_domain(question, key).by_node().any()
        assert 240 < work.used - before < 400
