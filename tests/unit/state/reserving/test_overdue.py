"""Who was let onto reserved room by a stated run time, and is evicted for overrunning it (H11)."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from gangsched.api import keys
from gangsched.model.disruption import PodDisruptionBudget
from gangsched.model.objects import Phase, Pod
from gangsched.model.preemption import PreemptionSettings, VictimScope
from gangsched.model.protocol import Evict, Replaced
from gangsched.model.reservation import ReservationLimits
from gangsched.state.rule_set import Rules
from tests.builders import members, node, pod
from tests.world import EPOCH_S, World

RULES = Rules(
    reservations=ReservationLimits(share=1.0),
    preemption=PreemptionSettings(scope=VictimScope.OWN),
    evict_overrun_after_s=600.0,
)


def stated(seconds: int) -> dict[str, Any]:
    """Fields of a pod that states this."""
    return {"run_time_metadata": ((keys.EXPECTED_RUNTIME, f"{seconds}s"),)}


def start(world: World, *pods: Pod) -> None:
    """The kubelet starts them."""
    for each in pods:
        world.update(each, phase=Phase.RUNNING, start_s=world.wall_s())
    world.settle()


def passed(rules: Rules = RULES, *, run_s: int = 1) -> tuple[World, list[Pod]]:
    """A head waits for two nodes, one of which is free; meanwhile two pods that state `run_s` got
    onto it.
    """
    world = World(node("a"), node("b"), rules=rules)
    world.say(Replaced(PodDisruptionBudget, ()))
    (long,) = world.create(pod("long", gpus=8, creation_s=EPOCH_S + 1, **stated(100)))
    world.settle()
    start(world, world.pods[long.uid])
    world.create(members("head", 2, gpus=8, creation_s=EPOCH_S + 2))
    world.settle()
    short = world.create(
        pod("s-0", gpus=4, creation_s=EPOCH_S + 3, **stated(run_s)),
        pod("s-1", gpus=4, creation_s=EPOCH_S + 3, **stated(run_s)),
    )
    world.settle()
    assert [world.pods[each.uid].node_name for each in short] == ["b", "b"]
    start(world, *(world.pods[each.uid] for each in short))
    world.now_s += 100
    world.delete(world.pods[long.uid])
    world.settle()
    return world, short


def evicted(world: World) -> set[str]:
    """The names of pods whose eviction was ordered."""
    return {each.name for each in world.ordered if isinstance(each, Evict)}


def test_a_tenant_that_states_a_second_for_everything_is_evicted() -> None:
    """H11: it gets reserved room and ten minutes on it; then the head takes its room and starts."""
    world, _ = passed()
    world.advance(480)
    assert evicted(world) == set()
    world.advance(60)
    assert evicted(world) == {"s-0", "s-1"}
    world.advance(120)
    assert {"head-0", "head-1"} <= set(world.bound())


@pytest.mark.parametrize(
    "rules",
    [
        replace(RULES, evict_overrun_after_s=None),
        replace(RULES, preemption=PreemptionSettings(scope=VictimScope.OFF)),
    ],
    ids=["told", "no preemption"],
)
def test_without_the_settings_nobody_is_evicted(rules: Rules) -> None:
    """H11: it takes `evict`, and preemption."""
    world, _ = passed(rules)
    world.advance(2_000)
    assert evicted(world) == set()


def test_a_restart_forgets_who_passed() -> None:
    """H11, H16: nothing is stored, so that nobody is evicted on a guess."""
    world, _ = passed()
    world.restart()
    world.say(Replaced(PodDisruptionBudget, ()))
    world.advance(2_000)
    assert evicted(world) == set()


@pytest.mark.parametrize("priority", [0, 5])
def test_who_passed_by_other_means_stays(priority: int) -> None:
    """H11: a pod that was there before the head, however late it is."""
    world = World(node("a"), rules=RULES)
    world.say(Replaced(PodDisruptionBudget, ()))
    (first,) = world.create(
        pod("first", gpus=8, priority=priority, creation_s=EPOCH_S + 1, **stated(1))
    )
    world.settle()
    start(world, world.pods[first.uid])
    world.create(members("head", 1, gpus=8, priority=priority, creation_s=EPOCH_S + 2))
    world.settle()
    world.advance(3_000)
    assert evicted(world) == set()


def test_who_passed_in_spare_room_is_not_watched() -> None:
    """H11: it took nothing of what is reserved, so that it is in nobody's way."""
    world = World(node("a"), node("b"), rules=RULES)
    (long,) = world.create(pod("long", gpus=8, creation_s=EPOCH_S + 1, **stated(100)))
    world.settle()
    start(world, world.pods[long.uid])
    world.create(members("head", 2, gpus=6, creation_s=EPOCH_S + 2))
    world.settle()
    (side,) = world.create(pod("side", gpus=2, creation_s=EPOCH_S + 3, **stated(500)))
    world.settle()
    assert world.pods[side.uid].node_name == "b"
    assert world.state.overdue.next_deadline_s() == math.inf
    world.create(pod("short", gpus=4, creation_s=EPOCH_S + 3, **stated(5)))
    world.settle()
    assert world.state.overdue.next_deadline_s() < math.inf
