"""Native PodGroups with ResourceClaims, which are reserved for the PodGroup instead of for its
pods.

Invariant: only PodGroups with claims are kept, each as last declared.
"""

from __future__ import annotations

from collections.abc import Mapping

from gangsched.model.objects import ClaimUse, Pod, PodGroup
from gangsched.model.storage import GroupConsumer, group_consumer


class GroupClaims:
    """The PodGroups by id. The mapping that `shown` returns never changes."""

    def __init__(self) -> None:
        self._groups: dict[str, PodGroup] = {}
        self._is_shown = False

    def declare(self, group_id: str, group: PodGroup | None) -> bool:
        """Record a PodGroup, None for one that is gone; return whether its claims changed."""
        before = self._groups.get(group_id)
        if group is not None and not group.claims:
            group = None

        if before is None and group is None:
            return False

        # By uid, too: a PodGroup that was created again is another consumer, and reservations of
        # the old one are void.
        if before is not None and group is not None:
            is_same_object = before.uid == group.uid
            if is_same_object and before.claims == group.claims:
                return False

        if self._is_shown:  # a snapshot has the mapping
            self._groups = dict(self._groups)
            self._is_shown = False

        self._groups.pop(group_id, None)
        if group is not None:
            self._groups[group_id] = group

        return True

    def shown(self) -> Mapping[str, PodGroup]:
        """All PodGroups with claims now."""
        self._is_shown = True
        return self._groups

    def consumer(self, pod: Pod, use: ClaimUse) -> GroupConsumer | None:
        """The PodGroup for which a ResourceClaim of a pod is reserved; None if that is the pod
        itself.
        """
        return group_consumer(self._groups, pod, use)

    def is_current(self, namespace: str, consumer: GroupConsumer) -> bool:
        """Whether the PodGroup exists, with this uid and with claims."""
        group = self._groups.get(f"{namespace}/{consumer.name}")
        return group is not None and group.uid == consumer.uid
