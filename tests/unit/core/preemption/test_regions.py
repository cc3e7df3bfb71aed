"""Which of the sets of units that help is taken (V8, V9)."""

from __future__ import annotations

from gangsched.model.preemption import Obstacle
from tests.builders import node
from tests.running_cluster import RunningCluster, full_of_low, high, obstacle, victims


def test_lowest_priority_goes_first() -> None:
    """V8, key 2: of two gangs either of which would do, the lower one."""
    cluster = RunningCluster([node("a"), node("b")])
    cluster.gang("ns/five", 2, "a a", gpus=4, priority=5, ran_s=1)
    cluster.gang("ns/one", 2, "b b", gpus=4, priority=1, ran_s=9999)
    assert victims(cluster.verdicts(high(gpus=8))["ns/high"]) == ["one-0", "one-1"]


def test_no_gang_is_stopped_where_plain_pods_do() -> None:
    """V8, key 3: eight plain pods rather than one gang of two."""
    cluster = RunningCluster([node("a"), node("b")])
    for i in range(8):
        cluster.run(f"plain-{i}", "a", priority=1)
    cluster.gang("ns/low", 2, "b b", gpus=4, priority=1)
    assert victims(cluster.verdicts(high(gpus=8))["ns/high"]) == [f"plain-{i}" for i in range(8)]


def test_least_work_is_lost() -> None:
    """V8, key 4: what started two minutes ago rather than what ran for ten hours."""
    cluster = RunningCluster([node("a"), node("b")])
    cluster.gang("ns/old", 2, "a a", gpus=4, priority=1, ran_s=36_000)
    cluster.gang("ns/new", 2, "b b", gpus=4, priority=1, ran_s=120)
    assert victims(cluster.verdicts(high(gpus=8))["ns/high"]) == ["new-0", "new-1"]


def test_whole_nodes_are_emptied_one_by_one() -> None:
    """V9: for members of a whole node, the cheapest nodes go and not the cheapest pods of all nodes."""
    cluster = RunningCluster([node(f"n{n}") for n in range(6)])
    for n in range(6):
        for i in range(4):
            ran_s = 1 if i < 3 else 300 if n in {2, 4} else 600
            cluster.run(f"p{n}{i}", f"n{n}", gpus=2, priority=1, ran_s=ran_s)
    found = victims(cluster.verdicts(high(number=2, gpus=8))["ns/high"])
    assert found == [f"p{n}{i}" for n in (2, 4) for i in range(4)]


def test_order_in_which_pods_are_told_does_not_matter() -> None:
    """V9: equal snapshots give equal choices."""
    cluster = RunningCluster([node("a"), node("b")])
    for i in range(8):
        cluster.run(f"p{i}", "ab"[i % 2], gpus=2, priority=1)
    first = victims(cluster.verdicts(high(number=3, gpus=2))["ns/high"])
    cluster.pods.reverse()
    assert victims(cluster.verdicts(high(number=3, gpus=2))["ns/high"]) == first


def test_too_many_victims_are_not_taken() -> None:
    """V15: `preempt_max_pods`."""
    told = obstacle(full_of_low(), high(number=2, gpus=8), max_pods=1)
    assert told == (Obstacle.TOO_MANY, "2 pods would have to go, and at most 1 may.")
