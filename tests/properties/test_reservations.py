"""Promises of reservations, through the real plan() and state on a virtual clock, whatever arrives
(H5 to H8).

`make properties` asks 5,000 promises, every run of the tests a few dozen. A failure names the seed
of its case.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from itertools import count

import pytest

from gangsched.core.reservations.records import ReservationCache
from gangsched.model.objects import Node
from gangsched.model.resources import PODS
from gangsched.model.snapshot import Snapshot
from gangsched.settings import Settings
from gangsched.simulate.figures import promise_errors_s
from gangsched.simulate.simulator import Simulator
from gangsched.simulate.traces import make_shape
from gangsched.simulate.workload import GPU, Job
from tests.sizes import of_size
from tests.tuned import tuned

pytestmark = pytest.mark.long
PROMISES = of_size(12, 5_000)
SIZES = (
    (1,),
    (1,),
    (2,),
    (1, 1),
    (4,),
    (4, 4),
    (8,),
    (8,),
    (8, 4),
    (8, 8),
    (8, 8, 8),
    (6, 6, 6),
    (8, 8, 8, 8),
)
EVERY_KIND: tuple[tuple[Settings, dict[str, float]], ...] = (
    (Settings(reservations=1), {}),
    (Settings(reservations=3), {"small_head_after_s": 60.0}),
    (
        Settings(reservations=8, reservations_per_namespace=8),
        {"share": 1.0, "small_head_after_s": 600.0},
    ),
)


def simulator_of(seed: int, jobs: list[Job], kind: type[Simulator] = Simulator) -> Simulator:
    """Four nodes and one of the kinds of limits."""
    settings, constants = EVERY_KIND[seed % len(EVERY_KIND)]
    with tuned(constants):
        return kind(cluster(4), jobs, settings)


def cluster(nodes: int) -> list[Node]:
    """Alike nodes of 8 GPUs."""
    return [Node(name=f"n{number}", allocatable=((GPU, 8), (PODS, 110))) for number in range(nodes)]


def jobs(dice: random.Random, *, known: float = 1.0) -> list[Job]:
    """Jobs of every size, more than fit, `known` of which state their run time exactly; whole
    seconds.
    """
    made = []
    for number in range(dice.randint(20, 70)):
        run_s = 1 + int(dice.lognormvariate(5.5, 1.2))
        made.append(
            Job(
                name=f"j{number:03}",
                namespace=f"ns{dice.randrange(3)}",
                submit_s=float(dice.randrange(3_000)),
                run_s=float(run_s),
                pods=tuple(make_shape(((GPU, gpus),)) for gpus in dice.choice(SIZES)),
                stated_s=float(run_s) if dice.random() < known else None,
            )
        )
    return made


def cases() -> Iterator[tuple[int, random.Random]]:
    """Seeds, each with its dice."""
    return ((seed, random.Random(seed)) for seed in count(1))


def test_nobody_starts_later_than_told_when_first() -> None:
    """Exact run times: no group starts after the time told when it became the first head."""
    promises = 0
    for seed, dice in cases():
        simulator = simulator_of(seed, jobs(dice))
        runs = simulator.run()
        errors = promise_errors_s(simulator.promises.told_s, runs)
        assert all(run.started_s is not None for run in runs), f"seed {seed}: a job never started"
        assert max(errors, default=0) <= 0, (
            f"seed {seed}: a start {max(errors)} s after its promise"
        )
        promises += len(errors)
        if promises >= PROMISES:
            break
    print(f"{seed} cases, {promises} promises, none late")


def test_promises_hold_beside_jobs_that_state_nothing() -> None:
    """A third states nothing: those never pass on reserved room, so what was told to others still
    holds.
    """
    promises = 0
    for seed, dice in cases():
        simulator = simulator_of(seed, jobs(dice, known=0.7))
        errors = promise_errors_s(simulator.promises.told_s, simulator.run())
        assert max(errors, default=0) <= 0, (
            f"seed {seed}: a start {max(errors)} s after its promise"
        )
        promises += len(errors)
        if promises >= PROMISES // 2:
            break
    print(f"{seed} cases, {promises} promises, none late")


@pytest.mark.parametrize("seed", of_size([128], [5, 35, 95, 128]))
def test_no_time_is_promised_that_was_found_before_an_older_group_started(seed: int) -> None:
    """A plan that made the reservation of a later head, and then started an earlier one there,
    promised that time.
    """
    dice = random.Random(seed)
    simulator = simulator_of(seed, jobs(dice, known=0.7))
    errors = promise_errors_s(simulator.promises.told_s, simulator.run())
    assert max(errors) <= 0


class Watched(Simulator):
    """Counts for the first fence which nodes have been empty since it stood."""

    fence: tuple[str, int] = ("", 0)
    emptied: frozenset[str] = frozenset()
    served = 0

    def _settle(self) -> None:
        if self.fence[0]:
            self.emptied |= empty_nodes(self._state.snapshot())
        group, needs = self.fence
        super()._settle()
        waiting = {run.job.group for run in self.runs if run.started_s is None}
        if group and group not in waiting:
            self.served += 1
        elif group:
            assert len(self.emptied) < needs, (
                f"{group} waits though {sorted(self.emptied)} have been empty"
            )
        first = next(
            (each for each in self.promises.standing if each.first and each.is_fence), None
        )
        if first is None or first.group not in waiting:
            self.fence = "", 0
        elif first.group != group:
            self.fence, self.emptied = (
                (first.group, len(first.nodes)),
                empty_nodes(self._state.snapshot()),
            )


def empty_nodes(snapshot: Snapshot) -> frozenset[str]:
    """The nodes without pods."""
    there = zip(snapshot.table.names, snapshot.pods_by_node.residents, strict=True)
    return frozenset(name for name, pods in there if not pods)


def test_a_fence_starts_when_as_many_nodes_as_it_needs_have_emptied() -> None:
    """H7: run times unknown; the first head of whole nodes waits for its number of nodes to empty,
    no longer.
    """
    served = 0
    for seed, dice in cases():
        stream = [
            job for job in jobs(dice, known=0.0) if all(shape_gpus(job)) or len(job.pods) == 1
        ]
        simulator = Watched(
            cluster(4), stream, Settings(fence_after_s=dice.choice((0, 60, 600)), reservations=1)
        )
        try:
            simulator.run()
        except AssertionError as error:
            pytest.fail(f"seed {seed}: {error}")
        served += simulator.served
        if served >= PROMISES // 3:
            break
    print(f"{seed} cases, {served} fences, all served in time")


def shape_gpus(job: Job) -> Sequence[bool]:
    """Of each pod whether it asks for a whole node."""
    return [dict(shape.requests)[GPU] == 8 for shape in job.pods]


def test_told_times_are_told_at_all() -> None:
    """The promises above are times; a case without any would say nothing."""
    simulator = simulator_of(0, jobs(random.Random(1)))
    simulator.run()
    assert sum(at_s < math.inf for at_s in simulator.promises.told_s.values()) > 3


class Amnesiac(Simulator):
    """Counts everything anew in each plan."""

    def _settle(self) -> None:
        self._state.reservations.cache = ReservationCache()
        super()._settle()


@pytest.mark.parametrize("seed", range(1, of_size(2, 4)))
def test_what_is_remembered_from_plan_to_plan_decides_nothing(seed: int) -> None:
    """Every job starts when it would if each plan counted everything anew."""
    stream = jobs(random.Random(seed), known=0.8)
    runs, others = (simulator_of(seed, stream, kind).run() for kind in (Simulator, Amnesiac))
    assert [run.started_s for run in runs] == [run.started_s for run in others], f"seed {seed}"
