"""Planted bugs in what decides about trees of gangs: choices of children, their minimums and their
group.
"""

from __future__ import annotations

from functools import cached_property
from itertools import islice
from typing import Any

from tests.mutants.mutant import bug, replace

TREES, DEEP = "unit/core/test_trees.py", "unit/core/test_tree_choices.py"
VICTIMS = "unit/core/preemption/test_units.py"


@bug("I9", "core.trees:_has_surplus", TREES)
def a_surplus_of_a_child_costs_a_sibling_its_minimum(_: Any) -> Any:
    return lambda gang: False


@bug("I9", "core.trees:TreeDecision._enough", "properties/test_half_starts.py")
def a_start_chooses_among_all_members(_: Any) -> Any:
    return lambda self, gang: gang.pending


@bug("I9", "core.decision:_with_first", "properties/test_half_starts.py")
def a_gang_without_a_minimum_chooses_no_domain(_: Any) -> Any:
    return lambda gang, group: gang


@bug("I9", "core.tree_choices:TreeParts.choices", TREES)
def only_the_first_choice_of_children_is_tried(_: Any) -> Any:
    def first(self: Any, ready: Any, lack: int, begin: int = 0) -> Any:
        yield 0, tuple(self._first(part) for part in ready[:lack])

    return first


@bug("I9", "core.tree_placing:TreePlacing._apart", TREES)
def all_children_share_the_domain_that_one_requires(_: Any) -> Any:
    return lambda self, parts: [parts]


@bug("I9", "core.tree_choices:TreeParts.none_ever", TREES)
def a_choice_that_sums_refute_at_present_never_fits(_: Any) -> Any:
    return lambda self, ready, lack: True


@bug("I9", "core.tree_placing:TreePlacing._again", TREES)
def what_was_decided_of_a_part_is_forgotten(_: Any) -> Any:
    return lambda self, name, gangs: None


@bug("I9", "core.tree_choices:needed", TREES)
def children_above_the_minimum_preempt(_: Any) -> Any:
    return lambda group: group


@bug("I9", "state.parents:Parents._top", TREES)
def anything_may_be_a_parent(_: Any) -> Any:
    return lambda self, gang_id: (self.gangs[gang_id].spec.parent or gang_id, "")


@bug("I9", "state.groups:TREE", TREES)
def a_tree_has_the_id_of_a_gang(_: Any) -> Any:
    return ""


@bug("V6", "api.gang_spec:_disruption_mode", "unit/state/preemption/test_running.py")
def the_disruption_mode_of_native_pod_groups_is_ignored(_: Any) -> Any:
    return lambda pod_group: None


@bug("V10", "state.preemption.nominees:is_whole", VICTIMS)
def a_tree_that_starts_keeps_what_was_promised_to_it(_: Any) -> Any:
    return lambda group, registry: group.tree is None


@bug("I9", "visibility.reviews.parts:_Parts._fits", "unit/visibility/reviews/test_review.py")
def every_part_of_a_reviewed_tree_fits(_: Any) -> Any:
    return lambda self, gang_id: True


@bug("A2", "api.dialects.volcano_sub_groups:_count", "unit/api/test_sub_groups.py")
def no_sub_group_is_needed(_: Any) -> Any:
    return lambda entry, key, default: default


@bug("A5", "api.sub_groups:misplaced", "unit/api/test_sub_groups.py")
def a_pod_of_two_entries_refuses_nobody(_: Any) -> Any:
    return lambda pods, root: ""


@bug("I5", "state.divided_pods:SubGroupGangs.changed", "unit/api/test_sub_groups.py")
def pods_stay_in_the_sub_group_that_they_came_into(_: Any) -> Any:
    return lambda self, gang_id, old, new: None


@bug("I9", "core.search.kinds:TopologicalSorter.add", "unit/core/search/test_kinds.py")
def equal_levels_are_in_any_order(add: Any) -> Any:
    return lambda order, label, *before: add(order, label)


@bug("I9", "core.tree_placing:kinds_in_packing", TREES)
def children_with_domains_are_never_packed_together(_: Any) -> Any:
    return lambda part, gangs, table: None


@bug("I9", "core.search.demand:_alike", TREES)
def each_order_of_identical_children_is_tried(_: Any) -> Any:
    return lambda members, found: members[0][0].id


@bug("I9", "core.search.domains:domains_around", TREES)
def children_start_outside_the_domain_of_their_tree(_: Any) -> Any:
    return lambda group, table: []


@bug("I9", "core.tree_choices:TreeParts._within", DEEP)
def inner_children_are_not_exchanged(real: Any) -> Any:
    return lambda self, alike: iter([tuple(self._first(part) for part in alike)])


@bug("I9", "core.search.part_kinds:_stated", "unit/bench/test_completeness.py")
def only_gangs_have_domains_in_a_packing(_: Any) -> Any:
    return lambda part, gangs: gangs[part].constraints.topology if isinstance(part, str) else ()


@bug("I9", "core.tree_placing:TreePlacing._beside", DEEP)
def later_gangs_start_outside_the_domains_around_them(_: Any) -> Any:
    return lambda self, around, gangs, found: ()


