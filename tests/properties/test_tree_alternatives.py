"""Trees whose minimum can be reached in several ways, or needs nothing: one way is used, nobody is
left out (I9).
"""

from __future__ import annotations

import random
from collections import Counter

import pytest

from gangsched.api import keys
from gangsched.model.objects import Pod, PodGroup
from gangsched.model.reasons import Reason
from gangsched.sentences import say
from gangsched.state.parents import MINIMUM_WAIT_S
from tests.builders import gang_metadata, members, node, pod, pod_group, running
from tests.sizes import of_size
from tests.world import World

RACK = "example.com/rack"


def composite(
    name: str, parent: str = "", least: int | None = None, topology: str = ""
) -> PodGroup:
    """A PodGroup that is a parent, and perhaps a child."""
    stated = [
        (keys.PARENT[0], parent),
        (keys.MIN_CHILDREN[0], "" if least is None else str(least)),
        (keys.TOPOLOGY[0], topology),
    ]
    return pod_group(
        name, None, gang_metadata=tuple((key, value) for key, value in stated if value)
    )


def child(name: str, parent: str, gpus: list[int], least: int, topology: str = "") -> list[Pod]:
    """The members of a gang, with so many GPUs each."""
    stated = gang_metadata(name, min_member=least, parent=parent, topology=topology)
    return [
        pod(f"{name}-{index}", gpus=number, gang_metadata=stated)
        for index, number in enumerate(gpus)
    ]


def racks(*gpus: int) -> World:
    """Nodes with so many GPUs each, in turn in two racks."""
    return World(
        *(node(f"n{at}", number, labels={RACK: f"r{at % 2}"}) for at, number in enumerate(gpus))
    )


@pytest.mark.parametrize("topology", ["", RACK])
def test_two_of_three_members_of_different_sizes_are_packed_once(topology: str) -> None:
    """Each choice of two of 1, 1 and 2 GPUs is an alternative for the minimum, of which a packing
    opens one.
    """
    world = racks(1, 4, 2, 2)
    world.declare(composite("svc", least=2))
    world.create(child("x", "svc", [1, 1, 2], 2, RACK), child("y", "svc", [3, 1], 2, topology))
    bound = [name.partition("-")[0] for name in world.advance(MINIMUM_WAIT_S).bound()]
    assert Counter(bound) == {"x": 2, "y": 2}


def test_a_child_without_a_minimum_starts_by_itself() -> None:
    """root(1) > c1(1) > c2(0) > g: nothing is needed, so g starts as soon as it fits."""
    world = World(node("n", 8))
    world.declare(composite("root", least=1), composite("c1", "root", 1), composite("c2", "c1", 0))
    world.create(members("g", 2, parent="c2"))
    assert set(world.advance(MINIMUM_WAIT_S).bound()) == {"g-0", "g-1"}


def test_a_part_that_needs_nothing_in_a_required_domain_is_packed_beside_others() -> None:
    """A composite with a minimum of 0 and a rack of its own, beside children that are packed."""
    world = racks(4, 4, 4, 4)
    world.declare(composite("svc", least=3), composite("z", "svc", 0, RACK))
    world.create(
        child("a", "svc", [4, 4], 2, RACK),
        child("b", "svc", [3, 3], 2, RACK),
        child("c", "z", [1], 1),
    )
    assert set(world.advance(MINIMUM_WAIT_S).bound()) == {"a-0", "a-1", "b-0", "b-1", "c-0"}


def test_a_child_below_a_part_that_needs_nothing_is_told_its_own_reason() -> None:
    """It waits for the minimum of the tree, and does not lack the room that its sibling lacks."""
    world = World(node("n", 8))
    world.declare(composite("root", least=2), composite("z", "root", 0))
    world.create(members("a", 2, parent="z"), members("b", 2, parent="root", gpus=8))
    assert world.advance(MINIMUM_WAIT_S).bound() == {}
    verdict = world.verdict("tree:ns/root")
    assert verdict.of_gang("ns/b").reason is Reason.UNSCHEDULABLE
    assert verdict.of_gang("ns/a").reason is Reason.WAITING_FOR_GANG
    assert "waits for its sibling ns/b" in say(verdict.of_gang("ns/a")).text
    world.add_nodes(node("m", 8))
    assert set(world.advance(MINIMUM_WAIT_S).bound()) == {"b-0", "b-1"}


