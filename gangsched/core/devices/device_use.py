"""Devices during one plan: the pods placed on each node, and the number of further pods for which
there are devices.

Invariant: until the plan ends, devices are chosen again for all pods of the plan that compete for
them: pods on the same node, and pods that may use the same pools of several nodes. So the order of
placing does not matter. Undoing a move restores everything.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from gangsched.core.devices.device_index import MOST_PODS, UNKNOWN, DeviceIndex
from gangsched.core.devices.located import DeviceKind, Located, NodeRoom, PlacedClaims, PlanColumn
from gangsched.core.devices.places import UNITS_A_NODE, DevicePlaces, Nodes
from gangsched.core.devices.views import ClaimPlace, Matching, Views
from gangsched.core.work import Work
from gangsched.model.devices import DeviceResult
from gangsched.model.snapshot import Bools, Ints, NodeTable

UNITS_A_STEP = 6
"""Units of each step of searching a node."""
MOST_VIEWS = 16
"""Views that are compared with each other."""


class _Neighbours(NamedTuple):
    """Items that may take devices from each other, where they are, and the claims that are
    freed there.
    """

    items: list[PlacedClaims]
    placed: tuple[Located, ...]
    freed: frozenset[str]


class DeviceUse:
    """Items (the claims of a pod, or one shared claim) by node, and freed claims; `come` and `go`
    move items.
    """

    def __init__(
        self,
        table: NodeTable,
        index: DeviceIndex,
        work: Work,
        matching: Matching,
    ) -> None:
        self.index = index
        self._table = table
        self._work = work
        self.places = DevicePlaces(table, index, work, matching)
        self._items: dict[str, PlacedClaims] = {}
        self._on: dict[int, set[str]] = {}  # items by node
        self._joint: set[str] = set()  # items that may use devices of several nodes
        self._ordered = 0  # next order of an item
        self._free: dict[int, frozenset[str]] = {}  # claims that are freed
        self._moved: list[int] = []  # nodes
        self._joint_moves = 0  # a version: joint rooms are stale once it grows
        self._unsolved: set[int] = set()  # nodes
        self._columns: dict[DeviceKind, PlanColumn] = {}
        self._faults: dict[DeviceKind, NodeRoom | None] = {}
        self._joint_faults: dict[DeviceKind, dict[int, NodeRoom]] = {}
        self._located_by: dict[tuple[DeviceKind, Nodes, bool], Located] = {}
        self._together: dict[object, _Neighbours] = {}
        self._joining: dict[tuple[object, ...], tuple[int, Ints]] = {}

    # --- what is taken ---------------------------------------------------------------------------

    def come(
        self,
        uid: str,
        kind: DeviceKind,
        nodes: Nodes,
        order: int | None = None,
    ) -> None:
        """Place an item: as the last one, or at its earlier position `order`."""
        with self._work.unlimited():  # it is being placed, which must not be cut short
            is_joint = self.places.is_joint(kind, nodes)

        if order is None:
            order = self._ordered
            self._ordered += 1

        self._items[uid] = PlacedClaims(order, uid, kind, nodes)
        if is_joint:
            self._joint.add(uid)

        for node in nodes:
            on_node = self._on.setdefault(node, set())
            on_node.add(uid)

        self._move(nodes, is_joint=is_joint)

    def go(self, uid: str) -> PlacedClaims | None:
        """Remove an item that this plan placed, and return it; None if the plan has no
        such item.
        """
        item = self._items.pop(uid, None)
        if item is None:
            return None

        for node in item.nodes:
            self._on[node].discard(uid)

        is_joint = uid in self._joint
        self._move(item.nodes, is_joint=is_joint)
        self._joint.discard(uid)

        return item

    def free(
        self,
        node: int,
        claims: Iterable[str],
    ) -> None:
        """Treat the devices that these claims hold on a node as free."""
        freed = self._free.get(node, frozenset())
        self._free[node] = freed.union(claims)
        self._move((node,), is_joint=self.places.views is not None)

    def hold(
        self,
        node: int,
        claims: Iterable[str],
    ) -> None:
        """Undo `free`."""
        self._free[node] = self._free[node].difference(claims)
        self._move((node,), is_joint=self.places.views is not None)

    def _move(
        self,
        nodes: Iterable[int],
        *,
        is_joint: bool,
    ) -> None:
        self._moved += nodes
        self._together.clear()
        self._unsolved.update(nodes)  # devices are chosen again for all pods there

        if not is_joint:
            return

        self._joint_moves += 1
        for uid in self._joint:
            item = self._items.get(uid)
            if item is not None:
                self._unsolved.update(item.nodes)

    # --- room ------------------------------------------------------------------------------------

    def room(
        self,
        kind: DeviceKind,
        wanted: Ints,
    ) -> Ints:
        """`room[node]`: how many more pods of the kind get devices. Nodes with `wanted[node]` > 0
        are searched; a node that was never searched has 0.
        """
        column = self._column(kind)
        views = self.places.views
        room = column.room
        open_nodes = np.flatnonzero((room == UNKNOWN) & (wanted > 0))
        for node in open_nodes.tolist():
            # A node that sees the same as an earlier one has its room already.
            if room[node] != UNKNOWN:
                continue

            self._work.charge(2)
            room[node] = self._search(kind, node).pods

            is_joint = self.places.is_joint(kind, (node,))
            column.is_pure[node] = is_joint and not self.places.is_local(kind, node)
            # so have all nodes that see the same
            if column.is_pure[node] and views is not None:
                alike = column.is_pure & (views.of == views.of[node])
                room[alike] = room[node]

        self._faults[kind] = None
        for node, fault in self._faults_of(kind):
            if wanted[node] > 0:
                self._faults[kind] = fault
                break

        known: Ints = np.maximum(room, 0)  # UNKNOWN is -1
        return known

    def fault(self, kind: DeviceKind) -> NodeRoom | None:
        """The kind's error on one of the nodes whose room was last requested; None if there was no
        error.
        """
        return self._faults.get(kind)

    def faulty(self, kind: DeviceKind) -> list[int]:
        """Nodes on which an error of the kind was found, in this plan or before."""
        return [node for node, _ in self._faults_of(kind)]

    def known(self, kind: DeviceKind) -> Ints:
        """`room[node]` of searched nodes, `UNKNOWN` for all others. Read-only."""
        return self._column(kind).room

    def fits(
        self,
        kind: DeviceKind,
        node: int,
    ) -> bool:
        """Whether the node has devices for one more pod of the kind."""
        return self._search(kind, node).pods > 0

    def _faults_of(self, kind: DeviceKind) -> Iterator[tuple[int, NodeRoom]]:
        index = self._table.index
        for name, fault in self.index.faults(kind):
            if name in index:
                yield index[name], fault

        yield from self._joint_faults.get(kind, {}).items()

    def _column(self, kind: DeviceKind) -> PlanColumn:
        column = self._columns.get(kind)
        views = self.places.views
        if column is None:
            column = self._new_column(kind, views)
            self._columns[kind] = column

        moved = self._moved[column.seen :]
        if moved:
            column.room[moved] = UNKNOWN  # a node without devices is searched in no time

        column.seen = len(self._moved)
        if views is not None and column.joint_seen != self._joint_moves:
            self._forget_joint(column, kind, views)
            column.joint_seen = self._joint_moves

        return column

    def _new_column(
        self,
        kind: DeviceKind,
        views: Views | None,
    ) -> PlanColumn:
        self._work.charge(20 + len(self._table) // 20)
        room = self.index.column(kind, self._table).copy()
        is_pure = np.zeros(len(self._table), dtype=np.bool_)

        if views is not None:
            self._work.charge(len(self._table) // 2)
            is_touched = self.places.touches(kind, views)[views.of]
            is_pure = self.index.pure_on(kind, self._table) & is_touched

        return PlanColumn(room, is_pure, 0, -1)

    def _forget_joint(
        self,
        column: PlanColumn,
        kind: DeviceKind,
        views: Views,
    ) -> None:
        """Forget the room that moves of items with devices of several nodes may have changed."""
        self._work.charge(20 + len(self._table) // 20)
        is_touched = self.places.touches(kind, views)[views.of]

        # devices of the node alone are still there
        own = self.index.column(kind, self._table)
        own_room = np.where(own > 0, own, UNKNOWN)
        column.room[is_touched] = own_room[is_touched]

        occupied = [node for node, items in self._on.items() if items]
        column.room[occupied] = UNKNOWN
        column.room[list(self._free)] = UNKNOWN

    def _search(
        self,
        kind: DeviceKind,
        node: int,
    ) -> NodeRoom:
        nodes = (node,)
        is_joint = self.places.is_joint(kind, nodes)
        if is_joint and self.places.is_local(kind, node):
            # Either suffices, and is known for many nodes at once; only then both are searched
            # together.
            with_own = self._search_alone(kind, node)
            if with_own.pods > 0:
                return with_own

            with_pools = self._search_pools(kind, node)
            if with_pools.pods > 0:
                return with_pools

        items = self._competing(kind, nodes, is_joint=is_joint, moved={})
        placed = self._located(items)
        place = self.places.place(kind, nodes, is_joint=is_joint)
        room = self._searched_beside(placed, (kind, place), nodes)

        if room.fault and is_joint:
            faults = self._joint_faults.setdefault(kind, {})
            faults[node] = room

        return room

    def _search_alone(
        self,
        kind: DeviceKind,
        node: int,
    ) -> NodeRoom:
        """The room if all pods of the plan on the node use its own devices."""
        place = ClaimPlace(self._table.names[node])
        own = []
        for uid in self._on.get(node, ()):
            item = self._items[uid]
            if uid not in self._joint or self._mixed_on(item):
                own.append(item)

        placed = tuple([(item.kind, place) for item in sorted(own)])
        return self._searched_beside(placed, (kind, place), (node,))

    def _search_pools(
        self,
        kind: DeviceKind,
        node: int,
    ) -> NodeRoom:
        """The room if a pod uses devices of pools of several nodes alone."""
        views = self.places.views
        assert views is not None
        nodes = (node,)
        items = self._competing(kind, nodes, is_joint=True, moved={}, is_pure=True)
        placed = self._located(items)

        view = int(views.of[node])
        place = ClaimPlace("", (view,))
        return self._searched_beside(placed, (kind, place), nodes)

    def _searched_beside(
        self,
        placed: tuple[Located, ...],
        item: Located,
        nodes: Sequence[int],
        *,
        most: int = MOST_PODS,
    ) -> NodeRoom:
        """The room for an item on these nodes beside others."""
        kind, place = item
        freed = self._without(nodes, (*placed, item))
        is_beside_others = bool(placed or freed)

        if is_beside_others:
            known = self.index.known_beside(placed, item, freed, most)
        else:
            known = self.index.known(kind, place)

        if known is not None:
            return known

        self._work.charge(UNITS_A_NODE + self.places.units((*placed, item)))
        if is_beside_others:
            room, steps = self.index.search_beside(placed, item, freed, most)
        else:
            room, steps = self.index.search(kind, place)

        # what was found is kept, so that the next plan goes on behind it
        self._work.charge(steps * UNITS_A_STEP)
        return room

    def _without(
        self,
        nodes: Iterable[int],
        items: Iterable[Located],
    ) -> frozenset[str]:
        """The claims that are freed where these items may have devices."""
        if not self._free:
            return frozenset()

        # A pool of several nodes may have devices that are freed anywhere.
        is_joint = any(place.views for _, place in items)
        where = self._free if is_joint else nodes

        freed: frozenset[str] = frozenset()
        for node in where:
            freed |= self._free.get(node, frozenset())

        return freed

    # --- pools of several nodes ------------------------------------------------------------------

    def _located(
        self,
        items: Iterable[PlacedClaims],
        moved: Container[str] = (),
    ) -> tuple[Located, ...]:
        """Where the items are; those that are `moved` are on several nodes."""
        located = []
        for item in items:
            is_joint = item.uid in self._joint or item.uid in moved
            located.append(self._at(item, is_joint=is_joint))

        return tuple(located)

    def _at(
        self,
        item: PlacedClaims,
        *,
        is_joint: bool,
    ) -> Located:
        key = (item.kind, item.nodes, is_joint)
        if key not in self._located_by:  # one object: a search remembers all items beside it
            place = self.places.place(item.kind, item.nodes, is_joint=is_joint)
            self._located_by[key] = (item.kind, place)

        return self._located_by[key]

    def _competing(
        self,
        kind: DeviceKind,
        nodes: Nodes,
        *,
        is_joint: bool,
        moved: Mapping[str, PlacedClaims],
        is_pure: bool = False,
    ) -> list[PlacedClaims]:
        """The items that may take devices from claims of the kind on these nodes, in order; `moved`
        replaces some.
        """
        joint = []
        for uid in self._joint | moved.keys():
            joint.append(moved.get(uid, self._items[uid]))

        here: set[str] = set()
        for node in nodes:
            here.update(self._on.get(node, ()))

        if not is_joint:
            mixed = (item for item in joint if item.uid in here and self._mixed_on(item) == nodes)
            if self.places.views is None or next(mixed, None) is None:
                own = [self._items[uid] for uid in here - self._joint]
                return sorted(own)

        views = self.places.views
        assert views is not None
        component = views.component[views.of[nodes[0]]]
        competing = []
        # Nodes whose own devices are in question as well.
        local_nodes: set[int] = set()
        for item in joint:
            if views.component[views.of[item.nodes[0]]] == component:
                competing.append(item)
                local_nodes.update(self._mixed_on(item))

        if len(nodes) == 1 and not is_pure and self.places.is_local(kind, nodes[0]):
            local_nodes.add(nodes[0])

        local: set[str] = set()
        for node in local_nodes:
            local.update(self._on.get(node, ()))

        local -= self._joint | moved.keys()
        competing += [self._items[uid] for uid in local]
        return sorted(competing)

    def _mixed_on(self, item: PlacedClaims) -> Nodes:
        """The node whose own devices a joint item may use, too."""
        if len(item.nodes) > 1:
            return ()

        (node,) = item.nodes
        if self.places.is_local(item.kind, node):
            return item.nodes

        return ()

    # --- claims that other pods share ------------------------------------------------------------

    def joins(
        self,
        claims: tuple[str, ...],
        kind: DeviceKind | None,
        wanted: Ints,
    ) -> Bools:
        """`joins[node]`: claims that the plan has placed can be used on this node, too, together
        with one more pod of the kind.

        Only nodes with `wanted[node]` > 0 are searched.
        """
        key = (claims, kind)
        column = self._joined(key)
        if column is None:
            column = np.full(len(self._table), UNKNOWN, dtype=np.int64)
            self._joining[key] = (len(self._moved), column)

        views = self.places.views
        if kind is None:
            alike = np.ones(len(self._table), dtype=np.bool_)
        else:
            alike = self._column(kind).is_pure.copy()

        for claim in claims:
            alike[list(self._items[claim].nodes)] = False

        open_nodes = np.flatnonzero((column == UNKNOWN) & (wanted > 0))
        for node in open_nodes.tolist():
            # A node that sees the same as an earlier one has its answer already.
            if column[node] != UNKNOWN:
                continue

            self._work.charge(20)
            column[node] = self._may_go_on(claims, kind, node)
            if alike[node] and views is not None:  # all nodes that see the same
                is_same = views.of == views.of[node]
                column[alike & is_same] = column[node]

        usable: Bools = column == 1
        return usable

    def room_together(
        self,
        kind: DeviceKind,
        room: Ints,
    ) -> Ints:
        """`together[node]`: pods that fit on this node and on all nodes where a claim of the kind
        is also usable.
        """
        views = self.places.views
        if views is None or not self.places.is_shared(kind):
            return room

        own = np.where(views.sees, room, 0)  # nodes without a view share nothing
        touches = self.places.touches(kind, views)
        with_room = np.unique(views.of[own > 0])
        shared = with_room[touches[with_room]].tolist()
        if len(shared) > MOST_VIEWS:
            return np.maximum(room, int(own.sum()))  # a bound: all are tried

        total = {}
        for view in shared:
            total[view] = int(own[views.of == view].sum())

        together = room.copy()
        for view in shared:
            pods = 0
            for other in shared:
                both = tuple(sorted({view, other}))
                if self._is_usable(kind, both):
                    pods += total[other]

            nodes = views.of == view
            together[nodes] = np.maximum(together[nodes], pods)

        return together

    def _is_usable(
        self,
        kind: DeviceKind,
        views: Nodes,
    ) -> bool:
        """Whether a claim could be used on all nodes with these views."""
        place = ClaimPlace("", views)
        return self._searched_beside((), (kind, place), ()).pods > 0

    def lacking(
        self,
        claims: tuple[str, ...],
        kind: DeviceKind | None,
    ) -> Bools:
        """Nodes on which `joins` found no devices since the last move."""
        column = self._joined((claims, kind))
        if column is None:
            return np.zeros(len(self._table), dtype=np.bool_)

        lacks: Bools = column == 0
        return lacks

    def _joined(self, key: tuple[object, ...]) -> Ints | None:
        """The answers of `joins`; None if an item moved since then."""
        if key not in self._joining:
            return None

        moves, column = self._joining[key]
        if moves != len(self._moved):
            return None

        return column

    def _may_go_on(
        self,
        claims: tuple[str, ...],
        kind: DeviceKind | None,
        node: int,
    ) -> bool:
        moved = {}
        for claim in claims:
            item = self._items[claim]
            if node not in item.nodes:
                moved[item.uid] = item._replace(nodes=(*item.nodes, node))

        if not moved:
            return kind is None or self.fits(kind, node)

        for item in moved.values():
            if not self.places.may_join(item.kind, item.nodes):
                return False

        last = next(reversed(moved.values()))
        competing = self._competing(last.kind, last.nodes, is_joint=True, moved=moved)

        if kind is None:
            # a shared claim alone always spans nodes
            asked = last.kind
            nodes = last.nodes
            is_joint = True
            competing = [item for item in competing if item.uid != last.uid]
        else:
            asked = kind
            nodes = (node,)
            is_joint = self.places.is_joint(kind, nodes)
            beside = self._competing(kind, nodes, is_joint=is_joint, moved=moved)
            competing = sorted({*competing, *beside})

        placed = self._located(competing, moved)
        place = self.places.place(asked, nodes, is_joint=is_joint)
        room = self._searched_beside(placed, (asked, place), nodes, most=1)
        return room.pods > 0

    # --- devices ---------------------------------------------------------------------------------

    def solve(self) -> bool:
        """Choose devices on nodes with newly placed pods; False if any pod got none. Raises
        OutOfWork.
        """
        is_solved = True
        for node in sorted(self._unsolved):
            for uid in sorted(self._on.get(node, ())):
                _, placed, freed = self._with(self._items[uid])
                if not self.index.is_solved(placed, freed):
                    self._work.charge(UNITS_A_NODE + self.places.units(placed))
                    steps = self.index.solve(placed, freed)
                    self._work.charge(steps * UNITS_A_STEP)

                is_solved &= self.index.solution(placed, freed) is not None

            self._unsolved.discard(node)

        return is_solved

    def chosen(self, uid: str) -> tuple[tuple[DeviceResult, ...], ...] | None:
        """The devices of each claim of an item; None if the plan found none within its work."""
        item = self._items.get(uid)
        if item is None:
            return None

        together = self._with(item)
        solution = self.index.solution(together.placed, together.freed)
        if solution is None:
            return None

        position = together.items.index(item)
        return solution[position]

    def placed(self, uid: str) -> PlacedClaims | None:
        """The item that the plan has placed for this uid; None if there is none."""
        return self._items.get(uid)

    def _with(self, item: PlacedClaims) -> _Neighbours:
        """The item and all that may take devices from it."""
        is_joint = item.uid in self._joint
        key = (item.kind, item.nodes, is_joint)
        # Once for all items of a node, which are asked for one after the other.
        if key not in self._together:
            items = self._competing(item.kind, item.nodes, is_joint=is_joint, moved={})
            placed = self._located(items)
            freed = self._without(item.nodes, placed)
            self._together[key] = _Neighbours(items, placed, freed)

        return self._together[key]
