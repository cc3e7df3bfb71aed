"""Totals of slices: whether as many slices as needed fit into the domains of a level (V9).

Invariant: a "no" is final. Only slices that may still start in any domain are counted, each with the requests of the
smallest one of its layer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_

import numpy as np

from gangsched.core.preemption.numbers import NONE
from gangsched.core.preemption.preemptor import Preemptor
from gangsched.core.reserve import Ledger
from gangsched.core.search.demand import needed_units
from gangsched.core.topology import TopologyLevel, level
from gangsched.model.gang import Gang
from gangsched.model.objects import Shape
from gangsched.model.snapshot import Ints


@dataclass(frozen=True, slots=True, eq=False)
class SliceSum:
    """`number` slices, each in one domain of a level; `finest`: they contain no smaller slices.

    `parts`: by number of an ask, how many of its members a slice has. `amounts`: the total requests of a slice, by row,
    if its members differ.
    """

    level: TopologyLevel
    number: int
    parts: tuple[tuple[int, int], ...]
    amounts: tuple[tuple[int, int], ...]
    finest: bool

    @property
    def divisors(self) -> list[int]:
        """The amount of each quantity that one slice uses: of the room for its members, and of resources."""
        return [number for _, number in (*self.parts, *self.amounts)]

    def copies(self, quantities: Sequence[Ints]) -> Ints:
        """By domain, the number of slices that fit into its quantities."""
        found: Ints = np.minimum.reduce([have // of for have, of in zip(quantities, self.divisors, strict=True)])
        return found

    def within(self, outer: TopologyLevel) -> TopologyLevel:
        """The domains of the level, each in one domain of `outer`."""
        there = (outer.codes != NONE) & (self.level.codes != NONE)
        codes = np.full(there.size, NONE, dtype=np.int32)
        # One number for each pair of an outer and an inner domain, then renumbered without gaps.
        joint = outer.codes[there].astype(np.int64) * self.level.size + self.level.codes[there]
        found, codes[there] = np.unique(joint, return_inverse=True)
        return TopologyLevel((*outer.keys, *self.level.keys), codes, found.size, (*outer.columns, *self.level.columns))


def slices_of(preemptor: Preemptor, names: Sequence[str], ledger: Ledger) -> tuple[SliceSum, ...]:
    """The slices of the needed members, as a sum for each layer of a gang; `names` are the rows.

    None for a gang that needs members of slices that partly run, or of slices that lack members.
    """
    asks = {shape: number for number, shape in enumerate(preemptor.counts)}
    gangs = [gang for gang in preemptor.gangs if gang.constraints.slices]
    return tuple(each for gang in gangs for each in _layers(gang, asks, names, ledger))


def _layers(gang: Gang, asks: Mapping[Shape, int], names: Sequence[str], ledger: Ledger) -> Iterator[SliceSum]:
    own = needed_units(gang, len(gang.pending), ledger)
    layer = [] if own.fixed else own.of[: own.number]
    while layer:
        ledger.work.charge(10 + len(gang.pending) // 8)
        finer = [part for each in layer for part in each.parts]
        least = reduce(and_, (Counter(pod.shape for pod in each.pods) for each in layer))
        parts = tuple((asks[shape], number) for shape, number in least.items())
        amounts = Counter[str]()
        for shape, number in least.items() if len(least) > 1 else ():
            amounts.update({name: amount * number for name, amount in shape.requests})
        rows = tuple((names.index(name), amount) for name, amount in amounts.items() if amount)
        if parts:
            yield SliceSum(level((layer[0].key,), ledger.table), len(layer), parts, rows, not finer)
        layer = finer
