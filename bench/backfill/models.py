"""Throw-away models of queueing policies, to compare the real planner with: FIFO, skipping, EASY.

Invariant: they count whole GPUs on alike nodes and nothing else. A job above a node's GPUs takes
whole nodes and a rest, all at once; a pod goes where the fewest GPUs are left over, the first such
node. Nothing that runs is ever moved.

- FIFO: nobody passes the oldest job.
- Skipping: whoever fits starts, the oldest first.
- EASY (Lifka 1995): the oldest job that does not fit has a reservation at the earliest expected
  time T; whoever fits starts if it is expected to end by T or keeps off what the reservation needs
  at T.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import count
from typing import TypeAlias

from gangsched.simulate.simulator import Run
from gangsched.simulate.workload import Job, gpus_of

HOUR_S, DAY_S = 3600.0, 86400.0
CLASSES_S = (600.0, HOUR_S, 4 * HOUR_S, DAY_S, 3 * DAY_S, 7 * DAY_S, 30 * DAY_S, 90 * DAY_S)


Pod: TypeAlias = tuple[int, int]
"""The node of a pod, and its GPUs there."""


class Policy(StrEnum):
    """Who may start."""

    FIFO = "FIFO"
    SKIP = "skip what does not fit"
    EASY = "EASY"


def run_class_s(job: Job) -> float:
    """The run time that users state who know its class: the upper bound of it."""
    return next((bound_s for bound_s in CLASSES_S if job.run_s <= bound_s), job.run_s)


@dataclass(slots=True)
class Reservation:
    """From `at_s` on, `spare[n]` GPUs of node `n` are left beside it; without a time it keeps
    nothing.
    """

    at_s: float = math.inf
    spare: list[int] = field(default_factory=list)


class Model:
    """One policy on `nodes` nodes of `per_node` GPUs; `expected_s` is what is believed of a job's
    run time.
    """

    def __init__(
        self,
        policy: Policy,
        jobs: Sequence[Job],
        *,
        nodes: int,
        per_node: int,
        expected_s: Callable[[Job], float] = lambda job: job.run_s,
    ) -> None:
        """All jobs must fit on the empty cluster."""
        self.runs = [Run(job) for job in sorted(jobs, key=lambda job: (job.submit_s, job.name))]
        self.promised_s: dict[str, float] = {}
        self._policy = policy
        self._expected_s = expected_s
        self._free = [per_node] * nodes
        self._waiting: list[Run] = []
        self._ends: list[tuple[float, int]] = []
        self._running: dict[int, tuple[float, list[Pod]]] = {}
        self._ticket = count()
        self._now_s = 0.0

    def run(self, progress: Callable[[int], None] = lambda _: None) -> list[Run]:
        """Play to the end of the last job; `progress` is told how many have arrived."""
        arrived = 0
        while arrived < len(self.runs) or self._ends:
            arrival_s = self.runs[arrived].job.submit_s if arrived < len(self.runs) else math.inf
            self._now_s = min(arrival_s, self._ends[0][0] if self._ends else math.inf)
            while self._ends and self._ends[0][0] <= self._now_s:
                _, ticket = heapq.heappop(self._ends)
                give_back(self._free, self._running.pop(ticket)[1])
            while arrived < len(self.runs) and self.runs[arrived].job.submit_s <= self._now_s:
                self._waiting.append(self.runs[arrived])
                arrived += 1
            self._start_what_may()
            progress(arrived)
        return self.runs

    def _start_what_may(self) -> None:
        """One pass over the queue, the oldest first; sizes that did not fit are not tried again in
        it.
        """
        reservation = Reservation()
        refused: set[tuple[int, bool]] = set()
        left: list[Run] = []
        for position, run in enumerate(self._waiting):
            short = self._now_s + self._expected_s(run.job) <= reservation.at_s
            kind = (run.job.gpus, short)
            nodes = None if kind in refused else self._find(run.job, reservation, short=short)
            if nodes is not None:
                self._start(run, nodes, reservation, short=short)
                continue
            left.append(run)
            refused.add(kind)
            if self._policy is Policy.FIFO:
                left += self._waiting[position + 1 :]
                break
            if self._policy is Policy.EASY and len(left) == 1:
                reservation = self._reserve(run.job)
                self.promised_s.setdefault(run.job.group, reservation.at_s)
                refused.clear()
        self._waiting = left

    def _find(self, job: Job, reservation: Reservation, *, short: bool) -> list[Pod] | None:
        """(node, GPUs) of each pod, or None; a job that outlives the reservation's time keeps off
        what that needs.
        """
        spare = reservation.spare
        if short or not spare:
            return place(job, self._free)
        return place(job, [min(now, then) for now, then in zip(self._free, spare, strict=True)])

    def _start(self, run: Run, nodes: list[Pod], reservation: Reservation, *, short: bool) -> None:
        run.started_s = self._now_s
        for node, gpus in nodes:
            self._free[node] -= gpus
            if reservation.spare and not short:
                reservation.spare[node] -= gpus
        ticket = next(self._ticket)
        heapq.heappush(self._ends, (self._now_s + run.job.run_s, ticket))
        self._running[ticket] = self._now_s + self._expected_s(run.job), nodes

    def _reserve(self, job: Job) -> Reservation:
        """The earliest expected end by which `job` fits, and what is left beside it then."""
        free = list(self._free)
        sizes = [gpus_of(shape) for shape in job.pods]
        for at_s, nodes in sorted(self._running.values(), key=lambda each: each[0]):
            give_back(free, nodes)
            if (
                sum(free) >= sum(sizes)
                and max(free) >= sizes[0]
                and (found := place(job, free)) is not None
            ):
                for node, gpus in found:
                    free[node] -= gpus
                return Reservation(at_s, free)
        raise AssertionError(f"{job.key} does not fit on the empty cluster")


def give_back(free: list[int], nodes: Sequence[Pod]) -> None:
    """Add the GPUs of each pod to its node's."""
    for node, gpus in nodes:
        free[node] += gpus


def place(job: Job, free: Sequence[int]) -> list[Pod] | None:
    """(node, GPUs) of each pod of `job` on `free[n]` GPUs, the fewest left over first; None if one
    does not fit.
    """
    left = list(free)
    placed = []
    for gpus in map(gpus_of, job.pods):
        best = min(
            (node for node, have in enumerate(left) if have >= gpus),
            key=left.__getitem__,
            default=None,
        )
        if best is None:
            return None
        left[best] -= gpus
        placed.append((best, gpus))
    return placed
