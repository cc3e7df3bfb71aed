"""Which groups get the next reservation, and when they are examined again (H3, H5)."""

from __future__ import annotations

from typing import Any

import pytest

from gangsched.core.reservations import new_reservation
from gangsched.core.reservations.heads import Head
from gangsched.core.reserve import Ledger
from gangsched.model.reservation import NotEntitled, NotReserved
from gangsched.state.group_record import QueueCause
from tests.unit.state.reserving.test_reservations import full, gang_of, plain, standing, world
from tests.world import EPOCH_S


def test_a_place_that_becomes_free_goes_to_the_next_group() -> None:
    """H3: also where that one has its turn in the plan that ends the reservation before it."""
    there, _ = full(3, reservations=1)
    first = gang_of(there, "a", 1)
    there.settle()
    gang_of(there, "b", 2)
    there.settle()
    assert [each for each, *_ in standing(there)] == ["ns/a"]
    there.state.queue.activate("ns/b", QueueCause.SAFETY_NET)
    there.delete(*first)
    there.settle()
    assert [each for each, *_ in standing(there)] == ["ns/b"]


def test_a_tree_that_runs_reserves_nothing_for_a_further_child() -> None:
    """I9: its minimum has started, so that its third child has no reservation, whoever asks first."""
    there = world(4)
    for name in "abc":
        gang_of(there, name, 2, parent="t", min_children=2, run_s=100)
    there.settle()
    assert len(there.bound()) == 4
    plain(there, "other", 8)
    there.advance(5)
    assert [each for each, *_ in standing(there)] == ["pod:ns/other"]


def test_a_search_that_takes_too_long_is_made_again_after_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    """H5: nobody is told that older gangs use all reservations, and others behind it have theirs meanwhile."""
    there, _ = full(4)
    find_time = new_reservation.find_time

    def searched(head: Head, ledger: Ledger, *args: Any, **kwargs: Any) -> Any:
        if head.group.id == "ns/hard":
            ledger.work.charge(10**9)
        return find_time(head, ledger, *args, **kwargs)

    with monkeypatch.context() as patched:
        patched.setattr(new_reservation, "find_time", searched)
        gang_of(there, "hard", 2)
        there.settle()
        said = there.state.registry.groups["ns/hard"].not_reserved
        assert said == NotReserved(why=NotEntitled.TOO_MUCH_WORK, until_s=EPOCH_S + there.now_s + 60)
        there.advance(1)
        gang_of(there, "next", 1)
        there.settle()
        assert [each for each, *_ in standing(there)] == ["ns/next"]
    there.advance(58)
    assert [each for each, *_ in standing(there)] == ["ns/next"]
    there.advance(2)
    assert [each for each, *_ in standing(there)] == ["ns/next", "ns/hard"], "the first one was promised its time"
