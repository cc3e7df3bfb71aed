"""Planted bugs in what is remembered between plans: members, gangs, groups, the queue, and what is
reported of them.
"""

from __future__ import annotations

import math
from collections import deque
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
from msgspec import structs

from gangsched.model.objects import TERMINAL
from gangsched.model.parts import broken_part
from gangsched.model.text import cut
from gangsched.state.cluster import Cluster
from gangsched.state.group_record import TABLE, QueueState
from gangsched.state.members import TAKES_ROOM, Change, State
from gangsched.state.reporting import reports
from gangsched.state.reporting.conditions import FACTS_S, NO_NODE, PodCondition
from tests.mutants.mutant import bug, replace, swapped

STATE, QUEUEING, REPORTS = (
    "unit/state",
    "unit/state/queueing",
    "unit/state/reporting/test_reports.py",
)
VALIDATE = "unit/state/test_validate.py"


def with_row(table: Any, state: State, **goes: State) -> Any:
    """The table of member states, in which these changes lead elsewhere."""
    return {**table, state: {**table[state], **{Change[change]: to for change, to in goes.items()}}}


# --- members ------------------------------------------------------------------------------------


@bug("R3", "state.members:TABLE", f"{STATE}/test_groups.py")
def a_hold_survives_the_deletion_of_its_pod(table: Any) -> Any:
    return with_row(table, State.HELD, SEEN_DELETED=State.HELD)


@bug("B2", "state.start_check:StartCheck._answer", f"{STATE}/test_start_check.py")
def the_rest_of_a_start_is_sent_though_a_member_fits_no_more(_: Any) -> Any:
    return lambda self, record: self._answers.update({record.id: ""})


@bug("B2", "state.start_check:StartCheck.forget", f"{STATE}/test_start_check.py")
def what_was_found_of_a_start_is_never_looked_at_again(_: Any) -> Any:
    return lambda self: None


@bug("B2", "state.start_check:_has_begun", f"{STATE}/test_start_check.py")
def a_start_counts_as_not_begun_when_a_bind_has_succeeded(_: Any) -> Any:
    return lambda record: False


@bug("I9", "model.parts:_is_whole", "unit/model/test_parts.py")
def a_part_is_whole_with_one_child(is_whole: Any) -> Any:
    def one(root: Any, part: Any, counts: Any) -> bool:
        if isinstance(part, str):
            return bool(is_whole(root, part, counts))
        return any(one(root, child, counts) for child in part.children)

    return one


@bug("I9", "model.parts:_broken", "unit/model/test_parts.py")
def only_gangs_are_asked_whether_they_are_broken(broken: Any) -> Any:
    return lambda *asked: (part for part in broken(*asked) if isinstance(part, str))


@bug("B7", "state.claim_starts:Starts._startable", "properties/test_half_starts.py")
def claims_are_awaited_gang_by_gang(startable: Any) -> Any:
    def singly(self: Any, group: str, members: Any, sent: Any = ()) -> Any:
        gangs: dict[str, list[Any]] = {each.gang: [] for each in members}
        for each in members:
            gangs[each.gang].append(each)
        least = {gang: self._registry.gangs[gang].least for gang in gangs}
        return [each for gang, own in gangs.items() if len(own) >= least[gang] for each in own]

    return singly


@bug("B3", "state.broken_groups:rest_of_start", "properties/test_half_starts.py")
def what_a_kill_left_of_a_start_waits_behind_older_gangs(_: Any) -> Any:
    return lambda gangs, tree, complete: frozenset()


@bug("B3", "state.broken_groups:rest_of_start", "properties/test_half_starts.py")
def new_pods_are_the_rest_of_an_old_start(rest: Any) -> Any:
    def any_age(gangs: Any, tree: Any, complete: Any) -> Any:
        old = [replace(each, pending=tuple(_aged(pod) for pod in each.pending)) for each in gangs]
        return rest(old, tree, complete)

    return any_age


@bug("B3", "core.rounds:_smallest_first", "properties/test_half_starts.py")
def an_interrupted_start_goes_on_with_its_largest_members(_: Any) -> Any:
    return lambda pods, enough, ledger: pods


@bug("B3", "state.broken_groups:complete_starts", "properties/test_homes_of_groups.py")
def a_gang_that_lost_all_of_its_members_was_never_sent(_: Any) -> Any:
    return lambda gangs: frozenset()


