"""Parents that are new: what their children wait for before they start (I9)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from typing import Any

import pytest

from gangsched.api import keys
from gangsched.state.group_record import Refreshed
from gangsched.state.groups import Registry
from gangsched.state.parents import MINIMUM_WAIT_S, SETTLED_AT_ONCE
from tests.builders import members, node, pod, pod_group, running
from tests.world import EPOCH_S, World

PARENT = "P"
ORDERS = [*permutations((PARENT, "a", "b")), ("a", "b"), ("b", "a")]
LATE = MINIMUM_WAIT_S / 4


def started(world: World) -> str:
    """The children of which pods are bound."""
    return "".join(sorted({name[0] for name in world.bound()}))


def arrives(world: World, each: str, stated_by: str) -> None:
    """The PodGroup of the parent or the pods of a child come; a minimum of two is stated by one of
    them, or by both children.
    """
    if each == PARENT:
        stated = ((keys.MIN_CHILDREN[0], "2"),) if stated_by == PARENT else ()
        world.declare(pod_group("svc", None, gang_metadata=stated))
    else:
        least = 2 if each in stated_by else None
        world.create(members(each, 2, gpus=4, parent="svc", min_children=least))


@pytest.mark.parametrize("order", ORDERS, ids="".join)
@pytest.mark.parametrize(
    "stated_by", [PARENT, "a", "b", "ab", ""], ids=["parent", "a", "b", "both", "nobody"]
)
def test_in_every_order_of_arrival_the_children_start_together(
    stated_by: str, order: Sequence[str]
) -> None:
    """I9: whoever states the minimum comes within a second, and nobody has started without it; a
    minimum that is known is waited for no longer than it takes to have its children.
    """
    world = World(*(node(f"n{n}") for n in range(4)))
    for number, each in enumerate(order):
        if number:
            world.advance(LATE)
        arrives(world, each, stated_by)
        known = any(of in stated_by for of in order[: number + 1])
        has_both = {"a", "b"} <= {*order[: number + 1]}
        assert started(world.settle()) == ("ab" if known and has_both else "")
    assert started(world.advance(MINIMUM_WAIT_S)) == "ab"


def test_a_parent_that_is_known_makes_no_further_child_wait() -> None:
    """I9: the second counts from the first child that named it, so that a stream of children delays
    nobody.
    """
    world = World(*(node(f"n{n}") for n in range(4)))
    arrives(world, "a", "")
    assert started(world.settle()) == ""
    world.advance(MINIMUM_WAIT_S)
    assert started(world) == "a"
    for name in "bcd":
        arrives(world, name, "")
    assert started(world.settle()) == "abcd"


def test_thousands_of_parents_that_are_new_together_are_decided_in_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Attack: each of them is a tree of its own, and all waits end at the same moment."""
    number, changed = 3 * SETTLED_AT_ONCE, list[int]()
    refresh = Registry.refresh

    def counted(self: Registry, *args: Any, **options: Any) -> Refreshed:
        made = refresh(self, *args, **options)
        changed.append(len(made.changed))
        return made

    world = World(node("n", 0, pods=1_000))
    for n in range(number):
        world.create(members(f"g{n}", 1, gpus=0, parent=f"p{n}"))
    assert world.settle().bound() == {}
    monkeypatch.setattr(Registry, "refresh", counted)
    world.now_s += MINIMUM_WAIT_S
    world.turn()
    assert max(changed) <= SETTLED_AT_ONCE
    assert len(world.advance(0).bound()) == number


def test_a_child_of_one_parent_does_not_wait_again_when_it_changes() -> None:
    """I5: its edits and its restart are no news of the parent."""
    world = World(node("n"))
    world.declare(pod_group("a", 3, gang_metadata=((keys.PARENT[0], "svc"),)))
    world.create(members("a", 2, gpus=4, pod_group=True))
    world.advance(MINIMUM_WAIT_S)
    world.declare(pod_group("a", 2, generation=2, gang_metadata=((keys.PARENT[0], "svc"),)))
    assert started(world.settle()) == "a"


def test_another_child_may_start_while_room_is_made_for_the_first() -> None:
    """V11: one of two victims is gone, and the child that needs less than the nominated one fits
    there.
    """
    world = World(node("a", 8), preempts=True)
    start_s = int(EPOCH_S)
    lower = [running(pod(f"low-{n}", gpus=4, start_s=start_s, grace_s=100), "a") for n in range(2)]
    world.create(lower)
    high: dict[str, Any] = {"priority": 10, "parent": "svc", "min_children": 1}
    world.create(members("x", 2, gpus=4, **high), members("y", 1, gpus=2, **high))
    world.advance(2 * MINIMUM_WAIT_S)
    (record,) = world.state.preemptions.nominations.all()
    assert {each.gang for each in record.nominees.values()} == {"ns/x"}
    world.delete(lower[0])
    assert world.settle().bound() == {"low-1": "a", "y-0": "a"}
