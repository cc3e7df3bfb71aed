"""Requirements of a pod's claims on a node: the PreFilter of the volume plugins and of
DynamicResources.

Invariant: nothing is reserved here and no node is read. The first problem is the one that
kube-scheduler would report.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import chain
from typing import TypeAlias

from gangsched.core.devices.located import DeviceKind
from gangsched.core.filter.volumes.extended_claims import ExtendedNeed, extended_need
from gangsched.core.work import Work
from gangsched.model.gang import Refusal
from gangsched.model.objects import DEVICES, ClaimUse, Pod
from gangsched.model.reasons import Reason
from gangsched.model.storage import (
    ALLOCATING,
    READ_WRITE_ONCE_POD,
    RESOURCES,
    Claim,
    GroupConsumer,
    ResourceClaim,
    Storage,
    Volume,
)
from gangsched.model.verdict_facts import Worded

UNREAD = "gangsched has no permission to read {}, which it needs {}"
UNBOUND_IMMEDIATE = "pod has unbound immediate PersistentVolumeClaims"
UNITS_PER_NEEDS = 15
"""Units of looking up one claim of a pod and what it is bound to."""
# resource.k8s.io/v1, ResourceClaimReservedForMaxSize.
RESERVATIONS_MAX = 256
"""As many consumers as the API lets a ResourceClaim have."""

Disk: TypeAlias = tuple[str, str]
"""(driver, handle) of what a CSI driver attaches."""
Found: TypeAlias = Sequence[tuple[ClaimUse, Claim | None]]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ClaimNeeds:
    """Requirements of a pod's claims."""

    #: Why no node can satisfy them, None if a node may.
    problem: Refusal | None = None
    #: Volumes of bound claims; VolumeZone checks those in `zoned`.
    bound: tuple[Volume, ...] = ()
    zoned: tuple[Volume, ...] = ()
    volume_missing: bool = False
    #: Claims that wait for a node, smallest first.
    unbound: tuple[Claim, ...] = ()
    #: Keys of claims that only one pod at a time may use.
    exclusive: tuple[str, ...] = ()
    #: All disks to attach.
    disks: tuple[Disk, ...] = ()
    #: Allocated ResourceClaims.
    devices: tuple[ResourceClaim, ...] = ()
    #: ResourceClaims for which devices are chosen; together they request `kind`.
    unallocated: tuple[ResourceClaim, ...] = ()
    kind: DeviceKind | None = None
    #: Unallocated claims that several pods use, each with its kind; `own` is the kind of the
    #: others.
    sharing: tuple[tuple[ResourceClaim, DeviceKind], ...] = ()
    own: DeviceKind | None = None
    #: PodGroups that ResourceClaims are reserved for, by key of the claim.
    consumers: Mapping[str, GroupConsumer] = field(default_factory=dict)
    #: The claim that gangsched makes for extended resources, which differs by node and is in none
    #: of the above.
    extended: ExtendedNeed | None = None

    def users(self, pod: Pod, claim: ResourceClaim) -> set[str]:
        """The uids under which a ResourceClaim may be reserved for the pod: its own, or its
        PodGroup's.
        """
        consumer = self.consumers.get(claim.key)
        if consumer is None:
            return {pod.uid}

        return {pod.uid, consumer.uid}


class NeedsOfPods:
    """`claim_needs` of each pod, cached: for 2,000 pods it takes half of a plan's work. `known` has
    the results by owner and claims.
    """

    __slots__ = ("_of_pod", "_storage", "_work", "known")

    def __init__(self, storage: Storage, work: Work) -> None:
        self._storage = storage
        self._work = work
        self.known: dict[tuple[str, object], ClaimNeeds] = {}

        # By identity, with the pod, which keeps the number its own: a plan asks about ten times for
        # each member.
        self._of_pod: dict[int, tuple[Pod, ClaimNeeds]] = {}

    def __call__(self, pod: Pod) -> ClaimNeeds:
        """Requirements of the pod's claims. Raises OutOfWork."""
        before = self._of_pod.get(id(pod))
        if before is not None:
            return before[1]

        owner = (
            pod.uid
            if any(use.ephemeral for use in pod.claims)
            else f"{pod.namespace}/{pod.native_group}"
        )
        # Members of one gang usually name the same claims; those from templates differ by pod.
        key = (owner, pod.claims)

        needs = self.known.get(key)
        if needs is None:
            self._work.charge(UNITS_PER_NEEDS * len(pod.claims))
            needs = self.known[key] = claim_needs(pod, self._storage)

        self._of_pod[id(pod)] = pod, needs
        return needs


