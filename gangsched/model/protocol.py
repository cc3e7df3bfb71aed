"""Events in, Actions out, Outcomes back: all messages between the shell and the state.

Invariant: a message is a fact or an order, never a callback. The state applies Events and Outcomes
in the order of arrival. The shell carries out Actions in any order, and answers with Outcomes where
the state needs the result.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, TypeAlias

import msgspec

from gangsched.model.disruption import PodDisruptionBudget
from gangsched.model.objects import Namespace, Node, PermitStamp, Pod, PodGroup, Service
from gangsched.model.orders import Orders
from gangsched.model.owners import OwnerObject
from gangsched.model.provisioning import ProvisioningRequest, RequestedPods
from gangsched.model.storage import Selection, StorageObject


class PodRef(msgspec.Struct, frozen=True, gc=False):
    """Reference to a pod."""

    uid: str
    namespace: str
    name: str


class PodOnNode(PodRef, frozen=True, gc=False):
    """A pod, and the node that it should run on."""

    node: str


Object: TypeAlias = (
    Pod
    | Node
    | Namespace
    | PodGroup
    | PodDisruptionBudget
    | Service
    | OwnerObject
    | ProvisioningRequest
    | StorageObject
)

# --- Events: what the API server said ------------------------------------------------------------


class Applied(msgspec.Struct, frozen=True, gc=False):
    """An object was added or changed."""

    item: Object


class Gone(msgspec.Struct, frozen=True, gc=False):
    """An object of that kind was deleted.

    `key` is the uid of a pod or an owner, the `id` of a PodGroup, the `key` of a claim,
    PodDisruptionBudget or Service, or the name of any other object. For a PodGroup, `api_group` is
    its API group; `uid`, "" for any, protects a recreated PodGroup from a late message.
    """

    kind: type[Object]
    key: str
    api_group: str = ""
    uid: str = ""


class Replaced(msgspec.Struct, frozen=True):
    """A full list of a kind (and `api_group`, for PodGroups): known objects that are not in it are
    gone.
    """

    kind: type[Object]
    items: tuple[Any, ...]
    api_group: str = ""


class Unread(msgspec.Struct, frozen=True, gc=False):
    """Objects of that kind (and `api_group`, for PodGroups) cannot be read: it is not served, or
    `forbidden`.
    """

    kind: type[Object]
    api_group: str = ""
    forbidden: bool = False


class Followed(msgspec.Struct, frozen=True, gc=False):
    """Whether the PodGroups of one API group are being watched.

    If they are not watched, a PodGroup that is missing from the cache may still exist.
    """

    api_group: str
    live: bool


class StampsGuarded(msgspec.Struct, frozen=True, gc=False):
    """Epoch second since which an admission policy has allowed only gangsched to write stamps; None
    without such a policy.
    """

    since_s: int | None


class Ordered(msgspec.Struct, frozen=True, gc=False):
    """The orders of the administrator, which replace all earlier ones."""

    orders: Orders


Event: TypeAlias = Applied | Gone | Replaced | Unread | Followed | StampsGuarded

# --- Outcomes: how our own orders ended ----------------------------------------------------------


class Bound(msgspec.Struct, frozen=True, gc=False):
    """The pod is bound to `node` (the bind was accepted, now or earlier: semantics B3)."""

    uid: str
    node: str


class BindGone(msgspec.Struct, frozen=True, gc=False):
    """The bind can never succeed: the pod is deleted, recreated, gated or bound elsewhere (404,
    409).
    """

    uid: str
    node: str
    message: str


class BindFailed(msgspec.Struct, frozen=True, gc=False):
    """The bind was refused or lost, and the pod was read back as unbound; it is planned again (403,
    422, 429, 5xx).

    Also sent for a pod whose claims could not be written.
    """

    uid: str
    node: str
    message: str


class BindUndecided(msgspec.Struct, frozen=True, gc=False):
    """A bind sent before the Lease was lost may still be carried out; an Outcome follows.

    `permitted` is the stamp that the bind writes to the pod.
    """

    uid: str
    node: str
    permitted: PermitStamp | None = None


class WriteUndecided(msgspec.Struct, frozen=True, gc=False):
    """A condition or nomination sent for this pod may still be written, over later ones."""

    uid: str


class ClaimsWritten(msgspec.Struct, frozen=True, gc=False):
    """A BindClaims action was carried out. `versions` has the new resource version of each claim
    and volume, by key.
    """

    uid: str
    versions: Mapping[str, str]


class ClaimsReleased(msgspec.Struct, frozen=True, gc=False):
    """ResourceClaims that gangsched had allocated were deallocated. The watch must show the
    resource `versions`, by key, before these claims are used again.
    """

    versions: Mapping[str, str]


Outcome: TypeAlias = Bound | BindGone | BindFailed


class PreemptionPrepared(msgspec.Struct, frozen=True, gc=False):
    """A PreparePreemption action has ended. `failed` says why it failed, "" if every member is
    nominated (rule V13).

    A missing victim, or a victim condition that could not be written, is not a failure.
    """

    id: str
    failed: str = ""


class EvictionResult(StrEnum):
    """Result of an eviction (rule V14)."""

    DONE = "done"  # the pod is being deleted
    GONE = "gone"  # it does not exist any more
    BLOCKED = "blocked"  # a PodDisruptionBudget did not allow it until the deadline
    FORBIDDEN = "forbidden"  # we lack the right; preemption is off until a restart
    # no certain answer until the deadline, or the fence did not let it through
    FAILED = "failed"
    # it was certainly not carried out, and is not sent (again), since it is no longer needed
    WITHDRAWN = "withdrawn"


class EvictionDelayed(msgspec.Struct, frozen=True, gc=False):
    """A PodDisruptionBudget does not allow an eviction for now (429); it is retried. Sent once per
    eviction.
    """

    id: str
    uid: str
    message: str


class Evicted(msgspec.Struct, frozen=True, gc=False):
    """Result of an Evict action; `message` is the API server's, "" for DONE."""

    id: str
    uid: str
    result: EvictionResult
    message: str = ""


