"""The table of a member's states: which rows it has, and that the pages show it."""

from __future__ import annotations

import itertools

import pytest

from gangsched.model.objects import Phase, Pod
from gangsched.state.members import SEEN, TABLE, TAKES_ROOM, Change, Member, State, next_state, seen
from tests.builders import OURS, pod
from tests.unit.state.diagram import PAGE, REFERENCE, takes_room, with_diagram

ANSWERS = (Change.ANSWERED_BOUND, Change.ANSWERED_GONE, Change.ANSWERED_FAILED)


def after(*changes: Change, start: State = State.PENDING) -> State:
    """The state of a member to which these things happen."""
    member = Member(pod("p"), start)
    for change in changes:
        member.state = next_state(member, change)
    return member.state


def test_whatever_is_seen_of_a_pod_is_a_row_of_every_state() -> None:
    """What the API server shows is never a bug of ours."""
    for state in State:
        assert SEEN.keys() <= TABLE[state].keys(), state


def test_every_state_is_reached_and_left() -> None:
    """No state is a dead end, and each is the next state of another one."""
    for state in State:
        assert any(state in row.values() for before, row in TABLE.items() if before is not state), (
            state
        )
        assert any(following is not state for following in TABLE[state].values()), state


@pytest.mark.parametrize(
    ("state", "change"),
    [
        (State.PENDING, Change.RELEASE),
        (State.HELD, Change.HOLD),
        (State.HELD, Change.ANSWERED_BOUND),
        (State.RETRY, Change.RELEASE),
        (State.RETRY, Change.ANSWERED_FAILED),
        (State.WAITING_FOR_CLAIMS, Change.ANSWERED_BOUND),
        (State.BINDING, Change.SEND_BIND),
        (State.BINDING, Change.CLAIMS_WRITTEN),
        (State.BOUND, Change.SEND_BIND),
        (State.GATED, Change.SEND_BIND),
        (State.TERMINATING, Change.HOLD),
        (State.ENDED, Change.SEND_BIND),
    ],
)
def test_what_is_no_row_is_a_bug(state: State, change: Change) -> None:
    """It raises an assertion that names the pod, its state and what happened."""
    with pytest.raises(AssertionError, match=f"ns/p is {state.value}, .*: {change.value}"):
        after(change, start=state)


def test_the_answer_and_the_watch_lead_to_the_same_state_in_either_order() -> None:
    """B3: a bind that went through, however it is learned of, and whatever else the watch shows."""
    for shown, state in (
        (Change.SEEN_BOUND, State.BOUND),
        (Change.SEEN_TERMINATING, State.TERMINATING),
        (Change.SEEN_ENDED, State.ENDED),
    ):
        for order in itertools.permutations((Change.ANSWERED_BOUND, shown)):
            assert after(Change.SEND_BIND, *order) is state, order


def test_a_late_answer_takes_no_room_from_what_the_watch_has_shown() -> None:
    """B3: where the pod runs is where it takes room, also when another scheduler was faster."""
    for shown in (Change.SEEN_BOUND, Change.SEEN_TERMINATING):
        for answer in ANSWERS:
            assert after(Change.SEND_BIND, shown, answer) in TAKES_ROOM


def test_a_pod_deleted_while_it_is_bound_keeps_its_room_until_the_answer() -> None:
    """B3: the bind may still go through; only its answer tells whether the node has the pod."""
    assert after(Change.SEND_BIND, Change.SEEN_DELETED) is State.WITHDRAWN
    assert State.WITHDRAWN in TAKES_ROOM
    assert after(Change.SEND_BIND, Change.SEEN_DELETED, Change.ANSWERED_BOUND) is State.TERMINATING
    for answer in (Change.ANSWERED_GONE, Change.ANSWERED_FAILED):
        assert after(Change.SEND_BIND, Change.SEEN_DELETED, answer) not in TAKES_ROOM


def test_a_watch_that_is_behind_undoes_nothing() -> None:
    """A version from before our bind, a label written by others for example, leaves the member
    where it is.
    """
    for stale in (Change.SEEN_PENDING, Change.SEEN_GATED):
        assert after(Change.SEND_BIND, stale) is State.BINDING
        assert after(Change.SEND_CLAIMS, stale) is State.WAITING_FOR_CLAIMS
        assert after(Change.SEND_BIND, Change.ANSWERED_BOUND, stale) is State.BOUND


def test_a_member_that_the_server_calls_gone_comes_back_when_it_is_seen() -> None:
    """B3: what the watch shows is there."""
    assert after(Change.SEND_BIND, Change.ANSWERED_GONE) is State.DELETED
    assert after(Change.SEND_BIND, Change.ANSWERED_GONE, Change.SEEN_PENDING) is State.PENDING


def test_claims_that_are_written_for_a_member_that_went_are_passed_over() -> None:
    """The writes may end after the pod was deleted, bound by another scheduler, or has ended."""
    for shown in (
        Change.SEEN_DELETED,
        Change.SEEN_BOUND,
        Change.SEEN_TERMINATING,
        Change.SEEN_ENDED,
    ):
        for answer in (Change.CLAIMS_WRITTEN, Change.ANSWERED_FAILED):
            assert after(Change.SEND_CLAIMS, shown) is after(Change.SEND_CLAIMS, shown, answer)


@pytest.mark.parametrize(
    ("one", "change"),
    [
        (pod("p"), Change.SEEN_PENDING),
        (pod("p", gated=True), Change.SEEN_GATED),
        (pod("p", scheduler_name="other", gated=True), Change.SEEN_FOREIGN),
        (pod("p", scheduler_name="other", node_name="a"), Change.SEEN_BOUND),
        (pod("p", deleting=True, gated=True), Change.SEEN_DELETED),
        (pod("p", deleting=True, node_name="a"), Change.SEEN_TERMINATING),
        (pod("p", deleting=True, node_name="a", phase=Phase.SUCCEEDED), Change.SEEN_ENDED),
        (pod("p", phase=Phase.FAILED), Change.SEEN_ENDED),
    ],
)
def test_what_is_seen_of_a_pod(one: Pod, change: Change) -> None:
    """Having ended comes before being deleted, and that before all else (semantics I1, P1)."""
    assert seen(one, OURS) is change


def test_the_page_shows_this_table() -> None:
    """states.md; `python -m tests.unit.state.diagram` writes it. docs/reference/member-states.md
    has the states that take room.
    """
    page = PAGE.read_text()
    assert with_diagram(page) == page
    assert takes_room() in REFERENCE.read_text()
