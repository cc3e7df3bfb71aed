"""PodGroups of `scheduling.volcano.sh`, as created by Volcano's Jobs, LeaderWorkerSet and others."""

from __future__ import annotations

from typing import Any, Final

from gangsched.api.dialects.spec import Count, Declared, DialectSpec
from gangsched.api.problem import quoted

DEFAULT_QUEUE: Final = "default"
SOFT: Final = "soft"
PHASES: Final = {
    "Pending": "Pending",
    "PreScheduling": "Inqueue",
    "Scheduling": "Inqueue",
    "Scheduled": "Inqueue",
    "Running": "Running",
    "Finished": "Completed",
    "Failed": "Pending",
    "Unknown": "Unknown",
}
"""Volcano's phase for each of ours. It has none for a gang whose minimum cannot be reached any more."""
PER_TASK: Final = "set one minimum for all pods in minMember, or create a PodGroup for each task, and remove this field"


class VolcanoSpec(DialectSpec):
    """Spec of a Volcano PodGroup. Fields that can make a gang unsupported have any type, so that a malformed one is
    reported and not ignored.
    """

    min_member: Count | None = None
    min_resources: dict[str, Any] | None = None
    queue: str | None = None
    priority_class_name: str | None = None
    network_topology: Any = None
    min_task_member: Any = None
    sub_group_policy: Any = None

    def declared(self, where: str) -> Declared:
        """The supported values of the spec, and sentences about fields that are refused or have no effect."""
        unsupported, invalid, not_used = [], [], []
        topology = self.network_topology
        if topology is not None and not isinstance(topology, dict):
            invalid.append(f"spec.networkTopology {quoted(topology)} of {where} is not an object: correct or remove it")
        elif topology is not None and topology.get("mode") == SOFT:
            not_used.append(
                f"networkTopology of {where} is ignored: it is only a preference, and gangsched does not support"
                " HyperNodes"
            )
        elif topology is not None:  # "hard" is the default
            unsupported.append(
                f"networkTopology of {where} asks for HyperNodes, which gangsched does not support: set "
                "gangsched.dev/topology to a node label, and remove it"
            )
        for name, value, empty, asks in (
            ("minTaskMember", self.min_task_member, {}, "a minimum of each task"),
            ("subGroupPolicy", self.sub_group_policy, [], "groups within the gang"),
        ):
            if value is not None and not isinstance(value, type(empty)):
                kind = "an object" if isinstance(empty, dict) else "a list"
                invalid.append(f"spec.{name} {quoted(value)} of {where} is not {kind}: correct or remove it")
            elif value and name == "minTaskMember" and (least := self._above_minimum()):
                not_used.append(
                    f"minTaskMember of {where} is not used: its sum of {least} exceeds minMember {self.min_member}, "
                    "so that Volcano does not use it either"
                )
            elif value:
                unsupported.append(f"{name} of {where} asks for {asks}, which gangsched cannot do yet: {PER_TASK}")
        if self.queue not in {None, "", DEFAULT_QUEUE}:
            not_used.append(f"queue {quoted(self.queue)} of {where} is not used: gangsched has no queues of Volcano")
        if self.priority_class_name:
            name = quoted(self.priority_class_name)
            not_used.append(f"priorityClassName {name} of {where} is not used: the priorities of its pods decide")
        return Declared(
            min_member=self.min_member,
            min_resources=self.min_resources or {},
            unsupported=tuple(unsupported),
            invalid=tuple(invalid),
            not_used=tuple(not_used),
        )

    def _above_minimum(self) -> int:
        """The sum of minTaskMember if it exceeds minMember, so that Volcano counts members of all tasks alike; else 0.

        Volcano's own defaults are such: a Job of five replicas of which three are needed has a task minimum of five.
        """
        numbers = list(self.min_task_member.values())
        if self.min_member is None or not all(type(each) is int and each >= 0 for each in numbers):
            return 0
        return total if (total := sum(numbers)) > self.min_member else 0
