"""A group that several plans decide: nothing that happens meanwhile is missed, and nobody waits for
it.
"""

from collections.abc import Sequence
from dataclasses import replace

import msgspec
import pytest

from gangsched.core.cycle import Limits
from gangsched.model.inter_pod import InterPodConstraints, Requirement, Spread
from gangsched.model.objects import Pod, Shape
from gangsched.model.plan import Unfinished, Verdict
from gangsched.model.preemption import NotHelpful, Obstacle
from gangsched.state.unfinished import Missed, UnfinishedLook
from tests import builders
from tests.world import World

SPREAD = Spread(topology_key="rack", max_skew=5, selector=(Requirement("app", "In", ("x",)),))
WORK = 4_000


def members(gang: str, number: int, *, mode: str = "", kind: str = "a") -> list[Pod]:
    """Members of as many shapes, all of them for nodes of one kind."""
    made = builders.members(gang, number, gpus=0, mode=mode, labels={"app": "x"})
    return [
        msgspec.structs.replace(
            pod,
            shape=Shape(
                requests=builders.amounts(cpu_milli=1_000 + n, pods=1),
                node_selector=(("kind", kind),),
                inter_pod=InterPodConstraints(spread=(SPREAD,)),
            ),
        )
        for n, pod in enumerate(made)
    ]


def is_put_off(verdict: Verdict) -> bool:
    """Whether the next plan goes on to look for victims."""
    return isinstance(verdict.preemption, NotHelpful) and verdict.preemption.why is Obstacle.LATER


def a_world() -> World:
    """Four racks of kind a, and plans that do little."""
    nodes = [builders.node(f"n{n}", labels={"rack": f"r{n % 4}", "kind": "a"}) for n in range(8)]
    return World(*nodes, limits=Limits(work=WORK))


def started(world: World, pods: Sequence[Pod]) -> bool:
    """Whether binds of all of them were sent."""
    return {pod.uid for pod in pods} <= {bind.uid for bind in world.sent}


def test_a_gang_starts_after_several_plans_and_others_meanwhile() -> None:
    """Q4: A gang that takes several plans starts; a gang that is created meanwhile starts before
    it.
    """
    world = a_world()
    large = world.create(members("large", 60))
    world.turn()
    small = world.create(members("small", 1))
    world.turn()
    world.turn()
    assert started(world, small)
    assert not started(world, large)
    world.settle()
    assert started(world, large)
    assert len(world.plans) > 4


def test_room_that_comes_meanwhile_is_not_missed() -> None:
    """Q3, Q4: A node that comes after a plan found no room on any, and before the verdict, wakes
    the gang.
    """
    world = a_world()
    pods = world.create(
        [*members("large", 30, mode="NonStrict"), *members("large", 10, mode="NonStrict", kind="b")]
    )
    while not (world.state._unfinished.known and world.state._unfinished.known.failed):
        assert world.turn() is not None
    world.add_nodes(
        *(builders.node(f"b{n}", labels={"rack": f"r{n}", "kind": "b"}) for n in range(4))
    )
    world.settle()
    assert started(world, pods)


def test_news_are_kept_until_the_verdict() -> None:
    """Q3: What grew while plans went on is told once, when one of them has decided the group."""
    look, first = UnfinishedLook(), Unfinished(group="ns/a", generation=1)
    look.missed({"n0"}, pods_changed=False)
    assert look.goes_on(first, {}) is None
    look.missed({"n1"}, pods_changed=False)
    assert look.goes_on(replace(first, plans=2), {}) is None
    look.missed({"n2"}, pods_changed=True)
    assert look.goes_on(None, {}) == Missed({"n1", "n2"}, pods_changed=True)
    assert look.goes_on(None, {}) is None


def test_a_gang_that_changes_meanwhile_is_planned_anew() -> None:
    """Q4, B2: What was found of members that are gone is forgotten with them."""
    world = a_world()
    pods = world.create(members("large", 60))
    world.turn()
    assert world.state._unfinished.known is not None
    world.delete(*pods)
    world.turn()
    world.settle()
    assert world.state._unfinished.known is None
    assert not world.sent


def test_what_took_several_plans_is_not_done_again_while_running_pods_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Q4, V25: Plans that only read a part of the running pods do not begin the decision anew."""
    nodes = [
        builders.node(f"n{n}", cpu_milli=40_000, labels={"rack": f"r{n % 4}", "kind": "a"})
        for n in range(8)
    ]
    world = World(*nodes, limits=Limits(work=16_000), preempts=True)
    low = [builders.pod(f"low{n}", gpus=0, cpu_milli=9_000, priority=-10) for n in range(32)]
    world.create(builders.running(each, f"n{n % 8}") for n, each in enumerate(low))
    world.settle()
    monkeypatch.setattr("gangsched.state.preemption.running.LOOKS_A_PLAN", 2)
    world.create(members("large", 60))
    before = len(world.plans)
    world.settle()
    made = world.plans[before:]
    put_off = [
        n for n, each in enumerate(made) if any(is_put_off(verdict) for verdict in each.verdicts)
    ]
    assert len(put_off) > len(low)
    assert put_off == list(range(put_off[0], put_off[0] + len(put_off)))
