"""A part of a group that lost all of its members comes back to where the rest of the group runs
(L3): in trees and in groups of gangs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gangsched.model.gpu_policy import TOPOLOGY_KEYS
from gangsched.model.objects import Node, Pod
from tests.builders import members, node
from tests.world import World

_, RACK, ZONE = TOPOLOGY_KEYS
TREE = {"parent": "svc", "min_children": 2}
LIST = {"groups": ["ns/a", "ns/b"]}


def at(name: str, rack: str, gpus: int = 4, *, zone: str = "x", closed: bool = False) -> Node:
    """A node in a rack of a zone."""
    labels = {RACK: rack, ZONE: zone}
    return node(name, gpus, labels=labels, unschedulable=closed)


def lost(stated: dict[str, Any], *others: Node) -> tuple[World, Callable[[], Pod]]:
    """Two gangs of one member run in rack r, and that of the second is gone with its node; `others`
    are free. Returns what creates the member that replaces it.
    """
    world = World(at("n0", "r"), at("n1", "r"))
    world.create(members("a", 1, gpus=4, **stated), members("b", 1, gpus=4, **stated))
    where = world.settle().bound()
    assert sorted(where.values()) == ["n0", "n1"]

    world.add_nodes(at(where["b-0"], "r", closed=True), *others)
    world.delete(*(pod for pod in [*world.pods.values()] if pod.name == "b-0"))
    world.settle()

    def replace() -> Pod:
        (pod,) = world.create(members("b", 1, first=1, gpus=4, **stated))
        world.settle()
        return world.pods[pod.uid]

    return world, replace


@pytest.mark.parametrize("stated", [TREE, LIST], ids=["tree", "group"])
def test_a_gang_that_lost_all_of_its_members_comes_back_to_its_group(
    stated: dict[str, Any],
) -> None:
    """L3: the nodes of other racks fit exactly, so that they score better."""
    _, replace = lost(stated, at("home", "r", 8), at("far", "s"), at("away", "t", zone="y"))
    assert replace().node_name == "home"


@pytest.mark.parametrize("stated", [TREE, LIST], ids=["tree", "group"])
def test_it_goes_one_level_up_and_says_so(stated: dict[str, Any]) -> None:
    """L3: the rack is full, and the zone has room on a node that is larger than needed."""
    world, replace = lost(stated, at("far", "s", 8), at("away", "t", zone="y"))
    pod = replace()
    assert pod.node_name == "far"
    world.told()
    (told,) = [text for about, _, text in world.events("Scheduled") if about == f"Pod {pod.key}"]
    assert f"outside {RACK}=r" in told


@pytest.mark.parametrize("stated", [TREE, LIST], ids=["tree", "group"])
def test_it_goes_anywhere_at_last(stated: dict[str, Any]) -> None:
    """L3: a preferred home keeps nobody waiting."""
    _, replace = lost(stated, at("away", "t", zone="y"))
    assert replace().node_name == "away"


def test_a_start_has_no_home() -> None:
    """L3: a further child of a tree is no replacement, and goes where it fits best."""
    world = World(at("n0", "r"), at("n1", "r"))
    stated: dict[str, Any] = {"parent": "svc", "min_children": 2}
    world.create(members("a", 1, gpus=4, **stated), members("b", 1, gpus=4, **stated))
    world.settle()
    world.add_nodes(at("home", "r", 8), at("far", "s"))
    world.create(members("c", 1, gpus=4, **stated))
    assert world.settle().bound()["c-0"] == "far"


@pytest.mark.parametrize("stated", [TREE, LIST], ids=["tree", "group"])
@pytest.mark.parametrize("order", [("home", "far"), ("far", "home")])
def test_room_for_a_lost_member_is_made_in_the_rack_of_its_own_gang(
    stated: dict[str, Any], order: tuple[str, str]
) -> None:
    """L3, L5: the other gang runs in another rack, where pods of lower priority run as well."""
    world = World(at("n0", "r"), at("n1", "r"), preempts=True)
    world.create(members("a", 2, gpus=4, priority=9, **stated))
    world.create(members("b", 2, gpus=4, priority=9, **stated))
    world.settle()
    world.add_nodes(at("m0", "s"), at("m1", "s"))
    where = world.settle().bound()
    lost_node = where["b-0"]
    racks = {"n": ("r", "s"), "m": ("s", "r")}[lost_node[0]]
    assert where["b-1"][0] == lost_node[0] != where["a-0"][0]

    world.add_nodes(at(lost_node, racks[0], closed=True))
    for name in order:
        rack = racks[0] if name == "home" else racks[1]
        world.add_nodes(at(name, rack))
        world.create(members(f"low-{name}", 1, gpus=4))
        assert world.settle().bound()[f"low-{name}-0"] == name

    world.delete(*(pod for pod in [*world.pods.values()] if pod.name == "b-0"))
    world.settle()
    world.create(members("b", 1, first=2, gpus=4, priority=9, **stated))
    world.settle()
    (nomination,) = world.state.preemptions.nominations.all()
    assert [nominee.node for nominee in nomination.nominees.values()] == ["home"]
