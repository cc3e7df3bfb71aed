"""Volumes: what of the cluster's storage is taken while one plan is made.

Law: it starts from the snapshot's storage and follows every pod with claims that comes to a node or leaves it; a move
taken back leaves everything as it was, the volumes picked for a pod included. Nothing is built before the first pod
with claims is looked at. What a pod's claims may have is decided by `volume_binding`; here it is given away.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

import numpy as np
from msgspec.structs import replace

from gangsched.core.filter.volume_binding import Asked, asked_of, candidates, disk_of, provisionable, reachable
from gangsched.model.objects import NodeSelectorTerm, Pod
from gangsched.model.snapshot import Bools, Ints, NodeTable
from gangsched.model.storage import SHARED_MODES, Claim, Selection, Storage, Volume

Disk: TypeAlias = tuple[str, str]
"""(driver, handle)."""
NO_LIMIT = np.iinfo(np.int32).max


@dataclass(slots=True)
class Matching:
    """For each unbound claim (by key) of one pod: the volume picked on each node.

    `allowed[node]` is whether every such claim can be had there.
    """

    allowed: Bools
    picked: dict[str, dict[int, Volume]] = field(default_factory=dict)


@dataclass(slots=True)
class Taken:
    """Pods with a place that use each claim (by key); claims by volume given away; nodes by claim to be provisioned.

    `attached[disk][node]` pods use a disk there, `counts[driver][node]` different disks are attached.
    """

    users: Counter[str] = field(default_factory=Counter)
    volumes: dict[str, str] = field(default_factory=dict)
    pins: dict[str, str] = field(default_factory=dict)
    attached: dict[Disk, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    counts: dict[str, Ints] = field(default_factory=dict)

    def select(self, selected: tuple[Selection, ...], sign: int) -> None:
        """Give away (+1) or take back (-1) what was picked for a pod."""
        for each in selected:
            for name, value, given in ((each.volume, each.key, self.volumes), (each.key, each.node, self.pins)):
                if sign > 0 and name and value:
                    given[name] = value
                elif name and value:
                    given.pop(name, None)

    def attach(self, disk: Disk, node: int, sign: int, size: int) -> None:
        """One pod more or less uses a disk on a node."""
        counts = self.counts.setdefault(disk[0], np.zeros(size, dtype=np.int64))
        before = self.attached[disk][node]
        self.attached[disk][node] = after = before + sign
        counts[node] += (after > 0) - (before > 0)


class Volumes:
    """Claims in use, volumes given away, disks attached; as far as this plan has come."""

    def __init__(self, table: NodeTable, storage: Storage) -> None:
        self.table = table
        self.storage = storage
        self._asked: dict[tuple[str, object], Asked] = {}
        self._reachable: dict[tuple[NodeSelectorTerm, ...] | None, Bools] = {}
        self._limits: dict[str, Ints | None] = {}
        self._selected: dict[str, tuple[Selection, ...]] = {}
        self._left: dict[str, tuple[Selection, ...]] = {}
        self._matchings: dict[Asked, tuple[int, Matching]] = {}
        self._version = 0

    # --- what is taken ----------------------------------------------------------------------------------------------

    def come(self, pod: Pod, node: int) -> None:
        """A pod got a node: pick its volumes."""
        if pod.claims:
            self._move(pod, node, self._select(pod, node), +1)

    def go(self, pod: Pod, node: int) -> None:
        """A pod gave its node up."""
        if pod.claims:
            self._left[pod.uid] = self._selected.get(pod.uid, self.storage.selections.get(pod.uid, ()))
            self._move(pod, node, self._left[pod.uid], -1)

    def come_back(self, pod: Pod, node: int) -> None:
        """A pod that had given its node up has it still, and the volumes picked for it."""
        if pod.claims:
            self._move(pod, node, self._left.pop(pod.uid), +1)

    def selected(self, pod: Pod) -> tuple[Selection, ...]:
        """What was picked for a pod that got a node in this plan."""
        return self._selected.get(pod.uid, ()) if pod.claims else ()

    @cached_property
    def _taken(self) -> Taken:
        taken = Taken()
        for uid, (pod, name) in self.storage.users.items():
            self._use(taken, pod, self.table.index.get(name, -1), +1)
            taken.select(self.storage.selections.get(uid, ()), +1)
        return taken

    def _move(self, pod: Pod, node: int, selected: tuple[Selection, ...], sign: int) -> None:
        self._version += 1
        self._use(self._taken, pod, node, sign)
        self._taken.select(selected, sign)
        if sign > 0:
            self._selected[pod.uid] = selected
        else:
            self._selected.pop(pod.uid, None)

    def _use(self, taken: Taken, pod: Pod, node: int, sign: int) -> None:
        for use in pod.claims:
            key = use.key(pod.namespace)
            taken.users[key] += sign
            claim = self.storage.claims.get(key)
            disk = disk_of(claim, self.storage) if claim is not None and node >= 0 else None
            if disk is not None:
                taken.attach(disk, node, sign, len(self.table))

    def in_use(self, key: str) -> bool:
        """Whether a pod with a place uses this claim."""
        return self._taken.users[key] > 0

    # --- limits -----------------------------------------------------------------------------------------------------

    def limits(self, driver: str) -> Ints | None:
        """`limits[node]` volumes of a driver; None when no node states one."""
        if driver not in self._limits:
            limits = np.full(len(self.table), NO_LIMIT, dtype=np.int64)
            for name, csi_node in self.storage.csi_nodes.items():
                if name in self.table.index:
                    limits[self.table.index[name]] = dict(csi_node.limits).get(driver, NO_LIMIT)
            self._limits[driver] = limits if (limits < NO_LIMIT).any() else None
        return self._limits[driver]

    def attached(self, driver: str) -> Ints:
        """`attached[node]` different volumes of a driver."""
        return self._taken.counts.setdefault(driver, np.zeros(len(self.table), dtype=np.int64))

    def attached_on(self, disk: Disk) -> list[int]:
        """The nodes on which a disk is attached."""
        known = self._taken.attached.get(disk)
        return [node for node, count in known.items() if count > 0] if known else []

    # --- what pods ask ----------------------------------------------------------------------------------------------

    def asked(self, pod: Pod) -> Asked:
        """What the pod's claims come to."""
        owner = pod.uid if any(use.ephemeral for use in pod.claims) else pod.namespace
        key = (owner, pod.claims)
        if key not in self._asked:
            self._asked[key] = asked_of(pod, self.storage)
        return self._asked[key]

    def tied(self, pod: Pod) -> bool:
        """Whether where such a pod went may change where another like it may go, limits of nodes aside."""
        asked = self.asked(pod)
        shared = any(use.key(pod.namespace) in self.storage.shared for use in pod.claims)
        limited = any(self.limits(driver) is not None for driver, _ in asked.disks)
        return bool(asked.exclusive) or (shared and limited) or any(map(self._own, asked.unbound))

    def kind(self, pod: Pod) -> Hashable:
        """What makes pods alike as far as their claims go."""
        if not pod.claims:
            return None
        asked = self.asked(pod)
        if asked.problem or self.tied(pod):
            return (pod.namespace, pod.claims)
        asks = frozenset((volume.required, volume.zones) for volume in asked.bound)
        drivers = tuple(sorted(driver for driver, _ in asked.disks))
        devices = frozenset(claim.required for claim in asked.devices)
        return (asks, asked.volume_missing, drivers, frozenset(claim.storage_class for claim in asked.unbound), devices)

    def _own(self, claim: Claim) -> bool:
        """Whether an unbound claim is unlike every other claim of its class."""
        if claim.selected_node is not None or claim.key in self.storage.shared:
            return True
        return bool(self._of_class.get(claim.storage_class))

    @cached_property
    def _of_class(self) -> Mapping[str, list[Volume]]:
        """Volumes that an unbound claim of a class might get: free ones, and those that are kept for some claim."""
        bound = {claim.volume_name for claim in self.storage.claims.values() if claim.bound}
        found: dict[str, list[Volume]] = {}
        for volume in self.storage.volumes.values():
            if volume.name not in bound and (volume.available or volume.claim is not None):
                found.setdefault(volume.storage_class, []).append(volume)
        return found

    def reachable(self, required: tuple[NodeSelectorTerm, ...] | None) -> Bools:
        """`volume_binding.reachable`, remembered."""
        if required not in self._reachable:
            self._reachable[required] = reachable(required, self.table)
        return self._reachable[required]

    # --- volumes for unbound claims ---------------------------------------------------------------------------------

    def matching(self, asked: Asked) -> Matching:
        """On which nodes every unbound claim can have a volume now, and which."""
        known = self._matchings.get(asked)
        if known is not None and known[0] == self._version:
            return known[1]
        matching = Matching(np.ones(len(self.table), dtype=np.bool_))
        used: set[tuple[int, str]] = set()
        for claim in asked.unbound:
            matching.allowed &= self._served(claim, matching.picked, used)
        self._matchings[asked] = (self._version, matching)
        return matching

    def _served(self, claim: Claim, picked: dict[str, dict[int, Volume]], used: set[tuple[int, str]]) -> Bools:
        """`served[node]`: the claim can be had there; volumes picked for it are added to `picked` and `used`."""
        makes = provisionable(self.storage.classes.get(claim.storage_class), self.table)
        pin = self._taken.pins.get(claim.key)
        if claim.selected_node is not None or (pin is not None and not SHARED_MODES & set(claim.access_modes)):
            return makes & self._only(claim.selected_node if claim.selected_node is not None else pin or "")
        if pin is not None:
            return makes  # being provisioned for another member, in a mode that many nodes may share
        mine = picked[claim.key] = {}
        for volume in candidates(claim, self._of_class.get(claim.storage_class, ()), self._taken.volumes):
            for node in np.flatnonzero(self.reachable(volume.required)).tolist():
                if node not in mine and (node, volume.name) not in used:
                    mine[node] = volume
                    used.add((node, volume.name))
            if len(mine) == len(self.table):
                break
        makes[list(mine)] = True
        return makes

    def _only(self, name: str) -> Bools:
        mask = np.zeros(len(self.table), dtype=np.bool_)
        if name in self.table.index:
            mask[self.table.index[name]] = True
        return mask

    def _select(self, pod: Pod, node: int) -> tuple[Selection, ...]:
        """What becomes of each claim that is not ready when the pod goes to `node`."""
        asked = self.asked(pod)
        reserved = tuple(
            Selection(namespace=each.namespace, name=each.name, uid=each.uid, reserve=True, required=each.required)
            for each in asked.devices
            if pod.uid not in each.reserved
        )
        if not asked.unbound:
            return reserved
        picked = self.matching(asked).picked
        return reserved + tuple(
            self._selection(claim, picked.get(claim.key, {}).get(node), node) for claim in asked.unbound
        )

    def _selection(self, claim: Claim, volume: Volume | None, node: int) -> Selection:
        given = Selection(
            namespace=claim.namespace, name=claim.name, uid=claim.uid, resource_version=claim.resource_version
        )
        if volume is not None:
            return replace(given, volume=volume.name, volume_version=volume.resource_version)
        if claim.key in self._taken.pins:
            return given
        return replace(given, node=self.table.names[node])
