"""What a member carries from Permit on: the stamp of its gang (B4, B5, I6), and its room after a
refused bind (B3).
"""

from __future__ import annotations

from typing import Any

import pytest

from gangsched.model.objects import JointStart, PermitStamp, Phase
from tests.builders import members, node, pod, pod_group
from tests.world import World


def test_room_of_a_refused_member_is_kept_for_half_a_minute() -> None:
    """B3: thieves wait meanwhile, whatever their rank; then they get it, and the gang is told
    degraded as before.
    """
    world = World(node("a", 3))
    world.fate = lambda bind: "failed" if bind.name == "g-1" else "bound"
    world.create(members("g", 3))
    world.settle()
    world.create(pod("thief", gpus=1, priority=1000))
    world.advance(29.5)
    assert "thief" not in world.bound()
    assert "thief" in world.advance(1).bound()


def test_room_of_a_refused_member_is_kept_only_while_it_is_needed() -> None:
    """B3: a member above the minimum, and one of a gang of which nothing started, gives its room
    back at once.
    """
    for minimum, refused in ((2, {"g-2"}), (3, {"g-0", "g-1", "g-2"})):
        world = World(node("a", 3))
        world.fate = lambda bind, refused=refused: "failed" if bind.name in refused else "bound"  # type: ignore[misc]
        world.create(members("g", 3, min_member=minimum))
        world.settle()
        world.create(pod("thief", gpus=1, priority=1000))
        assert "thief" in world.settle().bound()


@pytest.mark.parametrize(
    "end", [{"deleting": True}, {"phase": Phase.SUCCEEDED}, {"phase": Phase.FAILED}]
)
def test_gang_whose_last_bound_member_goes_starts_as_a_whole(end: dict[str, Any]) -> None:
    """I6, B4: whether or not new members are there already, they need the minimum
    among themselves.
    """
    world = World(node("a", 3))
    pods = world.create(members("g", 3))
    world.settle()
    world.create(members("g", 2, first=3, min_member=3))
    for each in pods:
        world.update(each, **end)
    world.settle()
    assert not {"g-3", "g-4"} & set(world.bound())
    for each in pods:
        world.delete(each)
    world.create(members("g", 1, first=5, min_member=3))
    assert {"g-3", "g-4", "g-5"} <= set(world.settle().bound())


def test_raising_the_minimum_of_a_running_gang_breaks_nothing() -> None:
    """B5, Q2: the missing members go as P3 has it, after everything of higher priority."""
    world = World(node("a", 2), node("full", 1))
    world.create(pod("f", gpus=1, node_name="full"))
    world.declare(pod_group("g", 2))
    world.create(members("g", 2, pod_group=True))
    world.settle()
    world.declare(pod_group("g", 3, generation=2))
    world.create(members("x", 1, priority=1000), members("g", 1, first=2, pod_group=True))
    world.told()
    assert not world.events("Degraded")
    world.delete(next(each for each in world.pods.values() if each.name == "f"))
    world.told()
    assert "x-0" in world.bound()
    assert "g-2" not in world.bound()
    assert not world.events("Degraded")


def test_members_are_stamped_with_the_permit_they_passed_with() -> None:
    """B4: the first Permit is the first epoch; what joins a running gang carries its stamp; a new
    start is next.
    """
    world = World(node("a", 4))
    pods = world.create(members("g", 2))
    world.settle()
    world.create(members("g", 1, first=2, min_member=2))
    world.settle()
    together = JointStart(2, pods[0].creation_s)
    assert [bind.permitted for bind in world.sent] == [PermitStamp(2, 1, together=together)] * 3
    world.create(pod("p"))
    assert world.settle().sent[-1].permitted is None
    for each in [*pods, *(each for each in world.pods.values() if each.name == "g-2")]:
        world.update(each, deleting=True)
    for each in list(world.pods.values()):
        if each.name != "g-2":
            world.delete(each)
    world.create(members("g", 2, first=3, min_member=2))
    world.settle()
    assert [bind.permitted for bind in world.sent[-2:]] == [
        PermitStamp(2, 2, together=together)
    ] * 2
