"""Each pod says what it waits for, in the state that it is in (semantics E5)."""

from __future__ import annotations

import pytest

from gangsched.model.reasons import Reason
from gangsched.state.members import State
from tests.unit.state.reporting.waiting_cases import CASES, Case, said

NEVER_OF_A_POD = {Reason.SCHEDULED}
"""Reasons that no condition has: the pod is bound."""
FOR_A_TURN = {Reason.YIELDED}
"""Reasons that last for a turn at most: an Event has them, and the pods say what comes next."""


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.state}: {case.situation}")
def test_a_pod_says_what_it_waits_for(case: Case) -> None:
    """E5: the condition and the gangs API are about the present state, half a second after it
    began.
    """
    found = said(case.play())
    assert found.state is case.state
    assert found.reason == case.reason
    assert case.says in found.message
    assert case.gang in found.gang
    assert bool(found.gang) is bool(case.gang)


def test_there_is_a_case_for_every_state() -> None:
    """A state without a sentence is noticed here."""
    assert {case.state for case in CASES} == set(State)


def test_there_is_a_case_for_every_reason() -> None:
    """A reason that no case shows is noticed here."""
    shown = {case.reason for case in CASES} - {""}
    assert shown == set(Reason) - NEVER_OF_A_POD - FOR_A_TURN


def test_the_gangs_api_says_what_the_pods_say() -> None:
    """E5: of a gang whose member waits for its home, not that a new node would help."""
    found = said(next(case for case in CASES if case.reason == "WaitingForHome").play())
    assert found.gang_reason == "WaitingForHome"
    assert found.next == "it is placed as soon as room is freed where its gang runs"


def test_only_lack_of_room_is_unschedulable() -> None:
    """E1: autoscalers add nodes for this reason alone, and for none of the states that have a
    node.
    """
    for case in CASES:
        if case.reason == Reason.UNSCHEDULABLE:
            assert case.state in {State.PENDING, State.DELETED}
