"""Events in, Actions out, Outcomes back: all that passes between the shell and the state.

Law: a message is a fact or an order, never a callback. Events and Outcomes are applied by the state in the order they
arrive; Actions are carried out by the shell in any order, and answered by Outcomes where the state needs to know.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import msgspec

from gangsched.model.objects import Namespace, Node, PermitStamp, Pod, PodGroup
from gangsched.model.storage import Selection, StorageObject

# --- Events: what the API server said ---------------------------------------------------------------------------


class PodApplied(msgspec.Struct, frozen=True, gc=False):
    """A pod was added or changed."""

    pod: Pod


class PodGone(msgspec.Struct, frozen=True, gc=False):
    """A pod was deleted (or left the reflector's selection by ending)."""

    uid: str


class PodsReplaced(msgspec.Struct, frozen=True):
    """A full list: every pod not in it is gone."""

    pods: tuple[Pod, ...]


class NodeApplied(msgspec.Struct, frozen=True, gc=False):
    """A node was added or changed."""

    node: Node


class NodeGone(msgspec.Struct, frozen=True, gc=False):
    """A node was deleted."""

    name: str


class NodesReplaced(msgspec.Struct, frozen=True):
    """A full list: every node not in it is gone."""

    nodes: tuple[Node, ...]


class NamespaceApplied(msgspec.Struct, frozen=True, gc=False):
    """A namespace was added or changed."""

    namespace: Namespace


class NamespaceGone(msgspec.Struct, frozen=True, gc=False):
    """A namespace was deleted."""

    name: str


class NamespacesReplaced(msgspec.Struct, frozen=True):
    """A full list: every namespace not in it is gone."""

    namespaces: tuple[Namespace, ...]


class StorageApplied(msgspec.Struct, frozen=True, gc=False):
    """A claim, volume, storage class or CSINode was added or changed."""

    item: StorageObject


class StorageGone(msgspec.Struct, frozen=True, gc=False):
    """An object of that kind was deleted; `key` as in `storage_key`."""

    kind: type[StorageObject]
    key: str


class StorageReplaced(msgspec.Struct, frozen=True):
    """A full list: every object of that kind not in it is gone."""

    kind: type[StorageObject]
    items: tuple[StorageObject, ...]


class StorageUnread(msgspec.Struct, frozen=True, gc=False):
    """Objects of that kind cannot be read (any more): the API server refuses, or does not know them."""

    kind: type[StorageObject]


class PodGroupApplied(msgspec.Struct, frozen=True):
    """A PodGroup was added or changed."""

    pod_group: PodGroup


class PodGroupGone(msgspec.Struct, frozen=True):
    """A PodGroup was deleted. `uid` guards against a late message about an object since recreated ("" = any)."""

    api_group: str
    namespace: str
    name: str
    uid: str = ""


class PodGroupsReplaced(msgspec.Struct, frozen=True):
    """A full list of one API group's PodGroups: every other PodGroup of that API group is gone."""

    api_group: str
    pod_groups: tuple[PodGroup, ...]


Event: TypeAlias = (
    PodApplied
    | PodGone
    | PodsReplaced
    | NodeApplied
    | NodeGone
    | NodesReplaced
    | NamespaceApplied
    | NamespaceGone
    | NamespacesReplaced
    | StorageApplied
    | StorageGone
    | StorageReplaced
    | StorageUnread
    | PodGroupApplied
    | PodGroupGone
    | PodGroupsReplaced
)

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
    """The bind was refused or lost and the pod was read back unbound: plan it anew (403, 422, 429, 5xx)."""

    uid: str
    node: str
    message: str


Outcome: TypeAlias = Bound | BindGone | BindFailed
Message: TypeAlias = Event | Outcome

# --- Actions: what the shell must do --------------------------------------------------------------------------------


class ObjectRef(msgspec.Struct, frozen=True, gc=False):
    """What an Event is about."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str


class Bind(msgspec.Struct, frozen=True, gc=False):
    """Bind this pod to this node; always answered by exactly one Outcome.

    `claims` are carried out first, and the pod is bound when all of them are bound. `permitted` is the stamp that the
    bind leaves on the pod, None for a plain pod (semantics B4).
    """

    uid: str
    namespace: str
    name: str
    node: str
    claims: tuple[Selection, ...] = ()
    permitted: PermitStamp | None = None


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

    It is not `urgent` when nobody in the gang waits for a place.
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
Action: TypeAlias = Bind | Report
