"""The simulation: jobs arrive, are planned, run and end, on a clock that jumps from event to event.

Invariant: its turns are those of the daemon (`gangsched.turn`), in which every bind and every write
of a preemption succeeds at once. Equal nodes, jobs and settings give equal results. There are no
plans between events. Evicted pods are gone after their grace period; a job that loses pods starts
again from the beginning, without checkpoints.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, Final

from msgspec import structs

from gangsched import parameters
from gangsched.model.disruption import PodDisruptionBudget
from gangsched.model.gpu_policy import GpuPolicy
from gangsched.model.objects import Node, Phase, Pod
from gangsched.model.protocol import (
    Action,
    Applied,
    Bind,
    Bound,
    CancelPreemption,
    Evict,
    Evicted,
    EvictionResult,
    Gone,
    PreemptionPrepared,
    PreparePreemption,
    Replaced,
)
from gangsched.model.reservation import Reserved
from gangsched.model.snapshot import Snapshot
from gangsched.settings import Settings
from gangsched.simulate.workload import Job, gpus_of
from gangsched.state.scheduling import SchedulingState
from gangsched.telemetry.reservations import idle
from gangsched.turn import plan_and_commit, prepare


@dataclass(slots=True)
class Promises:
    """Promised start times, and idle reserved room.

    A promise is the start time reported to a group when it became the first head (H13); later
    reports do not count. Reserved room that no pod uses counts as idle, even if other groups could
    use it, so that the cost of reservations is never understated. `told_s` has the promised start
    times by group id, `math.inf` for a fence; `idle_gpu_s` are the GPU-seconds that were idle until
    `seen_s`.

    `told_at_s` has when a promise was told. `standing` are the current reservations, in which
    `idle_gpus` GPUs are idle.
    """

    told_s: dict[str, float] = field(default_factory=dict)
    told_at_s: dict[str, float] = field(default_factory=dict)
    idle_gpu_s: float = 0.0
    seen_s: float = 0.0
    idle_gpus: float = 0
    standing: tuple[Reserved, ...] = ()

    def pass_to(self, now_s: float) -> None:
        """Advance to `now_s` with unchanged reservations."""
        self.idle_gpu_s += self.idle_gpus * (now_s - self.seen_s)
        self.seen_s = now_s

    def look(self, reserved: Iterable[Reserved], snapshot: Snapshot, policy: GpuPolicy) -> None:
        """Record the current reservations and their room."""
        self.standing = tuple(reserved)
        for reservation in self.standing:
            if reservation.is_promised or (reservation.first and reservation.is_fence):
                # Only the first report: later ones move with what happens meanwhile.
                self.told_s.setdefault(reservation.group, reservation.promised_s)
                self.told_at_s.setdefault(reservation.group, self.seen_s)

        self.idle_gpus = (
            idle(self.standing, snapshot, policy)["accelerators"] if self.standing else 0
        )


IDLE_S: Final = 600.0
"""How long deadlines are still followed once nothing runs, for groups that are held back."""


@dataclass(slots=True)
class Run:
    """The course of a job. `started_s` is the first time at which all its pods were bound, None if
    they never were.

    `spans` are the run times of all its attempts, and `places` their GPUs by node; `preempted` is
    the number of attempts that ended by an eviction.
    """

    job: Job
    started_s: float | None = None
    unbound: int = 0
    preempted: int = 0
    spans: list[tuple[float, float]] = field(default_factory=list)
    places: list[dict[str, int]] = field(default_factory=list)

    @property
    def wait_s(self) -> float:
        """Seconds from submission to the first start; infinite if it never started."""
        if self.started_s is None:
            return float("inf")

        return self.started_s - self.job.submit_s


class Simulator:
    """One cluster and one list of jobs."""

    def __init__(
        self,
        nodes: Sequence[Node],
        jobs: Sequence[Job],
        settings: Settings | None = None,
    ) -> None:
        """`settings` that affect planning have the same effect as in the daemon."""
        settings = settings or Settings()
        self.runs = [
            Run(job, unbound=len(job.pods))
            for job in sorted(jobs, key=lambda job: (job.submit_s, job.name))
        ]
        self.promises = Promises()
        self._scheduler_name = settings.scheduler_names[0]
        self._state = SchedulingState(replace(parameters.rules_alone(settings), unattended=True))
        self._now_s = 0.0
        self._pods: dict[str, tuple[Pod, Run]] = {}
        self._began_s: dict[str, float] = {}  # of jobs that run, by key

        # with how often it was preempted by then
        self._ends: list[tuple[float, int, Run, int]] = []
        self._leaving: list[tuple[float, int, str]] = []  # pods that are evicted, by uid

        # Breaks ties in the heaps, and keeps them in the order of events.
        self._ticket = count()
        self._again_s: dict[str, float] = {}  # when a preempted job was created again, by key
        self._idle_until_s = IDLE_S
        self._state.apply(Replaced(Node, tuple(nodes)), now_s=0.0)
        self._state.apply(Replaced(PodDisruptionBudget, ()), now_s=0.0)

    def run(self, progress: Callable[[int], None] = lambda _: None) -> list[Run]:
        """Run until the last job that starts has ended; `progress` receives the number of jobs that
        have arrived.
        """
        arrived = 0
        while True:
            arrival_s = float("inf")
            if arrived < len(self.runs):
                arrival_s = self.runs[arrived].job.submit_s

            end_s = self._ends[0][0] if self._ends else float("inf")
            leaves_s = self._leaving[0][0] if self._leaving else float("inf")
            event_s = min(arrival_s, end_s, leaves_s)
            due_s = self._state.next_deadline_s(self._now_s, reporting=False)

            due_s = max(self._now_s, due_s) if due_s is not None else float("inf")
            # Deadlines alone may follow each other forever, so they end some time after the last
            # event.
            if min(event_s, due_s) == float("inf") or (
                event_s == float("inf") and due_s > self._idle_until_s
            ):
                break

            self._now_s = min(event_s, due_s)
            if event_s < float("inf"):
                self._idle_until_s = self._now_s + IDLE_S

            self.promises.pass_to(self._now_s)
            while self._ends and self._ends[0][0] <= self._now_s:
                _, _, run, preempted = heapq.heappop(self._ends)
                # The end of an attempt that was evicted meanwhile is void.
                if run.preempted == preempted:
                    self._end(run)

            while self._leaving and self._leaving[0][0] <= self._now_s:
                self._leave(heapq.heappop(self._leaving)[2])

            while arrived < len(self.runs) and self.runs[arrived].job.submit_s <= self._now_s:
                self._arrive(self.runs[arrived])
                arrived += 1

            self._settle()
            progress(arrived)

        return self.runs

    def _arrive(self, run: Run) -> None:
        for pod in self._pods_of(run):
            self._see(pod, run)

    def _pods_of(self, run: Run) -> list[Pod]:
        """The pods of a job as its controller makes them, anew after each preemption."""
        pods = run.job.make_pods(self._scheduler_name)
        if not run.preempted:
            return pods

        pods_of: list[Pod] = []
        for pod in pods:
            pods_of.append(
                structs.replace(
                    pod,
                    uid=f"{pod.uid}/{run.preempted}",
                    creation_s=int(self._again_s[run.job.key]),
                )
            )

        return pods_of

    def _see(self, pod: Pod, run: Run) -> None:
        self._pods[pod.uid] = pod, run
        self._state.apply(Applied(pod), now_s=self._now_s)

    def _change(self, uid: str, **changes: Any) -> None:
        """Change a pod as the API server shows it after a write of ours."""
        pod, run = self._pods[uid]
        self._see(structs.replace(pod, **changes), run)

    def _end(self, run: Run) -> None:
        places: dict[str, int] = {}
        for pod in self._pods_of(run):
            bound, _ = self._pods.pop(pod.uid)
            node = bound.node_name
            places[node] = places.get(node, 0) + gpus_of(bound.shape)
            self._state.apply(Gone(Pod, pod.uid), now_s=self._now_s)

        run.places.append(places)
        began_s = self._began_s.pop(run.job.key)
        run.spans.append((began_s, self._now_s))

    def _leave(self, uid: str) -> None:
        """An evicted pod is gone, and so is the work of its job: members of a Strict gang are
        evicted together.
        """
        if uid not in self._pods:
            return  # its job ended within the grace period, or went with another of its pods

        _, run = self._pods[uid]
        self._end(run)
        run.preempted += 1
        run.unbound = len(run.job.pods)
        self._again_s[run.job.key] = self._now_s
        self._arrive(run)

    def _settle(self) -> None:
        """Take turns until there is nothing left to plan_and_commit at this moment."""
        stands = None
        while True:
            answered = self._carry_out(prepare(self._state, self._now_s, self._now_s).actions)
            planned = plan_and_commit(self._state, self._now_s, self._now_s, limits=None)
            if planned is not None:
                self._carry_out(planned.actions)
                stands = planned.plan.reservations
            elif not answered:
                break

        if stands is not None:
            self.promises.look(
                stands.standing,
                self._state.snapshot(),
                self._state.registry.policy,
            )

    def _carry_out(self, actions: Iterable[Action]) -> bool:
        """Carry out these actions as the API server does; return whether it has answered any."""
        answered = False
        for action in actions:
            match action:
                case Bind():
                    self._bind(action)
                case PreparePreemption():
                    self._nominate({member.uid: member.node for member in action.members})
                    for victim in action.victims:
                        self._change(victim.uid, disruption_target=True)

                    self._state.apply(PreemptionPrepared(action.id), now_s=self._now_s)
                case Evict():
                    self._evict(action)
                case CancelPreemption():
                    self._nominate({member.uid: "" for member in action.members})
                case _:
                    continue

            answered = True

        return answered

    def _nominate(self, nodes: dict[str, str]) -> None:
        for uid, node in nodes.items():
            if uid in self._pods and not self._pods[uid][0].node_name:
                self._change(uid, nominated_node=node)

    def _evict(self, order: Evict) -> None:
        pod, _ = self._pods[order.uid]
        if not pod.deleting:
            gone_s = self._now_s + pod.grace_s
            self._change(pod.uid, deleting=True, deletion_s=int(gone_s))
            leaves = gone_s, next(self._ticket), pod.uid
            heapq.heappush(self._leaving, leaves)

        done = Evicted(order.id, order.uid, EvictionResult.DONE)
        self._state.apply(done, now_s=self._now_s)

    def _bind(self, bind: Bind) -> None:
        _, run = self._pods[bind.uid]
        # A trace may begin at second 0, but a start of 0 means that the pod has not started: it
        # would stay too young.
        start_s = max(1, int(self._now_s))
        changes = {
            "node_name": bind.node,
            "phase": Phase.RUNNING,
            "start_s": start_s,
            "nominated_node": "",
        }
        self._change(bind.uid, **changes)
        self._state.apply(Bound(bind.uid, bind.node), now_s=self._now_s)

        run.unbound -= 1
        if not run.unbound:
            run.started_s = self._now_s if run.started_s is None else run.started_s
            self._began_s[run.job.key] = self._now_s
            heapq.heappush(
                self._ends,
                (self._now_s + run.job.run_s, next(self._ticket), run, run.preempted),
            )
