"""Disruptions as the API shows them: PodDisruptionBudgets, and the condition that pods carry which we evict.

Invariant: these are values only. `core.preemption` decides who is evicted, and `kube` writes it.
"""

from __future__ import annotations

import msgspec

from gangsched.model.inter_pod import Selector, selects
from gangsched.model.objects import Pod

DISRUPTION_TARGET = "DisruptionTarget"
PREEMPTED_BY_SCHEDULER = "PreemptionByScheduler"
"""The reason of the condition on victims, as kube-scheduler writes it."""
VICTIM_MESSAGE = "gangsched: preempting to accommodate a higher priority pod group"
"""The message of the condition (rule V22). After a restart it tells our victims from others' (rule V24)."""


class PodDisruptionBudget(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """How many of the pods that `selector` selects in its namespace may be evicted now.

    `selector` () selects every pod of the namespace and None no pod, as policy/v1 has it. `allowed` is
    status.disruptionsAllowed; 0 while the status is not (yet) that of the newest spec.
    """

    namespace: str
    name: str
    selector: Selector = None
    allowed: int = 0

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"

    def covers(self, pod: Pod) -> bool:
        """Whether an eviction of the pod is a disruption that counts here."""
        return pod.namespace == self.namespace and selects(self.selector, pod.labels)