def _aged(pod: Any) -> Any:
    return msgspec.structs.replace(pod, creation_s=0)


@bug("B4", "state.committer:_joint_start", "properties/test_half_starts.py")
def stamps_do_not_say_what_started_together(_: Any) -> Any:
    return lambda records, verdict: None


@bug("B3", "state.members:TABLE", f"{STATE}/test_members.py")
def members_that_the_server_says_are_gone_are_retried(table: Any) -> Any:
    return with_row(table, State.BINDING, ANSWERED_GONE=State.RETRY)


@bug("B3", "state.members:TABLE", f"{STATE}/test_member_store.py")
def the_room_of_a_refused_member_is_given_away(table: Any) -> Any:
    return with_row(table, State.BINDING, ANSWERED_FAILED=State.RETRY)


@bug("B3", "state.members:TABLE", f"{STATE}/test_kept_rooms.py")
def the_room_of_who_could_not_write_its_claims_is_given_away(table: Any) -> Any:
    return with_row(table, State.WAITING_FOR_CLAIMS, ANSWERED_FAILED=State.RETRY)


@bug("B3", "state.member_store:KEEPS_TIME", f"{STATE}/test_kept_rooms.py")
def each_try_keeps_the_room_for_half_a_minute_more(keeps: Any) -> Any:
    return keeps - {State.RETRY}


@bug("B3", "state.kept_rooms:waits", f"{STATE}/test_kept_rooms.py")
def claims_that_were_not_written_are_tried_again_as_they_were(_: Any) -> Any:
    return lambda selections: False


@bug("B3", "state.kept_rooms:KeptRooms._broken_part", f"{STATE}/test_kept_rooms.py")
def who_waits_for_a_volume_stands_in_for_who_was_refused(_: Any) -> Any:
    return lambda self, group_id: broken_part(
        self._registry.parts(group_id), self._registry.started(group_id)
    )


@bug("B3", "state.kept_rooms:KeptRooms.release", f"{STATE}/test_member_store.py")
def the_room_of_a_refused_member_is_kept_indefinitely(release_kept: Any) -> Any:
    return lambda self, now_s: release_kept(self, -math.inf)


@bug("I6", "state.member_store:MemberStore._leave", VALIDATE)
def a_member_that_moves_stays_with_its_old_gang_too(leave: Any) -> Any:
    def stays(self: Any, member: Any) -> None:
        gang = self._registry.gangs.get(member.gang)
        leave(self, member)
        if gang is not None:
            gang.members[member.pod.uid] = member

    return stays


@bug("I8", "state.member_store:MemberStore.drop", "properties/test_absurd_objects.py")
def a_deletion_that_fails_halfway_leaves_its_pod_in_the_gang(drop: Any) -> Any:
    def hasty(self: Any, uid: str) -> Any:
        member = self._members.pop(uid, None)
        if member is not None:
            self._leave(member)
            self._members[uid] = member
            member.gang = ""
        return drop(self, uid)

    return hasty


@bug("I1", "state.member_store:TAKES_ROOM", VALIDATE)
def a_pod_that_has_ended_keeps_its_room(_: Any) -> Any:
    return TAKES_ROOM | {State.ENDED}


@bug("F1", "state.member_store:_nomination", f"{STATE}/test_cluster.py")
def a_nomination_outlives_its_pod(nomination: Any) -> Any:
    return lambda member: nomination(SimpleNamespace(pod=member.pod, state=State.FOREIGN))


@bug("I1", "state.cluster:Cluster.move", VALIDATE)
def a_members_room_is_counted_twice_when_its_labels_change(move: Any) -> Any:
    def again(self: Any, old: Any, left: str, pod: Any, node: str) -> None:
        move(self, old, "" if left == node and old.labels != pod.labels else left, pod, node)

    return again


@bug("I7", "state.cluster:Cluster._take", f"{STATE}/test_event_handlers.py")
def pods_on_other_pools_nodes_make_snapshots(take: Any) -> Any:
    def noticed(self: Any, *given: Any) -> None:
        self._snapshot = None
        take(self, *given)

    return noticed


@bug("I7", "state.cluster:Cluster.drop_node", f"{STATE}/test_event_handlers.py")
def terms_of_pods_stay_when_their_node_leaves_the_pool(drop_node: Any) -> Any:
    def forgetful(self: Any, name: str) -> None:
        with swapped(Cluster, _count_terms=lambda *_: None):
            drop_node(self, name)

    return forgetful


