"""Numbers of what is missing, and of units."""

from __future__ import annotations

import numpy as np

from gangsched.core.preemption.numbers import (
    NONE,
    PLAIN,
    UNKNOWN,
    UnitNumbers,
    bools,
    by_gang,
    ints,
    lookup,
    padded,
    present,
)


def test_what_is_missing_has_a_value_of_its_own() -> None:
    """A pod on no node, in no core or in no gang never gets the value of the last one."""
    assert lookup(ints([7, 8]), ints([1, NONE, 0]), none=-3).tolist() == [8, -3, 7]
    assert lookup(bools([]), ints([NONE]), none=True).tolist() == [True]
    assert by_gang(bools([True, False]), ints([0, 1, PLAIN, UNKNOWN]), plain=True).tolist() == [
        True,
        False,
        True,
        False,
    ]
    assert by_gang(bools([True]), ints([PLAIN, UNKNOWN]), unknown=True).tolist() == [False, True]
    assert padded(2, 5)[[0, NONE]].tolist() == [5, 5]
    assert present(ints([2, NONE, 2, 0]), 4).tolist() == [0, 2]
    assert present(ints([]), 0).tolist() == []


def test_pods_and_cores_never_share_a_number() -> None:
    """A unit is one pod or one core, and says which."""
    numbers = UnitNumbers(3)
    units = [*range(3), *numbers.of_cores(np.arange(2)).tolist()]
    assert len({*units}) == 5
    assert [numbers.is_core(unit) for unit in units] == [False] * 3 + [True] * 2
    assert numbers.singles(units) == [0, 1, 2]
    assert numbers.cores(units) == [numbers.core(unit) for unit in units[3:]] == [0, 1]
