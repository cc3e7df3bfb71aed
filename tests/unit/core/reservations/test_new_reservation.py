"""Timed reservations and fences: H5 to H7 of the backfill design."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from gangsched.core.reservations.heads import Head, empty_ledger, needed, waiting_since_s
from gangsched.core.reservations.new_reservation import Reservation, make_reservations
from gangsched.core.reservations.timeline import Timeline
from gangsched.core.reserve import Ledger
from gangsched.model.gang import Group, Placement
from gangsched.model.gpu_policy import PlacementConstraints
from gangsched.model.objects import Node
from gangsched.model.reservation import NotEntitled, NotReserved, Occupant, ReservationLimits
from tests.builders import gang, group, node, pod, running, snapshot

NOW_S = 100_000.0
FOUR = [node(name) for name in "abcd"]


def on(
    name: str, gpus: int = 8, *, ends: float = math.inf, started: float = NOW_S - 100
) -> Occupant:
    """A pod on a node."""
    return Occupant(running(pod(f"on-{name}", gpus=gpus), name), name, started, ends)


def waiting(
    name: str, pods: int, gpus: int = 8, *, since_s: int = 0, topology: tuple[str, ...] = ()
) -> Group:
    """A group that waits since then."""
    members = [pod(f"{name}-{n}", gpus=gpus, creation_s=since_s) for n in range(pods)]
    return group(gang(f"ns/{name}", members, constraints=PlacementConstraints(topology=topology)))


def reserved(
    groups: Iterable[Group],
    occupants: list[Occupant],
    nodes: list[Node] | None = None,
    *,
    limits: ReservationLimits | None = None,
    fences: dict[str, frozenset[str]] | None = None,
    run_time_s: float = math.inf,
) -> list[Reservation]:
    """The reservations of these groups as heads; ledgers are left as found."""
    return made(groups, occupants, nodes, limits=limits, fences=fences, run_time_s=run_time_s)[0]


def why_not(groups: Iterable[Group], occupants: list[Occupant]) -> dict[str, NotReserved]:
    """Why these groups got none."""
    return made(groups, occupants)[1]


def made(
    groups: Iterable[Group],
    occupants: list[Occupant],
    nodes: list[Node] | None = None,
    *,
    limits: ReservationLimits | None = None,
    fences: dict[str, frozenset[str]] | None = None,
    run_time_s: float = math.inf,
) -> tuple[list[Reservation], dict[str, NotReserved]]:
    """What `make_reservations` answers."""
    now = snapshot(nodes or FOUR, [(each.pod, each.node) for each in occupants])
    ledger, empty = Ledger(now), empty_ledger(now)
    heads = [
        Head(each, each, gangs, waiting_since_s(gangs), run_time_s)
        for each in groups
        if (gangs := needed(each))
    ]
    found, why = make_reservations(
        heads,
        ledger,
        empty,
        Timeline.of(occupants, ledger),
        limits or ReservationLimits(share=1),
        wall_s=NOW_S,
        standing={
            each.group.id: Reservation(
                each, math.inf, np.flatnonzero(ledger.table.having(fences[each.group.id]))
            )
            for each in heads
            if fences and each.group.id in fences
        },
    )
    assert (ledger.free == now.free).all()
    assert (empty.free == now.allocatable).all()
    return found, why


def names(reservation: Reservation, nodes: list[Node] | None = None) -> str:
    """The nodes of a reservation, by their one-letter names."""
    ordered = sorted(each.name for each in nodes or FOUR)
    return "".join(ordered[index] for index in reservation.nodes.tolist())


def test_the_earliest_end_that_makes_enough_room() -> None:
    """A gang of two nodes waits for the second of three ends, and takes the nodes that are free
    then.
    """
    occupants = [
        on("a", ends=NOW_S + 30),
        on("b", ends=NOW_S + 10),
        on("c", ends=NOW_S + 20),
        on("d"),
    ]
    (found,) = reserved([waiting("g", 2)], occupants)
    assert (found.at_s, names(found), found.is_fence) == (NOW_S + 20, "bc", False)
    assert [placement.node for placement in found.placements] == ["b", "c"]


def test_what_is_free_already_counts() -> None:
    """One free node and the first end."""
    (found,) = reserved(
        [waiting("g", 2)], [on("a", ends=NOW_S + 30), on("b", ends=NOW_S + 10), on("c")]
    )
    assert (found.at_s, names(found)) == (NOW_S + 10, "bd")


def test_later_heads_keep_off_earlier_reservations() -> None:
    """In order: the second head does not get the node of the first, though that is free before."""
    occupants = [
        on("a", ends=NOW_S + 10),
        on("b", ends=NOW_S + 20),
        on("c", ends=NOW_S + 30),
        on("d"),
    ]
    first, second = reserved([waiting("f", 2), waiting("s", 1)], occupants)
    assert (first.at_s, names(first)) == (NOW_S + 20, "ab")
    assert (second.at_s, names(second)) == (NOW_S + 30, "c")


def test_a_reservation_ends_with_its_group() -> None:
    """The third head gets the nodes of the first once that is expected to have run; unknown is for
    ever.
    """
    occupants = [on(name, ends=NOW_S + 10) for name in "abcd"]
    heads = [waiting("f", 3), waiting("s", 1), waiting("t", 2)]
    found = reserved(heads, occupants, run_time_s=60)
    assert [(each.at_s - NOW_S, names(each)) for each in found] == [
        (10, "abc"),
        (10, "d"),
        (70, "ab"),
    ]
    assert (
        len(reserved(heads, occupants, limits=ReservationLimits(share=1, fence_after_s=math.inf)))
        == 2
    )


def test_beyond_the_horizon_there_is_no_time() -> None:
    """An end in eight days is as good as none; a young head gets nothing."""
    occupants = [on(name, ends=NOW_S + 8 * 86_400) for name in "abcd"]
    assert reserved([waiting("g", 1, since_s=int(NOW_S))], occupants) == []


def test_fragmentation_is_seen_by_the_round() -> None:
    """Sums say that 8 GPUs are free after the first end, but a pod of 8 needs them on one node."""
    occupants = [
        on("a", 8, ends=NOW_S + 10),
        on("b", 4, ends=NOW_S + 20),
        on("b", 4, ends=NOW_S + 40),
        on("c"),
        on("d"),
    ]
    mixed = group(gang("ns/m", [pod("large", gpus=8), pod("small", gpus=2)]))
    (found,) = reserved([mixed], occupants)
    assert (found.at_s, names(found)) == (NOW_S + 20, "ab")


def test_a_whole_node_and_a_rest_do_not_share_the_node() -> None:
    """8 and 4 GPUs as two pods: after the first end each alone would fit, both only after the
    second.
    """
    ends = {"a": 10, "b": 20, "c": 30, "d": 40}
    occupants = [on(name, ends=NOW_S + end) for name, end in ends.items()]
    (found,) = reserved(
        [group(gang("ns/m", [pod("whole", gpus=8), pod("rest", gpus=4)]))], occupants
    )
    assert (found.at_s, names(found)) == (NOW_S + 20, "ab")


def test_a_required_domain_holds_the_reservation() -> None:
    """Two nodes of one rack, though two of different racks are free before."""
    racks = [node(name, labels={"rack": rack}) for name, rack in zip("abcd", "xxyy", strict=True)]
    occupants = [
        on("a", ends=NOW_S + 10),
        on("b", ends=NOW_S + 40),
        on("c", ends=NOW_S + 20),
        on("d", ends=NOW_S + 30),
    ]
    (found,) = reserved([waiting("g", 2, topology=("rack",))], occupants, racks)
    assert (found.at_s, names(found)) == (NOW_S + 30, "cd")


def test_a_fence_takes_empty_nodes_then_the_last_started() -> None:
    """Nobody states a run time: the empty node, then the one whose longest-running pod started
    last.
    """
    occupants = [
        on("a", started=10),
        on("b", started=500),
        on("b", 0, started=20),
        on("c", started=400),
    ]
    (found,) = reserved([waiting("g", 2)], occupants)
    assert found.is_fence
    assert names(found) == "cd"


def test_a_fence_lies_in_the_domain_that_empties_first_and_of_equal_ones_in_the_least_used() -> (
    None
):
    """L20: two nodes of one rack, though the two that empty first are of different ones; then
    accelerators in use.
    """
    racks = [node(name, labels={"rack": rack}) for name, rack in zip("abcd", "xyxy", strict=True)]
    started = {"a": 900, "b": 800, "c": 300, "d": 400}
    of_rack = waiting("g", 2, topology=("rack",))
    (found,) = reserved(
        [of_rack], [on(name, started=at_s) for name, at_s in started.items()], racks
    )
    assert (found.is_fence, names(found)) == (True, "bd")
    used = {"a": 8, "b": 8, "c": 8, "d": 7}
    (found,) = reserved(
        [of_rack], [on(name, gpus, started=500) for name, gpus in used.items()], racks
    )
    assert (found.is_fence, names(found)) == (True, "bd")
    used["c"] = 5
    (found,) = reserved(
        [of_rack], [on(name, gpus, started=500) for name, gpus in used.items()], racks
    )
    assert (found.is_fence, names(found)) == (True, "ac")


def test_a_fence_waits_for_its_time() -> None:
    """Six hours of waiting, by default."""
    occupants = [on(name) for name in "abcd"]
    assert reserved([waiting("g", 1, since_s=int(NOW_S) - 21_599)], occupants) == []
    assert len(reserved([waiting("g", 1, since_s=int(NOW_S) - 21_600)], occupants)) == 1


def test_a_fence_swaps_an_occupied_node_for_an_empty_one_only() -> None:
    """Kept are a and b. c would be better than b but is occupied, so b stays; once d is empty, it
    replaces b.
    """
    fences = {"ns/g": frozenset("ab")}
    occupants = [on("b", started=10), on("c", started=900), on("d", started=800)]
    (found,) = reserved([waiting("g", 2)], occupants, fences=fences)
    assert names(found) == "ab"
    (found,) = reserved([waiting("g", 2)], occupants[:2], fences=fences)
    assert names(found) == "ad"


def test_a_fence_keeps_its_empty_nodes() -> None:
    """A restart, or the next plan, keeps the same empty node, though another empty one comes first
    by name.
    """
    (found,) = reserved([waiting("g", 2)], [on("b"), on("c")], fences={"ns/g": frozenset("d")})
    assert names(found) == "ad"
    (found,) = reserved([waiting("g", 1)], [on("b"), on("c")], fences={"ns/g": frozenset("d")})
    assert names(found) == "d"


def test_fences_do_not_share_nodes() -> None:
    """Each head has its own, and a time is not looked for on fenced nodes."""
    occupants = [
        on("a", started=40),
        on("b", started=30),
        on("c", started=20),
        on("d", ends=NOW_S + 10),
    ]
    first, second, third = reserved([waiting("f", 1), waiting("s", 2), waiting("t", 1)], occupants)
    assert (first.is_fence, first.at_s, names(first)) == (False, NOW_S + 10, "d")
    assert (second.is_fence, names(second)) == (True, "ab")
    assert (third.is_fence, names(third)) == (True, "c")


def test_all_but_the_first_have_a_share() -> None:
    """H7: half of the GPUs for the second and later ones together; the first may have all
    of them.
    """
    occupants = [on(name, ends=NOW_S + 10) for name in "abcd"]
    limits = ReservationLimits(share=0.5)
    heads = [waiting("f", 1), waiting("s", 2), waiting("t", 1)]
    assert [each.head.group.id for each in reserved(heads, occupants, limits=limits)] == [
        "ns/f",
        "ns/s",
    ]
    assert [
        each.head.group.id for each in reserved([waiting("f", 4)], occupants, limits=limits)
    ] == ["ns/f"]


def test_who_waited_for_a_fence_in_vain_waits_for_nothing_by_itself() -> None:
    """H6: no time, and after `fence_after_s` no fence either: waiting alone changes nothing."""
    heads = [waiting("f", 4), waiting("s", 1)]
    occupants = [on(name) for name in "abcd"]
    found = why_not(heads, occupants)
    assert [each.why for each in found.values()] == [NotEntitled.NO_TIME]
    assert found["ns/s"].until_s == math.inf


def test_who_no_longer_fits_the_cluster_is_told_so() -> None:
    """H3, H14: a head without a time that the empty cluster would not take needs more nodes than
    there are.
    """
    found = why_not([waiting("g", 5)], [on(name) for name in "abcd"])
    assert found == {"ns/g": NotReserved(why=NotEntitled.IMPOSSIBLE, needs=5, offers=4)}


def test_room_that_was_reserved_for_a_member_that_is_placed_now_is_open_to_the_next_head() -> None:
    """H12: this plan has placed it elsewhere, and the reservation is made anew by the next one."""
    occupants = [on("a", ends=NOW_S + 10), on("b", ends=NOW_S + 10)]
    first, second = waiting("first", 2), waiting("second", 1, since_s=1)
    placed, other = first.gangs[0].pending
    now = snapshot(
        FOUR[:3],
        [*((each.pod, each.node) for each in occupants), (placed, "c")],
    )
    ledger = Ledger(now)
    heads = [
        Head(each, each, needed(each), waiting_since_s(needed(each)), math.inf)
        for each in (first, second)
    ]
    places = (Placement(placed, "a"), Placement(other, "b"))
    stands = Reservation(heads[0], NOW_S + 10, np.array([0, 1]), places)

    found, why = make_reservations(
        heads,
        ledger,
        empty_ledger(now),
        Timeline.of(occupants, ledger),
        ReservationLimits(share=1),
        wall_s=NOW_S,
        standing={"ns/first": stands},
        anew={"ns/second"},
        placed={placed.uid},
    )
    assert why == {}
    assert [names(each, FOUR[:3]) for each in found] == ["ab", "a"]
