"""Numbers of gangs, cores and units in preemption: every index trick is here, with its reason.

Pods, gangs, cores and nodes are numbers, so that thousands of them are compared by column. Two conventions hold in
all of preemption. What is missing has the number `NONE`, which as an index reads the last entry of an array: such
arrays are `padded` by one entry for it. Units that may be evicted share one range of numbers, pods before cores
(`UnitNumbers`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from gangsched.model.snapshot import Bools, Codes, Ints

Scalar = TypeVar("Scalar", np.int64, np.bool_)

NONE = -1
"""The number of what there is not: the node of a pod whose node is gone, or the core of a pod in no core."""
PLAIN, UNKNOWN = NONE, -2
"""Instead of a gang's number, for a pod without a gang and for one whose gang the input does not describe."""


def ints(values: Sequence[int]) -> Ints:
    """An array of these numbers."""
    return np.array(values, dtype=np.int64)


def bools(values: Sequence[bool]) -> Bools:
    """A mask of these values."""
    return np.array(values, dtype=np.bool_)


def padded(size: int, fill: int) -> Ints:
    """`size` entries and one more, which `NONE` reads; all are `fill`."""
    return np.full(size + 1, fill, dtype=np.int64)


def lookup(values: npt.NDArray[Scalar], numbers: Ints | Codes, *, none: int | bool) -> npt.NDArray[Scalar]:
    """`values[numbers[i]]`, and `none` where the number is `NONE`."""
    found: npt.NDArray[Scalar] = np.append(values, values.dtype.type(none))[numbers]
    return found


def by_gang(values: Bools, gang: Ints, *, unknown: bool = False, plain: bool = False) -> Bools:
    """`values[gang[i]]`, with values of their own for pods of unknown gangs and for plain pods."""
    # UNKNOWN and PLAIN, -2 and -1, read the last two entries.
    found: Bools = np.append(values, (unknown, plain))[gang]
    return found


def present(numbers: Ints, size: int) -> Ints:
    """Those of the numbers 0 to `size` - 1 that occur in `numbers`, ascending; `NONE` is left out."""
    # Counted from NONE on, whose count is dropped; np.unique would sort 20,000 pods for each region.
    return np.flatnonzero(np.bincount(numbers + 1, minlength=size + 1)[1:])


def highest(values: Ints, at: Ints, number: int) -> Ints:
    """`highest[k]`: the highest `values[i]` for which `at[i]` is `k`, and at least 0."""
    found, counts = np.zeros(number, dtype=np.int64), values > 0
    if counts.any():  # of waits there are mostly none that count, and this costs what a sort does
        np.maximum.at(found, at[counts], values[counts])
    return found


@dataclass(frozen=True, slots=True)
class UnitNumbers:
    """Units as numbers: unit `i` below `pods` is pod `i` by itself, unit `pods + c` is core `c`."""

    pods: int

    def is_core(self, unit: int) -> bool:
        """Whether the unit is a core, not a pod by itself."""
        return unit >= self.pods

    def core(self, unit: int) -> int:
        """The core that the unit is."""
        return unit - self.pods

    def of_cores(self, cores: Ints) -> Ints:
        """The units that these cores are."""
        return cores + self.pods

    def cores(self, units: Iterable[int]) -> list[int]:
        """The cores among the units, in their order."""
        return [unit - self.pods for unit in units if unit >= self.pods]

    def singles(self, units: Iterable[int]) -> list[int]:
        """The pods that are evicted by themselves among the units, in their order."""
        return [unit for unit in units if unit < self.pods]
