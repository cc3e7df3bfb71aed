"""Planted bugs in what autoscalers are asked for."""

from __future__ import annotations

from typing import Any

from tests.mutants.mutant import bug, replace

PATIENCE = "unit/state/autoscaling/test_patience.py"


@bug("E9", "state.autoscaling.new_nodes:NewNodes.being_added_until_s", PATIENCE)
def nodes_that_boot_are_not_waited_for(_: Any) -> Any:
    return lambda nodes, shapes, wall_s: None


@bug("E9", "state.autoscaling.patience:Patience._was_paused", PATIENCE)
def a_restart_asks_for_the_nodes_again(_: Any) -> Any:
    return lambda patience, group: False


@bug("E9", "state.autoscaling.patience:Patience._is_gang", PATIENCE)
def plain_pods_stop_to_ask(_: Any) -> Any:
    return lambda patience, group: True


REQUESTING = "unit/state/autoscaling/test_requesting.py"


@bug("E10", "state.autoscaling.requesting:Provisioning._end_fence", REQUESTING)
def nodes_are_reserved_for_a_gang_that_is_gone(_: Any) -> Any:
    return lambda provisioning, group, request: None


@bug("E10", "state.autoscaling.requesting:Provisioning.changed", REQUESTING)
def nodes_are_reserved_for_a_gang_without_pods(_: Any) -> Any:
    return lambda provisioning, group, now_s: None


@bug("E10", "model.capacity_facts:NotAsking.instead_of", REQUESTING)
def pods_are_unschedulable_while_provisioning(_: Any) -> Any:
    return lambda wait, refusal: refusal


@bug("E10", "core.promises:RoomPromises.fenced_from", REQUESTING)
def plain_pods_take_the_nodes_that_come(_: Any) -> Any:
    return lambda promises, group: ()


@bug("E10", "state.autoscaling.requesting:Provisioning._known", REQUESTING)
def a_restart_makes_another_request(_: Any) -> Any:
    return lambda provisioning, request: []


@bug("E10", "state.gangs:GangRecord.name", REQUESTING)
def a_request_has_the_id_that_this_process_has_for_its_gang(_: Any) -> Any:
    return property(lambda record: record.id.partition("/")[2])


@bug("E10", "state.autoscaling.requesting:Provisioning._look_at_waiting", REQUESTING)
def nothing_is_asked_for(_: Any) -> Any:
    return lambda provisioning, group, request, clocks: None


@bug("E10", "state.autoscaling.requesting:Provisioning._answers_s", REQUESTING)
def a_busy_autoscaler_counts_as_none(_: Any) -> Any:
    return lambda provisioning, request: 0.0


@bug("E10", "state.autoscaling.node_request:NodeRequest.told_message", REQUESTING)
def namespaces_read_each_others_messages(_: Any) -> Any:
    return property(lambda request: request.message)


@bug("E10", "sentences.wording:Sentences.of_existing_nodes", REQUESTING)
def a_gang_can_never_start_while_nodes_are_asked_for(_: Any) -> Any:
    return lambda sentences: sentences


BACK_OFFS = "unit/state/autoscaling/test_back_offs.py"


@bug("E10", "state.autoscaling.back_offs:BackOffs.changed", BACK_OFFS)
def a_changed_gang_asks_without_end(_: Any) -> Any:
    return lambda back_offs, group_id, namespaces, now_s: None


@bug("E10", "state.autoscaling.back_offs:BackOffs.of_namespaces", BACK_OFFS)
def new_names_ask_without_end(_: Any) -> Any:
    return lambda back_offs, namespaces, now_s: now_s


@bug("E10", "state.autoscaling.back_offs:BackOffs.started", BACK_OFFS)
def a_start_is_held_against_the_gang(_: Any) -> Any:
    return lambda back_offs, group_id: None


ADDED_NODES = "unit/state/autoscaling/test_added_nodes.py"


@bug("E10", "state.autoscaling.added_nodes:AddedNodes._is_brought", ADDED_NODES)
def nodes_that_others_brought_are_reserved(_: Any) -> Any:
    return lambda added, name, marks: True


@bug("E10", "state.autoscaling.requesting:Provisioning._adopt", ADDED_NODES)
def a_restart_gives_new_nodes_away(_: Any) -> Any:
    return lambda provisioning, existing, now_s: None


CAPACITY_ASKS = "unit/state/autoscaling/test_capacity_asks.py"


@bug("E10", "state.autoscaling.requesting:Provisioning._evicts_from_s", CAPACITY_ASKS)
def pods_are_evicted_although_nodes_come(_: Any) -> Any:
    return lambda provisioning, group, request: 0.0


WRITER = "unit/kube/write/test_provisioning.py"


@bug("E10", "kube.write.provisioning:ProvisioningWriter._check_owner", WRITER)
def objects_of_strangers_are_used(_: Any) -> Any:
    async def never(writer: Any, path: str, body: Any) -> None:
        return

    return never


@bug("E10", "kube.write.provisioning:_of_templates", WRITER)
def templates_of_refused_requests_stay(there: Any) -> Any:
    return lambda order, names: there(order, ())


@bug("E10", "state.glance:glance_input", CAPACITY_ASKS)
def reviews_ignore_reserved_nodes(there: Any) -> Any:
    def without(*args: Any) -> Any:
        return replace(there(*args), fenced=())

    return without