def claim_needs(pod: Pod, storage: Storage) -> ClaimNeeds:
    """Look up the pod's claims, and derive what they require of a node."""
    found = [
        (use, storage.claims.get(use.key(pod.namespace))) for use in pod.claims if not use.device
    ]
    claims = [claim for _, claim in found if claim is not None]
    own = [claim for use, claim in found if claim is not None and not use.ephemeral]
    volumes = {claim.key: storage.volumes.get(claim.volume_name) for claim in claims if claim.bound}
    unbound = dict.fromkeys(claim for claim in claims if not claim.bound)

    # A bound pod's claim for extended resources is like any other; before the bind it differs by
    # node.
    made = next((use for use in pod.claims if use.extended and not pod.node_name), None)
    extended = None if made is None else extended_need(pod, made, storage)
    devices = [
        (use, storage.devices.get(use.key(pod.namespace)))
        for use in pod.claims
        if use.device and use is not made
    ]
    allocated = dict.fromkeys(
        claim for _, claim in devices if claim is not None and claim.allocated
    )
    problem = next(
        chain(
            _volume_problems(pod, found, storage),
            _device_problems(pod, devices, storage),
            () if extended is None else _extended_problems(pod, extended, storage),
        ),
        None,
    )

    if extended is not None and extended.claim is not None and extended.claim.allocated:
        allocated[extended.claim] = None

    missing = dict.fromkeys(
        claim for _, claim in devices if claim is not None and not claim.allocated
    )
    # A pod with a problem goes nowhere, and the kind of a broken claim might be in error itself.
    unallocated = () if problem is not None else tuple(missing)
    kinds = [
        (claim, storage.allocator.kind((claim.asks,)))
        for claim in unallocated
        if claim.key in storage.shared
    ]

    return ClaimNeeds(
        problem=problem,
        bound=tuple(volume for volume in volumes.values() if volume is not None),
        zoned=tuple(
            volume
            for claim in own
            if (volume := volumes.get(claim.key)) is not None and volume.zones
        ),
        volume_missing=None in volumes.values(),
        # As kube-scheduler's volume binder: small claims first, so that they do not take large
        # volumes.
        unbound=tuple(sorted(unbound, key=lambda claim: claim.request_bytes)),
        exclusive=tuple(claim.key for claim in own if READ_WRITE_ONCE_POD in claim.access_modes),
        disks=tuple(
            dict.fromkeys(disk for claim in claims if (disk := disk_of(claim, storage)) is not None)
        ),
        devices=tuple(allocated),
        unallocated=unallocated,
        kind=_kind(unallocated, storage),
        sharing=tuple(kinds),
        own=_kind([claim for claim in unallocated if claim.key not in storage.shared], storage),
        consumers={
            use.key(pod.namespace): by
            for use, _ in devices
            if (by := storage.consumer(pod, use)) is not None
        },
        extended=None if problem is not None else extended,
    )


def _kind(claims: Sequence[ResourceClaim], storage: Storage) -> DeviceKind | None:
    if not claims:
        return None

    kind: DeviceKind | None = storage.allocator.kind(claim.asks for claim in claims)
    return kind


def disk_of(claim: Claim, storage: Storage) -> Disk | None:
    """The disk that is, or will be, attached for the claim; None if the claim has no CSI driver."""
    volume = storage.volumes.get(claim.volume_name)
    if volume is not None:
        if volume.driver and volume.handle:
            return (volume.driver, volume.handle)

        return None

    known = storage.classes.get(claim.storage_class)
    # nothing comes of it, or nothing from CSI
    if known is None or known.provisioner.startswith("kubernetes.io/"):
        return None

    return (known.provisioner, claim.key)


def _volume_problems(pod: Pod, found: Found, storage: Storage) -> Iterator[Refusal]:
    """Without every kind no claim can be judged; then claims that are missing; then each claim in
    turn.
    """
    unread = storage.unread - {ResourceClaim} - ALLOCATING
    if found and unread:
        yield _waits(UNREAD.format(_plurals(unread), "to schedule pods with volumes"))

    for use, claim in found:
        if claim is None and not use.ephemeral:
            yield _waits(f'persistentvolumeclaim "{use.name}" not found')

    yield from (
        _waits(problem) for use, claim in found if (problem := _claim_problem(pod, use, claim))
    )
    if any(_unbound_immediate(claim, storage) for _, claim in found if claim is not None):
        yield _waits(UNBOUND_IMMEDIATE)

    for use, claim in found:
        if (
            claim is not None
            and claim.bound
            and not use.ephemeral
            and claim.volume_name not in storage.volumes
        ):
            yield _waits(f'persistentvolume "{claim.volume_name}" not found')


def _claim_problem(pod: Pod, use: ClaimUse, claim: Claim | None) -> str:
    if claim is None:
        return (
            "waiting for ephemeral volume controller to create the persistentvolumeclaim"
            f' "{use.name}"'
        )
    if claim.unread:
        return f'persistentvolumeclaim "{use.name}" cannot be read: {claim.unread}'
    if claim.lost:
        return (
            f'persistentvolumeclaim "{use.name}" bound to non-existent persistentvolume'
            f' "{claim.volume_name}"'
        )
    if claim.deleting:
        return f'persistentvolumeclaim "{use.name}" is being deleted'
    if use.ephemeral and claim.owner_uid != pod.uid:
        return f"PVC {claim.key} was not created for pod {pod.key} (pod is not owner)"

    return ""


