"""A model of kube-scheduler with its own preemption: plain pods, one at a time, victims on one
node.

Invariant: as in kube-scheduler's DefaultPreemption without PodDisruptionBudgets. Pods of the
highest priority come first, then those that have waited longest. On each node all of lower priority
go, and come back dearest first while there is room; the node is taken whose victims have the lowest
highest priority, then the least sum of priorities, then are the fewest, then started latest.
Nominations of equal and higher priority take room. Nodes are scored by how few pods they have.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Protocol

from bench.fight.count import Count
from bench.fight.load import GPUS, NODES, PRIORITIES, Job

LOOK_S, WATCH_S = 0.01, 0.001
"""From a new pod, and from one that is gone, to the next look."""
LEAST_PRIORITY = 2**31
"""What is added to each priority before they are summed, as kube-scheduler does, so that fewer pods
sum to less.
"""
NOWHERE = -1


class Clock(Protocol):
    """Where what is to happen is planned."""

    def at(self, at_s: float, happens: Callable[[], None]) -> None:
        """Plan something."""


@dataclass(eq=False, slots=True)
class ModelPod:
    """A pod; `node` and `nominated` are NOWHERE without one. It is `leaving` once it is evicted."""

    name: str
    job: Job
    priority: int
    gpus: int
    queued: tuple[float, int]
    node: int = NOWHERE
    nominated: int = NOWHERE
    started_s: float = 0.0
    leaving: bool = False
    gone: bool = False


class KubeModel:
    """The scheduler, kubelets and controllers. The caller sets `now_s` before anything happens."""

    def __init__(
        self, counted: Count, clock: Clock, seed: int, *, recreated_after_s: float
    ) -> None:
        self.now_s = 0.0
        self._counted, self._clock = counted, clock
        self._recreated_after_s = recreated_after_s
        self._dice = random.Random(seed + 1_000)
        self._numbers = count()
        self._bound: list[ModelPod] = []
        self._pending: list[ModelPod] = []

    def arrive(self, job: Job) -> None:
        """A job is created."""
        self._counted.arrived(job, self.now_s)
        for name in job.bodies:
            self._create(name, job)

    def _create(self, name: str, job: Job) -> None:
        queued = self.now_s, next(self._numbers)
        self._pending.append(
            ModelPod(name, job, PRIORITIES[job.kind.priority], job.kind.gpus, queued)
        )
        self._clock.at(self.now_s + LOOK_S, self._look)

    def _look(self) -> None:
        for pod in sorted(self._pending, key=lambda pod: (-pod.priority, pod.queued)):
            pod.queued = self.now_s, next(self._numbers)
            fits = [
                n for n in range(NODES) if GPUS - self._used(n) - self._promised(n, pod) >= pod.gpus
            ]
            if fits:
                self._bind(pod, fits)
            elif not self._waits_for_victims(pod):
                self._preempt(pod)

    def _used(self, node: int, *, above: float = float("-inf")) -> int:
        return sum(pod.gpus for pod in self._bound if pod.node == node and pod.priority >= above)

    def _promised(self, node: int, but: ModelPod) -> int:
        return sum(
            pod.gpus
            for pod in self._pending
            if pod.nominated == node and pod is not but and pod.priority >= but.priority
        )

    def _waits_for_victims(self, pod: ModelPod) -> bool:
        return any(
            other.leaving and other.node == pod.nominated and other.priority < pod.priority
            for other in self._bound
        )

    def _bind(self, pod: ModelPod, fits: list[int]) -> None:
        node = pod.nominated
        if node not in fits:
            pods = [sum(other.node == n for other in self._bound) for n in fits]
            node = self._dice.choice(
                [n for n, number in zip(fits, pods, strict=True) if number == min(pods)]
            )
        self._pending.remove(pod)
        self._bound.append(pod)
        pod.node, pod.nominated, pod.started_s = node, NOWHERE, self.now_s
        self._counted.bound(pod.job, pod.name, self.now_s)
        self._clock.at(self.now_s + pod.job.run_s(pod.name), lambda: self._end(pod))

    def _preempt(self, pod: ModelPod) -> None:
        found = []
        for node in range(NODES):
            victims = self._victims(pod, node)
            if victims:
                highest = max(each.priority for each in victims)
                total = sum(each.priority + LEAST_PRIORITY for each in victims)
                latest = min(each.started_s for each in victims if each.priority == highest)
                found.append(((highest, total, len(victims), -latest), node, victims))
        if not found:
            pod.nominated = NOWHERE
            return
        _, pod.nominated, victims = min(found, key=lambda each: each[0])
        for other in self._pending:
            if other.nominated == pod.nominated and other.priority < pod.priority:
                other.nominated = NOWHERE
        for victim in victims:
            if not victim.leaving:
                victim.leaving = True
                self._counted.evicted(victim.job, victim.name, self.now_s)
                gone_s = self.now_s + max(victim.job.grace_s(victim.name), WATCH_S)
                self._clock.at(gone_s, lambda victim=victim: self._gone(victim))  # type: ignore[misc]  # bound per turn

    def _victims(self, pod: ModelPod, node: int) -> list[ModelPod]:
        """Who must leave the node for the pod; nobody where that does not help."""
        free = GPUS - self._used(node, above=pod.priority) - self._promised(node, pod) - pod.gpus
        lower = [each for each in self._bound if each.node == node and each.priority < pod.priority]
        victims = []
        for each in (
            sorted(lower, key=lambda each: (-each.priority, each.started_s)) if free >= 0 else ()
        ):
            if each.gpus <= free:
                free -= each.gpus
            else:
                victims.append(each)
        return victims

    def _end(self, pod: ModelPod) -> None:
        if not pod.gone and not pod.leaving:
            self._counted.ended(pod.job, pod.name, self.now_s)
            self._remove(pod)

    def _gone(self, pod: ModelPod) -> None:
        if not pod.gone:
            self._remove(pod)
            self._clock.at(
                self.now_s + self._recreated_after_s, lambda: self._create(pod.name, pod.job)
            )

    def _remove(self, pod: ModelPod) -> None:
        pod.gone = True
        self._bound.remove(pod)
        self._clock.at(self.now_s + WATCH_S, self._look)
