"""Planted bugs in what one plan decides: order, rounds, room, refusals and what is said of them."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from msgspec import structs

from gangsched.core.pre_filter import refusals
from gangsched.core.queue_sort import group_key
from gangsched.core.search import judging
from gangsched.core.work import OutOfWork
from gangsched.model.gang import MatchPolicy, Mode
from gangsched.model.objects import Shape
from gangsched.model.plan import Need
from tests.mutants.mutant import bug, replace


@bug("R2", "core.reserve:Ledger._take_back", "unit/core/filter/test_plugin.py")
def rollback_forgets_one_resource(take_back: Any) -> Any:
    def forgetful(self: Any, pods: Any, nodes: Any, counts: Any, where: Any, sign: int) -> None:
        take_back(self, pods, nodes, counts, where, sign)
        self._add(Shape(requests=pods[0].shape.requests[:1]), nodes, -counts)

    return forgetful


@bug("V10", "core.reserve:Ledger._shift", "unit/core/test_reserve.py")
def claims_of_a_nominated_pod_stay_in_use(shift: Any) -> Any:
    return lambda self, pods, where, amounts, sign, claiming=(): shift(
        self, pods, where, amounts, sign
    )


@bug("B1", "model.gang:Gang.counted", "unit/core/test_rounds.py")
def permit_counts_terminating_pods(counted: Any) -> Any:
    def generous(gang: Any, placed: int) -> int:
        more = 0 if gang.match_policy is MatchPolicy.ONLY_WAITING else gang.terminating
        return int(counted(gang, placed) + more)

    return generous


@bug("D1", "core.post_filter:_may_yield", "unit/core/test_post_filter.py")
def the_highest_rank_yields(_: Any) -> Any:
    return lambda holder, beneficiary: group_key(holder) < group_key(beneficiary)


@bug("R2", "core.rounds:missing", "unit/core/filter/volumes/test_dynamic_resources.py")
def fast_fail_is_off_by_one(missing: Any) -> Any:
    return lambda gang, placed: missing(gang, placed + 1)


@bug("R3", "model.gang:Group.strict", "unit/core/test_rounds.py")
def one_nonstrict_gang_makes_the_group_nonstrict(_: Any) -> Any:
    return property(lambda group: all(gang.mode is Mode.STRICT for gang in group.gangs))


@bug("B1", "core.decision:_round", "unit/core/test_rounds.py")
def members_above_the_minimum_are_left_behind(decide: Any) -> Any:
    def least(group: Any, gangs: Any, *rest: Any) -> Any:
        verdict = decide(group, gangs, *rest)
        return replace(verdict, binds=verdict.binds[: sum(gang.min_member for gang in gangs)])

    return least


@bug("Q1", "core.queue_sort:group_key", "unit/core/test_queue_sort.py")
def order_by_name_before_priority(key: Any) -> Any:
    return lambda group: (group.id, *key(group))


@bug("Q2", "core.queue_sort:group_key", "unit/core/test_queue_sort.py")
def broken_groups_queue_like_others(key: Any) -> Any:
    return lambda group: key(structs.replace(group, broken=False))


@bug("B3", "model.gang:Group.order", "unit/core/test_queue_sort.py")
def the_rest_of_a_start_keeps_to_its_priority(_: Any) -> Any:
    return property(lambda group: (-group.priority, group.turn, group.broken_since_s))


@bug("P3", "core.pre_filter:unhindered", "unit/core/test_pre_filter.py")
def a_satisfied_gang_waits_for_its_siblings(unhindered: Any) -> Any:
    return lambda group: [] if refusals(group) else unhindered(group)


@bug("P4", "core.pre_filter:min_resources_short", "unit/core/test_post_filter.py")
def min_resources_are_ignored(_: Any) -> Any:
    return lambda gang, ledger: []


@bug("P4, decision 11", "core.pre_filter:arithmetic", "unit/core/test_post_filter.py")
def a_nonstrict_gang_needs_free_room_for_all_at_once(arithmetic: Any) -> Any:
    return lambda group, gangs, ledger, totals: arithmetic(group, gangs, ledger, ledger)


@bug("Q3", "core.pre_filter:arithmetic", "unit/state/queueing/test_preemptors.py")
def a_nonstrict_gang_larger_than_the_cluster_sleeps_when_a_full_node_comes(arithmetic: Any) -> Any:
    def needs_room(group: Any, *rest: Any) -> Any:
        found = arithmetic(group, *rest)
        if found is None or group.strict:
            return found
        refusal, needs = found
        return refusal, tuple(Need(each.shape, 1) for each in needs)

    return needs_room


@bug(
    "P4",
    "core.filter.volumes.storage_use:StorageUse._obtainable",
    "unit/core/filter/volumes/test_volume_binding.py",
)
def a_shared_claim_is_provisioned_again_for_each_members_node(obtainable: Any) -> Any:
    def forgetful(self: Any, claim: Any, picked: Any) -> Any:
        taken = self._taken.volume_of
        known = taken.pop(claim.key, None)
        try:
            return obtainable(self, claim, picked)
        finally:
            if known is not None:
                taken[claim.key] = known

    return forgetful


@bug("E1", "core.diagnosis:_closed", "unit/core/test_diagnosis.py")
def what_closes_nodes_that_would_do_is_not_told(_: Any) -> Any:
    return lambda shape, ledger: ()


@bug("E1", "core.findings:no_room_for_all", "unit/core/test_diagnosis.py")
def a_gang_that_would_fit_once_others_end_is_told_that_it_never_does(refuse: Any) -> Any:
    return lambda *given, **named: refuse(*given, **{**named, "empty_room": 0})


@bug("P1", "core.findings:waiting_for_members", "unit/sentences/test_placing.py")
def a_gated_member_is_missing_as_well(waiting_for_members: Any) -> Any:
    def twice(gang: Any) -> Any:
        refusal = waiting_for_members(gang)
        missing = refusal.fact.missing + gang.gated
        return replace(refusal, fact=replace(refusal.fact, missing=missing))

    return twice


@bug("F1", "core.reserve:Ledger.respect_nominations", "unit/state/preemption/test_nominations.py")
def a_nomination_of_equal_priority_is_passed_over(respect: Any) -> Any:
    return lambda self, priority, *, but="": respect(self, priority + 1, but=but)


@bug("I3", "api.keys:is_too_long", "unit/api/test_gang_spec.py")
def a_long_value_is_read_like_any_other(_: Any) -> Any:
    return lambda text: False


@bug("P3", "core.search.slices:Unit.within", "unit/core/search/test_slices.py")
def a_slice_is_split_on_healing(_: Any) -> Any:
    return lambda unit, scope, table: scope


@bug("R2", "core.search.slices:needed", "unit/core/search/test_slices.py")
def a_minimum_is_rounded_down_to_whole_slices(needed: Any) -> Any:
    def down(found: Any, lack: int) -> Any:
        made = needed(found, lack)
        made.number = (
            min(made.number, lack // max(1, len(made.of[0].pods))) if made.of else made.number
        )
        return made

    return down


@bug("R2", "core.search.terms:required_by_terms", "unit/core/search/test_terms.py")
def the_first_member_decides_where_all_must_be(_: Any) -> Any:
    return lambda group, ledger: ()


@bug("R2", "core.search.terms:_apart", "unit/core/search/test_terms.py")
def jobs_that_exclude_each_other_share_a_rack(_: Any) -> Any:
    return lambda firsts, sizes, families, ledger: set()


@bug(
    "R1",
    "core.filter.replica_counts:ReplicaCounts.follow",
    "unit/core/filter/test_replica_counts.py",
)
def replicas_that_this_plan_placed_do_not_count(_: Any) -> Any:
    return lambda self, moves: 0


@bug("R1", "state.replicas:Replicas.shown", "unit/state/test_replicas.py")
def a_snapshot_shows_replicas_that_came_after_it(shown: Any) -> Any:
    def live(self: Any, residents: Any) -> Any:
        return replace(shown(self, residents), counts=self._counts)

    return live


@bug("R1", "model.peers:Selectors.merged", "unit/core/filter/test_replica_counts.py")
def services_are_ignored(_: Any) -> Any:
    return lambda self, labels: frozenset()


@bug("R1", "state.replicas:Replicas._touch", "unit/state/test_replicas.py")
def a_service_that_changes_counts_as_it_was(touch: Any) -> Any:
    return lambda self, namespace: None if namespace in self._pods else touch(self, namespace)


@bug("R1", "model.peers:Behind.includes", "unit/core/filter/test_replica_counts.py")
def pods_behind_further_services_do_not_count(_: Any) -> Any:
    return lambda self, other: self == other


@bug("L4", "core.search.domains:Domains.order", "unit/core/search/test_domains.py")
def the_last_required_domain_is_skipped(order: Any) -> Any:
    return lambda *args, **kwargs: (found := order(*args, **kwargs))[:-1] or found


@bug("R2", "core.search.packing:Packing.run", "unit/core/search/test_packing.py")
def a_remainder_counts_as_refuted_where_work_ends(run: Any) -> Any:
    def forgetful(packing: Any, *args: Any) -> Any:
        try:
            return run(packing, *args)
        finally:
            if packing.found is None and len(packing._stack) > 1:
                frame = packing._stack.pop()
                packing._dead.add((frame.step, frame.left, frame.above))

    return forgetful


@bug("R2", "core.search.packing_problem:PackingProblem.name", "unit/core/search/test_domains.py")
def unequal_domains_are_taken_for_equal(_: Any) -> Any:
    return cached_property(
        lambda problem: repr((problem.kinds, problem.start, problem.needs)).encode()
    )


@bug("L17", "core.search.judging:Contents.of", "unit/core/search/test_judging.py")
def domains_are_judged_by_the_room_that_they_had(_: Any) -> Any:
    def first(cls: Any, ledger: Any, free: Any) -> Any:
        zeros = np.zeros(len(ledger.table), dtype=np.int64)
        return ledger.table.judged.setdefault("contents", cls(free, ledger.resources, zeros))

    return classmethod(first)


@bug("L17", "core.search.judging:note_refuted", "unit/core/search/test_judging.py")
def what_is_refuted_beside_others_of_a_plan_stays_refuted(_: Any) -> Any:
    def always(demand: Any, level: Any, domain: int) -> None:
        if (found := judging._kept(demand, level, tuple(range(len(demand.items))))) is not None:
            found[1].refuted[domain] = True

    return always


@bug("R2", "core.search.region:_Builder.steps", "unit/core/search/test_slices.py")
def unequal_blocks_are_taken_for_equal(steps: Any) -> Any:
    def alike(builder: Any, *args: Any) -> Any:
        return [
            replace(step, like=-1) if step.layer >= 0 else step for step in steps(builder, *args)
        ]

    return alike


@bug("P3", "core.rounds:_completed", "unit/core/search/test_find.py")
def members_that_an_exact_search_left_over_are_lost(completed: Any) -> Any:
    def least(found: Any, gangs: Any, attempt: Any) -> Any:
        needed = {placement.pod.uid for placements in found.values() for placement in placements}
        few = [
            replace(gang, pending=tuple(pod for pod in gang.pending if pod.uid in needed))
            for gang in gangs
        ]
        return completed(found, few, attempt)

    return least


@bug("Q3", "core.decision:in_domains", "unit/state/queueing/test_queue.py")
def gangs_of_one_domain_are_woken_by_room_anywhere(_: Any) -> Any:
    return lambda needs, group, ledger: tuple(needs)


@bug("R2", "core.placement_attempt:PlacementAttempt.within", "unit/core/search/test_preferred.py")
def the_scope_of_a_candidate_is_forgotten(_: Any) -> Any:
    return lambda attempt, scope: attempt


@bug("H8", "core.group_rules:rules_of", "properties/test_group_rules.py")
def rules_that_apply_are_found_once_a_plan(real: Any) -> Any:
    return lambda attempt: attempt.ledger.recall("rules", lambda: real(attempt), lasting=True)


@bug("B6", "core.group_rules:Avoided.key", "properties/test_group_rules.py")
def a_rule_closes_nodes_that_its_key_does_not_say(_: Any) -> Any:
    return lambda rule, shape, attempt: None


@bug("R2", "core.search.preferred:told_apart", "unit/core/search/test_preferred.py")
def racks_of_one_name_in_two_zones_are_one_rack(_: Any) -> Any:
    return lambda key, known, table: (key,)


@bug("R2", "core.topology:crosses", "properties/test_names_of_domains.py")
def a_clique_of_two_racks_is_torn(_: Any) -> Any:
    def in_several(one: str, other: str, table: Any) -> bool:
        fine = table.label_column(one.removeprefix("="))
        coarse = table.label_column(other)
        pairs = {*zip(fine.codes.tolist(), coarse.codes.tolist(), strict=True)}
        return len(pairs) > len({value for value, _ in pairs})

    return in_several


@bug("R2", "core.search.find:find", "unit/core/search/test_find.py")
def a_search_that_ran_out_of_work_found_that_nothing_fits(find: Any) -> Any:
    def believing(*args: Any, **options: Any) -> Any:
        try:
            return find(*args, **options)
        except OutOfWork:
            return None

    return believing


@bug("B2", "core.topology:_telling_apart", "properties/test_names_of_domains.py")
def racks_of_one_name_are_one_required_rack(_: Any) -> Any:
    return lambda keys, table: []


@bug("B2", "core.topology:exactly", "properties/test_names_of_domains.py")
def affinity_to_a_rack_is_affinity_to_its_zone_as_well(_: Any) -> Any:
    return lambda key, table: key
