"""Until a bind of a start has succeeded, the others are sent only while the start can be whole
(B2).
"""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gangsched.model.objects import Phase, Pod
from gangsched.model.protocol import Applied, Bind, BindFailed, BindGone, Bound
from gangsched.sentences.placing import NODE_CLOSED
from gangsched.state.parents import MINIMUM_WAIT_S
from tests.builders import gang_metadata, members, node, pod
from tests.world import World


def start(world: World, *pods: Pod) -> dict[str, Bind]:
    """These pods pass Permit, and nobody answers their binds: those by name."""
    world.fate = lambda _: "later"
    world.create(*pods)
    world.turn()
    return {bind.name: bind for bind in world.sent}


def objections(world: World, *binds: Bind) -> list[str]:
    """Why these binds may not be sent."""
    return [world.state.start_check.objection(bind) for bind in binds]


def close(world: World, name: str) -> None:
    """A node is cordoned."""
    world.add_nodes(replace(world.nodes[name], unschedulable=True))


def test_a_node_that_closes_stops_the_whole_start() -> None:
    """One of three is under way on a node that closes: the others are not sent, and the sentence
    says why.
    """
    world = World(*(node(name, 1) for name in "abc"))
    first, *others = start(world, *members("g", 3)).values()
    assert objections(world, first, *others) == ["", "", ""]
    close(world, first.node)
    why = "gang ns/g needs 3 members, but only 2 can be bound now"
    assert objections(world, first, *others) == [NODE_CLOSED, why, why]
    world.add_nodes(node(first.node, 1))
    assert objections(world, first, *others) == ["", "", ""]


def test_the_gang_is_planned_again_as_a_whole() -> None:
    """Two binds are refused and the first is found not to be written: all three start elsewhere,
    together.
    """
    world = World(*(node(name, 1) for name in "abc"))
    first, *others = start(world, *members("g", 3)).values()
    close(world, first.node)
    world.unanswered.clear()
    world.say(*(BindFailed(each.uid, each.node, objections(world, each)[0]) for each in others))
    # They are tried again beside the one whose bind is undecided, and none of them is sent.
    assert len(world.advance(60).sent) == 3
    world.say(BindFailed(first.uid, first.node, "the pod was read, and is unbound"))
    world.fate = lambda _: "bound"
    assert world.advance(60).bound() == {}
    world.add_nodes(node("d", 1))
    assert len(world.advance(60).bound()) == 3


def test_after_the_first_success_each_bind_goes_alone() -> None:
    """A part of the gang runs: the others are sent wherever they fit."""
    world = World(*(node(name, 1) for name in "abc"))
    first, second, third = start(world, *members("g", 3)).values()
    world.say(Bound(first.uid, first.node))
    close(world, second.node)
    assert objections(world, second, third) == [NODE_CLOSED, ""]


def test_members_above_the_minimum_stop_nothing() -> None:
    """Two of three are needed, and two still fit."""
    world = World(*(node(name, 1) for name in "abc"))
    first, *others = start(world, *members("g", 3, min_member=2)).values()
    close(world, first.node)
    assert objections(world, *others) == ["", ""]


def test_a_member_that_is_gone_stops_the_others() -> None:
    """One of two was deleted before its bind: the other one is not sent alone."""
    world = World(node("a", 8))
    first, second = start(world, *members("g", 2)).values()
    world.say(BindGone(first.uid, first.node, "not found"))
    assert objections(world, second) == ["gang ns/g needs 2 members, but only 1 can be bound now"]


def test_gangs_of_a_group_start_together() -> None:
    """A member of one gang cannot go any more: no bind of the other gang is sent."""
    groups = ["ns/a", "ns/b"]
    world = World(node("n", 1), node("m", 1))
    one, other = start(
        world, *members("a", 1, groups=groups), *members("b", 1, groups=groups)
    ).values()
    close(world, one.node)
    assert objections(world, other) == ["gang ns/a needs 1 member, but none can be bound now"]
    world.add_nodes(node(one.node, 1))
    world.say(Bound(one.uid, one.node))
    close(world, one.node)
    assert objections(world, other) == [""]


def test_a_child_above_the_minimum_stops_nothing() -> None:
    """One child of the tree is needed and one has started: the other starts or not, for itself."""
    world = World(node("n", 2), node("m", 2))
    world.fate = lambda _: "later"
    world.create(*(members(name, 2, parent="svc", min_children=1) for name in "ab"))
    world.advance(MINIMUM_WAIT_S)
    binds = {bind.name: bind for bind in world.sent}
    world.say(Bound(binds["a-0"].uid, binds["a-0"].node))
    close(world, binds["b-0"].node)
    assert objections(world, binds["a-1"]) == [""]
    assert objections(world, binds["b-1"]) == [NODE_CLOSED]


def test_what_replaces_a_lost_member_goes_alone() -> None:
    """The gang runs below its minimum: its new member is sent, though it alone is less than the
    minimum.
    """
    world = World(node("a", 8))
    lost, _ = world.create(members("g", 2))
    world.settle()
    world.delete(lost)
    bind = start(world, *members("g", 1, first=2, min_member=2))["g-2"]
    assert objections(world, bind) == [""]


def test_what_follows_members_that_have_succeeded_goes_alone() -> None:
    """Two pods of a Job have succeeded and the third comes now: its start is the one that has
    begun.
    """
    world = World(node("a", 8))
    of_gang = gang_metadata("g", min_member=2)
    first, second, third = (
        pod(f"g-{n}", gang_metadata=of_gang, controller_uid="job") for n in range(3)
    )
    world.create(first, second)
    world.settle()
    for each in (first, second):
        world.update(each, phase=Phase.SUCCEEDED)
    bind = start(world, third)["g-2"]
    assert objections(world, bind) == [""]


def test_members_that_run_do_not_count_where_only_waiting_ones_do() -> None:
    """`only-waiting`: the next two start together, whatever runs."""
    world = World(node("a", 2), node("b", 1), node("c", 1))
    world.create(members("g", 2, policy="only-waiting"))
    world.settle()
    first, second = [
        start(world, *members("g", 2, first=2, policy="only-waiting"))[name]
        for name in ("g-2", "g-3")
    ]
    close(world, first.node)
    # its gang has begun, with the same number of the start
    assert objections(world, second) == [""]


@pytest.mark.parametrize("gangs", [1, 50], ids=["one gang", "a group of fifty"])
def test_a_thousand_binds_count_their_members_once(
    monkeypatch: pytest.MonkeyPatch, gangs: int
) -> None:
    """Attack: each bind of a large start that counted all others would stop the loop
    for seconds.
    """
    world = World(*(node(f"n{number}", 8) for number in range(125)))
    names = [f"g{number}" for number in range(gangs)]
    groups = [f"ns/{name}" for name in names] if gangs > 1 else []
    binds = start(
        world, *(pod for name in names for pod in members(name, 1_000 // gangs, groups=groups))
    ).values()
    assert len(binds) == 1_000
    looks = 0
    takes = world.state.cluster.takes

    def counted(*asked: object) -> bool:
        nonlocal looks
        looks += 1
        return takes(*asked)  # type: ignore[arg-type]

    monkeypatch.setattr(world.state.cluster, "takes", counted)
    world.say(Applied(node("new", 1)))
    assert objections(world, *binds) == [""] * 1_000
    assert looks == 2_000
