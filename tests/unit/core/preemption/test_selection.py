"""How long room takes to come free decides between choices that harm others alike (V8, decision
0067).
"""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from gangsched.model.gang import Group
from gangsched.model.preemption import Preemption
from tests import builders
from tests.builders import node
from tests.running_cluster import WALL_S, RunningCluster, high, victims

LONG_AGO_S = 2 * 3_600
"""Work beyond an hour counts as saved, so that older victims of a size differ in their
start only.
"""


def clusters(slow: dict[str, Any], quick: dict[str, Any]) -> RunningCluster:
    """A node full with the pod `slow`, which by its start and its node's name goes first, and one
    with `quick`.
    """
    cluster = RunningCluster([node("a", gpus=8), node("b", gpus=8)])
    cluster.run(
        "slow", "a", **{"gpus": 8, "priority": 1, "ran_s": LONG_AGO_S, "grace_s": 300, **slow}
    )
    cluster.run(
        "quick", "b", **{"gpus": 8, "priority": 1, "ran_s": 2 * LONG_AGO_S, "grace_s": 30, **quick}
    )
    return cluster


def decision(cluster: RunningCluster, group: Group, **settings: Any) -> Preemption:
    """What is decided for the group."""
    made = cluster.verdicts(group, **settings)[group.id].preemption
    assert isinstance(made, Preemption)
    return made


@pytest.mark.parametrize("number", [1, 2, 8])
def test_of_equal_harm_the_room_that_is_free_sooner_is_taken(number: int) -> None:
    made = decision(clusters({}, {}), high(number=number))
    assert [victim.name for victim in made.victims] == ["quick"]
    assert made.harm is not None
    assert made.harm.wait_steps == 0


@pytest.mark.parametrize(
    ("slow", "quick"),
    [
        pytest.param({}, {"priority": 2}, id="a higher priority"),
        pytest.param({"ran_s": 600}, {"ran_s": 601, "grace_s": 0}, id="more work lost"),
        pytest.param({"grace_s": 59}, {"grace_s": 0}, id="waits of one step, and an earlier start"),
    ],
)
def test_a_shorter_wait_outweighs_no_harm_to_others(
    slow: dict[str, Any], quick: dict[str, Any]
) -> None:
    """V8: a grace period is what its owner states, and a long one must not send the work of others
    first.
    """
    assert victims(clusters(slow, quick).verdicts(high(number=8))["ns/high"]) == ["slow"]


def test_gangs_are_spared_however_long_it_takes() -> None:
    cluster = RunningCluster([node("a", gpus=8), node("b", gpus=8)])
    cluster.run("slow", "a", gpus=8, priority=1, ran_s=LONG_AGO_S, grace_s=540)
    cluster.gang("ns/quick", 2, "b b", gpus=4, priority=1, ran_s=LONG_AGO_S, grace_s=0)
    assert victims(cluster.verdicts(high(number=8))["ns/high"]) == ["slow"]


def test_pods_that_end_on_a_node_delay_the_room_of_its_victims() -> None:
    """V4: what leaves anyway counts as gone, but not as gone at once."""
    cluster = RunningCluster([node("a", gpus=8), node("b", gpus=8)])
    for name, left_s, ran_s in (("a", 300, LONG_AGO_S), ("b", 20, 2 * LONG_AGO_S)):
        cluster.run(f"{name}-stays", name, gpus=4, priority=1, ran_s=ran_s, grace_s=30)
        cluster.run(
            f"{name}-ends", name, gpus=4, deleting=True, leaving=True, deletion_s=WALL_S + left_s
        )
    made = decision(cluster, high(gpus=8))
    assert [victim.name for victim in made.victims] == ["b-stays"]
    assert made.awaited == ("u-b-ends",)


def test_of_equal_gangs_the_one_that_ends_sooner_goes() -> None:
    """V6: a group takes as long as the slowest of its members."""
    cluster = RunningCluster([node(name, gpus=8) for name in "abcd"])
    cluster.gang("ns/early", 2, "a b", gpus=8, priority=1, ran_s=LONG_AGO_S, grace_s=30)
    last = cluster.pods[1]
    cluster.pods[1] = last._replace(pod=structs.replace(last.pod, grace_s=400))
    cluster.gang("ns/late", 2, "c d", gpus=8, priority=1, ran_s=2 * LONG_AGO_S, grace_s=90)
    assert victims(cluster.verdicts(high(number=2, gpus=8))["ns/high"]) == ["late-0", "late-1"]


