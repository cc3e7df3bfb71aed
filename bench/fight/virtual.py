"""The load on a virtual clock: the real state and the real plans of gangsched, or a model of
kube-scheduler.

Invariant: binds and evictions are answered at once, victims are gone after their grace period, and
controllers recreate a pod 20 ms after it is gone. What a control plane costs is left out for both.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from itertools import count
from typing import Any

from msgspec import structs

from bench.fight.count import Count, Figures
from bench.fight.kube_model import KubeModel
from bench.fight.load import GPUS, NODES, OURS, PRIORITIES, THEIRS, Job, arrivals
from gangsched import parameters
from gangsched.model.objects import Phase, Pod, PodGroup
from gangsched.model.protocol import Applied, Bind, Bound, Evict
from gangsched.settings import Settings
from tests import builders
from tests.tuned import altered
from tests.world import World

RECREATED_AFTER_S = 0.02


class Agenda:
    """What happens when, in seconds since the beginning."""

    def __init__(self) -> None:
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()

    def at(self, at_s: float, happens: Callable[[], None]) -> None:
        """Plan something."""
        heapq.heappush(self._due, (at_s, next(self._numbers), happens))

    @property
    def next_s(self) -> float:
        """When the next thing happens."""
        return self._due[0][0] if self._due else math.inf

    def happen(self, now_s: float) -> None:
        """All that is due happens."""
        while self._due and self._due[0][0] <= now_s:
            heapq.heappop(self._due)[2]()


class Cluster(World):
    """A world whose jobs are counted, end, and have controllers."""

    def __init__(self, hold_back_s: int, counted: Count, agenda: Agenda) -> None:
        self._counted, self._agenda = counted, agenda
        self._job_of: dict[str, Job] = {}
        self._groups: dict[str, PodGroup] = {}
        nodes = [builders.node(f"n{n}", gpus=GPUS) for n in range(NODES)]
        super().__init__(
            *nodes,
            rules=altered(parameters.rules(Settings()), {"hold_back_s": hold_back_s}),
            preempts=True,
        )
        self._began_s = self.now_s

    @property
    def time_s(self) -> float:
        """Seconds since the beginning."""
        return self.now_s - self._began_s

    def check(self) -> None:
        """Nothing: invariants are for tests, and this is to be fast."""

    def run(self, until_s: float) -> None:
        """Let everything happen until then."""
        while True:
            self.settle()
            self.reports.clear()
            self.plans.clear()
            deadline_s = self.state.next_deadline_s(self.now_s)
            due_s = min([deadline_s or math.inf, *self.leaving.values()]) - self._began_s
            next_s = min(due_s, self._agenda.next_s)
            if next_s > until_s:
                return
            self.now_s = max(self.now_s, self._began_s + next_s)
            for uid in [uid for uid, gone_s in self.leaving.items() if gone_s <= self.now_s]:
                del self.leaving[uid]
                self._gone(self.pods[uid])
            self._agenda.happen(next_s)

    def arrive(self, job: Job) -> None:
        """A job is created."""
        self._counted.arrived(job, self.time_s)
        group = builders.pod_group(job.name, min_member=job.kind.minimum, creation_s=self.wall_s())
        self._groups[job.name] = group
        self.declare(group)
        for name in job.bodies:
            self._job_of[name] = job
            self._create(name)

    def _create(self, name: str) -> None:
        job = self._job_of[name]
        self.create(
            builders.pod(
                name,
                gpus=job.kind.gpus,
                priority=PRIORITIES[job.kind.priority],
                grace_s=job.grace_s(name),
                creation_s=self.wall_s(),
                gang_metadata=builders.gang_metadata(job.name, pod_group=True),
            )
        )

    def _gone(self, pod: Pod) -> None:
        self.delete(pod)
        self._agenda.at(self.time_s + RECREATED_AFTER_S, lambda: self._create(pod.name))

    def _bind(self, bind: Bind) -> None:
        pod, job = self.pods[bind.uid], self._job_of[self.pods[bind.uid].name]
        bound = structs.replace(
            pod, node_name=bind.node, phase=Phase.RUNNING, start_s=self.wall_s(), nominated_node=""
        )
        self.pods[bind.uid] = bound
        self.say(Applied(bound), Bound(bind.uid, bind.node))
        self._counted.bound(job, pod.name, self.time_s)
        self._agenda.at(self.time_s + job.run_s(pod.name), lambda: self._end(bind.uid))

    def _evict(self, order: Evict, fate: Any) -> None:
        before = self.pods.get(order.uid)
        super()._evict(order, fate)
        if before is not None and not before.deleting:
            self._counted.evicted(self._job_of[before.name], before.name, self.time_s)

    def _end(self, uid: str) -> None:
        pod = self.pods.get(uid)
        if pod is None or pod.deleting:
            return
        job = self._job_of[pod.name]
        self.update(pod, phase=Phase.SUCCEEDED)
        self._counted.ended(job, pod.name, self.time_s)
        if job.is_done:
            self.delete(*(each for each in [*self.pods.values()] if each.name in job.bodies))
            self.withdraw(self._groups[job.name])


def play_gangs(load: str, minutes: float, seed: int, *, hold_back_s: int) -> Figures:
    """The load under gangsched."""
    counted, agenda = Count(), Agenda()
    cluster = Cluster(hold_back_s, counted, agenda)
    for at_s, job, _ in arrivals(OURS, load, minutes, seed):
        agenda.at(at_s, lambda job=job: cluster.arrive(job))  # type: ignore[misc]  # bound per turn
    cluster.run(60 * minutes)
    return counted.figures(OURS, load, minutes, 60 * minutes)


def play_pods(load: str, minutes: float, seed: int) -> Figures:
    """The load under the model of kube-scheduler."""
    counted, agenda = Count(), Agenda()
    model = KubeModel(counted, agenda, seed, recreated_after_s=RECREATED_AFTER_S)
    for at_s, job, _ in arrivals(THEIRS, load, minutes, seed):
        agenda.at(at_s, lambda job=job: model.arrive(job))  # type: ignore[misc]  # bound per turn
    while agenda.next_s <= 60 * minutes:
        model.now_s = agenda.next_s
        agenda.happen(model.now_s)
    return counted.figures(THEIRS, load, minutes, 60 * minutes)
