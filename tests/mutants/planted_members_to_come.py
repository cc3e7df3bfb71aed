"""Planted bugs in the room of members to come (B8)."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

from tests.mutants.mutant import bug, replace

STATE = "unit/state/test_members_to_come.py"


@bug("B8", "state.gang_view:with_members_to_come", STATE)
def a_leader_starts_wherever_it_fits_itself(of: Any) -> Any:
    def alone(gang: Any, record: Any, policy: Any) -> Any:
        found = of(gang, record, policy)
        return replace(found, to_come=(), min_member=1) if found.to_come else found

    return alone


@bug("B8", "state.members_to_come:_promised", STATE)
def room_is_kept_for_nobody(_: Any) -> Any:
    return lambda gang, record: ()


@bug("B8", "state.members_to_come:promised_room", STATE)
def what_an_owner_wrote_is_promised(of: Any) -> Any:
    return lambda members, is_trusted: of(members, is_trusted=True)


@bug("B8", "state.room_to_come:RoomToCome.due", STATE)
def room_is_kept_for_longer_than_the_wait_time(_: Any) -> Any:
    return lambda self, now_s, wall_s: None


@bug("B8", "core.rounds:own_room", STATE)
def members_do_not_get_the_room_of_their_gang(_: Any) -> Any:
    return lambda gang, ledger: nullcontext()


@bug("B8", "state.room_to_come:room_key", STATE)
def children_of_a_tree_take_the_room_of_each_other(_: Any) -> Any:
    return lambda gang: "tree:ns/service"


@bug("B8", "state.room_to_come:RoomToCome.look", STATE)
def room_that_others_use_is_promised_still(_: Any) -> Any:
    return lambda self, nodes: None


@bug("B8", "state.preemption.nominees:is_to_come", STATE)
def room_is_not_made_for_members_to_come(_: Any) -> Any:
    return lambda uid: False


@bug("B8", "state.groups:Registry.room_unused", STATE)
def gangs_keep_room_one_after_the_other(_: Any) -> Any:
    return lambda self, namespace, at_s: None


@bug("B8", "state.groups:Registry.own_rooms", STATE)
def a_larger_member_is_kept_out_by_the_room_of_its_gang(_: Any) -> Any:
    return lambda self, gang_id: frozenset({self.group_of.get(gang_id, gang_id)})
