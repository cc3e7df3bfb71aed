"""The simulation: jobs arrive, are planned, run for their time and end, on a clock that jumps from event to event.

Law: it does what `loop.Loop` does in a turn, in the same order, with every bind answered at once; the same nodes, jobs
and settings give the same result. Between two events nothing changes, so nothing is planned.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import count

from msgspec import structs

from gangsched import parameters
from gangsched.core.cycle import plan
from gangsched.model.objects import Node, Phase, Pod
from gangsched.model.protocol import Applied, Bind, Bound, Gone, Replaced
from gangsched.settings import Settings
from gangsched.simulate.promises import Promises
from gangsched.simulate.workload import Job
from gangsched.state.scheduling import SchedulingState


@dataclass(slots=True)
class Run:
    """What became of a job: `started_s` is when its last pod was bound, None if it never was."""

    job: Job
    started_s: float | None = None
    unbound: int = 0

    @property
    def wait_s(self) -> float:
        """Seconds from submission to start; infinite for a job that never started."""
        return float("inf") if self.started_s is None else self.started_s - self.job.submit_s


class Simulator:
    """One cluster and one list of jobs; `run` plays them all."""

    def __init__(self, nodes: Sequence[Node], jobs: Sequence[Job], settings: Settings | None = None) -> None:
        """Settings count as they do for the daemon, as far as planning looks at them."""
        settings = settings or Settings()
        self.runs = [Run(job, unbound=len(job.pods)) for job in sorted(jobs, key=lambda job: (job.submit_s, job.name))]
        self.promises = Promises()
        self._scheduler_name = settings.scheduler_names[0]
        self._limits = parameters.limits(settings)
        self._policy = parameters.gpu_policy(settings)
        self._state = SchedulingState(replace(parameters.rules(settings), unattended=True))
        self._now_s = 0.0
        self._pods: dict[str, tuple[Pod, Run]] = {}
        self._ends: list[tuple[float, int, Run]] = []
        self._ticket = count()
        self._state.apply(Replaced(Node, tuple(nodes)), now_s=0.0)

    def run(self, progress: Callable[[int], None] = lambda _: None) -> list[Run]:
        """Play to the end of the last job that starts; `progress` is told how many jobs have arrived."""
        arrived = 0
        while arrived < len(self.runs) or self._ends:
            arrival_s = self.runs[arrived].job.submit_s if arrived < len(self.runs) else float("inf")
            end_s = self._ends[0][0] if self._ends else float("inf")
            due_s = self._state.reservations.next_deadline_s()
            self._now_s = min(arrival_s, end_s, max(self._now_s, due_s) if due_s is not None else float("inf"))
            self.promises.pass_to(self._now_s)
            while self._ends and self._ends[0][0] <= self._now_s:
                self._end(heapq.heappop(self._ends)[2])
            while arrived < len(self.runs) and self.runs[arrived].job.submit_s <= self._now_s:
                self._arrive(self.runs[arrived])
                arrived += 1
            self._settle()
            progress(arrived)
        return self.runs

    def _arrive(self, run: Run) -> None:
        for pod in run.job.make_pods(self._scheduler_name):
            self._pods[pod.uid] = pod, run
            self._state.apply(Applied(pod), now_s=self._now_s)

    def _end(self, run: Run) -> None:
        for pod in run.job.make_pods(self._scheduler_name):
            del self._pods[pod.uid]
            self._state.apply(Gone(Pod, pod.uid), now_s=self._now_s)

    def _settle(self) -> None:
        """Plan until there is nothing left to decide at this moment."""
        stands = None
        while True:
            self._state.refresh(self._now_s)
            given = self._state.plan_input(self._now_s, self._now_s)
            if given is None:
                break
            proposal = plan(
                given.snapshot,
                given.queue,
                now_s=self._now_s,
                limits=self._limits,
                policy=self._policy,
                reserving=given.reserving,
                crowded=given.crowded,
            )
            for action in self._state.commit(proposal, given.snapshot, now_s=self._now_s):
                if isinstance(action, Bind):
                    self._bind(action)
            stands = proposal.reservations
        if stands is not None:
            self.promises.look(stands.standing, self._state.snapshot())

    def _bind(self, bind: Bind) -> None:
        pod, run = self._pods[bind.uid]
        bound = structs.replace(pod, node_name=bind.node, phase=Phase.RUNNING, start_s=int(self._now_s))
        self._state.apply(Applied(bound), now_s=self._now_s)
        self._state.apply(Bound(bind.uid, bind.node), now_s=self._now_s)
        run.unbound -= 1
        if not run.unbound:
            run.started_s = self._now_s
            heapq.heappush(self._ends, (self._now_s + run.job.run_s, next(self._ticket), run))
