"""What is told of members that run on nodes which may be lost (semantics L1)."""

from __future__ import annotations

from msgspec import structs

from gangsched.model.objects import Phase, Taint
from gangsched.state.avoided import AvoidCause, AvoidedNode
from gangsched.state.reporting.troubles import troubles
from tests.builders import members, node
from tests.world import World


def told(world: World) -> list[str]:
    """The sentences about the gang."""
    registry = world.state.registry
    return troubles(registry.gangs["ns/g"], registry.groups["ns/g"], world.state.cluster.nodes)


def test_members_on_nodes_that_are_not_all_right_are_named() -> None:
    """L1: the nodes' members are not lost, and nothing is done."""
    nodes = [node(name, 2) for name in "abcd"]
    world = World(*nodes)
    pods = world.create(members("g", 7))
    world.settle()
    assert told(world) == []

    unready = Taint(key="node.kubernetes.io/not-ready", effect="NoExecute")
    world.add_nodes(structs.replace(nodes[0], taints=(unready,)))
    world.add_nodes(structs.replace(nodes[1], unschedulable=True))
    world.remove_node("c")
    world.settle()
    where = world.bound()
    on = {name: sorted(f"ns/{pod}" for pod in where if where[pod] == name) for name in "abc"}

    assert told(world) == [
        f"{', '.join(on['a'])} run on node a, which is not ready",
        f"{', '.join(on['b'])} run on node b, which is closed",
        f"{', '.join(on['c'])} run on node c, which is gone",
    ]
    assert len(world.bound()) == len(pods)


def test_restarts_and_avoided_nodes_are_named() -> None:
    """L8: a container that restarts in place stays a member."""
    world = World(node("a", 2))
    one, _ = world.create(members("g", 2))
    world.settle()
    world.update(one, phase=Phase.RUNNING, restarts=4)
    row = AvoidedNode(AvoidCause.STRUCK, 99.0, "ns/g", 1.0)
    world.state.registry.groups["ns/g"].avoid["n7"] = row
    world.settle()
    assert told(world) == [
        "a container of pod ns/g-0 has restarted 4 times",
        "node n7 is avoided, because members of the gang ended there",
    ]
