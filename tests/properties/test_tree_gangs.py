"""Random trees start where a search of all choices finds places for them, whole and in their racks
(I9).
"""

from __future__ import annotations

import pytest

from tests.properties.tree_gangs import wrong
from tests.sizes import of_size


@pytest.mark.long
@pytest.mark.parametrize("part", range(2))
def test_trees_start_where_all_choices_find_places(part: int) -> None:
    """A failure names its seed; `make tree-gangs TREES=1 SEED=n` plays it again."""
    number = of_size(30, 1_000)
    seeds = range(part * number, (part + 1) * number)
    assert {seed: found for seed in seeds if (found := wrong(seed))} == {}


def test_room_for_other_choices_inside_a_child_wakes_its_tree() -> None:
    """Q3: two of three children are needed inside the only child of a child. Sums left one choice,
    whose refusal named a member of two GPUs; room for members of one GPU woke nobody.
    """
    assert wrong(11_003_177) == []