def test_room_for_another_child_wakes_a_tree_of_which_one_was_refused() -> None:
    """The small child leaves its node to the refused one when it finds room elsewhere, without a
    sweep.
    """
    world = racks(4, 1)
    other = running(pod("other", scheduler_name="default-scheduler"), "n1")
    world.create(other)
    world.declare(composite("svc", least=2))
    world.create(child("a", "svc", [1], 1, RACK), child("b", "svc", [4], 1, RACK))
    world.advance(MINIMUM_WAIT_S + 30)
    world.delete(other)
    assert world.settle().bound() == {"a-0": "n1", "b-0": "n0"}


def random_tree(dice: random.Random, world: World, parent: str, depth: int = 1) -> None:
    """Declare one to three children of a parent, gangs or composites, with minimums of 0
    and more.
    """
    for _ in range(dice.randint(1, 3)):
        name = f"p{len(world.pod_groups)}x{len(world.pods)}"
        if depth < 3 and dice.random() < 0.45:
            world.declare(
                composite(name, parent, dice.choice([0, 1, 1, 2]), dice.choice(["", "", RACK]))
            )
            random_tree(dice, world, name, depth + 1)
        else:
            gpus = [dice.choice([1, 1, 2, 3]) for _ in range(dice.randint(1, 3))]
            topology = dice.choice(["", "", RACK])
            world.create(child(name, parent, gpus, dice.randint(0, len(gpus)), topology))


@pytest.mark.long
@pytest.mark.parametrize("part", range(5))
def test_no_tree_raises_or_is_refused_by_the_verifier(part: int) -> None:
    """A `World` raises what is raised for a group, and what the verifier objects to."""
    number = of_size(40, 4_000)
    for seed in range(part * number, (part + 1) * number):
        dice = random.Random(seed)
        world = racks(*(dice.choice([2, 3, 4, 6, 8]) for _ in range(dice.randint(2, 5))))
        world.declare(
            composite("svc", least=dice.choice([0, 1, 2, 2, 3]), topology=dice.choice(["", RACK]))
        )
        random_tree(dice, world, "svc")
        try:
            world.advance(MINIMUM_WAIT_S).advance(MINIMUM_WAIT_S)
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error


@pytest.mark.parametrize("gap_s", [0.0, 0.3, 0.9, 1.5])
@pytest.mark.parametrize("is_root_last", [False, True])
def test_a_root_without_an_object_wakes_the_gangs_below_its_composites(
    gap_s: float,
    is_root_last: bool,
) -> None:
    """I9: the children of the root are composites only; the wait for its minimum ends for the gangs
    below these.
    """
    world = World(node("n", 8))
    if is_root_last:
        world.create(members("a", 2, parent="in"))
        world.advance(gap_s)

    world.declare(composite("in", "root", 1))
    if not is_root_last:
        world.advance(gap_s)
        world.create(members("a", 2, parent="in"))

    assert len(world.advance(MINIMUM_WAIT_S + 1.0).bound()) == 2


def test_gangs_below_a_root_without_an_object_are_told_and_woken() -> None:
    """I9: of two composites one has no room; its gang says so, and room wakes it."""
    world = World(node("n", 3))
    world.create(members("a", 2, parent="x"), members("b", 2, parent="y"))
    world.advance(0.5)
    world.declare(composite("x", "root", 1), composite("y", "root", 1))
    world.advance(MINIMUM_WAIT_S + 1.0)
    assert world.bound() == {}
    told = {world.condition(waiting)[0] for waiting in world.pods.values()}
    assert told == {Reason.UNSCHEDULABLE}

    world.add_nodes(node("m", 1))
    assert len(world.advance(1.0).bound()) == 4
