"""Amounts that slices without a placement lack by totals, for the message of a refused gang.

Invariant: the ledger is only read. If totals show no lack, the message reports fragmentation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from gangsched.core.reserve import Ledger
from gangsched.core.scopes import usable
from gangsched.core.search.demand import Demand
from gangsched.core.search.slices import NeededUnits, Slice, Unit, units
from gangsched.core.topology import level, shown_label
from gangsched.model.gang import Gang, Group
from gangsched.model.snapshot import Ints
from gangsched.model.verdict_facts import (
    FewSlices,
    NoDomainForSlice,
    NoNodeHas,
    SliceHomeFull,
    SliceLack,
    SlicesScattered,
)


def slices_lack(
    group: Group, gangs: Sequence[Gang], ledger: Ledger
) -> tuple[Gang, SliceLack | None]:
    """The first gang whose slices cannot be placed, and the amounts that they lack."""
    sliced = []
    for index, gang in enumerate(gangs):
        if gang.constraints.slices and gang.pending:
            sliced.append((index, gang))

    slices = Demand.of(group, gangs, ledger).slices
    if not sliced or slices is None:
        return next(gang for gang in gangs if gang.pending), None

    for index, gang in sliced:
        needed = slices.units[index]
        assert needed is not None

        lack = _first_lack(needed, group, ledger)
        if lack is not None:
            return gang, lack

    _, first = sliced[0]
    layers = first.constraints.slices
    levels = dict.fromkeys(layer.topology for layer in layers)
    return first, SlicesScattered(tuple(levels))


def _first_lack(needed: NeededUnits, group: Group, ledger: Ledger) -> SliceLack | None:
    """What the needed units of a gang lack: begun slices first, then those of which any will do."""
    for unit, number in needed.fixed:
        if unit.whole is None:
            lack = _of_unit(unit, number, group, ledger)
            if lack is not None:
                return lack

    if needed.of:
        lack = _of_slices(needed.of, needed.number, group, ledger)
        if lack is not None:
            return lack

    for unit, _ in needed.fixed:
        if unit.whole is not None:
            lack = _of_slices([unit.whole], 1, group, ledger)
            if lack is not None:
                return lack

    return None


def takes_when_empty(gang: Gang, group: Group, totals: Ledger) -> tuple[int, str] | None:
    """Number of pods of a slice that the largest domain would hold if it were empty, and the
    domain's name; None if it would hold a whole slice.
    """
    for unit in units(gang, gang.pending, totals.table):
        if unit.whole is None:
            continue

        # One is enough: on the empty cluster, whole slices of one size fit everywhere or nowhere.
        holds, copies = _by_domain(unit.whole, group, totals)
        if copies.any() or not copies.size:
            return None

        best = int(np.argmax(holds))
        domains = level((unit.whole.key,), totals.table)
        return int(holds[best]), domains.name(best)

    return None


def _of_unit(
    unit: Unit,
    number: int,
    group: Group,
    ledger: Ledger,
) -> SliceLack | None:
    """Amounts that the waiting members of a running slice lack."""
    mask = unit.mask(ledger.table)
    room = 0

    shapes = Counter(pod.shape for pod in unit.alone)
    for shape, count in shapes.items():
        fits = usable(shape, group, ledger)[mask]
        room += min(count, int(fits.sum()))

    key, code = unit.pins[-1]
    if room >= number:
        return None

    domain = level((key,), ledger.table).name(code)
    return SliceHomeFull(domain=domain, room=room, needed=number)


def _of_slices(
    slices: Sequence[Slice],
    number: int,
    group: Group,
    ledger: Ledger,
) -> SliceLack | None:
    first = slices[0]
    size = len(slices[0].pods)

    inside = level((first.key,), ledger.table)
    if not inside.size:
        return NoNodeHas(shown_label(first.key))

    holds, copies = _by_domain(first, group, ledger)
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
    return _of_slices(first.parts, number_of_parts, group, ledger)


def _by_domain(slice_: Slice, group: Group, ledger: Ledger) -> tuple[Ints, Ints]:
    """By domain of its level how many pods of one slice it takes, and how many such slices, by
    sums.
    """
    inside = level((slice_.key,), ledger.table)
    holds = np.zeros(inside.size, dtype=np.int64)

    # A quarter of the maximum, since these are summed over domains.
    copies = np.full(inside.size, np.iinfo(np.int64).max // 4, dtype=np.int64)
    shapes = Counter(pod.shape for pod in slice_.pods)
    for shape, count in shapes.items():
        room = inside.sums(usable(shape, group, ledger))
        holds += np.minimum(room, count)
        copies = np.minimum(copies, room // count)

    return holds, copies
