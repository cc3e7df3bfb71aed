"""Planted bugs in what decides about devices: selectors, their bounds, and what is remembered of
them.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from gangsched.core.devices.search import Status
from gangsched.core.filter.volumes.claim_devices import WantedDevices
from kubernetes_cel.faults import SelectorError
from tests.mutants.mutant import bug, swapped

PROGRAMS = "../packages/kubernetes-cel/tests/test_programs.py"
PATTERNS = "../packages/kubernetes-cel/tests/test_patterns.py"
ANSWERS = "../packages/kubernetes-cel/tests/test_selectors.py"
ROOM = "unit/core/devices/test_device_room.py"
SEARCH = "unit/core/devices/test_search.py"
CEL = "kubernetes_cel"
CLAIM_DEVICES = "core.filter.volumes.claim_devices"
STORAGE_USE = "core.filter.volumes.storage_use"
FILTER = "unit/core/filter/volumes"


@bug("B7", "core.pre_filter:_claims_full", "properties/test_half_starts.py")
def consumers_of_a_claim_are_counted_one_by_one(_: Any) -> Any:
    return lambda group, gangs, ledger: None


@bug("B7", "core.rounds:places_left", "properties/test_half_starts.py")
def members_of_one_shape_need_no_place_in_their_claim(_: Any) -> Any:
    return lambda pod, occupancy: 10**6


@bug("V6", "core.post_filter:awaits_devices", "unit/state/test_device_binding.py")
def devices_of_who_gives_way_are_free_before_that_is_written(_: Any) -> Any:
    return lambda permitted, yielding, ledger: False


@bug("V6", f"{CLAIM_DEVICES}:ClaimDevices._give_back", f"{FILTER}/test_claim_devices.py")
def who_is_put_back_has_no_devices(_: Any) -> Any:
    return lambda self, pod: None


@bug("B3", f"{STORAGE_USE}:StorageUse.pinned", "unit/state/test_device_binding.py")
def devices_on_one_node_leave_a_pod_all_nodes(_: Any) -> Any:
    return lambda self, pod: False


@bug("A4", f"{CEL}.programs:_chained", PROGRAMS)
def an_error_wins_over_a_term_that_decides(_: Any) -> Any:
    def strict(terms: Any, *, decides: bool) -> Any:
        return lambda frame: (
            decides if any(term(frame) is decides for term in terms) else not decides
        )

    return strict


@bug("A4", f"{CEL}.operators:equal", PROGRAMS)
def values_of_different_types_are_compared_as_python_does(_: Any) -> Any:
    return lambda left, right, charge: left == right


@bug("A4", f"{CEL}.operators:DomainMap.__missing__", PROGRAMS)
def a_missing_domain_is_an_error(_: Any) -> Any:
    def missing(self: Any, key: Any) -> Any:
        raise SelectorError(f"no such key: {key}")

    return missing


@bug("A4", f"{CEL}.versions:SemanticVersion.__lt__", PROGRAMS)
def a_pre_release_is_as_new_as_its_release(_: Any) -> Any:
    return lambda self, other: self.release < other.release


@bug("A5", f"{CEL}.frames:Frame.charge", PROGRAMS)
def steps_end_an_evaluation_as_an_error_that_can_be_absorbed(charge: Any) -> Any:
    def absorbed(self: Any, steps: int) -> None:
        self.left -= steps
        if self.left < 0:
            raise SelectorError("takes more than 50,000 steps")

    return absorbed


@bug("A5", f"{CEL}.patterns:MOST_STATES", PATTERNS)
def patterns_have_as_many_states_as_they_like(_: Any) -> Any:
    return 10**5


@bug("A5", f"{CEL}.syntax:_Parser._above", PROGRAMS)
def a_tree_is_as_high_as_it_is_written(_: Any) -> Any:
    return lambda self, *heights: None


@bug("A5", f"{CEL}.selectors:_hashable", ANSWERS)
def one_and_true_are_one_remembered_answer(_: Any) -> Any:
    return lambda value: tuple(sorted(value.items())) if isinstance(value, dict) else value


@bug("A5", f"{CEL}.programs:Program._operand", PROGRAMS)
def a_part_of_the_device_is_read_whole(_: Any) -> Any:
    return lambda self, node, scope: self._compile(node, scope)


@bug("A2", "core.devices.held:Use.give_back", SEARCH)
def counters_are_not_given_back(give_back: Any) -> Any:
    def forgetful(self: Any, at: int, claim: int, amounts: Any) -> None:
        left = dict(self.left)
        give_back(self, at, claim, amounts)
        self.left = left

    return forgetful


@bug("A2", "core.devices.held:Use.consumes", SEARCH)
def each_share_of_a_device_consumes_its_counters(_: Any) -> Any:
    return lambda self, at: bool(self.devices[at].device.counters)


@bug("A2", "core.devices.held:Use.has_counters", SEARCH)
def counters_may_be_overdrawn(_: Any) -> Any:
    return lambda self, at: True


@bug("A2", "model.devices:DeviceConstraint.concerns", SEARCH)
def constraints_do_not_know_alternatives_by_their_request(_: Any) -> Any:
    return lambda self, request: not self.requests or request.full_name in self.requests


@bug("A2", "core.devices.pools:_reaches", SEARCH)
def every_slice_is_for_every_node(_: Any) -> Any:
    return lambda part, node: True


@bug("A2", "core.devices.pools:_conditional", SEARCH)
def pools_are_only_in_the_order_of_their_names(_: Any) -> Any:
    return lambda pool: False


@bug("A2", "core.devices.capacities:_in_range", SEARCH)
def requested_amounts_are_not_rounded(_: Any) -> Any:
    return lambda asked, least, policy: asked


@bug("A2", "core.devices.search:prevents", SEARCH)
def taints_are_tolerated_by_every_request(_: Any) -> Any:
    return lambda taint, tolerations: False


@bug("A2", "kube.read.devices:_unknown", "unit/kube/read/test_devices.py")
def fields_of_the_future_are_passed_over(_: Any) -> Any:
    return lambda wire, *known: ""


@bug("A10", "core.devices.states:States._state", ROOM)
def a_state_does_not_know_the_counters_that_are_left(state: Any) -> Any:
    def blind(self: Any, number: int) -> Any:
        with swapped(self.use, left=defaultdict(int)):
            return state(self, number)

    return blind


@bug("A10", "core.devices.states:attribute_of", ROOM)
def a_state_does_not_know_the_attributes_of_constraints(_: Any) -> Any:
    return lambda each, attribute: None


@bug("A9", "core.devices.search:DeviceSearch._with", ROOM)
def earlier_pods_keep_the_devices_that_they_found_first(take: Any) -> Any:
    def first_fit(self: Any, *where: Any) -> Any:
        before = self.deepest
        status = take(self, *where)
        return Status.TOO_MANY if status is Status.NOT_FOUND and self.deepest > before else status

    return first_fit


@bug("A10", "core.devices.device_room:DeviceRooms._kind", ROOM)
def rooms_of_all_kinds_of_pods_are_remembered_together(kind: Any) -> Any:
    return lambda self, questions, claims: kind(self, questions, ())


@bug("A12", "core.devices.search:DeviceSearch._charge", ROOM)
def a_search_takes_as_many_steps_as_it_likes(_: Any) -> Any:
    return lambda self, steps: None


GROUPS = "unit/state/test_group_claims.py"


@bug("A13", "model.storage:group_consumer", GROUPS)
def claims_of_podgroups_are_reserved_for_pods(_: Any) -> Any:
    return lambda groups, pod, use: None


@bug("A13", "state.device_binding:reserves", GROUPS)
def each_member_adds_its_podgroup_once_more(_: Any) -> Any:
    return lambda selection: selection.reserve and selection.allocation is None


@bug("A8", "state.device_binding:_consumers", GROUPS)
def a_podgroup_without_running_pods_keeps_its_devices(_: Any) -> Any:
    return lambda claim, group: {*claim.reserved}


SERVED = "unit/state/test_served.py"
WRITES = "unit/kube/write/test_extended_claims.py"


@bug("A6", "core.filter.volumes.extended_claims:is_as_made", SERVED)
def a_claim_that_was_left_is_used_whatever_it_requests(_: Any) -> Any:
    return lambda claim, made: True


@bug("A6", "core.filter.volumes.extended_claims:ExtendedClaims._parted", SERVED)
def devices_serve_what_a_plugin_offers(_: Any) -> Any:
    return lambda self, served: iter([(self.table.everywhere(), served)])


@bug("A6", "core.devices.pools:SliceIndex.offered", SERVED)
def of_devices_only_one_is_offered(_: Any) -> Any:
    return lambda self, node: 1


@bug("A6", "state.storage_cache:StorageCache.was_deleted", SERVED)
def a_deleted_claim_is_waited_for(_: Any) -> Any:
    return lambda self, key: False


@bug("A6", "state.device_binding:idle", SERVED)
def a_claim_that_was_left_stays(_: Any) -> Any:
    return lambda members, storage: iter(())


@bug("A6", "kube.write.extended_claims:_of", WRITES)
def a_claim_of_somebody_else_is_used(_: Any) -> Any:
    return lambda selection, claim, uid: selection


@bug("A6", "kube.write.extended_claims:next_version", WRITES)
def what_is_deleted_may_be_used_at_once(_: Any) -> Any:
    return lambda version: version


GANGS = "unit/core/devices/test_device_use.py"
CLAIM_DEVICES = "core.filter.volumes.claim_devices:ClaimDevices"


@bug("A9", "core.devices.views:_components", GANGS)
def nodes_that_see_other_pools_as_well_take_devices_for_themselves(_: Any) -> Any:
    return lambda keys, scopes, pools, with_counters: list(range(len(keys)))


@bug("A9", "core.devices.device_use:DeviceUse._mixed_on", GANGS)
def pods_with_devices_of_several_nodes_leave_those_of_their_own_to_others(_: Any) -> Any:
    return lambda self, item: ()


@bug("A12", "core.search.find:_have_devices", GANGS)
def a_gang_is_placed_where_devices_are_not_had_together(_: Any) -> Any:
    return lambda ledger: True


@bug("A13", f"{CLAIM_DEVICES}.wanted", GANGS)
def each_pod_asks_for_the_devices_of_a_shared_claim(_: Any) -> Any:
    return lambda self, pod: WantedDevices(self._needs(pod).unallocated, self._needs(pod).kind)


@bug("A13", "core.devices.device_use:DeviceUse.joins", GANGS)
def who_shares_a_claim_goes_anywhere(_: Any) -> Any:
    return lambda self, claims, kind, wanted: wanted > 0


@bug("A13", "core.devices.device_index:reachable_from", GANGS)
def a_claim_can_be_used_everywhere(_: Any) -> Any:
    return lambda devices, node: None


@bug("A29", "core.filter.volumes.storage_use:_has_volumes", GANGS)
def running_pods_with_devices_are_looked_through_by_each_plan(_: Any) -> Any:
    return lambda pod: True


@bug("A6", "core.devices.pools:SliceIndex.offered_anywhere", SERVED)
def devices_of_several_nodes_serve_claims_only(_: Any) -> Any:
    return property(lambda self: 0)


@bug("A6", "state.served:ServedResources.recount_all", SERVED)
def what_nodes_offer_does_not_follow_pools_of_several_nodes(_: Any) -> Any:
    return lambda self: False


@bug("H8", "core.reservations.passing:Backfill._claims", "unit/core/devices/test_emptied.py")
def sums_decide_about_devices_that_a_head_will_have(_: Any) -> Any:
    return lambda self, group: False


@bug("H3", "core.reservations.heads:emptied", "unit/core/devices/test_emptied.py")
def claims_hold_their_devices_on_the_empty_cluster(_: Any) -> Any:
    return lambda index: index


@bug(
    "A16",
    "kube.write.volume_binder:VolumeBinder._sleep_without_slot",
    "unit/kube/write/test_volume_binder.py",
)
def who_waits_for_another_try_keeps_a_connection(_: Any) -> Any:
    async def with_slot(self: Any, seconds: float) -> None:
        await self._sleep(seconds)

    return with_slot


@bug(
    "A22",
    "core.filter.volumes.claim_devices:ClaimDevices.come",
    "unit/core/devices/test_device_use.py",
)
def devices_of_a_pod_that_a_plan_takes_back_are_free(come: Any) -> Any:
    def forgotten(self: Any, pod: Any, node: int) -> None:
        come(self, pod, node)
        if pod.uid not in self._placed:
            self._come.discard(pod.uid)

    return forgotten


@bug(
    "B3",
    "kube.write.volume_binder:_may_come_late",
    "unit/kube/write/test_volume_binder.py",
)
def devices_of_an_unanswered_allocation_are_given_away_at_once(_: Any) -> Any:
    return lambda claims, versions, refusal: False
