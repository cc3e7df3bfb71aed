"""What is said of a pod and its gang in each state that a pod can be in: the cases that
docs/reference/waiting.md shows, each played on a `World` (semantics E5).

Invariant: a case says nothing beforehand of what another state would say: where a pod passes
through several, the earlier sentences have been written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from gangsched.api import keys
from gangsched.model.objects import ClaimUse, Phase, Pod
from gangsched.model.orders import Orders
from gangsched.model.protocol import Applied, Bind, Evict, Followed, Ordered
from gangsched.model.reasons import Reason
from gangsched.model.reservation import ReservationLimits
from gangsched.model.storage import Claim, StorageClass
from gangsched.state.members import State
from gangsched.state.rule_set import Rules
from gangsched.state.visibility import Moment, describe
from tests.builders import members, node, pod, pod_group
from tests.unit.state.planting import Plant
from tests.world import World

FAST = StorageClass(name="fast", provisioner="csi.test", waits=True)
GANG = "ns/g"


class Scene(NamedTuple):
    """A world, and the pod that the case is about."""

    world: World
    pod: Pod


@dataclass(frozen=True, slots=True)
class Case:
    """`reason` is that of the pod's condition, "" if gangsched writes none; `says` is a part of its
    message. `gang` is a part of what the gangs API says of the gang.
    """

    state: State
    situation: str
    play: Callable[[], Scene]
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


def said(scene: Scene) -> Said:
    """What was written on the pod, and what the gangs API shows of its gang."""
    world = scene.world
    member = world.state.members[scene.pod.uid]
    moment = Moment(world.now_s, world.wall_s())
    shown: Any = describe(world.state, "ns", "g", moment) or {}
    status = shown.get("status", {"reason": "", "message": ""})
    reason, message = world.condition(scene.pod) if scene.pod.uid in world.pods else ("", "")

    return Said(member.state, reason, message, status["reason"], status["message"])


# --- the scenes ---------------------------------------------------------------------------------


def _gang(world: World, number: int = 2, **fields: Any) -> list[Pod]:
    return world.create(members("g", number, **fields))


def _told(world: World, *pods: Pod) -> Scene:
    world.told()
    return Scene(world, pods[0])


def _lacks_members() -> Scene:
    world = World(node("a"))
    return _told(world, *_gang(world, 1, min_member=2))


def _lacks_pod_group() -> Scene:
    world = World(node("a"))
    pods = world.create(members("g", 1, pod_group=True))
    world.advance(60)
    return Scene(world, pods[0])


def _pod_groups_unreadable() -> Scene:
    world = World(node("a"))
    world.say(Followed(keys.X_K8S, live=False))
    pods = world.create(members("g", 1, pod_group=True))
    world.advance(60)
    return Scene(world, pods[0])


def _no_room() -> Scene:
    world = World(node("a", 8))
    world.create(pod("other", gpus=4))
    world.settle()
    return _told(world, *_gang(world, gpus=4))


def _can_never_fit() -> Scene:
    world = World(node("a", 8))
    return _told(world, *_gang(world, gpus=9))


def _plain_pod() -> Scene:
    world = World(node("a", 8))
    return _told(world, *world.create(pod("p", gpus=9)))


def _sibling_lacks_members() -> Scene:
    world = World(node("a", 8))
    pods = _gang(world, 1, groups=["ns/g", "ns/h"])
    world.create(members("h", 1, min_member=2, groups=["ns/g", "ns/h"]))
    return _told(world, *pods)


def _sibling_lacks_room() -> Scene:
    world = World(node("a", 8))
    pods = _gang(world, 1, groups=["ns/g", "ns/h"])
    world.create(members("h", 2, gpus=5, groups=["ns/g", "ns/h"]))
    return _told(world, *pods)


def _child_of_a_tree() -> Scene:
    world = World(node("a", 8))
    world.declare(pod_group("tree", None, gang_metadata=((keys.MIN_CHILDREN[0], "2"),)))
    pods = _gang(world, 1, parent="tree")
    world.create(members("h", 2, gpus=5, parent="tree"))
    world.advance(30)
    return Scene(world, pods[0])


def _invalid() -> Scene:
    world = World(node("a"))
    world.declare(pod_group("g", 1, invalid=("spec.minMember is not a number",)))
    return _told(world, *world.create(members("g", 1, pod_group=True)))


def _unsupported() -> Scene:
    world = World(node("a"))
    world.declare(pod_group("g", 1, unsupported=("spec.x is not supported",)))
    return _told(world, *world.create(members("g", 1, pod_group=True)))


def _set_aside() -> Scene:
    world = World(node("a"))
    world.say(Ordered(Orders(set_aside=frozenset({GANG}))))
    return _told(world, *_gang(world))


def _paused() -> Scene:
    """It was told that it lacks room before."""
    scene = _no_room()
    scene.world.say(Ordered(Orders(paused="INC-7")))
    return _told(scene.world, scene.pod)


def _created_while_paused() -> Scene:
    world = World(node("a", 8))
    world.say(Ordered(Orders(paused="INC-7")))
    return _told(world, *_gang(world))


def _internal_error() -> Scene:
    world = World(node("a"))
    world.has_faults = True
    plant = Plant("core.rounds:run_round", lambda namespace: namespace == "ns")
    pods = _gang(world)
    with plant.planted(world):
        world.told()

    return Scene(world, pods[0])


def _full(**of_low: Any) -> tuple[World, list[Pod]]:
    """A node full of a gang of lower priority, whose members are evicted and do not end."""
    world = World(node("a", 8), preempts=True)
    low = world.create(members("low", 2, gpus=4, grace_s=30, **of_low))
    world.settle()
    return world, low


def _nominated() -> Scene:
    world, _ = _full()
    return _told(world, *_gang(world, 2, gpus=4, priority=1000))


def _being_preempted() -> Scene:
    """It grows by a member while it is preempted."""
    world = World(node("a", 8), preempts=True)
    _gang(world, 2, gpus=4, grace_s=30)
    world.settle()
    world.create(members("high", 2, gpus=4, priority=1000))
    world.fate = lambda order: "later" if isinstance(order, Evict) else "bound"
    world.settle()
    return _told(world, *world.create(members("g", 1, first=2, min_member=2, gpus=4)))


def _reserved() -> Scene:
    rules = Rules(reservations=ReservationLimits(share=1.0))
    world = World(node("a", 8), node("b", 8), rules=rules)
    ends = ((keys.EXPECTED_RUNTIME, "3600s"),)
    created_s = int(world.wall_s())
    for name in ("x", "y"):
        world.create(pod(name, gpus=8, run_time_metadata=ends, creation_s=created_s))

    world.settle()
    pods = _gang(world, gpus=8, run_time_metadata=ends, creation_s=created_s)
    world.advance(60)
    return Scene(world, pods[0])


def _timed_out() -> Scene:
    world = World(node("a", 8))
    world.create(pod("other", gpus=4))
    world.settle()
    pods = _gang(world, 2, gpus=4, mode="NonStrict", wait="10s")
    world.advance(20)
    return Scene(world, pods[1])


def _more_than_the_minimum() -> Scene:
    """The gang runs, and a member beyond its minimum finds no node."""
    world = World(node("a", 8))
    _gang(world, 2, gpus=4)
    world.settle()
    return _told(world, *world.create(members("g", 1, first=2, min_member=2, gpus=4)))


def _held() -> Scene:
    world = World(node("a", 8))
    world.create(pod("other", gpus=4))
    world.settle()
    return _told(world, *_gang(world, 2, gpus=4, mode="NonStrict"))


def _claim(name: str, **fields: Any) -> Claim:
    given = {"uid": f"uid-{name}", "resource_version": "5", "storage_class": "fast"}
    return Claim(namespace="ns", name=name, **given | fields)


def _with_claims(free: int = 8) -> tuple[World, list[Pod]]:
    """A gang of two with a claim each, which nobody provisions."""
    world = World(node("a", free))
    world.controller = False
    world.say(Applied(FAST), Applied(_claim("data-0")), Applied(_claim("data-1")))
    pods = []
    for number, member in enumerate(members("g", 2)):
        pods.append(msgspec.structs.replace(member, claims=(ClaimUse(f"data-{number}"),)))

    return world, world.create(pods)


def _waits_for_its_claim() -> Scene:
    world, pods = _with_claims()
    return _told(world, *pods)


def _waits_for_its_claim_after_a_refusal() -> Scene:
    """First there was no room, which is over."""
    world, pods = _with_claims(free=1)
    world.told()
    assert world.condition(pods[0])[0] == Reason.UNSCHEDULABLE
    world.add_nodes(node("b"))
    return _told(world, *pods)


def _waits_for_another_claim() -> Scene:
    world, pods = _with_claims()
    world.settle()
    world.bind_claim("ns/data-0")
    return _told(world, *pods)


def _claim_is_missing() -> Scene:
    world = World(node("a"))
    stated = members("g", 1)[0].gang_metadata
    return _told(world, *world.create(pod("p", claims=(ClaimUse("data"),), gang_metadata=stated)))


def _bind_is_sent() -> Scene:
    world = World(node("a"))
    world.fate = lambda order: "later"
    pods = _gang(world)
    world.told()
    return Scene(world, pods[0])


def _kept() -> Scene:
    """One bind of two failed: the other pod runs, and this one keeps its node."""
    world = World(node("a"))
    world.fate = lambda bind: "failed" if isinstance(bind, Bind) and bind.name == "g-1" else "bound"
    pods = _gang(world)
    return _told(world, pods[1])


def _retry() -> Scene:
    """The minimum runs, so that no node is reserved for the pod whose bind failed."""
    world = World(node("a"))
    world.fate = lambda bind: "failed" if isinstance(bind, Bind) and bind.name == "g-1" else "bound"
    pods = _gang(world, min_member=1)
    return _told(world, pods[1])


def _gated() -> Scene:
    world = World(node("a"))
    return _told(world, *_gang(world, 2, gated=True))


def _foreign() -> Scene:
    world = World(node("a"))
    first, second = members("g", 2)
    other = msgspec.structs.replace(first, scheduler_name="other")
    return _told(world, *world.create(other, second))


def _bound() -> Scene:
    world = World(node("a"))
    return _told(world, *_gang(world))


def _lost_a_member() -> Scene:
    scene = _bound()
    lost = next(each for each in scene.world.pods.values() if each.uid != scene.pod.uid)
    scene.world.delete(lost)
    return _told(scene.world, scene.pod)


def _withdrawn() -> Scene:
    scene = _bind_is_sent()
    scene.world.update(scene.pod, deleting=True)
    return _told(scene.world, scene.pod)


def _terminating() -> Scene:
    scene = _bound()
    scene.world.update(scene.pod, deleting=True)
    return _told(scene.world, scene.pod)


def _ended() -> Scene:
    scene = _bound()
    scene.world.update(scene.pod, phase=Phase.SUCCEEDED)
    return _told(scene.world, scene.pod)


def _deleted() -> Scene:
    scene = _no_room()
    scene.world.update(scene.pod, deleting=True)
    return _told(scene.world, scene.pod)


CASES: tuple[Case, ...] = (
    Case(
        State.GATED,
        "it has a scheduling gate",
        _gated,
        gang="2 are gated",
    ),
    Case(
        State.FOREIGN,
        "another scheduler is to place it",
        _foreign,
        gang="1 has another schedulerName",
    ),
    Case(
        State.PENDING,
        "its gang lacks members",
        _lacks_members,
        reason="WaitingForMembers",
        says="1 is missing",
        gang="1 of 2",
    ),
    Case(
        State.PENDING,
        "its PodGroup does not exist",
        _lacks_pod_group,
        reason="PodGroupMissing",
        says="does not exist",
        gang="does not exist",
    ),
    Case(
        State.PENDING,
        "PodGroups cannot be read",
        _pod_groups_unreadable,
        reason="PodGroupsUnreadable",
        says="",
        gang="PodGroup",
    ),
    Case(
        State.PENDING,
        "its PodGroup is invalid",
        _invalid,
        reason="InvalidGang",
        says="spec.minMember",
        gang="spec.minMember",
    ),
    Case(
        State.PENDING,
        "it asks for what is not supported",
        _unsupported,
        reason="Unsupported",
        says="spec.x",
        gang="spec.x",
    ),
    Case(
        State.PENDING,
        "its gang lacks room",
        _no_room,
        reason="Unschedulable",
        says="gang ns/g needs",
        gang="gang ns/g needs",
    ),
    Case(
        State.PENDING,
        "its gang can never fit",
        _can_never_fit,
        reason="Unschedulable",
        says="can never",
        gang="can never",
    ),
    Case(
        State.PENDING,
        "it is a plain pod",
        _plain_pod,
        reason="Unschedulable",
        says="0/1 nodes are available",
        gang="",
    ),
    Case(
        State.PENDING,
        "another gang of its group lacks members",
        _sibling_lacks_members,
        reason="WaitingForGang",
        says="ns/h",
        gang="ns/h",
    ),
    Case(
        State.PENDING,
        "another gang of its group lacks room",
        _sibling_lacks_room,
        reason="Unschedulable",
        says="ns/h",
        gang="ns/h",
    ),
    Case(
        State.PENDING,
        "another child of its tree lacks room",
        _child_of_a_tree,
        reason="Unschedulable",
        says="ns/h",
        gang="ns/h",
    ),
    Case(
        State.PENDING,
        "room is reserved for its gang",
        _reserved,
        reason="Unschedulable",
        says="starts at",
        gang="needs",
    ),
    Case(
        State.PENDING,
        "its gang is nominated",
        _nominated,
        reason="Preempting",
        says="a",
        gang="a",
    ),
    Case(
        State.PENDING,
        "its gang is being preempted",
        _being_preempted,
        reason="WaitingForMembers",
        says="being preempted",
        gang="being preempted",
    ),
    Case(
        State.PENDING,
        "its gang timed out",
        _timed_out,
        reason="TimedOut",
        says="to try again",
        gang="to try again",
    ),
    Case(
        State.PENDING,
        "its claim does not exist",
        _claim_is_missing,
        reason="WaitingForVolumes",
        says="not found",
        gang="not found",
    ),
    Case(
        State.PENDING,
        "the minimum runs, and the pod lacks room",
        _more_than_the_minimum,
        reason="Unschedulable",
        says="0/1 nodes",
        gang="0/1 nodes",
    ),
    Case(
        State.PENDING,
        "an administrator set its gang aside",
        _set_aside,
        reason="Paused",
        says="set aside by an administrator",
        gang="set aside",
    ),
    Case(
        State.PENDING,
        "an administrator paused scheduling",
        _paused,
        reason="Paused",
        says="INC-7",
        gang="INC-7",
    ),
    Case(
        State.PENDING,
        "it was created while scheduling is paused",
        _created_while_paused,
        reason="Paused",
        says="INC-7",
        gang="INC-7",
    ),
    Case(
        State.PENDING,
        "an internal error",
        _internal_error,
        reason="InternalError",
        says="internal error",
        gang="internal error",
    ),
    Case(
        State.HELD,
        "its NonStrict gang waits for more room",
        _held,
        reason="Holding",
        says="node a",
        gang="waits for",
    ),
    Case(
        State.WAITING_FOR_CLAIMS,
        "its claim is to be provisioned",
        _waits_for_its_claim,
        reason="WaitingForVolumes",
        says="waits for claim data-0 (class fast) since",
        gang="2 claims since",
    ),
    Case(
        State.WAITING_FOR_CLAIMS,
        "the same, after it lacked room",
        _waits_for_its_claim_after_a_refusal,
        reason="WaitingForVolumes",
        says="waits for claim data-0 (class fast) since",
        gang="2 claims since",
    ),
    Case(
        State.WAITING_FOR_CLAIMS,
        "another member's claim is to be provisioned",
        _waits_for_another_claim,
        reason="WaitingForVolumes",
        says="claims of pods that start with it",
        gang="claim data-1 (class fast)",
    ),
    Case(
        State.BINDING,
        "its bind is sent",
        _bind_is_sent,
        gang="2 binds are sent",
    ),
    Case(
        State.WITHDRAWN,
        "it was deleted while its bind is sent",
        _withdrawn,
        gang="1 bind is sent",
    ),
    Case(
        State.KEPT,
        "its bind failed, and its node stays reserved",
        _kept,
        reason="BackOff",
        says="will be tried again",
        gang="will be tried again",
    ),
    Case(
        State.RETRY,
        "its bind failed, and the minimum runs",
        _retry,
        reason="BackOff",
        says="will be tried again",
        gang="will be tried again",
    ),
    Case(
        State.BOUND,
        "its gang runs",
        _bound,
        gang="2 members are bound",
    ),
    Case(
        State.BOUND,
        "its gang lost a member",
        _lost_a_member,
        gang="1 of 2 members",
    ),
    Case(
        State.TERMINATING,
        "it is being deleted on its node",
        _terminating,
        gang="1 of 2 members",
    ),
    Case(
        State.DELETED,
        "it was deleted while it waited",
        _deleted,
        reason="Unschedulable",
        says="",
        gang="being deleted",
    ),
    Case(
        State.ENDED,
        "it has succeeded",
        _ended,
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
