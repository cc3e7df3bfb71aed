"""Conditions of pods that wait for a write about the pod's nomination, or become a part of that
write (V12, V13).

Invariant: a nomination and the condition of its pod are one write, as in kube-scheduler. A refusal
is written after the nomination is cleared, since autoscalers ignore a pod that has a nomination.
"""

from __future__ import annotations

from collections import Counter
from typing import Protocol

from gangsched.model.protocol import (
    CancelPreemption,
    PreemptionOrder,
    PreparePreemption,
    SetPodCondition,
)
from gangsched.model.reasons import Reason


class Conditions(Protocol):
    """Conditions of pods that wait to be written."""

    def carry(self, uid: str) -> SetPodCondition | None:
        """Take the waiting condition of a pod (None without one) to include it in another write;
        the caller reports the result with `carried`.
        """

    def carried(self, order: SetPodCondition, *, is_written: bool) -> None:
        """Record whether the write that included the condition succeeded."""

    def cleared(self, uid: str) -> None:
        """Record that the nomination of a pod was cleared, or could not be."""


class Preceding:
    """Requested writes about nominations; `conditions` wait for them."""

    def __init__(self) -> None:
        self.conditions: Conditions | None = None
        #: Pods whose nomination is to be written or cleared, and how many orders say so.
        self._nominating: Counter[str] = Counter()
        self._clearing: Counter[str] = Counter()

    def ordered(self, order: PreemptionOrder) -> None:
        """Record the writes that an order requests."""
        match order:
            case PreparePreemption():
                self._nominating.update(member.uid for member in order.members)
            case CancelPreemption():
                self._clearing.update(member.uid for member in order.members)

    def precedes(self, condition: SetPodCondition) -> bool:
        """Whether this condition must wait for a write about the pod's nomination."""
        uid = condition.uid
        # A condition that says Preempting belongs to a new nomination, which the clearing of an old
        # one does not delay.
        return uid in self._nominating or (
            uid in self._clearing and condition.reason != Reason.PREEMPTING
        )

    def nominates(self, uid: str) -> SetPodCondition | None:
        """Record that the nomination of a pod is about to be written; return the condition to
        include, whose result goes to `nominated`.
        """
        _less(self._nominating, uid)
        if self.conditions is not None:
            return self.conditions.carry(uid)

        return None

    def nominated(self, condition: SetPodCondition | None, *, is_written: bool) -> None:
        """Record whether the write of a nomination and of this condition succeeded."""
        if condition is not None and self.conditions is not None:
            self.conditions.carried(condition, is_written=is_written)

    def cleared(self, uid: str) -> None:
        """Record that one order to clear the nomination of a pod was carried out."""
        _less(self._clearing, uid)
        if uid not in self._clearing and self.conditions is not None:
            self.conditions.cleared(uid)


def _less(counts: Counter[str], uid: str) -> None:
    counts[uid] -= 1
    if not counts[uid]:
        del counts[uid]
