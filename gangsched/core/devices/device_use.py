"""Devices during one plan: the pods placed on each node, and the number of further pods for which
there are devices.

Invariant: until the plan ends, devices are chosen again for all pods of the plan that compete for
them: pods on the same node, and pods that may use the same pools of several nodes. So the order of
placing does not matter. Undoing a move restores everything.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

import numpy as np

from gangsched.core.devices.device_index import MOST_PODS, UNKNOWN, DeviceIndex
from gangsched.core.devices.located import DeviceKind, Located, NodeRoom, PlacedClaims, PlanColumn
from gangsched.core.devices.views import MOST_JOINT, ClaimPlace, Matching, Views
from gangsched.core.work import Work
from gangsched.model.devices import DeviceResult
from gangsched.model.snapshot import Bools, Ints, NodeTable

UNITS_A_NODE = 80
UNITS_A_DEVICE = 10
UNITS_A_QUESTION = 12
UNITS_A_STEP = 6
"""Units of searching a node: for itself, each device, each request about each device, and each
step.
"""
MOST_VIEWS = 16
"""Views that are compared with each other."""
UNITS_A_VIEW = 2_000
"""Units of finding out what nodes see of pools of several nodes, on a thousand nodes."""


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
        self._matching = matching
        self._items: dict[str, PlacedClaims] = {}
        self._on: dict[int, set[str]] = {}  # items by node
        self._joint: set[str] = set()  # items that may use devices of several nodes
        self._ordered = 0  # next order of an item
        self._free: dict[int, frozenset[str]] = {}  # claims that are freed
        self._moved: list[int] = []  # nodes
        self._joint_moves = 0  # a version: joint rooms are stale once it grows
        self._touched: dict[DeviceKind, Bools] = {}
        self._unsolved: set[int] = set()  # nodes
        self._columns: dict[DeviceKind, PlanColumn] = {}
        self._faults: dict[DeviceKind, NodeRoom | None] = {}
        self._joint_faults: dict[DeviceKind, dict[int, NodeRoom]] = {}
        self._places: dict[tuple[DeviceKind, tuple[int, ...], bool], Located] = {}
        self._together: dict[
            object, tuple[list[PlacedClaims], tuple[Located, ...], frozenset[str]]
        ] = {}
        self._joining: dict[tuple[object, ...], tuple[int, Ints]] = {}

    # --- what is taken ---------------------------------------------------------------------------

    def come(
        self,
        uid: str,
        kind: DeviceKind,
        nodes: tuple[int, ...],
        order: int | None = None,
    ) -> None:
        """Place an item: as the last one, or at its earlier position `order`."""
        with self._work.unlimited():  # it is being placed, which must not be cut short
            is_joint = self._is_joint(kind, nodes)

        if order is None:
            order = self._ordered
            self._ordered = self._ordered + 1

        self._items[uid] = PlacedClaims(order, uid, kind, nodes)
        if is_joint:
            self._joint.add(uid)

        for node in nodes:
            self._on.setdefault(node, set()).add(uid)

        self._move(nodes, is_joint=is_joint)

    def go(self, uid: str) -> PlacedClaims | None:
        """Remove an item that this plan placed, and return it; None if the plan has no
        such item.
        """
        item = self._items.pop(uid, None)
        if item is not None:
            for node in item.nodes:
                self._on[node].discard(uid)

            self._move(item.nodes, is_joint=uid in self._joint)
            self._joint.discard(uid)

        return item

    def free(self, node: int, claims: Iterable[str]) -> None:
        """Treat the devices that these claims hold on a node as free."""
        self._free[node] = self._free.get(node, frozenset()).union(claims)
        self._move((node,), is_joint=self._views is not None)

    def hold(self, node: int, claims: Iterable[str]) -> None:
        """Undo `free`."""
        self._free[node] = self._free[node].difference(claims)
        self._move((node,), is_joint=self._views is not None)

    def _move(self, nodes: Iterable[int], *, is_joint: bool) -> None:
        self._moved += nodes
        self._together.clear()
        self._unsolved.update(nodes)  # devices are chosen again for all pods there

        if is_joint:
            self._joint_moves += 1
            self._unsolved.update(
                node for uid in self._joint if uid in self._items for node in self._items[uid].nodes
            )

    # --- room ------------------------------------------------------------------------------------

    def room(self, kind: DeviceKind, wanted: Ints) -> Ints:
        """`room[node]`: how many more pods of the kind get devices. Nodes with `wanted[node]` > 0
        are searched; a node that was never searched has 0.
        """
        column = self._column(kind)
        for node in np.flatnonzero((column.room == UNKNOWN) & (wanted > 0)).tolist():
            if column.room[node] == UNKNOWN:
                self._work.charge(2)
                column.room[node] = self._search(kind, node).pods

                column.is_pure[node] = self._is_joint(kind, (node,)) and not self._is_local(
                    kind,
                    node,
                )
                # so have all nodes that see the same
                if column.is_pure[node] and self._views is not None:
                    column.room[column.is_pure & (self._views.of == self._views.of[node])] = (
                        column.room[node]
                    )

        faults = (fault for node, fault in self._faults_of(kind) if wanted[node] > 0)
        self._faults[kind] = next(faults, None)
        found: Ints = np.maximum(column.room, 0)  # UNKNOWN is -1

        return found

    def fault(self, kind: DeviceKind) -> NodeRoom | None:
        """The kind's error on one of the nodes whose room was last requested; None if there was no
        error.
        """
        return self._faults.get(kind)

    def faulty(self, kind: DeviceKind) -> list[int]:
        """Nodes on which an error of the kind was found, in this plan or before."""
        return [node for node, _ in self._faults_of(kind)]

    @property
    def invalid(self) -> Bools:
        """Nodes with an invalid pool, such as one with two devices of the same name; only pools
        read so far count.
        """
        views = self._views
        found = np.zeros(len(self._table), dtype=np.bool_)

        if views is not None:
            found |= np.isin(views.of, [*views.invalid])

        found[
            [self._table.index[name] for name in self.index.invalid if name in self._table.index]
        ] = True
        return found

    def read_pools(self, nodes: Bools) -> None:
        """Read the pools of these nodes that no search has read yet."""
        names = self._table.names
        views = self._views

        for node in self.index.unread(names[node] for node in np.flatnonzero(nodes).tolist()):
            self._work.charge(
                UNITS_A_NODE
                + UNITS_A_DEVICE * sum(len(pool.devices) for pool in self.index.pools(node))
            )

        if views is not None:
            for view in views.unread(nodes):
                self._work.charge(UNITS_A_NODE + self.index.slices.joint_devices // 8)
                views.pools((view,))

    def known(self, kind: DeviceKind) -> Ints:
        """`room[node]` of searched nodes, `UNKNOWN` for all others. Read-only."""
        return self._column(kind).room

    def fits(self, kind: DeviceKind, node: int) -> bool:
        """Whether the node has devices for one more pod of the kind."""
        return self._search(kind, node).pods > 0

    def is_shared(self, kind: DeviceKind) -> bool:
        """Whether pods of the kind may compete for devices across nodes."""
        views = self._views
        if views is None:
            return False

        return bool(self._touches(kind, views).any())

    def _faults_of(self, kind: DeviceKind) -> Iterator[tuple[int, NodeRoom]]:
        index = self._table.index
        yield from (
            (index[name], fault) for name, fault in self.index.faults(kind) if name in index
        )
        yield from self._joint_faults.get(kind, {}).items()

    def _column(self, kind: DeviceKind) -> PlanColumn:
        column = self._columns.get(kind)
        views = self._views

        if column is None:
            self._work.charge(20 + len(self._table) // 20)
            room = self.index.column(kind, self._table).copy()
            is_pure = np.zeros(len(self._table), dtype=np.bool_)

            if views is not None:
                self._work.charge(len(self._table) // 2)
                is_pure = (
                    self.index.pure_on(kind, self._table) & self._touches(kind, views)[views.of]
                )

            column = self._columns[kind] = PlanColumn(room, is_pure, 0, -1)

        moved = self._moved[column.seen :]
        if moved:
            column.room[moved] = UNKNOWN  # a node without devices is searched in no time

        column.seen = len(self._moved)
        if views is not None and column.joint_seen != self._joint_moves:
            self._work.charge(20 + len(self._table) // 20)
            touched = self._touches(kind, views)[views.of]

            # devices of the node alone are still there
            alone = self.index.column(kind, self._table)
            column.room[touched] = np.where(alone > 0, alone, UNKNOWN)[touched]
            column.room[[node for node, items in self._on.items() if items]] = UNKNOWN
            column.room[list(self._free)] = UNKNOWN
            column.joint_seen = self._joint_moves

        return column

    def _search(self, kind: DeviceKind, node: int) -> NodeRoom:
        is_joint = self._is_joint(kind, (node,))
        if is_joint and self._is_local(kind, node):
            # Either suffices, and is known for many nodes at once; only then both are searched
            # together.
            for found in (self._search_alone(kind, node), self._search_pools(kind, node)):
                if found.pods > 0:
                    return found

        items = self._located(self._competing(kind, (node,), is_joint=is_joint, moved={}))
        found = self._searched_beside(
            items,
            (kind, self._place(kind, (node,), is_joint=is_joint)),
            (node,),
        )
        if found.fault and is_joint:
            self._joint_faults.setdefault(kind, {})[node] = found

        return found

    def _search_alone(self, kind: DeviceKind, node: int) -> NodeRoom:
        """The room if all pods of the plan on the node use its own devices."""
        here = []
        for uid in self._on.get(node, ()):
            here.append(self._items[uid])

        place = ClaimPlace(self._table.names[node])
        own = sorted(
            placed_claims
            for placed_claims in here
            if placed_claims.uid not in self._joint or self._mixed_on(placed_claims)
        )

        return self._searched_beside(
            tuple((placed_claims.kind, place) for placed_claims in own),
            (kind, place),
            (node,),
        )

    def _search_pools(self, kind: DeviceKind, node: int) -> NodeRoom:
        """The room if a pod uses devices of pools of several nodes alone."""
        views = self._views
        assert views is not None
        items = self._located(self._competing(kind, (node,), is_joint=True, moved={}, is_pure=True))

        return self._searched_beside(items, (kind, ClaimPlace("", (int(views.of[node]),))), (node,))

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
        without = self._without(nodes, (*placed, item))
        if not placed and not without:
            known = self.index.known(kind, place)
            if known is not None:
                return known
        else:
            known = self.index.known_beside(placed, item, without, most)
            if known is not None:
                return known

        self._work.charge(UNITS_A_NODE + self._asked((*placed, item)))
        if placed or without:
            found, steps = self.index.search_beside(placed, item, without, most)
        else:
            found, steps = self.index.search(kind, place)

        # what was found is kept, so that the next plan goes on behind it
        self._work.charge(steps * UNITS_A_STEP)
        return found

    def _asked(self, items: Sequence[Located]) -> int:
        places = dict.fromkeys(place for _, place in items)
        nodes = {place.node for place in places} - {""}
        own = 0
        for node in nodes:
            for pool in self.index.pools(node):
                own += len(pool.devices)

        views = {place.views for place in places} - {()}
        seen = sum(
            len(pool.devices)
            for view in views
            for pool in self.index.pools_at(ClaimPlace("", view))
        )
        devices = own + min(seen, MOST_JOINT * len(views)) + seen // 16
        kinds = dict.fromkeys(items)
        requests = sum(
            len(group) for kind, _ in kinds for claim in kind.claims for group in claim.requests
        )

        return devices * (UNITS_A_DEVICE + UNITS_A_QUESTION * requests)

    def _without(self, nodes: Iterable[int], items: Iterable[Located]) -> frozenset[str]:
        """The claims that are freed where these items may have devices."""
        if not self._free:
            return frozenset()
        if any(place.views for _, place in items):
            return frozenset[str]().union(*self._free.values())

        return frozenset[str]().union(*(self._free.get(node, frozenset()) for node in nodes))

    # --- pools of several nodes ------------------------------------------------------------------

    @property
    def _views(self) -> Views | None:
        if not self.index.is_viewed(self._table):
            self._work.charge(UNITS_A_VIEW * (1 + len(self._table) // 1_000))

        return self.index.views(self._table, self._matching)

    def _touches(self, kind: DeviceKind, views: Views) -> Bools:
        """`touches[view]`: pods of the kind may use devices that are seen there."""
        if kind not in self._touched:
            self._work.charge(20 + len(views.component))
            seen = {*views.of[views.sees].tolist()}
            places = (
                ClaimPlace("", (view,)) if view in seen else None
                for view in range(len(views.component))
            )
            self._touched[kind] = np.array(
                [place is not None and self._uses(kind, place) for place in places]
            )

        return self._touched[kind]

    def _uses(self, kind: DeviceKind, place: ClaimPlace) -> bool:
        if not self.index.is_known(kind, place):
            # A pool is looked through as a whole for each part of it that some nodes see.
            self._work.charge(
                UNITS_A_NODE + (self.index.slices.joint_devices // 8 if place.views else 0)
            )
            self._work.charge(self._asked(((kind, place),)))

        return self.index.uses(kind, place)

    def _is_local(self, kind: DeviceKind, node: int) -> bool:
        """Whether pods of the kind may use devices of the node alone."""
        return self._uses(kind, ClaimPlace(self._table.names[node]))

    def _is_joint(self, kind: DeviceKind, nodes: tuple[int, ...]) -> bool:
        """Whether claims of the kind may use devices of several nodes."""
        views = self._views
        if views is None or not views.sees[nodes[0]]:
            return False

        if len(nodes) > 1:
            return True

        return bool(self._touches(kind, views)[views.of[nodes[0]]])

    def may_join(self, kind: DeviceKind, nodes: Iterable[int]) -> bool:
        """Whether one claim might be usable on all these nodes."""
        views = self._views
        places = tuple(nodes)
        return len(places) < 2 or (
            views is not None and all(self._is_joint(kind, (node,)) for node in places)
        )

    def _place(self, kind: DeviceKind, nodes: tuple[int, ...], *, is_joint: bool) -> ClaimPlace:
        views = self._views
        if not is_joint or views is None:
            return ClaimPlace(self._table.names[nodes[0]])

        name = (
            self._table.names[nodes[0]]
            if len(nodes) == 1 and self._is_local(kind, nodes[0])
            else ""
        )
        return ClaimPlace(name, tuple(sorted({int(views.of[node]) for node in nodes})))

    def _located(
        self,
        items: Iterable[PlacedClaims],
        moved: Container[str] = (),
    ) -> tuple[Located, ...]:
        """Where the items are; those that are `moved` are on several nodes."""
        return tuple(
            self._at(
                placed_claims,
                is_joint=placed_claims.uid in self._joint or placed_claims.uid in moved,
            )
            for placed_claims in items
        )

    def _at(self, item: PlacedClaims, *, is_joint: bool) -> Located:
        key = (item.kind, item.nodes, is_joint)
        if key not in self._places:  # one object: a search remembers all items beside it
            self._places[key] = (item.kind, self._place(item.kind, item.nodes, is_joint=is_joint))

        return self._places[key]

    def _competing(
        self,
        kind: DeviceKind,
        nodes: tuple[int, ...],
        *,
        is_joint: bool,
        moved: Mapping[str, PlacedClaims],
        is_pure: bool = False,
    ) -> list[PlacedClaims]:
        """The items that may take devices from claims of the kind on these nodes, in order; `moved`
        replaces some.
        """
        views = self._views
        joint = []
        for uid in self._joint | moved.keys():
            joint.append(moved.get(uid, self._items[uid]))

        here: set[str] = set()
        for node in nodes:
            here.update(self._on.get(node, ()))

        if not is_joint:
            both = (
                placed_claims
                for placed_claims in joint
                if placed_claims.uid in here and self._mixed_on(placed_claims) == nodes
            )
            if views is None or next(both, None) is None:
                found = [self._items[uid] for uid in here - self._joint]
                return sorted(found)

        assert views is not None
        component = views.component[views.of[nodes[0]]]
        joint = [
            placed_claims
            for placed_claims in joint
            if views.component[views.of[placed_claims.nodes[0]]] == component
        ]
        full: set[int] = set()
        for placed_claims in joint:
            full.update(self._mixed_on(placed_claims))

        if len(nodes) == 1 and not is_pure and self._is_local(kind, nodes[0]):
            full.add(nodes[0])

        local = (
            {uid for node in full for uid in self._on.get(node, ())} - self._joint - moved.keys()
        )
        return sorted([*joint, *(self._items[uid] for uid in local)])

    def _mixed_on(self, item: PlacedClaims) -> tuple[int, ...]:
        """The node whose own devices a joint item may use, too."""
        if len(item.nodes) == 1 and self._is_local(item.kind, item.nodes[0]):
            return item.nodes

        return ()

    # --- claims that other pods share ------------------------------------------------------------

    def joins(self, claims: tuple[str, ...], kind: DeviceKind | None, wanted: Ints) -> Bools:
        """`joins[node]`: claims that the plan has placed can be used on this node, too, together
        with one more pod of the kind.

        Only nodes with `wanted[node]` > 0 are searched.
        """
        key = (claims, kind)
        moves, column = self._joining.get(key, (-1, np.zeros(0, dtype=np.int64)))
        if moves != len(self._moved):
            column = np.full(len(self._table), UNKNOWN, dtype=np.int64)
            self._joining[key] = (len(self._moved), column)

        views = self._views
        on: list[int] = []
        for claim in claims:
            on += self._items[claim].nodes

        alike = (
            np.ones(len(self._table), dtype=np.bool_)
            if kind is None
            else self._column(kind).is_pure.copy()
        )
        alike[on] = False

        for node in np.flatnonzero((column == UNKNOWN) & (wanted > 0)).tolist():
            if column[node] == UNKNOWN:
                self._work.charge(20)
                column[node] = self._may_go_on(claims, kind, node)
                if alike[node] and views is not None:  # all nodes that see the same
                    column[alike & (views.of == views.of[node])] = column[node]

        found: Bools = column == 1
        return found

    def room_together(self, kind: DeviceKind, room: Ints) -> Ints:
        """`together[node]`: pods that fit on this node and on all nodes where a claim of the kind
        is also usable.
        """
        views = self._views
        if views is None or not self.is_shared(kind):
            return room

        own = np.where(views.sees, room, 0)  # nodes without a view share nothing
        seen = [
            view
            for view in np.unique(views.of[own > 0]).tolist()
            if self._touches(kind, views)[view]
        ]
        if len(seen) > MOST_VIEWS:
            return np.maximum(room, int(own.sum()))  # a bound: all are tried

        total = {}
        for view in seen:
            total[view] = int(own[views.of == view].sum())

        found = room.copy()

        for view in seen:
            nodes = views.of == view
            others = (
                other for other in seen if self._is_usable(kind, tuple(sorted({view, other})))
            )
            found[nodes] = np.maximum(found[nodes], sum(total[other] for other in others))

        return found

    def _is_usable(self, kind: DeviceKind, views: tuple[int, ...]) -> bool:
        """Whether a claim could be used on all nodes with these views."""
        return self._searched_beside((), (kind, ClaimPlace("", views)), ()).pods > 0

    def lacking(self, claims: tuple[str, ...], kind: DeviceKind | None) -> Bools:
        """Nodes on which `joins` found no devices since the last move."""
        moves, column = self._joining.get((claims, kind), (-1, np.zeros(0, dtype=np.int64)))
        found: Bools = (
            column == 0 if moves == len(self._moved) else np.zeros(len(self._table), dtype=np.bool_)
        )
        return found

    def _may_go_on(self, claims: tuple[str, ...], kind: DeviceKind | None, node: int) -> bool:
        items = [self._items[claim] for claim in claims]
        moved = {
            placed_claims.uid: placed_claims._replace(nodes=(*placed_claims.nodes, node))
            for placed_claims in items
            if node not in placed_claims.nodes
        }
        if not moved:
            return kind is None or self.fits(kind, node)
        if not all(
            self.may_join(placed_claims.kind, placed_claims.nodes)
            for placed_claims in moved.values()
        ):
            return False

        last = next(reversed(moved.values()))
        asked, nodes = (last.kind, last.nodes) if kind is None else (kind, (node,))

        # a shared claim alone always spans nodes
        is_joint = kind is None or self._is_joint(kind, nodes)
        competing = self._competing(last.kind, last.nodes, is_joint=True, moved=moved)

        if kind is not None:
            beside = self._competing(kind, nodes, is_joint=is_joint, moved=moved)
            competing = sorted({*competing, *beside})

        placed = self._located(
            (
                placed_claims
                for placed_claims in competing
                if kind is not None or placed_claims.uid != last.uid
            ),
            moved,
        )
        place = self._place(asked, nodes, is_joint=is_joint)
        return self._searched_beside(placed, (asked, place), nodes, most=1).pods > 0

    # --- devices ---------------------------------------------------------------------------------

    def solve(self) -> bool:
        """Choose devices on nodes with newly placed pods; False if any pod got none. Raises
        OutOfWork.
        """
        is_found = True
        for node in sorted(self._unsolved):
            for uid in sorted(self._on.get(node, ())):
                _, placed, without = self._with(self._items[uid])
                if not self.index.is_solved(placed, without):
                    self._work.charge(UNITS_A_NODE + self._asked(placed))
                    self._work.charge(self.index.solve(placed, without) * UNITS_A_STEP)

                is_found &= self.index.solution(placed, without) is not None

            self._unsolved.discard(node)

        return is_found

    def chosen(self, uid: str) -> tuple[tuple[DeviceResult, ...], ...] | None:
        """The devices of each claim of an item; None if the plan found none within its work."""
        item = self._items.get(uid)
        if item is None:
            return None

        items, placed, without = self._with(item)
        solution = self.index.solution(placed, without)
        if solution is None:
            return None

        return solution[items.index(item)]

    def placed(self, uid: str) -> PlacedClaims | None:
        """The item that the plan has placed for this uid; None if there is none."""
        return self._items.get(uid)

    def _with(
        self,
        item: PlacedClaims,
    ) -> tuple[list[PlacedClaims], tuple[Located, ...], frozenset[str]]:
        """The item and all that may take devices from it, where they are, and the claims that are
        freed.
        """
        key = (item.kind, item.nodes, item.uid in self._joint)
        # Once for all items of a node, which are asked for one after the other.
        if key not in self._together:
            items = self._competing(item.kind, item.nodes, is_joint=key[-1], moved={})
            placed = self._located(items)
            self._together[key] = items, placed, self._without(item.nodes, placed)

        return self._together[key]
