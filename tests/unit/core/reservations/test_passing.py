"""Who may pass a reservation (H8)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from msgspec import structs

from gangsched.core.reservations.passing import Backfill, Kept, add
from gangsched.core.reserve import Ledger
from gangsched.model.gang import Group, Placement
from gangsched.model.reservation import How
from gangsched.model.snapshot import Ints
from tests.builders import GPU, gang, group, node, pod, running, shape, snapshot

FOUR = [node(name) for name in "abcd"]
ONE = shape(1)
NOW_S = 1_000.0


def empty() -> Ledger:
    """Four nodes of 8 GPUs."""
    return Ledger(snapshot(FOUR))


def kept(
    *nodes: int,
    at_s: float,
    reserved: Sequence[int] = (),
    priority: int = 0,
    name: str = "head",
    fence: bool = False,
) -> Kept:
    """A reservation of so many GPUs on each of these nodes, all of them by default, `at_s` seconds
    from now.
    """
    change: Ints = np.zeros((len(empty().resources), len(nodes)), dtype=np.int64)
    change[empty().resources[GPU]] = [-each for each in reserved or [8] * len(nodes)]
    return Kept(f"ns/{name}", priority, NOW_S + at_s, np.array(nodes), change, fence)


def other(run_s: float = math.inf, *, name: str = "other", priority: int = 0) -> Group:
    """A group that runs for so long."""
    return group(gang(f"ns/{name}", [pod("o")], run_time_s=run_s), priority=priority)


def allowed(backfill: Backfill, who: Group, ledger: Ledger) -> list[int]:
    """How many pods of one GPU each node has for the group."""
    return [int(count) for count in backfill.narrow(ONE, ledger.room(ONE), who)]


def test_who_is_over_in_time_uses_reserved_room() -> None:
    """H8: up to and including the reservation's time; whose end is later, or unknown, keeps off."""
    ledger = empty()
    backfill = Backfill([kept(1, 2, at_s=100, reserved=(8, 5))], ledger, wall_s=NOW_S)
    assert allowed(backfill, other(100), ledger) == [8, 8, 8, 8]
    assert allowed(backfill, other(101), ledger) == [8, 0, 3, 8]
    assert allowed(backfill, other(), ledger) == [8, 0, 3, 8]
    assert ledger.room(ONE).tolist() == [8, 8, 8, 8]


def test_nothing_enters_a_fence() -> None:
    """However short it says it is."""
    ledger = empty()
    fence = replace(kept(0, at_s=0, fence=True), at_s=math.inf)
    assert allowed(Backfill([fence], ledger, wall_s=NOW_S), other(1), ledger) == [0, 8, 8, 8]


def test_room_must_be_there_now_and_then() -> None:
    """H8: more spare at the reservation's time than now is of no use."""
    ledger = Ledger(snapshot(FOUR, [(running(pod("x", gpus=6), "a"), "a")]))
    reservation = kept(0, at_s=100, reserved=(2,))
    add(reservation, [(0, shape(6), 1)], ledger)
    backfill = Backfill([reservation], ledger, wall_s=NOW_S)
    assert allowed(backfill, other(), ledger) == [2, 8, 8, 8]


def test_spare_room_is_used_up_by_what_stays() -> None:
    """What passes and stays takes of the spare room; what is over in time does not, once it is
    placed for good.
    """
    ledger = empty()
    backfill = Backfill([kept(1, 2, at_s=100, reserved=(4, 5))], ledger, wall_s=NOW_S)
    two = [pod(f"p{n}", gpus=2) for n in range(2)]
    ledger.reserve(two, np.array([1, 2]), np.array([1, 1]))
    backfill.passed(other(), [Placement(two[0], "b"), Placement(two[1], "c")])
    assert allowed(backfill, other(), ledger) == [8, 2, 1, 8]
    ledger.reserve((pod("short"),), np.array([1]), np.array([1]))
    assert allowed(backfill, other(), ledger) == [8, 1, 1, 8]
    backfill.passed(other(50), [Placement(pod("short"), "b")])
    assert allowed(backfill, other(), ledger) == [8, 2, 1, 8]


def test_a_refused_attempt_leaves_no_trace() -> None:
    """What is rolled back was never there, now or then."""
    ledger = empty()
    backfill = Backfill([kept(1, at_s=100, reserved=(4,))], ledger, wall_s=NOW_S)
    checkpoint = ledger.checkpoint()
    ledger.reserve((pod("x", gpus=3),), np.array([1]), np.array([1]))
    assert allowed(backfill, other(), ledger) == [8, 1, 8, 8]
    ledger.rollback(checkpoint)
    assert allowed(backfill, other(), ledger) == [8, 4, 8, 8]


def test_who_is_not_bound() -> None:
    """Higher priority and broken groups pass freely; its own reservation never binds a group."""
    ledger = empty()
    backfill = Backfill([kept(0, at_s=100, priority=5)], ledger, wall_s=NOW_S)
    for free in (
        other(priority=6),
        structs.replace(other(), broken=True),
        other(name="head", priority=5),
    ):
        assert allowed(backfill, free, ledger) == [8, 8, 8, 8]
        assert backfill.how([0], free) is None
    assert allowed(backfill, other(priority=5), ledger) == [0, 8, 8, 8]


def test_every_reservation_binds() -> None:
    """A group may be short for one and long for another."""
    ledger = empty()
    backfill = Backfill([kept(0, at_s=100), kept(1, at_s=200, name="second")], ledger, wall_s=NOW_S)
    assert allowed(backfill, other(150), ledger) == [0, 8, 8, 8]
    assert allowed(backfill, other(250), ledger) == [0, 0, 8, 8]


def test_heads_are_bound_by_those_before_them_only() -> None:
    """The first head may start on the room of the second, not the other way round."""
    ledger = empty()
    backfill = Backfill(
        [kept(0, at_s=100, name="first"), kept(1, at_s=100, name="second")], ledger, wall_s=NOW_S
    )
    assert allowed(backfill, other(name="first"), ledger) == [8, 8, 8, 8]
    assert allowed(backfill, other(name="second"), ledger) == [0, 8, 8, 8]


def test_how_a_group_passed() -> None:
    """For the metric of H15."""
    backfill = Backfill([kept(0, at_s=100, reserved=(4,))], empty(), wall_s=NOW_S)
    assert backfill.how([1], other()) is How.BESIDE
    assert backfill.how([0], other()) is How.SPARE
    assert backfill.how([0, 1], other(99)) is How.SHORT