class EvictionsForbidden(msgspec.Struct, frozen=True, gc=False):
    """A permission is missing, as `message` says, so preemption stays off until a restart (rule
    V26).
    """

    message: str


class ProvisioningAvailable(msgspec.Struct, frozen=True, gc=False):
    """Whether ProvisioningRequests can be made: `obstacle` says why not, "" if they can."""

    obstacle: str = ""


class NodesRequested(msgspec.Struct, frozen=True, gc=False):
    """A RequestNodes action has ended; `error` says why it failed, "" if the request exists."""

    key: str
    error: str = ""


ProvisioningAnswer: TypeAlias = ProvisioningAvailable | NodesRequested
PreemptionAnswer: TypeAlias = PreemptionPrepared | EvictionDelayed | Evicted | EvictionsForbidden
Message: TypeAlias = (
    Event
    | Outcome
    | BindUndecided
    | WriteUndecided
    | ClaimsWritten
    | ClaimsReleased
    | PreemptionAnswer
    | ProvisioningAnswer
    | Ordered
)

# --- Actions: what the shell must do -------------------------------------------------------------


class ObjectRef(msgspec.Struct, frozen=True, gc=False):
    """The object that an Event is about."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str


class BindClaims(PodOnNode, frozen=True, gc=False):
    """Request volumes for a pod's claims on its node, reserve existing volumes, or allocate
    devices. Answered by ClaimsWritten or BindFailed; on failure, devices that the action has
    allocated are released first.

    `free` are names of volumes that were not reserved before; the controller may undo their
    reservation.
    """

    claims: tuple[Selection, ...]
    free: frozenset[str] = frozenset()


class ReleaseClaims(PodOnNode, frozen=True, gc=False):
    """Withdraw the request to provision volumes on the pod's node, for claims that still have no
    volume; not answered.

    Also deallocate ResourceClaims; that is answered by ClaimsReleased.
    """

    claims: tuple[Selection, ...]


class Bind(PodOnNode, frozen=True, gc=False):
    """Bind this pod to this node; answered by exactly one Outcome.

    The pod is first added to the ResourceClaims in `claims`. `permitted` is the stamp that the bind
    writes to the pod, None for a plain pod (semantics B4).
    """

    claims: tuple[Selection, ...] = ()
    permitted: PermitStamp | None = None


class NominatedMember(PodOnNode, frozen=True, gc=False):
    """A pending member and the node reserved for it."""


class PreparePreemption(msgspec.Struct, frozen=True, gc=False):
    """Write status.nominatedNodeName to every member, then DisruptionTarget=True to every victim
    (rule V13, 1 and 2).

    Answered by exactly one PreemptionPrepared. If a member's write fails, no victim is changed.
    `id` identifies the nomination within this process.
    """

    id: str
    members: tuple[NominatedMember, ...]
    victims: tuple[PodRef, ...]


class Evict(msgspec.Struct, frozen=True, gc=False):
    """Evict this pod with its own grace period, then write DisruptionTarget once more (rule V13, 4
    and 5).

    Answered by exactly one Evicted, at `deadline_s` (monotonic) at the latest; one EvictionDelayed
    comes before it if a PodDisruptionBudget blocks the eviction. With `delete`, the pod is deleted
    instead, which no PodDisruptionBudget prevents (rule V7, last resort).
    """

    id: str
    uid: str
    namespace: str
    name: str
    deadline_s: float
    delete: bool = False


class CancelPreemption(msgspec.Struct, frozen=True, gc=False):
    """End a nomination: clear nominatedNodeName of these members, and stop sending evictions for
    it.

    Neither this action nor those evictions are answered. Bound members need not be listed, because
    a bind clears the field.
    """

    id: str
    members: tuple[NominatedMember, ...] = ()


class RequestNodes(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Create a ProvisioningRequest with a PodTemplate for each pod set; answered by NodesRequested.

    Each template is the spec of the pod that its set names. One that exists under this name and of
    this owner is as good.
    """

    namespace: str
    name: str
    class_name: str
    #: The scheduler that makes it.
    requested_by: str
    owner: ObjectRef
    pod_sets: tuple[RequestedPods, ...]


