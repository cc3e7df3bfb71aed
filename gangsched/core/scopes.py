"""Nodes that are closed to a group, and how many of its pods fit on the remaining nodes.

Invariant: the ledger is only read. A node is closed because of the group (a kubelet rejected a member, pods share GPUs,
room is held back or reserved for others), or because it is outside the current scope.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator

import numpy as np

from gangsched.core.reserve import Ledger
from gangsched.model.gang import Group
from gangsched.model.gpu_policy import (
    NOT_SHARED,
    PRODUCT_LABEL,
    SHARED_RESOURCE,
    SHARED_SUFFIX,
    SHARING_LABEL,
    GpuPolicy,
)
from gangsched.model.objects import Shape
from gangsched.model.snapshot import Bools, Ints, NodeTable, RefusedNodes

AVOIDED = "node(s) recently rejected a member of this gang"
HELD_BACK = "node(s) are temporarily reserved for a higher-priority gang"
RESERVED = "node(s) are reserved for a gang that has waited longer"
SHARED = "node(s) share GPUs between pods, which this gang does not allow"


def look_ahead(table: NodeTable, policy: GpuPolicy) -> None:
    """Read in advance, from all nodes, the labels that gangs with GPUs need: 10 ms for 15,000 nodes."""
    for key in (*policy.topology_keys, PRODUCT_LABEL, SHARING_LABEL):
        table.label_column(key)


def closed(group: Group, shape: Shape, ledger: Ledger) -> Iterator[RefusedNodes]:
    """Yield the nodes that are closed to the group's pods of `shape`, by reason."""
    if group.avoid:
        yield RefusedNodes(AVOIDED, ledger.table.having(group.avoid))
    accelerated = ledger.accelerated(shape)
    if accelerated and not _may_share(group, shape):
        stated = _having(SHARING_LABEL, lambda value: value not in NOT_SHARED, ledger.table)
        named = _having(PRODUCT_LABEL, lambda value: value.endswith(SHARED_SUFFIX), ledger.table)
        yield from (RefusedNodes(SHARED, mask) for mask in (stated, named) if mask is not None)
    if (nodes := ledger.promises.closed(group)) is not None:
        yield RefusedNodes(HELD_BACK, nodes)
    inside = ledger.scope.accelerated if accelerated else ledger.scope.others
    if inside is not None:
        yield RefusedNodes(ledger.scope.text, ~inside)


def closed_for_long(group: Group, shape: Shape, ledger: Ledger) -> Iterator[Bools]:
    """Yield the nodes that are closed to the group's pods of `shape` for reasons that do not expire on their own."""
    return (nodes for why, nodes in closed(group, shape, ledger) if why not in (AVOIDED, HELD_BACK))


def kept_from(group: Group, shape: Shape, ledger: Ledger) -> Iterator[RefusedNodes]:
    """Yield the nodes that have room for a pod of `shape`, but that reservations close to the group (H8)."""
    if ledger.promises.reserved is not None:
        room = ledger.room(shape)
        yield RefusedNodes(RESERVED, (room > 0) & (ledger.promises.narrow(shape, room, group) <= 0))


def standing(group: Group, shape: Shape, ledger: Ledger) -> Hashable:
    """A key of the nodes that are closed to the group's pods of `shape`: equal keys mean equal nodes."""
    scope = ledger.scope
    everywhere = scope.accelerated is None and scope.others is None
    # Scopes compare by identity: two attempts with equal nodes are rare, and comparing masks is not free.
    return group.avoid, _may_share(group, shape), None if everywhere else scope, ledger.promises.standing(group)


def _having(key: str, holds: Callable[[str], bool], table: NodeTable) -> Bools | None:
    """`having[n]`: node `n` has the label `key` with a value for which it holds; None if no node does."""
    column = table.label_column(key)
    codes = [code for code, value in enumerate(column.values) if holds(value)]
    return np.isin(column.codes, codes) if codes else None


def usable(shape: Shape, group: Group, ledger: Ledger) -> Ints:
    """`usable[n]`: number of pods of `shape` that fit on node `n` now, 0 if the node is closed to the group. Read-only.

    Room that is reserved for other groups does not count (H8).
    """
    ledger.work.charge(10 + len(ledger.table) // 300)
    room = ledger.room(shape)
    for _, mask in closed(group, shape, ledger):
        room = np.where(mask, 0, room)
    return ledger.promises.narrow(shape, room, group)


def _may_share(group: Group, shape: Shape) -> bool:
    """Whether the pod may use GPUs that pods share."""
    # A pod that requests the shared resource by name has agreed to share.
    return group.shares_gpus or any(name == SHARED_RESOURCE for name, _ in shape.requests)
