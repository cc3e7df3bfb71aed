"""Trees of more than two levels: composites of composites, each with its minimum, its domains and
its unit (I9).
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from gangsched.api import keys
from gangsched.model.objects import Node, Pod, PodGroup
from gangsched.model.reasons import Reason
from gangsched.state import parents
from tests.builders import members, node, pod, pod_group
from tests.unit.core.test_trees import reason, started, started_pods, told
from tests.world import World

pytestmark = pytest.mark.usefixtures("no_wait_for_a_minimum")


def composite(
    name: str, parent: str = "", least: int | None = None, *levels: str, **fields: Any
) -> PodGroup:
    """The PodGroup of a composite: the parent that it names, its minimum of children, the levels
    that it requires.
    """
    stated = {keys.PARENT[0]: parent, keys.MIN_CHILDREN[0]: "" if least is None else str(least)}
    stated[keys.TOPOLOGY[0]] = ",".join(levels)
    metadata = tuple((key, value) for key, value in sorted(stated.items()) if value)
    return pod_group(name, None, uid=f"composite-{name}", gang_metadata=metadata, **fields)


def gang(name: str, parent: str, number: int = 2, **fields: Any) -> list[Pod]:
    """A gang of pods of 4 GPUs each, two of which fill a node."""
    return members(name, number, parent=parent, **{"gpus": 4, **fields})


def service(replicas: int, least: int, **fields: Any) -> tuple[list[PodGroup], list[Pod]]:
    """Replicas of a leader's gang and its workers', of which a minimum starts."""
    groups = [composite("svc", "", least), *(composite(f"r{n}", "svc") for n in range(replicas))]
    pods = [
        each
        for n in range(replicas)
        for role in "lw"
        for each in gang(f"r{n}{role}", f"r{n}", **fields)
    ]
    return groups, pods


def test_whole_replicas_of_two_roles_start_and_a_further_one_later() -> None:
    """G5: two of three replicas, each of two gangs; a replica never starts with one of
    its roles.
    """
    world = World(*(node(f"n{n}") for n in range(3)))
    groups, pods = service(3, 2)
    world.declare(*groups)
    world.create(pods)
    assert started(world.settle()) == set()
    assert "needs 2 pods of 4 nvidia.com/gpu" in told(world, "r0l")
    world.add_nodes(node("n3"))
    assert started(world.settle()) == {"r0l", "r0w", "r1l", "r1w"}
    world.add_nodes(node("n4"))
    assert started(world.settle()) == {"r0l", "r0w", "r1l", "r1w"}
    world.add_nodes(node("n5"))
    assert len(started(world.settle())) == 6


def test_a_composite_that_lacks_a_ready_child_is_left_out() -> None:
    """G4: two of three replicas are enough; the gang of the third waits for its sibling, and is
    told so.
    """
    world = World(*(node(f"n{n}") for n in range(8)))
    groups, pods = service(3, 2)
    world.declare(*groups)
    world.create([each for each in pods if each.name != "r0w-1"])
    assert started(world.settle()) == {"r1l", "r1w", "r2l", "r2w"}
    assert (
        told(world, "r0l")
        == "waiting for children of ns/r0: 1 of 2 needed children is ready; gang ns/r0w: 1 of 2 are"
        " ready; 1 is missing"
    )
    world.create([each for each in pods if each.name == "r0w-1"])
    assert len(started(world.settle())) == 6


def test_what_a_tree_lacks_is_told_level_by_level() -> None:
    """M2: the root names its composite, and that one its gang."""
    world = World(*(node(f"n{n}") for n in range(8)))
    groups, pods = service(2, 2)
    world.declare(*groups)
    world.create([each for each in pods if each.name != "r0w-1"])
    assert started(world.settle()) == set()
    assert (
        told(world, "r1l") == "waiting for children of ns/svc: 1 of 2 needed children is ready; "
        "ns/r0: 1 of 2 needed children is ready; gang ns/r0w: 1 of 2 are ready; 1 is missing"
    )
    assert reason(world, "r1l") is Reason.WAITING_FOR_GANG


def test_a_choice_inside_a_composite_is_found() -> None:
    """L14: each replica needs one of two kinds of workers, and only one of each fits beside the
    leaders.
    """
    world = World(node("a"), node("b"))
    world.declare(composite("svc", "", 2), composite("r0", "svc", 1), composite("r1", "svc", 1))
    world.create(
        gang("r0a", "r0", gpus=9), gang("r0b", "r0"), gang("r1a", "r1", gpus=9), gang("r1b", "r1")
    )
    assert started(world.settle()) == {"r0b", "r1b"}


def test_no_choice_of_inner_children_is_told_once_none_fits() -> None:
    """L14, M2: what fits by itself, but not beside its sibling, is refused with the number of
    choices.
    """
    world = World(node("a"))
    world.declare(composite("svc", "", 2), composite("r0", "svc", 1), composite("r1", "svc", 1))
    world.create(
        gang("r0a", "r0", gpus=3), gang("r0b", "r0"), gang("r1a", "r1", gpus=3), gang("r1b", "r1")
    )
    assert started(world.settle()) == set()
    assert told(world, "r0b").startswith(
        "no 2 of the 2 ready children of ns/svc fit together. Gang ns/r"
    )
    world.add_nodes(node("b", 6))
    assert len(started(world.settle())) == 2


def racks(*sizes: int, zones: str = "") -> list[Node]:
    """A rack of one node for each of these sizes, in these zones."""
    return [
        node(
            f"n{number}",
            gpus,
            labels={"rack": f"r{number}", "zone": zones[number] if zones else "z"},
        )
        for number, gpus in enumerate(sizes)
    ]


def test_each_composite_has_its_own_domain() -> None:
    """L4: each replica is in one rack, whose nodes hold both of its gangs; B2 does not ask for one
    rack of both.
    """
    nodes = [node(f"{rack}{n}", labels={"rack": rack}) for rack in "abc" for n in range(2)]
    world = World(*nodes)
    world.declare(
        composite("svc", "", 3), *(composite(f"r{n}", "svc", None, "rack") for n in range(3))
    )
    world.create(*(gang(f"r{n}{role}", f"r{n}") for n in range(3) for role in "lw"))
    assert len(started(world.settle())) == 6
    used = {
        n: {world.bound()[f"r{n}{role}-{m}"][0] for role in "lw" for m in range(2)}
        for n in range(3)
    }
    assert all(len(rack) == 1 for rack in used.values())
    assert len(set.union(*used.values())) == 3


def test_a_composite_is_packed_into_one_rack() -> None:
    """L13: the worker of the first replica fits best on another node than the one in its leader's
    rack.
    """
    sizes = {"c": ("c", 2), "z8": ("z", 8), "z2": ("z", 2)}
    world = World(
        *(node(name, gpus, labels={"rack": rack}) for name, (rack, gpus) in sizes.items())
    )
    world.declare(
        composite("svc", "", 2), composite("r0", "svc", None, "rack"), composite("r1", "svc")
    )
    world.create(
        gang("r0w", "r0", 1, gpus=2), gang("r0x", "r0", 1, gpus=8), gang("r1w", "r1", 1, gpus=2)
    )
    world.settle()
    assert world.bound() == {"r0w-0": "z2", "r0x-0": "z8", "r1w-0": "c"}


def test_nested_domains_are_searched_together() -> None:
    """L13: of two zones only one has room for the replica that needs two whole racks; the others
    must go elsewhere.
    """
    nodes = racks(8, 8, 8, 16, 8, zones="aabbb")
    world = World(*nodes)
    world.declare(
        composite("svc", "", 2), *(composite(f"r{n}", "svc", None, "zone") for n in range(2))
    )
    world.create(gang("r0l", "r0", topology="rack"), gang("r0w", "r0", topology="rack"))
    world.create(gang("r1l", "r1", topology="rack"), gang("r1w", "r1", gpus=8, topology="rack"))
    assert len(started(world.settle())) == 4
    assert {world.bound()[f"r1w-{n}"] for n in range(2)} == {"n3"}
    zone = {each.name: each.labels["zone"] for each in nodes}
    assert len({zone[world.bound()[f"r0{role}-0"]] for role in "lw"}) == 1


def test_a_later_member_joins_the_domain_of_each_composite_around_it() -> None:
    """L8: a gang that comes later starts in the rack of its composite, though another rack is
    empty.
    """
    world = World(*(node(f"{rack}{n}", labels={"rack": rack}) for rack in "ab" for n in range(2)))
    world.declare(composite("svc", "", 1), composite("r0", "svc", 1, "rack"))
    world.create(gang("r0l", "r0"))
    assert started(world.settle()) == {"r0l"}
    rack = world.bound()["r0l-0"][0]
    world.create(gang("r0w", "r0"), gang("r0x", "r0"))
    assert len(started(world.settle())) == 2
    assert {each[0] for each in world.bound().values()} == {rack}
    waits = "r0x" if "r0w-0" in world.bound() else "r0w"
    assert f"rack={rack}" in told(world, waits)


def test_a_lost_gang_comes_back_into_its_composite() -> None:
    """G7, L8: a replica that lost one of its roles is healed by itself, in its rack, before a
    further replica.
    """
    world = World(*(node(f"{rack}{n}", labels={"rack": rack}) for rack in "abc" for n in range(2)))
    world.declare(
        composite("svc", "", 2), *(composite(f"r{n}", "svc", None, "rack") for n in range(2))
    )
    pods = world.create(*(gang(f"r{n}{role}", f"r{n}") for n in range(2) for role in "lw"))
    assert len(started(world.settle())) == 4
    rack = world.bound()["r0l-0"][0]
    world.delete(*(each for each in pods if each.name.startswith("r0w")))
    world.create(gang("r0w", "r0"))
    assert len(started(world.settle())) == 4
    assert {world.bound()[f"r0w-{n}"][0] for n in range(2)} == {rack}


def test_a_lost_gang_comes_before_a_further_replica() -> None:
    """G7: the room that it left would do for another replica, which is in the queue for longer."""
    world = World(*(node(f"n{n}") for n in range(3)))
    groups, pods = service(2, 1)
    world.declare(*groups)
    created = {each.name: each for each in world.create(pods)}
    (whole,) = {each[:2] for each in started(world.settle())}
    world.delete(created[f"{whole}w-0"], created[f"{whole}w-1"])
    world.create(gang(f"{whole}w", whole))
    assert started(world.settle()) == {f"{whole}l", f"{whole}w"}


def test_a_surplus_waits_for_the_minimum_of_the_whole_tree() -> None:
    """G5: members above a gang's minimum, and children above a composite's, cost no part its
    minimum.
    """
    world = World(node("a", 12))
    world.declare(composite("svc", "", 2), composite("r0", "svc", 1), composite("r1", "svc", 1))
    world.create(
        gang("r0a", "r0", 4, min_member=1), gang("r0b", "r0", 1), gang("r1a", "r1", 2, min_member=1)
    )
    world.settle()
    bound = world.bound()
    assert {"r0a-0", "r0b-0", "r1a-0"} == set(bound), bound


def test_children_of_a_composite_without_a_minimum_start_by_themselves() -> None:
    """G1: with 0 each child starts alone, and none of them holds up the tree."""
    world = World(node("a"), node("b", 4))
    world.declare(composite("svc", "", 2), composite("r0", "svc", 0))
    world.create(gang("r0a", "r0", gpus=9), gang("r0b", "r0"), gang("main", "svc", 1))
    assert started_pods(world.settle()) == {"main", "r0b"}


@pytest.mark.parametrize("levels", [3, 4])
def test_a_tree_has_up_to_four_levels(levels: int) -> None:
    """G3: composites above each other; the gang below all of them waits for a gang beside the
    topmost one.
    """
    world = World(node("a"))
    names = [f"c{n}" for n in range(levels - 1)]
    world.declare(
        *(composite(name, parent) for name, parent in zip(names, ["", *names], strict=False))
    )
    world.create(gang("deep", names[-1], 1))
    assert started_pods(world.settle()) == {"deep"}
    world = World(node("a"))
    world.declare(
        *(
            composite(name, parent, 2 * (not parent))
            for name, parent in zip(names, ["", *names], strict=False)
        )
    )
    world.create(gang("deep", names[-1], 1))
    assert started_pods(world.settle()) == set()
    world.create(gang("top", names[0], 1))
    assert started_pods(world.settle()) == {"deep", "top"}


def test_five_levels_are_refused_on_every_gang_until_one_goes() -> None:
    """G3: also on those that are less deep; others start, and the tree does once a level is taken
    out.
    """
    world = World(node("a"), node("b"), node("c"))
    world.declare(
        composite("c0"), composite("c1", "c0", 1), composite("c2", "c1"), composite("c3", "c2")
    )
    world.create(gang("deep", "c3", 1), gang("top", "c0", 1), gang("other", "elsewhere", 1))
    assert started_pods(world.settle()) == {"other"}
    for name in ("deep", "top"):
        assert reason(world, name) is Reason.INVALID_GANG
        assert "a tree has at most 4 levels" in told(world, name)
    world.declare(composite("c3", "c1", generation=2))
    assert started_pods(world.settle()) == {"other", "deep", "top"}


def test_a_circle_of_composites_refuses_what_is_below_it() -> None:
    """G3: the circle is named, and ends when one of them names another parent."""
    world = World(node("a"))
    world.declare(composite("c0", "c1", 1), composite("c1", "c2"), composite("c2", "c0"))
    world.create(gang("r0", "c0", 1))
    assert started_pods(world.settle()) == set()
    assert (
        told(world, "r0")
        == "the parents of gang ns/r0 form a circle: ns/c0 → ns/c1 → ns/c2 → ns/c0"
    )
    world.declare(composite("c1", "", generation=2))
    assert started_pods(world.settle()) == {"r0"}


def test_a_composite_moves_to_another_tree_with_all_below_it() -> None:
    """I5: the first tree lacks it from then on, and the second one has it; a parent that goes makes
    it a root.
    """
    world = World(*(node(f"n{n}") for n in range(8)))
    world.declare(
        composite("one", "", 2),
        composite("two", "", 2),
        composite("r0", "one"),
        composite("r1", "two"),
    )
    world.create(gang("r0l", "r0"), gang("r0w", "r0"), gang("r1l", "r1"), gang("r1w", "r1"))
    assert started(world.settle()) == set()
    world.declare(composite("r0", "two", generation=2))
    assert len(started(world.settle())) == 4
    assert world.state.registry.group_of["ns/r0w"] == "tree:ns/two"
    world.withdraw(composite("two", "", 2))
    world.settle()
    world.withdraw(composite("r0", "two", generation=2))
    world.settle()
    assert world.state.registry.group_of["ns/r0w"] == "tree:ns/r0"
    assert len(started(world)) == 4


def test_a_composite_that_gets_pods_is_no_composite() -> None:
    """G3: its children are refused, and come back when the pods go."""
    world = World(*(node(f"n{n}") for n in range(4)))
    world.declare(
        composite("svc", "", 1), pod_group("r0", 1, gang_metadata=((keys.PARENT[0], "svc"),))
    )
    pods = world.create(members("r0", 1, pod_group=True, gpus=4))
    world.create(gang("r0l", "r0", 1))
    assert started_pods(world.settle()) == {"r0"}
    assert "ns/r0, the parent of gang ns/r0l, has pods itself" in told(world, "r0l")
    world.delete(*pods)
    assert "r0l-0" in world.settle().bound()
    assert world.state.registry.group_of["ns/r0l"] == "tree:ns/svc"


def test_all_gangs_of_a_deep_tree_count_towards_the_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """G3: gangs of all levels; without the one too many, those that are left start together."""
    monkeypatch.setattr(parents, "MOST_GANGS", 4)
    world = World(*(node(f"n{n}") for n in range(8)))
    groups, pods = service(2, 2)
    world.declare(*groups)
    world.create(pods)
    extra = world.create(gang("extra", "svc", 1))
    assert started_pods(world.settle()) == set()
    assert told(world, "r0l") == "more than 4 gangs are in the tree of ns/svc"
    world.delete(*extra)
    assert len(started(world.settle())) == 4


def test_a_whole_replica_above_the_minimum_is_evicted_before_the_tree() -> None:
    """G10: both gangs of one replica go together for a gang that needs a node; the other replica
    runs on.
    """
    world = World(*(node(f"n{n}") for n in range(4)), preempts=True)
    groups, pods = service(2, 1, priority=-10)
    world.declare(*groups)
    world.create(pods)
    assert len(started(world.settle())) == 4
    world.create(pod("urgent", gpus=8, priority=10))
    for _ in range(10):
        world.settle()
        world.advance(40)
    left = started(world, besides={"urgent"})
    assert left in ({"r0l", "r0w"}, {"r1l", "r1w"})
    assert "urgent" in world.bound()


@pytest.mark.parametrize("seed", range(4))
def test_no_part_rests_between_none_and_its_minimum(seed: int) -> None:
    """G6, G10: rooms, deaths, lowered minimums and urgent pods, at random; every part that runs has
    its minimum.
    """
    dice = random.Random(seed)
    world = World(*(node(f"n{n}") for n in range(dice.randint(2, 6))), preempts=True)
    groups, pods = service(3, dice.randint(1, 3), priority=-10)
    world.declare(*groups)
    world.create(pods)
    for step in range(8):
        kind = dice.random()
        if kind < 0.3:
            world.add_nodes(node(f"m{step}", dice.choice((4, 8))))
        elif kind < 0.5:
            world.create(pod(f"urgent-{step}", gpus=dice.choice((4, 8)), priority=10))
        elif kind < 0.6:
            world.declare(composite("svc", "", dice.randint(1, 2), generation=step + 2))
        for _ in range(3):
            world.settle()
            world.advance(40)
        roles = started(world, besides={"urgent"})
        whole = {n for n in range(3) if {f"r{n}l", f"r{n}w"} <= roles}
        assert len(roles) == 2 * len(whole), (seed, step, world.bound())
