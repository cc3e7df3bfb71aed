"""Storage in use while a plan is made, and the volumes picked for unbound claims.

Invariant: usage starts from the snapshot's storage and follows every pod with claims that is placed
or removed; undoing a move restores everything, including the picked volumes. Nothing is computed
before the first pod with claims.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Set
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType

import numpy as np
from msgspec.structs import replace

from gangsched.core.devices.device_use import DeviceUse
from gangsched.core.filter.volumes.claim_devices import ClaimDevices, WantedDevices
from gangsched.core.filter.volumes.claim_needs import (
    RESERVATIONS_MAX,
    ClaimNeeds,
    Disk,
    NeedsOfPods,
    disk_of,
)
from gangsched.core.filter.volumes.extended_claims import ExtendedClaims
from gangsched.core.filter.volumes.volume_matching import ReachableNodes, candidates, provisionable
from gangsched.core.work import Work
from gangsched.model.objects import ClaimUse, Pod
from gangsched.model.snapshot import Bools, Ints, NodeTable
from gangsched.model.storage import SHARED_MODES, Claim, ResourceClaim, Selection, Storage, Volume

# 32 bits in 64: limits minus attachments cannot overflow.
NO_LIMIT = np.iinfo(np.int32).max
UNITS_TO_COMPARE = 8
"""Units of comparing the claims of two pods."""
PickedByNode = dict[int, Volume]


@dataclass(frozen=True, slots=True)
class Matching:
    """For one pod: the volume picked for each unbound claim, by claim key and node.

    `allowed[node]`: all these claims can be satisfied on the node.
    """

    allowed: Bools
    picked: Mapping[str, PickedByNode]


@dataclass(slots=True)
class Taken:
    """Claims and volumes that the plan has taken: pods by claim, claims by picked volume, nodes by
    claim to be provisioned.

    `volume_of[claim]` is the inverse of `volumes`. `attached[disk][node]` counts the pods that use
    a disk on a node, and `counts[driver][node]` the distinct disks attached.
    """

    users: Counter[str] = field(default_factory=Counter)
    volumes: dict[str, str] = field(default_factory=dict)
    volume_of: dict[str, str] = field(default_factory=dict)
    provisioned_on: dict[str, str] = field(default_factory=dict)
    attached: dict[Disk, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    counts: dict[str, Ints] = field(default_factory=dict)

    def select(self, selected: tuple[Selection, ...], sign: int) -> None:
        """Mark the volumes picked for a pod as taken (+1) or free (-1)."""
        for selection in selected:
            for taken_by, name, value in (
                (self.volumes, selection.volume, selection.key),
                (self.volume_of, selection.key, selection.volume),
                (self.provisioned_on, selection.key, selection.node),
            ):
                if not name or not value:
                    continue

                if sign > 0:
                    taken_by[name] = value
                else:
                    taken_by.pop(name, None)

    def attach(
        self,
        disk: Disk,
        node: int,
        sign: int,
        size: int,
    ) -> None:
        """Count a pod that starts (+1) or stops (-1) using the disk on the node."""
        driver, _ = disk
        counts = self.counts.setdefault(driver, np.zeros(size, dtype=np.int64))
        pods = self.attached[disk]
        before = pods[node]
        after = before + sign

        pods[node] = after
        counts[node] += (after > 0) - (before > 0)


class StorageUse:
    """Claims in use, volumes picked and disks attached at this point of the plan.

    `needs` looks up the requirements of a pod's claims, and `reachable` the nodes that match terms.
    Both are separate objects: with bound methods each plan would be a reference cycle, and
    collecting 50 such plans takes as long as making one.
    """

    def __init__(
        self,
        table: NodeTable,
        storage: Storage,
        work: Work | None = None,
        served: Mapping[str, Bools] = MappingProxyType({}),
    ) -> None:
        """`served[name][n]`: node `n` offers that extended resource only through devices."""
        self.table = table
        self.served = served
        self._work = Work() if work is None else work
        self.storage = storage
        self.needs = NeedsOfPods(storage, self._work)
        self.reachable = ReachableNodes(table)
        self._limits: dict[str, Ints | None] = {}
        self._selected: dict[str, tuple[Selection, ...]] = {}
        self._left: dict[str, list[tuple[Selection, ...]]] = {}  # the latest last
        self._matchings: dict[ClaimNeeds, tuple[int, Matching]] = {}
        self._version = 0
        self._consumers: dict[str, set[str]] | None = None

        # None unless devices are allocated: everything below then costs nothing.
        self.devices: DeviceUse | None = None
        self.claim_devices: ClaimDevices | None = None
        if storage.allocator is not None:
            self.devices = DeviceUse(table, storage.allocator, self._work, self.reachable)
            self.claim_devices = ClaimDevices(
                table,
                storage,
                self.devices,
                ExtendedClaims(table, served),
                self._work,
                self.needs,
            )

    # --- what is taken ---------------------------------------------------------------------------

    def come(self, pod: Pod, node: int) -> None:
        """Place a pod with claims on a node and pick its volumes."""
        # Before the devices: the volumes are picked on the state in which the filters saw the node.
        selected = self._select(pod, node)
        self._move(pod, node, selected, +1)
        self._consume(pod, is_there=True)

        if self.claim_devices is not None:
            self.claim_devices.come(pod, node)

    def take_back(self, pod: Pod, node: int) -> None:
        """Undo `come`: remove the pod, and forget what was picked for it. No effect on a pod that
        has not come, because the work ran out before.
        """
        selected = self._selected.get(pod.uid)
        if selected is None:
            return

        self._move(pod, node, selected, -1)
        self._consume(pod, is_there=False)

        if self.claim_devices is not None:
            self.claim_devices.take_back(pod)

    def go(self, pod: Pod, node: int) -> None:
        """Remove a pod with claims from its node."""
        # What was picked is remembered, since picking again after an undo might choose another
        # volume.
        before_plan = self.storage.selections.get(pod.uid, ())
        selected = self._selected.get(pod.uid, before_plan)
        self._left.setdefault(pod.uid, []).append(selected)

        self._move(pod, node, selected, -1)
        self._consume(pod, is_there=False)

        if self.claim_devices is not None:
            self.claim_devices.go(pod, node)

    def come_back(self, pod: Pod, node: int) -> None:
        """Undo `go`: put the pod back on its node, with the volumes that were picked for it."""
        selected = self._left[pod.uid].pop()
        self._move(pod, node, selected, +1)
        self._consume(pod, is_there=True)

        if self.claim_devices is not None:
            self.claim_devices.come_back(pod, node)

    def selected(self, pod: Pod) -> tuple[Selection, ...]:
        """Volumes picked for a pod that this plan placed; empty for any other pod."""
        if not pod.claims:
            return ()

        return self._selected.get(pod.uid, ())

    def places_left(
        self,
        pod: Pod,
        beside: Set[str] = frozenset(),
    ) -> dict[str, int]:
        """By key of each ResourceClaim that the pod may share with others: how many further pods
        can be consumers, the pod and those with the uids `beside` among them.

        The API server refuses more than `RESERVATIONS_MAX` of them, and the bind of a pod that is
        none.
        """
        shared = shared_claims(pod)
        if not shared:
            return {}

        if self._consumers is None:
            self._work.charge(len(self.storage.users) // 8)
            self._consumers = {}
            # In addition to what the claims say: the writes for these may be under way.
            for other, _ in self.storage.users.values():
                self._consume(other, is_there=True)

        places: dict[str, int] = {}
        for use in shared:
            key = use.key(pod.namespace)
            claim = self.storage.devices.get(key)
            if claim is None or self.storage.consumer(pod, use) is not None:
                continue

            # A claim that was written for a start which then failed has its members already.
            consumers = {*claim.reserved, *self._consumers.get(key, ())}
            consumers -= beside
            consumers.discard(pod.uid)
            places[key] = max(0, RESERVATIONS_MAX - len(consumers))

        return places

    def _consume(self, pod: Pod, *, is_there: bool) -> None:
        if self._consumers is None:
            return

        for use in shared_claims(pod):
            key = use.key(pod.namespace)
            consumers = self._consumers.setdefault(key, set())
            if is_there:
                consumers.add(pod.uid)
            else:
                consumers.discard(pod.uid)

    @cached_property
    def _taken(self) -> Taken:
        taken = Taken()
        # Built on first use: plans without volumes never look at the users.
        for uid, (pod, name) in self.storage.users.items():
            if not _has_volumes(pod):
                continue

            node = self.table.index.get(name, -1)
            selected = self.storage.selections.get(uid, ())
            self._use(taken, pod, node, +1)
            taken.select(selected, +1)

        return taken

    def _move(
        self,
        pod: Pod,
        node: int,
        selected: tuple[Selection, ...],
        sign: int,
    ) -> None:
        if _has_volumes(pod):
            # Invalidates every matching: a volume that was taken or freed may change any of them.
            self._version += 1
            self._use(self._taken, pod, node, sign)
            self._taken.select(selected, sign)

        if sign > 0:
            self._selected[pod.uid] = selected
        else:
            self._selected.pop(pod.uid, None)

    def _use(
        self,
        taken: Taken,
        pod: Pod,
        node: int,
        sign: int,
    ) -> None:
        for use in pod.claims:
            key = use.key(pod.namespace)
            taken.users[key] += sign
            claim = self.storage.claims.get(key)

            disk = None
            if claim is not None and node >= 0:
                disk = disk_of(claim, self.storage)

            if disk is not None:
                taken.attach(disk, node, sign, len(self.table))

    def in_use(self, key: str) -> bool:
        """Whether a placed pod uses this claim."""
        return self._taken.users[key] > 0

    # --- limits ----------------------------------------------------------------------------------

    def limits(self, driver: str) -> Ints | None:
        """`limits[node]`: maximum number of volumes of a driver; None if no node declares one."""
        if driver in self._limits:
            return self._limits[driver]

        self._work.charge(len(self.storage.csi_nodes) // 2)
        index = self.table.index
        limits = np.full(len(self.table), NO_LIMIT, dtype=np.int64)
        for name, csi_node in self.storage.csi_nodes.items():
            if name in index:
                limit_of = dict(csi_node.limits)
                limits[index[name]] = limit_of.get(driver, NO_LIMIT)

        # None: no node limits the driver, so its disks are not counted at all.
        self._limits[driver] = limits if (limits < NO_LIMIT).any() else None
        return self._limits[driver]

    def attached(self, driver: str) -> Ints:
        """`attached[node]`: number of distinct volumes of a driver."""
        nothing = np.zeros(len(self.table), dtype=np.int64)
        counts = self._taken.counts
        return counts.setdefault(driver, nothing)

    def attached_on(self, disk: Disk) -> list[int]:
        """Nodes on which a disk is attached."""
        pods = self._taken.attached.get(disk)
        if pods is None:
            return []

        return [node for node, count in pods.items() if count > 0]

    # --- devices ---------------------------------------------------------------------------------

    def allocated(
        self,
        pod: Pod,
        node: str,
    ) -> tuple[Selection, ...] | None:
        """The decisions about the claims of a pod that the plan placed on this node; None if the
        plan found no devices within its work.
        """
        decided = None
        if self.claim_devices is not None:
            decided = self.claim_devices.decided(pod, node)

        if decided is None:
            return None

        return self.selected(pod) + decided

    def wanted(self, pod: Pod) -> WantedDevices:
        """Devices that a pod needs; shared claims that already have devices are
        listed separately.
        """
        if self.claim_devices is None or not pod.claims:
            return WantedDevices()

        return self.claim_devices.wanted(pod)

    def with_devices(self, pod: Pod, room: Ints) -> Ints:
        """`room`, reduced on each node to the number of such pods for which the node
        has devices.
        """
        wanted = self.wanted(pod)
        devices = self.devices
        if devices is None:
            return room

        for on_nodes in wanted.on:
            kind = on_nodes.kind
            if kind is None and not wanted.other:
                continue

            here = room
            if on_nodes.nodes is not None:
                here = np.where(on_nodes.nodes, room, 0)

            served = here
            if kind is not None:
                served = devices.room(kind, here)

            if wanted.other:  # what other pods of the plan use already must be usable here, too
                joins = devices.joins(wanted.other, kind, np.minimum(here, served))
                served = np.where(joins, served, 0)

            fewer = np.minimum(room, served)
            if self.shares(pod):
                # Pods placed after one that shares a claim use some of the same devices.
                fewer = np.where(served > 0, room, 0)

            if on_nodes.nodes is not None:
                fewer = np.where(on_nodes.nodes, fewer, room)

            room = fewer

        return room

    def shares(self, pod: Pod) -> int:
        """Largest number of pods that use the same unallocated claim as this pod; 0 if it shares
        none.
        """
        if self.claim_devices is None or not pod.claims:
            return 0

        return self.claim_devices.shares(pod)

    # --- what pods need --------------------------------------------------------------------------

    def derives_with(self, other: StorageUse) -> None:
        """Share the cached claim requirements of another ledger of the same plan."""
        self.needs.known = other.needs.known

    def serial(self, pod: Pod) -> bool:
        """Whether placing such a pod may change the nodes that the next one may use, apart from
        volume limits.
        """
        return self._is_special(pod) or self.is_joint(pod)

    def is_joint(self, pod: Pod) -> bool:
        """Whether the pod's claims may use devices of pools that several nodes can use."""
        devices = self.devices
        if devices is None or not pod.claims:
            return False

        for on_nodes in self.wanted(pod).on:
            if on_nodes.kind is not None and devices.places.is_shared(on_nodes.kind):
                return True

        return False

    def _is_special(self, pod: Pod) -> bool:
        """Whether the pod's claims are unlike those of every other pod."""
        needs = self.needs(pod)
        shared = any(use.key(pod.namespace) in self.storage.shared for use in pod.claims)
        limited = any(self.limits(driver) is not None for driver, _ in needs.disks)
        is_shared = (shared and limited) or bool(needs.sharing)

        if needs.exclusive:
            return True

        return is_shared or any(map(self._own, needs.unbound))

    def pinned(self, pod: Pod) -> bool:
        """Whether existing volumes, volumes being provisioned or devices of its claims determine
        where a pod can run.
        """
        if not pod.claims:
            return False

        needs = self.needs(pod)
        if any(volume.pins for volume in needs.bound):
            return True
        if any(claim.pins for claim in needs.devices):
            return True

        return any(claim.selected_node is not None for claim in needs.unbound)

    def device_kind(self, pod: Pod) -> Hashable:
        """Requests of the pod's unallocated claims; None if it has none."""
        if not pod.claims:
            return None

        needs = self.needs(pod)
        if needs.extended is None:
            return needs.kind

        return (needs.kind, needs.extended.like)

    def equivalence(self, pod: Pod) -> Hashable:
        """A key that is equal for pods whose claims have the same requirements."""
        if not pod.claims:
            return None

        self._work.charge(UNITS_TO_COMPARE)
        needs = self.needs(pod)
        if needs.problem is not None or self._is_special(pod):
            # Equivalent only to pods with exactly these claims.
            return (pod.namespace, pod.native_group, pod.claims)

        volumes = frozenset((volume.required, volume.zones) for volume in needs.bound)
        drivers = sorted(driver for driver, _ in needs.disks)
        classes = frozenset(claim.storage_class for claim in needs.unbound)
        device_nodes = frozenset(claim.required for claim in needs.devices)

        return (
            volumes,
            needs.volume_missing,
            tuple(drivers),
            classes,
            device_nodes,
            self.device_kind(pod),
        )

    def _own(self, claim: Claim) -> bool:
        """Whether an unbound claim is unlike every other claim of its class."""
        if claim.selected_node is not None or claim.key in self.storage.shared:
            return True

        return bool(self._of_class.get(claim.storage_class))

    @cached_property
    def _of_class(self) -> Mapping[str, list[Volume]]:
        """Volumes that an unbound claim of a class might get: free ones, and those that are kept
        for some claim.
        """
        bound = set()
        for claim in self.storage.claims.values():
            if claim.bound:
                bound.add(claim.volume_name)

        by_class: dict[str, list[Volume]] = {}
        for volume in self.storage.volumes.values():
            is_kept = volume.claim is not None
            if volume.name not in bound and (volume.available or is_kept):
                of_class = by_class.setdefault(volume.storage_class, [])
                of_class.append(volume)

        return by_class

    # --- volumes for unbound claims --------------------------------------------------------------

    def matching(self, needs: ClaimNeeds) -> Matching:
        """The nodes on which every unbound claim can get a volume now, and the volume picked for
        each claim there.
        """
        version, known = self._matchings.get(needs, (-1, None))
        if known is not None and version == self._version:
            return known

        units_a_claim = 10 + len(self.table) // 100
        self._work.charge(10 + len(needs.unbound) * units_a_claim)
        allowed = self.table.everywhere()
        picked: dict[str, PickedByNode] = {}

        for claim in needs.unbound:
            # A claim with a selected node is being provisioned: a volume picked for it would be
            # lost to others.
            if claim.selected_node is None and not self._decided(claim):
                picked[claim.key] = self._pick(claim, picked.values())

            allowed &= self._obtainable(claim, picked.get(claim.key, {}))

        matching = Matching(allowed, picked)
        self._matchings[needs] = (self._version, matching)
        return matching

    def _decided(self, claim: Claim) -> bool:
        """Whether another pod of this plan, or of one before, has what becomes of the claim."""
        if claim.key in self._taken.provisioned_on:
            return True

        return claim.key in self._taken.volume_of

    def _pick(self, claim: Claim, others: Iterable[PickedByNode]) -> PickedByNode:
        """The smallest volume for the claim on each node, without those picked there
        for `others`.
        """
        mine: PickedByNode = {}
        lacking = self.table.everywhere()
        of_class = self._of_class.get(claim.storage_class, ())
        self._work.charge(2 * len(of_class))

        for volume in candidates(claim, of_class, self._taken.volumes):
            reached = self.reachable(volume.required) & lacking
            nodes = np.flatnonzero(reached).tolist()
            self._work.charge(15 + len(self.table) // 500 + len(nodes) // 3)

            for node in nodes:
                # Two claims of one pod must not get the same volume on a node.
                if not any(other.get(node) is volume for other in others):
                    mine[node] = volume
                    lacking[node] = False

            if len(mine) == len(self.table):
                break

        return mine

    def _obtainable(self, claim: Claim, picked: PickedByNode) -> Bools:
        """`obtainable[node]`: the claim has a volume picked there, or one can be made for that
        node.
        """
        volume = self._taken.volume_of.get(claim.key, "")
        chosen = self.storage.volumes.get(volume)
        if chosen is not None:
            return self.reachable(chosen.required)  # another member's node has decided it

        storage_class = self.storage.classes.get(claim.storage_class)
        obtainable = provisionable(storage_class, self.table)
        node = claim.selected_node
        # A volume to be provisioned for one node can be shared across nodes only with an access
        # mode for many.
        if node is None and not SHARED_MODES & set(claim.access_modes):
            node = self._taken.provisioned_on.get(claim.key)

        if node is not None:
            obtainable &= self.table.having((node,))

        obtainable[list(picked)] = True
        return obtainable

    def _select(self, pod: Pod, node: int) -> tuple[Selection, ...]:
        """The selection for each claim that is not ready, if the pod goes to `node`."""
        with self._work.unlimited():  # the pod is being placed, which must not be cut short
            needs = self.needs(pod)

        selected = []
        for claim in needs.devices:
            selection = self._reservation(pod, claim, needs, node)
            if selection is not None:
                selected.append(selection)

        if needs.unbound:
            picked = self.matching(needs).picked
            for unbound in needs.unbound:
                by_node = picked.get(unbound.key, {})
                selected.append(self._selection(unbound, by_node.get(node), node))

        return tuple(selected)

    def _reservation(
        self,
        pod: Pod,
        claim: ResourceClaim,
        needs: ClaimNeeds,
        node: int,
    ) -> Selection | None:
        """The selection that makes the pod a consumer of the claim; None if it is one."""
        extended = needs.extended
        is_created = extended is not None and claim is extended.claim
        # The pod of a claim that was created for it may not know of it yet.
        if not is_created and not needs.users(pod, claim).isdisjoint(claim.reserved):
            return None

        makes = None
        if is_created and self.claim_devices is not None:
            makes = self.claim_devices.made(needs, node)

        return Selection(
            namespace=claim.namespace,
            name=claim.name,
            uid=claim.uid,
            reserve=True,
            required=claim.required,
            consumer=needs.consumers.get(claim.key),
            makes=makes,
        )

    def _selection(
        self,
        claim: Claim,
        volume: Volume | None,
        node: int,
    ) -> Selection:
        selection = Selection(
            namespace=claim.namespace,
            name=claim.name,
            uid=claim.uid,
            resource_version=claim.resource_version,
        )
        if volume is not None:
            return replace(selection, volume=volume.name, volume_version=volume.resource_version)
        if self._decided(claim):
            return selection

        return replace(selection, node=self.table.names[node])


def shared_claims(pod: Pod) -> list[ClaimUse]:
    """The ResourceClaims of a pod that other pods may use as well; those made from a template are
    its own.
    """
    shared: list[ClaimUse] = []
    for use in pod.claims:
        if use.device and use.name and not use.ephemeral and not use.extended:
            shared.append(use)

    return shared


def _has_volumes(pod: Pod) -> bool:
    """Whether a pod has claims other than those for devices, which are followed
    by `core.devices`.
    """
    return any(not use.device for use in pod.claims)