class WithdrawNodes(msgspec.Struct, frozen=True, gc=False):
    """Delete a ProvisioningRequest and its PodTemplates, which belong to `owner_uid`; repeated
    until that is certain, and not answered. With `uid` "" the request is gone already.
    """

    namespace: str
    name: str
    uid: str
    owner_uid: str
    #: The scheduler that made it.
    requested_by: str
    templates: tuple[str, ...]


ProvisioningOrder: TypeAlias = RequestNodes | WithdrawNodes


class SetPodCondition(PodRef, frozen=True, gc=False):
    """Write PodScheduled=False with this reason and message. A newer action for the same uid
    replaces one that is not yet sent.
    """

    reason: str
    message: str


class MarkTimedOut(PodRef, frozen=True, gc=False):
    """Write the timeout annotation to an unbound pod through pods/status; retry until that succeeds
    or the pod is gone (T2).
    """


class SetPodGroupStatus(msgspec.Struct, frozen=True):
    """Merge `status` into a PodGroup's status (E3). The newest action for an object replaces
    actions that are not yet sent.

    `urgent` is False if no pod of the gang waits for a node or for missing members. `restores`: the
    same status was written before, and somebody else has changed it since.
    """

    api_group: str
    version: str
    namespace: str
    name: str
    uid: str
    status: Mapping[str, object]
    urgent: bool = True
    restores: bool = False


class RecordEvent(msgspec.Struct, frozen=True, gc=False):
    """Record an Event (events.k8s.io/v1) of type Warning if `warning`, else Normal."""

    regarding: ObjectRef
    reason: str
    message: str
    action: str = "Scheduling"
    warning: bool = False


Report: TypeAlias = SetPodCondition | MarkTimedOut | SetPodGroupStatus | RecordEvent
PreemptionOrder: TypeAlias = PreparePreemption | Evict | CancelPreemption
BindOrder: TypeAlias = BindClaims | ReleaseClaims | Bind
Action: TypeAlias = BindOrder | PreemptionOrder | ProvisioningOrder | Report
