"""Choices of pieces by kind, beside all of them."""

from __future__ import annotations

import random
from itertools import product

from gangsched.core.search.openings import ways


def test_all_choices_come_those_with_most_of_the_first_kinds_first() -> None:
    """Whatever sizes there are, and whatever total (seed 1)."""
    dice = random.Random(1)
    for _ in range(500):
        sizes, total = [dice.randrange(4) for _ in range(dice.randrange(5))], dice.randrange(9)
        choices = product(*(range(size, -1, -1) for size in sizes))
        assert list(ways(sizes, total)) == [each for each in choices if sum(each) == total], (sizes, total)


def test_there_may_be_more_kinds_than_calls_inside_each_other() -> None:
    """A gang may have as many kinds of pods as pods."""
    assert next(ways([1] * 5_000, 2_500)) == (1,) * 2_500 + (0,) * 2_500
