"""Devices during one plan: the pods that it places on each node, and for how many more there are devices.

Invariant: until the plan ends, devices of a node are chosen again for all pods that the plan places there, so the order
of placing does not matter. Undoing a move restores everything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from gangsched.core.devices.device_index import UNKNOWN, DeviceIndex, DeviceKind, NodeRoom
from gangsched.core.work import Work
from gangsched.model.devices import DeviceResult
from gangsched.model.snapshot import Ints, NodeTable

UNITS_A_NODE, UNITS_A_DEVICE, UNITS_A_QUESTION, UNITS_A_STEP = 80, 10, 12, 6
"""Units of searching a node: for itself, each device, each request about each device, and each step."""


@dataclass(slots=True, eq=False)
class _PlanColumn:
    """Rooms by node, as of so many changes of the plan."""

    room: Ints
    seen: int


class DeviceUse:
    """Pods of the plan by node, and claims whose devices its decisions free; `come` and `go` move pods."""

    def __init__(self, table: NodeTable, index: DeviceIndex, work: Work) -> None:
        self.index = index
        self._table = table
        self._work = work
        self._placed: dict[int, list[tuple[str, DeviceKind]]] = {}
        self._free: dict[int, frozenset[str]] = {}  # claims that are freed
        self._moved: list[int] = []  # nodes
        self._unsolved: set[int] = set()
        self._columns: dict[DeviceKind, _PlanColumn] = {}
        self._faults: dict[DeviceKind, NodeRoom | None] = {}
        self._searched: dict[tuple[object, ...], NodeRoom] = {}

    # --- what is taken ----------------------------------------------------------------------------------------------

    def come(self, uid: str, kind: DeviceKind, node: int, at: int | None = None) -> None:
        """Place a pod on a node, as its last one or at the position where it was before."""
        here = self._placed.setdefault(node, [])
        here.insert(len(here) if at is None else at, (uid, kind))
        self._move(node)

    def go(self, uid: str, node: int) -> int | None:
        """Remove a pod that this plan placed on a node, and return its position; None if the plan did not place it."""
        here = self._placed.get(node, [])
        at = next((number for number, (other, _) in enumerate(here) if other == uid), None)
        if at is not None:
            del here[at]
            if not here:
                del self._placed[node]
            self._move(node)
        return at

    def free(self, node: int, claims: Iterable[str]) -> None:
        """Treat the devices that claims hold on a node as free."""
        self._free[node] = self._free.get(node, frozenset()).union(claims)
        self._move(node)

    def hold(self, node: int, claims: Iterable[str]) -> None:
        """Undo `free`."""
        self._free[node] = self._free[node].difference(claims)
        self._move(node)

    def _move(self, node: int) -> None:
        self._moved.append(node)
        self._unsolved.add(node)

    # --- room -------------------------------------------------------------------------------------------------------

    def room(self, kind: DeviceKind, wanted: Ints) -> Ints:
        """`room[node]`: number of additional pods of the kind, searched on nodes where pods are `wanted`; 0 on other
        nodes.
        """
        column = self._column(kind)
        for node in np.flatnonzero((column.room == UNKNOWN) & (wanted > 0)).tolist():
            column.room[node] = self._search(kind, node).pods
        faults = (fault for node, fault in self._faults_of(kind) if wanted[node] > 0)
        self._faults[kind] = next(faults, None)
        found: Ints = np.maximum(column.room, 0)
        return found

    def fault(self, kind: DeviceKind) -> NodeRoom | None:
        """The error of the kind on one of the nodes whose room was last requested."""
        return self._faults.get(kind)

    def faulty(self, kind: DeviceKind) -> list[int]:
        """Nodes on which a fault of the kind was found, in this plan or before."""
        return [node for node, _ in self._faults_of(kind)]

    @property
    def invalid(self) -> set[int]:
        """Searched nodes of which a pool contradicts itself, such as one with two devices of one name."""
        index = self._table.index
        return {index[name] for name in self.index.invalid if name in index}

    def known(self, kind: DeviceKind) -> Ints:
        """`room[node]` where it was searched, else `UNKNOWN`. Read-only."""
        return self._column(kind).room

    def fits(self, kind: DeviceKind, node: int) -> bool:
        """Whether there are devices for one more pod of the kind on the node."""
        return self._search(kind, node).pods > 0

    def _faults_of(self, kind: DeviceKind) -> Iterator[tuple[int, NodeRoom]]:
        index = self._table.index
        return ((index[name], fault) for name, fault in self.index.faults(kind) if name in index)

    def _column(self, kind: DeviceKind) -> _PlanColumn:
        column = self._columns.get(kind)
        if column is None:
            self._work.charge(20 + len(self._table) // 20)
            column = self._columns[kind] = _PlanColumn(self.index.column(kind, self._table).copy(), 0)
        moved = self._moved[column.seen :]
        if moved:
            column.room[moved] = UNKNOWN  # a node without devices is searched in no time
        column.seen = len(self._moved)
        return column

    def _search(self, kind: DeviceKind, node: int) -> NodeRoom:
        name, without = self._table.names[node], self._free.get(node, frozenset())
        placed = self._kinds(node)
        if not placed and not without:
            known = self.index.known(kind, name)
            if known is not None:
                return known
        key = (kind, name, placed, without)
        known = self._searched.get(key)
        if known is not None:
            return known
        self._work.charge(UNITS_A_NODE + self._asked(name, kind, *placed))
        if placed or without:
            found, steps = self.index.search_beside(name, placed, kind, without)
            self._searched[key] = found
        else:
            found, steps = self.index.search(kind, name)
        self._work.charge(steps * UNITS_A_STEP)  # what was found is kept, so that the next plan goes on behind it
        return found

    def _asked(self, node: str, *kinds: DeviceKind) -> int:
        devices = sum(len(pool.devices) for pool in self.index.pools(node))
        requests = sum(len(group) for kind in dict.fromkeys(kinds) for claim in kind.claims for group in claim.requests)
        return devices * (UNITS_A_DEVICE + UNITS_A_QUESTION * requests)

    # --- devices ----------------------------------------------------------------------------------------------------

    def solve(self) -> None:
        """Choose devices on all nodes on which pods were placed since the last call. Raises OutOfWork."""
        for node in sorted(self._unsolved):
            here = self._kinds(node)
            name, without = self._table.names[node], self._free.get(node, frozenset())
            if here and self.index.solution(name, here, without) is None:
                self._work.charge(UNITS_A_NODE + self._asked(name, *here))
                self._work.charge(self.index.solve(name, here, without) * UNITS_A_STEP)
            self._unsolved.discard(node)

    def chosen(self, uid: str, node: int) -> tuple[tuple[DeviceResult, ...], ...] | None:
        """The devices of each claim of a pod that the plan placed there; None if none were found in time."""
        here, without = self._placed.get(node, []), self._free.get(node, frozenset())
        solution = self.index.solution(self._table.names[node], self._kinds(node), without)
        at = next((number for number, (other, _) in enumerate(here) if other == uid), None)
        return None if solution is None or at is None else solution[at]

    def _kinds(self, node: int) -> tuple[DeviceKind, ...]:
        return tuple(kind for _, kind in self._placed.get(node, ()))
