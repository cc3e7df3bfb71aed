"""Sums of slices: whether the domains of a level take as many slices as are needed (L6, V9).

Invariant: a "no" is final. Only members of one shape in slices that may still open anywhere are summed up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gangsched.core.preemption.preemptor import Preemptor
from gangsched.core.reserve import Ledger
from gangsched.core.search.demand import needed_units
from gangsched.core.search.slices import Slice
from gangsched.core.topology import TopologyLevel, level
from gangsched.model.snapshot import Ints


@dataclass(frozen=True, slots=True, eq=False)
class SliceSum:
    """`number` slices of `size` members, each in one domain of a level."""

    level: TopologyLevel
    size: int
    number: int

    def copies(self, rooms: Ints, inner: TopologyLevel | None = None) -> Ints:
        """By domain, of the level or of `inner`, the slices that fit where `rooms[n]` members do."""
        return (inner or self.level).sums(rooms) // self.size

    def within(self, outer: TopologyLevel) -> TopologyLevel:
        """The domains of the level, each in one domain of `outer`."""
        there = (outer.codes >= 0) & (self.level.codes >= 0)
        codes = np.full(there.size, -1, dtype=np.int32)
        joint = outer.codes[there].astype(np.int64) * self.level.size + self.level.codes[there]
        found, codes[there] = np.unique(joint, return_inverse=True)
        return TopologyLevel((*outer.keys, *self.level.keys), codes, found.size, (*outer.columns, *self.level.columns))


def slices_of(preemptor: Preemptor, ledger: Ledger) -> tuple[SliceSum, ...]:
    """The slices that the needed members make up, a sum for each layer; none where they are of several kinds."""
    gangs = preemptor.gangs
    if len(gangs) != 1 or not gangs[0].constraints.slices or len(preemptor.counts) != 1:
        return ()
    (gang,) = gangs
    own = needed_units(gang, len(gang.pending), ledger)
    found, layer = [], [] if own.fixed else own.of[: own.number]
    while layer:
        found.append(_sum(layer, ledger))
        layer = [part for each in layer for part in each.parts]
    return tuple(found)


def _sum(slices: Sequence[Slice], ledger: Ledger) -> SliceSum:
    return SliceSum(level((slices[0].key,), ledger.table), min(len(each.pods) for each in slices), len(slices))
