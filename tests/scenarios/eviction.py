"""What preemption does in the virtual form: the writes, the Eviction API, and pods that take time
to stop.

Invariant: it behaves as kube-apiserver 1.36 was measured to. An eviction overwrites the condition
DisruptionTarget; again on a terminating pod it is accepted; a PodDisruptionBudget that allows none
answers 429, two of them 500; pods in phase Pending pass. As on the real control plane of the tests
no controller raises `disruptionsAllowed` again. Orders are carried out as `kube.write` does, one
write at a time, and a crash may come after each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Protocol

from control_plane.api import Object

from gangsched.model.disruption import DISRUPTION_TARGET, PREEMPTED_BY_SCHEDULER, VICTIM_MESSAGE
from gangsched.model.inter_pod import Requirement, selects
from gangsched.model.protocol import (
    CancelPreemption,
    Evict,
    Evicted,
    EvictionDelayed,
    EvictionResult,
    Message,
    PreemptionOrder,
    PreemptionPrepared,
    PreparePreemption,
)

OURS = {"status": "True", "reason": PREEMPTED_BY_SCHEDULER, "message": VICTIM_MESSAGE}
EVICTED = {"status": "True", "reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting"}
FIRST_S, LONGEST_S = 1.0, 10.0
"""The back-off of an eviction that is refused for now."""


class Objects(Protocol):
    """The pretended API server, as far as preemption needs it."""

    def now_s(self) -> float:
        """Virtual monotonic seconds."""

    def named(self, order: Any) -> Object | None:
        """The pod with this namespace, name and uid."""

    def of_kind(self, kind: str) -> list[Object]:
        """All objects of a kind."""

    def change(self, old: Object, patch: Object) -> None:
        """Merge-patch an object."""

    def stop(self, pod: Object) -> None:
        """Delete a pod; it is gone after its grace period."""

    def plan(self, seconds: float, deed: Callable[[], None]) -> None:
        """Do this so many seconds from now."""

    def soon(self, deed: Callable[[], None]) -> None:
        """Do this once the scheduler has had its turn."""

    def tell(self, message: Message) -> None:
        """Tell the scheduler."""

    def needs(self, order: Evict) -> bool:
        """Whether the scheduler still needs an eviction."""

    def wrote(self) -> None:
        """A write of a preemption is done; the scheduler may crash now."""


class Evictions:
    """Carries out the orders of one life of the scheduler."""

    def __init__(self, objects: Objects, intruders: dict[str, Callable[[], None]]) -> None:
        """`intruders` are what others do, by the pod at whose first eviction they do it."""
        self._objects = objects
        self._intruders = intruders
        self._over: set[str] = set()
        self._delayed: set[tuple[str, str]] = set()
        self.dead = False

    def order(self, order: PreemptionOrder) -> None:
        """Begin to carry it out."""
        match order:
            case PreparePreemption():
                self._go_on(self._prepare(order))
            case Evict():
                self._go_on(self._evict(order, FIRST_S))
            case CancelPreemption():
                self._over.add(order.id)
                self._go_on(self._cancel(order))

    def _go_on(self, writes: Iterator[None]) -> None:
        """Do the next write, and the one after it when the scheduler has had a turn."""

        def step() -> None:
            if not self.dead and next(writes, StopIteration) is not StopIteration:
                self._objects.wrote()
                if not self.dead:
                    self._objects.soon(step)

        self._objects.soon(step)

    def _prepare(self, order: PreparePreemption) -> Iterator[None]:
        for member in order.members:
            if order.id in self._over:
                break
            pod = self._objects.named(member)
            if pod is None:
                self._objects.tell(
                    PreemptionPrepared(order.id, f"pod {member.namespace}/{member.name} is gone")
                )
                return
            self._objects.change(pod, {"status": {"nominatedNodeName": member.node}})
            yield
        for victim in order.victims:
            pod = self._objects.named(victim)
            if pod is not None and order.id not in self._over:
                self._mark(pod, OURS)
                yield
        self._objects.tell(PreemptionPrepared(order.id))

    def _cancel(self, order: CancelPreemption) -> Iterator[None]:
        for member in order.members:
            pod = self._objects.named(member)
            if pod is not None:
                self._objects.change(pod, {"status": {"nominatedNodeName": None}})
                yield

    def _evict(self, order: Evict, again_s: float) -> Iterator[None]:
        if order.id in self._over:
            return
        if not self._objects.needs(order):
            self._objects.tell(Evicted(order.id, order.uid, EvictionResult.WITHDRAWN, "not needed"))
            return
        intruder = self._intruders.pop(f"{order.namespace}/{order.name}", None)
        if intruder is not None:
            intruder()
        pod = self._objects.named(order)
        if pod is None:
            self._objects.tell(Evicted(order.id, order.uid, EvictionResult.GONE, "pods not found"))
            return
        if "deletionTimestamp" not in pod["metadata"]:
            budgets = (
                [] if order.delete or pod["status"]["phase"] == "Pending" else self._budgets(pod)
            )
            if refusal := _refusal(budgets):
                self._try_again(order, refusal, again_s)
                return
            for budget in budgets:
                left = budget["status"]["disruptionsAllowed"] - 1
                self._objects.change(budget, {"status": {"disruptionsAllowed": left}})
            if not order.delete:
                self._mark(pod, EVICTED)
            self._objects.stop(self._objects.named(order) or pod)
            yield
        left_over = self._objects.named(order)
        if left_over is not None:
            self._mark(left_over, OURS)
            yield
        self._objects.tell(Evicted(order.id, order.uid, EvictionResult.DONE))

    def _try_again(self, order: Evict, refusal: str, again_s: float) -> None:
        if (order.id, order.uid) not in self._delayed:
            self._delayed.add((order.id, order.uid))
            self._objects.tell(EvictionDelayed(order.id, order.uid, refusal))
        left_s = order.deadline_s - self._objects.now_s()
        if again_s < left_s:
            later = self._evict(order, min(2 * again_s, LONGEST_S))
            self._objects.plan(again_s, partial(self._go_on, later))
        else:
            self._objects.plan(max(0.0, left_s), partial(self._give_up, order, refusal))

    def _give_up(self, order: Evict, refusal: str) -> None:
        if not self.dead and order.id not in self._over:
            self._objects.tell(Evicted(order.id, order.uid, EvictionResult.BLOCKED, refusal))

    def _mark(self, pod: Object, told: dict[str, str]) -> None:
        """Set DisruptionTarget, beside the other conditions."""
        others = [
            each
            for each in pod["status"].get("conditions", ())
            if each["type"] != DISRUPTION_TARGET
        ]
        self._objects.change(
            pod, {"status": {"conditions": [*others, {"type": DISRUPTION_TARGET, **told}]}}
        )

    def _budgets(self, pod: Object) -> list[Object]:
        return [
            budget
            for budget in self._objects.of_kind("PodDisruptionBudget")
            if _covers(budget, pod)
        ]


def _refusal(budgets: list[Object]) -> str:
    """What the API server says of an eviction that these PodDisruptionBudgets concern; "" if they
    allow it.
    """
    if len(budgets) > 1:
        return (
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does"
            " not support."
        )
    if budgets and budgets[0]["status"]["disruptionsAllowed"] <= 0:
        return f"The disruption budget {budgets[0]['metadata']['name']} needs more healthy pods."
    return ""


def _covers(budget: Object, pod: Object) -> bool:
    selector = budget["spec"]["selector"]
    equals = tuple(
        Requirement(key, "In", (value,)) for key, value in selector.get("matchLabels", {}).items()
    )
    same_namespace = budget["metadata"]["namespace"] == pod["metadata"]["namespace"]
    return same_namespace and selects(equals, pod["metadata"].get("labels", {}))
