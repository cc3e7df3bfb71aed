"""What is taken and what is spared: units, and pods that are never victims."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gangsched.core.preemption.columns import RunningColumns
from gangsched.core.preemption.numbers import NONE
from gangsched.model.objects import Pod
from gangsched.model.preemption import NotHelpful, Obstacle, Preemption, UnitKind, VictimScope
from gangsched.model.protocol import Evict, PreparePreemption
from gangsched.state.preemption import last_look
from tests.builders import node, pod, shape
from tests.running_cluster import RunningCluster, high, obstacle, victims
from tests.unit.core.test_trees import replica, started, started_pods
from tests.world import World

# --- who may be a victim -------------------------------------------------------------------------

SPARED: list[dict[str, Any]] = [
    {"priority": 1000},
    {"priority": 2_000_000_000},
    {"mirror": True},
    {"controller_kind": "DaemonSet"},
    {"scheduler_name": "default-scheduler"},
]


@pytest.mark.parametrize("spared", SPARED, ids=str)
def test_some_pods_are_never_victims(spared: dict[str, Any]) -> None:
    """V5: high priority, critical, mirror and DaemonSet pods, and those of other schedulers."""
    cluster = RunningCluster([node("a")])
    cluster.run("low", "a", **{"gpus": 8, "priority": 1, **spared})
    cluster.run("other", "a", gpus=0, priority=0)
    (verdict,) = cluster.verdicts(high(gpus=8, priority=1000)).values()
    assert isinstance(verdict.preemption, NotHelpful)


@pytest.mark.parametrize("region", [[], [True], [False]], ids=str)
def test_pods_on_nodes_that_are_gone_are_in_no_region(region: list[bool]) -> None:
    """V5: also where no node is left at all."""
    node = np.array([NONE, *range(len(region))])
    columns: Any = SimpleNamespace(node=node, on_node=node != NONE)
    assert RunningColumns.inside(columns, np.array(region, dtype=np.bool_)).tolist() == [
        False,
        *region,
    ]


def test_pods_of_other_schedulers_are_told_of_and_taken_by_setting() -> None:
    """V5, V21: `own` spares them and says how much they use; `all` takes them."""
    cluster = RunningCluster([node("a")])
    cluster.run("theirs", "a", gpus=4, priority=1, scheduler_name="default-scheduler")
    cluster.run("ours", "a", gpus=4, priority=1)
    sentence = (
        "4 nvidia.com/gpu are used by lower-priority pods of other schedulers, which are not"
        " preempted."
    )
    assert obstacle(cluster, high(gpus=8)) == (Obstacle.OTHER_SCHEDULERS, sentence)
    assert victims(cluster.verdicts(high(gpus=8), scope=VictimScope.ALL)["ns/high"]) == [
        "ours",
        "theirs",
    ]


def test_young_pods_are_spared_by_setting() -> None:
    """V5: with `preempt_min_run_s` what has just started runs on, and that is told."""
    cluster = RunningCluster([node("a")])
    cluster.gang("ns/young", 2, "a a", gpus=4, priority=1, ran_s=100)
    told = obstacle(cluster, high(gpus=8), min_run_s=600)
    assert told == (
        Obstacle.TOO_YOUNG,
        "1 gang cannot be preempted yet: it has run for less than 10m0s (preempt_min_run_s).",
    )
    assert victims(cluster.verdicts(high(gpus=8), min_run_s=100)["ns/high"]) == [
        "young-0",
        "young-1",
    ]


def test_nodes_that_the_group_may_not_use_are_left_alone() -> None:
    """V5: what runs elsewhere frees nothing."""
    cluster = RunningCluster([node("a", unschedulable=True), node("b")])
    cluster.run("elsewhere", "a", gpus=8, priority=1)
    cluster.run("here", "b", gpus=8, priority=2)
    assert victims(cluster.verdicts(high(gpus=8))["ns/high"]) == ["here"]


# --- units --------------------------------------------------------------------------------------


def test_elastic_gang_loses_its_surplus() -> None:
    """V6: only what is needed, the latest created; it keeps its minimum."""
    cluster = RunningCluster([node("a"), node("b")])
    cluster.gang("ns/low", 2, "a a a a a a a a b b", priority=1)
    cluster.run("filler", "b", gpus=6, priority=2000)
    verdict = cluster.verdicts(high())["ns/high"]
    assert victims(verdict) == ["low-9"]
    made = verdict.preemption
    assert isinstance(made, Preemption)
    assert (made.victims[0].kind, made.stopped) == (UnitKind.SURPLUS, ())


def test_where_the_surplus_is_not_enough_the_whole_group_goes() -> None:
    """V6: no gang is left between nothing and its minimum."""
    cluster = RunningCluster([node("a")])
    cluster.gang("ns/low", 4, "a a a a a a a a", priority=1)
    assert victims(cluster.verdicts(high(gpus=4))["ns/high"]) == [
        "low-4",
        "low-5",
        "low-6",
        "low-7",
    ]
    assert len(victims(cluster.verdicts(high(gpus=6))["ns/high"])) == 8


def test_members_of_a_gang_that_is_disrupted_singly_go_one_by_one() -> None:
    """V6, V8: native disruptionMode `single`; it counts as a gang that is stopped once it falls
    below its minimum.
    """
    cluster = RunningCluster([node("a")])
    cluster.gang("ns/low", 8, "a a a a a a a a", priority=1, disrupted_singly=True)
    verdict = cluster.verdicts(high(gpus=2))["ns/high"]
    assert victims(verdict) == ["low-6", "low-7"]
    assert isinstance(verdict.preemption, Preemption)
    assert verdict.preemption.stopped == ("ns/low",)
    assert {victim.kind for victim in verdict.preemption.victims} == {UnitKind.POD}
    assert verdict.preemption.harm is not None
    assert verdict.preemption.harm.gangs_stopped == 1


def test_siblings_of_a_gang_that_is_disrupted_singly_go_without_it() -> None:
    """V6, I4: the others are stopped together, and its own pods stay."""
    cluster = RunningCluster([node("a"), node("b", gpus=1)])
    cluster.gang("a/x", 2, "a a", gpus=4, priority=1, group="a/x")
    cluster.gang("b/y", 1, "b", gpus=1, priority=1, group="a/x", disrupted_singly=True)
    assert victims(cluster.verdicts(high(gpus=8))["ns/high"]) == ["x-0", "x-1"]


def test_siblings_go_together() -> None:
    """V6, I4: a gang of another namespace that started with the victim cannot go on without it."""
    cluster = RunningCluster([node("a"), node("b")])
    cluster.gang("a/x", 1, "a", gpus=8, priority=1, group="a/x", indivisible=True)
    cluster.gang("b/y", 1, "b", gpus=1, priority=1, group="a/x")
    assert victims(cluster.verdicts(high(gpus=8))["ns/high"]) == ["x-0", "y-0"]


def test_core_has_its_highest_priority() -> None:
    """V5, V6: a group is taken whole or not at all; one pod that must stay keeps all of it."""
    cluster = RunningCluster([node("a"), node("b")])
    cluster.gang("a/x", 1, "a", gpus=8, priority=1, group="a/x")
    cluster.gang("b/y", 1, "b", gpus=1, priority=5, group="a/x")
    assert obstacle(cluster, high(gpus=8, priority=5))[0] is Obstacle.NOTHING_LOWER
    assert victims(cluster.verdicts(high(gpus=8, priority=6))["ns/high"]) == ["x-0", "y-0"]


@pytest.mark.parametrize(
    ("rest", "gone"), [({"indivisible": True}, 8), ({"binding": True}, 1)], ids=str
)
def test_gang_that_cannot_be_divided(rest: dict[str, Any], gone: int) -> None:
    """V6: native disruptionMode `all` has no surplus; a gang with members being bound has
    no core.
    """
    cluster = RunningCluster([node("a")])
    cluster.gang("ns/low", 1, "a a a a a a a a", priority=1, **rest)
    assert len(victims(cluster.verdicts(high())["ns/high"])) == gone
    if gone == 1:
        assert obstacle(cluster, high(gpus=8))[0] is Obstacle.TOO_LITTLE


# --- trees


def bulk(world: World, number: int, least: int) -> list[Pod]:
    """A tree of low priority that fills a node with each of its children, the last of which is the
    youngest.
    """
    pods = [
        replica(f"r{each}", priority=-10, least=least, creation_s=100 + each)
        for each in range(number)
    ]
    created = world.create(*pods)
    assert started(world.settle()) == {f"r{each}" for each in range(number)}
    return created


def preempted(world: World, *pods: Pod) -> set[str]:
    """The gangs that run once these pods have started."""
    world.create(pods)
    for _ in range(6):
        world.settle()
        world.advance(40)
    assert {each.name for each in pods} <= world.bound().keys()
    return started_pods(world) - {"urgent"}


def test_a_child_above_the_minimum_goes_before_the_tree() -> None:
    """G10: for room of one node one of the youngest children goes whole, for room of three all of
    the tree.
    """
    world = World(*(node(f"n{each}") for each in range(3)), preempts=True)
    bulk(world, 3, 1)
    left = preempted(world, pod("urgent-0", gpus=5, priority=5))
    assert ("r0" in left, len(left)) == (True, 2)
    assert preempted(world, pod("urgent-1", gpus=5, priority=5)) == {"r0"}
    assert preempted(world, pod("urgent-2", gpus=5, priority=5)) == set()


def test_the_lowest_children_go_first() -> None:
    """G10: a child of lower priority is above the minimum, though it is older."""
    world = World(node("a"), node("b"), preempts=True)
    world.create(replica("r0", priority=-20, least=1, creation_s=100))
    world.settle()
    world.create(replica("r1", priority=-10, least=1, creation_s=101))
    world.settle()
    assert preempted(world, pod("urgent-0", gpus=5, priority=5)) == {"r1"}


def test_a_child_that_the_minimum_needs_takes_the_tree_along() -> None:
    """V6: no tree is left below its minimum, with all its children above it."""
    world = World(*(node(f"n{each}") for each in range(3)), preempts=True)
    bulk(world, 3, 3)
    assert preempted(world, pod("urgent-0", gpus=5, priority=5)) == set()
    world = World(*(node(f"n{each}") for each in range(3)), preempts=True)
    bulk(world, 3, 2)
    there = shape(5, node_selector=(("kubernetes.io/hostname", world.bound()["r0-0"]),))
    assert preempted(world, pod("urgent-0", of=there, priority=5)) == set()


@pytest.mark.parametrize("evictions", [0, 1, 2])
def test_a_child_that_is_evicted_goes_whole_after_a_crash(evictions: int) -> None:
    """V24: the other evictions are sent again, and the other child runs on."""
    world = World(node("a"), node("b"), preempts=True)
    bulk(world, 2, 1)
    sent: list[object] = []

    def fate(order: object) -> str:
        sent.extend([order] if isinstance(order, Evict) else ())
        return "later" if isinstance(order, Evict) and len(sent) > evictions else "bound"

    world.fate = fate
    world.create(pod("urgent-0", gpus=5, priority=5))
    world.settle()
    world.restart()
    world.fate = lambda order: "bound"
    for _ in range(4):
        world.settle()
        world.advance(40)
    assert started_pods(world) == {"r0", "urgent"}


def test_a_child_is_kept_if_another_one_ends_before_its_eviction() -> None:
    """V13: at the last look the child that was above the minimum is needed."""
    world = World(node("a"), node("b"), preempts=True)
    pods = bulk(world, 2, 1)
    world.fate = lambda order: "later" if isinstance(order, PreparePreemption) else "bound"
    world.create(pod("urgent-0", gpus=5, priority=5))
    world.settle()
    record = world.state.preemptions.nominations.of("pod:ns/urgent-0")
    assert record is not None
    victims = set(record.victims)
    assert last_look.changed(record, world.state.registry, victims) == ""
    world.delete(*(each for each in pods if each.name.startswith("r0")))
    world.state.refresh(world.now_s)
    assert "a tree whose children are to be preempted" in last_look.changed(
        record, world.state.registry, victims
    )


def test_a_tree_that_preempted_starts_on_the_room_that_was_promised_to_it() -> None:
    """V10, B2: its promise ends with its Permit and is in no way of its own binds, which are asked
    for one by one.
    """
    world = World(node("a"), node("b"), preempts=True)
    world.create([pod(f"low-{n}", gpus=8, priority=-10, grace_s=5 * (n + 1)) for n in range(2)])
    world.settle()
    world.create(replica("r0", least=2), replica("r1", least=2), replica("r2", least=2))
    for _ in range(4):
        world.settle()  # `World` asks about each bind before it is sent
        world.advance(10)
    assert len(started_pods(world)) == 2
    assert not world.state.preemptions.nominations.all()
    assert not world.events("NominationLost")
