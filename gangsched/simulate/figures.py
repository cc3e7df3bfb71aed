"""Results of a simulation: waits by size and by priority, and utilisation of the cluster.

Invariant: pure arithmetic on the runs. A job that never started is counted, but has no wait.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gangsched.simulate.simulator import Run

HOUR_S: Final = 3600.0
SIZES: Final = (("no GPU", 0, 0), ("1-4 GPUs", 1, 4), ("5-8 GPUs", 5, 8), ("> 8 GPUs", 9, 10**9))


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """Waiting times of one class of jobs, in seconds; `started` of `jobs` have a waiting time."""

    name: str
    jobs: int
    started: int
    mean_s: float
    median_s: float
    p95_s: float
    max_s: float

    @classmethod
    def of(cls, name: str, runs: Sequence[Run]) -> Waits:
        """Summarize these jobs as a class."""
        waits = sorted(run.wait_s for run in runs if run.started_s is not None)
        mean_s = 0.0
        max_s = 0.0
        if waits:
            mean_s = math.fsum(waits) / len(waits)
            max_s = waits[-1]

        return cls(
            name=name,
            jobs=len(runs),
            started=len(waits),
            mean_s=mean_s,
            median_s=percentile(waits, 0.5),
            p95_s=percentile(waits, 0.95),
            max_s=max_s,
        )


def percentile(values: Sequence[float], part: float) -> float:
    """The smallest value that at least the share `part` of the values does not exceed (nearest
    rank); 0 without values.
    """
    ordered = sorted(values)
    if not ordered:
        return 0.0

    rank = math.ceil(part * len(ordered))
    return ordered[max(0, rank - 1)]


def size_of(run: Run) -> str:
    """The size class of a job."""
    return next(name for name, least, most in SIZES if least <= run.job.gpus <= most)


def by_size(runs: Sequence[Run]) -> list[Waits]:
    """All jobs, then each non-empty size class."""
    classes = [Waits.of("all", runs)]
    for name, _, _ in SIZES:
        of_size = [run for run in runs if size_of(run) == name]
        if of_size:
            classes.append(Waits.of(name, of_size))

    return classes


def by_priority(runs: Sequence[Run]) -> list[Waits]:
    """Each priority that occurs, highest first."""
    priorities = sorted({run.job.priority for run in runs}, reverse=True)
    result: list[Waits] = []

    for priority in priorities:
        alike = [run for run in runs if run.job.priority == priority]
        result.append(Waits.of(f"priority {priority}", alike))

    return result


def allocated_share(runs: Iterable[Run], gpus: int) -> float:
    """Share of `gpus` allocated between the first and the last submission, weighted by time."""
    runs = list(runs)
    begin_s = min(run.job.submit_s for run in runs)

    end_s = max(run.job.submit_s for run in runs)
    if not gpus or end_s <= begin_s:
        return 0.0

    used = math.fsum(
        run.job.gpus * (min(ended_s, end_s) - started_s)
        for run in runs
        for started_s, ended_s in run.spans
        if started_s < end_s
    )
    return used / (gpus * (end_s - begin_s))


def lost_gpu_s(runs: Iterable[Run]) -> tuple[float, float]:
    """GPU-seconds lost to preemption, and GPU-seconds used in total."""
    runs = list(runs)
    ran = math.fsum(
        run.job.gpus * (end_s - start_s) for run in runs for start_s, end_s in run.spans
    )

    # Attempts in order: the first `preempted` ones ended by an eviction.
    lost = math.fsum(
        run.job.gpus * (end_s - start_s)
        for run in runs
        for start_s, end_s in run.spans[: run.preempted]
    )
    return lost, ran


def promise_errors_s(told_s: Mapping[str, float], runs: Iterable[Run]) -> list[float]:
    """How much later than promised each job started, in seconds, negative if earlier; only for jobs
    with a promised time.
    """
    result: list[float] = []

    for run in runs:
        at_s = told_s.get(run.job.group, math.inf)
        if run.started_s is not None and at_s < math.inf:
            result.append(run.started_s - at_s)

    return result


def late_s(errors_s: Iterable[float]) -> list[float]:
    """The errors that exceed one second."""
    return [error_s for error_s in errors_s if error_s > 1]
