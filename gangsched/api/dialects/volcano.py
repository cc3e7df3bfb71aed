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
        for name, value, kind, what in (
            ("minTaskMember", self.min_task_member, dict, "an object"),
            ("subGroupPolicy", self.sub_group_policy, list, "a list"),
        ):
            if value is not None and not isinstance(value, kind):
                invalid.append(f"spec.{name} {quoted(value)} of {where} is not {what}: correct or remove it")
        if isinstance(self.sub_group_policy, list) and self.sub_group_policy:
            unsupported.append(
                f"subGroupPolicy of {where} asks for groups within the gang, which gangsched does not support yet: "
                "create a PodGroup for each of them, and remove this field"
            )
        tasks = self.min_task_member if isinstance(self.min_task_member, dict) else {}
        counts = {name: each for name, each in tasks.items() if type(each) is int and each >= 0}
        needed = sum(counts.values())
        minimum = self.min_member or 0
        if len(counts) < len(tasks):
            invalid.append(
                f"spec.minTaskMember {quoted(tasks)} of {where} has a minimum that is not a count: correct it"
            )
        elif tasks and needed > minimum:
            # Volcano's own defaults are such: a Job of five replicas of which three are needed has a task minimum of 5.
            not_used.append(
                f"minTaskMember of {where} is not used: its minimums add up to {needed}, which exceeds "
                f"minMember {minimum}; Volcano does not use it either"
            )
        if self.queue not in {None, "", DEFAULT_QUEUE}:
            not_used.append(
                f"queue {quoted(self.queue)} of {where} is not used: gangsched does not support queues of Volcano"
            )
        if self.priority_class_name:
            name = quoted(self.priority_class_name)
            not_used.append(f"priorityClassName {name} of {where} is not used: the priorities of its pods decide")
        return Declared(
            min_member=self.min_member,
            min_resources=self.min_resources or {},
            unsupported=tuple(unsupported),
            invalid=tuple(invalid),
            not_used=tuple(not_used),
            of_tasks=counts if 0 < needed <= minimum else {},
        )
