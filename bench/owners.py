"""Gangs of owners: what they cost the loop beside the same gangs with PodGroups.

`python -m bench.owners [--part 1] [--json]` runs the loop in this process, as `bench.waiting` does:
10,000 gangs of 10 pods wait for room, with a PodGroup each, as a Job each, or as the Jobs of
JobSets of ten. CPU milliseconds of the loop: from the first message until all is read (`read_ms`),
and from the moment that room for one gang (or one JobSet) is freed until it is bound (`freed_ms`),
the median of `TRIALS`. It exits with 1 if that takes Jobs more than 5 % longer than PodGroups.
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import structlog

from bench.waiting import Daemon
from gangsched.api import keys
from gangsched.daemon import GC_THRESHOLDS
from gangsched.model.objects import Pod, PodGroup
from gangsched.model.owners import ControllerRef, JobOwner, JobSetOwner, OwnerPart
from gangsched.model.protocol import Applied, Replaced
from tests import builders

GANGS = 10_000
MEMBERS = 10
JOBS_A_SET = 10
TRIALS = 25
MOST_RATIO = 1.05
NAMESPACE = "crowd"
ASKS = ((keys.OWNER_GANG, keys.OWNER),)


@dataclass(frozen=True, slots=True)
class Result:
    """CPU milliseconds of the loop."""

    case: str
    gangs: int
    read_ms: float
    freed_ms: float
    #: `freed_ms` beside that of PodGroups.
    ratio: float


def with_pod_groups(daemon: Daemon, gangs: int) -> int:
    """Declare the gangs by PodGroups; returns how many pods start together."""
    pod_groups = []
    for number in range(gangs):
        name = f"g{number:05}"
        pod_groups.append(builders.pod_group(name, MEMBERS, namespace=NAMESPACE))

    daemon.say(Replaced(PodGroup, tuple(pod_groups), keys.X_K8S))
    for number in range(gangs):
        name = f"g{number:05}"
        _create(daemon, number, gang_metadata=((keys.IDENTITIES[0].key, name),))

    return MEMBERS


def with_jobs(daemon: Daemon, gangs: int) -> int:
    """Declare the gangs by Jobs."""
    daemon.say(Replaced(JobOwner, tuple(_job(number, None) for number in range(gangs))))
    for number in range(gangs):
        _create(daemon, number, gang_metadata=ASKS)

    return MEMBERS


def with_job_sets(daemon: Daemon, gangs: int) -> int:
    """Declare the gangs by Jobs of JobSets."""
    sets = []
    for number in range(0, gangs, JOBS_A_SET):
        job_set = JobSetOwner(
            uid=f"s{number}",
            namespace=NAMESPACE,
            name=f"s{number}",
            minimum=JOBS_A_SET,
            parts=(OwnerPart("worker", JOBS_A_SET),),
        )
        sets.append(job_set)

    jobs = []
    for number in range(gangs):
        name = f"s{number - number % JOBS_A_SET}"
        jobs.append(_job(number, ControllerRef("JobSet", name, name)))

    daemon.say(Replaced(JobSetOwner, tuple(sets)), Replaced(JobOwner, tuple(jobs)))
    for number in range(gangs):
        _create(daemon, number, gang_metadata=ASKS)

    return MEMBERS * JOBS_A_SET


def _job(number: int, controller: ControllerRef | None) -> JobOwner:
    return JobOwner(
        uid=f"g{number:05}",
        namespace=NAMESPACE,
        name=f"g{number:05}",
        minimum=MEMBERS,
        controller=controller,
        part="worker",
    )


def _create(
    daemon: Daemon,
    number: int,
    gang_metadata: tuple[tuple[str, str], ...],
) -> None:
    """Create the pods of one gang, which are those of a Job in all cases."""
    name = f"g{number:05}"
    shape = builders.shape(1, 10)
    pods = []
    for index in range(MEMBERS):
        pod = builders.pod(
            f"{name}-{index}",
            of=shape,
            namespace=NAMESPACE,
            owner=name,
            controller_kind="Job",
            controller_uid=name,
            gang_metadata=gang_metadata,
            creation_s=1_000 + number,
        )
        pods.append(pod)

    daemon.create(*pods)


def measure(
    case: str,
    make: Callable[[Daemon, int], int],
    gangs: int,
) -> Result:
    """One case, on nodes that are full but for what ends, one node at a time."""
    daemon = Daemon()
    fillers: list[Pod] = []
    for number in range(TRIALS):
        # One node for each trial, with room for one gang, or for all Jobs of a JobSet.
        room = MEMBERS * JOBS_A_SET if make is with_job_sets else MEMBERS
        name = f"n{number}"
        filler = builders.pod(
            f"f{number}",
            of=builders.shape(room, 10),
            namespace="others",
            scheduler_name="other",
        )
        daemon.say(Applied(builders.node(name, room)))
        fillers.append(builders.running(filler, name))

    daemon.create(*fillers)
    daemon.rest()
    starting = make(daemon, gangs)
    read_ms = daemon.rest()
    gc.collect()
    gc.freeze()
    daemon.advance(130.0)
    assert not daemon.bound, f"{len(daemon.bound)} pods were bound, of gangs that should wait"

    freed = []
    # Not the last ones: whether others wait decides what a plan costs.
    trials = min(TRIALS, gangs * MEMBERS // starting - 1)
    for filler in fillers[:trials]:
        had = len(daemon.bound)
        daemon.delete(filler)
        freed.append(daemon.rest())
        assert len(daemon.bound) == had + starting, len(daemon.bound) - had
        daemon.advance(6.0)

    freed_ms = statistics.median(freed)
    return Result(case, gangs, round(read_ms, 1), round(freed_ms, 2), ratio=1.0)


CASES: dict[str, Callable[[Daemon, int], int]] = {
    "PodGroups": with_pod_groups,
    "Jobs": with_jobs,
    "JobSets of ten Jobs": with_job_sets,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; exit code 1 when a goal is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--part", type=int, default=1, help="divide the number of gangs by this")
    parser.add_argument("--json", action="store_true", help="print one JSON object a case")
    asked = parser.parse_args(arguments)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    gc.set_threshold(*GC_THRESHOLDS)

    first_ms = 0.0
    is_slow = False
    for case, make in CASES.items():
        result = asdict(measure(case, make, GANGS // asked.part))
        gc.unfreeze()
        gc.collect()
        first_ms = first_ms or result["freed_ms"]
        result["ratio"] = round(result["freed_ms"] / first_ms, 3)
        is_slow = is_slow or (case == "Jobs" and result["ratio"] > MOST_RATIO)
        print(json.dumps(result) if asked.json else result, flush=True)

    return 1 if is_slow else 0


if __name__ == "__main__":
    sys.exit(main())
