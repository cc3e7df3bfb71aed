"""Planted bugs of what one tenant may do to others: bounds of reading, and names of other
namespaces.
"""

from __future__ import annotations

from typing import Any

from gangsched.core.queue_sort import in_member_order
from tests.mutants.mutant import bug, replace

READING, WHOSE = "properties/test_reading.py", "properties/test_whose_words.py"
TO_COME, EXTENDED = "unit/state/test_members_to_come.py", "unit/kube/read/test_extended.py"
DEVICES = "unit/state/test_device_binding.py"


@bug("I8", "model.bounds:check_entries", READING)
def lists_and_maps_of_podgroups_have_no_bound(_: Any) -> Any:
    return lambda stated, field, where="": None


@bug("I8", "kube.read.resources:instead_of_pod", READING)
def a_pending_pod_above_a_bound_is_unknown(instead: Any) -> Any:
    return lambda wire, old, *rest: instead(wire, old, *rest) if wire.spec.node_name else old


@bug("I8", "state.podgroup_names:PodGroupNames.missing_in", READING)
def pods_that_came_before_a_podgang_above_a_bound_are_not_told(_: Any) -> Any:
    return lambda self, namespace, api_group: []


@bug("I8", "kube.read.extended:_asks_by_name", EXTENDED)
def extended_resources_are_sought_in_every_container(asks: Any) -> Any:
    def slow(containers: Any) -> Any:
        found = asks(containers)
        for name in found:
            for each in containers:
                sorted(
                    ((each.resources and each.resources.requests) or {}),
                    key=lambda other: other == name,
                )
        return found

    return slow


@bug("B8", "core.stand_ins:with_all", TO_COME)
def members_to_come_are_pods_in_every_view(with_all: Any) -> Any:
    def made(gang: Any, policy: Any) -> Any:
        found = with_all(gang, policy)
        return (
            replace(found, pending=in_member_order(found.pending, policy))
            if gang.to_come
            else found
        )

    return made


@bug("B8", "core.plan_queue:TO_COME_A_UNIT", TO_COME)
def members_to_come_cost_a_plan_nothing(_: Any) -> Any:
    return 10**9


@bug("I4", "core.devices.holders:Holders.rival", DEVICES)
def the_claim_of_a_rival_is_named_whoever_it_is(rival: Any) -> Any:
    def told(self: Any, claim: str, results: Any, pools: Any) -> str:
        others = [key for each in results for key in self._holders.get(each.id, {}) if key != claim]
        return str(rival(self, claim, results, pools)).replace(
            "another claim", min(others, default="")
        )

    return told


@bug("I4", "model.gang:Refusal.told_in", WHOSE)
def gangs_of_another_namespace_are_told_everything(_: Any) -> Any:
    return lambda self, namespace: self
