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
from gangsched.core.search.slices import Slice, Unit, units
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
    sliced = [
        (index, gang)
        for index, gang in enumerate(gangs)
        if gang.constraints.slices and gang.pending
    ]
    slices = Demand.of(group, gangs, ledger).slices
    if not sliced or slices is None:
        return next(gang for gang in gangs if gang.pending), None

    for index, gang in sliced:
        found = slices.units[index]
        assert found is not None
        whole = [unit.whole for unit, _ in found.fixed if unit.whole is not None]
        lacks: list[SliceLack | None] = [
            _of_unit(unit, number, group, ledger)
            for unit, number in found.fixed
            if unit.whole is None
        ]
        lacks += [_of_slices(found.of, found.number, group, ledger)] if found.of else []

        lacks += [_of_slices([slice_], 1, group, ledger) for slice_ in whole]
        for lack in lacks:
            if lack is not None:
                return gang, lack

    first = sliced[0][1]
    layers = first.constraints.slices
    return first, SlicesScattered(tuple(dict.fromkeys(layer.topology for layer in layers)))


def takes_when_empty(gang: Gang, group: Group, totals: Ledger) -> tuple[int, str] | None:
    """Number of pods of a slice that the largest domain would hold if it were empty, and the
    domain's name; None if it would hold a whole slice.
    """
    found = []
    for unit in units(gang, gang.pending, totals.table):
        if unit.whole is not None:
            found.append(unit.whole)

    # One is enough: on the empty cluster, whole slices of one size fit everywhere or nowhere.
    for slice_ in found[:1]:
        holds, whole = _by_domain(slice_, group, totals)
        if whole.size and not whole.any():
            best = int(np.argmax(holds))
            return int(holds[best]), level((slice_.key,), totals.table).name(best)

    return None


def _of_unit(unit: Unit, number: int, group: Group, ledger: Ledger) -> SliceLack | None:
    """Amounts that the waiting members of a running slice lack."""
    mask = unit.mask(ledger.table)
    room = 0

    for shape, count in Counter(pod.shape for pod in unit.alone).items():
        room += min(count, int(usable(shape, group, ledger)[mask].sum()))

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

    holds, whole = _by_domain(first, group, ledger)
    if not whole.any():
        best = int(np.argmax(holds))
        return NoDomainForSlice(
            level=shown_label(first.key),
            size=size,
            best=inside.name(best),
            takes=int(holds[best]),
        )

    kinds = {frozenset(Counter(pod.shape for pod in slice_.pods).items()) for slice_ in slices}
    if len(kinds) == 1 and whole.sum() < number:
        return FewSlices(
            level=shown_label(first.key),
            size=size,
            room=int(whole.sum()),
            needed=number,
        )
    if first.parts:
        return _of_slices(first.parts, number * len(first.parts), group, ledger)

    return None


def _by_domain(slice_: Slice, group: Group, ledger: Ledger) -> tuple[Ints, Ints]:
    """By domain of its level how many pods of one slice it takes, and how many such slices, by
    sums.
    """
    inside = level((slice_.key,), ledger.table)
    holds = np.zeros(inside.size, dtype=np.int64)

    # A quarter of the maximum, since these are summed over domains.
    whole = np.full(inside.size, np.iinfo(np.int64).max // 4, dtype=np.int64)
    for shape, count in Counter(pod.shape for pod in slice_.pods).items():
        room = inside.sums(usable(shape, group, ledger))
        holds += np.minimum(room, count)
        whole = np.minimum(whole, room // count)

    return holds, whole
