"""Who may pass a reservation: H8 of the backfill design, and the promise that follows from it."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace

import numpy as np
import pytest

from gangsched.core.reservations.backfill import Backfill
from gangsched.core.reservations.heads import Head, empty_ledger, needed, waiting_since_s
from gangsched.core.reservations.reservation import Reservation, make_reservations
from gangsched.core.reservations.timeline import Timeline
from gangsched.core.reserve import Ledger
from gangsched.model.gang import Group
from gangsched.model.reservation import How, Occupant, ReservationLimits
from tests.builders import GPU, gang, group, node, pod, running, shape, snapshot

FOUR = [node(name) for name in "abcd"]
LEDGER = Ledger(snapshot(FOUR))
ONE = shape(1)
FREE = np.array([8, 8, 8, 8])


def reservation(
    *nodes: int, at_s: float, spare: tuple[int, ...] = (), priority: int = 0, name: str = "head"
) -> Reservation:
    """A reservation of these nodes with so many GPUs left beside it on each."""
    columns = np.full((len(LEDGER.resources), len(nodes)), 10**6, dtype=np.int64)
    columns[LEDGER.resources[GPU]] = spare or (0,) * len(nodes)
    owner = group(gang(f"ns/{name}", [pod(name, gpus=8)]), priority=priority)
    return Reservation(Head(owner, owner.gangs, 0), at_s, np.array(nodes), columns)


def other(**fields: int) -> Group:
    """A group behind."""
    return group(gang("ns/other", [pod("o")]), **fields)


def allowed(backfill: Backfill, who: Group, *, ends_s: float) -> list[int]:
    """How many pods of one GPU each node has for the group, on an empty cluster."""
    return [int(count) for count in backfill.narrow(ONE, FREE, who, ends_s=ends_s)]


def test_who_is_over_in_time_uses_reserved_room() -> None:
    """Up to and including the reservation's time; whose end is later, or unknown, keeps off."""
    backfill = Backfill([reservation(1, 2, at_s=100, spare=(0, 3))], LEDGER)
    assert allowed(backfill, other(), ends_s=100) == [8, 8, 8, 8]
    assert allowed(backfill, other(), ends_s=101) == [8, 0, 3, 8]
    assert allowed(backfill, other(), ends_s=math.inf) == [8, 0, 3, 8]
    assert FREE.tolist() == [8, 8, 8, 8]


def test_nothing_enters_a_fence() -> None:
    """However short it says it is."""
    assert allowed(Backfill([reservation(0, at_s=math.inf)], LEDGER), other(), ends_s=1) == [0, 8, 8, 8]


def test_room_must_be_there_now_and_then() -> None:
    """More spare at the reservation's time than now is of no use."""
    backfill = Backfill([reservation(0, at_s=100, spare=(6,))], LEDGER)
    assert backfill.narrow(ONE, np.array([2, 0, 0, 0]), other(), ends_s=math.inf).tolist() == [2, 0, 0, 0]


def test_spare_room_is_used_up() -> None:
    """What passes and stays takes of the spare room; what is over in time does not."""
    backfill = Backfill([reservation(1, 2, at_s=100, spare=(4, 3))], LEDGER)
    backfill.take(shape(2), np.array([2, 0, 1]), np.array([1, 2, 1]), ends_s=math.inf)
    assert allowed(backfill, other(), ends_s=math.inf) == [8, 2, 1, 8]
    backfill.take(ONE, np.array([1]), np.array([1]), ends_s=50)
    assert allowed(backfill, other(), ends_s=math.inf) == [8, 2, 1, 8]


def test_who_is_not_bound() -> None:
    """Higher priority and broken groups pass freely; its own reservation never binds a group."""
    held = reservation(0, at_s=100, priority=5)
    backfill = Backfill([held], LEDGER)
    for free in (other(priority=6), replace(other(), broken=True), held.head.group):
        assert allowed(backfill, free, ends_s=math.inf) == [8, 8, 8, 8]
        assert backfill.how(np.array([0]), free, ends_s=math.inf) is None
    assert allowed(backfill, other(priority=5), ends_s=math.inf) == [0, 8, 8, 8]


def test_every_reservation_binds() -> None:
    """A group may be short for one and long for another."""
    backfill = Backfill([reservation(0, at_s=100), reservation(1, at_s=200, name="second")], LEDGER)
    assert allowed(backfill, other(), ends_s=150) == [0, 8, 8, 8]
    assert allowed(backfill, other(), ends_s=250) == [0, 0, 8, 8]


