"""PodGroups of `scheduling.volcano.sh`, which Volcano Jobs, LeaderWorkerSet and other controllers
create.
"""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from gangsched.api import keys
from gangsched.api.dialects.spec import Count, DialectSpec, PodMarks, with_resources
from gangsched.api.dialects.volcano_sub_groups import Read, network_topology, read_sub_groups
from gangsched.api.problem import quoted
from gangsched.api.sub_groups import divided
from gangsched.model.objects import PodGroup

DEFAULT_QUEUE: Final = "default"
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
"""Volcano's phase for each of ours. It has none for a gang whose minimum cannot be reached any
more.
"""
READ_AT: Final = frozenset({keys.VOLCANO_TASK})
"""See `pod_metadata.READ_AT`."""


def read_pod(gang_metadata: dict[str, str], marks: PodMarks) -> None:
    """Add the task of a pod that names a PodGroup."""
    task = marks.annotations.get(keys.VOLCANO_TASK) or marks.labels.get(keys.VOLCANO_TASK)
    if task and not {keys.VOLCANO_GROUP, keys.KUBE_BATCH_GROUP}.isdisjoint(gang_metadata):
        gang_metadata[keys.VOLCANO_TASK] = task


class VolcanoSpec(DialectSpec):
    """Spec of a Volcano PodGroup. Fields that can make a gang unsupported accept any type, so that
    a malformed field is reported and not ignored.
    """

    min_member: Count | None = None
    min_resources: dict[str, Any] | None = None
    queue: str | None = None
    priority_class_name: str | None = None
    network_topology: Any = None
    min_task_member: Any = None
    sub_group_policy: Any = None

    def declared(self, pod_group: PodGroup, where: str) -> PodGroup:
        """Add the supported values of the spec, and messages about fields that are refused or have
        no effect.
        """
        read = Read()
        minimum = self.min_member or 0

        if isinstance(self.sub_group_policy, list):
            read = read_sub_groups(self.sub_group_policy, where, minimum)

        unsupported = read.unsupported
        invalid = read.invalid
        not_used = read.not_used
        network_topology(self.network_topology, "networkTopology", where, read)

        for name, value, kind, what in (
            ("minTaskMember", self.min_task_member, dict, "an object"),
            ("subGroupPolicy", self.sub_group_policy, list, "a list"),
        ):
            if value is not None and not isinstance(value, kind):
                invalid.append(
                    f"spec.{name} {quoted(value)} of {where} is not {what}: correct or remove it"
                )

        tasks = self.min_task_member if isinstance(self.min_task_member, dict) else {}
        # `type`, since True is an int in Python and no count in YAML.
        counts = {name: count for name, count in tasks.items() if type(count) is int and count >= 0}
        needed = sum(counts.values())

        if len(counts) < len(tasks):
            invalid.append(
                f"spec.minTaskMember {quoted(tasks)} of {where} has a minimum that is not a count:"
                " correct it"
            )
        elif tasks and needed > minimum:
            # Volcano's own defaults are such: a Job of five replicas of which three are needed has
            # a task minimum of 5.
            not_used.append(
                f"minTaskMember of {where} is not used: its minimums add up to {needed}, which"
                f" exceeds minMember {minimum}; Volcano does not use it either"
            )

        if self.sub_group_policy and tasks:
            unsupported.append(
                f"{where} has both minTaskMember and subGroupPolicy: remove minTaskMember"
            )

        if read.sub_groups and self.min_resources:
            not_used.append(
                f"minResources of {where} is not used: gangsched uses the requests of its pods"
            )

        if self.queue not in {None, "", DEFAULT_QUEUE}:
            not_used.append(
                f"queue {quoted(self.queue)} of {where} is not used: gangsched does not support"
                " queues of Volcano"
            )

        if self.priority_class_name:
            name = quoted(self.priority_class_name)
            not_used.append(
                f"priorityClassName {name} of {where} is not used: gangsched uses the priorities of"
                " its pods"
            )

        stated = replace(
            with_resources(pod_group, self.min_resources, where),
            min_member=self.min_member,
            unsupported=tuple(unsupported),
            invalid=tuple(invalid),
            not_used=tuple(not_used),
            # Volcano does not check them where their sum exceeds minMember.
            of_tasks=tuple(sorted(counts.items())) if 0 < needed <= minimum else (),
        )
        if read.sub_groups:
            return divided(stated, read.sub_groups)

        return stated
