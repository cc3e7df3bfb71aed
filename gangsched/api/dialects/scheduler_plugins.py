"""PodGroups of `scheduling.x-k8s.io` and `scheduling.sigs.k8s.io`: scheduler-plugins and Koordinator."""

from __future__ import annotations

from typing import Any

from gangsched.api.dialects.spec import Count, Declared, DialectSpec


class SchedulerPluginsSpec(DialectSpec):
    """The spec of such a PodGroup. A timeout of 0 means the default."""

    min_member: Count | None = None
    schedule_timeout_seconds: Count | None = None
    min_resources: dict[str, Any] | None = None

    def declared(self, where: str) -> Declared:
        """The values of the three fields."""
        return Declared(
            min_member=self.min_member,
            schedule_timeout_s=self.schedule_timeout_seconds or None,
            min_resources=self.min_resources or {},
        )
