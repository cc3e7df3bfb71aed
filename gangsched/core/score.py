"""Score: choice among the feasible nodes for a run of identical pods.

Invariant: `RULES` are applied in this order, each only among nodes that the rules before it rank
equally; the last tie-break is the node name. The rules up to `fewest_nodes` split the nodes into
tiers, best first; the later rules choose within one tier.

1. `soft_preferences`: fewest untolerated PreferNoSchedule taints, highest preferred affinity;
2. `accelerators_left_alone`: pods that request no accelerator go to nodes without one, if possible;
   among these, plain replicas go to the nodes and zones with the fewest pods of their controller;
3. `fewest_nodes`: as many pods together as fit;
4. `ends_together`: if run times are known, nodes that the pods do not keep busy for longer (H10);
5. `least_harm`: the node whose room for other gangs suffers least;
6. `fewest_accelerators_left`, then `smallest_machine`;
7. `least_spare`: the least CPU and memory to spare, so that well-equipped nodes stay free for pods
   that need them.

Rule 3 comes before rule 5: a gang on one node communicates faster than a gang on two, and the rest
of a large node is worth more in one piece than two halves on two nodes. docs/placement.md has the
measurements behind rules 4 to 7.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from gangsched.core.preferences import node_penalty
from gangsched.core.reserve import Ledger
from gangsched.model.objects import Shape
from gangsched.model.resources import CPU, MEMORY
from gangsched.model.snapshot import Bools, Ints

STRANDED = 4
"""Cost of one accelerator that no pod can use any more, in units of `worth`."""


@dataclass(slots=True, eq=False)
class Candidates:
    """Nodes that rules compare: node `index[i]` has room for `room[i]` pods and would get
    `takes[i]`.

    `penalty[i]` is the penalty for preferences about other pods; None if the pods have none.
    `pushed[i]`: the pods would keep the node occupied for longer than its current pods; None if
    unknown. `spread[i]` is the weighted number of peers nearby; None if they do not count. With
    `last`, one of the nodes gets all remaining pods; without it, each node is filled.

    Instances are never changed, but are not frozen: several are created per pod, and freezing costs
    2 us each.
    """

    index: Ints
    room: Ints
    takes: Ints
    penalty: Ints | None = None
    pushed: Bools | None = None
    spread: Ints | None = None
    last: bool = False

    def where(self, mask: Bools) -> Candidates:
        """Only the candidates that `mask` selects."""
        # taking numbers is several times as fast as taking a mask
        return self.at(mask.nonzero()[0])

    def at(self, kept: Ints) -> Candidates:
        """Only the candidates at the positions `kept`."""
        room = self.room.take(kept)
        takes = room if self.takes is self.room else self.takes.take(kept)
        penalty = None if self.penalty is None else self.penalty.take(kept)
        pushed = None if self.pushed is None else self.pushed.take(kept)
        spread = None if self.spread is None else self.spread.take(kept)

        return Candidates(self.index.take(kept), room, takes, penalty, pushed, spread, self.last)


Rule: TypeAlias = Callable[[Shape, Candidates, Ledger], Ints | None]
"""`cost[i]` of each candidate for pods of the shape, lower is better; None where the rule has
nothing to say.
"""


def soft_preferences(
    shape: Shape,
    nodes: Candidates,
    ledger: Ledger,
) -> Ints | None:
    """Rule 1: penalty points of preferences about the node, its taints and other pods."""
    of_nodes = node_penalty(shape, ledger.table)
    if of_nodes is None:
        return nodes.penalty

    cost: Ints = of_nodes.take(nodes.index)
    if nodes.penalty is None:
        return cost

    return cost + nodes.penalty


def accelerators_left_alone(
    shape: Shape,
    nodes: Candidates,
    ledger: Ledger,
) -> Ints | None:
    """Rule 2: for pods that request no accelerator, nodes without accelerators come first, then
    nodes far from other replicas.
    """
    if ledger.accelerated(shape):
        return None
    if ledger.accelerated_nodes is None:
        return nodes.spread

    cost = ledger.accelerated_nodes.take(nodes.index)
    # at once, for a rule costs as much as that
    if nodes.spread is None:
        return cost

    return cost + nodes.spread


def fewest_nodes(
    shape: Shape,
    nodes: Candidates,
    ledger: Ledger,
) -> Ints | None:
    """Rule 3: the nodes that take the most pods come first."""
    return None if nodes.last else -nodes.takes


def ends_together(
    shape: Shape,
    nodes: Candidates,
    ledger: Ledger,
) -> Ints | None:
    """Rule 4: nodes that the pods would keep occupied for longer come last (H10)."""
    if nodes.pushed is None:
        return None

    return nodes.pushed.astype(np.int64)


def least_harm(
    shape: Shape,
    nodes: Candidates,
    ledger: Ledger,
) -> Ints | None:
    """Rule 5: the loss for later gangs if the pods are placed on each node, in thousandths of
    `worth`. Only for the last node.

    The sum of three costs: the lost `worth` of free accelerators; half of the decrease of their
    number's square, so that pods gather on used nodes and other nodes become empty; and STRANDED
    per accelerator that is left without the CPU and memory that pods request per accelerator on
    average. The third cost does not apply to empty nodes of the largest size: among these, the node
    with the least CPU and memory is used first (rule 7), so that better-equipped nodes stay free
    for the largest gangs.
    """
    name, asked = ledger.packed_by(shape)
    # Nodes that are filled completely differ in nothing that this rule counts.
    if not nodes.last or not name:
        return None

    row = ledger.resources[name]
    unit = ledger.unit(name)
    have = ledger.free[row, nodes.index]
    offered = ledger.allocatable[row, nodes.index]
    free = have
    left = have - nodes.takes * asked

    if unit > 1:
        free = free // unit
        left = left // unit

    before = 1000 * free
    after = 1000 * left
    requests = dict(shape.requests)

    for other, usual in ledger.usual(name).items():
        beside = ledger.free[ledger.resources[other], nodes.index]
        # Accelerators that the rest of the node can still feed, in thousandths.
        before = np.minimum(before, 1000 * beside // usual)
        room_beside = 1000 * (beside - nodes.takes * requests.get(other, 0))
        after = np.minimum(after, room_beside // usual)

    stranded_before = 1000 * free - before
    stranded_after = 1000 * left - after
    stranded = stranded_after - stranded_before

    # A node that is wholly free and the largest of all: small pods strand nothing there yet.
    is_untouched = (have == offered) & (offered == ledger.largest[row])
    price = _price(free) - _price(left)
    total: Ints = price + STRANDED * np.where(is_untouched, 0, stranded)

    return total


def fewest_accelerators_left(
    shape: Shape,
    nodes: Candidates,
    ledger: Ledger,
) -> Ints | None:
    """Rule 6: the fewest accelerators left over or, for pods without any, the fewest pods."""
    name, asked = ledger.packed_by(shape)
    have = nodes.room
    if name:
        row = ledger.resources[name]
        have = ledger.free[row, nodes.index]

    left: Ints = have - nodes.takes * asked
    return left


def smallest_machine(
    shape: Shape,
    nodes: Candidates,
    ledger: Ledger,
) -> Ints | None:
    """Rule 6, second half: the fewest accelerators in total."""
    if ledger.accelerated_nodes is None:
        return None

    return ledger.accelerators.take(nodes.index)


def least_spare(
    shape: Shape,
    nodes: Candidates,
    ledger: Ledger,
) -> Ints | None:
    """Rule 7: the sum of free CPU and memory, each in thousandths of the largest node's."""
    spare = np.zeros(nodes.index.size, dtype=np.int64)
    for name in (CPU, MEMORY):
        row = ledger.resources.get(name)
        if row is not None:
            free = ledger.free[row].take(nodes.index)
            largest = max(1, ledger.largest[row])
            spare += free * 1000 // largest

    return spare


