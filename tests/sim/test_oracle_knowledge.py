"""The oracle judges by what a process could have known, and by no more: histories in which it once
did not.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.sim.oracle import Knowledge
from tests.sim.test_sim import sim

OPEN, CLOSED, GONE = False, True, None


def gpus(number: int) -> Counter[str]:
    """What a node offers."""
    return Counter({"nvidia.com/gpu": number})


@pytest.fixture
def known() -> Knowledge:
    """A node of 8 GPUs at 1 s, closed at 2 s, open and of 4 GPUs at 3 s."""
    knowledge = Knowledge()
    knowledge.nodes["n0"] = [(1.0, gpus(8), OPEN), (2.0, gpus(8), CLOSED), (3.0, gpus(4), OPEN)]
    return knowledge


def test_a_node_is_what_it_was_at_first_and_all_that_it_became(known: Knowledge) -> None:
    """The last news before the span counts, and each within it; none that came after it."""
    assert known.views("n0", 1.5, 1.6) == [(gpus(8), OPEN)]
    assert known.views("n0", 1.5, 2.5) == [(gpus(8), OPEN), (gpus(8), CLOSED)]
    assert known.views("n0", 2.0, 3.0) == [(gpus(8), CLOSED), (gpus(4), OPEN)]


def test_a_node_of_which_nothing_was_heard_is_gone(known: Knowledge) -> None:
    """Before the first news there is no node."""
    assert known.views("n0", 0.0, 0.5) == [(GONE, OPEN)]
    assert known.views("n0", 0.0, 1.0) == [(GONE, OPEN), (gpus(8), OPEN)]
    assert known.views("n1", 0.0, 9.0) == [(GONE, OPEN)]


@pytest.mark.parametrize("seed", [89, 220, 365, 371, 821, 1337, 2663, 4790, 5050, 5715, 6339])
def test_nobody_is_blamed_for_what_it_could_not_know(seed: int) -> None:
    """A node known for an instant (89, 365) or closed again while a bind left (371); one that grew
    under it (220); a pod made anew while the watch was cut off (821). A gang runs for whom was not
    told that its members are gone (1337). Who sleeps binds nobody (2663), and a gang begins when
    its first bind leaves, not when that lands (4790, 5050, 5715, 6339)."""
    ended = sim("--seeds", "1", "--first", str(seed), "--workers", "1")
    assert ended.returncode == 0, ended.stdout
