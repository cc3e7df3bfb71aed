"""Events in, Actions out, Outcomes back: all that passes between the shell and the state.

Invariant: a message is a fact or an order, never a callback. Events and Outcomes are applied by the state in the order
they arrive; Actions are carried out by the shell in any order, and answered by Outcomes where the state needs to know.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, TypeAlias

import msgspec

from gangsched.model.disruption import PodDisruptionBudget
from gangsched.model.objects import Namespace, Node, PermitStamp, Pod, PodGroup
from gangsched.model.storage import Selection, StorageObject

Object: TypeAlias = Pod | Node | Namespace | PodGroup | PodDisruptionBudget | StorageObject

# --- Events: what the API server said ---------------------------------------------------------------------------


class Applied(msgspec.Struct, frozen=True, gc=False):
    """An object was added or changed."""

    item: Object


class Gone(msgspec.Struct, frozen=True, gc=False):
    """An object of that kind was deleted.

    `key` is a pod's uid, a PodGroup's `id`, the `key` of a claim or a PodDisruptionBudget, the name of anything else.
    Of a PodGroup, `api_group` says which API group it was of, and `uid` guards against a late message about one since
    recreated ("" = any).
    """

    kind: type[Object]
    key: str
    api_group: str = ""
    uid: str = ""


class Replaced(msgspec.Struct, frozen=True):
    """A full list: every object of that kind (and `api_group`, of PodGroups) that is not in it is gone."""

    kind: type[Object]
    items: tuple[Any, ...]
    api_group: str = ""


class Unread(msgspec.Struct, frozen=True, gc=False):
    """Objects of that kind (and `api_group`, of PodGroups) cannot be read (any more): refused, or not known."""

    kind: type[Object]
    api_group: str = ""


class Followed(msgspec.Struct, frozen=True, gc=False):
    """Whether changes of one API group's PodGroups are received.

    While they are not, a PodGroup that is absent from our cache may exist.
    """

    api_group: str
    live: bool


class StampsGuarded(msgspec.Struct, frozen=True, gc=False):
    """Since when (wall second) an admission policy keeps everybody but us from writing stamps; None if none does."""

    since_s: int | None


Event: TypeAlias = Applied | Gone | Replaced | Unread | Followed | StampsGuarded

# --- Outcomes: how our own orders ended ---------------------------------------------------------------------------


class Bound(msgspec.Struct, frozen=True, gc=False):
    """The pod is bound to `node` (our bind was accepted, or had been: semantics B3)."""

    uid: str
    node: str


class BindGone(msgspec.Struct, frozen=True, gc=False):
    """The bind can never succeed: the pod is deleted, recreated, gated or bound elsewhere (404, 409)."""

    uid: str
    node: str
    message: str


class BindFailed(msgspec.Struct, frozen=True, gc=False):
    """The bind was refused or lost and the pod was read back unbound: plan it anew (403, 422, 429, 5xx).

    So is a pod whose claims could not be written.
    """

    uid: str
    node: str
    message: str


class BindUndecided(msgspec.Struct, frozen=True, gc=False):
    """A bind from before the lease was lost may still be carried out; an Outcome will say.

    `permitted` is the stamp that it leaves on the pod.
    """

    uid: str
    node: str
    permitted: PermitStamp | None = None


class ClaimsWritten(msgspec.Struct, frozen=True, gc=False):
    """A BindClaims is carried out; `versions` has what version our writes gave each claim and volume, by key."""

    uid: str
    versions: Mapping[str, str]


Outcome: TypeAlias = Bound | BindGone | BindFailed


class PreemptionPrepared(msgspec.Struct, frozen=True, gc=False):
    """A PreparePreemption is carried out, or not: `failed` is why, "" if every member is nominated (rule V13).

    Victims that are gone or could not be marked are no failure.
    """

    id: str
    failed: str = ""


class EvictionResult(StrEnum):
    """How an eviction ended (rule V14)."""

    DONE = "done"  # the pod is being deleted
    GONE = "gone"  # it does not exist any more
    BLOCKED = "blocked"  # a PodDisruptionBudget did not allow it until the deadline
    FORBIDDEN = "forbidden"  # we lack the right; preemption is off until a restart
    FAILED = "failed"  # no certain answer until the deadline, or the fence did not let it through (any more)


class EvictionDelayed(msgspec.Struct, frozen=True, gc=False):
    """A PodDisruptionBudget does not allow an eviction for now (429); it is sent again. Said once an eviction."""

    id: str
    uid: str
    message: str


class Evicted(msgspec.Struct, frozen=True, gc=False):
    """The end of an Evict; `message` is what the API server said, "" for DONE."""

    id: str
    uid: str
    result: EvictionResult
    message: str = ""


class EvictionsForbidden(msgspec.Struct, frozen=True, gc=False):
    """Preemption lacks a right: it is off until a restart (rule V26); `message` names the right."""

    message: str


PreemptionAnswer: TypeAlias = PreemptionPrepared | EvictionDelayed | Evicted | EvictionsForbidden
Message: TypeAlias = Event | Outcome | BindUndecided | ClaimsWritten | PreemptionAnswer

# --- Actions: what the shell must do --------------------------------------------------------------------------------


class ObjectRef(msgspec.Struct, frozen=True, gc=False):
    """What an Event is about."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str


