"""Choices of pieces by kind, beside all of them."""

from __future__ import annotations

import random
from itertools import product

from gangsched.core.search.openings import Counts, OpeningLimits, first_opening, next_opening, ways


def test_all_choices_come_those_with_most_of_the_first_kinds_first() -> None:
    """Whatever sizes there are, and whatever total (seed 1)."""
    dice = random.Random(1)
    for _ in range(500):
        sizes, total = [dice.randrange(4) for _ in range(dice.randrange(5))], dice.randrange(9)
        choices = product(*(range(size, -1, -1) for size in sizes))
        assert list(ways(sizes, total)) == [each for each in choices if sum(each) == total], (
            sizes,
            total,
        )


def test_there_may_be_more_kinds_than_calls_inside_each_other() -> None:
    """A gang may have as many kinds of pods as pods."""
    assert next(ways([1] * 5_000, 2_500)) == (1,) * 2_500 + (0,) * 2_500


def allowed(counts: Counts, limits: OpeningLimits) -> bool:
    """The limits, one by one."""
    of_needs = [0] * len(limits.lack)
    for need, count in zip(limits.needs, counts, strict=True):
        if need >= 0:
            of_needs[need] += count
    is_alone = sum(count for count, alone in zip(counts, limits.alone, strict=True) if alone) <= 1
    return is_alone and all(
        count <= max(0, lack) for count, lack in zip(of_needs, limits.lack, strict=True)
    )


def test_every_opening_within_the_limits_comes_once() -> None:
    """Alternatives for one need together open no more than it lacks; each other combination is
    tried (seed 1).
    """
    dice = random.Random(1)
    for _ in range(500):
        kinds = dice.randrange(1, 5)
        limits = OpeningLimits(
            most=tuple(dice.randrange(4) for _ in range(kinds)),
            alone=[dice.random() < 0.3 for _ in range(kinds)],
            needs=[dice.randrange(-1, 2) for _ in range(kinds)],
            lack=[dice.randrange(-1, 4) for _ in range(2)],
        )
        tried = []
        opening: Counts | None = first_opening(limits, ())
        while opening is not None:
            tried.append(opening)
            opening = next_opening(opening, limits)
        every = product(*(range(most, -1, -1) for most in limits.most))
        assert tried == [counts for counts in every if allowed(counts, limits)], limits
