"""Evictions wait while a ProvisioningRequest may bring nodes (semantics E10, V28)."""

from __future__ import annotations

from gangsched.api import keys
from gangsched.model.objects import Pod
from gangsched.model.provisioning import ProvisioningState
from gangsched.state.glance import glance_input
from gangsched.state.rule_set import Rules
from tests.autoscaler import Autoscaler, message, provisioning_rules, world_with_new_node
from tests.builders import members, node, pod, pod_group, running
from tests.world import World


def rules_with_patience() -> Rules:
    """An autoscaler may look for capacity for two hours."""
    return provisioning_rules(patience_s=7_200.0)


def lower_work(world: World) -> None:
    """Two nodes, full of plain pods of lower priority."""
    for number in range(2):
        low = pod(f"low-{number}", gpus=8, priority=0, grace_s=0)
        world.create([running(low, f"old-{number}")])

    world.add_nodes(node("old-0"), node("old-1"))
    world.settle()


def high(world: World, *, delay: str = "") -> list[Pod]:
    """A gang of two nodes with a higher priority, and perhaps a preemption delay."""
    metadata = ((keys.PREEMPTION_DELAY[0], delay),) if delay else ()
    world.declare(pod_group("g", 2, uid="uid-of-g", gang_metadata=metadata))
    made = members("g", 2, gpus=8, priority=10, creation_s=world.wall_s(), pod_group=True)
    return world.create(made)


def left(world: World) -> int:
    """Pods of lower priority that still run."""
    return len([name for name in world.settle().bound() if name.startswith("low")])


def test_nobody_is_evicted_for_a_gang_with_a_delay_whose_nodes_come() -> None:
    """E10, V28: also if the delay is shorter than what an autoscaler needs to answer, and if the
    nodes boot for minutes.
    """
    for delay in ("1s", "5m"):
        world = World(rules=provisioning_rules(), preempts=True)
        lower_work(world)
        scaler = Autoscaler(world, 10, boots_s=400)
        high(world, delay=delay)
        scaler.run(4)
        assert "The group preempts no pods before" in message(world)
        scaler.run(450)
        assert (left(world), len(world.bound()), scaler.provided) == (2, 4, 2)


def test_a_gang_evicts_others_where_an_autoscaler_has_no_capacity() -> None:
    """E10: once it says so, or if nobody answers, and not before."""
    for answers in (True, False):
        world = World(rules=provisioning_rules(), preempts=True)
        lower_work(world)
        scaler = Autoscaler(world, 0, answers=answers)
        high(world, delay="1s")
        scaler.run(8)
        assert left(world) == 2
        scaler.run(20 if answers else 80)
        assert left(world) == 0
        scaler.run(20)
        assert set(world.bound()) == {"g-0", "g-1"}
        assert scaler.requests == {}, "no node comes for a gang that has started"


def test_a_gang_without_a_delay_evicts_at_once_unless_its_request_is_accepted() -> None:
    """E10: a higher priority is a right to evict, and nodes that come make that needless."""
    world = World(rules=provisioning_rules(), preempts=True)
    lower_work(world)
    scaler = Autoscaler(world, 10)
    high(world)
    scaler.run(10)
    assert (left(world), scaler.created) == (0, [])

    # Nothing of lower priority runs when it asks, and then something does.
    world = World(rules=provisioning_rules(), preempts=True)
    scaler = Autoscaler(world, 10, boots_s=60)
    high(world)
    scaler.run(20)
    lower_work(world)
    scaler.run(80)
    assert (left(world), len(world.bound())) == (2, 4)


def test_a_request_delays_evictions_for_an_hour_at_most() -> None:
    """E10: however long an autoscaler considers it."""
    world = World(rules=rules_with_patience(), preempts=True)
    scaler = Autoscaler(world, 0, answers=False)
    high(world)
    scaler.run(14)
    (key,) = scaler.requests
    scaler.say(key, ProvisioningState.ACCEPTED)
    world.advance(2)
    # The nodes are taken before the gang may have them.
    lower_work(world)
    world.advance(3_500)
    assert left(world) == 2
    world.advance(120)
    assert left(world) == 0


def test_a_plan_that_decides_nothing_knows_the_reserved_nodes() -> None:
    """E10: a PlacementReview says what would happen."""
    world = world_with_new_node()
    group = world.state.registry.group("ns/asks", world.now_s)
    given = glance_input(world.state, group, world.now_s, world.wall_s())
    assert [fence.nodes for fence in given.fenced] == [("new",)]
