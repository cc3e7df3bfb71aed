"""Planted bugs in how a running gang is healed."""

from __future__ import annotations

from typing import Any

from gangsched.core.homes import at_home
from tests.mutants.mutant import bug


@bug("L3", "core.homes:_shared", "properties/test_homes.py")
def the_home_is_that_of_the_first_member(shared: Any) -> Any:
    return lambda of, nodes: shared(of, nodes[:1])


@bug("L8", "kube.read.deaths:_is_disrupted", "unit/kube/read/test_deaths.py")
def an_eviction_is_a_strike(_: Any) -> Any:
    return lambda status: False


@bug("L8", "state.bad_nodes:_Others.ended_with", "unit/state/test_bad_nodes.py")
def a_fault_of_all_members_is_a_strike(_: Any) -> Any:
    return lambda others, ending: False


@bug(
    "L5",
    "core.preemption.plan_preemptions:healed_at_home",
    "properties/test_homes_of_groups.py",
)
def room_is_made_where_the_whole_group_is_at_home(_: Any) -> Any:
    return at_home


@bug("L5", "core.reservations.heads:at_home_of", "unit/core/reservations/test_heads.py")
def room_for_lost_members_is_reserved_anywhere(_: Any) -> Any:
    return lambda head, ledger: head
