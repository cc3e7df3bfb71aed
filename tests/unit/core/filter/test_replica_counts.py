"""Plain replicas of one controller are spread as kube-scheduler's default constraints do, and nothing else is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from gangsched.core.cycle import Limits, plan
from gangsched.core.filter.pod_counts import PodCounts
from gangsched.core.filter.replica_counts import ZONE
from gangsched.model.gang import Group
from gangsched.model.gpu_policy import GpuPolicy, PlainReplicas
from gangsched.model.inter_pod import InterPodConstraints, Requirement, Spread
from gangsched.model.objects import Node, Pod, Shape
from tests import builders

A, B = "uid-a", "uid-b"


def nodes(number: int = 4, zones: int = 2, **fields: Any) -> list[Node]:
    """Nodes without accelerators, in zones by turns."""
    made = {"gpus": 0, "cpu_milli": 64_000, **fields}
    return [builders.node(f"n{n}", labels={ZONE: f"z{n % zones}"} if zones else {}, **made) for n in range(number)]


def replicas(number: int, *, uid: str = "rs", gpus: int = 0, **fields: Any) -> list[Pod]:
    """Pods of one ReplicaSet."""
    given = {"controller_uid": uid, "controller_kind": "ReplicaSet", "gpus": gpus, **fields}
    return [builders.pod(f"{uid}-{n}", uid=f"u-{uid}-{n}", **given) for n in range(number)]


def plain(pods: Sequence[Pod]) -> list[Group]:
    """Each pod by itself."""
    return [builders.group(builders.gang(f"ns/{pod.name}", [pod], plain=True)) for pod in pods]


def placed(
    there: Sequence[Node], groups: Sequence[Group], runs: Sequence[tuple[Pod, str]] = (), **rest: Any
) -> Counter[str]:
    """How many pods one plan puts on each node."""
    made = plan(builders.snapshot(there, runs), groups, now_s=0.0, **rest)
    return Counter(each.node for verdict in made.verdicts for each in verdict.binds)


@pytest.mark.parametrize("kind", ["ReplicaSet", "StatefulSet", "ReplicationController"])
def test_replicas_are_spread_over_zones_and_nodes(kind: str) -> None:
    on = placed(nodes(), plain(replicas(10, controller_kind=kind)))
    assert sorted(on.values()) == [2, 2, 3, 3]
    assert on["n0"] + on["n2"] == on["n1"] + on["n3"]


def test_zones_count_where_they_differ_in_size() -> None:
    """Two nodes of one zone against one of another: half of the pods go to each zone."""
    there = [node for node in nodes() if node.name != "n3"]
    on = placed(there, plain(replicas(12)))
    assert abs(on["n1"] - on["n0"] - on["n2"]) <= 2, on


def test_nodes_without_a_zone_are_spread_over_all_the_same() -> None:
    assert placed(nodes(zones=0), plain(replicas(8))) == {f"n{n}": 2 for n in range(4)}


def test_what_runs_counts_and_what_terminates_does_not() -> None:
    runs = [*((pod, "n0") for pod in replicas(3)), *((pod, "n1") for pod in replicas(3, uid="other"))]
    more = replicas(6)[3:]
    assert placed(nodes(), plain(more), runs)["n0"] == 0
    ending = [(pod, "n0") for pod in replicas(3, deleting=True)]
    assert placed(nodes(), plain(replicas(7)[3:]), ending) == {f"n{n}": 1 for n in range(4)}


def apart() -> Shape:
    """A pod with a spread constraint of its own, on another label."""
    own = Spread(topology_key="rack", max_skew=1, selector=(Requirement("app", "In", ("x",)),))
    return Shape(requests=builders.shape(0, 100).requests, inter_pod=InterPodConstraints(soft_spread=(own,)))


PACKED = {
    "pods of no controller": plain(replicas(6, controller_uid="", controller_kind="")),
    "pods of a Job": plain(replicas(6, controller_kind="Job")),
    "replicas with a spread constraint of their own": plain(replicas(6, of=apart())),
    "a gang": [builders.group(builders.gang("ns/gang", replicas(6)))],
}


@pytest.mark.parametrize("what", PACKED)
def test_others_are_packed_as_before(what: str) -> None:
    assert list(placed(nodes(), PACKED[what]).values()) == [6]


def test_accelerators_and_the_nodes_that_have_them_are_packed() -> None:
    """Spreading costs no node with accelerators anything, and pods with accelerators are packed."""
    both = [*nodes(2), *(builders.node(f"gpu{n}", gpus=8, labels={ZONE: f"z{n}"}) for n in range(2))]
    assert set(placed(both, plain(replicas(6)))) == {"n0", "n1"}
    assert len(placed(both, plain(replicas(6, gpus=1)))) == 1


def test_a_setting_packs_them() -> None:
    policy = GpuPolicy(replicas=PlainReplicas.PACK)
    assert list(placed(nodes(), plain(replicas(6)), policy=policy).values()) == [6]


def test_a_full_zone_refuses_nobody() -> None:
    """ScheduleAnyway: a pod that fits somewhere is placed."""
    there = nodes(3, zones=3, cpu_milli=1_000)
    runs = [(builders.pod(f"full-{n}", cpu_milli=1_000, gpus=0), f"n{n}") for n in (1, 2)]
    assert placed(there, plain(replicas(5, cpu_milli=200)), runs, limits=Limits()) == {"n0": 5}


def replica(name: str, uid: str = A, **fields: Any) -> Pod:
    """A pod that a ReplicaSet replicates."""
    return builders.pod(name, **{"controller_uid": uid, "controller_kind": "ReplicaSet", "uid": f"u-{name}", **fields})


def some() -> Sequence[Node]:
    """Two nodes of one zone, one of another, and one of none."""
    zones = {"a": {ZONE: "x"}, "b": {ZONE: "x"}, "c": {ZONE: "y"}, "d": {}}
    return [builders.node(name, labels=labels) for name, labels in zones.items()]


def numbers(counts: PodCounts, uid: str) -> list[tuple[int, int]]:
    """By node the replicas in its zone, -1 for none, and on itself."""
    found, seen = counts.replicas(uid), []
    for node, cost in enumerate(found.cost.tolist()):
        zone = found.codes[node] >= 0
        sums = [
            (a, b) for a in range(9) for b in range(a + 1) if a * found.for_zone + b * found.for_node + 4_000 == cost
        ]
        own = [(-1, b) for b in range(9) if b * found.for_node == cost]
        (number,) = sums if zone else own
        seen.append(number)
    return seen


def test_replicas_are_those_that_run_and_those_that_the_plan_placed() -> None:
    runs = [(replica("1"), "a"), (replica("2"), "b"), (replica("3", B), "a"), (replica("4", gone := "uid-gone"), "d")]
    snapshot = builders.snapshot(some(), runs)
    counts = PodCounts(snapshot.table, snapshot.pods_by_node)
    assert numbers(counts, A) == [(2, 1), (2, 1), (0, 0), (-1, 0)]
    counts.move([replica("5"), replica("6")], [2, 3], +1)
    assert numbers(counts, A) == [(2, 1), (2, 1), (1, 1), (-1, 1)]
    assert numbers(counts, gone) == [(0, 0), (0, 0), (0, 0), (-1, 1)]
    counts.leave([replica("1"), replica("3", B)], [0, 0])
    assert numbers(counts, A) == [(1, 0), (1, 1), (1, 1), (-1, 1)]
    assert numbers(counts, B) == [(0, 0), (0, 0), (0, 0), (-1, 0)]


def test_what_is_taken_back_counts_as_if_it_had_never_been() -> None:
    """Whoever asks in between, and of whichever controller."""
    snapshot = builders.snapshot(some(), [(replica("1"), "a")])
    for asked in ("", A, B):
        counts = PodCounts(snapshot.table, snapshot.pods_by_node)
        counts.move([replica("2")], [1], +1)
        if asked:
            counts.replicas(asked)
        counts.take_back([replica("2")], [1], +1)
        assert numbers(counts, A) == [(1, 1), (1, 0), (0, 0), (-1, 0)], asked


def test_only_what_is_replicated_and_stays_counts() -> None:
    others = [
        replica("job", controller_kind="Job"),
        replica("daemon", controller_kind="DaemonSet"),
        replica("ends", deleting=True),
        builders.pod("alone"),
    ]
    these = [replica(kind, controller_kind=kind) for kind in ("StatefulSet", "ReplicationController")]
    snapshot = builders.snapshot(some(), [(pod, "c") for pod in (*others, *these)])
    assert numbers(PodCounts(snapshot.table, snapshot.pods_by_node), A)[2] == (2, 2)
