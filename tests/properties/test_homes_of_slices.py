"""Slices of a gang that runs: a lost member waits in the domain of its slice and is told so, and a
slice that is lost as a whole comes back near the others (L3, L6).
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from gangsched.api import keys
from gangsched.model.gpu_policy import TOPOLOGY_KEYS
from gangsched.model.objects import Node, Pod
from tests.builders import gang_metadata, node, pod
from tests.world import World

_, RACK, ZONE = TOPOLOGY_KEYS
LAYERS = json.dumps([{"size": 2, "topology": RACK}])


def at(name: str, rack: str, zone: str, *, gpus: int = 4, closed: bool = False) -> Node:
    """A node in a rack of a zone."""
    labels = {RACK: rack, ZONE: zone}
    return node(name, gpus, labels=labels, unschedulable=closed)


def member(index: int, run: int = 0) -> Pod:
    """A member of a gang of two slices of two; `run` numbers the pods of one index."""
    stated = (*gang_metadata("g", min_member=4), (keys.SLICES[0], LAYERS))
    return pod(f"g-{index}", uid=f"{index}.{run}", gpus=4, index=index, gang_metadata=stated)


def started() -> World:
    """The first slice runs in rack r, and the second one in rack s of the same zone."""
    world = World(*(at(f"{rack}{number}", rack, "x") for rack in "rs" for number in range(2)))
    world.create(map(member, range(4)))
    assert set(world.settle().bound().values()) == {"r0", "r1", "s0", "s1"}
    return world


def lose(world: World, indexes: Iterable[int]) -> None:
    """These members are gone with their nodes."""
    for index in indexes:
        (lost,) = (each for each in world.pods.values() if each.index == index)
        gone = world.state.cluster.nodes[lost.node_name]
        labels = gone.labels
        world.add_nodes(node(gone.name, 4, labels=labels, unschedulable=True))
        world.delete(lost)


def test_a_member_waits_for_room_in_the_domain_of_its_slice() -> None:
    """L6: it may not leave the rack of the other one, so that a node elsewhere does not help."""
    world = started()
    where = world.bound()["g-1"]
    rack = world.state.cluster.nodes[where].labels[RACK]
    lose(world, [1])
    world.add_nodes(at("t0", "t", "x"), at("t1", "t", "x"))
    world.create([member(1, 1)])
    world.settle().told()
    condition = world.pods["1.1"].condition
    assert condition is not None
    assert condition.reason == "WaitingForHome"
    text = f"ns/g-1 waits for room in {RACK}={rack} since"
    assert text in condition.message
    assert "0 of 2 nodes there are free. 1 is closed, " in condition.message


def test_a_slice_that_is_lost_as_a_whole_comes_back_near_the_others() -> None:
    """L3: to the zone in which the other slice runs, though racks elsewhere fit exactly."""
    world = started()
    lose(world, [2, 3])
    world.add_nodes(at("far0", "f", "y"), at("far1", "f", "y"))
    world.add_nodes(*(at(f"near{number}", "n", "x", gpus=8) for number in range(2)))
    world.create([member(2, 1), member(3, 1)])
    bound = world.settle().bound()
    assert {bound["g-2"], bound["g-3"]} <= {"near0", "near1"}


def test_a_slice_goes_further_away_and_says_so() -> None:
    """L3: where its zone has no rack for it."""
    world = started()
    lose(world, [2, 3])
    world.add_nodes(at("far0", "f", "y"), at("far1", "f", "y"), at("near0", "n", "x"))
    world.create([member(2, 1), member(3, 1)])
    assert {world.settle().bound()[name] for name in ("g-2", "g-3")} == {"far0", "far1"}
    world.told()
    (text,) = [text for about, _, text in world.events("Scheduled") if about == "Pod ns/g-2"][-1:]
    assert f"outside {RACK}=" in text or f"outside {ZONE}=x" in text
