"""Views: the part of the joint pools (pools that several nodes can use) that one node can use.

Invariant: nodes that can use the same devices of joint pools have the same view, so one search
covers all of them. Pods on nodes whose views are not connected cannot compete for devices or
counters.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from gangsched.core.devices.pools import Pool, PoolDevice, PoolId, SliceIndex, in_order
from gangsched.core.node_terms import NODE_NAME_FIELD
from gangsched.model.devices import DeviceId, NodeScope
from gangsched.model.inter_pod import Requirement
from gangsched.model.objects import NodeSelectorTerm
from gangsched.model.snapshot import Bools, Ints, NodeTable

MOST_JOINT: Final = 150
"""Devices of such pools that one search considers, of those that match and are free: it takes no
more (`_DEEPEST`).
"""

Matching: TypeAlias = Callable[[tuple[NodeSelectorTerm, ...] | None], Bools]
"""`matching(terms)[node]`: the node matches one of the terms."""


class ClaimPlace(NamedTuple):
    """Where a claim must be usable: with devices of `node` alone ("": none), and with devices in
    all `views`.
    """

    node: str
    views: tuple[int, ...] = ()


class Views:
    """The view `of` each node, and whether the node `sees` any pool of several nodes. Views with
    equal `component[view]` are connected.
    """

    def __init__(
        self,
        slices: SliceIndex,
        table: NodeTable,
        matching: Matching,
    ) -> None:
        self._slices = slices
        self._table = table
        self._pools: dict[tuple[int, ...], tuple[Pool, ...]] = {}
        self.invalid: set[int] = set()  # views, of those whose pools were asked for

        # Only in a plan, whose work is charged: to match 300 selectors with 5,000 nodes in the
        # state took seconds (decision 0106).
        scopes = slices.joint_scopes()
        numbers = list(scopes)

        # All nodes see these, so they need not be part of the keys; `_components` adds them again.
        everywhere = [
            number for number, scope in enumerate(numbers) if scope.everywhere and not scope.node
        ]
        seen: list[list[int]] = [[] for _ in table.nodes]

        for number, scope in enumerate(numbers):
            for node in _nodes(scope, table, matching):
                seen[node].append(number)

        # Seeing nothing is view 0 whether or not a node does: results are kept by the numbers of
        # views, and a node that comes first in the table must not shift them.
        keys: dict[tuple[int, ...], int] = {(): 0}
        self.of: Ints = np.array(
            [keys.setdefault(tuple(each), len(keys)) for each in seen],
            dtype=np.int64,
        )
        self.sees: Bools = np.array([bool(key or everywhere) for key in keys], dtype=np.bool_)[
            self.of
        ]

        # Reversed, so that the first node of each view wins: any of them sees the same pools.
        self.example = {int(view): node for node, view in reversed(list(enumerate(self.of)))}
        self.component = _components(
            [(*key, *everywhere) for key in keys],
            numbers,
            scopes,
            slices.with_counters(),
        )
        self.scopes_of = {
            name: tuple(numbers[number] for number in seen[node])
            for name, node in table.index.items()
            if seen[node]
        }
        """By name of the node, what its view depends on beside the slices."""

    def pools(self, views: tuple[int, ...]) -> tuple[Pool, ...]:
        """The pools of several nodes, limited to devices that are in all these views."""
        if views not in self._pools:
            first, *others = (
                self._slices.joint_pools(self._table.nodes[self.example[view]]) for view in views
            )
            seen = [
                {device.id for pool in pools for device in pool.devices if device.here}
                for pools in others
            ]

            # The pools of all these views are the same; only which devices are usable differs.
            self._pools[views] = (
                tuple(_seen_by_all(pool, seen) for pool in first) if others else first
            )
            if not others and any(pool.invalid for pool in first):
                self.invalid.update(views)

        return self._pools[views]

    def unread(self, nodes: Bools) -> list[int]:
        """The views of these nodes whose pools have not been read yet."""
        result: list[int] = []
        for view in np.unique(self.of[nodes & self.sees]).tolist():
            if (view,) not in self._pools:
                result.append(view)

        return result


def _nodes(
    scope: NodeScope,
    table: NodeTable,
    matching: Matching,
) -> Iterable[int]:
    if scope.node:
        if scope.node in table.index:
            return (table.index[scope.node],)

        return ()

    if scope.everywhere or scope.terms is None:
        return ()

    found: list[int] = np.flatnonzero(matching(scope.terms)).tolist()
    return found


def _components(
    keys: Sequence[tuple[int, ...]],
    scopes: Sequence[NodeScope],
    pools: dict[NodeScope, set[PoolId]],
    with_counters: Collection[PoolId],
) -> list[int]:
    """Numbers that are equal for connected views: those with a scope in common, or a pool with
    counters.
    """
    first: dict[object, int] = {}
    root = list(range(len(keys)))

    def find(at: int) -> int:
        while root[at] != at:
            # Path halving keeps the trees flat without recursion.
            root[at] = at = root[root[at]]

        return at

    for view, key in enumerate(keys):
        # A scope of one node connects nothing; a pool's counters connect all who see any part of
        # it.
        joins: list[object] = []
        for number in key:
            if not scopes[number].node:
                joins.append(number)

        for number in key:
            for pool in pools[scopes[number]]:
                if pool in with_counters:
                    joins.append(pool)

        for join in joins:
            root[find(view)] = find(first.setdefault(join, view))

    return [find(view) for view in range(len(keys))]


def _seen_by_all(pool: Pool, seen: Iterable[Collection[DeviceId]]) -> Pool:
    devices = tuple(
        device if all(device.id in ids for ids in seen) else replace(device, here=False)
        for device in pool.devices
    )
    return replace(pool, devices=devices)


def cut(
    pools: Sequence[Pool],
    is_used: Callable[[DeviceId], bool],
    matches: Callable[[PoolDevice], bool],
) -> tuple[Pool, ...]:
    """Reduce the pools to at most `MOST_JOINT` matching, free devices in total. The other devices
    only count as users of counters.
    """
    # The usual case is decided without asking any selector.
    if sum(len(pool.devices) for pool in pools) <= MOST_JOINT:
        return tuple(pools)

    found = []
    left = MOST_JOINT

    for pool in pools:
        matching = []
        for device in pool.devices:
            if device.here and matches(device):
                matching.append(device)

        free = [device for device in matching if device.device.shared or not is_used(device.id)][
            :left
        ]
        left -= len(free)
        kept = {device.id for device in free}

        # Devices that are cut still consume counters, as those of other nodes do.
        rest = tuple(device for device in pool.devices if device.id not in kept)
        is_cut = len(free) < len(matching)
        found.append(
            replace(pool, devices=tuple(free), elsewhere=(*pool.elsewhere, *rest), is_cut=is_cut)
        )

    return tuple(found)


def merged(views: Iterable[Sequence[Pool]]) -> tuple[Pool, ...]:
    """Merge the pools of several places; a device that is visible at several places is
    one device.
    """
    parts: dict[PoolId, list[Pool]] = defaultdict(list)
    for pools in views:
        for pool in pools:
            parts[pool.id].append(pool)

    return in_order(map(_merged, parts.values()))


def _merged(parts: Sequence[Pool]) -> Pool:
    if len(parts) == 1:
        return parts[0]

    devices = {}
    for part in reversed(parts):
        for device in part.devices:
            devices[device.id] = device

    elsewhere = {
        device.id: device for part in parts for device in part.elsewhere if device.id not in devices
    }
    ordered = dict.fromkeys(device.id for part in parts for device in part.devices)
    counters = {}
    for part in parts:
        for counter, amount in part.counters.items():
            counters[counter] = amount

    return replace(
        parts[0],
        devices=tuple(devices[each] for each in ordered),
        elsewhere=tuple(elsewhere.values()),
        counters=counters,
    )


def reachable_from(
    devices: Iterable[PoolDevice],
    node: str,
) -> tuple[NodeSelectorTerm, ...] | None:
    """The nodes that can use all these devices, which were chosen on `node`; None for every node.

    As in kube-scheduler: only `node` if one of the devices belongs to a single node, otherwise the
    nodes that meet the requirements of all devices.
    """
    labels: dict[Requirement, None] = {}
    fields: dict[Requirement, None] = {}

    for device in devices:
        # One such device ties the claim to the node (structured allocator, createNodeSelector).
        if device.scope.node or device.device.binds_to_node:
            return (NodeSelectorTerm(fields=(Requirement(NODE_NAME_FIELD, "In", (node,)),)),)

        for term in device.scope.terms or ():  # the API allows one
            labels.update(dict.fromkeys(term.labels))
            fields.update(dict.fromkeys(term.fields))

    if labels or fields:
        return (NodeSelectorTerm(labels=tuple(labels), fields=tuple(fields)),)

    return None
