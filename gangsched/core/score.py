"""Score: which of the feasible nodes a run of identical pods gets.

Law: rules are applied in this order, each only among the equals of the one before, and ties end on node names:

1. soft preferences: fewest untolerated PreferNoSchedule taints, highest preferred node affinity (`StaticFit.penalty`);
2. pods that ask for no accelerator go to nodes without one, where they can;
3. the fewest nodes: as many pods together as fit;
4. the node whose room for other gangs suffers least (`harm`): for each size 1, 2, 4, 8, … of accelerators, what the
   node could give to gangs of that size before and after; more so the emptier it is; and more so for each accelerator
   that is left without the CPU and memory that pods usually ask beside one;
5. the node with the fewest accelerators left over, then the smaller machine;
6. the node with the least CPU and memory to spare, so that well-equipped nodes stay for those who need them.

Rule 3 comes before rule 4: a gang on one node talks faster than a gang on two, and the rest of a large node is worth
more in one piece than two halves on two nodes. docs/placement.md has the measurements behind rules 4 to 6.
"""

from __future__ import annotations

import numpy as np

from gangsched.core.filter import static_fit
from gangsched.core.reserve import Ledger
from gangsched.model.objects import Shape
from gangsched.model.resources import CPU, MEMORY
from gangsched.model.snapshot import Ints

STRANDED = 4
"""What one accelerator that nobody can use any more costs, in units of `worth`."""


def choose(shape: Shape, count: int, room: Ints, ledger: Ledger, *, penalty: Ints | None = None) -> tuple[Ints, Ints]:
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
    if not ledger.accelerated(shape):
        rank += ledger.accelerators[feasible] > 0
    if rank.min() == rank.max():
        return [feasible]
    return [feasible[rank == level] for level in np.unique(rank)]


def _pack(shape: Shape, count: int, nodes: Ints, room: Ints, ledger: Ledger) -> tuple[Ints, Ints]:
    """Rules 3-6 within one tier: fill the roomiest nodes, then put the rest where it does the least harm."""
    name, amount = _packed_by(shape, ledger)
    picked, amounts = nodes[:0], room[:0]
    if room.max(initial=0) < count:
        left = (ledger.free[ledger.resources[name], nodes] if name else room) - room * amount
        order = np.lexsort((_spare(nodes, ledger), ledger.accelerators[nodes], left, -room))
        before = np.concatenate(([0], np.cumsum(room[order])[:-1]))
        enough = room[order] >= count - before
        full = order[: int(np.argmax(enough)) if enough.any() else order.size]
        picked, amounts = nodes[full], room[full]
        count -= int(amounts.sum())
        room = room.copy()
        room[full] = 0
    fits = room >= count
    if count > 0 and fits.any():
        best = _least_harmed(shape, count, name, nodes[fits], room[fits], ledger)
        picked, amounts = np.append(picked, best), np.append(amounts, count)
    return picked, amounts


def _least_harmed(shape: Shape, count: int, name: str, nodes: Ints, room: Ints, ledger: Ledger) -> int:
    """Rules 4-6: the one of `nodes` that takes `count` pods best. What a rule says is asked of its equals only."""
    left = ledger.free[ledger.resources[name], nodes] - count * dict(shape.requests)[name] if name else room - count
    best = np.arange(nodes.size)
    if name:
        best = _least(best, harm(shape, count, name, nodes, ledger))
    best = _least(best, left[best])
    best = _least(best, ledger.accelerators[nodes[best]])
    best = _least(best, _spare(nodes[best], ledger))
    return int(nodes[best].min())


def _least(best: Ints, value: Ints) -> Ints:
    """Those of `best` whose value is the least."""
    least: Ints = best[value == value.min()]
    return least


def harm(shape: Shape, count: int, name: str, nodes: Ints, ledger: Ledger) -> Ints:
    """What `count` pods of `shape` would cost each of `nodes`, in thousandths of `worth`; `name` is what they pack by.

    Three things are added up: the `worth` that the free accelerators lose; half of what their square loses, so that
    pods gather where pods are and other nodes empty; and STRANDED for each accelerator that is left without the CPU
    and memory that pods ask beside one on average. The last does not count for whole nodes of the largest size: of
    those the least equipped is taken first (rule 6), so that the largest gangs find what they need.
    """
    asked = dict(shape.requests)
    row = ledger.resources[name]
    free = ledger.free[row, nodes]
    left = free - count * asked[name]
    cost = _price(free) - _price(left)
    before, after = 1000 * free, 1000 * left
    for other, usual in ledger.usual(name).items():
        beside = ledger.free[ledger.resources[other], nodes]
        before = np.minimum(before, 1000 * beside // usual)
        after = np.minimum(after, 1000 * (beside - count * asked.get(other, 0)) // usual)
    stranded = (1000 * left - after) - (1000 * free - before)
    offered = ledger.allocatable[row, nodes]
    whole = (free == offered) & (offered == ledger.allocatable[row].max())
    total: Ints = cost + STRANDED * np.where(whole, 0, stranded)
    return total


def worth(free: Ints) -> Ints:
    """What `free[n]` accelerators are worth: summed over the sizes 1, 2, 4, …, those that gangs of that size can use.

    8 in one piece are worth 32, two times 4 only 24: breaking a large piece costs more than using up a small one.
    """
    total = np.zeros_like(free)
    for bit in range(int(free.max(initial=0)).bit_length()):
        total += free >> bit << bit
    return total


def _price(free: Ints) -> Ints:
    """What `harm` takes the difference of: 1000 times the worth and 500 times the square of what is free."""
    if free.max(initial=0) < len(_PRICES):
        return _PRICES[free]
    return 1000 * worth(free) + 500 * free * free


_PRICES = 1000 * worth(np.arange(64)) + 500 * np.arange(64) ** 2


def _packed_by(shape: Shape, ledger: Ledger) -> tuple[str, int]:
    """The accelerator that the shape asks most of, and how many; without one "", for it is packed by the pod."""
    asks = [(amount, name) for name, amount in shape.requests if ledger.policy.is_accelerator(name)]
    amount, name = max(asks, default=(1, ""))
    return name, amount


def _spare(nodes: Ints, ledger: Ledger) -> Ints:
    """Free CPU and memory of each node as thousandths of the most that any node of the cluster offers, added up."""
    spare = np.zeros(nodes.size, dtype=np.int64)
    for name in (CPU, MEMORY):
        row = ledger.resources.get(name)
        if row is not None:
            spare += ledger.free[row, nodes] * 1000 // max(1, int(ledger.allocatable[row].max()))
    return spare
