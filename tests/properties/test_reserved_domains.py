"""Reservations in one required domain, against every time and every rack (H5, H6): the earliest end
at which a rack holds the head, and the fence whose nodes are empty soonest.

The answers are made from plain numbers alone. Cases are named by their seeds.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import pytest

from gangsched.core.cycle import plan
from gangsched.model.gang import Group
from gangsched.model.gpu_policy import PlacementConstraints
from gangsched.model.objects import Node
from gangsched.model.reservation import Occupant, ReservationLimits, Reserved, Reserving
from tests import builders
from tests.sizes import of_size

pytestmark = pytest.mark.long

CASES = of_size(80, 5_000)
NOW_S = 200.0
LIMITS = ReservationLimits(fence_after_s=50.0, small_head_after_s=0.0, small_head_latest_s=0.0)


@dataclass(frozen=True)
class Case:
    """Nodes in racks, what runs on them, and a gang that asks for `asks` GPUs in one rack."""

    seed: int
    nodes: tuple[Node, ...]
    occupants: dict[str, tuple[Occupant, ...]]
    asks: tuple[int, ...]

    @property
    def group(self) -> Group:
        """The gang, which has waited since before `NOW_S`."""
        pods = [builders.pod(f"h{n}", gpus=gpus, uid=f"h{n}") for n, gpus in enumerate(self.asks)]
        gang = builders.gang("ns/high", pods, constraints=PlacementConstraints(topology=("rack",)))
        return builders.group(gang, creation_s=0)

    @property
    def ends_s(self) -> list[float]:
        """Known ends, each once."""
        return sorted(
            {each.ends_s for there in self.occupants.values() for each in there} - {math.inf}
        )

    def racks(self, at_s: float) -> Iterator[list[tuple[str, int]]]:
        """Of each rack its nodes and their free GPUs, once all that end by then are gone."""
        for rack in sorted({node.labels["rack"] for node in self.nodes}):
            yield [
                (node.name, self._free(node, at_s))
                for node in self.nodes
                if node.labels["rack"] == rack
            ]

    def fits(self, at_s: float) -> bool:
        """Whether a rack holds the gang then."""
        return any(
            _fits(self.asks, tuple(sorted(free for _, free in rack))) for rack in self.racks(at_s)
        )

    def empties(self, node: str) -> tuple[bool, float]:
        """Smaller for nodes that are expected to be empty sooner: an empty one, then by the latest
        start.
        """
        there = self.occupants[node]
        return bool(there), -min((each.started_s for each in there), default=0.0)

    def soonest(self) -> tuple[bool, float] | None:
        """The last node to be empty of the fence that is soonest; None if no rack ever holds the
        gang.
        """
        found = []
        for rack in self.racks(math.inf):
            ordered = sorted(rack, key=lambda each: self.empties(each[0]))
            for length in range(1, len(ordered) + 1):
                whole = [
                    dict(self._node(name).allocatable)[builders.GPU] for name, _ in ordered[:length]
                ]
                if _fits(self.asks, tuple(sorted(whole))):
                    found.append(self.empties(ordered[length - 1][0]))
                    break
        return min(found, default=None)

    def reserved(self) -> Reserved | None:
        """What one plan reserves."""
        there = [
            (each.pod, each.node) for each in (o for on in self.occupants.values() for o in on)
        ]
        reserving = Reserving(
            limits=LIMITS, wall_s=NOW_S, waiting=(self.group,), occupants=lambda: self.occupants
        )
        made = plan(
            builders.snapshot(self.nodes, there), [self.group], now_s=0.0, reserving=reserving
        ).reservations
        assert made is not None
        return next(iter(made.standing), None)

    def _free(self, node: Node, at_s: float) -> int:
        used = (dict(each.pod.shape.requests)[builders.GPU] for each in self._later(node, at_s))
        return dict(node.allocatable)[builders.GPU] - sum(used)

    def _later(self, node: Node, at_s: float) -> list[Occupant]:
        return [each for each in self.occupants[node.name] if each.ends_s > at_s]

    def _node(self, name: str) -> Node:
        return next(node for node in self.nodes if node.name == name)


def case(seed: int) -> Case:
    """Up to eight racks of up to four nodes; where a seed is even, some ends are unknown."""
    dice = random.Random(seed)
    unknown = dice.choice((0.0, 0.15, 1.0))
    nodes = [
        builders.node(
            f"n{rack}-{n}", dice.choice((4, 6, 8)), labels={"rack": f"r{rack}", "zone": "z"}
        )
        for rack in range(dice.randint(2, 8))
        for n in range(dice.randint(1, 4))
    ]
    occupants = {}
    for node in nodes:
        left, there = dict(node.allocatable)[builders.GPU], list[Occupant]()
        while left and len(there) < 2 and dice.random() < 0.85:
            gpus = dice.randint(1, left)
            left -= gpus
            pod = builders.running(
                builders.pod(f"on-{node.name}-{len(there)}", gpus=gpus), node.name
            )
            ends_s = math.inf if dice.random() < unknown else NOW_S + 10 * dice.randint(1, 80)
            there.append(Occupant(pod, node.name, -float(dice.randint(1, 10**6)), ends_s))
        occupants[node.name] = tuple(there)
    asks = sorted((dice.randint(1, 8) for _ in range(dice.randint(2, 7))), reverse=True)
    return Case(seed, tuple(nodes), occupants, tuple(asks))


def waiting() -> Iterator[Case]:
    """The cases in which the gang does not fit as it is."""
    print(f"seeds 0 to {CASES - 1}")
    for seed in range(CASES):
        if not (drawn := case(seed)).fits(NOW_S):
            yield drawn


def test_the_earliest_time_of_any_rack_is_found() -> None:
    """H5: the first expected end at which one rack holds the head, however fragmented the racks are
    before it.
    """
    wrong, timed = [], 0
    for drawn in waiting():
        earliest = next((end_s for end_s in drawn.ends_s if drawn.fits(end_s)), None)
        if earliest is None:
            continue
        timed += 1
        found = drawn.reserved()
        if found is None or found.at_s != earliest:
            wrong.append((drawn.seed, earliest, found))
    assert wrong == []
    assert timed > CASES // 8


def test_a_fence_lies_in_the_rack_that_is_empty_soonest() -> None:
    """H6: where no time is known, one rack is fenced: the one whose last node is empty before that
    of others.
    """
    wrong, fenced = [], 0
    for drawn in waiting():
        if any(drawn.fits(end_s) for end_s in drawn.ends_s):
            continue
        soonest, found = drawn.soonest(), drawn.reserved()
        if soonest is None or found is None:
            wrong += (
                [(drawn.seed, soonest, found)] if (soonest is None) is not (found is None) else []
            )
            continue
        fenced += 1
        racks = {node.labels["rack"] for node in drawn.nodes if node.name in found.nodes}
        if (
            len(racks) > 1
            or found.at_s != math.inf
            or max(map(drawn.empties, found.nodes)) != soonest
        ):
            wrong.append((drawn.seed, soonest, found))
    assert wrong == []
    assert fenced > CASES // 20


@cache
def _fits(asks: tuple[int, ...], free: tuple[int, ...]) -> bool:
    if not asks:
        return True
    rests = (
        tuple(sorted((*free[:n], free[n] - asks[0], *free[n + 1 :])))
        for n in range(len(free))
        if free[n] >= asks[0]
    )
    return any(_fits(asks[1:], rest) for rest in rests)
