"""Amounts that slices without a placement lack by totals, for the message of a refused gang.

Invariant: the ledger is only read. If totals show no lack, the message reports fragmentation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from gangsched.core.limits import by_importance, limits
from gangsched.core.placement_attempt import PlacementAttempt
from gangsched.core.reserve import Ledger
from gangsched.core.scopes import eligible, usable
from gangsched.core.search.demand import Demand
from gangsched.core.search.kinds import Item
from gangsched.core.search.slices import NeededUnits, Slice, Unit, units
from gangsched.core.topology import level, shown_label
from gangsched.model.gang import Gang, Group
from gangsched.model.snapshot import Bools, Ints
from gangsched.model.verdict_facts import (
    FewSlices,
    NoDomainForSlice,
    NoNodeHas,
    SliceHomeFull,
    SliceLack,
    SlicesScattered,
    WhenEmpty,
)


def slices_lack(
    gangs: Sequence[Gang],
    attempt: PlacementAttempt,
) -> tuple[Gang, SliceLack | None]:
    """The first gang whose slices cannot be placed, and the amounts that they lack."""
    sliced = []
    for index, gang in enumerate(gangs):
        if gang.constraints.slices and gang.pending:
            sliced.append((index, gang))

    slices = Demand.of(gangs, attempt).slices
    if not sliced or slices is None:
        return next(gang for gang in gangs if gang.pending), None

    for index, gang in sliced:
        needed = slices.units[index]
        assert needed is not None

        lack = _first_lack(needed, attempt)
        if lack is not None:
            return gang, lack

    _, first = sliced[0]
    layers = first.constraints.slices
    levels = dict.fromkeys(layer.topology for layer in layers)
    return first, SlicesScattered(tuple(levels))


def _first_lack(needed: NeededUnits, attempt: PlacementAttempt) -> SliceLack | None:
    """What the needed units of a gang lack: begun slices first, then those of which any will do."""
    for unit, number in needed.fixed:
        if unit.whole is None:
            lack = _of_unit(unit, number, attempt)
            if lack is not None:
                return lack

    if needed.of:
        lack = _of_slices(needed.of, needed.number, attempt)
        if lack is not None:
            return lack

    for unit, _ in needed.fixed:
        if unit.whole is not None:
            lack = _of_slices([unit.whole], 1, attempt)
            if lack is not None:
                return lack

    return None


def slice_when_empty(gang: Gang, group: Group, totals: Ledger) -> WhenEmpty | None:
    """How many pods of a slice the largest domain would hold if it were empty; None if it would
    hold a whole slice.
    """
    attempt = PlacementAttempt(group, totals)
    for unit in units(gang, gang.pending, totals.table):
        if unit.whole is None:
            continue

        # One is enough: on the empty cluster, whole slices of one size fit everywhere or nowhere.
        holds, copies = _by_domain(unit.whole, attempt)
        if copies.any() or not copies.size:
            return None

        best = int(np.argmax(holds))
        domains = level((unit.whole.key,), totals.table)
        names = _limits(unit.whole, domains.mask(best), attempt)
        return WhenEmpty(domains.name(best), int(holds[best]), names)

    return None


def _limits(
    slice_: Slice,
    inside: Bools,
    attempt: PlacementAttempt,
) -> tuple[str, ...]:
    """The resources that keep more pods of a slice off the nodes of a domain."""
    names: dict[str, None] = {}
    shapes = Counter(pod.shape for pod in slice_.pods)

    for shape, count in shapes.items():
        fits = usable(shape, attempt)
        room = int(fits[inside].sum())
        if room >= count:
            continue

        of_shape = limits(shape, attempt, room, inside)
        if not of_shape:
            return ()

        names |= dict.fromkeys(of_shape)

    return tuple(names)


def limits_inside(
    demand: Demand,
    kept: Sequence[int],
    inside: Bools,
) -> tuple[str, ...]:
    """The resources that keep the pods that gangs need off the nodes of a domain, of which the
    items `kept` must be there.
    """
    needs = list(demand.needs)
    fitting: Counter[int] = Counter()
    lacking: list[tuple[Item, int]] = []

    for number, item in enumerate(demand.items):
        if number not in kept:
            needs[item.gang] -= len(item.pods)
            continue

        room = int(demand.room[number][inside].sum())
        pods = len(item.pods)
        fitting[item.gang] += min(room, pods)

        if room < pods:
            lacking.append((item, room))

    names: dict[str, None] = {}
    for item, room in lacking:
        if fitting[item.gang] >= needs[item.gang]:
            continue

        of_item = limits(item.shape, demand.attempt, room, inside)
        if not of_item:
            return ()

        names |= dict.fromkeys(of_item)

    return tuple(names) or _limits_together(demand, kept, inside)


def _limits_together(
    demand: Demand,
    kept: Sequence[int],
    inside: Bools,
) -> tuple[str, ...]:
    """The resource of which all pods together ask for more than a domain has; () if there is none,
    or if not all pods are needed.
    """
    pods = 0
    for item in demand.items:
        pods += len(item.pods)

    if sum(demand.needs) < pods:
        return ()

    asked: dict[str, list[tuple[int, int]]] = {}
    open_nodes = np.zeros(inside.shape, dtype=np.bool_)
    for number in kept:
        item = demand.items[number]
        open_nodes |= eligible(item.shape, demand.attempt)
        for name, amount in item.shape.requests:
            asked.setdefault(name, []).append((amount, len(item.pods)))

    ledger = demand.ledger
    for name in sorted(asked, key=by_importance):
        row = ledger.resources.get(name)
        if row is None:
            return (name,)

        free = np.maximum(ledger.free[row][inside & open_nodes], 0)
        if _is_more_than(free, asked[name]):
            return (name,)

    return ()


def _is_more_than(free: Ints, asked: Sequence[tuple[int, int]]) -> bool:
    """Whether pods, by the amount that each asks for, ask for more than is free on the nodes: in
    units of one of the amounts, since the rest on a node is of no use to such a pod.
    """
    for unit, _ in asked:
        needed = 0
        for amount, pods in asked:
            needed += amount // unit * pods

        if needed > (free // unit).sum():
            return True

    return False


def _of_unit(
    unit: Unit,
    number: int,
    attempt: PlacementAttempt,
) -> SliceLack | None:
    """Amounts that the waiting members of a running slice lack."""
    ledger = attempt.ledger
    mask = unit.mask(ledger.table)
    room = 0

    shapes = Counter(pod.shape for pod in unit.alone)
    for shape, count in shapes.items():
        fits = usable(shape, attempt)[mask]
        room += min(count, int(fits.sum()))

    key, code = unit.pins[-1]
    if room >= number:
        return None

    domain = level((key,), ledger.table).name(code)
    return SliceHomeFull(domain=domain, room=room, needed=number)


def _of_slices(
    slices: Sequence[Slice],
    number: int,
    attempt: PlacementAttempt,
) -> SliceLack | None:
    first = slices[0]
    size = len(slices[0].pods)

    inside = level((first.key,), attempt.ledger.table)
    if not inside.size:
        return NoNodeHas(shown_label(first.key))

    holds, copies = _by_domain(first, attempt)
    # Sums of room by shape: pods of different shapes may need the same room.
    is_mixed = len({pod.shape for pod in first.pods}) > 1
    if not copies.any():
        best = int(np.argmax(holds))
        return NoDomainForSlice(
            level=shown_label(first.key),
            size=size,
            best=inside.name(best),
            takes=int(holds[best]),
            at_most=is_mixed,
        )

    kinds = set()
    for slice_ in slices:
        counts = Counter(pod.shape for pod in slice_.pods)
        kinds.add(frozenset(counts.items()))

    total = int(copies.sum())
    if len(kinds) == 1 and total < number:
        return FewSlices(
            level=shown_label(first.key),
            size=size,
            room=total,
            needed=number,
            at_most=is_mixed,
        )
    if not first.parts:
        return None

    number_of_parts = number * len(first.parts)
    return _of_slices(first.parts, number_of_parts, attempt)


def _by_domain(slice_: Slice, attempt: PlacementAttempt) -> tuple[Ints, Ints]:
    """By domain of its level how many pods of one slice it takes, and how many such slices, by
    sums.
    """
    inside = level((slice_.key,), attempt.ledger.table)
    holds = np.zeros(inside.size, dtype=np.int64)

    # A quarter of the maximum, since these are summed over domains.
    copies = np.full(inside.size, np.iinfo(np.int64).max // 4, dtype=np.int64)
    shapes = Counter(pod.shape for pod in slice_.pods)
    for shape, count in shapes.items():
        room = inside.sums(usable(shape, attempt))
        holds += np.minimum(room, count)
        copies = np.minimum(copies, room // count)

    return holds, copies
