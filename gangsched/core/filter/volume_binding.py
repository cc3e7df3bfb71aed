"""kube-scheduler's VolumeBinding: what a pod's claims ask of a node, and which volumes unbound ones could have there.

Law: `asked_of` is its PreFilter: what rules out every node is told before any node is looked at. `candidates` are the
existing volumes for an unbound claim, `provisionable` where it could get a new one. Nothing is taken here. Capacity of
a CSI driver (CSIStorageCapacity) is not looked at, nor are in-tree volumes translated to CSI.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from gangsched.core.filter.dynamic_resources import devices_of
from gangsched.core.filter.node_affinity import requirement_met
from gangsched.model.inter_pod import Requirement, selects
from gangsched.model.objects import ClaimUse, NodeSelectorTerm, Pod
from gangsched.model.snapshot import Bools, NodeTable
from gangsched.model.storage import (
    NO_PROVISIONER,
    READ_WRITE_ONCE_POD,
    RESOURCES,
    Claim,
    ResourceClaim,
    Storage,
    StorageClass,
    Volume,
)

NODE_CONFLICT = "node(s) didn't match PersistentVolume's node affinity"
NOTHING_TO_BIND = "node(s) didn't find available persistent volumes to bind"
NO_VOLUME = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
UNREAD = "this scheduler may not read {}, which pods with volumes need"
UNBOUND_IMMEDIATE = "pod has unbound immediate PersistentVolumeClaims"


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Asked:
    """What the claims of a pod come to; `problem` is why no node can do, "" if one may.

    `bound` are the volumes of bound claims (of which `zoned` are looked at by VolumeZone), `unbound` the claims that
    wait for a node, smallest first. `exclusive` are keys of claims that one pod at a time may use. `disks` are (driver,
    handle) of everything to be attached. `devices` are allocated ResourceClaims; `unsupported` says that the problem is
    with one that is not.
    """

    problem: str = ""
    bound: tuple[Volume, ...] = ()
    zoned: tuple[Volume, ...] = ()
    volume_missing: bool = False
    unbound: tuple[Claim, ...] = ()
    exclusive: tuple[str, ...] = ()
    disks: tuple[tuple[str, str], ...] = ()
    devices: tuple[ResourceClaim, ...] = ()
    unsupported: bool = False


def asked_of(pod: Pod, storage: Storage) -> Asked:
    """Look the pod's claims up; the first problem is the one kube-scheduler would tell."""
    found = [(use, storage.claims.get(use.key(pod.namespace))) for use in pod.claims if not use.device]
    claims = [claim for _, claim in found if claim is not None]
    own = [claim for use, claim in found if claim is not None and not use.ephemeral]
    volumes = {claim.key: storage.volumes.get(claim.volume_name) for claim in claims if claim.bound}
    unbound = [claim for claim in claims if not claim.bound]
    problem = (_unread(storage) if found else "") or _problem(pod, found)
    if not problem and any(claim.volume_name or not _waits(claim, storage) for claim in unbound):
        problem = UNBOUND_IMMEDIATE
    if not problem:
        problem = next(
            (
                f'persistentvolume "{claim.volume_name}" not found'
                for claim in own
                if claim.bound and volumes[claim.key] is None
            ),
            "",
        )
    devices = devices_of(pod, storage)
    return Asked(
        problem=problem or devices.problem,
        devices=devices.claims,
        unsupported=devices.unsupported and not problem,
        bound=tuple(volume for volume in volumes.values() if volume is not None),
        zoned=tuple(volume for claim in own if (volume := volumes.get(claim.key)) is not None and volume.zones),
        volume_missing=None in volumes.values(),
        unbound=tuple(sorted(dict.fromkeys(unbound), key=lambda claim: claim.request_bytes)),
        exclusive=tuple(claim.key for claim in own if READ_WRITE_ONCE_POD in claim.access_modes),
        disks=tuple(dict.fromkeys(disk for claim in claims if (disk := disk_of(claim, storage)) is not None)),
    )


