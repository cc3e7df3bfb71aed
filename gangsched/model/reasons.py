"""Reasons of decisions: one enum, used in conditions, Events, metrics and logs.

Invariant: every refusal has exactly one `Reason`. `Unschedulable` is used only if a new node could
help, since cluster autoscalers react to it (semantics E1).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Reason(StrEnum):
    """Machine-readable result of a decision; docs/operations.md has the remedy for each."""

    SCHEDULED = "Scheduled"
    UNSCHEDULABLE = "Unschedulable"
    WAITING_FOR_HOME = "WaitingForHome"
    WAITING_FOR_CAPACITY = "WaitingForCapacity"
    PROVISIONING = "Provisioning"
    WAITING_FOR_MEMBERS = "WaitingForMembers"
    POD_GROUP_MISSING = "PodGroupMissing"
    POD_GROUPS_UNREADABLE = "PodGroupsUnreadable"
    WAITING_FOR_GANG = "WaitingForGang"
    INVALID_GANG = "InvalidGang"
    TIMED_OUT = "TimedOut"
    INVALID_CLAIM = "InvalidClaim"
    WAITING_FOR_VOLUMES = "WaitingForVolumes"
    HOLDING = "Holding"
    YIELDED = "Yielded"
    UNSUPPORTED = "Unsupported"
    PREEMPTING = "Preempting"
    BACK_OFF = "BackOff"
    INTERNAL_ERROR = "InternalError"
    PAUSED = "Paused"


LACKS_CAPACITY: Final = frozenset(
    {Reason.UNSCHEDULABLE, Reason.WAITING_FOR_CAPACITY, Reason.PROVISIONING}
)
"""Reasons of a group that nodes would help, whether it asks autoscalers for them or not."""


class GangReason(StrEnum):
    """Reasons of a PodGroup's condition `Scheduled` that follow from its members alone, not from a
    decision.
    """

    BINDING = "Binding"
    MEMBERS_FAILED = "MembersFailed"
    MEMBERS_DELETED = "MembersDeleted"


class EventReason(StrEnum):
    """Reasons of Events that are not about a verdict; an Event about a verdict has the verdict's
    `Reason`.
    """

    GANG_SCHEDULED = "GangScheduled"
    DEGRADED = "Degraded"
    MIXED_SCHEDULERS = "MixedSchedulers"
    KUBELET_REJECTED = "KubeletRejected"
    OVERRUN = "Overrun"
    RUN_TIMES_IGNORED = "RunTimesIgnored"
    SET_ASIDE = "SetAside"
    NOT_USED = "NotUsed"
    NOT_A_GANG = "NotAGang"
    FAILED_SCHEDULING = "FailedScheduling"
    SCHEDULED = "Scheduled"
    FAILED_BINDING = "FailedBinding"
    PREEMPTED = "Preempted"
    NOMINATION_LOST = "NominationLost"
    PREEMPTION_DELAYED = "PreemptionDelayed"
    ROOM_KEPT = "RoomKept"
    ROOM_RELEASED = "RoomReleased"
    NODE_AVOIDED = "NodeAvoided"
    NODE_SUSPECTED = "NodeSuspected"
