"""Nodes that an autoscaler added for a request are reserved for its gang (semantics E10)."""

from __future__ import annotations

import msgspec
import pytest

from gangsched.api import keys
from gangsched.model.protocol import Applied
from gangsched.model.provisioning import ProvisioningState
from gangsched.state.autoscaling.added_nodes import (
    BEST_EFFORT,
    OF_KARPENTER,
    QUEUED,
    QUEUED_MARK,
    AddedNodes,
)
from tests.autoscaler import Autoscaler, message, new_node, provisioning_rules, reasons, waiting
from tests.builders import pod
from tests.world import World


def test_new_nodes_are_reserved_for_the_gang_that_asked() -> None:
    """E10: plain pods that wait do not take them before the gang starts."""
    world = World(rules=provisioning_rules())
    scaler = Autoscaler(world, 8, boots_s=4)
    waiting(world, 8)
    world.told()
    scaler.run(12)
    # The first three come alone.
    plain = world.create([pod(f"p{number}", gpus=8, creation_s=1) for number in range(20)])
    scaler.limit = 0
    scaler.run(10)

    nodes = set(world.bound().values())
    assert len(nodes) == 8
    assert not any(world.pods[each.uid].node_name for each in plain)


def test_nodes_that_come_one_by_one_are_kept_from_others() -> None:
    """E10: as many as the gang needs; what comes beyond that is anybody's."""
    world = World(rules=provisioning_rules())
    scaler = Autoscaler(world, 0)
    waiting(world, 3)
    world.told()
    scaler.run(14)
    (key,) = scaler.requests
    scaler.answers = False
    scaler.say(key, ProvisioningState.PROVISIONED)
    world.create([pod(f"p{number}", gpus=8, creation_s=1) for number in range(4)])

    world.add_nodes(new_node(world, "a"))
    world.advance(2)
    world.add_nodes(new_node(world, "b"))
    world.advance(6)
    assert world.bound() == {}
    assert "2 new nodes are reserved until" in message(world)

    world.add_nodes(new_node(world, "c"), new_node(world, "d"))
    world.settle()
    assert {world.bound()[f"g-{number}"] for number in range(3)} == {"a", "b", "c"}
    assert list(world.bound().values()).count("d") == 1


@pytest.mark.parametrize(
    ("class_name", "labels", "accepted_s", "is_reserved"),
    [
        (BEST_EFFORT, {}, 0, True),
        (BEST_EFFORT, {OF_KARPENTER: "pool"}, 0, False),
        (BEST_EFFORT, {QUEUED_MARK: "another"}, 0, False),
        (BEST_EFFORT, {}, 1_000_000, False),
        (QUEUED, {}, 0, False),
        (QUEUED, {QUEUED_MARK: "another"}, 0, False),
        (QUEUED, {QUEUED_MARK: "resize-1"}, 0, True),
        ("check-capacity.autoscaling.x-k8s.io", {}, 0, False),
        ("unknown.example.com", {}, 0, False),
    ],
)
def test_only_nodes_that_the_request_may_have_brought_are_reserved(
    class_name: str,
    labels: dict[str, str],
    accepted_s: int,
    is_reserved: bool,
) -> None:
    """E10: none of a class that adds no nodes, of another autoscaler or another request, nor what
    came before the request was accepted.
    """
    world = World(rules=provisioning_rules())
    scaler = Autoscaler(world, 0)
    metadata = ((keys.PROVISIONING_CLASS[0], class_name),)
    waiting(world, 2, gang_metadata=metadata)
    scaler.run(14)
    (key,) = scaler.requests
    scaler.answers = False
    request, pods = scaler.requests[key]
    since_s = request.creation_s + accepted_s
    changed = msgspec.structs.replace(request, accepted_s=since_s, resize_request="resize-1")
    scaler.requests[key] = (changed, pods)
    scaler.say(key, ProvisioningState.PROVISIONED)
    world.create(pod("p", gpus=8, creation_s=1))

    world.add_nodes(new_node(world, "a", labels=labels))
    world.advance(2)
    assert world.bound() == ({} if is_reserved else {"p": "a"})
    wanted = "1 new node is reserved" if is_reserved else "its nodes are awaited until"
    assert wanted in message(world)


def test_reserved_nodes_are_free_again_after_a_while() -> None:
    """E10: what the gang still lacks then, it asks for as any other."""
    world = World(rules=provisioning_rules(keep_s=100.0))
    scaler = Autoscaler(world, 0)
    waiting(world, 3)
    scaler.run(14)
    (key,) = scaler.requests
    scaler.answers = False
    scaler.say(key, ProvisioningState.PROVISIONED)
    world.create(pod("p", gpus=8))
    world.add_nodes(new_node(world, "a"))
    world.advance(95)
    assert world.bound() == {}

    world.advance(10)
    scaler.carry_out()
    assert world.bound() == {"p": "a"}
    assert (scaler.requests, reasons(world)) == ({}, {"Unschedulable"})
    assert "the nodes that were added do not suffice" in message(world)


def test_another_process_reserves_the_nodes_before_anybody_starts() -> None:
    """E10: of pods that it knows from lists, an older plain one does not come first."""
    world = World(rules=provisioning_rules())
    scaler = Autoscaler(world, 0)
    waiting(world, 2)
    scaler.run(14)
    (key,) = scaler.requests
    scaler.answers = False
    scaler.say(key, ProvisioningState.PROVISIONED)
    world.create(pod("p", gpus=8, creation_s=1))
    world.add_nodes(new_node(world, "a"))
    world.advance(2)
    assert world.bound() == {}

    ((request, _),) = scaler.requests.values()
    world.restart()
    world.say(Applied(request))
    world.advance(1)
    assert world.bound() == {}
    world.add_nodes(new_node(world, "b"))
    scaler.run(10)
    assert set(world.bound()) == {"g-0", "g-1"}


def test_gangs_that_have_their_nodes_do_not_look_at_all_new_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """E10: hundreds of gangs with requests, and thousands of new nodes, delay no turn."""
    world = World(rules=provisioning_rules())
    scaler = Autoscaler(world, 0)
    for number in range(20):
        waiting(world, 2, f"g{number}")

    scaler.run(14)
    scaler.answers = False
    for key in scaler.requests:
        scaler.say(key, ProvisioningState.PROVISIONED)

    world.add_nodes(*(new_node(world, f"first-{number}") for number in range(20)))
    for _ in range(4):
        world.state.asks.due(world.now_s, world.wall_s())

    looked: list[str] = []
    is_empty = AddedNodes._is_empty

    def counted(self: AddedNodes, name: str) -> bool:
        looked.append(name)
        return is_empty(self, name)

    monkeypatch.setattr(AddedNodes, "_is_empty", counted)
    world.add_nodes(*(new_node(world, f"more-{number}") for number in range(100)))
    for _ in range(4):
        world.state.asks.due(world.now_s, world.wall_s())

    fences = world.state.asks.fenced(world.now_s)
    assert [len(fence.nodes) for fence in fences] == 20 * [2]
    assert len(looked) == 20, "those that still lacked nodes looked at two each"
