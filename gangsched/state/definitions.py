"""Which definitions of PodGroups store conditions: those of scheduler-plugins and Koordinator drop
them, so that a status has a phase only.

Invariant: known of a definition, and not of each object, from the last status that was seen of any
of its objects.
"""

from __future__ import annotations

from gangsched.api.dialects import DIALECTS
from gangsched.model.objects import PodGroup


class Definitions:
    """What was seen of the definitions of PodGroups, by API group and version."""

    def __init__(self) -> None:
        self._without_conditions: set[tuple[str, str]] = set()

    def saw(self, pod_group: PodGroup) -> bool:
        """Learn from an object as the watch shows it; return whether that is news."""
        before = self.has_conditions(pod_group)
        definition = (pod_group.api_group, pod_group.version)
        # An empty list, too, is a field that the definition has.
        if "conditions" in pod_group.status:
            self._without_conditions.discard(definition)
        elif pod_group.status.get("phase") and not DIALECTS[pod_group.api_group].conditions_only:
            # gangsched writes conditions with each phase, where nobody else writes phases.
            self._without_conditions.add(definition)

        return self.has_conditions(pod_group) is not before

    def has_conditions(self, pod_group: PodGroup | None) -> bool:
        """Whether conditions that are written to the object can be read there; True for None."""
        if pod_group is None:
            return True

        return (pod_group.api_group, pod_group.version) not in self._without_conditions
