"""How long groups of lower priority are held back, and for whom (semantics V27)."""

from __future__ import annotations

from dataclasses import replace

from gangsched.model.objects import Pod
from gangsched.model.preemption import PreemptionSettings
from gangsched.state.preemption.hold_back_times import RESTS
from gangsched.state.rule_set import Rules
from tests.builders import members, node, pod
from tests.world import World

HOLD_BACK_S = 60.0
RULES = replace(Rules(), preemption=PreemptionSettings(hold_back_s=int(HOLD_BACK_S)))


def crowded() -> tuple[World, Pod, list[Pod]]:
    """A node of high priority and one of low; a gang of high priority needs both, and a third one
    that is free.
    """
    world = World(node("a"), node("b"), rules=RULES, preempts=True)
    (peer,) = world.create(members("peer", 1, gpus=8, priority=1000))
    world.create(members("low", 1, gpus=8, priority=1))
    world.settle()
    world.add_nodes(node("c"))
    high = world.create(members("high", 3, gpus=8, priority=1000))
    world.settle()
    assert world.pending() == {"high-0", "high-1", "high-2"}
    return world, peer, high


def late(world: World, name: str = "late") -> Pod:
    """A pod of low priority that would fit on the free node comes."""
    (created,) = world.create(pod(name, gpus=4, priority=1))
    world.settle()
    return created


def test_lower_group_waits_for_as_long_as_the_setting_says() -> None:
    """V27: nothing else need happen for it to start then."""
    world, _, _ = crowded()
    late(world)
    world.advance(HOLD_BACK_S - 1)
    assert "late" not in world.bound()
    world.advance(1)
    assert world.bound()["late"] == "c"


def test_a_group_that_still_waits_holds_nobody_back_again() -> None:
    """V27: once a wait; room that becomes free later is not kept either."""
    world, _, _ = crowded()
    world.advance(HOLD_BACK_S)
    world.add_nodes(node("d", 4))
    late(world)
    late(world, "later")
    world.advance(1)
    assert {"late", "later"} <= world.bound().keys()


def test_each_namespace_has_its_time() -> None:
    """V27: the group of another one that comes later holds others back when the time of the first
    is over.
    """
    world, _, _ = crowded()
    world.advance(HOLD_BACK_S / 2)
    world.create(members("second", 3, gpus=8, priority=1000, namespace="other"))
    late(world)
    world.advance(HOLD_BACK_S - 1)
    assert "late" not in world.bound()
    world.advance(1)
    assert world.bound()["late"] == "c"


def test_lower_pod_that_comes_when_none_ran_or_waited_is_held_back() -> None:
    """V27: nothing else happens that would let a parked gang be looked at."""
    world = World(node("a"), node("b"), rules=RULES, preempts=True)
    world.create(members("peer", 1, gpus=8, priority=1000))
    world.settle()
    world.create(members("high", 2, gpus=8, priority=1000))
    world.settle()
    late(world)
    world.advance(HOLD_BACK_S - 1)
    assert world.pending() == {"high-0", "high-1", "late"}
    world.advance(1)
    assert world.bound()["late"] == "b"


def test_nobody_is_held_back_for_a_group_that_is_gone() -> None:
    """V27: what waited for room there starts at once."""
    world, _, high = crowded()
    late(world)
    world.delete(*high)
    world.settle()
    assert world.bound()["late"] == "c"


def test_group_that_starts_takes_room_that_nobody_was_given() -> None:
    """V27: when its peer ends, only the pod that ran before is evicted."""
    world, peer, _ = crowded()
    late(world)
    world.delete(peer)
    world.advance(40)
    assert {world.bound()[f"high-{n}"] for n in range(3)} == {"a", "b", "c"}
    assert world.pending() == {"late"}


def test_a_gang_that_is_created_anew_holds_nobody_back_again() -> None:
    """V27: a gang under a new name every 50 s; before, a pod of low priority was kept off an idle
    node for an hour.
    """
    world, _, high = crowded()
    late(world)
    for number in range(3):
        world.advance(50)
        world.delete(*high)
        high = world.create(members(f"high-{number}", 3, gpus=8, priority=1000))
        world.settle()
    assert world.bound()["late"] == "c"


def test_namespaces_rest_for_ten_times_as_long() -> None:
    """V27: then a new group of the same namespace and priority holds others back once more."""
    world, _, high = crowded()
    world.advance((RESTS + 1) * HOLD_BACK_S - 1)
    world.delete(*high)
    early = world.create(members("early", 3, gpus=8, priority=1000))
    world.settle()
    late(world)
    assert world.bound()["late"] == "c"
    world.delete(*early)
    world.advance(1)
    world.create(members("last", 3, gpus=8, priority=1000))
    world.settle()
    late(world, "later")
    assert "later" not in world.bound()


def test_another_priority_has_a_time_of_its_own() -> None:
    """V27: the bound is for a namespace and a priority."""
    world, _, _ = crowded()
    world.advance(HOLD_BACK_S)
    world.create(members("second", 3, gpus=8, priority=999))
    late(world)
    world.advance(HOLD_BACK_S - 1)
    assert "late" not in world.bound()
    world.advance(1)
    assert world.bound()["late"] == "c"
