"""Score: which of the feasible nodes a run of identical pods gets.

Law: rules are applied in this order, each only among the equals of the one before, and ties end on node names:

1. soft preferences: fewest untolerated PreferNoSchedule taints, highest preferred node affinity (`StaticFit.penalty`);
2. pods that ask for no accelerator go to nodes without one, where they can;
3. the fewest nodes: as many pods together as fit;
4. the node on which the least is left over, so that whole free nodes stay whole for those who need them;
5. the smaller machine.

Rule 3 comes before rule 4: a gang on one node talks faster than a gang on two, and the rest of a large node is worth
more in one piece than two halves on two nodes.
"""

from __future__ import annotations

import numpy as np

from gangsched.core.filter import static_fit
from gangsched.core.reserve import Ledger
from gangsched.model.objects import Shape
from gangsched.model.resources import is_accelerator
from gangsched.model.snapshot import Ints


def choose(
    shape: Shape, count: int, room: Ints, ledger: Ledger, *, penalty: Ints | None = None
) -> tuple[Ints, Ints]:
    """Node indices and how many of `count` pods of `shape` each takes; fewer than `count` in all if room is short.

    `room[n]` is how many fit on node `n`, `penalty[n]` what preferences about other pods add to rule 1. Nodes are
    distinct. Costs one sort of the feasible nodes.
    """
    feasible = np.flatnonzero(room)
    if not feasible.size:
        return feasible, feasible  # perhaps no node even knows what is asked for
    chosen: list[Ints] = []
    counts: list[Ints] = []
    for nodes in _tiers(shape, feasible, ledger, penalty):
        if count <= 0:
            break
        picked, amounts = _pack(shape, count, nodes, room[nodes], ledger)
        chosen.append(picked)
        counts.append(amounts)
        count -= int(amounts.sum())
    return np.concatenate(chosen), np.concatenate(counts)


def _tiers(shape: Shape, feasible: Ints, ledger: Ledger, penalty: Ints | None) -> list[Ints]:
    """Split the feasible nodes by rules 1 and 2, best first."""
    rank = static_fit(shape, ledger.table).penalty[feasible] * 2
    if penalty is not None:
        rank += penalty[feasible] * 2
    if not any(is_accelerator(name) for name, _ in shape.requests):
        rank += ledger.accelerators[feasible] > 0
    if rank.min() == rank.max():
        return [feasible]
    return [feasible[rank == level] for level in np.unique(rank)]


def _pack(shape: Shape, count: int, nodes: Ints, room: Ints, ledger: Ledger) -> tuple[Ints, Ints]:
    """Rules 3-5 within one tier: fill the roomiest nodes, then put the rest where it leaves the least over."""
    left = _left_over(shape, nodes, room, ledger)
    size = ledger.accelerators[nodes]
    if room.max(initial=0) >= count:
        full = 0
        order = np.arange(nodes.size)
    else:
        order = np.lexsort((size, left, -room))
        before = np.concatenate(([0], np.cumsum(room[order])[:-1]))
        enough = room[order] >= count - before
        full = int(np.argmax(enough)) if enough.any() else int(order.size)
        count -= int(room[order[:full]].sum())
    picked, amounts = order[:full], room[order[:full]]
    rest = order[full:]
    rest = rest[room[rest] >= count]
    if count > 0 and rest.size:
        per_pod = _per_pod(shape)
        best = rest[np.lexsort((nodes[rest], size[rest], left[rest] + (room[rest] - count) * per_pod))[0]]
        picked, amounts = np.append(picked, best), np.append(amounts, count)
    return nodes[picked], amounts


def _left_over(shape: Shape, nodes: Ints, room: Ints, ledger: Ledger) -> Ints:
    """Units of what the shape is packed by that stay free on each node when `room` pods are put there."""
    name, amount = _packed_by(shape)
    if not name:
        return np.zeros(nodes.size, dtype=np.int64)
    left: Ints = ledger.free[ledger.resources[name], nodes] - room * amount
    return left


def _per_pod(shape: Shape) -> int:
    return _packed_by(shape)[1]


def _packed_by(shape: Shape) -> tuple[str, int]:
    """The accelerator a shape asks most of; pods without one are packed by count ("", 1)."""
    amounts = [(amount, name) for name, amount in shape.requests if is_accelerator(name)]
    return (max(amounts)[1], max(amounts)[0]) if amounts else ("", 1)
