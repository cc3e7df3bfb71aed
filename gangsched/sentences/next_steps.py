"""What happens next to a gang that waits, if nobody does anything (`kubectl gangsched why`).

Invariant: says only what the scheduler does by itself. What it waits for is said elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gangsched.model.reasons import Reason
from gangsched.model.text import counted
from gangsched.sentences.times import by

BY_REASON: Final[Mapping[Reason, str]] = {
    Reason.WAITING_FOR_HOME: "it is placed as soon as room is freed where its gang runs",
    Reason.WAITING_FOR_CAPACITY: "it is placed as soon as room is freed; autoscalers are asked for"
    " nodes again later",
    Reason.PROVISIONING: "it is placed as soon as there is room, on the nodes that an autoscaler"
    " adds for it or on others",
    Reason.WAITING_FOR_MEMBERS: "it is tried again as soon as a member is created or changes",
    Reason.POD_GROUP_MISSING: "it is tried again as soon as the PodGroup is created",
    Reason.POD_GROUPS_UNREADABLE: "it is tried again as soon as PodGroups can be read",
    Reason.WAITING_FOR_GANG: "it starts together with its siblings, once all of them can start",
    Reason.INVALID_GANG: "nothing, until its declaration is corrected",
    Reason.UNSUPPORTED: "nothing, until its pods or its declaration change",
    Reason.TIMED_OUT: "nothing, until its pods are deleted or the timeout annotation is removed",
    Reason.INVALID_CLAIM: "nothing, until the claim or the devices change",
    Reason.WAITING_FOR_VOLUMES: "it goes on as soon as the claims change",
    Reason.HOLDING: "it starts as soon as its other members fit; its nodes are released after its"
    " wait time",
    Reason.YIELDED: "it is tried again once the gang that it gave way to has started",
    Reason.PREEMPTING: "it starts as soon as the pods that it preempts have ended",
    Reason.BACK_OFF: "the bind is tried again within 10 s",
    Reason.PAUSED: "nothing, until the administrator withdraws the order",
}
"""For each reason that does not depend on more than itself."""


def next_step(
    reason: Reason,
    *,
    never: bool = False,
    reservation: str = "",
    before: int | None = None,
    retry_s: float | None = None,
) -> str:
    """What happens next, without a full stop.

    `never`: it does not fit even on empty nodes. `reservation` is the sentence about the room that
    is reserved for it. `before` is the number of groups ahead of it in the queue; `retry_s` is the
    epoch second of the next try, if that is known.
    """
    if reason is Reason.UNSCHEDULABLE:
        return _for_room(never=never, reservation=reservation, before=before)
    if retry_s is not None:
        return f"it is tried again by {by(retry_s)}"

    return BY_REASON.get(reason, "")


def _for_room(*, never: bool, reservation: str, before: int | None) -> str:
    if never:
        return "nothing, until nodes are added or the gang changes"
    if reservation:
        return reservation

    turn = f", after {counted(before, 'group')} ahead of it" if before else ""
    return f"it is tried again as soon as room is freed{turn}; no start time is promised"
