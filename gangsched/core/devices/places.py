"""Where pods may get devices: nodes, and views of pools that several nodes can use.

Invariant: it depends on the cluster alone, not on what a plan has placed. What is read for the
first time is charged to the plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np

from gangsched.core.devices.device_index import DeviceIndex
from gangsched.core.devices.located import DeviceKind, Located
from gangsched.core.devices.views import MOST_JOINT, ClaimPlace, Matching, Views
from gangsched.core.work import Work
from gangsched.model.snapshot import Bools, NodeTable

UNITS_A_NODE = 80
UNITS_A_DEVICE = 10
UNITS_A_QUESTION = 12
"""Units of searching a node: for itself, each device, and each request about each device."""
UNITS_A_VIEW = 2_000
"""Units of finding out what nodes see of pools of several nodes, on a thousand nodes."""

Nodes: TypeAlias = tuple[int, ...]
"""Nodes, or views of them, by index."""


class DevicePlaces:
    """The places of one node table, as one plan reads them."""

    def __init__(
        self,
        table: NodeTable,
        index: DeviceIndex,
        work: Work,
        matching: Matching,
    ) -> None:
        self._table = table
        self._index = index
        self._work = work
        self._matching = matching
        self._touched: dict[DeviceKind, Bools] = {}

    @property
    def invalid(self) -> Bools:
        """Nodes with an invalid pool, such as one with two devices of the same name; only pools
        read so far count.
        """
        views = self.views
        invalid = np.zeros(len(self._table), dtype=np.bool_)
        if views is not None:
            invalid |= np.isin(views.of, [*views.invalid])

        index = self._table.index
        for name in self._index.invalid:
            if name in index:
                invalid[index[name]] = True

        return invalid

    def read_pools(self, nodes: Bools) -> None:
        """Read the pools of these nodes that no search has read yet."""
        views = self.views
        names = self._table.names
        asked = [names[node] for node in np.flatnonzero(nodes).tolist()]

        for name in self._index.unread(asked):
            devices = 0
            for pool in self._index.pools(name):
                devices += len(pool.devices)

            self._work.charge(UNITS_A_NODE + UNITS_A_DEVICE * devices)

        if views is None:
            return

        for view in views.unread(nodes):
            self._work.charge(UNITS_A_NODE + self._index.slices.joint_devices // 8)
            views.pools((view,))

    def is_shared(self, kind: DeviceKind) -> bool:
        """Whether pods of the kind may compete for devices across nodes."""
        views = self.views
        if views is None:
            return False

        return bool(self.touches(kind, views).any())

    def units(self, items: Sequence[Located]) -> int:
        """Units of asking the requests of these items about all devices of their places."""
        places = dict.fromkeys(place for _, place in items)
        nodes = {place.node for place in places} - {""}
        own = 0
        for node in nodes:
            for pool in self._index.pools(node):
                own += len(pool.devices)

        views = {place.views for place in places} - {()}
        viewed = 0
        for view in views:
            for pool in self._index.pools_at(ClaimPlace("", view)):
                viewed += len(pool.devices)

        requests = 0
        for kind, _ in dict.fromkeys(items):
            for claim in kind.claims:
                requests += sum(len(alternatives) for alternatives in claim.requests)

        searched = min(viewed, MOST_JOINT * len(views))
        devices = own + searched + viewed // 16
        return devices * (UNITS_A_DEVICE + UNITS_A_QUESTION * requests)

    @property
    def views(self) -> Views | None:
        """What nodes see of pools of several nodes; None if there are no such pools."""
        if not self._index.is_viewed(self._table):
            self._work.charge(UNITS_A_VIEW * (1 + len(self._table) // 1_000))

        return self._index.views(self._table, self._matching)

    def touches(
        self,
        kind: DeviceKind,
        views: Views,
    ) -> Bools:
        """`touches[view]`: pods of the kind may use devices that are seen there."""
        if kind in self._touched:
            return self._touched[kind]

        number = len(views.component)
        self._work.charge(20 + number)
        touches = np.zeros(number, dtype=np.bool_)
        seen_views = np.unique(views.of[views.sees])
        for view in seen_views.tolist():
            touches[view] = self.uses(kind, ClaimPlace("", (view,)))

        self._touched[kind] = touches
        return touches

    def uses(
        self,
        kind: DeviceKind,
        place: ClaimPlace,
    ) -> bool:
        """Whether pods of the kind may use devices of the place."""
        if not self._index.is_known(kind, place):
            # A pool is looked through as a whole for each part of it that some nodes see.
            of_pools = self._index.slices.joint_devices // 8 if place.views else 0
            self._work.charge(UNITS_A_NODE + of_pools)
            self._work.charge(self.units(((kind, place),)))

        return self._index.uses(kind, place)

    def is_local(
        self,
        kind: DeviceKind,
        node: int,
    ) -> bool:
        """Whether pods of the kind may use devices of the node alone."""
        return self.uses(kind, ClaimPlace(self._table.names[node]))

    def is_joint(
        self,
        kind: DeviceKind,
        nodes: Nodes,
    ) -> bool:
        """Whether claims of the kind may use devices of several nodes."""
        views = self.views
        if views is None:
            return False

        first = nodes[0]
        if not views.sees[first]:
            return False
        if len(nodes) > 1:
            return True

        touches = self.touches(kind, views)
        return bool(touches[views.of[first]])

    def may_join(
        self,
        kind: DeviceKind,
        nodes: Iterable[int],
    ) -> bool:
        """Whether one claim might be usable on all these nodes."""
        places = tuple(nodes)
        if len(places) < 2:
            return True
        if self.views is None:
            return False

        return all(self.is_joint(kind, (node,)) for node in places)

    def place(
        self,
        kind: DeviceKind,
        nodes: Nodes,
        *,
        is_joint: bool,
    ) -> ClaimPlace:
        """The place of claims on these nodes; `is_joint`: with the pools that the nodes see."""
        views = self.views
        first = nodes[0]
        name = self._table.names[first]
        if not is_joint or views is None:
            return ClaimPlace(name)

        if len(nodes) > 1 or not self.is_local(kind, first):
            name = ""

        seen_views = {int(views.of[node]) for node in nodes}
        return ClaimPlace(name, tuple(sorted(seen_views)))
