"""Pods, nodes and PodGroups as the scheduler sees them.

Invariant: only the fields that affect decisions are stored, so that objects with irrelevant
differences compare equal. The API object is *not* kept; `kube.read` decodes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, TypeAlias

import msgspec

from gangsched.model.inter_pod import InterPodConstraints, Requirement, Selector
from gangsched.model.resources import AMOUNT_LIMIT, PODS, ResourceVector

NOTHING: Mapping[str, str] = {}
Labels: TypeAlias = frozenset[tuple[str, str]]
NO_CONSTRAINTS = InterPodConstraints()


class Phase(StrEnum):
    """Pod phases of the core API."""

    PENDING = "Pending"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    UNKNOWN = "Unknown"


TERMINAL = frozenset({Phase.SUCCEEDED, Phase.FAILED})


class InNamespace(msgspec.Struct, frozen=True, gc=False):
    """An object in a namespace."""

    namespace: str
    name: str

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"


class Taint(msgspec.Struct, frozen=True, gc=False):
    """A node taint; `effect` is NoSchedule, PreferNoSchedule or NoExecute."""

    key: str
    value: str = ""
    effect: str = ""

    def __str__(self) -> str:
        """The taint as `kubectl taint` writes it."""
        if self.value:
            return f"{self.key}={self.value}:{self.effect}"

        return f"{self.key}:{self.effect}"


class Toleration(msgspec.Struct, frozen=True, gc=False):
    """A pod toleration; an empty `effect` matches every effect, an empty `key` with Exists every
    key.
    """

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class NodeSelectorTerm(msgspec.Struct, frozen=True, gc=False):
    """Requirements that must all hold; a term without requirements matches nothing."""

    labels: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()


class PreferredTerm(msgspec.Struct, frozen=True, gc=False):
    """A preferred node selector term and its weight, 1-100."""

    weight: int
    term: NodeSelectorTerm


class ExtendedResource(NamedTuple):
    """An extended resource that a pod's containers request, as a claim would request devices for
    it.

    `requests` are request names and device counts. `users` are containers, each with the request
    whose devices it uses.
    """

    name: str
    requests: tuple[tuple[str, int], ...]
    users: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Shape:
    """The part of a pod's spec that filters and scores read; identical pods share one object.

    Shapes are compared and hashed by identity: the decoder interns them, so masks can be cached per
    shape. Labels are not part of a shape, because they differ within a gang.
    """

    #: Has no zero entries and always counts the pod itself (`pods`: 1).
    requests: ResourceVector
    node_name: str = ""
    node_selector: tuple[tuple[str, str], ...] = ()
    #: None without required node affinity; an empty tuple matches no node.
    required: tuple[NodeSelectorTerm, ...] | None = None
    preferred: tuple[PreferredTerm, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    #: None without inter-pod constraints.
    inter_pod: InterPodConstraints | None = None
    #: Why such a pod fits nowhere: what this version does not support, or cannot read, as the rest
    #: of a sentence about the pod.
    unsupported: tuple[str, ...] = ()
    #: The extended resources in `requests`, by name.
    extended: tuple[ExtendedResource, ...] = ()

    @property
    def constraints(self) -> InterPodConstraints:
        """`inter_pod`, or an object without constraints if that is None."""
        return self.inter_pod or NO_CONSTRAINTS


class ScheduledCondition(msgspec.Struct, frozen=True, gc=False):
    """The pod's PodScheduled condition as stored by the API server."""

    status: str
    reason: str = ""
    message: str = ""


DEVICES = "resourceclaims"


class ClaimEntry(NamedTuple):
    """An entry of `spec.resourceClaims` of a pod or a native PodGroup, which names a claim or a
    template.

    If a pod's entry equals an entry of its PodGroup, the pod uses the PodGroup's claim (KEP-5729).
    """

    name: str
    claim: str = ""
    template: str = ""


class ClaimUse(msgspec.Struct, frozen=True, gc=False):
    """A PersistentVolumeClaim that a pod mounts or, with `device`, a ResourceClaim that it uses.

    `ephemeral`: the claim is created for this pod or its PodGroup, which must own it; such a
    ResourceClaim has no `name` until it exists. `entry` is set only for ResourceClaims of pods with
    a native PodGroup. `extended`: the scheduler creates the ResourceClaim, for extended resources
    of the pod.
    """

    name: str
    ephemeral: bool = False
    device: bool = False
    entry: ClaimEntry | None = None
    extended: bool = False

    def key(self, namespace: str) -> str:
        """Key of the claim: `Claim.key` or `ResourceClaim.key`."""
        if self.device:
            return f"{DEVICES}/{namespace}/{self.name}"

        return f"{namespace}/{self.name}"


