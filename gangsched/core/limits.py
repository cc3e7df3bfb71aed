"""Which resources keep pods off nodes that are empty: named where a gang can never start (semantics
E1).

Invariant: the ledger is only read. The names are a proof: by them alone no more pods fit, whatever
other resources the nodes have.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gangsched.core.placement_attempt import PlacementAttempt
from gangsched.core.reserve import Ledger
from gangsched.core.scopes import eligible
from gangsched.model.objects import Shape
from gangsched.model.resources import PODS
from gangsched.model.snapshot import Bools, Ints


def limits(
    shape: Shape,
    attempt: PlacementAttempt,
    room: int,
    inside: Bools | None = None,
) -> tuple[str, ...]:
    """Names of the resources that limit the group's pods of `shape` to `room` of them, on the nodes
    `inside` if these are given; () if something else does.

    One alone if one suffices: devices rather than cpu and memory, the number of pods last.
    """
    nodes = eligible(shape, attempt)
    if inside is not None:
        nodes = nodes & inside

    takes = _takes(shape, nodes, attempt.ledger)
    for name in sorted(takes, key=by_importance):
        if takes[name].sum() <= room:
            return (name,)

    if not takes:
        return ()

    least = np.minimum.reduce([*takes.values()])
    if least.sum() > room:
        return ()

    return _together(takes, least)


def _takes(shape: Shape, nodes: Bools, ledger: Ledger) -> Mapping[str, Ints]:
    """By resource how many pods each node takes, if nothing else mattered."""
    takes: dict[str, Ints] = {}
    for name, asked in shape.requests:
        row = ledger.resources.get(name)
        if row is None:
            takes[name] = np.zeros(int(np.count_nonzero(nodes)), dtype=np.int64)
        elif asked:
            takes[name] = np.maximum(ledger.free[row][nodes], 0) // asked

    return takes


def _together(takes: Mapping[str, Ints], least: Ints) -> tuple[str, ...]:
    """Resources of which one is the scarcest on each node, in the order in which they are asked
    for.
    """
    open_nodes = np.ones(least.shape, dtype=np.bool_)
    names = []
    for name in sorted(takes, key=by_importance):
        of_name = open_nodes & (takes[name] == least)
        if of_name.any():
            names.append(name)
            open_nodes &= ~of_name

    return tuple(name for name in takes if name in names)


def by_importance(name: str) -> tuple[bool, bool]:
    """Devices first, the number of pods last."""
    return name == PODS, "/" not in name