def test_how_a_group_passed() -> None:
    """For the metric of H15."""
    backfill = Backfill([reservation(0, at_s=100, spare=(4,))], LEDGER)
    assert backfill.how(np.array([1]), other(), ends_s=math.inf) is How.BESIDE
    assert backfill.how(np.array([0]), other(), ends_s=math.inf) is How.SPARE
    assert backfill.how(np.array([0, 1]), other(), ends_s=99) is How.SHORT


# --- the promise ----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Job:
    """A group of identical pods that run for a time."""

    group: Group
    at_s: float
    run_s: float
    told_s: float = math.inf
    started_s: float = math.inf


def jobs(dice: random.Random) -> list[Job]:
    """Some jobs of every size, most of them small."""
    made = []
    for number in range(60):
        count, gpus = dice.choice([(1, 1), (1, 1), (1, 2), (2, 1), (1, 4), (1, 8), (2, 8), (3, 8), (3, 6)])
        at_s = dice.uniform(0, 3000)
        members = [pod(f"j{number}-{n}", gpus=gpus, creation_s=int(at_s)) for n in range(count)]
        owner = group(gang(f"ns/j{number:03}", members), creation_s=int(at_s))
        made.append(Job(owner, at_s, dice.expovariate(1 / 400)))
    return sorted(made, key=lambda job: job.at_s)


def play(queue: list[Job], reservations: int) -> None:
    """A small scheduler: first fit, heads in order of age, others where `Backfill` lets them."""
    limits = ReservationLimits(reservations=reservations, per_namespace=99, share=9)
    occupants: list[Occupant] = []
    waiting: list[Job] = []
    events = sorted({job.at_s for job in queue})
    while events:
        now_s = events.pop(0)
        occupants = [each for each in occupants if each.ends_s > now_s]
        waiting += [job for job in queue if job.at_s == now_s]
        for job, placed in turn(waiting, occupants, limits, now_s):
            waiting.remove(job)
            job.started_s = now_s
            occupants += placed
            events = sorted({*events, now_s + job.run_s})


def turn(
    waiting: list[Job], occupants: list[Occupant], limits: ReservationLimits, now_s: float
) -> list[tuple[Job, list[Occupant]]]:
    """What starts now."""
    now = snapshot(FOUR, [(each.pod, each.node) for each in occupants])
    ledger, empty = Ledger(now), empty_ledger(now)
    heads: list[Head] = []
    backfill = Backfill([], ledger)
    running_now, started = list(occupants), []
    for job in waiting:
        ends_s = now_s + job.run_s
        pods = job.group.gangs[0].pending
        free = backfill.narrow(pods[0].shape, ledger.room(pods[0].shape), job.group, ends_s=ends_s)
        if free.sum() >= len(pods):
            where = np.repeat(np.arange(4), free)[: len(pods)]
            nodes, counts = np.unique(where, return_counts=True)
            ledger.reserve(pods, nodes, counts)
            backfill.take(pods[0].shape, nodes, counts, ends_s=ends_s)
            placed = [
                Occupant(running(each, FOUR[index].name), FOUR[index].name, now_s, ends_s)
                for each, index in zip(pods, where.tolist(), strict=True)
            ]
            started.append((job, placed))
            running_now += placed
        elif len(heads) < limits.reservations:
            gangs = needed(job.group)
            heads.append(Head(job.group, gangs, waiting_since_s(gangs), job.run_s))
            timeline = Timeline(running_now, ledger)
            made = make_reservations(heads, ledger, empty, timeline, limits, wall_s=now_s)
            assert len(made) == len(heads), "with exact times every head has a time"
            if len(heads) == 1:
                job.told_s = min(job.told_s, made[0].at_s)
            backfill = Backfill(made, ledger)
    return started


@pytest.mark.parametrize("reservations", [1, 3])
@pytest.mark.parametrize("seed", range(5))
def test_nobody_starts_later_than_told_when_first(seed: int, reservations: int) -> None:
    """Exact run times: a job starts at the latest when it was told on becoming the first head, whatever passes."""
    queue = jobs(random.Random(seed))
    play(queue, reservations)
    told = [job for job in queue if job.told_s < math.inf]
    assert len(told) > 5
    assert [job.group.id for job in queue if job.started_s == math.inf] == []
    assert [job.group.id for job in told if job.started_s > job.told_s + 1e-6] == []
