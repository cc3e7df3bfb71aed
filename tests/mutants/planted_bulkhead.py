"""Planted bugs in the bulkhead around each group: what is raised for one reaches others, or nobody
is told.
"""

from __future__ import annotations

from typing import Any

from tests.mutants.mutant import bug

WALL = "unit/state/test_bulkhead.py"
LEASE = "unit/kube/lease/test_elector.py"
WATCHED = "unit/telemetry/test_watched_work.py"


@bug("I10", "state.bulkhead:Bulkhead._leave_queue", WALL)
def who_raised_stays_in_the_queue(_: Any) -> Any:
    return lambda self, group, now_s: None


@bug("I10", "state.bulkhead:Bulkhead._give_up", WALL)
def who_raised_keeps_what_it_holds(_: Any) -> Any:
    return lambda self, group, now_s: None


@bug("I10", "state.bulkhead:Bulkhead._tell", WALL)
def who_raised_is_not_told(_: Any) -> Any:
    return lambda self, group, now_s: None


@bug("I10", "state.bulkhead:Bulkhead._next_delay_s", WALL)
def a_back_off_never_grows(_: Any) -> Any:
    return lambda self, group_id, now_s: 1.0


@bug("I10", "turn:_Planning._failed_s", "unit/test_turn.py")
def a_back_off_begins_before_the_plan(_: Any) -> Any:
    return lambda self: self.now_s


@bug("I10", "state.bulkhead:Bulkhead.changed", WALL)
def its_own_changes_have_a_group_tried_again(_: Any) -> Any:
    def always(self: Any, group: Any, now_s: float) -> bool:
        if group.aside is not None:
            self.queue.forgive(group.id)
        return True

    return always


@bug("I10", "state.bulkhead:Bulkhead.take_suspects", WALL)
def a_suspect_is_planned(_: Any) -> Any:
    return lambda self, now_s: None


@bug("I10", "state.bulkhead:Bulkhead.is_paused", WALL)
def a_fault_of_nobody_is_repeated_at_once(_: Any) -> Any:
    return lambda self, now_s: False


@bug("I10", "state.scheduling:SchedulingState._undo", WALL)
def half_a_commit_stays(_: Any) -> Any:
    return lambda self, verdict: None


@bug("I10", "state.scheduling:SchedulingState._answer_again", WALL)
def half_an_answer_stays(_: Any) -> Any:
    return lambda self, answer: ""


@bug("I10", "state.groups:Registry._separate", WALL)
def a_gang_is_left_in_the_group_of_one_that_raised(_: Any) -> Any:
    def alone(self: Any, failed: Any, groups: Any) -> Any:
        self._faults |= failed
        for each in failed:
            self.group_of[each] = self._alone(self.gangs[each]).id
        return set(failed)

    return alone


@bug("I10", "turn:_Planning._culprit", WALL)
def the_first_group_is_blamed(_: Any) -> Any:
    return lambda self, given, error: self.state.bulkhead.at_work.group or given.queue[0].id


@bug("I10", "turn:FAULTS_A_NAMESPACE", WALL)
def one_namespace_takes_all_attempts(_: Any) -> Any:
    return 10**9


@bug("I10", "snapshots.kept:_reduced", WALL)
def a_kept_file_has_everything(_: Any) -> Any:
    return lambda item, named: item


@bug("I10", "telemetry.watched_work:WatchedWork.begin", WATCHED)
def a_killed_process_leaves_no_name(_: Any) -> Any:
    return lambda self: None


@bug("I10", "kube.lease.elector:REFUSED", LEASE)
def a_refused_annotation_costs_the_lease(_: Any) -> Any:
    return frozenset()


@bug("I10", "kube.lease.elector:suspects_of", LEASE)
def suspects_on_the_lease_are_not_read(_: Any) -> Any:
    return lambda record: ""
