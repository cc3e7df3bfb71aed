"""What is kept of running pods from one plan to the next."""

from __future__ import annotations

import random
from itertools import count

import numpy as np
from msgspec import structs

from gangsched.core.preemption.columns import NAMES_MORE, PodTableCache, RunningColumns
from gangsched.core.reserve import Ledger
from gangsched.model.objects import Phase
from gangsched.model.preemption import PreemptionSettings, Running, RunningPod
from tests.builders import node
from tests.running_cluster import WALL_S, RunningCluster

FIELDS = (
    "node",
    "priority",
    "gang",
    "going",
    "leaving",
    "spared",
    "young",
    "foreign",
    "work",
    "start",
    "whole",
)
RESOURCES = ("cpu", "nvidia.com/gpu", "nobody/has")


def test_table_made_from_the_last_one_is_as_made_from_nothing() -> None:
    """V25: after pods came, went and changed, the columns are those of a first look."""
    dice = random.Random(7)
    cluster = RunningCluster([node(f"n{n}") for n in range(4)])
    for g in range(6):
        cluster.gang(f"ns/g{g}", 2, "n0 n1 n2", priority=g, ran_s=50 * g)
    ledger, settings = Ledger(cluster.snapshot()), PreemptionSettings(min_run_s=60)
    running = Running(tuple(cluster.pods), tuple(cluster.gangs))
    cache, marks = PodTableCache(), count(1_000)
    for turn in range(40):
        pods = list(running.pods)
        changed = [
            pods.pop(dice.randrange(len(pods))) for _ in range(min(len(pods), dice.randint(0, 3)))
        ]
        for each in changed[1:]:
            going = dice.random() < 0.3
            later = structs.replace(each.pod, priority=dice.randint(0, 5), phase=Phase.RUNNING)
            pods.append(
                RunningPod(later, dice.choice(("n0", "n3", "gone")), each.gang, going, next(marks))
            )
        if dice.random() < 0.5:
            new = cluster.run(f"new-{turn}", "n3", gpus=turn % 5, priority=turn % 3, ran_s=turn)
            pods.append(RunningPod(new, "n3", mark=dice.choice((0, next(marks)))))
        running = Running(tuple(pods), running.gangs)
        kept = RunningColumns.of(running, settings, WALL_S, ledger, cache)
        fresh = RunningColumns.of(Running(running.pods, running.gangs), settings, WALL_S, ledger)
        for name in FIELDS:
            assert np.array_equal(getattr(kept, name), getattr(fresh, name)), (turn, name)
        some = np.array(
            [i for i in range(len(running.pods)) if dice.random() < 0.2], dtype=np.int64
        )
        assert kept.table.ordinals(some).tolist() == fresh.table.ordinals(some).tolist()
        shapes = list(kept.table.names.shapes)
        assert [shapes[s] for s in kept.shape.tolist()] == [each.pod.shape for each in running.pods]
        asked = [
            [dict(each.pod.shape.requests).get(name, 0) for each in running.pods]
            for name in RESOURCES
        ]
        assert kept.requests(RESOURCES).tolist() == fresh.requests(RESOURCES).tolist() == asked


def test_table_of_the_same_pods_is_the_same() -> None:
    """V25: where nothing changed nothing is read."""
    cluster = RunningCluster([node("a")])
    cluster.gang("ns/g", 2, "a a a")
    cache = PodTableCache()
    first, again = (cache.table(Running(tuple(cluster.pods))) for _ in range(2))
    assert first.rows is again.rows


def test_what_is_kept_for_the_next_plan_holds_no_pods() -> None:
    """V25: a pod that goes before anybody looks again is not kept by the last look."""
    cluster = RunningCluster([node("a")])
    cluster.gang("ns/g", 2, "a a a")
    running, cache = Running(tuple(cluster.pods)), PodTableCache()
    assert cache.table(running).pods == running.pods
    assert cache.last is not None
    assert not cache.last.pods


def test_names_of_pods_long_gone_are_forgotten() -> None:
    """V25: gangs come and go for days, and each has a name of its own."""
    cache, marks = PodTableCache(), count(1)
    for turn in range(2_000):
        cluster = RunningCluster([node("a")])
        gang = f"ns/g{turn}"
        pods = [cluster.run(f"p{turn}-{n}", "a", gang=gang) for n in range(2)]
        table = cache.table(Running([RunningPod(pod, "a", gang, mark=next(marks)) for pod in pods]))
        assert len(table.names) <= 2 * table.names_at_first + NAMES_MORE + 1, turn
    assert len(table.names) < 200


def test_what_is_read_in_parts_is_read_once() -> None:
    """V25: a table that grows from plan to plan until all that runs is known is not made from
    nothing on the way.
    """
    cluster = RunningCluster([node("a")])
    for n in range(1_000):
        cluster.run(f"p{n}", "a", gang=f"ns/g{n}")
    cache = PodTableCache()
    parts = [
        Running(cluster.pods[:known], whole=known == 1_000) for known in range(100, 1_001, 100)
    ]
    assert len({id(cache.table(part).names) for part in parts}) == 1


def test_pods_without_marks_are_read_each_time() -> None:
    """V25: what nothing tells apart from one plan to the next is not taken for the same."""
    cluster = RunningCluster([node("a")])
    cluster.gang("ns/g", 2, "a a a")
    cache = PodTableCache()
    cache.table(Running(tuple(each._replace(mark=0) for each in cluster.pods)))
    moved = Running(tuple(each._replace(mark=0, leaving=True) for each in cluster.pods))
    assert cache.table(moved).rows.going.tolist() == [1, 1, 1]


def test_pods_in_another_order_are_read_anew() -> None:
    """V25: what is kept only saves work; it never decides."""
    cluster = RunningCluster([node("a")])
    cluster.gang("ns/g", 2, "a a a")
    cache = PodTableCache()
    cache.table(Running(tuple(cluster.pods)))
    turned = Running(tuple(reversed(cluster.pods)))
    assert cache.table(turned).ordinals(np.arange(3)).tolist() == [2, 1, 0]
