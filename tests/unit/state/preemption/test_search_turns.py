"""Searches for victims that take more than one plan take turns (V25)."""

from __future__ import annotations

import pytest

from gangsched.state.group_record import GroupRecord, QueueState
from gangsched.state.preemption.search_turns import IN_A_ROW, SearchTurns


def turns_of(*group_ids: str) -> tuple[SearchTurns, dict[str, GroupRecord]]:
    """Groups that wait for their turn."""
    records = {each: GroupRecord(id=each, gangs=(each,)) for each in group_ids}
    turns = SearchTurns(records)
    for each in group_ids:
        turns.wait(each)

    return turns, records


def begin(turns: SearchTurns, records: dict[str, GroupRecord]) -> str:
    """The group whose turn begins, which the next plan decides."""
    group_id = turns.begin()
    if group_id:
        records[group_id].queue = QueueState.ACTIVE

    return group_id


def test_one_group_searches_at_a_time() -> None:
    """V25: the next turn begins once the group is decided."""
    turns, records = turns_of("ns/a", "ns/b")
    assert turns.now == ""
    assert begin(turns, records) == "ns/a"
    assert turns.now == "ns/a"
    assert not turns.is_due
    assert begin(turns, records) == ""
    assert not turns.is_put_off("ns/a")
    assert turns.is_put_off("ns/b")
    turns.end("ns/a")
    assert begin(turns, records) == "ns/b"
    turns.end("ns/b")
    assert turns.now is None


def test_a_group_that_no_plan_decides_any_more_ends_its_turn() -> None:
    """V25: whatever parked it, or took it away, keeps nobody from searching."""
    turns, records = turns_of("ns/a", "ns/b", "ns/c")
    begin(turns, records)
    records["ns/a"].queue = QueueState.BACKING_OFF
    assert begin(turns, records) == "ns/b"
    del records["ns/b"]
    assert begin(turns, records) == "ns/c"


def test_namespaces_alternate() -> None:
    """Q4: a group waits for one turn of each other namespace, however many wait there."""
    turns, records = turns_of("pod:x/a", "pod:x/b", "y/c")
    begun = []
    for _ in range(4):
        group_id = begin(turns, records)
        begun.append(group_id)
        turns.wait(group_id)

    assert begun == ["pod:x/a", "y/c", "pod:x/a", "y/c"]


def test_a_search_ends_before_the_next_one_of_its_namespace_begins() -> None:
    """V25: what it found is less likely outdated then; one that does not end lets others search."""
    turns, records = turns_of("ns/long", "ns/b")
    begun = []
    for _ in range(IN_A_ROW + 1):
        group_id = begin(turns, records)
        begun.append(group_id)
        turns.wait(group_id)

    assert begun == ["ns/long"] * IN_A_ROW + ["ns/b"]


@pytest.mark.parametrize("turn", [False, True])
def test_a_search_that_ended_is_not_under_way(turn: bool) -> None:
    """V25: the next search of the group begins anew."""
    turns, records = turns_of("ns/a")
    if turn:
        begin(turns, records)
        turns.wait("ns/a")

    assert turns.is_under_way("ns/a") is turn
    turns.end("ns/a")
    assert not turns.is_under_way("ns/a")
    assert not turns.is_due


def test_who_waits_keeps_its_place() -> None:
    """V25: freed room wakes a group that waits, and a plan puts it off again."""
    turns, records = turns_of("ns/a", "ns/b")
    turns.wait("ns/a")
    assert begin(turns, records) == "ns/a"