# --- gangs and groups ---------------------------------------------------------------------------


@bug("P1", "state.gang_view:gang_view", f"{STATE}/test_claim_binding.py")
def quorum_counts_terminating_pods(gang_view: Any) -> Any:
    def generous(record: Any, policy: Any) -> Any:
        view = gang_view(record, policy)
        going = [member.pod for member in record.of(State.TERMINATING, State.DELETED)]
        return replace(view, pending=(*view.pending, *going))

    return generous


@bug("decision 10", "state.gang_view:gang_view", f"{STATE}/test_scheduling.py")
def what_failed_to_start_goes_alone(gang_view: Any) -> Any:
    def apart(record: Any, policy: Any) -> Any:
        view = gang_view(record, policy)
        failed = (
            [member.pod for member in record.of(State.RETRY)]
            if not view.satisfied
            else [*view.retry]
        )
        return replace(
            view,
            pending=tuple(each for each in view.pending if each not in failed),
            retry=tuple(failed),
        )

    return apart


@bug("T3", "state.gang_view:_timed_out", f"{STATE}/test_groups.py")
def a_timed_out_gang_goes_on_until_its_marks_are_seen(_: Any) -> Any:
    return lambda member: member.pod.timed_out


@bug("I4", "state.gangs:GangRecord._living", f"{STATE}/test_gangs.py")
def a_gang_that_has_ended_declares_nothing(living: Any) -> Any:
    return lambda record: [
        pod for pod in living(record) if not (pod.deleting or pod.phase in TERMINAL)
    ]


@bug("I4", "state.groups:Registry._consents", f"{STATE}/test_gangs.py")
def a_gang_is_tied_without_its_consent(_: Any) -> Any:
    return lambda self, gang_id, group: self._declared(gang_id)


@bug("I4", "state.groups:namespace_of", f"{STATE}/test_gangs.py")
def the_existence_of_a_gang_of_another_namespace_is_told(_: Any) -> Any:
    return lambda gang_id: ""


@bug("T2", "state.committer:Committer._mark_timed_out", f"{STATE}/test_groups.py")
def a_timeout_is_not_written_to_siblings(mark: Any) -> Any:
    return lambda self, group: mark(self, structs.replace(group, gangs=group.gangs[:1]))


@bug("B2", "state.scheduling:SchedulingState.commit", f"{STATE}/test_scheduling.py")
def the_generation_of_a_group_is_not_checked(commit: Any) -> Any:
    def believed(self: Any, plan: Any, snapshot: Any, *, now_s: float) -> Any:
        self.refresh(now_s, in_turn=False)
        groups = self.registry.groups
        verdicts = [
            (
                replace(each, generation=groups[each.group].generation)
                if each.group in groups
                else each
            )
            for each in plan.verdicts
        ]
        return commit(self, replace(plan, verdicts=tuple(verdicts)), snapshot, now_s=now_s)

    return believed


@bug("T1", "state.holds:Holds.follow", f"{STATE}/test_groups.py")
def the_clock_restarts_with_each_round(keep_clock: Any) -> Any:
    def restarted(self: Any, group: Any, now_s: float) -> None:
        group.clock_s = None
        keep_clock(self, group, now_s)

    return restarted


@bug("B6", "state.event_handlers:EventHandlers._rejection", f"{STATE}/test_scheduling.py")
def rejecting_nodes_are_not_avoided(rejection: Any) -> Any:
    def at_home(self: Any, pod: Any, *given: Any) -> Any:
        events = rejection(self, pod, *given)
        for group in self._registry.groups.values():
            group.avoid.pop(pod.node_name, None)
        return events

    return at_home


# --- the queue ----------------------------------------------------------------------------------


@bug("Q3", "state.queueing.queue:Queue.__init__", f"{QUEUEING}/test_queue.py")
def the_safety_net_is_gone(init: Any) -> Any:
    def unattended(self: Any, *given: Any, **options: Any) -> None:
        init(self, *given, **options)
        self._sweep_every_s = math.inf

    return unattended


@bug("Q3", "state.cluster:Cluster.vacate", f"{STATE}/test_groups.py")
def freed_room_wakes_nobody(vacate: Any) -> Any:
    def unnoticed(self: Any, pod: Any, node: str) -> None:
        freed = set(self._freed)
        vacate(self, pod, node)
        self._freed = freed

    return unnoticed