def _unbound_immediate(claim: Claim, storage: Storage) -> bool:
    """Whether the controller binds the claim without waiting for a node, and has not yet."""
    known = storage.classes.get(claim.storage_class)
    # A claim that names its volume is bound by the controller, too, whatever its class says.
    return not claim.bound and (bool(claim.volume_name) or known is None or not known.waits)


def _device_problems(
    pod: Pod,
    found: Sequence[tuple[ClaimUse, ResourceClaim | None]],
    storage: Storage,
) -> Iterator[Refusal]:
    """Why a claim cannot be used or allocated by this pod, whatever the nodes have."""
    if found and ResourceClaim in storage.unread:
        yield _waits(UNREAD.format("resourceclaims", "to schedule pods with resource claims"))

    for use, claim in found:
        problem = _device_problem(pod, use, claim, storage)
        if problem:
            yield _waits(problem)
        elif claim is not None and not claim.allocated:
            yield from _allocation_problems(claim, storage)


def _allocation_problems(claim: ResourceClaim, storage: Storage) -> Iterator[Refusal]:
    """Why gangsched does not allocate the claim."""
    if storage.allocator is None:
        yield _unsupported(
            f'resourceclaim "{claim.name}" is not allocated, and the setting "devices" is'
            ' "allocated"'
        )
    elif storage.unread & ALLOCATING:
        yield _unsupported(
            f'resourceclaim "{claim.name}" is not allocated, and gangsched cannot allocate devices'
        )
    elif unlisted := _unlisted(storage, ALLOCATING, "to allocate resource claims"):
        yield unlisted
    elif claim.asks is None:
        yield _unsupported(f'resourceclaim "{claim.name}" has a spec that gangsched cannot read')
    elif claim.asks.unknown:
        what = claim.asks.unknown
        yield _unsupported(
            f'resourceclaim "{claim.name}" uses {what}, which gangsched does not support'
        )
    else:
        asked = (request for group in claim.asks.requests for request in group)
        lacking = (
            device_request
            for device_request in asked
            if device_request.class_name not in storage.allocator.classes
        )
        yield from (
            _waits(
                f"request {device_request.full_name}: device class {device_request.class_name} does"
                " not exist"
            )
            for device_request in lacking
        )


def _unlisted(storage: Storage, needed: Set[type], purpose: str) -> Refusal | None:
    """Why some of these kinds of objects are not known, if they are not."""
    if unread := storage.unread & needed:
        return _unsupported(UNREAD.format(_plurals(unread), purpose))
    if storage.awaits:
        return _waits(f"waiting for the list of {_plurals(storage.awaits)}")

    return None


def _plurals(kinds: Iterable[type]) -> str:
    return ", ".join(sorted(RESOURCES[kind] for kind in kinds))


def _extended_problems(pod: Pod, extended: ExtendedNeed, storage: Storage) -> Iterator[Refusal]:
    """Why no claim for extended resources can be made for this pod, whatever the nodes have."""
    claim = extended.claim
    needed = {ResourceClaim, *ALLOCATING}
    if unlisted := _unlisted(storage, needed, "to allocate devices for extended resources"):
        yield unlisted
    elif claim is not None and claim.deleting:
        yield _waits(f'resourceclaim "{claim.name}" is being deleted')
    elif claim is not None and claim.owner_uid != pod.uid:
        yield _waits(
            f'resourceclaim "{claim.name}" was not created for pod {pod.key} (pod is not owner)'
        )
    elif f"{DEVICES}/{extended.namespace}/{extended.name}" in storage.outdated:
        yield _waits(f'resourceclaim "{extended.name}" is being changed by gangsched')


def _device_problem(
    pod: Pod,
    use: ClaimUse,
    claim: ResourceClaim | None,
    storage: Storage,
) -> str:
    if not use.name:
        return f'pod "{pod.key}": ResourceClaim not created yet'
    if claim is None:
        return f'could not find ResourceClaim "{pod.namespace}/{use.name}"'
    if claim.deleting:
        return f'resourceclaim "{claim.name}" is being deleted'
    if claim.key in storage.outdated:
        return f'resourceclaim "{claim.name}" is being changed by gangsched'

    consumer = storage.consumer(pod, use)
    owners = {pod.uid} if consumer is None else {pod.uid, consumer.uid}
    if use.ephemeral and claim.owner_uid not in owners:
        not_owner = (
            "Pod is not owner"
            if consumer is None
            else f"neither Pod nor PodGroup {consumer.name} is the owner"
        )
        return (
            f"ResourceClaim {claim.namespace}/{claim.name} was not created for Pod {pod.key}"
            f" ({not_owner})"
        )

    if (
        claim.allocated
        and owners.isdisjoint(claim.reserved)
        and len(claim.reserved) >= RESERVATIONS_MAX
    ):
        return f'resourceclaim "{claim.name}" has {len(claim.reserved)} consumers, the maximum'

    return ""


def _unsupported(problem: str) -> Refusal:
    return Refusal(Reason.UNSUPPORTED, Worded(problem))


def _waits(problem: str) -> Refusal:
    return Refusal(Reason.WAITING_FOR_VOLUMES, Worded(problem))
