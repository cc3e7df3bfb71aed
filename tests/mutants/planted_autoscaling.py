"""Planted bugs in what autoscalers are asked for."""

from __future__ import annotations

from typing import Any

from tests.mutants.mutant import bug

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
    return lambda provisioning, group: None


@bug("E10", "model.capacity_facts:NotAsking.instead_of", REQUESTING)
def pods_are_unschedulable_while_provisioning(_: Any) -> Any:
    return lambda wait, refusal: refusal


@bug("E10", "core.promises:RoomPromises.fenced_from", REQUESTING)
def plain_pods_take_the_nodes_that_come(_: Any) -> Any:
    return lambda promises, group: ()


@bug("E10", "state.autoscaling.requesting:Provisioning._known", REQUESTING)
def a_restart_makes_another_request(_: Any) -> Any:
    return lambda provisioning, request: []