RULES: tuple[Rule, ...] = (
    soft_preferences,
    accelerators_left_alone,
    fewest_nodes,
    ends_together,
    least_harm,
    fewest_accelerators_left,
    smallest_machine,
    least_spare,
)
TIER_RULES = RULES[: RULES.index(fewest_nodes)]
NODE_RULES = RULES[RULES.index(fewest_nodes) :]


def choose(
    shape: Shape,
    count: int,
    room: Ints,
    ledger: Ledger,
    *,
    penalty: Ints | None = None,
    pushed: Bools | None = None,
    spread: Ints | None = None,
) -> tuple[Ints, Ints]:
    """Choose nodes: their indices, and how many of `count` pods of `shape` each gets; fewer than
    `count` in total if room is short.

    `room[n]` pods fit on node `n`. `penalty[n]` is the penalty for preferences about other pods
    (rule 1), `pushed[n]` the input of rule 4, and `spread[n]` the input of the second half of rule
    2. Nodes are distinct. The cost is one sort of the feasible nodes.
    """
    feasible = (room > 0).nonzero()[0]  # a mask is searched several times as fast as numbers
    chosen = [feasible[:0]]
    counts = [feasible[:0]]

    if feasible.size < room.size:
        room = room.take(feasible)
        penalty = None if penalty is None else penalty.take(feasible)
        pushed = None if pushed is None else pushed.take(feasible)
        spread = None if spread is None else spread.take(feasible)

    nodes = Candidates(feasible, room, room, penalty, pushed, spread)
    for tier in _tiers(shape, nodes, ledger, TIER_RULES) if feasible.size and count > 0 else ():
        picked, amounts = _pack(shape, count, tier, ledger)
        chosen.append(picked)
        counts.append(amounts)

        count -= int(amounts.sum())
        if count <= 0:
            break  # before the next tier is made

    return np.concatenate(chosen), np.concatenate(counts)