class PromisedRoom(NamedTuple):
    """Room that a Permit promised to the gang's members to come (semantics B8): the nodes, each
    with its number of members that exist or are to come; the requests of one member to come; and
    the epoch second at which the promise ends.
    """

    until_s: int
    each: ResourceVector
    places: tuple[tuple[str, int], ...]


class JointStart(NamedTuple):
    """The start of several gangs at once: the number of members that it needs of all of them, and
    the creation of the youngest pod that it places, in epoch seconds.

    After a restart, too few members tell that a part of the start was not sent; pods that are
    younger are not its rest.
    """

    members: int
    youngest_s: int


class PermitStamp(NamedTuple):
    """Identifies the Permit with which a pod's gang started: the gang's minimum at that time, and
    `epoch`, the number of that start, which increases by one.

    Every bind of a member writes the stamp as an annotation, so that a restart knows which gangs
    have started (semantics B4), and which start `together`. Binds of the Permit itself also write
    the `room` that it promised to members to come (B8).
    """

    min_member: int
    epoch: int
    room: PromisedRoom | None = None
    together: JointStart | None = None


DAEMON_KINDS = frozenset({"DaemonSet", "Node"})
"""Controllers whose pods come back to the same node."""
REPLICA_KINDS = frozenset({"ReplicaSet", "ReplicationController", "StatefulSet"})
"""Controllers whose pods kube-scheduler spreads by default."""


class Death(NamedTuple):
    """How a member ended that a node may have killed (L8): `cause` in words, such as "OOMKilled
    (137)", and the epoch second, 0 if that is unknown.
    """

    cause: str
    at_s: int


