"""Claims, volumes and their requirements, as the scheduler sees them.

Invariant: extracts of API objects, as in `model.objects`. A `Storage` is immutable. A pod has only
the names of its claims (`Pod.claims`), since claims are created and deleted independently. Amounts
are bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import msgspec

from gangsched.model.devices import (
    DeviceAllocation,
    DeviceClaim,
    DeviceClass,
    DeviceTaintRule,
    MadeClaim,
    ResourceSlice,
)
from gangsched.model.inter_pod import Requirement, Selector
from gangsched.model.objects import (
    DEVICES,
    NOTHING,
    ClaimUse,
    InNamespace,
    NodeSelectorTerm,
    Pod,
    PodGroup,
)

NO_PROVISIONER = "kubernetes.io/no-provisioner"
READ_WRITE_ONCE_POD = "ReadWriteOncePod"
SHARED_MODES = frozenset({"ReadWriteMany", "ReadOnlyMany"})


class Claim(InNamespace, frozen=True, gc=False, kw_only=True):
    """A PersistentVolumeClaim.

    `bound` is as in kube-scheduler: the claim names a volume, and the controller reports that
    binding is complete. `selected_node` is the annotation by which a scheduler requests a volume
    from a provisioner, None if not set. `owner_uid` is the uid of the claim's controller. `unread`
    says why it cannot be read, "" if it can.
    """

    uid: str = ""
    resource_version: str = ""
    storage_class: str = ""
    volume_name: str = ""
    bound: bool = False
    lost: bool = False
    deleting: bool = False
    selected_node: str | None = None
    owner_uid: str = ""
    access_modes: tuple[str, ...] = ()
    volume_mode: str = "Filesystem"
    attributes_class: str = ""
    request_bytes: int = 0
    selector: Selector = ()
    unread: str = ""


class ClaimRef(msgspec.Struct, frozen=True, gc=False):
    """The claim that a volume belongs to or is reserved for; `uid` is "" if the volume has only the
    claim's name.
    """

    namespace: str = ""
    name: str = ""
    uid: str = ""

    def means(self, claim: Claim) -> bool:
        """Whether the reference is to this claim."""
        return (self.namespace, self.name) == (claim.namespace, claim.name) and self.uid in {
            "",
            claim.uid,
        }


class Volume(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A PersistentVolume.

    `required` is its node affinity, None if it has none. `zones` are its zone and region labels
    with the values that each label allows. `driver` and `handle` are set for CSI volumes.
    """

    name: str
    uid: str = ""
    resource_version: str = ""
    labels: Mapping[str, str] = NOTHING
    storage_class: str = ""
    capacity_bytes: int = 0
    access_modes: tuple[str, ...] = ()
    volume_mode: str = "Filesystem"
    attributes_class: str = ""
    available: bool = False
    deleting: bool = False
    claim: ClaimRef | None = None
    required: tuple[NodeSelectorTerm, ...] | None = None
    zones: tuple[tuple[str, tuple[str, ...]], ...] = ()
    driver: str = ""
    handle: str = ""

    @property
    def pins(self) -> bool:
        """Whether it leaves its pods some nodes only."""
        return self.required is not None or bool(self.zones)


