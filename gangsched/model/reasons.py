"""The reasons of decisions: one enum, used in conditions, Events, metrics and logs alike.

Invariant: every refusal carries exactly one of these. `Unschedulable` is used only where a new node could help, since
cluster autoscalers act on it (semantics E1).
"""

from __future__ import annotations

from enum import StrEnum


class Reason(StrEnum):
    """Machine-readable outcome of a decision; docs/operations.md says what to do about each."""

    SCHEDULED = "Scheduled"
    UNSCHEDULABLE = "Unschedulable"
    WAITING_FOR_MEMBERS = "WaitingForMembers"
    POD_GROUP_MISSING = "PodGroupMissing"
    POD_GROUPS_UNREADABLE = "PodGroupsUnreadable"
    WAITING_FOR_GANG = "WaitingForGang"
    INVALID_GANG = "InvalidGang"
    TIMED_OUT = "TimedOut"
    WAITING_FOR_VOLUMES = "WaitingForVolumes"
    HOLDING = "Holding"
    YIELDED = "Yielded"
    UNSUPPORTED = "Unsupported"
    PREEMPTING = "Preempting"
    BACK_OFF = "BackOff"


class EventReason(StrEnum):
    """Reasons of Events other than verdicts; the Event of a verdict has its `Reason`."""

    GANG_SCHEDULED = "GangScheduled"
    DEGRADED = "Degraded"
    MIXED_SCHEDULERS = "MixedSchedulers"
    KUBELET_REJECTED = "KubeletRejected"
    OVERRUN = "Overrun"
    RUN_TIMES_IGNORED = "RunTimesIgnored"
    SET_ASIDE = "SetAside"
    FAILED_SCHEDULING = "FailedScheduling"
    SCHEDULED = "Scheduled"
    FAILED_BINDING = "FailedBinding"
    PREEMPTED = "Preempted"
    NOMINATION_LOST = "NominationLost"
    PREEMPTION_DELAYED = "PreemptionDelayed"
