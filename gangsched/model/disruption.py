"""PodDisruptionBudgets as in the API, and the DisruptionTarget condition of pods that gangsched
evicts.

Invariant: values only. `core.preemption` chooses victims, and `kube` writes the condition.
"""

from __future__ import annotations

from gangsched.model.inter_pod import Selector, selects
from gangsched.model.objects import InNamespace, Pod

DISRUPTION_TARGET = "DisruptionTarget"
PREEMPTED_BY_SCHEDULER = "PreemptionByScheduler"
"""The reason of the condition on victims, as kube-scheduler writes it."""
VICTIM_MESSAGE = "gangsched: preempting to accommodate a higher priority pod group"
"""The message of the condition (rule V22). After a restart it tells our victims from others' (rule
V24).
"""


class PodDisruptionBudget(InNamespace, frozen=True, gc=False, kw_only=True):
    """A budget: `allowed` is how many of the pods that `selector` matches in its namespace may be
    evicted now.

    As in policy/v1, a `selector` of () matches every pod of the namespace and None matches no pod.
    `allowed` is status.disruptionsAllowed, or 0 while the status is of an older spec.
    """

    selector: Selector = None
    allowed: int = 0

    def covers(self, pod: Pod) -> bool:
        """Whether an eviction of the pod counts against the budget."""
        # A PodDisruptionBudget never reaches into another namespace, whatever its selector matches.
        return pod.namespace == self.namespace and selects(self.selector, pod.labels)