@bug("Q3", "state.queueing.queue:Queue.back_off", f"{STATE}/test_scheduling.py")
def every_failed_bind_of_a_plan_backs_off_again(back_off: Any) -> Any:
    def again(self: Any, group: Any, now_s: float, **given: Any) -> None:
        self.forgive(group)
        back_off(self, group, now_s, **given)

    return again


@bug("B3", "state.group_record:next_state", f"{STATE}/test_group_record.py")
def a_group_that_is_woken_backs_off_no_more(_: Any) -> Any:
    return lambda group, cause: TABLE[QueueState.NEW].get(cause, QueueState.ACTIVE)


@bug("Q3", "state.queueing.queue:Queue._become", f"{VALIDATE}")
def a_parked_group_is_planned_again_and_again(become: Any) -> Any:
    def ready(self: Any, group: Any, cause: Any) -> None:
        become(self, group, cause)
        self._active.add(group.id)

    return ready


@bug("I4", "state.group_record:GroupRecord.regroup", f"{STATE}/test_group_record.py")
def a_group_that_is_formed_anew_has_the_rounds_and_yields_of_the_former(_: Any) -> Any:
    def same(self: Any, gangs: Any) -> None:
        self.gangs = gangs

    return same


@bug("Q3", "state.queueing.parked:Parked.next_to_wake", f"{QUEUEING}/test_parked.py")
def shapes_behind_the_first_few_that_room_helps_sleep_on(_: Any) -> Any:
    def forgotten(self: Any, snapshot: Any) -> set[str]:
        self._rows.keep_pending(np.zeros(len(self._by_room), dtype=np.bool_))
        return set()

    return forgotten


@bug("Q3", "state.queueing.parked:Parked.remove", f"{STATE}/preemption/test_hold_back_times.py")
def a_shape_is_forgotten_as_soon_as_one_kind_of_group_left_it(remove: Any) -> Any:
    def thorough(self: Any, group: Any) -> None:
        shapes = {need.shape for need in group.needs}
        remove(self, group)
        for room in [each for each in self._by_room if each.shape in shapes]:
            self._by_room.pop(room)
            self._rows.remove(room)

    return thorough


@bug("Q3", "state.queueing.parked:Parked.tried", f"{QUEUEING}/test_parked.py")
def those_behind_a_group_that_was_woken_in_vain_sleep_on(tried: Any) -> Any:
    return lambda self, group, **kept: tried(self, group, **kept)[:0]


@bug("Q3", "state.queueing.parked:_Waiting._next_place", f"{QUEUEING}/test_parked.py")
def larger_groups_are_passed_over_for_smaller_ones_behind_them(next_place: Any) -> Any:
    def behind_all(self: Any, kind: Any, entries: Any) -> Any:
        with swapped(self, skipped={}):
            return next_place(self, kind, entries)

    return behind_all


@bug("Q3", "state.reserving.reservations:overtaking", "properties/test_rests_regressions.py")
def a_gang_sleeps_though_its_reservation_has_come_first(_: Any) -> Any:
    return lambda before, after: []


@bug("E1", "state.queueing.parked:Parked.told_falsely", f"{QUEUEING}/test_parked.py")
def what_was_told_of_the_room_is_not_examined_again(_: Any) -> Any:
    return lambda self, snapshot, most: []


# --- what is reported ---------------------------------------------------------------------------


@bug("E1", "state.reporting.conditions:_of_member", REPORTS)
def facts_stand_on_every_pod(_: Any) -> Any:
    def in_full(refusal: Any, see: str) -> PodCondition:
        message = refusal.message or NO_NODE
        return PodCondition(refusal.reason, message, cut(f"{message}: {refusal.now}"), FACTS_S)

    return in_full


@bug("E1", "state.reporting.reports:facts_aside", REPORTS)
def facts_on_the_pod_group_are_written_whenever_they_move(_: Any) -> Any:
    return lambda status: status


@bug("E2", "state.reporting.reports:UNDER_WAY", REPORTS)
def gang_scheduled_is_said_when_the_binds_are_sent(_: Any) -> Any:
    return frozenset()


@bug("E1", "state.reporting.reports:Reports._tell_pod", REPORTS)
def told_text_is_not_deduplicated(tell_pod: Any) -> Any:
    def afresh(
        self: Any, group_id: str, gang: Any, pod: Any, wanted: Any, told: Any, moment: Any
    ) -> Any:
        with swapped(reports, _stored=lambda pod, wanted: None):
            yield from tell_pod(self, group_id, gang, pod, wanted, {}, moment)

    return afresh


