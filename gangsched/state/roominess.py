"""Whether nodes have room for everything that a plan places, by sums over the plan (B2).

Invariant: a "yes" needs no sum by verdict, in whichever order they are committed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from gangsched.model.objects import Shape
from gangsched.model.snapshot import Ints, Snapshot

MOST_IN_ALL = 2**62
"""The largest sum of amounts that is made in 64 bits."""


def is_roomy(
    shapes: Sequence[Shape],
    nodes: Sequence[str],
    kinds: Mapping[Shape, int],
    snapshot: Snapshot,
) -> bool:
    """Whether the nodes take all pods of a plan beside what is there: pod `i` is of `shapes[i]`,
    and goes to `nodes[i]`.

    `kinds` numbers the shapes. False if that is not certain, as where a node does not exist.
    """
    size = len(nodes)
    asks = _asks(kinds, snapshot.resources, size)
    index = snapshot.table.index

    try:
        at = np.fromiter(map(index.__getitem__, nodes), dtype=np.int64, count=size)
    except KeyError:
        return False

    kind_of = np.zeros(size, dtype=np.int64)
    if len(kinds) > 1:
        kind_of = np.fromiter(map(kinds.__getitem__, shapes), dtype=np.int64, count=size)

    for row, amounts in asks.items():
        if row < 0:
            return False

        taken = np.zeros(len(snapshot.table), dtype=np.int64)
        # Unbuffered: a node may occur many times.
        np.add.at(taken, at, amounts[kind_of])

        # Nobody is to be blamed for a node that is over-full already.
        taken = taken[at]
        free = snapshot.free[row][at]
        is_over = (taken > free) & (taken > 0)
        if is_over.any():
            return False

    return True


def _asks(
    kinds: Mapping[Shape, int],
    resources: Mapping[str, int],
    pods: int,
) -> dict[int, Ints]:
    """By row of the snapshot what a pod of each kind requests; row -1 for what no node offers, or
    what so many `pods` might request beyond 64 bits.
    """
    asks: dict[int, Ints] = {}
    for shape, number in kinds.items():
        for name, amount in shape.requests:
            is_summed = amount <= MOST_IN_ALL // pods
            row = resources.get(name, -1) if is_summed else -1
            if row not in asks:
                asks[row] = np.zeros(len(kinds), dtype=np.int64)

            asks[row][number] = amount if is_summed else 0

    return asks
