"""Planted bugs in preemption: who is chosen, what is promised meanwhile, and in which order it is
written (rules V).
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import numpy as np
from msgspec import structs

from gangsched.kube.read.shapes import conditions
from gangsched.kube.write.eviction import Said
from gangsched.kube.write.preemption import PREPARE_S
from gangsched.model.disruption import DISRUPTION_TARGET, PREEMPTED_BY_SCHEDULER
from gangsched.model.protocol import CancelPreemption, Evict, EvictionResult
from gangsched.state.preemption.nomination import Stage
from gangsched.state.preemption.room import Room
from tests.mutants.mutant import bug, replace, swapped

CORE, STATE, WRITE = (
    "unit/core/preemption",
    "unit/state/preemption",
    "unit/kube/write/test_preemption.py",
)
WRITER = "kube.write.preemption:PreemptionWriter"


@bug("V9", "core.preemption.tally:Tally.give_back", f"{CORE}/test_regions.py")
def victims_that_are_not_needed_are_evicted_all_the_same(_: Any) -> Any:
    return lambda tally, pods: False


@bug("V11", "state.preemption.nomination:NominationRecord.holds", f"{STATE}/test_nomination.py")
def a_preemptor_starts_beside_half_a_gang(_: Any) -> Any:
    return property(lambda record: None)


@bug("V12", "state.preemption.nomination:NominationRecord.resumable", f"{STATE}/test_nomination.py")
def a_lost_nomination_leaves_half_a_gang(_: Any) -> Any:
    return property(lambda record: [])


@bug("V12", "state.preemption.nomination:NominationRecord.holds", f"{STATE}/test_nomination.py")
def a_lost_nomination_ends_before_its_evictions_are_answered(holds: Any) -> Any:
    return property(lambda record: None if record.lost else holds.fget(record))


@bug("V16", "model.nominated_room:NominatedRoom.used_up", f"{STATE}/test_nominations.py")
def a_member_uses_up_its_own_nomination_wherever_it_is_placed(_: Any) -> Any:
    def of_the_placed(room: Any, group: str, placed: Any) -> Any:
        there = room.by_group.get(group, {}).values()
        return {nomination.pod.uid for nomination in there} & placed.keys()

    return of_the_placed


@bug("V21", "core.preemption.blocked:is_blocked", f"{CORE}/test_budgets.py")
def a_budget_is_the_obstacle_whatever_else_could_go(_: Any) -> Any:
    return lambda regions, level: True


@bug("V9", "core.preemption.sums:slices_of", f"{CORE}/test_sums.py")
def victims_of_slices_are_counted_as_for_plain_pods(_: Any) -> Any:
    return lambda preemptor, names, ledger: ()


@bug("V7", "core.preemption.budgets:Budgets.admit", f"{CORE}/test_budgets.py")
def a_disruption_budget_counts_for_each_unit_by_itself(admit: Any) -> Any:
    return lambda self, units, *rest: [unit for unit in units if admit(self, [unit], *rest)]


@bug("V7", "core.preemption.admissible:AdmissibleSets._may_go", f"{CORE}/test_admissible.py")
def another_choice_may_break_budgets(_: Any) -> Any:
    return lambda self, unit, limits: True


@bug("V7", "core.preemption.admissible:AdmissibleSets.first", f"{CORE}/test_admissible.py")
def no_choice_but_the_cheapest_is_tried(_: Any) -> Any:
    return lambda self, ordered: None


@bug("V8", "core.preemption.selection:Region._exchanged", f"{CORE}/test_selection.py")
def the_gang_that_frees_the_most_is_stopped_whatever_is_needed(_: Any) -> Any:
    return lambda region, found, ordered: found


@bug("V8", "core.preemption.by_rounds:Probe._exchanged", f"{CORE}/test_selection.py")
def members_of_two_shapes_stop_the_gang_that_frees_the_most(_: Any) -> Any:
    return lambda probe, region, ordered: []


@bug("V8", "core.preemption.columns:RunningColumns.of", f"{CORE}/test_selection.py")
def room_that_is_free_in_ten_minutes_is_as_good_as_free(of: Any) -> Any:
    @classmethod  # type: ignore[misc]
    def timeless(cls: Any, *given: Any) -> Any:
        columns = of.__func__(cls, *given)
        columns.wait[:] = 0
        return columns

    return timeless


@bug(
    "V10", "core.preemption.plan_preemptions:PlanPreemptions._nominated", f"{CORE}/test_budgets.py"
)
def nominated_members_take_no_room_on_the_ledger(nominated: Any) -> Any:
    def roomless(self: Any, parts: Any, found: Any) -> Any:
        made = nominated(self, parts, found)
        self.ledger.move([(each.pod, each.node) for each in found.placements], -1)
        return made

    return roomless


@bug("V2", "core.preemption.preemptor:preemptor_of", f"{CORE}/test_plan_preemptions.py")
def one_member_lends_its_priority_to_all(preemptor_of: Any) -> Any:
    def lent(group: Any, *given: Any) -> Any:
        found = preemptor_of(group, *given)
        if found is None:
            return None
        return replace(
            found, right=max(pod.priority for gang in found.group.gangs for pod in gang.pending)
        )

    return lent


@bug("V6", "core.preemption.units:Units.upto", f"{CORE}/test_units.py")
def a_gang_is_taken_below_its_minimum(upto: Any) -> Any:
    return lambda self, *given: upto(structs.replace(self, surplus=self.surplus + 1), *given)


@bug("V5", "core.preemption.attempt:_young", "unit/state/queueing/test_preemptors.py")
def young_victims_are_old_when_the_last_of_them_is(young: Any) -> Any:
    def last(regions: Any, settings: Any) -> Any:
        found, columns = young(regions, settings), regions.columns
        starts = np.unique(columns.start[columns.young & ~columns.foreign & ~columns.spared])
        return (
            replace(found, until_s=int(starts[-1]) + settings.min_run_s) if len(starts) else found
        )

    return last


@bug("V13", f"{WRITER}._prepare", WRITE)
def victims_are_marked_though_a_member_could_not_be_nominated(prepare: Any) -> Any:
    async def marked_first(self: Any, order: Any) -> None:
        over = self._under_way[order.id].over
        await asyncio.gather(*(self._mark(victim, over, PREPARE_S) for victim in order.victims))
        await prepare(self, order)

    return marked_first


@bug("V13", f"{WRITER}._mark", WRITE)
def the_condition_of_an_evicted_pod_stays_that_of_the_eviction(mark: Any) -> Any:
    async def once(self: Any, victim: Any, *rest: Any) -> Any:
        return "" if isinstance(victim, Evict) else await mark(self, victim, *rest)

    return once


@bug("V12", f"{WRITER}._start", WRITE)
def evictions_of_a_cancelled_preemption_are_sent(start: Any) -> Any:
    def goes_on(self: Any, group: Any, order: Any, *rest: Any) -> None:
        start(self, group, order, *rest)
        if isinstance(order, CancelPreemption):
            self._under_way[order.id].over.clear()

    return goes_on


@bug("V12", "kube.write.preemption:_in_turn", WRITE)
def an_older_nomination_of_a_member_is_written_after_a_newer_one(in_turn: Any) -> Any:
    return lambda before, work: in_turn(set(), work)


@bug("V14", f"{WRITER}._may_evict", WRITE)
def one_denied_pod_turns_preemption_off(_: Any) -> Any:
    async def denied(self: Any, order: Any) -> bool:
        return False

    return denied


@bug("V13", f"{WRITER}._try", WRITE)
def an_eviction_is_sent_again_though_it_is_not_wanted_any_more(send: Any) -> Any:
    async def unasked(self: Any, order: Any, last: Any) -> Any:
        with swapped(self, _may_send=lambda order: True):
            return await send(self, order, last)

    return unasked


@bug("V13", "kube.write.eviction:evict_request", "unit/kube/write/test_eviction.py")
def whoever_has_the_name_of_a_victim_is_evicted(evict_request: Any) -> Any:
    def by_name(order: Any) -> Any:
        method, path, body = evict_request(order)
        sent = json.loads(body)
        sent.pop("preconditions", sent.get("deleteOptions", {}).pop("preconditions", None))
        return method, path, json.dumps(sent).encode()

    return by_name


@bug("V14", "kube.write.eviction:after", "unit/kube/write/test_eviction.py")
def a_conflict_in_storage_counts_as_gone(after: Any) -> Any:
    def gone(fault: Any) -> Any:
        return (
            Said(str(fault), EvictionResult.GONE)
            if getattr(fault, "status", 0) == 409
            else after(fault)
        )

    return gone


@bug("V14", "kube.write.eviction:after", "unit/kube/write/test_eviction.py")
def a_busy_server_counts_as_a_budget(after: Any) -> Any:
    def refused(fault: Any) -> Any:
        said = after(fault)
        return said._replace(is_refused=True) if getattr(fault, "status", 0) == 429 else said

    return refused


@bug("V7", "kube.read.decode:decode_disruption_budget", "unit/kube/read/test_decode.py")
def the_status_of_an_older_spec_of_a_budget_counts(decode: Any) -> Any:
    def whatever_generation(wire: Any) -> Any:
        wire.status.observed_generation = wire.metadata.generation
        return decode(wire)

    return whatever_generation


@bug("V7", "kube.read.decode:label_selector", "unit/kube/read/test_decode.py")
def a_null_selector_covers_the_namespace(label_selector: Any) -> Any:
    return lambda wire: label_selector(wire) or ()


@bug("V24", "kube.read.decode:_is_disruption_target", "unit/kube/read/test_decode.py")
def victims_of_other_schedulers_are_taken_for_ours(_: Any) -> Any:
    said = (DISRUPTION_TARGET, "True", PREEMPTED_BY_SCHEDULER)
    return lambda status: any(
        (each.type, each.status, each.reason) == said for each in conditions(status)
    )


@bug(
    "V26",
    "state.preemption.disruption_budgets:DisruptionBudgets.snapshot",
    f"{STATE}/test_disruption_budgets.py",
)
def budgets_that_nobody_can_read_forbid_nothing(snapshot: Any) -> Any:
    def shown(self: Any) -> Any:
        with swapped(self, _readable=True):
            return snapshot(self)

    return shown


@bug("V25", "state.queueing.preemptors:Preemptors.note", "unit/state/queueing/test_preemptors.py")
def a_budget_that_allows_more_wakes_nobody(note: Any) -> Any:
    def nowhere(self: Any, nodes: Any, *, anywhere: bool = False) -> None:
        note(self, nodes)

    return nowhere


@bug("V25", "state.queueing.preemptors:Preemptors.note", "unit/state/queueing/test_preemptors.py")
def what_was_found_of_a_preemptor_is_believed_though_others_may_be_taken_now(note: Any) -> Any:
    def unversioned(self: Any, nodes: Any, *, anywhere: bool = False) -> None:
        version = self.version
        note(self, nodes, anywhere=anywhere)
        self.version = version

    return unversioned


@bug("V27", "state.preemption.preemptions:Preemptions.gone", f"{STATE}/test_hold_back_times.py")
def a_group_that_is_gone_holds_others_back(_: Any) -> Any:
    return lambda self, group: None


@bug(
    "V25", "state.queueing.preemptors:Preemptors._pass_on", "unit/state/queueing/test_preemptors.py"
)
def the_next_of_a_kind_sleeps_when_the_first_is_gone_before_its_turn(_: Any) -> Any:
    return lambda self, kind: None


@bug(
    "V27", "state.queueing.preemptors:Preemptors._helped", "unit/state/queueing/test_preemptors.py"
)
def a_group_that_no_node_can_hold_any_more_holds_others_back(helped: Any) -> Any:
    def unwanted(self: Any, snapshot: Any, changed: Any, may: Any) -> Any:
        with swapped(self, _wanted=dict.fromkeys(self._wanted, frozenset())):
            return helped(self, snapshot, changed, may)

    return unwanted


@bug("V10", "state.preemption.promised:Promised._show", f"{STATE}/test_nominations.py")
def nominated_room_is_not_kept(show: Any) -> Any:
    return lambda self, key, promise, *, grows=True: show(self, key, None)


@bug("V10", "state.preemption.nomination:NominationRecord.promise", f"{STATE}/test_room.py")
def plans_count_places_without_their_victims(promise: Any) -> Any:
    return lambda record, nominee, *freed: promise(record, nominee)


@bug("V10", "state.preemption.nomination:NominationRecord.promise", f"{STATE}/test_nominations.py")
def a_member_keeps_room_at_its_own_priority(promise: Any) -> Any:
    def of_member(record: Any, nominee: Any, *freed: Any) -> Any:
        with swapped(record, priority=nominee.pod.priority):
            return promise(record, nominee, *freed)

    return of_member


@bug("V10", "state.preemption.promised:Promised.leaving", f"{STATE}/test_room.py")
def places_of_other_nominations_count_without_their_victims(leaving: Any) -> Any:
    def own_only(self: Any, node: str) -> Any:
        shared = len(self._resting.get(node, ())) > 1
        return (each for each in leaving(self, node) if each[0].deleting or not shared)

    return own_only


@bug("V13", "state.preemption.room:Room.spares", f"{STATE}/test_room.py")
def a_victim_is_spared_that_spread_needs_gone(spares: Any) -> Any:
    def by_room_alone(self: Any, *given: Any) -> Any:
        with swapped(Room, admits=lambda room, places: ""):
            return spares(self, *given)

    return by_room_alone


@bug("V25", "state.preemption.promised:Promised.stale", f"{STATE}/test_nominations.py")
def a_nomination_is_never_examined_again(stale: Any) -> Any:
    def nothing_rests(self: Any) -> Any:
        with swapped(self, _resting={}):
            return stale(self)

    return nothing_rests


@bug("V17", "state.members:STARTED", f"{STATE}/test_nominations.py")
def a_gang_that_is_evicted_stays_satisfied(started: Any) -> Any:
    from gangsched.state.members import State

    return started | {State.TERMINATING}


@bug("V17", "state.groups:Registry.group", f"{STATE}/test_nominations.py")
def a_gang_that_is_evicted_is_healed_meanwhile(view: Any) -> Any:
    def as_if_left_alone(self: Any, group_id: str, now_s: float) -> Any:
        with swapped(self.groups[group_id], taken=None):
            return view(self, group_id, now_s)

    return as_if_left_alone


@bug("V16", "state.groups:Registry.group", f"{STATE}/test_nominations.py")
def a_clock_runs_out_while_room_is_made(view: Any) -> Any:
    def clocked(self: Any, group_id: str, now_s: float) -> Any:
        with swapped(self.groups[group_id], nominated=False):
            return view(self, group_id, now_s)

    return clocked


@bug("V13", "state.preemption.nominations:Nominations._record", f"{STATE}/test_nominations.py")
def pods_are_evicted_before_anything_is_written(record: Any) -> Any:
    def at_once(self: Any, *given: Any) -> Any:
        made = record(self, *given)
        made.unwritten, made.stage = 0, Stage.PREPARED
        return made

    return at_once


@bug("V13", "state.preemption.last_look:needless", f"{STATE}/test_nominations.py")
def the_last_look_spares_nobody(needless: Any) -> Any:
    def heartless(*given: Any) -> list[str]:
        needless(*given)
        return []

    return heartless


@bug("V11", "state.preemption.promised:_resized", "properties/test_rests_regressions.py")
def a_nominated_node_that_grows_wakes_nobody(_: Any) -> Any:
    return lambda nodes, seen, snapshot: set()


@bug("V25", "state.preemption.search_turns:SearchTurns.now", f"{STATE}/test_search_turns.py")
def everybody_searches_at_once(_: Any) -> Any:
    return property(lambda turns: None)


@bug("Q4", "state.preemption.search_turns:SearchTurns.wait", f"{STATE}/test_search_turns.py")
def a_search_keeps_its_turn_until_it_ends(wait: Any) -> Any:
    def forever(self: Any, group_id: str) -> None:
        wait(self, group_id)
        self._had[group_id] = 0

    return forever