def disk_of(claim: Claim, storage: Storage) -> tuple[str, str] | None:
    """(driver, handle) of what the claim has attached or will have; None for what no CSI driver attaches."""
    volume = storage.volumes.get(claim.volume_name)
    if volume is not None:
        return (volume.driver, volume.handle) if volume.driver and volume.handle else None
    known = storage.classes.get(claim.storage_class)
    if known is None or known.provisioner.startswith("kubernetes.io/"):  # nothing comes of it, or nothing from CSI
        return None
    return (known.provisioner, claim.key)


def _unread(storage: Storage) -> str:
    """Without every kind no claim can be judged: what cannot be seen is not absent."""
    unread = storage.unread - {ResourceClaim}
    return UNREAD.format(", ".join(sorted(RESOURCES[kind] for kind in unread))) if unread else ""


def _problem(pod: Pod, found: list[tuple[ClaimUse, Claim | None]]) -> str:
    """VolumeRestrictions asks first, for claims that are missing; then each claim in turn."""
    for use, claim in found:
        if claim is None and not use.ephemeral:
            return f'persistentvolumeclaim "{use.name}" not found'
    for use, claim in found:
        if claim is None:
            return f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{use.name}"'
        if claim.lost:
            return f'persistentvolumeclaim "{use.name}" bound to non-existent persistentvolume "{claim.volume_name}"'
        if claim.deleting:
            return f'persistentvolumeclaim "{use.name}" is being deleted'
        if use.ephemeral and claim.owner_uid != pod.uid:
            return f"PVC {claim.key} was not created for pod {pod.key} (pod is not owner)"
    return ""


def _waits(claim: Claim, storage: Storage) -> bool:
    known = storage.classes.get(claim.storage_class)
    return known is not None and known.waits


def reachable(required: tuple[NodeSelectorTerm, ...] | None, table: NodeTable) -> Bools:
    """`reachable[node]`: a volume's node affinity lets the node use it. Only labels count, never the node's name."""
    if required is None:
        return np.ones(len(table), dtype=np.bool_)
    mask = np.zeros(len(table), dtype=np.bool_)
    for term in required:
        if (term.labels or term.fields) and all(field.operator == "NotIn" for field in term.fields):
            mask |= _all_met(term.labels, table)
    return mask


def provisionable(known: StorageClass | None, table: NodeTable) -> Bools:
    """`provisionable[node]`: the class makes new volumes for this node."""
    if known is None or known.provisioner in {"", NO_PROVISIONER}:
        return np.zeros(len(table), dtype=np.bool_)
    mask = np.full(len(table), not known.topologies)
    for term in known.topologies:
        if term:
            mask |= _all_met(term, table)
    return mask


def _all_met(requirements: Iterable[Requirement], table: NodeTable) -> Bools:
    mask = np.ones(len(table), dtype=np.bool_)
    for requirement in requirements:
        mask &= requirement_met(requirement, table)
    return mask


def candidates(claim: Claim, volumes: Iterable[Volume], taken: Mapping[str, str]) -> list[Volume]:
    """The volumes that claim could be bound to, the smallest first; one that is kept for it comes alone.

    `volumes` are those of the claim's class; `taken` maps volumes given away in this plan
    to the key of the claim that has them.
    """
    fitting = []
    for volume in volumes:
        if taken.get(volume.name, claim.key) != claim.key:
            continue
        if volume.capacity_bytes < claim.request_bytes or volume.volume_mode != claim.volume_mode:
            continue
        if volume.attributes_class != claim.attributes_class or volume.deleting:
            continue
        if volume.claim is not None:
            if volume.claim.means(claim):
                return [volume]
            continue
        suits = volume.available and volume.storage_class == claim.storage_class
        if suits and selects(claim.selector, volume.labels) and set(claim.access_modes) <= set(volume.access_modes):
            fitting.append(volume)
    return sorted(fitting, key=lambda volume: (volume.capacity_bytes, volume.name))
