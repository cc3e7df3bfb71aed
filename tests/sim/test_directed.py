"""Histories in which few things go wrong, and those often; they find the bugs of
`tests.mutants.planted_sim`.
"""

from __future__ import annotations

import pytest

from tests.sim.test_sim import sim

SEEDS = 30
LATE = (
    "request late|request lost|answer lost|answer reset|node closed|node lost|node shrinks|rival"
    " binds its own"
)
LEADERS = "pause|suspension|cut off|request late|answer late|crash"
WATCHES = (
    "410 in a watch|log compacted|pages forgotten|watch closed|watch frozen|watch reset|pod"
    " deleted|gang deleted|node lost"
)
TREES = "crash|crash in the middle|request lost|answer lost|answer reset"
DIRECTIONS = {"binds": (1, LATE), "leaders": (2, LEADERS), "watches": (1, WATCHES)}
"""How many instances there are, and what goes wrong."""


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_what_must_hold_holds_where_one_thing_goes_wrong_often(direction: str) -> None:
    """The same as in `test_sim`, with more of one kind of trouble in each history."""
    replicas, names = DIRECTIONS[direction]
    _holds(replicas, names, SEEDS)


def test_trees_rest_whole_after_crashes_and_lost_answers() -> None:
    """I9: no child rests between none and the minimum of its gangs, no tree between none and that
    of its children.
    """
    _holds(1, TREES, 10, "--trees")


def _holds(replicas: int, names: str, seeds: int, *more: str) -> None:
    only = [option for name in names.split("|") for option in ("--only", name)]
    options = (
        "--seeds",
        str(seeds),
        "--replicas",
        str(replicas),
        "--workers",
        "1",
        "--batch",
        "1",
        "--until-first",
    )
    ended = sim(*options, *only, *more)
    assert ended.returncode == 0, ended.stdout + ended.stderr
