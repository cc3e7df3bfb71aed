"""What is said of a pod and its gang in each state that a pod can be in: the cases that
waiting.md beside this module shows, each played on a `World` (semantics E5).

Invariant: a case says nothing beforehand of what another state would say: where a pod passes
through several, the earlier sentences have been written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from gangsched.state.members import State
from gangsched.state.visibility import Moment, describe
from tests.unit.state.reporting import waiting_scenes as scenes


@dataclass(frozen=True, slots=True)
class Case:
    """`reason` is that of the pod's condition, "" if gangsched writes none; `says` is a part of its
    message. `gang` is a part of what the gangs API says of the gang.
    """

    state: State
    situation: str
    play: Callable[[], scenes.Scene]
    reason: str = ""
    says: str = ""
    gang: str = ""


class Said(NamedTuple):
    """What is said in a case: of the pod, and of its gang."""

    state: State
    reason: str
    message: str
    gang_reason: str
    gang: str
    next: str = ""


def said(scene: scenes.Scene) -> Said:
    """What was written on the pod, and what the gangs API shows of its gang."""
    world = scene.world
    member = world.state.members[scene.pod.uid]
    moment = Moment(world.now_s, world.wall_s())
    shown: Any = describe(world.state, "ns", "g", moment) or {}
    status = shown.get("status", {"reason": "", "message": ""})
    reason, message = world.condition(scene.pod) if scene.pod.uid in world.pods else ("", "")

    return Said(
        state=member.state,
        reason=reason,
        message=message,
        gang_reason=status["reason"],
        gang=status["message"],
        next=status.get("next", ""),
    )


CASES: tuple[Case, ...] = (
    Case(
        State.GATED,
        "it has a scheduling gate",
        scenes.gated,
        gang="2 are gated",
    ),
    Case(
        State.FOREIGN,
        "another scheduler is to place it",
        scenes.foreign,
        gang="1 has another schedulerName",
    ),
    Case(
        State.PENDING,
        "its gang lacks members",
        scenes.lacks_members,
        reason="WaitingForMembers",
        says="1 is missing",
        gang="1 of 2",
    ),
    Case(
        State.PENDING,
        "its PodGroup does not exist",
        scenes.lacks_pod_group,
        reason="PodGroupMissing",
        says="does not exist",
        gang="does not exist",
    ),
    Case(
        State.PENDING,
        "PodGroups cannot be read",
        scenes.pod_groups_unreadable,
        reason="PodGroupsUnreadable",
        says="",
        gang="PodGroup",
    ),
    Case(
        State.PENDING,
        "its PodGroup is invalid",
        scenes.invalid,
        reason="InvalidGang",
        says="spec.minMember",
        gang="spec.minMember",
    ),
    Case(
        State.PENDING,
        "it asks for what is not supported",
        scenes.unsupported,
        reason="Unsupported",
        says="spec.x",
        gang="spec.x",
    ),
    Case(
        State.PENDING,
        "its gang lacks room",
        scenes.no_room,
        reason="Unschedulable",
        says="gang ns/g needs",
        gang="gang ns/g needs",
    ),
    Case(
        State.PENDING,
        "nodes were added for its gang and do not suffice",
        scenes.pauses,
        reason="WaitingForCapacity",
        says="1 node was added since",
        gang="nodes are requested again by",
    ),
    Case(
        State.PENDING,
        "an autoscaler is asked for all nodes of its gang",
        scenes.provisioning,
        reason="Provisioning",
        says="An autoscaler is asked for all nodes at once",
        gang="An autoscaler is asked for all nodes at once",
    ),
    Case(
        State.PENDING,
        "its gang can never fit",
        scenes.can_never_fit,
        reason="Unschedulable",
        says="can never",
        gang="can never",
    ),
    Case(
        State.PENDING,
        "it is a plain pod",
        scenes.plain_pod,
        reason="Unschedulable",
        says="0/1 nodes are available",
        gang="",
    ),
    Case(
        State.PENDING,
        "another gang of its group lacks members",
        scenes.sibling_lacks_members,
        reason="WaitingForGang",
        says="ns/h",
        gang="ns/h",
    ),
    Case(
        State.PENDING,
        "another gang of its group lacks room",
        scenes.sibling_lacks_room,
        reason="Unschedulable",
        says="ns/h",
        gang="ns/h",
    ),
    Case(
        State.PENDING,
        "another child of its tree lacks room",
        scenes.child_of_a_tree,
        reason="Unschedulable",
        says="ns/h",
        gang="ns/h",
    ),
    Case(
        State.PENDING,
        "room is reserved for its gang",
        scenes.reserved,
        reason="Unschedulable",
        says="starts at",
        gang="needs",
    ),
    Case(
        State.PENDING,
        "its gang is nominated",
        scenes.nominated,
        reason="Preempting",
        says="a",
        gang="a",
    ),
    Case(
        State.PENDING,
        "its gang is being preempted",
        scenes.being_preempted,
        reason="WaitingForMembers",
        says="being preempted",
        gang="being preempted",
    ),
    Case(
        State.PENDING,
        "its gang timed out",
        scenes.timed_out,
        reason="TimedOut",
        says="to try again",
        gang="to try again",
    ),
    Case(
        State.PENDING,
        "its claim does not exist",
        scenes.claim_is_missing,
        reason="WaitingForVolumes",
        says="not found",
        gang="not found",
    ),
    Case(
        State.PENDING,
        "its gang shares a claim that one pod may use",
        scenes.claim_of_one_pod,
        reason="InvalidClaim",
        says="can never start: 2 of its pods need claim data",
        gang="only one pod may use",
    ),
    Case(
        State.PENDING,
        "its gang runs, and there is no room where it runs",
        scenes.home_is_full,
        reason="WaitingForHome",
        says="waits for room in rack=r0 since",
        gang="waits for room in rack=r0 since",
    ),
    Case(
        State.PENDING,
        "its gang has just given way to another one",
        scenes.gave_way,
        reason="Unschedulable",
        says="ns/g-0",
        gang="gang ns/g",
    ),
    Case(
        State.PENDING,
        "the minimum runs, and the pod lacks room",
        scenes.more_than_the_minimum,
        reason="Unschedulable",
        says="0/1 nodes",
        gang="0/1 nodes",
    ),
    Case(
        State.PENDING,
        "an administrator set its gang aside",
        scenes.set_aside,
        reason="Paused",
        says="set aside by an administrator",
        gang="set aside",
    ),
    Case(
        State.PENDING,
        "an administrator paused scheduling",
        scenes.paused,
        reason="Paused",
        says="INC-7",
        gang="INC-7",
    ),
    Case(
        State.PENDING,
        "it was created while scheduling is paused",
        scenes.created_while_paused,
        reason="Paused",
        says="INC-7",
        gang="INC-7",
    ),
    Case(
        State.PENDING,
        "an internal error",
        scenes.internal_error,
        reason="InternalError",
        says="internal error",
        gang="internal error",
    ),
    Case(
        State.HELD,
        "its NonStrict gang waits for more room",
        scenes.held,
        reason="Holding",
        says="node a",
        gang="waits for",
    ),
    Case(
        State.WAITING_FOR_CLAIMS,
        "its claim is to be provisioned",
        scenes.waits_for_its_claim,
        reason="WaitingForVolumes",
        says="waits for claim data-0 (class fast) since",
        gang="2 claims since",
    ),
    Case(
        State.WAITING_FOR_CLAIMS,
        "the same, after it lacked room",
        scenes.waits_for_its_claim_after_a_refusal,
        reason="WaitingForVolumes",
        says="waits for claim data-0 (class fast) since",
        gang="2 claims since",
    ),
    Case(
        State.WAITING_FOR_CLAIMS,
        "another member's claim is to be provisioned",
        scenes.waits_for_another_claim,
        reason="WaitingForVolumes",
        says="claims of pods that start with it",
        gang="claim data-1 (class fast)",
    ),
    Case(
        State.BINDING,
        "its bind is sent",
        scenes.bind_is_sent,
        gang="2 binds are sent",
    ),
    Case(
        State.WITHDRAWN,
        "it was deleted while its bind is sent",
        scenes.withdrawn,
        gang="1 bind is sent",
    ),
    Case(
        State.KEPT,
        "its bind failed, and its node stays reserved",
        scenes.kept,
        reason="BackOff",
        says="will be tried again",
        gang="will be tried again",
    ),
    Case(
        State.RETRY,
        "its bind failed, and the minimum runs",
        scenes.retry,
        reason="BackOff",
        says="will be tried again",
        gang="will be tried again",
    ),
    Case(
        State.BOUND,
        "its gang runs",
        scenes.bound,
        gang="2 members are bound",
    ),
    Case(
        State.BOUND,
        "its gang lost a member",
        scenes.lost_a_member,
        gang="1 of 2 members",
    ),
    Case(
        State.TERMINATING,
        "it is being deleted on its node",
        scenes.terminating,
        gang="1 of 2 members",
    ),
    Case(
        State.DELETED,
        "it was deleted while it waited",
        scenes.deleted,
        reason="Unschedulable",
        says="",
        gang="being deleted",
    ),
    Case(
        State.ENDED,
        "it has succeeded",
        scenes.ended,
        gang="1 member is bound",
    ),
)
"""A pod that is deleted keeps its last condition: nobody is left to read another."""


_REFERENCE = re.compile(r"reference \w+")
"""It is made of the lines that raised, and differs after each change of them."""


def rows() -> Iterator[tuple[str, ...]]:
    """The rows of the table: state, situation, the pod's reason and message, what is said of the
    gang.
    """
    for case in CASES:
        found = said(case.play())
        of_pod = f"`{found.reason}`: {found.message}" if found.reason else "-"
        of_gang = f"`{found.gang_reason}`: {found.gang}" if found.gang_reason else "-"
        texts = (_REFERENCE.sub("reference 1a2b", text) for text in (of_pod, of_gang))
        yield case.state.value, case.situation, *texts
