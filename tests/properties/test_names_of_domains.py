"""Racks that are named alike in every zone: a required domain is the rack together with its zone
(docs/placement.md, B2).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from gangsched.api import keys
from gangsched.model.gpu_policy import TOPOLOGY_KEYS
from gangsched.model.inter_pod import InterPodConstraints, PodTerm, Requirement
from gangsched.model.objects import Node, Pod
from gangsched.model.reasons import Reason
from tests.builders import gang_metadata, members, node, pod, pod_group, shape
from tests.world import World

_, RACK, ZONE = TOPOLOGY_KEYS


def at(name: str, zone: str, rack: str) -> Node:
    """A node of 8 GPUs; without a zone if that is empty."""
    labels = {RACK: rack, ZONE: zone} if zone else {RACK: rack}
    return node(name, 8, labels=labels)


# Each name of a rack is in two zones, and only rack r2 of zone y has two nodes.
TORN = (at("a", "x", "r1"), at("b", "y", "r1"), at("e", "x", "r2"))
WHOLE = (at("c", "y", "r2"), at("d", "y", "r2"))


def required(world: World) -> list[Pod]:
    """A gang in one rack."""
    return world.create(members("g", 2, gpus=8, topology=RACK))


def a_slice(world: World) -> list[Pod]:
    """A gang of one slice of two members."""
    layers = json.dumps([{"size": 2, "topology": RACK}])
    stated = (*gang_metadata("g", min_member=2), (keys.SLICES[0], layers))
    return world.create([pod(f"g-{n}", gpus=8, gang_metadata=stated) for n in range(2)])


def a_tree(world: World) -> list[Pod]:
    """A tree in one rack, with two children of one member."""
    world.declare(pod_group("svc", None, gang_metadata=((keys.TOPOLOGY[0], RACK),)))
    children = (members(name, 1, gpus=8, parent="svc", min_children=2) for name in "gh")
    return world.create(*children)


GROUPS: list[Callable[[World], list[Pod]]] = [required, a_slice, a_tree]


@pytest.mark.parametrize("create", GROUPS)
def test_a_required_rack_is_in_one_zone(create: Callable[[World], list[Pod]]) -> None:
    """C6: two members get the nodes of the one rack that has two, and not one of each of the racks
    with a name.
    """
    world = World(*TORN, *WHOLE)
    create(world)
    assert sorted(world.settle().bound().values()) == ["c", "d"]


@pytest.mark.parametrize("create", GROUPS)
def test_racks_of_one_name_are_no_rack(create: Callable[[World], list[Pod]]) -> None:
    """C6: where only those are free, the members wait, and start once their rack has room."""
    world = World(*TORN, *(node(n.name, 8, labels=n.labels, unschedulable=True) for n in WHOLE))
    created = create(world)
    assert world.settle().bound() == {}
    assert all(where == "" for where in [world.pods[each.uid].node_name for each in created])
    assert not world.told().events(Reason.INTERNAL_ERROR.value)

    world.add_nodes(*WHOLE)
    assert sorted(world.settle().bound().values()) == ["c", "d"]


@pytest.mark.parametrize("create", GROUPS)
def test_a_clique_of_two_racks_is_one_domain(create: Callable[[World], list[Pod]]) -> None:
    """A label is finer than a later one only where one domain of that has several of its values;
    a clique that is all of two racks is as large as both (docs/placement.md).
    """
    racks = [node(name, 8, labels={ZONE: f"z-{name}", RACK: "wide"}) for name in "ab"]
    world = World(*racks)
    create(world)
    assert sorted(world.settle().bound().values()) == ["a", "b"]


@pytest.mark.parametrize("create", GROUPS)
def test_where_neither_label_contains_the_other_a_domain_is_in_both(
    create: Callable[[World], list[Pod]],
) -> None:
    """Beside a zone with two racks, a name in two zones is of two racks, although each of these
    zones has no other (docs/placement.md).
    """
    world = World(at("a", "x", "r1"), at("b", "y", "r1"), at("c", "z", "r2"), at("d", "z", "r3"))
    created = create(world)
    assert world.settle().told().bound() == {}
    _, message = world.condition(created[0])
    assert RACK in message
    assert ZONE in message


def test_a_lost_member_is_replaced_in_its_own_rack() -> None:
    """C6, L3: beside the member that is left, and not in the other rack with its name."""
    world = World(*WHOLE, at("f", "x", "r2"), at("h", "x", "r1"), at("i", "y", "r1"))
    (lost, _) = required(world)
    assert sorted(world.settle().bound().values()) == ["c", "d"]

    where = world.pods[lost.uid].node_name
    world.add_nodes(node(where, 8, labels={RACK: "r2", ZONE: "y"}, unschedulable=True))
    world.delete(lost)
    world.create(members("g", 1, first=2, gpus=8, topology=RACK))
    assert set(world.settle().bound()) == {"g-1"}

    world.add_nodes(node(where, 8, labels={RACK: "r2", ZONE: "y"}))
    assert world.settle().bound()["g-2"] == where


def test_affinity_means_its_label_alone() -> None:
    """kube-scheduler compares the values of one label: members near each other may be in racks of
    one name.
    """
    world = World(*TORN, at("f", "x", "r3"))
    term = PodTerm(RACK, (Requirement("app", "In", ("g",)),))
    near = shape(8, inter_pod=InterPodConstraints(affinity=(term,)))
    fields: dict[str, Any] = {
        "labels": {"app": "g"},
        "gang_metadata": gang_metadata("g", min_member=2),
    }
    world.create([pod(f"g-{n}", of=near, **fields) for n in range(2)])
    assert sorted(world.settle().bound().values()) == ["a", "b"]


def test_a_node_without_a_zone_is_in_a_rack() -> None:
    """C6: the zone only tells racks apart; nodes that lack it are racks of their own."""
    world = World(*TORN, at("f", "y", "r3"), at("n", "", "r2"), at("m", "", "r2"))
    required(world)
    assert sorted(world.settle().bound().values()) == ["m", "n"]


def test_other_labels_are_used_as_they_are() -> None:
    """A label that is none of the setting `topology_keys` says nothing about zones."""
    world = World(*(node(n.name, 8, labels={"row": n.labels[RACK], **n.labels}) for n in TORN))
    world.create(members("g", 2, gpus=8, topology="row"))
    assert sorted(world.settle().bound().values()) == ["a", "b"]
