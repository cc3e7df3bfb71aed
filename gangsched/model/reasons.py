"""The reasons of decisions: one enum, used in conditions, Events, metrics and logs alike.

Law: every refusal carries exactly one of these. `Unschedulable` is used only where a new node could help, since
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
    WAITING_FOR_GANG = "WaitingForGang"
    INVALID_GANG = "InvalidGang"
    TIMED_OUT = "TimedOut"
    WAITING_FOR_VOLUMES = "WaitingForVolumes"
    HOLDING = "Holding"
    YIELDED = "Yielded"
    UNSUPPORTED = "Unsupported"
    BACK_OFF = "BackOff"


class EventReason(StrEnum):
    """Reasons of Events other than verdicts; the Event of a verdict has its `Reason`."""

    GANG_SCHEDULED = "GangScheduled"
    DEGRADED = "Degraded"
    MIXED_SCHEDULERS = "MixedSchedulers"
    KUBELET_REJECTED = "KubeletRejected"
    FAILED_SCHEDULING = "FailedScheduling"
    SCHEDULED = "Scheduled"
    FAILED_BINDING = "FailedBinding"


EXPLANATIONS: dict[Reason, str] = {
    Reason.SCHEDULED: "every member that the gang needs has a node",
    Reason.UNSCHEDULABLE: "there is not enough room on the nodes the members may use",
    Reason.WAITING_FOR_MEMBERS: "fewer members exist than the gang needs",
    Reason.POD_GROUP_MISSING: "the PodGroup the members name does not exist",
    Reason.WAITING_FOR_GANG: "another gang of the group is not there or not ready yet",
    Reason.INVALID_GANG: "the gang is declared in a way that cannot be followed",
    Reason.TIMED_OUT: "the gang waited longer than its wait time and waits for the user now",
    Reason.WAITING_FOR_VOLUMES: "a volume claim of a member is missing or not bound yet",
    Reason.HOLDING: "some members hold a node and wait for the others",
    Reason.YIELDED: "the gang gave up its held nodes so that another could start",
    Reason.UNSUPPORTED: "a member needs something that gangsched cannot place yet",
    Reason.BACK_OFF: "the API server refused a bind and it is tried again shortly",
}
