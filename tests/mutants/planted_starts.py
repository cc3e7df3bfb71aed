"""Planted bugs in what is known of a start, and in what follows for members after it."""

from __future__ import annotations

from typing import Any

from gangsched.state.gangs import WAITING, GangRecord
from gangsched.state.members import KEEPS_STAMP, State
from gangsched.state.start_memory import StartMemory
from tests.mutants.mutant import bug

MEMORY = "unit/state/test_start_memory.py"
LATE = "unit/state/reporting/test_stored.py"
LATE_WRITES = "unit/state/test_late_writes.py"
SECOND = "unit/state/test_second_starts.py"
DEADLOCKS = "unit/state/test_broken_deadlocks.py"
GIVES_WAY = "unit/state/test_holds.py"
ROSTER = "unit/state/test_roster.py"


@bug("I6", "state.gangs:GangRecord.continued", MEMORY)
def a_start_goes_on_for_pods_of_any_controller(continued: Any) -> Any:
    def go_on(self: GangRecord) -> Any:
        return self.start.stamp if self.start.goes_on and self.of(*WAITING) else None

    return go_on


@bug("I6", "state.start_memory:StartMemory.recall", MEMORY)
def members_that_succeeded_are_forgotten_at_a_restart(_: Any) -> Any:
    return lambda self, stored, **options: None


@bug("I6", "state.start_memory:StartMemory.left", MEMORY)
def members_that_succeeded_are_forgotten_with_their_pods(_: Any) -> Any:
    return lambda self, member: self._here.discard(member.pod.uid)


@bug("I6", "state.start_memory:StartMemory.recall", MEMORY)
def the_status_is_counted_each_time_that_it_is_read(recall: Any) -> Any:
    def again(self: StartMemory, stored: Any, **options: Any) -> None:
        recall(self, stored, **options)
        self.is_recalled = False
        recall(self, stored, **options)

    return again


@bug("I6", "state.start_memory:StartMemory.recall", LATE)
def the_status_is_read_once(recall: Any) -> Any:
    def once(self: StartMemory, stored: Any, **options: Any) -> None:
        if not self.is_recalled:
            recall(self, stored, **options)

    return once


@bug("E3", "state.event_handlers:may_be_of_another", LATE)
def every_status_is_believed(_: Any) -> Any:
    return lambda record, pod_group, now_s: True


@bug("I6", "state.start_memory:StartMemory.settle", LATE)
def who_ends_after_a_restart_is_not_counted_beside_who_went_before_it(_: Any) -> Any:
    return lambda self: None


@bug("I6", "state.start_memory:StartMemory._may_be_of_it", LATE)
def the_status_of_another_start_of_that_number_is_counted(_: Any) -> Any:
    return lambda self, stored: stored.epoch >= self.epoch


@bug("I6", "state.member_store:KEEPS_STAMP", MEMORY)
def stamps_of_ended_pods_are_not_read(_: Any) -> Any:
    return KEEPS_STAMP - {State.ENDED}


@bug("I6", "state.second_starts:of_another_run", SECOND)
def a_second_run_joins_the_first_one_by_one(_: Any) -> Any:
    return lambda start, started, pending: []


@bug("I6", "state.second_starts:REPLICA_KINDS", SECOND)
def an_update_of_a_deployment_is_a_second_run(_: Any) -> Any:
    return frozenset()


@bug("V6", "state.holds:Holds._has_unbound", GIVES_WAY)
def members_that_wait_for_claims_give_no_room_up(_: Any) -> Any:
    return lambda self, group: False


@bug("V6", "core.post_filter:_may_yield", GIVES_WAY)
def members_that_wait_for_claims_give_way_to_equals(_: Any) -> Any:
    return lambda holder, beneficiary: True


@bug("B7", "state.claim_binding:ClaimBinding._forsaken", "unit/state/test_claim_starts.py")
def a_request_for_a_volume_stays_when_its_node_is_gone(_: Any) -> Any:
    return lambda self, members: []


@bug(
    "H2",
    "core.reservations.timeline:Timeline.of_others",
    "unit/state/reserving/test_reservations.py",
)
def a_gang_waits_for_the_end_of_its_own_members(_: Any) -> Any:
    return lambda self, group: self


@bug("B5", "state.gang_view:_lacks_of_tasks", "unit/api/dialects/test_volcano.py")
def a_further_worker_takes_the_room_of_the_lost_one(_: Any) -> Any:
    return lambda gang, left, minimums, unknown: 0


@bug("D2", "state.broken_deadlocks:namespace_of", DEADLOCKS)
def a_deadlock_names_the_gang_of_another_namespace(_: Any) -> Any:
    return lambda key: "ml"


@bug("D2", "state.broken_deadlocks:all_fit", DEADLOCKS)
def two_broken_gangs_are_always_a_deadlock(_: Any) -> Any:
    return lambda group, verdicts: True


@bug("B3", "state.roster:Roster.lose", ROSTER)
def a_member_that_is_lost_in_the_turn_of_its_bind_was_never_sent(_: Any) -> Any:
    return lambda self, member, members: None


@bug("B3", "state.start_memory:StartMemory.bound", ROSTER)
def what_was_lost_before_a_restart_was_never_sent(_: Any) -> Any:
    return property(lambda memory: len(memory._here))


@bug("V24", "state.late_writes:LateWrites._strays", LATE_WRITES)
def a_nomination_that_came_late_stays(_: Any) -> Any:
    return lambda self, group, waiting: ()


@bug("V24", "state.late_writes:Nominations.of", LATE_WRITES)
def our_own_nominations_are_taken_for_late_ones(_: Any) -> Any:
    return lambda self, group_id: None


@bug("E1", "state.late_writes:LateWrites.undecided", LATE_WRITES)
def unanswered_writes_of_this_process_are_forgotten(_: Any) -> Any:
    return lambda self, uid, now_s: None


@bug("E1", "state.late_writes:LateWrites._compare", LATE_WRITES)
def a_condition_that_came_late_stays(_: Any) -> Any:
    return lambda self, member: None
