"""How many pods of a group fit on each node, with the rules about groups (`core.group_rules`)
applied.

Invariant: the ledger is only read.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gangsched.core.filter import static_fit
from gangsched.core.group_rules import rules_of
from gangsched.core.placement_attempt import PlacementAttempt
from gangsched.model.gpu_policy import PRODUCT_LABEL, SHARING_LABEL, GpuPolicy
from gangsched.model.objects import Shape
from gangsched.model.snapshot import Bools, Ints, NodeTable, RefusedNodes

RESERVED = "node(s) are reserved for a gang that has waited longer"


def look_ahead(table: NodeTable, policy: GpuPolicy) -> None:
    """Read in advance, from all nodes, the labels that gangs with GPUs need: 10 ms for 15,000
    nodes.
    """
    for key in (*policy.topology_keys, PRODUCT_LABEL, SHARING_LABEL):
        table.label_column(key)


def closed(shape: Shape, attempt: PlacementAttempt) -> Iterator[RefusedNodes]:
    """Yield the nodes that are closed to the group's pods of `shape`, by reason."""
    for rule in rules_of(attempt):
        yield from rule.closed(shape, attempt)


def closed_for_long(shape: Shape, attempt: PlacementAttempt) -> Iterator[Bools]:
    """Yield the nodes that are closed to the group's pods of `shape` for reasons that do not expire
    on their own.
    """
    for rule in rules_of(attempt):
        if rule.expires:
            continue

        for refused in rule.closed(shape, attempt):
            yield refused.nodes


def eligible(shape: Shape, attempt: PlacementAttempt) -> Bools:
    """The nodes that pods of `shape` may use, whatever runs there."""
    nodes = static_fit(shape, attempt.ledger.table).mask
    for mask in closed_for_long(shape, attempt):
        nodes = nodes & ~mask

    return nodes


def kept_from(shape: Shape, attempt: PlacementAttempt) -> Iterator[RefusedNodes]:
    """Yield the nodes that have room for a pod of `shape`, but that reservations close to the group
    (H8).
    """
    ledger = attempt.ledger
    reserved = ledger.promises.reserved
    if reserved is not None:
        room = ledger.room(shape)
        left = reserved.narrow(shape, room, attempt.group)
        yield RefusedNodes(RESERVED, (room > 0) & (left <= 0))


def usable(shape: Shape, attempt: PlacementAttempt) -> Ints:
    """`usable[n]`: number of pods of `shape` that fit on node `n` now, 0 if the node is closed to
    the group. Read-only.

    Room that is reserved for other groups does not count (H8).
    """
    ledger = attempt.ledger
    number = len(ledger.table)
    ledger.work.charge(10 + number // 300)
    room = ledger.room(shape)

    rules = rules_of(attempt)
    for rule in rules:
        for refused in rule.closed(shape, attempt):
            room = np.where(refused.nodes, 0, room)

    for rule in rules:
        if rule.narrows:
            room = rule.narrow(shape, room, attempt)

    return room
