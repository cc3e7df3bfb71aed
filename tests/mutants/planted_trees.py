"""Planted bugs in what decides about trees of gangs: choices of children, their minimums and their group."""

from __future__ import annotations

from typing import Any

from tests.mutants.mutant import bug

TREES = "unit/core/test_trees.py"
VICTIMS = "unit/core/preemption/test_units.py"


@bug("I9", "core.trees:_has_surplus", TREES)
def a_surplus_of_a_child_costs_a_sibling_its_minimum(_: Any) -> Any:
    return lambda gang: False


@bug("I9", "core.trees:TreeDecision._choices", TREES)
def only_the_first_choice_of_children_is_tried(_: Any) -> Any:
    def first(self: Any, ready: Any, lack: int) -> Any:
        yield ready[:lack]

    return first


@bug("I9", "core.trees:TreeDecision._apart", TREES)
def all_children_share_the_domain_that_one_requires(_: Any) -> Any:
    return lambda self, gangs: [gangs]


@bug("I9", "core.trees:TreeDecision._none_ever", TREES)
def a_choice_that_sums_refute_at_present_never_fits(_: Any) -> Any:
    return lambda self, ready, lack: True


@bug("I9", "core.trees:TreeDecision._again", TREES)
def what_was_decided_of_a_part_is_forgotten(_: Any) -> Any:
    return lambda self, name, gangs: None


@bug("I9", "core.trees:needed", TREES)
def children_above_the_minimum_preempt(_: Any) -> Any:
    return lambda group: group


@bug("I9", "state.groups:Registry._parent_problem", TREES)
def anything_may_be_a_parent(_: Any) -> Any:
    return lambda self, parent, gang_id: ""


@bug("I9", "state.groups:TREE", TREES)
def a_tree_has_the_id_of_a_gang(_: Any) -> Any:
    return ""


@bug("I9", "core.trees:kinds_in_packing", TREES)
def children_with_domains_are_never_packed_together(_: Any) -> Any:
    return lambda gang, table: None


@bug("I9", "core.search.demand:_alike", TREES)
def each_order_of_identical_children_is_tried(_: Any) -> Any:
    return lambda gang, lack, found: gang.id


@bug("I9", "core.search.domains:tree_domain", TREES)
def children_start_outside_the_domain_of_their_tree(_: Any) -> Any:
    return lambda group, table: None


@bug("V6", "core.preemption.units:_spare", VICTIMS)
def a_tree_goes_whole_for_the_room_of_one_child(_: Any) -> Any:
    return lambda columns, staying, whole: whole & False


@bug("V13", "state.preemption.last_look:_may_lose", VICTIMS)
def a_child_that_is_needed_meanwhile_is_evicted(_: Any) -> Any:
    return lambda group_id, gang_id, registry, victims: True
