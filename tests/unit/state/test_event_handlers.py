"""Nodes that are not there for us: other pools' nodes, and those that a node pool loses (semantics
I7).
"""

from __future__ import annotations

import pytest

from gangsched.model.inter_pod import InterPodConstraints, PodTerm, Requirement
from gangsched.model.objects import Node, Phase
from gangsched.model.protocol import Replaced
from gangsched.state.cluster import Cluster
from tests.builders import members, node, pod, pod_group, shape
from tests.world import World

HOSTNAME = "kubernetes.io/hostname"
KEEPS_OFF = InterPodConstraints(
    anti_affinity=(PodTerm(HOSTNAME, (Requirement("app", "In", ("x",)),)),)
)


def test_pods_on_unknown_nodes_change_no_snapshot_and_wake_nobody() -> None:
    """I7: whatever comes and goes in another pool is neither room nor a constraint, and costs no
    new snapshot.
    """
    cluster = Cluster()
    cluster.apply_node(node("a", labels={HOSTNAME: "a"}))
    cluster.take_freed(), cluster.take_pods_changed()
    cluster.take_touched({"a"})
    before = cluster.snapshot()
    first, second = pod("x", of=shape(1, inter_pod=KEEPS_OFF), labels={"app": "x"}), pod("y")
    for each in (first, second):
        cluster.occupy(each, "elsewhere")
    for each in (first, second):
        cluster.vacate(each, "elsewhere")
    assert cluster.snapshot() is before
    assert (cluster.take_freed(), cluster.take_pods_changed(), cluster.touched) == (
        set(),
        False,
        set(),
    )


def test_pods_of_a_node_count_from_when_it_matches_until_it_stops() -> None:
    """I7: their room and their anti-affinity are seen while their node is, however often it comes
    and goes.
    """
    world = World(node("a", 4, labels={HOSTNAME: "a"}))
    world.create(
        pod("keeper", of=shape(3, inter_pod=KEEPS_OFF), node_name="b", scheduler_name="other")
    )
    for turn in range(2):
        world.create(pod(f"big-{turn}", gpus=4, node_name="a"))  # so that only "b" is left
        (shy,) = world.create(pod(f"shy-{turn}", gpus=1, labels={"app": "x"}))
        (large,) = world.create(pod(f"large-{turn}", gpus=2))
        assert not world.state.snapshot().pods_by_node.terms.owners
        world.add_nodes(node("b", 4, labels={HOSTNAME: "b"}))
        assert not {shy.name, large.name} & set(world.settle().bound()), (
            "no room beside the keeper, or kept off by it"
        )
        (small,) = world.create(pod(f"small-{turn}", gpus=1))
        assert world.settle().bound()[small.name] == "b"
        world.remove_node("b")
        world.delete(*(each for each in list(world.pods.values()) if each.name != "keeper"))
        world.settle()


@pytest.mark.parametrize("relisted", [False, True])
def test_a_relabelled_node_breaks_no_gang(*, relisted: bool) -> None:
    """I7, B5: members on a node that stops matching run on and count, and nobody is
    told anything.
    """
    world = World(node("a", 2), node("b", 2))
    world.declare(pod_group("g", 4))
    world.create(members("g", 4, pod_group=True))
    world.told()
    assert sorted(world.bound().values()) == ["a", "a", "b", "b"]
    told = world.events()
    if relisted:
        del world.nodes["a"]
        world.say(Replaced(Node, tuple(world.nodes.values())))
    else:
        world.remove_node("a")
    world.told()
    assert world.events() == told
    assert world.gang_condition("g", "Scheduled") == "True"
    world.add_nodes(node("c", 1))
    world.create(members("g", 1, first=4, pod_group=True))
    assert world.settle().bound()["g-4"] == "c"
    assert world.events("Degraded") == []


def test_a_refusal_counts_the_nodes_of_the_pool_only() -> None:
    """I7, E1: "0/1 nodes", though pods run on other nodes that nobody has told us of."""
    world = World(node("a", 1))
    world.create(pod(f"other-{number}", node_name=f"n{number}") for number in range(5))
    (waits,) = world.create(pod("waits", gpus=2))
    assert "0/1 nodes are available" in world.told().condition(waits)[1]


def test_a_node_that_is_taken_away_keeps_nobody_off_the_rest_of_its_domain() -> None:
    """Q3: the pod that kept others off its zone is on no node any more; who was kept off waits for
    no sweep.
    """
    zone = InterPodConstraints(
        anti_affinity=(PodTerm("zone", (Requirement("app", "In", ("x",)),)),)
    )
    world = World(node("a", 4, labels={"zone": "z"}), node("b", 4, labels={"zone": "z"}))
    world.create(pod("keeper", of=shape(1, inter_pod=zone), node_name="b", scheduler_name="other"))
    world.create(pod("shy", gpus=1, labels={"app": "x"}))
    assert "shy" not in world.told().bound()
    now_s = world.now_s
    world.remove_node("b")
    assert world.settle().bound()["shy"] == "a"
    assert world.now_s == now_s


def test_a_restarted_scheduler_counts_members_on_nodes_of_no_pool() -> None:
    """I7, B4: what runs is known by its pods alone, wherever they are."""
    world = World(node("a", 2), node("b", 2))
    world.create(members("g", 4))
    world.settle()
    world.remove_node("a")
    world.add_nodes(node("c", 1))
    world.restart()
    world.create(members("g", 1, first=4, min_member=4))
    assert world.settle().bound()["g-4"] == "c"
    assert world.events("Degraded") == []


def test_a_pool_does_not_preempt_beyond_itself() -> None:
    """I7, V5: pods of lower priority on nodes of no pool of ours are evicted for nobody."""
    world = World(node("a", 1), preempts=True)
    world.create(pod("here", node_name="a", priority=0, phase=Phase.RUNNING))
    world.create(pod("there", node_name="n", priority=-100, phase=Phase.RUNNING))
    world.create(pod("high", priority=1000))
    world.settle()
    world.advance(60)
    assert {each.name for each in world.pods.values()} == {"there", "high"}
