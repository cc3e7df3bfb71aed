"""Promises of reservations over many plans: exact run times, nothing of higher priority
(H5, H8).
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest

from gangsched.api import keys
from gangsched.model.objects import Pod
from gangsched.model.reservation import ReservationLimits, Reserved
from gangsched.state.rule_set import Rules
from tests.builders import GPU, members, node, pod
from tests.sizes import of_size
from tests.world import EPOCH_S, World


@dataclass(slots=True)
class Job:
    """Identical pods that run for exactly as long as they say."""

    name: str
    at_s: float
    number: int
    gpus: int
    run_s: float


def jobs(dice: random.Random, number: int) -> list[Job]:
    """Most of them small."""
    sizes = [(1, 1), (1, 1), (1, 2), (2, 1), (1, 4), (1, 8), (2, 8), (3, 8), (3, 6)]
    made = []
    for n in range(number):
        count, gpus = dice.choice(sizes)
        made.append(
            Job(
                f"j{n:03}",
                float(dice.randrange(1_000, 4_000)),
                count,
                gpus,
                round(dice.expovariate(1 / 400)) + 1,
            )
        )
    return sorted(made, key=lambda job: job.at_s)


def room_is_kept(there: World) -> None:
    """At its time every reservation has its room beside those before it, counted here from pods and
    their ends.
    """
    placed = [each for each in there.pods.values() if each.node_name]
    before: list[Reserved] = []
    for each in there.state.reservations.standing:
        before = [other for other in before if other.at_s + other.run_time_s > each.at_s] + [each]
        for name in each.nodes:
            there_then = [
                one for one in placed if one.node_name == name and _end_s(one) > each.at_s
            ]
            there_then += [
                one.pod for other in before for one in other.placements if one.node == name
            ]
            assert sum(_gpus(one) for one in there_then) <= 8, (each.group, name)


@pytest.mark.parametrize("reservations", [1, 3])
@pytest.mark.long
@pytest.mark.parametrize("seed", range(of_size(1, 8)))
def test_nobody_starts_later_than_told_when_first(seed: int, reservations: int) -> None:
    """Exact run times: a job starts at the latest when it was told on becoming the first head,
    whatever passes.
    """
    limits = ReservationLimits(share=1.0, reservations=reservations, per_namespace=99)
    there = World(*(node(name) for name in "abcd"), rules=Rules(reservations=limits))
    queue = jobs(random.Random(seed), of_size(50, 80))
    told: dict[str, float] = {}
    started: dict[str, float] = {}
    ends: list[tuple[float, str]] = []
    while queue or ends:
        there.now_s = min([job.at_s for job in queue[:1]] + [at_s for at_s, _ in ends])
        over = {name for at_s, name in ends if at_s <= there.now_s}
        ends = [each for each in ends if each[1] not in over]
        there.delete(*[each for each in there.pods.values() if _job(each.name) in over])
        while queue and queue[0].at_s <= there.now_s:
            arrive(there, queue.pop(0))
        there.settle()
        for each in [each for each in there.pods.values() if each.node_name and not each.start_s]:
            there.update(each, start_s=int(EPOCH_S + there.now_s))
            if _job(each.name) not in started:
                started[_job(each.name)] = EPOCH_S + there.now_s
                ends.append((there.now_s + _run_s(each), _job(each.name)))
        room_is_kept(there)
        first = next((each for each in there.state.reservations.standing if each.first), None)
        if first is not None:
            told.setdefault(_job(first.group.partition("/")[2]), first.promised_s)
    assert len(told) > 3, f"seed {seed}"
    late = [(name, started[name] - at_s) for name, at_s in told.items() if started[name] > at_s]
    assert late == [], f"seed {seed}"


def arrive(there: World, job: Job) -> None:
    """Its pods are created now."""
    stated = ((keys.EXPECTED_RUNTIME, f"{job.run_s:g}s"),)
    now_s = int(EPOCH_S + there.now_s)
    if job.number == 1:
        there.create(
            pod(f"{job.name}-0", gpus=job.gpus, creation_s=now_s, run_time_metadata=stated)
        )
    else:
        there.create(
            members(job.name, job.number, gpus=job.gpus, creation_s=now_s, run_time_metadata=stated)
        )


def _job(name: str) -> str:
    return name.partition("-")[0]


def _gpus(one: Pod) -> int:
    return dict(one.shape.requests).get(GPU, 0)


def _run_s(one: Pod) -> float:
    return float(dict(one.run_time_metadata)[keys.EXPECTED_RUNTIME].removesuffix("s"))


def _end_s(one: Pod) -> float:
    return one.start_s + _run_s(one)
