"""The state of a group in the queue: which transitions its table has, and that its indexes are
recounted.
"""

from __future__ import annotations

import pytest

from gangsched.state.group_record import (
    BACKS_OFF,
    ENTITLEMENTS,
    PARKS,
    TABLE,
    WAKES,
    Entitlement,
    EntitlementCause,
    GroupRecord,
    QueueCause,
    QueueState,
    next_state,
)
from gangsched.state.validate import validate
from tests.builders import members, node
from tests.world import World


def record(state: QueueState) -> GroupRecord:
    """A group in this state."""
    return GroupRecord(id="ns/g", gangs=("ns/g",), queue=state)


@pytest.mark.parametrize("state", QueueState)
def test_whatever_may_happen_to_a_group_is_a_row_of_every_state(state: QueueState) -> None:
    """Q3: a group may change, be woken, be decided or have a bind fail at any time."""
    assert TABLE[state].keys() >= WAKES | BACKS_OFF | PARKS


def test_every_state_but_the_first_is_reached_and_each_is_left() -> None:
    """No state is a dead end."""
    for state in QueueState:
        others = [row.values() for before, row in TABLE.items() if before is not state]
        assert (state is not QueueState.NEW) is any(state in row for row in others), state
        assert any(following is not state for following in TABLE[state].values()), state


@pytest.mark.parametrize("cause", sorted(WAKES))
def test_nothing_that_wakes_a_group_shortens_its_back_off(cause: QueueCause) -> None:
    """B3: neither while it backs off, nor if it was decided within its back-off and parked."""
    assert next_state(record(QueueState.BACKING_OFF), cause) is QueueState.BACKING_OFF
    parked = record(QueueState.PARKED)
    assert next_state(parked, cause) is QueueState.ACTIVE
    parked.back_off_until_s = 5.0
    assert next_state(parked, cause) is QueueState.BACKING_OFF


@pytest.mark.parametrize("state", [QueueState.NEW, QueueState.ACTIVE, QueueState.PARKED])
def test_a_back_off_that_ends_without_having_begun_is_a_bug(state: QueueState) -> None:
    """It raises an assertion that names the group, its state and what happened."""
    with pytest.raises(
        AssertionError, match=f"ns/g is {state.value or 'new'}, .*: its back-off is over"
    ):
        next_state(record(state), QueueCause.BACK_OFF_OVER)


def test_an_index_that_differs_from_the_records_is_found() -> None:
    """`validate` recounts the indexes of groups from the records."""
    world = World(node("a", 1))
    world.create(members("g", 2))
    world.told()
    group = world.state.registry.groups["ns/g"]
    assert (group.queue, group.cause) == (QueueState.PARKED, QueueCause.DECIDED)
    group.queue = QueueState.ACTIVE
    assert validate(world.state) == [
        "groups [] are kept as active, and should be ['ns/g']",
        "groups ['ns/g'] are kept as parked, and should be []",
    ]


@pytest.mark.parametrize("cause", EntitlementCause)
def test_whoever_does_not_wait_for_room_is_no_head(cause: EntitlementCause) -> None:
    """H3: a group that was not refused for room is neither examined nor excluded."""
    group = record(QueueState.PARKED)
    if cause in ENTITLEMENTS[Entitlement.NONE]:
        group.entitle(cause)
        assert group.awaits_room is (cause is EntitlementCause.REFUSED)
    else:
        with pytest.raises(AssertionError, match="ns/g is none, which does not allow: "):
            group.entitle(cause)


def test_every_entitlement_is_reached_and_ends_when_the_group_changes() -> None:
    """H3: whatever a group was, a change makes it none."""
    for each, row in ENTITLEMENTS.items():
        assert row[EntitlementCause.CHANGED] is Entitlement.NONE
        others = (rows.values() for before, rows in ENTITLEMENTS.items() if before is not each)
        assert any(each in row for row in others), each


def test_a_group_formed_anew_keeps_its_place_and_nothing_that_was_decided() -> None:
    """I4, B6: a gang that joins the group does not end its back-off, nor the time it may hold
    others back.
    """
    group = record(QueueState.PARKED)
    group.rounds, group.yields, group.clock_s, group.yielded_to = 3, 2, 5.0, "ns/other"
    group.back_off_until_s, group.holds_back_until_s, group.nominates_at_s = 7.0, 8.0, 9.0
    group.regroup(("ns/g", "ns/h"))
    assert group.gangs == ("ns/g", "ns/h")
    assert not any((group.rounds, group.yields, group.clock_s, group.yielded_to))
    assert (group.queue, group.back_off_until_s) == (QueueState.PARKED, 7.0)
    assert (group.holds_back_until_s, group.nominates_at_s) == (8.0, 9.0)