@bug("I9", "core.tree_choices:TreeParts.lack", DEEP)
def a_part_that_lost_a_child_is_not_healed_by_itself(real: Any) -> Any:
    return lambda self, composite: 0 if self.has_started(composite) else real(self, composite)


@bug("I9", "state.parents:Parents._whole", DEEP)
def a_tree_may_be_as_deep_and_large_as_it_is(_: Any) -> Any:
    return lambda self, top: self._composite(top, 1)


@bug("V6", "core.preemption.units:_spare", VICTIMS)
def a_tree_goes_whole_for_the_room_of_one_child(_: Any) -> Any:
    return lambda columns, staying, counts, least: [""] * len(counts)


@bug("V6", "core.preemption.units:_spare", DEEP)
def of_a_replica_only_one_gang_is_evicted(real: Any) -> Any:
    def one(columns: Any, staying: Any, counts: Any, least: Any) -> Any:
        found = real(columns, staying, counts, least)
        return [part if part not in found[:g] else "" for g, part in enumerate(found)]

    return one


@bug("V13", "state.preemption.last_look:_breaks", VICTIMS)
def a_child_that_is_needed_meanwhile_is_evicted(_: Any) -> Any:
    return lambda group_id, registry, victims: []


@bug("H3", "core.reservations.heads:needed_first", "unit/core/reservations/test_heads.py")
def children_above_the_minimum_have_a_reservation(_: Any) -> Any:
    return lambda group, choice=None: group


STANDING = "unit/core/reservations/test_standing.py"


@bug("H3", "core.reservations.heads:_choices", STANDING)
def only_the_first_choice_of_children_has_a_reservation(_: Any) -> Any:
    return lambda head, empty: iter([head])


@bug("H3", "core.reservations.heads:needed_choices", "properties/test_reserved_choices.py")
def of_several_choices_only_the_second_is_examined_for_a_reservation(real: Any) -> Any:
    return lambda group, work, hopeless: islice(real(group, work, hopeless), 2)


@bug("H3", "core.reservations.heads:_is_too_large", "unit/core/reservations/test_heads.py")
def what_never_fits_takes_part_in_every_choice(_: Any) -> Any:
    return lambda gang, group, empty: False


@bug("H12", "core.reservations.heads:is_choice", STANDING)
def the_next_plan_forgets_for_which_children_room_is_reserved(_: Any) -> Any:
    return lambda group, choice: False


@bug("H12", "core.tree_choices:TreeParts.is_needed", "unit/core/reservations/test_heads.py")
def room_stays_reserved_for_children_that_are_not_needed(_: Any) -> Any:
    return lambda self, composite, gangs: True


@bug("H4", "core.reservations.heads:_head_of", "unit/core/reservations/test_heads.py")
def a_child_that_never_starts_makes_its_tree_older(real: Any) -> Any:
    def older(one: Any, whole: Any, choice: Any) -> Any:
        since_s = min((pod.creation_s for gang in whole.gangs for pod in gang.pending), default=0)
        made = real(one, whole, choice)
        return replace(made, since_s=since_s) if made is not None and choice else made

    return older


@bug("I9", "state.parents:Parents.named", "unit/state/test_parents.py")
def children_do_not_wait_for_the_minimum_of_a_new_parent(_: Any) -> Any:
    return lambda self, parent, child, now_s: None


@bug(
    "I9",
    "core.search.packing_problem:PackingProblem.opening_needs",
    "properties/test_tree_alternatives.py",
)
def two_alternatives_for_one_minimum_are_opened(_: Any) -> Any:
    return cached_property(lambda problem: tuple((-1,) * len(kinds) for kinds in problem.opening))


@bug("I9", "core.tree_choices:TreeParts._needing_nothing", "properties/test_tree_alternatives.py")
def children_with_a_minimum_of_zero_are_chosen_for_the_minimum(_: Any) -> Any:
    return property(lambda parts: frozenset())


@bug("Q3", "core.trees:TreeDecision._any_room", "properties/test_tree_alternatives.py")
def no_room_wakes_a_tree_whose_children_require_domains(_: Any) -> Any:
    return lambda self, parts: ()


@bug("L3", "core.decision:homes_beside", "properties/test_homes_of_groups.py")
def a_gang_that_lost_all_of_its_members_has_no_home(_: Any) -> Any:
    return lambda others, gangs, ledger: ()


@bug("L3", "core.trees:TreeDecision._running", "properties/test_homes_of_groups.py")
def a_child_that_lost_all_of_its_members_has_no_home(_: Any) -> Any:
    return lambda self, composite: []


@bug("L3", "core.rounds:scopes_from_home", "properties/test_homes_of_slices.py")
def a_slice_that_lost_all_of_its_members_has_no_home(_: Any) -> Any:
    return lambda gang, pods, outermost, ledger: [outermost]


@bug("L6", "core.decision:slice_homes", "properties/test_homes_of_slices.py")
def a_member_of_a_slice_is_unschedulable_though_room_elsewhere_is_no_use(_: Any) -> Any:
    return lambda gang, required, ledger: {}
