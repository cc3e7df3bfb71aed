"""Definitions of PodGroups that drop conditions, as scheduler-plugins' and Koordinator's do."""

from __future__ import annotations

import msgspec

from gangsched.model.objects import Pod
from gangsched.model.protocol import SetPodGroupStatus
from gangsched.state.definitions import Definitions
from tests.builders import members, node, pod, pod_group
from tests.world import World


def waiting(*, drops: bool) -> tuple[World, list[Pod]]:
    """A gang of two that lacks room, half a second after its status was stored."""
    world = World(node("a", 8))
    world.create(pod("other", gpus=2))
    world.settle()
    world.declare(pod_group("g", 2))
    pods = world.create(members("g", 2, pod_group=True, gpus=4))
    world.told()
    return store(world, drops=drops), pods


def store(world: World, *, drops: bool) -> World:
    """The statuses are stored, without conditions where the definition `drops` them."""
    world.store_statuses()
    for each in [*world.pod_groups.values()] if drops else ():
        status = {name: value for name, value in each.status.items() if name != "conditions"}
        world.declare(msgspec.structs.replace(each, status=status))

    return world.told()


def test_pods_carry_the_reason_where_the_pod_group_has_no_conditions() -> None:
    """E1: the oldest waiting pod has the counts, and the others refer to it."""
    world, pods = waiting(drops=True)
    oldest, other = (world.condition(each)[1] for each in pods)
    assert "1 fits, then no eligible node has 4 free" in oldest
    assert other.endswith("; see pod ns/g-0")


def test_pods_refer_to_a_pod_group_with_conditions() -> None:
    """E1: the counts are written once."""
    world, pods = waiting(drops=False)
    for each in pods:
        assert world.condition(each)[1].endswith("; see PodGroup ns/g")


def test_a_new_definition_that_stores_conditions_is_noticed() -> None:
    """The next status that is stored whole shows it."""
    seen = Definitions()
    of = pod_group("g", 2)
    assert seen.has_conditions(of)
    seen.saw(msgspec.structs.replace(of, status={"phase": "Pending"}))
    assert not seen.has_conditions(of)
    seen.saw(msgspec.structs.replace(of, status={}))
    assert not seen.has_conditions(of)
    seen.saw(msgspec.structs.replace(of, status={"conditions": [{"type": "Scheduled"}]}))
    assert seen.has_conditions(of)


def test_dropped_conditions_are_not_written_again() -> None:
    """Counts that change are no reason to write a status whose conditions nobody stores."""
    written = {}
    for drops in (True, False):
        world, _ = waiting(drops=drops)
        before = len(statuses(world))
        world.create(pod("more", gpus=2))
        store(world.advance(30), drops=drops)
        written[drops] = len(statuses(world)) - before

    assert written == {True: 0, False: 1}


def statuses(world: World) -> list[SetPodGroupStatus]:
    """The statuses that were written."""
    return [each for each in world.reports if isinstance(each, SetPodGroupStatus)]
