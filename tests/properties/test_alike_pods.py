"""Pods that are treated alike: what deciding reads of one of them is in the key of all."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gangsched.core import preferences
from gangsched.core.cycle import plan
from gangsched.core.filter.plugin import Occupancy
from gangsched.core.reserve import Ledger
from gangsched.model.inter_pod import (
    InterPodConstraints,
    PodTerm,
    Requirement,
    Spread,
    WeightedPodTerm,
)
from gangsched.model.objects import Node, Pod, Shape
from gangsched.model.snapshot import Bools, Ints
from tests.builders import gang, group, node, pod, shape, snapshot

HOSTNAME = "kubernetes.io/hostname"
OF_APP = (Requirement("app", "In", ("web",)),)
OF_TIER = (Requirement("tier", "Exists"),)
CONSTRAINTS = {
    "none": None,
    "anti-affinity": InterPodConstraints(anti_affinity=(PodTerm(HOSTNAME, OF_APP),)),
    "affinity": InterPodConstraints(affinity=(PodTerm(HOSTNAME, OF_TIER),)),
    "preferred": InterPodConstraints(
        preferred=(WeightedPodTerm(weight=3, term=PodTerm(HOSTNAME, OF_TIER)),)
    ),
    "spread": InterPodConstraints(
        spread=(
            Spread(
                topology_key=HOSTNAME,
                max_skew=1,
                selector=OF_APP,
                match_label_keys=("version",),
            ),
        )
    ),
}
VALUES = {"app": "web", "tier": "front", "version": "1", "example.com/never-read": "x"}


class NotedLabels(dict[str, str]):
    """Labels of a pod that note which of them are read."""

    def __init__(self, values: dict[str, str], read: set[str]) -> None:
        super().__init__(values)
        self._read = read

    def __getitem__(self, key: str) -> str:
        self._read.add(key)
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        self._read.add(str(key))
        return super().__contains__(key)

    def __iter__(self) -> Iterator[str]:
        self._read.update(self.keys())
        return super().__iter__()

    def get(self, key: str, default: str | None = None) -> str | None:  # type: ignore[override]
        """The value of one label."""
        self._read.add(key)
        return super().get(key, default)


def nodes() -> list[Node]:
    """Five nodes, each a domain of its own."""
    return [node(name, 8, labels={HOSTNAME: name}) for name in "abcde"]


def members(of: Shape, read: set[str], number: int = 4) -> list[Pod]:
    """Pods of one shape, with labels that note what is read of them."""
    return [
        pod(f"g{index}", of=of, labels=NotedLabels(VALUES, read), controller_uid="set", owner="set")
        for index in range(number)
    ]


def unkeyed(constraints: InterPodConstraints | None, number: int) -> set[str]:
    """The labels that a plan reads of alike pods, without those in their key."""
    read: set[str] = set()
    pods = members(shape(1, inter_pod=constraints), read, number)
    placed = [(pod("other", of=shape(1), labels=VALUES), "a")]

    key_of = Ledger(snapshot(nodes(), placed)).occupancy.equivalence(pods)
    for member in pods:
        key_of(member)
    keyed = set(read)
    read.clear()

    verdict = plan(snapshot(nodes(), placed), [group(gang("ns/g", pods))], now_s=1.0).verdicts[0]
    assert len(verdict.binds) == number
    return read - keyed


@pytest.mark.parametrize("number", [1, 4])
@pytest.mark.parametrize("kind", CONSTRAINTS)
def test_only_labels_of_the_key_are_read(kind: str, number: int) -> None:
    """Else the first of several alike pods would decide for pods with another value."""
    assert unkeyed(CONSTRAINTS[kind], number) == set()


def test_a_label_that_the_key_forgets_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a scoring rule whose label `Occupancy.equivalence` does not read."""
    pod_penalty = preferences.pod_penalty

    def with_a_label(first: Pod, feasible: Bools, occupancy: Occupancy) -> Ints | None:
        first.labels.get("example.com/forgotten")
        return pod_penalty(first, feasible, occupancy)

    monkeypatch.setattr(preferences, "pod_penalty", with_a_label)
    assert unkeyed(None, 4) == {"example.com/forgotten"}
