"""Which conditions of pods wait for a write about the pod's nomination, and which that write carries (V12, V13).

Invariant: a nomination and the condition of its pod are one write, as kube-scheduler's are. A refusal comes after the
nomination is cleared, since autoscalers pass over a pod that is refused and nominated.
"""

from __future__ import annotations

from collections import Counter
from typing import Protocol

from gangsched.model.protocol import CancelPreemption, PreemptionOrder, PreparePreemption, SetPodCondition
from gangsched.model.reasons import Reason


class Conditions(Protocol):
    """Conditions of pods that wait to be written."""

    def carry(self, uid: str) -> SetPodCondition | None:
        """The condition of a pod, if one waits, for another write to carry; `carried` ends that."""

    def carried(self, order: SetPodCondition, *, is_written: bool) -> None:
        """The other write was made, or could not be."""

    def cleared(self, uid: str) -> None:
        """The nomination of a pod is cleared, or cannot be."""


class Preceding:
    """Writes about nominations that are ordered; `conditions` wait for them."""

    def __init__(self) -> None:
        self.conditions: Conditions | None = None
        #: Pods whose nomination is to be written or cleared, and how many orders say so.
        self._nominating: Counter[str] = Counter()
        self._clearing: Counter[str] = Counter()

    def ordered(self, order: PreemptionOrder) -> None:
        """Record an order."""
        match order:
            case PreparePreemption():
                self._nominating.update(member.uid for member in order.members)
            case CancelPreemption():
                self._clearing.update(member.uid for member in order.members)

    def precedes(self, condition: SetPodCondition) -> bool:
        """Whether a write about the pod's nomination comes before this condition, or carries it."""
        uid = condition.uid
        return uid in self._nominating or (uid in self._clearing and condition.reason != Reason.PREEMPTING)

    def nominates(self, uid: str) -> SetPodCondition | None:
        """The nomination of a pod is about to be written; returns what it carries, which ends in `nominated`."""
        _less(self._nominating, uid)
        return self.conditions.carry(uid) if self.conditions is not None else None

    def nominated(self, told: SetPodCondition | None, *, is_written: bool) -> None:
        """The nomination that carried this condition was written, or could not be."""
        if told is not None and self.conditions is not None:
            self.conditions.carried(told, is_written=is_written)

    def cleared(self, uid: str) -> None:
        """An order to clear the nomination of a pod is carried out."""
        _less(self._clearing, uid)
        if uid not in self._clearing and self.conditions is not None:
            self.conditions.cleared(uid)


def _less(counts: Counter[str], uid: str) -> None:
    counts[uid] -= 1
    if not counts[uid]:
        del counts[uid]
