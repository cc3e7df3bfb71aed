"""Numbers of pods, gangs and nodes in preemption. All uses of a missing index are here, each with
its reason.

Pods, gangs, cores and nodes are numbers, so that thousands of them are compared by column. In all
of preemption, `NONE` is the number of a missing item. As an index, `NONE` reads the last entry of
an array; such arrays are `padded` by one entry for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from gangsched.model.snapshot import Bools, Codes, Ints

Scalar = TypeVar("Scalar", np.int64, np.bool_)

NONE = -1
"""The number of what there is not: the node of a pod whose node is gone, or the core of a pod in no
core.
"""
PLAIN = NONE
UNKNOWN = -2
"""Instead of a gang's number, for a pod without a gang and for one whose gang the input does not
describe.
"""


def ints(values: Sequence[int]) -> Ints:
    """An array of these numbers."""
    # Without the type, an empty array would be of floats, which index nothing.
    return np.array(values, dtype=np.int64)


def bools(values: Sequence[bool]) -> Bools:
    """A mask of these values."""
    return np.array(values, dtype=np.bool_)


def padded(size: int, fill: int) -> Ints:
    """An array of `size` entries, and one more entry for `NONE`; all are `fill`."""
    return np.full(size + 1, fill, dtype=np.int64)


def lookup(
    values: npt.NDArray[Scalar],
    numbers: Ints | Codes,
    *,
    none: int | bool,
) -> npt.NDArray[Scalar]:
    """`values[numbers[i]]`, or `none` if the number is `NONE`."""
    values_of: npt.NDArray[Scalar] = np.append(values, values.dtype.type(none))[numbers]
    return values_of


def by_gang(values: Bools, gang: Ints, *, plain: bool = False) -> Bools:
    """`values[gang[i]]` for each pod; `plain` for plain pods, and False for pods of
    unknown gangs.
    """
    # UNKNOWN and PLAIN, -2 and -1, read the last two entries.
    of_unknown = False
    with_both = np.append(values, (of_unknown, plain))
    result: Bools = with_both[gang]
    return result


def highest(values: Ints, at: Ints, number: int) -> Ints:
    """`highest[k]`: the highest `values[i]` with `at[i]` equal to `k`, and at least 0."""
    result = np.zeros(number, dtype=np.int64)
    counts = values > 0
    # Of waits there are mostly none that count, and `maximum.at` costs what a sort does.
    if counts.any():
        where = at[counts]
        np.maximum.at(result, where, values[counts])

    return result
