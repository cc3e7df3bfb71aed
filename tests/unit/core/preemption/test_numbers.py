"""Numbers of what is missing."""

from __future__ import annotations

from gangsched.core.preemption.numbers import (
    NONE,
    PLAIN,
    UNKNOWN,
    bools,
    by_gang,
    ints,
    lookup,
    padded,
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
    assert padded(2, 5)[[0, NONE]].tolist() == [5, 5]
    assert ints([7])[ints([])].tolist() == []
