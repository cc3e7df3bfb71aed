"""Search: find nodes for a Strict group of several shapes where the usual order of placing found none (semantics R2).

Invariant: what is found is reserved and is enough for every gang; what is not found leaves the ledger as it was.
Arithmetic ends hopeless cases; then a few other orders are tried, and then an exact search. The work is bounded by
count, never by clock. Inside a required domain the exact search goes on in the next plan until it has found places or
refuted all of them; elsewhere it looks at `STEPS` choices, for groups that need at most `PODS` members.
It does *not* look for the best placement, nor at shapes whose members see each other; those get the other orders only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from math import inf
from typing import TypeAlias

import numpy as np

from gangsched.core.reserve import Ledger
from gangsched.core.search.demand import Demand, Item
from gangsched.core.search.domains import required_keys
from gangsched.core.search.facts import packed
from gangsched.core.search.packing import Packing
from gangsched.core.work import OutOfWork
from gangsched.model.gang import Gang, Group, Placement
from gangsched.model.objects import Pod

WORK = 11_000
"""Units that one search may do, the other orders included (`core.work`); where less is left, the next plan searches."""
STEPS = 1_000
"""Choices that the exact search looks at before it gives up, outside required domains."""
PODS = 256
"""Members needed, beyond which only other orders are tried."""

PlaceRun: TypeAlias = Callable[[Sequence[Pod], Group, Ledger], list[Placement]]
Found: TypeAlias = dict[str, list[Placement]]


def find(
    group: Group, gangs: Sequence[Gang], ledger: Ledger, place_run: PlaceRun, *, whole: bool = False
) -> Found | None:
    """Placements by gang id, at least as many as each gang misses, reserved on `ledger`; None if not found.

    `place_run` is how a round places a run of identical pods. Any sufficient subset of a gang's members may be placed;
    identical members in order. Raises OutOfWork if a `whole` search is requested and too little work is left.
    """
    demand = Demand.of(group, gangs, ledger)
    if len({(item.shape, item.pinned) for item in demand.items}) < 2:
        return None  # the usual order is exact for one shape
    if whole and demand.is_exact and any(required_keys(group)):
        return _reserved(demand, _packing(demand, inf))
    if whole:
        ledger.work.reserved(WORK)
    checkpoint = ledger.checkpoint()
    try:
        with ledger.work.at_most(WORK if whole else min(WORK, ledger.work.left / 2)):
            if demand.is_hopeless:
                return None
            found = _by_order(demand, place_run)
            if found is None and demand.is_exact and sum(demand.needs) <= PODS:
                found = _reserved(demand, _packing(demand, STEPS))
            return found
    except OutOfWork:
        ledger.rollback(checkpoint)
        return None


# --- other orders ---------------------------------------------------------------------------------------------------


def _by_order(demand: Demand, place_run: PlaceRun) -> Found | None:
    ledger = demand.ledger
    for order in _orders(demand):
        checkpoint = ledger.checkpoint()
        found: Found = {gang.id: [] for gang in demand.gangs}
        for item in order:
            gang = demand.gangs[item.gang]
            lack = demand.needs[item.gang] - len(found[gang.id])
            if lack > 0:
                found[gang.id] += place_run(item.pods[:lack], demand.group, ledger)
        if all(len(found[gang.id]) >= need for gang, need in zip(demand.gangs, demand.needs, strict=True)):
            return found
        ledger.rollback(checkpoint)
    return None


def _orders(demand: Demand) -> Iterator[list[Item]]:
    """Orders worth trying: largest first over all gangs, pinned, fewest nodes, scarcest room, smallest first."""
    tried: set[tuple[int, ...]] = set()
    items, rooms = demand.items, demand.room
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


def _packing(demand: Demand, most: float) -> Packing | None:
    return packed(demand.problem(), demand.ledger, most)


def _reserved(demand: Demand, packing: Packing | None) -> Found | None:
    """The places of a packing, reserved."""
    if packing is None:
        return None
    ledger = demand.ledger
    found: Found = {gang.id: [] for gang in demand.gangs}
    members = [iter(item.pods) for item in demand.items]
    for step, pattern in packing.chosen:
        name = ledger.table.names[step.node]
        for index, count in enumerate(pattern):
            if count:
                pods = list(islice(members[index], count))
                ledger.reserve(pods, np.array([step.node]), np.array([count]))
                found[demand.gangs[demand.items[index].gang].id] += [Placement(pod, name) for pod in pods]
    return found
