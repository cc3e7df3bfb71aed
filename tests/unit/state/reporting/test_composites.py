"""CompositePodGroups in the daemon: trees of native PodGroups start whole, and each composite says
so (I9, E3).
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gangsched.api import keys
from gangsched.api.podgroup import parse_pod_group
from gangsched.model.objects import Pod, PodGroup
from gangsched.model.protocol import RecordEvent, Replaced, SetPodGroupStatus, Unread
from gangsched.model.reasons import Reason
from tests.builders import NAMESPACE, node, pod
from tests.unit.api.dialects.test_native import RACK, body, composite, native
from tests.unit.core.test_trees import reason, started, started_pods, told
from tests.world import World


def members(name: str, number: int = 2, **fields: Any) -> list[Pod]:
    """Pods of a native PodGroup, two of which fill a node."""
    return [pod(f"{name}-{n}", native_group=name, **{"gpus": 4, **fields}) for n in range(number)]


def status(world: World, name: str, kind: str = "CompositePodGroup") -> tuple[str, str, str]:
    """Status, reason and message of the condition that was written last."""
    orders = [
        each for each in world.reports if isinstance(each, SetPodGroupStatus) and each.name == name
    ]
    of_kind = [
        each
        for each in orders
        if (each.api_group == keys.COMPOSITE) == (kind == "CompositePodGroup")
    ]
    conditions: Any = of_kind[-1].status["conditions"]
    (found,) = [each for each in conditions if each["type"] == f"{kind}InitiallyScheduled"]
    return found["status"], found["reason"], found["message"]


def test_a_minimum_of_children_starts_whole_and_a_further_one_later() -> None:
    """G5, scenario 14: also where children come before their parent."""
    world = World(node("a"), node("b"), node("c", 4))
    world.declare(native("a"), native("b"), native("c"))
    world.create(members("a"), members("b"), members("c"))
    assert started(world.settle()) == set()
    assert (
        told(world, "a")
        == "composite ns/svc, which gang ns/a names as its parent, does not exist yet"
    )
    assert reason(world, "a") is Reason.WAITING_FOR_GANG
    world.declare(composite(least=2))
    assert len(started(world.settle().told())) == 2
    assert status(world, "svc") == (
        "True",
        "Scheduled",
        "2 of 3 groups are scheduled; at least 2 needed",
    )
    world.add_nodes(node("d", 4))
    assert len(started(world.settle())) == 3


def test_nested_composites_wait_whole_and_tell_why() -> None:
    """M5: the inner one that lacks a gang says so, and so does the outer one that lacks the inner
    one.
    """
    world = World(*(node(f"n{n}") for n in range(4)))
    world.declare(composite("all", 2), composite("one", 2, "all"), composite("two", 1, "all"))
    world.declare(native("a", parent="one"), native("b", parent="one"), native("c", parent="two"))
    world.create(members("a"), members("c"))
    assert started(world.settle().told()) == set()
    assert status(world, "one")[:2] == ("False", "WaitingForGang")
    assert "gang ns/b: 0 of 2 are ready" in status(world, "one")[2]
    assert status(world, "all")[:2] == ("False", "WaitingForGang")
    world.create(members("b"))
    assert len(started(world.settle().told())) == 3
    assert {status(world, name)[:2] for name in ("all", "one", "two")} == {("True", "Scheduled")}


def test_initially_scheduled_stays_true() -> None:
    """KEP-6012: also once pods are gone; nothing is written any more."""
    world = World(node("a"))
    world.declare(composite(least=1), native("a"))
    pods = world.create(members("a"))
    world.settle().told()
    stored = msgspec.structs.replace(
        composite(least=1), status=written(world, "svc"), resource_version="2"
    )
    world.declare(stored)
    world.delete(*pods)
    world.reports.clear()
    world.create(members("a", gpus=16))
    world.settle().told()
    assert not [
        each for each in world.reports if isinstance(each, SetPodGroupStatus) and each.name == "svc"
    ]


def written(world: World, name: str) -> dict[str, object]:
    """The status that was written last."""
    orders = [
        each for each in world.reports if isinstance(each, SetPodGroupStatus) and each.name == name
    ]
    return dict(orders[-1].status)


def test_levels_of_each_composite_hold() -> None:
    """L4: a rack for each replica, and the zone of the whole."""
    world = World(*(node(f"{zone}{rack}{n}", labels={"zone": zone, RACK: zone + rack})
                    for zone, rack in ("xp", "yq", "yr") for n in range(2)))  # fmt: skip
    racks = {"schedulingConstraints": {"topology": [{"key": RACK}]}}
    world.declare(composite("svc", 2, schedulingConstraints={"topology": [{"key": "zone"}]}))
    world.declare(*(composite(f"r{n}", 2, "svc", **racks) for n in range(2)))
    world.declare(*(native(f"r{n}{role}", parent=f"r{n}") for n in range(2) for role in "lw"))
    world.create(*(members(f"r{n}{role}") for n in range(2) for role in "lw"))
    assert len(started(world.settle())) == 4
    used = [
        {world.bound()[f"r{n}{role}-{m}"][:2] for role in "lw" for m in range(2)} for n in range(2)
    ]
    assert sorted(map(sorted, used)) == [["yq"], ["yr"]]


def test_a_faulty_tree_is_invalid_on_every_composite() -> None:
    """G3: a circle; the reason is the one that Kubernetes defines, and others start."""
    world = World(node("a"))
    world.declare(
        composite("one", 1, "two"),
        composite("two", 1, "one"),
        native("a", parent="one"),
        native("b", parent=""),
    )
    world.create(members("a", 1), members("b", 2, gpus=1))
    assert started_pods(world.settle().told()) == {"b"}
    assert reason(world, "a") is Reason.INVALID_GANG
    assert status(world, "one")[:2] == ("False", "Invalid")
    assert status(world, "two")[:2] == ("False", "Invalid")
    world = World(node("a"))
    world.declare(
        parse_pod_group(body("CompositePodGroup", "svc", {"schedulingPolicy": {}})), native("a")
    )
    world.create(members("a"))
    assert started(world.settle().told()) == set()
    assert status(world, "svc")[1] == "Invalid"
    assert "neither basic nor" in told(world, "a")


@pytest.mark.parametrize("is_forbidden", [False, True])
def test_a_kind_that_cannot_be_read_is_told_and_later_read(is_forbidden: bool) -> None:
    """A1: without a restart."""
    world = World(node("a"))
    world.say(Unread(PodGroup, keys.COMPOSITE, is_forbidden))
    world.declare(native("a"))
    world.create(members("a"))
    assert started(world.settle()) == set()
    assert reason(world, "a") is Reason.UNSUPPORTED
    assert (
        "no permission to read" if is_forbidden else "does not serve CompositePodGroups"
    ) in told(world, "a")
    world.say(Replaced(PodGroup, (composite(least=1),), keys.COMPOSITE))
    assert started(world.settle()) == {"a"}
    world.say(Replaced(PodGroup, (), keys.COMPOSITE))
    world.create(members("a", 1, uid="more"))
    world.settle()
    assert f"{NAMESPACE}/a" in world.state.registry.group_of


def test_a_pod_group_may_have_the_name_of_its_composite() -> None:
    """They are two kinds of objects."""
    world = World(node("a"))
    world.declare(composite(least=1), native("svc"))
    world.create(members("svc"))
    assert started(world.settle().told()) == {"svc"}
    assert status(world, "svc")[0] == status(world, "svc", "PodGroup")[0] == "True"


def test_a_composite_without_children_is_waited_for() -> None:
    """G4: its minimum is missing until a PodGroup names it."""
    world = World(node("a"), node("b"))
    world.declare(
        composite("all", 2),
        composite("one", 1, "all"),
        composite("two", 1, "all"),
        native("a", parent="one"),
    )
    world.create(members("a"))
    assert started(world.settle()) == set()
    assert "composite ns/two: 0 of 1 needed child is ready; 1 is missing" in told(world, "a")
    world.declare(native("b", parent="two"))
    world.create(members("b"))
    assert started(world.settle()) == {"a", "b"}


def test_a_priority_without_effect_is_told_once() -> None:
    """A2, G11."""
    world = World(node("a"))
    world.declare(composite(least=1, priority=7), native("a"))
    world.create(members("a"))
    for _ in range(3):
        world.settle().told()
    said = [
        each for each in world.reports if isinstance(each, RecordEvent) and each.reason == "NotUsed"
    ]
    assert [(each.regarding.kind, each.regarding.name) for each in said] == [
        ("CompositePodGroup", "svc")
    ]
