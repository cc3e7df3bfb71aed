"""What a scheduler made of the load: the same figures on a control plane and on a virtual clock."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from bench.fight.load import Job


@dataclass(frozen=True, slots=True)
class Figures:
    """What one scheduler made of the load; times in seconds, work in GPU-seconds.

    `work_lost` is that of evicted pods alone; `gang_work_lost` that of all members of a stopped
    gang since it was whole; `work_in_vain` is what pods used while they were fewer than their
    gang's minimum. `high_start_s` has every job of the highest priority, one that did not start
    with the time it has waited.
    """

    scheduler: str
    load: str
    minutes: float
    jobs: int
    started: int
    finished: int
    evicted_pods: int
    evictions_per_started: float
    gangs_stopped: int
    work_done: float
    work_lost: float
    gang_work_lost: float
    work_in_vain: float
    high_jobs: int
    high_not_started: int
    high_start_median_s: float
    high_start_p90_s: float
    high_start_max_s: float


class Count:
    """Counts what happens to pods; the caller says when, in seconds of one clock."""

    def __init__(self) -> None:
        self._jobs: list[Job] = []
        self._finished = self._evicted = self._stopped = 0
        self._done = self._lost = self._gang_lost = self._in_vain = 0.0

    def arrived(self, job: Job, now_s: float) -> None:
        """A job is created."""
        job.created_s = job.counted_s = now_s
        self._jobs.append(job)

    def bound(self, job: Job, name: str, now_s: float) -> None:
        """A pod of the job has a node."""
        self._pass(job, now_s)
        job.bound[name] = now_s
        if len(job.bound) >= job.kind.minimum and job.whole_s is None:
            job.whole_s = now_s
            job.started_s = now_s if job.started_s is None else job.started_s

    def ended(self, job: Job, name: str, now_s: float) -> None:
        """A pod of the job has succeeded."""
        self._pass(job, now_s)
        job.ended.add(name)
        self._done += job.kind.gpus * job.run_s(name)
        self._finished += job.is_done

    def evicted(self, job: Job, name: str, now_s: float) -> None:
        """A pod of the job is evicted."""
        self._pass(job, now_s)
        self._evicted += 1
        self._lost += job.kind.gpus * (now_s - job.bound.pop(name, now_s))
        if job.whole_s is not None and len(job.bound) < job.kind.minimum:
            self._stopped += 1
            self._gang_lost += job.kind.gpus * (len(job.bound) + 1) * (now_s - job.whole_s)
            job.whole_s = None

    def figures(self, scheduler: str, load: str, minutes: float, now_s: float) -> Figures:
        """As of now."""
        for job in self._jobs:
            self._pass(job, now_s)
        started = sum(job.started_s is not None for job in self._jobs)
        high = [job for job in self._jobs if job.kind.priority == "high"]
        waits = sorted(
            (now_s if job.started_s is None else job.started_s) - job.created_s for job in high
        )
        return Figures(
            scheduler,
            load,
            minutes,
            len(self._jobs),
            started,
            self._finished,
            self._evicted,
            round(self._evicted / max(1, started), 2),
            self._stopped,
            round(self._done),
            round(self._lost),
            round(self._gang_lost),
            round(self._in_vain),
            len(high),
            sum(job.started_s is None for job in high),
            round(statistics.median(waits), 2),
            round(waits[min(len(waits) - 1, int(0.9 * len(waits)))], 2),
            round(waits[-1], 2),
        )

    def _pass(self, job: Job, now_s: float) -> None:
        """Until now the job was as it was last seen."""
        self._in_vain += job.gpus_in_vain * (now_s - job.counted_s)
        job.counted_s = now_s