def test_whole_nodes_are_taken_where_their_last_pod_ends_sooner() -> None:
    """A node is free when its last pod is: one slow pod among quick ones makes it the later one."""
    cluster = RunningCluster([node(name, gpus=8) for name in "abc"])
    for age, (name, grace_s) in enumerate((("a", 540), ("c", 300), ("b", 60)), 1):
        for index in range(4):
            slowest = grace_s if index == 3 else 0
            cluster.run(
                f"{name}-{index}", name, gpus=2, priority=1, ran_s=age * LONG_AGO_S, grace_s=slowest
            )
    assert victims(cluster.verdicts(high(gpus=8))["ns/high"]) == [
        f"b-{index}" for index in range(4)
    ]
    both = [f"{name}-{index}" for name in "bc" for index in range(4)]
    assert victims(cluster.verdicts(high(number=2, gpus=8))["ns/high"]) == both


def test_nobody_is_evicted_to_save_time() -> None:
    """V4: waiting for a pod that ends is preferred to any eviction while it ends within
    the bound.
    """
    ending = {"deleting": True, "leaving": True, "deletion_s": WALL_S + 599}
    made = decision(clusters(ending, {"grace_s": 0}), high(number=8), max_wait_s=600)
    assert (made.victims, made.awaited) == ((), ("u-slow",))
    beyond = {**ending, "deletion_s": WALL_S + 601}
    assert [
        each.name for each in decision(clusters(beyond, {"grace_s": 0}), high(number=8)).victims
    ] == ["quick"]


def test_a_pod_is_spared_whose_room_nobody_needs_though_none_is_to_spare() -> None:
    """V8: the smaller pod costs less and is chosen first; once the larger one goes, too,
    it stays.
    """
    cluster = RunningCluster([node("a", gpus=4)])
    cluster.run("small", "a", gpus=1, priority=1, ran_s=60)
    cluster.run("large", "a", gpus=3, priority=1, ran_s=LONG_AGO_S)
    assert [victim.name for victim in decision(cluster, high(gpus=3)).victims] == ["large"]


def gangs_of(**sizes: int) -> RunningCluster:
    """Gangs of whole nodes that have run for as long, each on nodes of its own."""
    cluster = RunningCluster([])
    for name, size in sizes.items():
        nodes = [node(f"{name}-{i}", gpus=8, cpu_milli=8_000) for i in range(size)]
        cluster.nodes = [*cluster.nodes, *nodes]
        names = " ".join(node.name for node in nodes)
        cluster.gang(f"ns/{name}", size, names, gpus=8, priority=1)
    return cluster


@pytest.mark.parametrize("shapes", [1, 2])
@pytest.mark.parametrize(
    ("sizes", "needed", "stopped"),
    [
        pytest.param({"a": 8, "b": 4}, 3, {"ns/b"}, id="the smaller one suffices"),
        pytest.param({"a": 8, "b": 4}, 5, {"ns/a"}, id="only the larger one suffices"),
        pytest.param({"a": 6, "b": 4, "c": 3}, 7, {"ns/b", "ns/c"}, id="two that lose less"),
        pytest.param({"a": 6, "b": 3, "c": 3}, 5, {"ns/a"}, id="one gang rather than two"),
        pytest.param({"a": 9, "b": 8, "c": 2, "d": 2}, 3, {"ns/b"}, id="small ones do not do"),
    ],
)
def test_a_gang_is_not_stopped_for_room_that_nobody_needs(
    sizes: dict[str, int],
    needed: int,
    stopped: set[str],
    shapes: int,
) -> None:
    """V8: fewest stopped gangs, then the least lost work, however much more a gang would free; for
    members of one shape, and of two, for which rounds decide.
    """
    group = high(number=needed, gpus=8)
    if shapes == 2:
        first, *rest = group.gangs[0].pending
        other = builders.shape(gpus=8, cpu_milli=1_000)
        changed = (structs.replace(first, shape=other), *rest)
        group = builders.group(structs.replace(group.gangs[0], pending=changed), priority=1000)
    made = decision(gangs_of(**sizes), group)
    assert {victim.gang for victim in made.victims} == stopped
