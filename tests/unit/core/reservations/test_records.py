"""Reservations from one plan to the next: what is the same is not counted again (H12, H17)."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from gangsched.core.cycle import plan
from gangsched.core.plan_cache import PlanCache
from gangsched.model.gang import Group
from gangsched.model.reservation import (
    Blocker,
    Occupant,
    ReservationLimits,
    Reservations,
    Reserving,
)
from tests.builders import gang, group, node, pod, running, snapshot

FOUR = [node(name) for name in "abcd"]
HEAD = group(gang("ns/head", [pod(f"head-{n}", gpus=8) for n in range(2)]))
OTHER = group(gang("ns/other", [pod("other", gpus=8, creation_s=9)]), creation_s=9)


class Cluster:
    """Four full nodes; what plans keep of them is in `cache`."""

    def __init__(self) -> None:
        ends_s = {"a": 50.0, "b": 60.0, "c": 70.0, "d": 80.0}
        self.occupants: dict[str, Sequence[Occupant]] = {
            name: (Occupant(running(pod(f"on-{name}"), name), name, 0.0, at_s),)
            for name, at_s in ends_s.items()
        }
        self.cache = PlanCache()

    def plan(self, *queue: Group, standing: Reservations | None = None) -> Reservations:
        """What stands after a plan of these groups."""
        there = [(on.pod, name) for name, on_node in self.occupants.items() for on in on_node]
        reserving = Reserving(
            limits=ReservationLimits(),
            wall_s=10.0,
            occupants=lambda: self.occupants,
            standing=standing.standing if standing is not None else (),
            waiting=(HEAD,) if standing is not None else (),
        )
        found = plan(
            snapshot(FOUR, there), queue, now_s=0.0, reserving=reserving, cache=self.cache
        ).reservations
        assert found is not None
        return found


def test_what_did_not_change_is_the_same_object() -> None:
    """The next plan is given what this one was, so that comparing them costs nothing."""
    cluster = Cluster()
    first = cluster.plan(HEAD)
    second = cluster.plan(OTHER, standing=first)
    third = cluster.plan(OTHER, standing=second)
    assert first.standing[0].nodes == ("a", "b")
    assert third.standing[0] is second.standing[0]


def test_an_occupant_that_changed_is_read() -> None:
    """Another pod on a reserved node is another one to wait for, whatever is remembered."""
    cluster = Cluster()
    standing = cluster.plan(OTHER, standing=cluster.plan(HEAD))
    assert standing.standing[0].waits_for == (Blocker("ns/on-b", "ns"), Blocker("ns/on-a", "ns"))
    new = Occupant(running(pod("new"), "a"), "a", 0.0, 55.0)
    cluster.occupants = {**cluster.occupants, "a": (new,)}
    assert cluster.plan(OTHER, standing=standing).standing[0].waits_for == (
        Blocker("ns/on-b", "ns"),
        Blocker("ns/new", "ns"),
    )


def test_groups_without_a_reservation_are_forgotten() -> None:
    """What was remembered of a head goes with its reservation."""
    cluster = Cluster()
    standing = cluster.plan(HEAD)
    cluster.plan(OTHER, standing=standing)
    assert any("ns/head" in key for key in cluster.cache.reservations.results)
    cluster.plan(
        structs.replace(HEAD, gangs=(structs.replace(HEAD.gangs[0], min_member=9),)),
        OTHER,
        standing=standing,
    )
    assert not any("ns/head" in key for key in cluster.cache.reservations.results)


def test_a_gang_does_not_wait_for_the_end_of_its_own_pods() -> None:
    """H14: a member was lost, and another pod has its room: only that one's end is told."""
    cluster = Cluster()
    own = Occupant(running(pod("head-0", gpus=4), "a"), "a", 0.0, 40.0, group="ns/head")
    thief = Occupant(running(pod("thief", gpus=4), "a"), "a", 0.0, 45.0)
    full = {
        name: (Occupant(running(pod(f"on-{name}", gpus=8), name), name, 0.0, 80.0),)
        for name in "bcd"
    }
    cluster.occupants = {**full, "a": (own, thief)}
    of_gang = gang(
        "ns/head",
        [pod("head-1", gpus=4)],
        min_member=2,
        permitted_min=2,
        bound=1,
        satisfied=True,
        nodes=("a",),
    )
    lost = group(of_gang, broken=True)

    (reserved,) = cluster.plan(lost).standing
    assert (reserved.nodes, reserved.at_s) == (("a",), 45.0)
    assert reserved.waits_for == (Blocker("ns/thief", "ns"),)