@bug("E3", "state.reporting.status:_scheduled", "unit/state/reporting/test_status.py")
def a_lost_member_that_nobody_replaces_is_being_bound(scheduled: Any) -> Any:
    return lambda record, gang, *given: scheduled(
        record, structs.replace(gang, satisfied=False), *given
    )


@bug("D1", "state.reporting.reports:Reports.announce", f"{STATE}/test_groups.py")
def a_yield_is_not_told(announce: Any) -> Any:
    return lambda self, record, verdict: announce(self, record, verdict) if verdict.expired else []


# --- the loop -----------------------------------------------------------------------------------


@bug("B2", "loop:Loop.turn", "unit/test_loop.py")
def a_standby_plans(turn: Any) -> Any:
    def leads(self: Any) -> Any:
        with swapped(self, _leads=lambda: True):
            return turn(self)

    return leads


@bug("B2", "loop:Loop.listen", "unit/test_loop.py")
def nothing_is_heard_while_the_last_binds_leave(listen: Any) -> Any:
    async def deaf(self: Any) -> None:
        self._take_in = lambda: None
        await listen(self)

    return deaf


@bug("decision 8", "loop:Loop.turn", "unit/test_loop.py")
def the_loop_plans_in_the_middle_of_a_burst(turn: Any) -> Any:
    def hasty(self: Any) -> bool:
        self._take_in()
        left, self._messages = self._messages, deque()
        planned = turn(self)
        self._messages.extend(left)
        return bool(planned or left)

    return hasty


@bug("A2", "state.gang_view:_within_tasks", "unit/api/dialects/test_volcano.py")
def pods_of_one_task_stand_in_for_those_of_another(_: Any) -> Any:
    return lambda gang, minimums, started, succeeded: gang


@bug("A2", "state.gang_view:_smallest_first", "unit/api/dialects/test_volcano.py")
def the_largest_members_are_added_to_the_minimums_of_tasks(_: Any) -> Any:
    return list


@bug("Q4", "state.changed_gangs:ChangedGangs.exceeds", f"{STATE}/test_changed_gangs.py")
def a_plan_waits_until_all_new_gangs_are_read(exceeds: Any) -> Any:
    return lambda self, units, *, with_new: exceeds(self, units, with_new=True)


@bug("V6", "state.changed_gangs:ChangedGangs.must_read", f"{STATE}/test_changed_gangs.py")
def a_plan_does_not_wait_for_a_new_gang_that_runs(_: Any) -> Any:
    return lambda self, gang_id: None


@bug("B3", "core.rounds:place_needed", "properties/test_half_starts.py")
def what_a_start_lacks_comes_after_the_surplus_of_its_siblings(place_needed: Any) -> Any:
    return lambda gangs, attempt: place_needed((), attempt)


@bug("B3", "state.broken_groups:is_pinned", "properties/test_half_starts.py")
def a_start_that_may_go_anywhere_takes_the_domain_of_another(_: Any) -> Any:
    return lambda gangs, tree, rest, fixes_node: False


@bug("Q2", "state.storage_cache:StorageCache.fixes_node", f"{STATE}/test_storage_cache.py")
def what_was_asked_for_on_a_node_leaves_all_nodes(_: Any) -> Any:
    return lambda self, pod: False


@bug("B3", "model.gang:Gang.unsent_pods", f"{STATE}/test_kept_rooms.py")
def who_keeps_room_is_not_the_rest_of_a_start(_: Any) -> Any:
    return property(lambda gang: (*gang.pending,))


@bug("Q2", "state.broken_groups:_may_be_rest", "unit/state/test_roster.py")
def a_lost_member_brings_any_other_before_older_groups(_: Any) -> Any:
    return lambda gang: bool(gang.pending)


@bug("B3", "core.permit:needs_its_rest", "properties/test_half_starts.py")
def the_rest_of_a_start_is_placed_gang_by_gang(_: Any) -> Any:
    return lambda gang: None


@bug("I9", "state.parents:Parents._with_pods", "properties/test_tree_alternatives.py")
def a_root_wakes_its_own_children_only(_: Any) -> Any:
    return lambda self, parent, levels=0: self._children(parent)
