"""Decode claims, volumes, classes, CSINodes and ResourceClaims into the model.

Invariant: as in `decode`: an object becomes a value or a `DecodeFault` that names it. `core.filter`
decides what a claim allows.
"""

from __future__ import annotations

import msgspec

from gangsched.kube.read.decode import DecodeFault, check_size, controller_of
from gangsched.kube.read.devices import claim_asks, has_more
from gangsched.kube.read.inter_pod import label_selector
from gangsched.kube.read.shapes import selector_terms
from gangsched.kube.read.storage_wire import (
    ClaimOutline,
    WireClaim,
    WireCsiNode,
    WireResourceClaim,
    WireStorageClass,
    WireVolume,
)
from gangsched.kube.read.wire import Amounts, Identified, Meta, NodeSelector
from gangsched.model.inter_pod import Requirement
from gangsched.model.objects import NOTHING
from gangsched.model.storage import Claim, ClaimRef, CsiNode, ResourceClaim, StorageClass, Volume
from kubernetes_cel.amounts import QuantityError, parse_quantity

FINALIZER = "resource.kubernetes.io/delete-protection"
"""Without it controller-manager never deallocates a claim whose consumers are gone."""
BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
OLD_STORAGE_CLASS = "volume.beta.kubernetes.io/storage-class"
ZONE_LABELS = (
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
)
ZONES_BETWEEN = "__"


def decode_claim(wire: WireClaim) -> Claim:
    """The claim. Raises DecodeFault for an invalid request."""
    meta = wire.metadata
    spec = wire.spec
    annotations = meta.annotations or NOTHING
    check_size(spec, "PersistentVolumeClaim", meta)

    return Claim(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        resource_version=meta.resource_version,
        # The beta annotation wins over the field, as in component-helpers.
        storage_class=annotations.get(OLD_STORAGE_CLASS, spec.storage_class_name or ""),
        volume_name=spec.volume_name,
        # spec.volumeName is set before the controller has bound the volume; kube-scheduler waits
        # for the annotation, too.
        bound=bool(spec.volume_name) and BIND_COMPLETED in annotations,
        lost=wire.status.phase == "Lost",
        deleting=meta.deletion_timestamp is not None,
        selected_node=annotations.get(SELECTED_NODE),
        owner_uid=controller_of(meta.owner_references).uid,
        access_modes=spec.access_modes or (),
        volume_mode=spec.volume_mode or "Filesystem",
        attributes_class=spec.volume_attributes_class_name or "",
        request_bytes=_bytes(
            spec.resources.requests if spec.resources is not None else None,
            "claim",
            meta,
        ),
        # Unlike for pods, no selector selects every volume.
        selector=() if spec.selector is None else label_selector(spec.selector),
    )


def instead_of_claim(identity: WireClaim | Identified, old: Claim | None, why: str) -> Claim:
    """Replacement for a claim that cannot be decoded: pods that use it are refused with
    the reason.
    """
    meta = identity.metadata
    return Claim(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        resource_version=meta.resource_version,
        # A pod that runs goes on using its volume.
        volume_name=old.volume_name if old is not None else "",
        bound=old is not None and old.bound,
        unread=why,
    )


def decode_volume(wire: WireVolume) -> Volume:
    """The volume. Raises DecodeFault for an invalid capacity."""
    meta = wire.metadata
    spec = wire.spec
    labels = meta.labels or NOTHING
    required = spec.node_affinity.required if spec.node_affinity is not None else None
    ref = spec.claim_ref

    return Volume(
        name=meta.name,
        uid=meta.uid,
        resource_version=meta.resource_version,
        labels=labels,
        storage_class=(meta.annotations or NOTHING).get(OLD_STORAGE_CLASS, spec.storage_class_name),
        capacity_bytes=_bytes(spec.capacity, "volume", meta),
        access_modes=spec.access_modes or (),
        volume_mode=spec.volume_mode or "Filesystem",
        attributes_class=spec.volume_attributes_class_name or "",
        available=wire.status.phase == "Available",
        deleting=meta.deletion_timestamp is not None,
        claim=ClaimRef(ref.namespace, ref.name, ref.uid) if ref is not None else None,
        required=None if required is None else selector_terms(required),
        zones=tuple(
            (key, zones) for key in ZONE_LABELS if key in labels and (zones := _zones(labels[key]))
        ),
        driver=spec.csi.driver if spec.csi is not None else "",
        handle=spec.csi.volume_handle if spec.csi is not None else "",
    )


def decode_class(wire: WireStorageClass) -> StorageClass:
    """The storage class."""
    terms = (term.match_label_expressions or () for term in wire.allowed_topologies or ())
    return StorageClass(
        name=wire.metadata.name,
        provisioner=wire.provisioner,
        waits=wire.volume_binding_mode == "WaitForFirstConsumer",
        topologies=tuple(
            tuple(
                Requirement(topology_requirement.key, "In", topology_requirement.values)
                for topology_requirement in term
            )
            for term in terms
        ),
    )


def decode_csi_node(wire: WireCsiNode) -> CsiNode:
    """The limits that the node's drivers declare."""
    drivers = wire.spec.drivers or ()
    limits = (
        (driver.name, driver.allocatable.count)
        for driver in drivers
        if driver.allocatable is not None
    )
    return CsiNode(
        wire.metadata.name,
        tuple((name, count) for name, count in limits if count is not None),
    )


def decode_resource_claim(wire: WireResourceClaim) -> ResourceClaim:
    """The ResourceClaim."""
    meta = wire.metadata
    status = wire.status or {}
    allocation = status.get("allocation")
    selector = (allocation or {}).get("nodeSelector")

    return ResourceClaim(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        resource_version=meta.resource_version,
        owner_uid=controller_of(meta.owner_references).uid,
        deleting=meta.deletion_timestamp is not None,
        allocated=allocation is not None,
        required=(
            None if selector is None else selector_terms(msgspec.convert(selector, NodeSelector))
        ),
        reserved=tuple(consumer.get("uid", "") for consumer in status.get("reservedFor") or ()),
        finalizers=meta.finalizers or (),
        has_more=has_more(wire.spec),
        asks=claim_asks(meta.namespace, meta.name, meta.uid, wire.spec, status),
    )


def instead_of_resource_claim(
    wire: WireResourceClaim | ClaimOutline,
    old: ResourceClaim | None,
    why: str,
) -> ResourceClaim | None:
    """Replacement for a claim that cannot be decoded: its last version, or one that no other pod
    may use, whose devices are in use.
    """
    if old is not None or isinstance(wire, WireResourceClaim):
        return old

    meta = wire.metadata
    status = wire.status or {}
    asks = claim_asks(meta.namespace, meta.name, meta.uid, wire.spec, status)

    return ResourceClaim(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        resource_version=meta.resource_version,
        # Its devices must not look free, whatever else is unknown.
        allocated=status.get("allocation") is not None,
        required=(),  # which no node matches
        asks=msgspec.structs.replace(asks, unknown=why),
    )


def _bytes(amounts: Amounts | None, noun: str, meta: Meta) -> int:
    try:
        return parse_quantity((amounts or {}).get("storage", 0))
    except QuantityError as error:
        who = f"{meta.namespace}/{meta.name}".strip("/")
        raise DecodeFault(f"The {noun} {who} cannot be understood: storage {error}") from error


def _zones(text: str) -> tuple[str, ...]:
    """The values of a volume's zone label, `a__b` for two; () where it is spoilt, as kube-scheduler
    ignores it then.
    """
    zones = tuple(zone.strip() for zone in text.split(ZONES_BETWEEN))
    return zones if all(zones) else ()
