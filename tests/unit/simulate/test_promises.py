"""What is noted of reservations: the first time that was told, and GPUs that nobody uses."""

from __future__ import annotations

import math

from gangsched.model.gang import Placement
from gangsched.model.gpu_policy import GpuPolicy
from gangsched.model.reservation import Reserved
from gangsched.simulate.figures import late_s, promise_errors_s
from gangsched.simulate.promises import Promises
from gangsched.simulate.simulator import Run
from gangsched.simulate.traces import make_shape
from gangsched.simulate.workload import GPU, Job
from tests.builders import node, pod, running, snapshot

TAKEN = [(running(pod("x", gpus=5), "a"), "a"), (running(pod("y", gpus=8), "b"), "b")]
POLICY = GpuPolicy()
NOW = snapshot([node("a"), node("b"), node("c")], TAKEN)


def reserved(group: str, *places: tuple[str, int], at_s: float = 50, first: bool = False) -> Reserved:
    """Room for pods of so many GPUs on these nodes."""
    return Reserved(
        group=group,
        namespaces=frozenset({"ns"}),
        priority=0,
        since_s=0,
        run_time_s=10,
        at_s=at_s,
        nodes=tuple(name for name, _ in places),
        placements=tuple(Placement(pod(f"{group}-{name}", gpus=gpus), name) for name, gpus in places if gpus),
        first=first,
        promised_s=at_s,
    )


def test_idle_is_what_is_reserved_and_free() -> None:
    """3 GPUs of a are free and 8 reserved, b is full, of c 4 are reserved; a fence keeps all of its nodes."""
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
    promises.look([reserved("g", ("c", 4), first=True), reserved("h", ("c", 4), at_s=60)], NOW, POLICY)
    promises.look([reserved("g", ("c", 4), first=True, at_s=90)], NOW, POLICY)
    promises.look([reserved("f", ("c", 0), first=True, at_s=math.inf)], NOW, POLICY)
    assert promises.told_s == {"g": 50, "f": math.inf}


def test_errors_of_promises() -> None:
    """Started minus told, of plain pods and of gangs; jobs that were told nothing do not count."""
    one, two = (tuple(make_shape(((GPU, 1),)) for _ in range(count)) for count in (1, 2))
    jobs = [Job(name=name, submit_s=0, run_s=1, pods=pods) for name, pods in (("p", one), ("g", two), ("other", one))]
    runs = [Run(job, started_s=100 + n) for n, job in enumerate(jobs)]
    errors = promise_errors_s({"pod:default/p-0": 150, "default/g": 91, "default/other": math.inf}, runs)
    assert errors == [-50, 10]
    assert late_s(errors) == [10]