class Pod(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One pod."""

    uid: str
    namespace: str
    name: str
    #: creationTimestamp in whole seconds since the epoch.
    creation_s: int
    shape: Shape
    scheduler_name: str = ""
    #: "" while unbound.
    node_name: str = ""
    phase: Phase = Phase.PENDING
    deleting: bool = False
    gated: bool = False
    priority: int = 0
    #: Its labels and annotations of `api.keys`, as sorted (key, value) pairs.
    gang_metadata: tuple[tuple[str, str], ...] = ()
    #: It has the timeout annotation (semantics T2).
    timed_out: bool = False
    native_group: str = ""
    #: Name of its controller; `controller_kind` and `controller_uid` are the controller's kind
    #: (`model.owners.controller_kind`) and uid.
    owner: str = ""
    controller_uid: str = ""
    labels: Mapping[str, str] = NOTHING
    claims: tuple[ClaimUse, ...] = ()
    status_reason: str = ""
    #: Why the kubelet of its node rejected it.
    rejection: str = ""
    condition: ScheduledCondition | None = None
    permitted: PermitStamp | None = None
    nominated_node: str = ""
    #: The run times that it declares, as (key, value) pairs.
    run_time_metadata: tuple[tuple[str, str], ...] = ()
    #: status.startTime.
    start_s: int = 0
    #: The deletionTimestamp, when the grace period ends; 0 without one.
    deletion_s: int = 0
    #: terminationGracePeriodSeconds.
    grace_s: int = 30
    controller_kind: str = ""
    #: It represents a static pod of a kubelet.
    mirror: bool = False
    #: It has preemptionPolicy Never (V2, V5).
    never_preempts: bool = False
    #: It has this condition with gangsched's message (V24).
    disruption_target: bool = False
    #: Number within its gang, -1 without one.
    index: int = -1
    #: Set if it has failed, unless it was evicted, deleted, or completed.
    death: Death | None = None
    #: Restarts of its container that restarts most, if they are three or more, else 0.
    restarts: int = 0

    @property
    def key(self) -> str:
        """`namespace/name`, for messages and tie-breaks; everywhere else pods are identified by
        uid.
        """
        return f"{self.namespace}/{self.name}"

    @property
    def live(self) -> bool:
        """Whether the pod is neither Succeeded nor Failed."""
        return self.phase not in TERMINAL

    @property
    def claims_devices(self) -> bool:
        """Whether the pod has claims for devices."""
        return any(use.device for use in self.claims)

    @property
    def ends_with_node(self) -> bool:
        """Whether no other pod can use its room while the node exists: DaemonSet pods and mirrors
        of static pods.
        """
        # A DaemonSet replaces its pod on the same node at once; a static pod is the kubelet's own.
        return self.mirror or self.controller_kind in DAEMON_KINDS

    @property
    def replica_of(self) -> str:
        """The uid of the controller whose replicas are spread; "" if the pod has none, or is
        terminating.
        """
        if self.controller_kind in REPLICA_KINDS and not self.deleting:
            return self.controller_uid

        return ""


TAKES_ALL = Shape(requests=((PODS, AMOUNT_LIMIT),))
"""Leaves a node no room for another pod, whatever the node offers."""


def stand_in(
    uid: str,
    namespace: str,
    name: str,
    node: str,
    requests: ResourceVector | None = None,
) -> Pod:
    """Replacement for a pod on `node` that cannot be decoded: it uses what it requests, or all room
    if that is not known, and cannot be evicted.
    """
    return Pod(
        uid=uid,
        namespace=namespace,
        name=name,
        creation_s=0,
        # Where that is unknown, a placement beside it could be refused by the kubelet.
        shape=TAKES_ALL if requests is None else Shape(requests=requests),
        node_name=node,
        phase=Phase.RUNNING,
        # As a mirror pod it is never a victim, and reservations do not count on its room.
        mirror=True,
    )


class Node(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One node. Filters use `allocatable`, never the capacity."""

    name: str
    uid: str = ""
    labels: Mapping[str, str] = NOTHING
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    allocatable: ResourceVector = ()
    creation_s: int = 0


class Namespace(msgspec.Struct, frozen=True, gc=False):
    """A namespace, reduced to its labels (for namespace selectors of inter-pod affinity)."""

    name: str
    labels: Mapping[str, str] = NOTHING


class Service(InNamespace, frozen=True, gc=False):
    """A Service, reduced to its selector: the labels, at least one, that it requires of pods in its
    namespace.
    """

    selector: Labels


class SubGroups(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of a PodGroup's policy of sub groups: it divides the pods that `selector` matches by
    the values of the labels `match_label_keys`, all of which every such pod has.

    `name` is the name of the composite above these sub groups. Each sub group starts with at least
    `size` pods, and at least `min_groups` sub groups start together.
    """

    name: str
    selector: Selector
    match_label_keys: tuple[str, ...] = ()
    size: int = 1
    min_groups: int = 0


class PodGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A PodGroup object of any supported API group, with validated spec values (`api.podgroup`)."""

    api_group: str
    version: str
    namespace: str
    name: str
    uid: str
    creation_s: int
    generation: int = 0
    resource_version: str = ""
    deleting: bool = False
    gang_metadata: tuple[tuple[str, str], ...] = ()
    #: None if missing or invalid.
    min_member: int | None = None
    min_resources: ResourceVector = ()
    #: None if missing, 0 or invalid.
    schedule_timeout_s: int | None = None
    #: Its pods are evicted only all together (V6).
    indivisible: bool = False
    #: Each of its pods is evicted by itself (V6).
    disrupted_singly: bool = False
    #: The gang preempts no pods (V2).
    never_preempts: bool = False
    #: Sentences about fields that refuse the gang, as `invalid` (`api.dialects`).
    unsupported: tuple[str, ...] = ()
    invalid: tuple[str, ...] = ()
    #: Sentences about fields that have no effect.
    not_used: tuple[str, ...] = ()
    #: Node labels of the required levels; `tree_topology` are those of its tree.
    topology: tuple[str, ...] = ()
    tree_topology: tuple[str, ...] = ()
    #: Minimums of tasks by name, which together do not exceed the minimum.
    of_tasks: tuple[tuple[str, int], ...] = ()
    #: The declared priority, 0 for none.
    priority: int = 0
    #: ResourceClaims whose consumer is the PodGroup instead of its pods.
    claims: tuple[ClaimEntry, ...] = ()
    #: Messages about invalid values (E4).
    problems: tuple[str, ...] = ()
    #: Name of the object, if it declares several gangs.
    of_object: str = ""
    #: Reports about the object are made with this gang, the first one of the object.
    speaks: bool = True
    #: For an object that declares several gangs: one PodGroup for each, with the name of the gang.
    parts: tuple[PodGroup, ...] = ()
    #: It has children instead of pods.
    is_composite: bool = False
    #: Name of the part that it is a child of.
    parent: str = ""
    #: The number of children that start together, None for all.
    min_children: int | None = None
    #: It declares gangs by labels of its pods (`api.sub_groups`).
    sub_groups: tuple[SubGroups, ...] = ()
    #: It is the declaration of such a gang, and is dropped with the last of its pods.
    is_of_pods: bool = False
    #: As stored, so that writes without a change are skipped.
    status: Mapping[str, object] = msgspec.field(default_factory=dict)

    @property
    def id(self) -> str:
        """The id of the gang this object describes: `namespace/name`."""
        return f"{self.namespace}/{self.name}"

    @property
    def object_name(self) -> str:
        """Name of the object that declares the gang."""
        return self.of_object or self.name

    @property
    def declaration(self) -> PodGroup:
        """Everything that users declare in the PodGroup, without its status; it changes only when a
        user changes the PodGroup.
        """
        # The status is mostly our own writing: each write would else look like an edit of the user.
        return msgspec.structs.replace(self, status={}, resource_version="")
