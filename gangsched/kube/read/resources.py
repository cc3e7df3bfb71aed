"""The table of resources that the daemon reads: where each is served, and how it is decoded.

Invariant: the table is complete, as the table in `permissions` is. `reflector` reads the resources.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property, partial
from typing import Any, Final, Generic, TypeAlias, TypeVar

import msgspec

from gangsched.kube.ports import Warn
from gangsched.kube.read import devices, owner_kinds, provisioning, storage
from gangsched.kube.read.decode import (
    decode_disruption_budget,
    decode_namespace,
    decode_pod,
    decode_service,
    instead_of_budget,
    instead_of_pod,
    node_decoder,
)
from gangsched.kube.read.owner_asks import OwnerAsks
from gangsched.kube.read.owner_kinds import (
    WireJob,
    WireJobSet,
    WireRayCluster,
    WireStatefulSet,
    WireTrainingJob,
)
from gangsched.kube.read.provisioning import WireProvisioningRequest
from gangsched.kube.read.scheduler_names import SchedulerNames
from gangsched.kube.read.shapes import ShapeTable
from gangsched.kube.read.storage_wire import (
    ClaimOutline,
    WireClaim,
    WireCsiNode,
    WireDeviceObject,
    WireResourceClaim,
    WireStorageClass,
    WireVolume,
)
from gangsched.kube.read.wire import (
    Identified,
    Line,
    ObjectIdentity,
    Page,
    PodOutline,
    WireDisruptionBudget,
    WireNamespace,
    WireNode,
    WirePod,
    WireService,
)
from gangsched.model.devices import DeviceClass, DeviceTaintRule, ResourceSlice
from gangsched.model.disruption import PodDisruptionBudget
from gangsched.model.objects import DEVICES, Namespace, Node, Pod, Service
from gangsched.model.owners import TABLE, OfJobs, OwnerObject
from gangsched.model.provisioning import ProvisioningRequest
from gangsched.model.storage import Claim, CsiNode, ResourceClaim, StorageClass, Volume

W = TypeVar(
    "W",
    WirePod,
    WireNode,
    WireNamespace,
    WireDisruptionBudget,
    WireService,
    WireClaim,
    WireVolume,
    WireStorageClass,
    WireCsiNode,
    WireResourceClaim,
    WireDeviceObject,
    WireJob,
    WireStatefulSet,
    WireJobSet,
    WireRayCluster,
    WireTrainingJob,
    WireProvisioningRequest,
)
T = TypeVar(
    "T",
    Pod,
    Node,
    Namespace,
    PodDisruptionBudget,
    Service,
    Claim,
    Volume,
    StorageClass,
    CsiNode,
    ResourceClaim,
    ResourceSlice,
    DeviceClass,
    DeviceTaintRule,
    OwnerObject,
    ProvisioningRequest,
)
Outline: TypeAlias = Identified | PodOutline | ClaimOutline
Key = Callable[[ObjectIdentity], str]


def by_uid(identity: ObjectIdentity) -> str:
    """Key: the uid."""
    return identity.uid


def by_name(identity: ObjectIdentity) -> str:
    """Key of a cluster-scoped object: its name."""
    return identity.name


def by_id(identity: ObjectIdentity) -> str:
    """Key: `namespace/name`."""
    return f"{identity.namespace}/{identity.name}"


class Resource(Generic[W, T]):
    """One resource of the API; `convert` returns None for objects that are not stored, `name` is
    plural.

    If an object cannot be decoded, `instead` provides a replacement for it, given the last decoded
    version if there is one, and why. `outline` is a type with what `instead` needs, which can be
    decoded all the same. The daemon also runs if it may not read an `optional` resource, or if the
    resource is not served; `meanwhile` describes the consequence, for the warning, and `manifest`
    is the file that grants the permission. What was read of a resource that `lasts` is still used
    once it can no longer be read. Where it is not served in the version of the path, the other
    `versions` are tried. With a `label_selector`, only matching objects are read; an object that
    stops matching counts as deleted.
    """

    def __init__(
        self,
        path: str,
        wire: type[W],
        kind: type[T],
        convert: Callable[[W], T | None],
        key: Key,
        *,
        optional: bool = False,
        meanwhile: str = "",
        manifest: str = "rbac.yaml",
        lasts: bool = False,
        versions: tuple[str, ...] = (),
        label_selector: str = "",
        instead: Callable[[Any, T | None, str], T | None] = lambda _, old, why: old,
        outline: type[Outline] = Identified,
    ) -> None:
        self.path = path
        self.optional = optional
        self.meanwhile = meanwhile
        self.manifest = manifest
        self.lasts = lasts
        self.versions = versions
        self.label_selector = label_selector

        # The plural; it is the label of metrics and the key of snapshots.
        self.name = path.rpartition("/")[2]
        self.wire: type[W] = wire
        self.kind: type[T] = kind
        self.convert: Callable[[W], T | None] = convert
        self.key = key
        self.instead: Callable[[Any, T | None, str], T | None] = instead
        self._outline = outline

    # Typed decoders skip every field that is not declared, without building it. Each is made when
    # it is used first: half of the kinds are never read, and the start would wait for them.

    @cached_property
    def line(self) -> msgspec.json.Decoder[Line[W]]:
        """The decoder of a line of the watch."""
        return msgspec.json.Decoder(Line[self.wire])  # type: ignore[name-defined]

    @cached_property
    def page(self) -> msgspec.json.Decoder[Page[W]]:
        """The decoder of a page of the list."""
        return msgspec.json.Decoder(Page[self.wire])  # type: ignore[name-defined]

    @cached_property
    def item(self) -> msgspec.json.Decoder[W]:
        """The decoder of one object."""
        return msgspec.json.Decoder(self.wire)

    @cached_property
    def outline(self) -> msgspec.json.Decoder[Outline]:
        """The decoder of what `instead` needs."""
        return msgspec.json.Decoder(self._outline)


def pods(
    shapes: ShapeTable,
    names: SchedulerNames | None = None,
    unread: frozenset[str] = frozenset(),
    owner_asks: OwnerAsks | None = None,
) -> Resource[WirePod, Pod]:
    """All pods of the cluster, including ended ones; a selector would hide how members ended
    (semantics B6, E3).
    """
    return Resource(
        "/api/v1/pods",
        WirePod,
        Pod,
        lambda wire: decode_pod(wire, shapes, names, unread, owner_asks),
        by_uid,
        instead=lambda wire, old, why: instead_of_pod(wire, old, why, unread),
        outline=PodOutline,
    )


def _of_devices(
    path: str,
    kind: type[T],
    decode: Callable[[Mapping[str, Any]], T],
) -> Resource[WireDeviceObject, T]:
    return Resource(
        f"/apis/resource.k8s.io/{path}",
        WireDeviceObject,
        kind,
        lambda wire: decode(wire.whole()),
        by_name,
        optional=True,
        meanwhile="until then pods wait whose resource claims have no devices",
    )


def nodes(warn: Warn, label_selector: str = "") -> Resource[WireNode, Node]:
    """The nodes that match the selector (semantics I7); all nodes without one."""
    return Resource(
        "/api/v1/nodes",
        WireNode,
        Node,
        node_decoder(warn),
        by_name,
        label_selector=label_selector,
    )


def provisioning_requests(
    requested_by: str,
) -> Resource[WireProvisioningRequest, ProvisioningRequest]:
    """The requests that this scheduler made, read only if the setting asks for it; its reader sets
    the served version.
    """
    return Resource(
        f"/apis/{provisioning.GROUP}/{provisioning.VERSIONS[0]}/provisioningrequests",
        WireProvisioningRequest,
        ProvisioningRequest,
        provisioning.decode_provisioning_request,
        by_id,
        optional=True,
        meanwhile="until then gangs ask autoscalers as plain pods do",
        label_selector=f"{provisioning.REQUESTED_BY}={requested_by}",
    )


NAMESPACES: Final = Resource(
    "/api/v1/namespaces",
    WireNamespace,
    Namespace,
    decode_namespace,
    by_name,
)
"""Their labels decide whom an inter-pod affinity term means."""

DISRUPTION_BUDGETS: Final = Resource(
    "/apis/policy/v1/poddisruptionbudgets",
    WireDisruptionBudget,
    PodDisruptionBudget,
    decode_disruption_budget,
    by_id,
    optional=True,
    instead=instead_of_budget,
)
"""Without them nobody is evicted (semantics V7, V26)."""

SERVICES: Final = Resource(
    "/api/v1/services",
    WireService,
    Service,
    decode_service,
    by_id,
    optional=True,
    meanwhile="until then pods behind Services are packed unless a controller replicates them",
)
"""Plain pods behind one Service are spread (`model.peers`)."""

CLAIMS: Final = Resource(
    "/api/v1/persistentvolumeclaims",
    WireClaim,
    Claim,
    storage.decode_claim,
    by_id,
    optional=True,
    instead=storage.instead_of_claim,
)
VOLUMES: Final = Resource(
    "/api/v1/persistentvolumes",
    WireVolume,
    Volume,
    storage.decode_volume,
    by_name,
    optional=True,
)
CLASSES: Final = Resource(
    "/apis/storage.k8s.io/v1/storageclasses",
    WireStorageClass,
    StorageClass,
    storage.decode_class,
    by_name,
    optional=True,
)
CSI_NODES: Final = Resource(
    "/apis/storage.k8s.io/v1/csinodes",
    WireCsiNode,
    CsiNode,
    storage.decode_csi_node,
    by_name,
    optional=True,
)
RESOURCE_CLAIMS: Final = Resource(
    "/apis/resource.k8s.io/v1/resourceclaims",
    WireResourceClaim,
    ResourceClaim,
    storage.decode_resource_claim,
    lambda identity: f"{DEVICES}/{by_id(identity)}",
    optional=True,
    instead=storage.instead_of_resource_claim,
    outline=ClaimOutline,
)
RESOURCE_SLICES: Final = _of_devices("v1/resourceslices", ResourceSlice, devices.decode_slice)
DEVICE_CLASSES: Final = _of_devices("v1/deviceclasses", DeviceClass, devices.decode_device_class)
DEVICE_TAINT_RULES: Final = _of_devices(
    "v1beta2/devicetaintrules",
    DeviceTaintRule,
    devices.decode_taint_rule,
)


def _owner(
    kind: str,
    wire: type[W],
    convert: Callable[[W], OwnerObject],
) -> Resource[W, OwnerObject]:
    """A kind of owners."""
    row = TABLE[kind]
    is_above_jobs = row.of_jobs is OfJobs.PARTS
    return Resource(
        f"/apis/{row.group}/{row.versions[0]}/{row.plural}",
        wire,
        row.owner,
        convert,
        by_uid,
        optional=True,
        meanwhile=owner_kinds.MEANWHILE_JOBS if is_above_jobs else owner_kinds.MEANWHILE,
        manifest=row.manifest,
        lasts=True,
        versions=row.versions,
    )


JOBS: Final = _owner("Job", WireJob, owner_kinds.decode_job)
STATEFUL_SETS: Final = _owner("StatefulSet", WireStatefulSet, owner_kinds.decode_stateful_set)
JOB_SETS: Final = _owner("JobSet", WireJobSet, owner_kinds.decode_job_set)
RAY_CLUSTERS: Final = _owner("RayCluster", WireRayCluster, owner_kinds.decode_ray_cluster)
TRAINING_JOBS: Final = {
    kind: _owner(
        kind,
        WireTrainingJob,
        partial(owner_kinds.decode_training_job, kind=kind),
    )
    for kind in owner_kinds.KUBEFLOW
}
"""Those of Kubeflow, by kind."""
OWNERS: Final[tuple[Resource[Any, Any], ...]] = (
    JOBS,
    STATEFUL_SETS,
    JOB_SETS,
    RAY_CLUSTERS,
    *TRAINING_JOBS.values(),
)
"""Read from the first pod on that asks for the gang of its owner (semantics O7)."""
ALLOCATED: Final = (RESOURCE_SLICES, DEVICE_CLASSES, DEVICE_TAINT_RULES)
"""Read from the first pod with ResourceClaims on, to allocate devices."""
STORAGE: Final = (CLAIMS, VOLUMES, CLASSES, CSI_NODES, RESOURCE_CLAIMS)
"""Without one of them pods with such claims stay pending for it."""
