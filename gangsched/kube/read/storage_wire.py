"""Wire types of storage: the fields of claims, volumes, classes and CSINodes that the daemon reads,
and whole ResourceClaims.

Invariant: as in `wire`: types only, as the API server spells them.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from gangsched.kube.read.wire import (
    Amounts,
    LabelSelector,
    Meta,
    NodeSelector,
    ObjectIdentity,
    Resources,
    Wire,
)
from gangsched.model.bounds import UP_TO_MANY, UP_TO_SOME


class ClaimSpec(Wire):
    """v1.PersistentVolumeClaimSpec."""

    access_modes: Annotated[tuple[str, ...], UP_TO_MANY] | None = None
    storage_class_name: str | None = None
    volume_name: str = ""
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None
    resources: Resources | None = None
    selector: LabelSelector | None = None


class ClaimStatus(Wire):
    """v1.PersistentVolumeClaimStatus."""

    phase: str = ""


class WireClaim(Wire):
    """v1.PersistentVolumeClaim."""

    metadata: Meta
    spec: ClaimSpec = msgspec.field(default_factory=ClaimSpec)
    status: ClaimStatus = msgspec.field(default_factory=ClaimStatus)


class WireClaimRef(Wire):
    """v1.ObjectReference of a volume's claim."""

    namespace: str = ""
    name: str = ""
    uid: str = ""


class VolumeAffinity(Wire):
    """v1.VolumeNodeAffinity."""

    required: NodeSelector | None = None


class CsiSource(Wire):
    """v1.CSIPersistentVolumeSource."""

    driver: str = ""
    volume_handle: str = ""


class VolumeSpec(Wire):
    """v1.PersistentVolumeSpec."""

    capacity: Amounts | None = None
    access_modes: Annotated[tuple[str, ...], UP_TO_MANY] | None = None
    storage_class_name: str = ""
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None
    claim_ref: WireClaimRef | None = None
    node_affinity: VolumeAffinity | None = None
    csi: CsiSource | None = None


class VolumeStatus(Wire):
    """v1.PersistentVolumeStatus."""

    phase: str = ""


class WireVolume(Wire):
    """v1.PersistentVolume."""

    metadata: Meta
    spec: VolumeSpec = msgspec.field(default_factory=VolumeSpec)
    status: VolumeStatus = msgspec.field(default_factory=VolumeStatus)


class TopologyRequirement(Wire):
    """v1.TopologySelectorLabelRequirement."""

    key: str = ""
    values: Annotated[tuple[str, ...], UP_TO_MANY] = ()


class TopologyTerm(Wire):
    """v1.TopologySelectorTerm."""

    match_label_expressions: Annotated[tuple[TopologyRequirement, ...], UP_TO_SOME] | None = None


class WireStorageClass(Wire):
    """storage.k8s.io/v1 StorageClass."""

    metadata: Meta
    provisioner: str = ""
    volume_binding_mode: str | None = None
    allowed_topologies: Annotated[tuple[TopologyTerm, ...], UP_TO_SOME] | None = None


class ClaimMeta(Meta):
    """metav1.ObjectMeta with the finalizers."""

    finalizers: Annotated[tuple[str, ...], UP_TO_SOME] | None = None


class WireResourceClaim(Wire):
    """resource.k8s.io/v1 ResourceClaim; `kube.read.devices` reads what it asks for and has."""

    metadata: ClaimMeta
    spec: dict[str, Any] = msgspec.field(default_factory=dict)
    status: dict[str, Any] | None = None


class ClaimOutline(Wire):
    """A ResourceClaim that cannot be decoded as WireResourceClaim: its metadata has more entries
    than are read.
    """

    metadata: ObjectIdentity
    spec: dict[str, Any] = msgspec.field(default_factory=dict)
    status: dict[str, Any] | None = None


class WireDeviceObject(Wire):
    """A ResourceSlice, DeviceClass or DeviceTaintRule of resource.k8s.io."""

    metadata: Meta
    spec: dict[str, Any] = msgspec.field(default_factory=dict)

    def whole(self) -> dict[str, Any]:
        """The whole object as a mapping."""
        meta = {"name": self.metadata.name, "creationTimestamp": self.metadata.creation_timestamp}
        return {"metadata": meta, "spec": self.spec}


class Attachable(Wire):
    """storage.k8s.io/v1 VolumeNodeResources."""

    count: int | None = None


class Driver(Wire):
    """storage.k8s.io/v1 CSINodeDriver."""

    name: str = ""
    allocatable: Attachable | None = None


class CsiNodeSpec(Wire):
    """storage.k8s.io/v1 CSINodeSpec."""

    drivers: Annotated[tuple[Driver, ...], UP_TO_SOME] | None = None


class WireCsiNode(Wire):
    """storage.k8s.io/v1 CSINode."""

    metadata: Meta
    spec: CsiNodeSpec = msgspec.field(default_factory=CsiNodeSpec)
