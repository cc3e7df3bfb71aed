"""Labels that terms read: which pods are alike, of few keys and of very many."""

from __future__ import annotations

import random

import pytest

from gangsched.core.filter import label_keys
from gangsched.core.reserve import Ledger
from gangsched.model.inter_pod import InterPodConstraints, PodTerm, Requirement
from gangsched.model.objects import Pod
from tests.builders import node, pod, shape, snapshot

KEYS = [f"k{number}" for number in range(9)]


def reading(*keys: str) -> Pod:
    """A running pod with a term that reads these labels."""
    requirements = tuple(Requirement(key, "DoesNotExist") for key in keys)
    constraints = InterPodConstraints(anti_affinity=(PodTerm("zone", requirements),))
    return pod(f"of-{'-'.join(keys)}", of=shape(1, inter_pod=constraints))


@pytest.mark.parametrize("seed", range(30))
def test_pods_are_alike_whose_labels_differ_only_in_what_no_term_reads(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether each key is looked up in the labels, or each label among the keys."""
    dice = random.Random(seed)
    read = dice.sample(KEYS, dice.randrange(1, 6))
    placed = [(reading(*read), "a")]
    of = shape(1)
    pods = []
    for number in range(20):
        labels = {key: dice.choice("xy") for key in KEYS if dice.random() < 0.5}
        pods.append(pod(f"p{number}", of=of, labels=labels))

    by_looking = [tuple(one.labels.get(key) for key in sorted(read)) for one in pods]
    for few in (0, 64):
        monkeypatch.setattr(label_keys, "FEW", few)
        key_of = Ledger(snapshot([node("a", 8)], placed)).occupancy.equivalence(pods)
        keys = [key_of(one) for one in pods]
        for number, one in enumerate(keys):
            alike = [other == one for other in keys]
            assert alike == [labels == by_looking[number] for labels in by_looking]


def test_of_very_many_keys_only_the_labels_of_a_pod_are_looked_at() -> None:
    """A hundred thousand running pods may each read a label of their own."""
    one = reading(*(f"key-{number}" for number in range(500)))
    ledger = Ledger(snapshot([node("a", 8)], [(one, "a")]))
    waits = pod("p", labels={"key-7": "x", "other": "y"})
    keys = ledger.occupancy.pods.label_keys([waits])
    assert keys is not None
    expected = frozenset({("key-7", "x")})
    assert keys.read()(waits.labels) == expected
