"""Which of thousands of ready groups a plan is given (semantics Q1, Q4)."""

from __future__ import annotations

import random

import pytest

from gangsched.core.queue_sort import group_key
from gangsched.model.gang import Group
from gangsched.state.groups import Registry
from gangsched.state.queueing import batches
from gangsched.state.queueing.batches import Batches
from gangsched.state.rule_set import Rules
from tests import builders


class Known(Registry):
    """A registry of groups that rank by the number in their name."""

    def group(self, group_id: str, now_s: float) -> Group:
        """The group of that name."""
        return builders.group(builders.gang(group_id), creation_s=int(group_id.rpartition("p")[2]))


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Batches:
    """Batches of at most 10."""
    monkeypatch.setattr(batches, "MOST", 10)
    return Batches(Known(Rules()), group_key)


def names(numbers: range) -> set[str]:
    return {f"ns/p{n}" for n in numbers}


def test_few_groups_are_all_given(made: Batches) -> None:
    assert made.next(names(range(10)), set, set(), 0.0) == names(range(10))


def test_the_first_in_order_come_first_and_new_ones_at_once(made: Batches) -> None:
    assert made.next(names(range(50)), set, set(), 0.0) == names(range(10))
    decided = names(range(10))
    assert made.next(names(range(60)) - decided, set, decided, 0.0) == names(range(50, 60))
    decided |= names(range(50, 60))
    assert made.next(names(range(60)) - decided, set, decided, 0.0) == names(range(10, 20))


def test_groups_that_are_put_in_order_count_as_work(made: Batches) -> None:
    made.next(names(range(50)), set, set(), 0.0)
    assert made.units == 50 * batches.UNITS_A_GROUP
    made.next(names(range(10, 50)), set, names(range(10)), 0.0)
    assert made.units == 0


def test_some_are_given_with_every_batch(made: Batches) -> None:
    """A head, a nominated group and the unfinished one are not put off; one that is not ready is
    not given.
    """
    assert made.next(names(range(50)), lambda: {"ns/p49", "ns/p99"}, {"ns/p49"}, 0.0) == names(
        range(10)
    ) | {"ns/p49"}


def test_a_group_that_is_woken_again_waits_for_no_new_order(made: Batches) -> None:
    made.next(names(range(50)), set, set(), 0.0)
    assert "ns/p3" not in made.next(names(range(50)) - {"ns/p3"}, set, set(), 0.0)
    assert "ns/p3" in made.next(names(range(50)), set, set(), 0.0)


@pytest.mark.parametrize("seed", range(20))
def test_every_ready_group_is_given_before_any_comes_back(made: Batches, seed: int) -> None:
    """Decision 8: groups that are ready again after each plan keep nobody waiting for longer than
    one pass.
    """
    dice = random.Random(seed)
    ready, looked_at = names(range(dice.randrange(11, 80))), set[str]()
    plans = 0
    while not ready <= looked_at:
        given = made.next(ready, set, looked_at, 0.0)
        assert given
        assert given - looked_at, f"seed {seed}: only groups that were looked at"
        decided = dice.sample(
            sorted(given - looked_at), min(len(given - looked_at), dice.randrange(1, 5))
        )
        looked_at |= set(decided)
        plans += 1
    assert plans <= len(ready)
    assert len(made.next(ready, set, looked_at, 0.0)) == 10