def _tiers(
    shape: Shape,
    nodes: Candidates,
    ledger: Ledger,
    rules: Sequence[Rule],
) -> Iterator[Candidates]:
    """Split the nodes by each of `rules` in turn, best first."""
    if not rules:
        yield nodes
        return

    ledger.work.charge(6 + nodes.index.size // 300)
    cost = rules[0](shape, nodes, ledger)
    if cost is None:
        yield from _tiers(shape, nodes, ledger, rules[1:])
        return

    level = cost.min()
    while True:  # mostly the first tier is enough, which is found without sorting all costs
        tier = (cost == level).nonzero()[0]
        yield from _tiers(
            shape,
            nodes.at(tier) if tier.size < cost.size else nodes,
            ledger,
            rules[1:],
        )

        rest = cost[cost > level]
        if not rest.size:
            return

        level = rest.min()


def _pack(
    shape: Shape,
    count: int,
    nodes: Candidates,
    ledger: Ledger,
) -> tuple[Ints, Ints]:
    """Fill the best nodes of one tier until one node can take what is left, and put it where the
    rules say.
    """
    ledger.work.charge(20 + nodes.index.size // 40)
    picked = nodes.index[:0]
    amounts = nodes.room[:0]

    room = nodes.room
    if room.max(initial=0) < count:
        ledger.work.charge(30 + nodes.index.size // 25)  # all nodes are sorted by all costs
        # The last key is the primary one, hence the reversed rules.
        costs = [rule(shape, nodes, ledger) for rule in reversed(NODE_RULES)]
        order = np.lexsort([cost for cost in costs if cost is not None])

        filled = np.cumsum(room[order])
        before = np.concatenate(([0], filled[:-1]))
        enough = room[order] >= count - before

        # argmax of booleans is the first node that takes all that is left; the ones before it are
        # filled.
        number = int(np.argmax(enough)) if enough.any() else order.size
        full = order[:number]
        picked = nodes.index[full]
        amounts = room[full]
        count -= int(amounts.sum())
        room = room.copy()
        room[full] = 0

    fits = room >= count
    if count > 0 and fits.any():
        best = np.array([_best(shape, count, nodes.where(fits), ledger)])
        last = np.array([count])

        if not picked.size:
            return best, last

        picked = np.concatenate((picked, best))
        amounts = np.concatenate((amounts, last))

    return picked, amounts


def _best(
    shape: Shape,
    count: int,
    nodes: Candidates,
    ledger: Ledger,
) -> int:
    """The one of `nodes` that takes `count` pods best; what a rule says is asked of its equals
    only.
    """
    takes = np.full(nodes.index.size, count)
    nodes = Candidates(
        nodes.index,
        nodes.room,
        takes,
        nodes.penalty,
        nodes.pushed,
        nodes.spread,
        last=True,
    )

    for rule in NODE_RULES:
        cost = rule(shape, nodes, ledger)
        if cost is not None and (least := cost.min()) != cost.max():
            nodes = nodes.where(cost == least)

    return int(nodes.index[0])


def worth(free: Ints) -> Ints:
    """Value of `free[n]` accelerators: for each pod size 1, 2, 4, …, the number of accelerators
    that pods of that size can use, summed over the sizes.

    8 accelerators in one piece are worth 32, two pieces of 4 only 24, so breaking up a large piece
    costs more than using up a small one.
    """
    total = np.zeros_like(free)
    most = int(free.max(initial=0))
    for bit in range(most.bit_length()):
        # The multiple of 2^bit below: so many accelerators can pods of that size use.
        total += free >> bit << bit

    return total


def _price(free: Ints) -> Ints:
    """Price of what is free, of which `least_harm` takes differences: 1000 times its worth and 500
    times its square.
    """
    if free.max(initial=0) < len(_PRICES):
        return _PRICES[free]

    return 1000 * worth(free) + 500 * free * free


# A table for nodes of up to 63 accelerators, which is nearly all of them.
_PRICES = 1000 * worth(np.arange(64)) + 500 * np.arange(64) ** 2