class BindClaims(msgspec.Struct, frozen=True, gc=False):
    """Have claims of a pod provisioned for its node, or volumes kept for them; answered by ClaimsWritten or BindFailed.

    `free` are the names of volumes that nobody has kept before; the controller may undo what is done to them.
    """

    uid: str
    namespace: str
    name: str
    node: str
    claims: tuple[Selection, ...]
    free: frozenset[str] = frozenset()


class ReleaseClaims(msgspec.Struct, frozen=True, gc=False):
    """Withdraw the request for volumes on the pod's node, of those claims that still have none; it is not answered."""

    uid: str
    namespace: str
    name: str
    node: str
    claims: tuple[Selection, ...]


class Bind(msgspec.Struct, frozen=True, gc=False):
    """Bind this pod to this node; always answered by exactly one Outcome.

    The pod is first entered in the ResourceClaims that it uses, `claims`. `permitted` is the stamp that the bind leaves
    on the pod, None for a plain pod (semantics B4).
    """

    uid: str
    namespace: str
    name: str
    node: str
    claims: tuple[Selection, ...] = ()
    permitted: PermitStamp | None = None


class NominatedMember(msgspec.Struct, frozen=True, gc=False):
    """A pending member and the node that is kept for it."""

    uid: str
    namespace: str
    name: str
    node: str


class PodRef(msgspec.Struct, frozen=True, gc=False):
    """Which pod is meant."""

    uid: str
    namespace: str
    name: str


class PreparePreemption(msgspec.Struct, frozen=True, gc=False):
    """Write status.nominatedNodeName on every member, then DisruptionTarget=True on every victim (rule V13, 1 and 2).

    Always answered by one PreemptionPrepared. If a member's write fails, no victim is touched. `id` is that of the
    nomination; no other one of this process has it.
    """

    id: str
    members: tuple[NominatedMember, ...]
    victims: tuple[PodRef, ...]


class Evict(msgspec.Struct, frozen=True, gc=False):
    """Evict this pod, with its own grace period; then write DisruptionTarget once more (rule V13, 4 and 5).

    Always answered by one Evicted, at `deadline_s` at the latest, which is in monotonic seconds; before that by one
    EvictionDelayed if a PodDisruptionBudget is in the way. With `delete` the pod is deleted instead, which no
    PodDisruptionBudget prevents (rule V7, last resort).
    """

    id: str
    uid: str
    namespace: str
    name: str
    deadline_s: float
    delete: bool = False


class CancelPreemption(msgspec.Struct, frozen=True, gc=False):
    """A nomination ended: clear nominatedNodeName of these members, and send none of its evictions (again).

    It is not answered, and neither are those evictions. Members that are bound need not be named: a bind clears it.
    """

    id: str
    members: tuple[NominatedMember, ...] = ()


class SetPodCondition(msgspec.Struct, frozen=True, gc=False):
    """Write PodScheduled=False with this reason and message; the newest order for a uid replaces older unsent ones."""

    uid: str
    namespace: str
    name: str
    reason: str
    message: str


class MarkTimedOut(msgspec.Struct, frozen=True, gc=False):
    """Write the timeout annotation to an unbound pod through pods/status, until done or the pod is gone (T2)."""

    uid: str
    namespace: str
    name: str


class SetPodGroupStatus(msgspec.Struct, frozen=True):
    """Merge `status` into a PodGroup's status; the newest order for an object replaces older unsent ones (E3).

    It is not `urgent` when nobody in the gang waits for a place, or for others that are missing.
    """

    api_group: str
    version: str
    namespace: str
    name: str
    uid: str
    status: Mapping[str, object]
    urgent: bool = True


class RecordEvent(msgspec.Struct, frozen=True, gc=False):
    """Record an events.k8s.io/v1 Event. `warning` picks the type: Warning or Normal."""

    regarding: ObjectRef
    reason: str
    message: str
    action: str = "Scheduling"
    warning: bool = False


Report: TypeAlias = SetPodCondition | MarkTimedOut | SetPodGroupStatus | RecordEvent
PreemptionOrder: TypeAlias = PreparePreemption | Evict | CancelPreemption
BindOrder: TypeAlias = BindClaims | ReleaseClaims | Bind
Action: TypeAlias = BindOrder | PreemptionOrder | Report
