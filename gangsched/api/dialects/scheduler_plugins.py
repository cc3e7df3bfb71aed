"""PodGroups of `scheduling.x-k8s.io` and `scheduling.sigs.k8s.io`: scheduler-plugins and
Koordinator.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from gangsched.api.dialects.spec import Count, DialectSpec, with_resources
from gangsched.model.objects import PodGroup


class SchedulerPluginsSpec(DialectSpec):
    """The spec of a PodGroup of scheduler-plugins or Koordinator. A timeout of 0 means
    the default.
    """

    min_member: Count | None = None
    schedule_timeout_seconds: Count | None = None
    min_resources: dict[str, Any] | None = None

    def declared(self, pod_group: PodGroup, where: str) -> PodGroup:
        """Add the values of the three fields of the spec."""
        timeout_s = self.schedule_timeout_seconds or None
        stated = replace(pod_group, min_member=self.min_member, schedule_timeout_s=timeout_s)
        return with_resources(stated, self.min_resources, where)
