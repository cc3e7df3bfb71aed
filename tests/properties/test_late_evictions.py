"""Evictions that the API server carries out after gangsched has given them up (V12, V24): the
request got no answer, or the process was killed (decision 0145).
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from gangsched.model.objects import Pod
from gangsched.model.protocol import Evict, Evicted, EvictionResult
from tests.builders import members, node, pod, pod_group
from tests.world import World

GRACE_S = 10


def unanswered(world: World) -> None:
    """No eviction is answered from now on."""
    world.fate = lambda order: "later" if isinstance(order, Evict) else "bound"


def carried_out(world: World, *victims: Pod) -> None:
    """The API server evicts them all the same, and says so to nobody."""
    for victim in victims:
        world.leaving[victim.uid] = world.now_s + GRACE_S
        world.update(victim, deleting=True, deletion_s=world.wall_s() + GRACE_S)

    world.settle()


def ordered(world: World) -> list[str]:
    """Names of the pods of which the eviction was ordered."""
    return [order.name for order in world.ordered if isinstance(order, Evict)]


def has_nominations(world: World) -> bool:
    """Whether anybody is nominated, or promised room."""
    return bool([*world.state.preemptions.nominations.all()] or world.state.snapshot().nominations)


def two_plain_pods() -> tuple[World, dict[str, Pod], Pod]:
    """Plain pods fill two nodes; one of higher priority has the eviction of one of them ordered."""
    world = World(node("a", 1), node("b", 1), preempts=True)
    low = [pod(f"low-{name}", node_name=name, grace_s=GRACE_S) for name in "ab"]
    world.create(low)
    world.advance(5)

    unanswered(world)
    (high,) = world.create(pod("high", priority=100))
    world.advance(3)
    (first,) = ordered(world)
    by_node = {victim.node_name: victim for victim in low}
    assert world.pods[high.uid].nominated_node == first.removeprefix("low-")
    return world, by_node, high


def lost(world: World, high: Pod) -> str:
    """The node is cordoned, and another pod is chosen; the node is returned."""
    name = world.pods[high.uid].nominated_node
    world.add_nodes(node(name, 1, unschedulable=True))
    world.advance(40)
    assert len(ordered(world)) == 2
    return name


def test_who_was_nominated_elsewhere_meanwhile_takes_the_room_that_came() -> None:
    """V11: the second eviction is not sent."""
    world, low, high = two_plain_pods()
    name = lost(world, high)
    world.add_nodes(node(name, 1))

    carried_out(world, low[name])
    world.fate = lambda order: "later" if isinstance(order, Evict) else "bound"
    world.advance(GRACE_S + 60)

    (other,) = {"a", "b"} - {name}
    assert world.bound() == {"high": name, f"low-{other}": other}
    assert len(ordered(world)) == 2
    assert not has_nominations(world)


def test_at_most_what_was_in_flight_is_evicted_for_nothing() -> None:
    """The node may not be used: the second eviction goes on, and there is no third one."""
    world, low, high = two_plain_pods()
    name = lost(world, high)

    carried_out(world, low[name])
    world.fate = lambda _: "bound"
    world.advance(GRACE_S + 120)

    (other,) = {"a", "b"} - {name}
    assert world.bound() == {"high": other}
    assert len(ordered(world)) == 2
    assert not has_nominations(world)


def half_evicted() -> tuple[World, list[Pod]]:
    """The evictions of a gang of two are withdrawn, and that of one member is carried out."""
    world = World(node("a", 1), node("b", 1), preempts=True)
    world.declare(pod_group("low", 2))
    low = world.create(members("low", 2, pod_group=True, grace_s=GRACE_S))
    world.advance(5)

    unanswered(world)
    world.create(members("high", 2, priority=100))
    world.advance(3)
    assert sorted(ordered(world)) == ["low-0", "low-1"]

    world.add_nodes(node("a", 1, unschedulable=True))
    for order in [order for order in world.ordered if isinstance(order, Evict)]:
        world.say(Evicted(order.id, order.uid, EvictionResult.WITHDRAWN, "not needed"))

    world.advance(10)
    assert not has_nominations(world)
    carried_out(world, *(victim for victim in low if world.bound()[victim.name] == "a"))
    world.advance(GRACE_S)
    assert len(world.bound()) == 1
    return world, low


@pytest.mark.parametrize("nodes", ["a", "ac", "acd"])
def test_a_gang_that_lost_one_member_that_way_is_as_one_that_lost_a_node(nodes: str) -> None:
    """B5, Q2: it goes after the group of higher priority, and is healed where there is room."""
    world, _ = half_evicted()
    world.create(members("low", 1, pod_group=True, grace_s=GRACE_S, first=2))
    world.fate = lambda _: "bound"

    world.add_nodes(*(node(name, 1) for name in nodes))
    world.advance(120)

    bound = world.bound()
    assert {"high-0", "high-1"} <= bound.keys()
    low = [name for name in bound if name.startswith("low-")]
    assert len(low) == (2 if nodes == "acd" else 0 if nodes == "a" else 1)
    assert not has_nominations(world)


@pytest.mark.parametrize("is_gang", [True, False])
def test_who_is_evicted_for_a_killed_process_is_who_the_next_one_evicts(*, is_gang: bool) -> None:
    """V24: no second set of victims, whether or not they bear a mark."""
    world = World(node("a", 1), node("b", 1), preempts=True)
    if is_gang:
        world.declare(pod_group("low", 2))
        world.create(members("low", 2, pod_group=True, grace_s=GRACE_S))
        high: Sequence[Pod] = members("high", 2, priority=100)
    else:
        world.create(pod(f"low-{name}", node_name=name, grace_s=GRACE_S) for name in "ab")
        high = [pod("high", priority=100)]

    world.advance(5)
    unanswered(world)
    world.create(high)
    world.advance(3)
    first = ordered(world)

    world.restart()
    world.settle()
    carried_out(world, *(victim for victim in world.pods.values() if victim.name in first))
    world.fate = lambda _: "bound"
    world.advance(GRACE_S + 60)

    assert ordered(world) == 2 * first
    assert {member.name for member in high} <= world.bound().keys()
    assert not has_nominations(world)
