"""Planted bugs in what is known of run times, in reservations and in backfill (rules H)."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import msgspec
import numpy as np
from msgspec import structs

from gangsched.api.keys import DEADLINE
from gangsched.core.reservations.passing import PLENTY, Kept
from gangsched.model.reservation import How
from gangsched.sentences.reserving import STARTED
from gangsched.state.members import State
from tests.mutants.mutant import bug, replace, swapped

RESERVING, RESERVATIONS = "unit/state/reserving", "unit/core/reservations"


@bug("H2", "core.reservations.expected_end:expected_end_s", f"{RESERVATIONS}/test_expected_end.py")
def an_end_that_has_passed_does_not_move(_: Any) -> Any:
    return lambda started_s, run_time_s, now_s: started_s + run_time_s


@bug("H10", "core.last_ends:LastEnds._last_s", "unit/core/test_last_ends.py")
def a_nodes_empty_room_is_never_pushed_back(_: Any) -> Any:
    def empty_for_good(self: Any) -> Any:
        ends_s = self._ask(self._table)
        return np.where(np.isneginf(ends_s), np.inf, ends_s)

    return cached_property(empty_for_good)


@bug("H2", "state.reserving.expected_ends:NOT_STARTED", f"{RESERVING}/test_expected_ends.py")
def a_hold_counts_as_started(_: Any) -> Any:
    return frozenset({State.ENDED})


@bug("H1", "state.event_handlers:_same", "unit/state/test_gang_view.py")
def what_an_earlier_version_of_a_pod_stated_counts(same: Any) -> Any:
    return lambda old, new: same(
        old, msgspec.structs.replace(new, run_time_metadata=old.run_time_metadata)
    )


@bug("H1", "api.run_time:run_time", "unit/api/test_run_time.py")
def a_deadline_does_not_cap_a_run_time(run_time: Any) -> Any:
    def stated_only(stated: Any, *rest: Any, **more: Any) -> Any:
        found = run_time(tuple(each for each in stated if each[0] != DEADLINE), *rest, **more)
        return found if found.source else run_time(stated, *rest, **more)

    return stated_only


@bug("H11", "state.reserving.overruns:Overruns.due", f"{RESERVING}/test_overruns.py")
def a_restart_tells_of_every_overrun_again(due: Any) -> Any:
    def from_the_beginning(self: Any, now_s: float, wall_s: float) -> Any:
        self._since_s = -math.inf
        return due(self, now_s, wall_s)

    return from_the_beginning


@bug("H13", "sentences.reserving:_when", "unit/state/reporting/test_reserved.py")
def groups_of_other_namespaces_are_named(when: Any) -> Any:
    return lambda waits_for, own: when([each._replace(namespace=own) for each in waits_for], own)


@bug(
    "H13",
    "state.reporting.reserved:Told.is_out_of_date",
    "unit/state/reporting/test_reservation_reports.py",
)
def every_small_move_of_a_time_is_told(is_out_of_date: Any) -> Any:
    def at_once(told: Any, now: Any, *, wall_s: float) -> bool:
        return bool(is_out_of_date(told, now, wall_s=wall_s) or now.at_s != told.reserved.at_s)

    return at_once


@bug("H13", "sentences.reserving:by", "unit/state/reporting/test_reserved.py")
def a_latest_start_is_rounded_down(by: Any) -> Any:
    return lambda at_s: by(at_s // 60 * 60)


@bug(
    "H13",
    "state.reporting.reservation_reports:OVER",
    "unit/state/reporting/test_reservation_reports.py",
)
def the_end_of_a_gang_replaces_that_it_has_started(over: Any) -> Any:
    return over - {STARTED}


@bug(
    "H5",
    "state.reserving.reservations:StandingReservations._look_again",
    f"{RESERVING}/test_reservations.py",
)
def a_closed_node_keeps_its_reservation(look_again: Any) -> Any:
    def blind(self: Any, now_s: float, wall_s: float) -> None:
        snapshot = self._cluster.snapshot()
        self._table, self._overhead = snapshot.table, snapshot.overhead
        look_again(self, now_s, wall_s)

    return blind


@bug("H3", "state.reserving.ineligible:COMPARED_EVERY_S", f"{RESERVING}/test_ineligible.py")
def a_node_that_flaps_has_every_gang_compared_that_is_larger_than_the_cluster(_: Any) -> Any:
    return 0.0


@bug("H3", "state.reserving.news:_takes", f"{RESERVING}/test_ineligible.py")
def a_node_that_none_of_their_pods_fits_on_makes_gangs_possible(takes: Any) -> Any:
    return lambda shape, free, nodes, snapshot: takes(
        shape, np.full_like(free, 2**50), nodes, snapshot
    )


@bug(
    "H6",
    "core.reservations.new_reservation:_without_time",
    f"{RESERVATIONS}/test_new_reservation.py",
)
def a_group_that_waited_for_a_fence_in_vain_is_planned_all_the_time(without_time: Any) -> Any:
    def always(head: Any, limits: Any, wall_s: float) -> Any:
        return replace(
            without_time(head, limits, wall_s), until_s=head.since_s + limits.fence_after_s
        )

    return always


@bug(
    "H11",
    "core.preemption.plan_preemptions:PlanPreemptions._overdue",
    "unit/core/preemption/test_plan_preemptions.py",
)
def overruns_go_for_groups_that_they_did_not_pass(overdue: Any) -> Any:
    def for_anybody(self: Any, group: Any, preemptor: Any) -> Any:
        uids = frozenset[str]().union(*self.given.overdue.values())
        self.given = structs.replace(self.given, overdue={preemptor.group.id: uids})
        return overdue(self, group, preemptor)

    return for_anybody


@bug("H11", "state.reserving.overdue:much_longer_s", f"{RESERVING}/test_overdue.py")
def who_overran_is_evicted_at_once(_: Any) -> Any:
    return lambda stated_s, least_s: 0.0


@bug("H11", "state.reserving.overdue:Overdue.committed", f"{RESERVING}/test_overdue.py")
def who_passed_beside_a_reservation_may_be_evicted_for_it(committed: Any) -> Any:
    def any_way(self: Any, verdict: Any, standing: Any) -> None:
        committed(
            self, verdict if verdict.how is None else replace(verdict, how=How.SHORT), standing
        )

    return any_way


@bug("H8", "core.reservations.passing:room", f"{RESERVATIONS}/test_passing.py")
def spare_room_is_not_asked_for_again_at_the_reservations_time(_: Any) -> Any:
    return lambda shape, free, resources: np.full(free.shape[1], PLENTY)


@bug("H8", "core.reservations.passing:Backfill.passed", f"{RESERVATIONS}/test_passing.py")
def what_passes_a_reservation_uses_up_nothing_of_its_spare_room(passed: Any) -> Any:
    def free_of_charge(self: Any, group: Any, placements: Any) -> None:
        with swapped(Kept, outlived_by=lambda kept, ends_s: kept.fence):
            passed(self, group, placements)

    return free_of_charge


@bug("H8", "core.reservations.passing:Kept.outlived_by", f"{RESERVATIONS}/test_passing.py")
def an_unknown_run_time_counts_as_short(outlived_by: Any) -> Any:
    return lambda kept, ends_s: outlived_by(kept, ends_s if ends_s < math.inf else -math.inf)


@bug("H12", "state.reserving.reservations:StandingReservations.take", f"{RESERVING}/test_news.py")
def a_fence_is_not_kept_over_a_plan(take: Any) -> Any:
    def timed_only(self: Any, answer: Any, now_s: float) -> None:
        timed = tuple(each for each in answer.standing if not each.is_fence)
        take(self, replace(answer, standing=timed), now_s)

    return timed_only


@bug(
    "H12",
    "state.reserving.reservations:StandingReservations.gone",
    f"{RESERVING}/test_reservations.py",
)
def a_reservation_is_kept_for_a_group_that_is_gone(gone: Any) -> Any:
    def unnoticed(self: Any, groups: Any) -> None:
        before = self._gone
        gone(self, groups)
        self._gone = before

    return unnoticed


@bug(
    "H6", "core.reservations.new_reservation:find_fence", f"{RESERVATIONS}/test_new_reservation.py"
)
def a_fence_is_chosen_again_in_every_plan(find_fence: Any) -> Any:
    return lambda *given, kept, **others: find_fence(*given, kept=frozenset(), **others)


@bug("H5", "core.reservations.new_reservation:_reserve", f"{RESERVATIONS}/test_new_reservation.py")
def a_reservation_does_not_know_those_before_it(_: Any) -> Any:
    return lambda placements, ledger: None


@bug(
    "Q3",
    "state.reserving.reservations:StandingReservations._open_beside",
    "unit/state/reserving/test_reservations.py",
)
def room_that_a_run_time_opens_beside_a_reservation_wakes_nobody(_: Any) -> Any:
    return lambda self, nodes: None


@bug(
    "Q3",
    "state.reserving.expected_ends:ExpectedEnds._as_planned",
    "unit/state/reserving/test_reservations.py",
)
def members_end_with_their_group_as_long_as_nobody_looks(_: Any) -> Any:
    return lambda self, occupants, before: ()
