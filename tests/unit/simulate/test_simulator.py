"""The virtual clock: jobs start when there is room, whole, and the same input gives the same
result.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from gangsched.api.keys import EXPECTED_RUNTIME
from gangsched.model.gang import Placement
from gangsched.model.gpu_policy import GpuPolicy
from gangsched.model.objects import Node, Pod
from gangsched.model.preemption import VictimScope
from gangsched.model.reservation import Reserved
from gangsched.model.resources import PODS
from gangsched.settings import Settings
from gangsched.simulate.figures import late_s, promise_errors_s
from gangsched.simulate.simulator import Promises, Run, Simulator
from gangsched.simulate.traces import make_shape
from gangsched.simulate.workload import GPU, Job
from tests.builders import node, pod, running, snapshot
from tests.sizes import of_size
from tests.world import World


def nodes(count: int, gpus: int = 8) -> list[Node]:
    """Alike nodes."""
    return [
        Node(name=f"n{index}", allocatable=((GPU, gpus), (PODS, 110))) for index in range(count)
    ]


def job(name: str, at_s: float, run_s: float, *gpus: int, priority: int = 0) -> Job:
    """A job whose pods ask for so many GPUs each."""
    pods = tuple(make_shape(((GPU, each),)) for each in gpus)
    return Job(name=name, submit_s=at_s, run_s=run_s, pods=pods, priority=priority)


def starts(runs: Sequence[Run]) -> dict[str, float | None]:
    """When each job started."""
    return {run.job.name: run.started_s for run in runs}


def test_a_job_waits_until_another_ends() -> None:
    """The second job starts at the very moment the first one ends."""
    runs = Simulator(nodes(1), [job("a", 0, 100, 8), job("b", 1, 10, 8)]).run()
    assert starts(runs) == {"a": 0, "b": 100}
    assert [run.wait_s for run in runs] == [0, 99]


def test_a_gang_starts_whole_and_what_fits_passes_it() -> None:
    """A gang of two whole nodes waits for both; a small job passes it meanwhile (Q4)."""
    jobs = [job("long", 0, 100, 8), job("gang", 1, 10, 8, 8), job("small", 2, 5, 1)]
    assert starts(Simulator(nodes(2), jobs).run()) == {"long": 0, "gang": 100, "small": 2}


def test_priority_goes_first() -> None:
    """Of two that wait for the same room, the one of higher priority gets it (Q1)."""
    jobs = [job("first", 0, 10, 8), job("low", 1, 10, 8), job("high", 2, 10, 8, priority=5)]
    assert starts(Simulator(nodes(1), jobs).run()) == {"first": 0, "high": 10, "low": 20}


def test_a_higher_priority_starts_when_the_daemon_would_start_it() -> None:
    """V13: the low job is evicted at once and goes after its grace period, and begins again when
    the high one ends.
    """
    runs = Simulator(
        nodes(1), [job("low", 0, 10_000, 8), job("high", 60, 100, 8, priority=1_000)]
    ).run()
    by_name = {run.job.name: run for run in runs}
    world = World(*nodes(1), preempts=True)
    low, high = (pod_of_job(name, priority) for name, priority in (("low", 0), ("high", 1_000)))
    began_s = world.now_s
    world.create(low)
    world.advance(60)
    world.create(high)
    while high.name not in world.bound():
        world.advance(1)
    assert by_name["high"].started_s == world.now_s - began_s == 60 + low.grace_s
    assert (by_name["low"].preempted, by_name["high"].preempted) == (1, 0)
    assert by_name["low"].started_s == 0
    assert by_name["low"].spans == [(0, 90), (190, 10_190)]


def pod_of_job(name: str, priority: int) -> Pod:
    """The pod that the simulation makes of a job of 8 GPUs."""
    (pod,) = job(name, 0, 1, 8, priority=priority).make_pods("gangsched")
    return pod


def test_nobody_is_preempted_where_that_is_off() -> None:
    """`preemption: off`: the high job waits for the end of the low one."""
    jobs = [job("low", 0, 1_000, 8), job("high", 60, 100, 8, priority=1_000)]
    assert starts(Simulator(nodes(1), jobs, Settings(preemption=VictimScope.OFF)).run()) == {
        "low": 0,
        "high": 1_000,
    }


def test_a_gang_is_preempted_whole_and_begins_again() -> None:
    """Each job ends with a whole span of its run time, whatever was lost before; nothing is
    over-committed (seed 7).
    """
    dice = random.Random(7)
    shapes = [(1,), (8,), (4, 4), (8, 8)]
    jobs = [
        job(
            f"j{n}",
            dice.uniform(0, 4_000),
            dice.uniform(100, 2_000),
            *dice.choice(shapes),
            priority=dice.choice([0, 0, 5, 10]),
        )
        for n in range(60)
    ]
    runs = Simulator(nodes(2), jobs).run()
    assert sum(run.preempted for run in runs) > 5
    for run in runs:
        assert len(run.spans) == run.preempted + 1
        assert run.spans[-1][1] - run.spans[-1][0] == pytest.approx(run.job.run_s)
        assert all(end - start < run.job.run_s for start, end in run.spans[:-1])
    spans = [(run.job.gpus, *span) for run in runs for span in run.spans]
    assert all(
        sum(gpus for gpus, start, end in spans if start <= at < end) <= 16 for _, at, _ in spans
    )


def test_what_can_never_fit_never_starts_and_stops_nobody() -> None:
    """The simulation ends, and says so by a start of None and an infinite wait."""
    runs = Simulator(nodes(1), [job("huge", 0, 10, 8, 8), job("small", 1, 10, 1)]).run()
    assert starts(runs) == {"huge": None, "small": 1}
    assert runs[0].wait_s == float("inf")


def test_settings_count() -> None:
    """A setting that planning looks at changes the result: a victim (of 30 s grace) that is too
    young stays.
    """
    jobs = [job("low", 0, 1_000, 8), job("high", 10, 10, 8, priority=1)]
    assert (
        starts(Simulator(nodes(1), jobs, Settings(scheduler_names=("other",))).run())["high"] == 40
    )
    assert (
        starts(Simulator(nodes(1), jobs, Settings(preempt_min_run_s=2_000)).run())["high"] == 1_000
    )
    high_s = starts(Simulator(nodes(1), jobs, Settings(preempt_min_run_s=500)).run())["high"]
    assert high_s in (530, 531)  # woken when the low one has run for long enough, to the second


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_never_over_committed_and_the_same_again(seed: int) -> None:
    """At no moment do more GPUs run than there are, everybody starts, and a second run is
    identical.
    """
    dice = random.Random(seed)
    jobs = [
        job(
            f"j{n:03}",
            dice.uniform(0, 300),
            dice.expovariate(1 / 60),
            *dice.choice([(1,), (2,), (8,), (8, 4), (8, 8)]),
        )
        for n in range(of_size(25, 120))
    ]
    first = Simulator(nodes(3), jobs).run()
    changes = sorted(
        change
        for run in first
        if run.started_s is not None
        for change in (
            (run.started_s, run.job.gpus),
            (run.started_s + run.job.run_s, -run.job.gpus),
        )
    )
    used = most = 0
    for _, change in sorted(changes, key=lambda each: (each[0], each[1])):
        used += change
        most = max(most, used)
    assert most <= 24
    assert all(run.started_s is not None and run.wait_s >= 0 for run in first)
    assert starts(first) == starts(Simulator(nodes(3), jobs[::-1]).run())


def test_progress_is_told() -> None:
    """Arrivals are counted to the last one."""
    told: list[int] = []
    Simulator(nodes(1), [job("a", 0, 1, 1), job("b", 5, 1, 1)]).run(told.append)
    assert told == sorted(told)
    assert told[-1] == 2


def test_pods_state_what_their_job_states() -> None:
    """In whole seconds, never less; nothing where the job states nothing."""
    stating = replace(job("a", 0, 100, 8, 8), stated_s=90.5)
    assert {pod.run_time_metadata for pod in stating.make_pods("gangsched")} == {
        ((EXPECTED_RUNTIME, "91s"),)
    }
    assert job("a", 0, 100, 8).make_pods("gangsched")[0].run_time_metadata == ()


TAKEN = [(running(pod("x", gpus=5), "a"), "a"), (running(pod("y", gpus=8), "b"), "b")]
POLICY = GpuPolicy()
NOW = snapshot([node("a"), node("b"), node("c")], TAKEN)


def reserved(
    group: str, *places: tuple[str, int], at_s: float = 50, first: bool = False
) -> Reserved:
    """Room for pods of so many GPUs on these nodes."""
    return Reserved(
        group=group,
        namespaces=frozenset({"ns"}),
        priority=0,
        since_s=0,
        run_time_s=10,
        at_s=at_s,
        nodes=tuple(name for name, _ in places),
        placements=tuple(
            Placement(pod(f"{group}-{name}", gpus=gpus), name) for name, gpus in places if gpus
        ),
        first=first,
        promised_s=at_s,
    )


def test_idle_is_what_is_reserved_and_free() -> None:
    """3 GPUs of a are free and 8 reserved, b is full, of c 4 are reserved; a fence keeps all of its
    nodes.
    """
    promises = Promises()

    def idle_gpus(*standing: Reserved) -> float:
        promises.look(standing, NOW, POLICY)
        return promises.idle_gpus

    assert idle_gpus(reserved("g", ("a", 8), ("b", 8), ("c", 4))) == 3 + 0 + 4
    assert idle_gpus(reserved("g", ("c", 2)), reserved("h", ("c", 2))) == 4
    assert idle_gpus(reserved("g", ("c", 0), at_s=math.inf), reserved("h", ("gone", 8))) == 8


def test_idle_time_adds_up() -> None:
    """Between two looks nothing changes."""
    promises = Promises()
    promises.look([reserved("g", ("c", 4))], NOW, POLICY)
    promises.pass_to(10)
    promises.look([], NOW, POLICY)
    promises.pass_to(30)
    assert promises.idle_gpu_s == 40


def test_the_first_time_told_to_the_first_counts() -> None:
    """What it is told later, and what others are told, is no promise; a fence tells no time."""
    promises = Promises()
    promises.look(
        [reserved("g", ("c", 4), first=True), reserved("h", ("c", 4), at_s=60)], NOW, POLICY
    )
    promises.look([reserved("g", ("c", 4), first=True, at_s=90)], NOW, POLICY)
    promises.look([reserved("f", ("c", 0), first=True, at_s=math.inf)], NOW, POLICY)
    assert promises.told_s == {"g": 50, "f": math.inf}


def test_errors_of_promises() -> None:
    """Started minus told, of plain pods and of gangs; jobs that were told nothing do not count."""
    one, two = (tuple(make_shape(((GPU, 1),)) for _ in range(count)) for count in (1, 2))
    jobs = [
        Job(name=name, submit_s=0, run_s=1, pods=pods)
        for name, pods in (("p", one), ("g", two), ("other", one))
    ]
    runs = [Run(job, started_s=100 + n) for n, job in enumerate(jobs)]
    errors = promise_errors_s(
        {"pod:default/p-0": 150, "default/g": 91, "default/other": math.inf}, runs
    )
    assert errors == [-50, 10]
    assert late_s(errors) == [10]