class StorageClass(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A StorageClass.

    `waits`: its volumeBindingMode is WaitForFirstConsumer. `topologies` are alternatives; () means
    any node.
    """

    name: str
    provisioner: str = ""
    waits: bool = False
    topologies: tuple[tuple[Requirement, ...], ...] = ()


class CsiNode(msgspec.Struct, frozen=True, gc=False):
    """A CSINode: the maximum number of volumes of each driver on the node. A driver without a limit
    is not listed.
    """

    name: str
    limits: tuple[tuple[str, int], ...] = ()


class ResourceClaim(InNamespace, frozen=True, gc=False, kw_only=True):
    """A ResourceClaim (DRA): devices for pods.

    `required` selects the nodes where an allocated claim can be used, None for all nodes.
    `reserved` are the uids of pods that may use it; `owner_uid` is the uid of its controller.
    `asks` has its requests and allocated devices. `has_more`: an allocation would need fields of
    the claim that are not decoded.
    """

    uid: str = ""
    resource_version: str = ""
    owner_uid: str = ""
    deleting: bool = False
    allocated: bool = False
    required: tuple[NodeSelectorTerm, ...] | None = None
    reserved: tuple[str, ...] = ()
    finalizers: tuple[str, ...] = ()
    has_more: bool = False
    asks: DeviceClaim | None = None

    @property
    def pins(self) -> bool:
        """Whether its devices leave its pods some nodes only."""
        return self.required is not None

    @property
    def key(self) -> str:
        """`resourceclaims/namespace/name`, which differs from all keys
        of PersistentVolumeClaims.
        """
        return f"{DEVICES}/{self.namespace}/{self.name}"


DeviceObject: TypeAlias = ResourceSlice | DeviceClass | DeviceTaintRule
StorageObject: TypeAlias = Claim | Volume | StorageClass | CsiNode | ResourceClaim | DeviceObject
RESOURCES: Mapping[type[StorageObject], str] = {
    Claim: "persistentvolumeclaims",
    Volume: "persistentvolumes",
    StorageClass: "storageclasses",
    CsiNode: "csinodes",
    ResourceClaim: DEVICES,
    ResourceSlice: "resourceslices",
    DeviceClass: "deviceclasses",
    DeviceTaintRule: "devicetaintrules",
}
"""The API's name of each kind."""
ALLOCATING: frozenset[type[StorageObject]] = frozenset(
    {ResourceSlice, DeviceClass, DeviceTaintRule}
)
"""The kinds that are read to allocate devices."""


def storage_key(item: StorageObject) -> str:
    """Key of an object within its kind: the `key` of a claim, the name of any other object."""
    if isinstance(item, Claim | ResourceClaim):
        return item.key

    return item.name


class GroupConsumer(msgspec.Struct, frozen=True, gc=False):
    """The native PodGroup that a ResourceClaim is reserved for, in place of the individual pods."""

    name: str
    uid: str


class Selection(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The decision about one claim of a placed pod.

    uids and resource versions identify the objects that the decision is based on.
    """

    namespace: str
    name: str
    uid: str
    resource_version: str = ""
    #: The node that the claim is to be provisioned for. Without it and without `volume`, another
    #: pod's decision applies and this pod waits.
    node: str = ""
    #: The existing volume to bind the claim to.
    volume: str = ""
    volume_version: str = ""
    #: It is a ResourceClaim, to whose consumers the pod is added if `required` still holds.
    reserve: bool = False
    required: tuple[NodeSelectorTerm, ...] | None = None
    #: The devices that are allocated before that.
    allocation: DeviceAllocation | None = None
    finalizers: tuple[str, ...] = ()
    #: The pod waits until the claim is allocated for another pod.
    follows: bool = False
    #: The PodGroup that the ResourceClaim is reserved for instead of for the pod.
    consumer: GroupConsumer | None = None
    #: The claim that gangsched creates for extended resources, first if it has no uid yet.
    makes: MadeClaim | None = None

    @property
    def waits(self) -> bool:
        """Whether the bind must wait until the watch shows the claim as this decision
        requires it.
        """
        # A claim that has its devices only gets one more consumer, which is written right before
        # the bind.
        return not self.reserve or self.allocation is not None or self.follows

    @property
    def key(self) -> str:
        """The claim's key."""
        if self.reserve:
            return f"{DEVICES}/{self.namespace}/{self.name}"

        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True, eq=False)
class Storage:
    """All storage objects at one moment, by kind and `storage_key`."""

    claims: Mapping[str, Claim] = field(default_factory=dict)
    volumes: Mapping[str, Volume] = field(default_factory=dict)
    classes: Mapping[str, StorageClass] = field(default_factory=dict)
    csi_nodes: Mapping[str, CsiNode] = field(default_factory=dict)
    devices: Mapping[str, ResourceClaim] = field(default_factory=dict)
    #: Placed pods with claims, each with its node's name, by uid.
    users: Mapping[str, tuple[Pod, str]] = field(default_factory=dict)
    #: Decisions about the claims of these pods whose binding is not yet complete.
    selections: Mapping[str, tuple[Selection, ...]] = field(default_factory=dict)
    #: Keys of claims that several pods name, placed or not, with the number of these pods.
    shared: Mapping[str, int] = field(default_factory=dict)
    #: Native PodGroups with ResourceClaims, by id.
    groups: Mapping[str, PodGroup] = field(default_factory=dict)
    #: Kinds that cannot be read.
    unread: frozenset[type[StorageObject]] = frozenset()
    #: The devices of nodes, None if gangsched allocates no devices; `awaits` are kinds that it
    #: needs and that are not read yet.
    allocator: Any = None
    awaits: frozenset[type[StorageObject]] = frozenset()
    #: Keys of claims whose last write by gangsched was not seen in the watch yet.
    outdated: frozenset[str] = frozenset()

    def consumer(self, pod: Pod, use: ClaimUse) -> GroupConsumer | None:
        """The PodGroup that a pod's ResourceClaim is reserved for; None if it is reserved for the
        pod itself.
        """
        return group_consumer(self.groups, pod, use)


def group_consumer(groups: Mapping[str, PodGroup], pod: Pod, use: ClaimUse) -> GroupConsumer | None:
    """The PodGroup of a pod if it is the consumer of the claim: it has an equal entry
    (kube-scheduler's BindTo).
    """
    group = groups.get(f"{pod.namespace}/{pod.native_group}") if use.entry is not None else None
    if group is not None and use.entry in group.claims:
        return GroupConsumer(group.name, group.uid)

    return None
