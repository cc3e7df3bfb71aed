"""Nodes that a group avoids: one table, node to cause and end (B6, L8, V12)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple


class AvoidCause(StrEnum):
    """Why a group avoids a node."""

    REJECTED = "rejected"  # its kubelet rejected a member (B6)
    STUCK = "stuck"  # pods did not end there in time (V12)
    STRUCK = "struck"  # members died there (L8)


class AvoidedNode(NamedTuple):
    """One row of the table: the cause, and the monotonic second at which the group uses the node
    again.

    `gang` and `struck_s`, the epoch second of the oldest strike, are set for struck nodes.
    """

    cause: AvoidCause
    until_s: float
    gang: str = ""
    struck_s: float = 0.0


Avoided = Mapping[str, AvoidedNode]


def avoid(table: dict[str, AvoidedNode], node: str, row: AvoidedNode) -> None:
    """Add a row; of two for one node the one that ends later stays."""
    known = table.get(node)
    if known is None or known.until_s < row.until_s:
        table[node] = row


def not_over(table: Avoided, now_s: float) -> dict[str, AvoidedNode]:
    """The rows that have not ended."""
    left: dict[str, AvoidedNode] = {}
    for node, row in table.items():
        if row.until_s > now_s:
            left[node] = row

    return left


def struck(table: Avoided) -> tuple[str, ...]:
    """The struck nodes, those with the oldest strike first: they are opened first."""
    if not table:
        return ()

    rows: Iterable[tuple[str, AvoidedNode]] = table.items()
    by_age = [(row.struck_s, node) for node, row in rows if row.cause is AvoidCause.STRUCK]
    return tuple(node for _, node in sorted(by_age))
