"""Search: find nodes for a Strict group of several shapes where the usual order of placing found none (semantics R2).

Invariant: what is found is reserved and is enough for every gang; what is not found leaves the ledger exactly as it
was. Arithmetic ends hopeless cases; then a few other orders are tried, and then an exact search. The work is bounded by
count, never by clock: `STEPS` counts of pods tried on nodes, for groups that need at most `PODS` members. Within the
bound the exact search finds a placement if there is one, as far as node resources and per-node filters go. It does
*not* look for the best placement, nor at shapes whose members see each other; those get the other orders only.

The exact search fills one node at a time. It rests on three observations: identical pods are interchangeable, so a node
gets a *pattern* (how many of each item); a pattern that leaves room for one more pod is never better than one that
takes it, so only full patterns are tried; and nodes with the same room are interchangeable, so their patterns are tried
in falling order only. Remainders that could not be placed on the nodes that follow are remembered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeAlias

import numpy as np

from gangsched.core.permit import missing
from gangsched.core.queue_sort import size_key
from gangsched.core.reserve import Ledger
from gangsched.core.scopes import usable
from gangsched.core.work import OutOfWork, Work
from gangsched.model.gang import Gang, Group, Placement
from gangsched.model.objects import Pod, Shape
from gangsched.model.snapshot import Ints

WORK = 11_000
"""Units that one search may do, the other orders included (`core.work`); where less is left, the next plan searches."""
STEPS = 3_000
"""Counts of identical pods that the exact search tries on a node before it gives up."""
STEP_UNITS = 2
PODS = 256
"""Members needed, beyond which only other orders are tried."""

PlaceRun: TypeAlias = Callable[[Sequence[Pod], Group, Ledger], list[Placement]]
Found: TypeAlias = dict[str, list[Placement]]
Pattern: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Item:
    """The pending members of one gang (by its index in the group) that have one shape, in placing order.

    Those that are `pinned` can only go where their volumes are, or are being made, and are items of their own.
    """

    gang: int
    shape: Shape
    pods: tuple[Pod, ...]
    pinned: bool = False


def find(
    group: Group, gangs: Sequence[Gang], ledger: Ledger, place_run: PlaceRun, *, whole: bool = False
) -> Found | None:
    """Placements by gang id, at least as many as each of `gangs` is missing, reserved on `ledger`; None if not found.

    `place_run` is how a round places a run of identical pods. Which members of a gang are taken is free as long as
    they are enough; among identical ones those first in order. Raises OutOfWork where a `whole` search is asked for and
    less is left.
    """
    items = _items(gangs, ledger)
    if len({(item.shape, item.pinned) for item in items}) < 2:
        return None  # the usual order is exact for one shape
    needs = [missing(gang, 0) for gang in gangs]
    if whole:
        ledger.work.reserved(WORK)
    checkpoint = ledger.checkpoint()
    try:
        with ledger.work.at_most(WORK if whole else min(WORK, ledger.work.left / 2)):
            room = _usable_room(group, items, ledger)
            problem = PlacementProblem.of(items, needs, room, ledger)
            if problem.hopeless(0, problem.start):
                return None
            return _by_order(group, gangs, items, needs, ledger, place_run) or _by_search(gangs, items, problem, ledger)
    except OutOfWork:
        ledger.rollback(checkpoint)
        return None


def _items(gangs: Sequence[Gang], ledger: Ledger) -> list[Item]:
    """Members by gang, shape and whether they are pinned, the largest shapes first, and pinned ones before others."""
    items = []
    storage = ledger.occupancy.storage
    for index, gang in enumerate(gangs):
        pods: dict[tuple[Shape, bool], list[Pod]] = {}
        for pod in gang.pending:
            pods.setdefault((pod.shape, bool(pod.claims) and storage.pinned(pod)), []).append(pod)
        items += [Item(index, shape, tuple(members), pinned) for (shape, pinned), members in pods.items()]
    return sorted(items, key=lambda item: (size_key(item.shape, ledger.policy), not item.pinned))


def _usable_room(group: Group, items: Sequence[Item], ledger: Ledger) -> Ints:
    """`room[item][node]` pods of each item fit alone, on nodes that are not closed to the group."""
    return np.array([usable(item.shape, group, ledger) for item in items])


# --- other orders ---------------------------------------------------------------------------------------------------


def _by_order(
    group: Group,
    gangs: Sequence[Gang],
    items: Sequence[Item],
    needs: Sequence[int],
    ledger: Ledger,
    place_run: PlaceRun,
) -> Found | None:
    for order in _orders(group, items, ledger):
        checkpoint = ledger.checkpoint()
        found: Found = {gang.id: [] for gang in gangs}
        for item in order:
            gang = gangs[item.gang]
            lack = needs[item.gang] - len(found[gang.id])
            if lack > 0:
                found[gang.id] += place_run(item.pods[:lack], group, ledger)
        if all(len(found[gang.id]) >= need for gang, need in zip(gangs, needs, strict=True)):
            return found
        ledger.rollback(checkpoint)
    return None


def _orders(group: Group, items: Sequence[Item], ledger: Ledger) -> Iterator[list[Item]]:
    """Orders worth trying: largest first over all gangs, pinned, fewest nodes, scarcest room, smallest first."""
    tried: set[tuple[int, ...]] = set()
    rooms = _usable_room(group, items, ledger)
    keys: list[list[float]] = [
        list(range(len(items))),
        [not item.pinned for item in items],
        [float(np.count_nonzero(room)) for room in rooms],
        [float(room.sum()) / len(item.pods) for item, room in zip(items, rooms, strict=True)],
        list(range(len(items), 0, -1)),
    ]
    for key in keys:
        order = tuple(sorted(range(len(items)), key=key.__getitem__))
        if order not in tried:
            tried.add(order)
            yield [items[index] for index in order]


# --- exact search ---------------------------------------------------------------------------------------------------


def _by_search(gangs: Sequence[Gang], items: Sequence[Item], problem: PlacementProblem, ledger: Ledger) -> Found | None:
    if sum(problem.needs) > PODS or any(item.shape.unsupported for item in items):
        return None
    if not all(ledger.only_room_counts(item.pods) for item in items):
        return None
    search = _Search(problem, STEPS, ledger.work)
    if not search.fill(0, problem.start, ()):
        return None
    found: Found = {gang.id: [] for gang in gangs}
    members = [iter(item.pods) for item in items]
    for slot, pattern in search.chosen:
        node = problem.slots[slot].node
        for index, count in enumerate(pattern):
            if count:
                pods = list(islice(members[index], count))
                ledger.reserve(pods, np.array([node]), np.array([count]))
                name = ledger.table.names[node]
                found[gangs[items[index].gang].id] += [Placement(pod, name) for pod in pods]
    return found


@dataclass(frozen=True, slots=True)
class Slot:
    """A node: `free[r]` capped at what could be asked, `room[item]`, and `like`, the same number for equal nodes."""

    node: int
    like: int
    free: tuple[int, ...]
    room: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PlacementProblem:
    """Items to place on slots: `asks[item][r]`, `start[item]` pods at hand, of which gang `g` needs `needs[g]` in all.

    `free_after[slot][r]` and `room_after[slot][item]` are sums over that slot and all that follow.
    """

    asks: tuple[tuple[int, ...], ...]
    start: Pattern
    gang_of: tuple[int, ...]
    needs: tuple[int, ...]
    slots: tuple[Slot, ...]
    free_after: list[list[int]]
    room_after: list[list[int]]

    @classmethod
    def of(cls, items: Sequence[Item], needs: Sequence[int], room: Ints, ledger: Ledger) -> PlacementProblem:
        """Merge what is equal: members beyond the need and room beyond what could be asked for do not count."""
        start = tuple(min(len(item.pods), needs[item.gang]) for item in items)
        names = sorted({name for item in items for name, _ in item.shape.requests if name in ledger.resources})
        amounts = [dict(item.shape.requests) for item in items]
        asks = tuple(tuple(amount.get(name, 0) for name in names) for amount in amounts)
        most = np.array([sum(n * ask[r] for n, ask in zip(start, asks, strict=True)) for r in range(len(names))])
        nodes = np.flatnonzero(room.any(axis=0))
        ledger.work.charge(nodes.size * (12 + len(items) + len(names)) // 8 + len(items) * len(ledger.table) // 200)
        free = np.clip(ledger.free[[ledger.resources[name] for name in names]][:, nodes], 0, most[:, None])
        slots = _slots(nodes, free, np.minimum(room[:, nodes], np.array(start)[:, None]), sum(needs))
        return cls(
            asks,
            start,
            tuple(item.gang for item in items),
            tuple(needs),
            slots,
            _sums_after([slot.free for slot in slots], len(names)),
            _sums_after([slot.room for slot in slots], len(items)),
        )

    def lacking(self, left: Pattern) -> list[int]:
        """How many more members each gang needs when `left[item]` pods are still unplaced."""
        lack = list(self.needs)
        for index, gang in enumerate(self.gang_of):
            lack[gang] -= self.start[index] - left[index]
        return lack

    def hopeless(self, slot: int, left: Pattern) -> bool:
        """Whether the nodes from `slot` on cannot hold what is lacking, by sums alone."""
        lack, rooms = self.lacking(left), self.room_after[slot]
        for index, gang in enumerate(self.gang_of):
            lack[gang] -= min(left[index], rooms[index])
        if any(each > 0 for each in lack):
            return True
        return any(self._least(r, left) > free for r, free in enumerate(self.free_after[slot]))

    def _least(self, r: int, left: Pattern) -> int:
        """The least of resource `r` that the lacking members can ask for: those that ask the least of it."""
        lack, least = self.lacking(left), 0
        for ask, index in sorted((ask[r], index) for index, ask in enumerate(self.asks)):
            count = min(left[index], max(0, lack[self.gang_of[index]]))
            lack[self.gang_of[index]] -= count
            least += count * ask
        return least


def _slots(nodes: Ints, free: Ints, room: Ints, needed: int) -> tuple[Slot, ...]:
    """The nodes with room, the roomiest first, equal ones side by side and no more of them than could be used."""
    columns = np.concatenate((room, free)).T
    distinct, like, sizes = np.unique(columns, axis=0, return_inverse=True, return_counts=True)
    order = np.argsort(like.reshape(-1), kind="stable")
    starts = np.concatenate(([0], np.cumsum(sizes)[:-1]))
    slots: list[Slot] = []
    for number in range(len(distinct) - 1, -1, -1):
        values = distinct[number].tolist()
        equal = order[starts[number] : starts[number] + min(int(sizes[number]), needed)]
        fields = (number, tuple(values[room.shape[0] :]), tuple(values[: room.shape[0]]))
        slots += [Slot(node, *fields) for node in nodes[equal].tolist()]
    return tuple(slots)


def _sums_after(rows: Sequence[Sequence[int]], width: int) -> list[list[int]]:
    sums = [[0] * width]
    for row in reversed(rows):
        sums.append([a + b for a, b in zip(sums[-1], row, strict=True)])
    return sums[::-1]


@dataclass(slots=True)
class _Search:
    """Depth-first over slots; `steps` patterns may still be tried, `chosen` is the way to here."""

    problem: PlacementProblem
    steps: int
    work: Work
    chosen: list[tuple[int, Pattern]] = field(default_factory=list)
    dead: set[tuple[int, Pattern, Pattern]] = field(default_factory=set)

    def fill(self, slot: int, left: Pattern, above: Pattern) -> bool:
        """Place what is lacking on `slot` and after; `above` bounds the pattern of a node like the one before."""
        slots = self.problem.slots
        self.work.charge(2 * STEP_UNITS + len(left))
        if not any(lack > 0 for lack in self.problem.lacking(left)):
            return True
        while slot < len(slots) and not any(map(min, left, slots[slot].room)):
            slot, above = slot + 1, ()
            self.steps -= 1
            self.work.charge(1 + len(left) // 8)
        if slot == len(slots) or (slot, left, above) in self.dead or self.problem.hopeless(slot, left):
            return False
        same = slot + 1 < len(slots) and slots[slot + 1].like == slots[slot].like
        for pattern in self._patterns(slots[slot], left):
            if above and pattern > above:
                continue
            self.chosen.append((slot, pattern))
            rest = tuple(a - b for a, b in zip(left, pattern, strict=True))
            if self.fill(slot + 1, rest, pattern if same else ()):
                return True
            self.chosen.pop()
        self.dead.add((slot, left, above))
        return False

    def _patterns(self, slot: Slot, left: Pattern) -> Iterator[Pattern]:
        """Every full pattern for `slot`, the most of the largest items first, until the steps are used up."""
        limits = tuple(map(min, left, slot.room))
        for pattern, free in self._fillings(limits, slot.free, ()):
            if not self._takes_more(limits, pattern, free):
                yield pattern

    def _fillings(
        self, limits: Pattern, free: tuple[int, ...], taken: Pattern
    ) -> Iterator[tuple[Pattern, tuple[int, ...]]]:
        """Patterns that begin with `taken`, and what each leaves of `free`; of the last item as many as fit."""
        index = len(taken)
        if index == len(limits):
            yield taken, free
            return
        ask = self.problem.asks[index]
        most = min([limits[index], *(f // a for f, a in zip(free, ask, strict=True) if a)])
        least = most if index == len(limits) - 1 else 0
        for count in range(most, least - 1, -1):
            if self.steps <= 0:
                return
            self.steps -= 1
            self.work.charge(STEP_UNITS + len(limits) // 8)
            rest = tuple(f - count * a for f, a in zip(free, ask, strict=True))
            yield from self._fillings(limits, rest, (*taken, count))

    def _takes_more(self, limits: Pattern, taken: Pattern, free: tuple[int, ...]) -> bool:
        """Whether one more pod of any item would fit."""
        return any(
            have < limit and all(a <= f for a, f in zip(ask, free, strict=True))
            for have, limit, ask in zip(taken, limits, self.problem.asks, strict=True)
        )
