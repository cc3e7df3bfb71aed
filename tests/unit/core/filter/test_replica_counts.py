"""Plain pods are spread from their peers as kube-scheduler's default constraints do, and nothing
else is.
"""

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
from gangsched.model.objects import Labels, Node, Pod, Service, Shape
from gangsched.model.snapshot import Snapshot
from gangsched.state.cluster import Cluster
from tests import builders

A, B = "uid-a", "uid-b"


def nodes(number: int = 4, zones: int = 2, **fields: Any) -> list[Node]:
    """Nodes without accelerators, in zones by turns."""
    made = {"gpus": 0, "cpu_milli": 64_000, **fields}
    return [
        builders.node(f"n{n}", labels={ZONE: f"z{n % zones}"} if zones else {}, **made)
        for n in range(number)
    ]


def replicas(number: int, *, uid: str = "rs", gpus: int = 0, **fields: Any) -> list[Pod]:
    """Pods of one ReplicaSet."""
    given = {"controller_uid": uid, "controller_kind": "ReplicaSet", "gpus": gpus, **fields}
    return [builders.pod(f"{uid}-{n}", uid=f"u-{uid}-{n}", **given) for n in range(number)]


def plain(pods: Sequence[Pod]) -> list[Group]:
    """Each pod by itself."""
    return [builders.group(builders.gang(f"ns/{pod.name}", [pod], plain=True)) for pod in pods]


def placed(
    there: Sequence[Node],
    groups: Sequence[Group],
    runs: Sequence[tuple[Pod, str]] = (),
    **rest: Any,
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
    runs = [
        *((pod, "n0") for pod in replicas(3)),
        *((pod, "n1") for pod in replicas(3, uid="other")),
    ]
    more = replicas(6)[3:]
    assert placed(nodes(), plain(more), runs)["n0"] == 0
    ending = [(pod, "n0") for pod in replicas(3, deleting=True)]
    assert placed(nodes(), plain(replicas(7)[3:]), ending) == {f"n{n}": 1 for n in range(4)}


def apart() -> Shape:
    """A pod with a spread constraint of its own, on another label."""
    own = Spread(topology_key="rack", max_skew=1, selector=(Requirement("app", "In", ("x",)),))
    return Shape(
        requests=builders.shape(0, 100).requests, inter_pod=InterPodConstraints(soft_spread=(own,))
    )


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
    both = [
        *nodes(2),
        *(builders.node(f"gpu{n}", gpus=8, labels={ZONE: f"z{n}"}) for n in range(2)),
    ]
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
    return builders.pod(
        name,
        **{"controller_uid": uid, "controller_kind": "ReplicaSet", "uid": f"u-{name}", **fields},
    )


def some() -> Sequence[Node]:
    """Two nodes of one zone, one of another, and one of none."""
    zones = {"a": {ZONE: "x"}, "b": {ZONE: "x"}, "c": {ZONE: "y"}, "d": {}}
    return [builders.node(name, labels=labels) for name, labels in zones.items()]


def numbers(counts: PodCounts, uid: str) -> list[tuple[int, int]]:
    """By node the replicas in its zone, -1 for none, and on itself."""
    return peers_near(counts, replica(f"asks-{uid}", uid))


def peers_near(counts: PodCounts, asks: Pod) -> list[tuple[int, int]]:
    """The same for the peers of a pod."""
    found, seen = counts.spread_cost(asks), []
    assert found is not None
    for node, cost in enumerate(found.cost.tolist()):
        zone = found.codes[node] >= 0
        sums = [
            (a, b)
            for a in range(9)
            for b in range(a + 1)
            if a * found.for_zone + b * found.for_node + 4_000 == cost
        ]
        own = [(-1, b) for b in range(9) if b * found.for_node == cost]
        (number,) = sums if zone else own
        seen.append(number)
    return seen


def test_replicas_are_those_that_run_and_those_that_the_plan_placed() -> None:
    runs = [
        (replica("1"), "a"),
        (replica("2"), "b"),
        (replica("3", B), "a"),
        (replica("4", gone := "uid-gone"), "d"),
    ]
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
            counts.spread_cost(replica(f"asks-{asked}", asked))
        counts.take_back([replica("2")], [1], +1)
        assert numbers(counts, A) == [(1, 1), (1, 0), (0, 0), (-1, 0)], asked


def test_only_what_is_replicated_and_stays_counts() -> None:
    others = [
        replica("job", controller_kind="Job"),
        replica("daemon", controller_kind="DaemonSet"),
        replica("ends", deleting=True),
        builders.pod("alone"),
    ]
    these = [
        replica(kind, controller_kind=kind) for kind in ("StatefulSet", "ReplicationController")
    ]
    snapshot = builders.snapshot(some(), [(pod, "c") for pod in (*others, *these)])
    assert numbers(PodCounts(snapshot.table, snapshot.pods_by_node), A)[2] == (2, 2)


WEB, DB = frozenset({("app", "web")}), frozenset({("app", "db"), ("tier", "back")})


def with_services(
    there: Sequence[Node], runs: Sequence[tuple[Pod, str]] = (), *selectors: Labels
) -> Snapshot:
    """A snapshot of a cluster with one Service for each of these selectors."""
    cluster = Cluster()
    for each in there:
        cluster.apply_node(each)
    for pod, name in runs:
        cluster.occupy(pod, name)
    cluster.replicas.replace([Service("ns", f"s{n}", each) for n, each in enumerate(selectors)])
    cluster.replicas.follow("ns")
    return cluster.snapshot()


def behind(number: int, name: str = "web", **fields: Any) -> list[Pod]:
    """Pods without a controller."""
    labels = fields.pop("labels", {"app": name})
    return [
        builders.pod(
            f"{name}-{n}", **{"uid": f"u-{name}-{n}", "gpus": 0, "labels": labels, **fields}
        )
        for n in range(number)
    ]


def test_pods_behind_a_service_are_spread() -> None:
    """With a controller that replicates nothing or without one; others of the namespace
    are packed.
    """
    jobs = behind(4, "job", labels={"app": "web"}, controller_kind="Job", controller_uid="j")
    groups = plain([*behind(4), *jobs, *behind(6, "other")])
    made = plan(with_services(nodes(), (), WEB, DB), groups, now_s=0.0)
    where = {each.pod.name: each.node for verdict in made.verdicts for each in verdict.binds}
    selected = Counter(node for name, node in where.items() if not name.startswith("other"))
    assert sorted(selected.values()) == [2, 2, 2, 2]
    assert len({node for name, node in where.items() if name.startswith("other")}) == 1


def test_accelerators_a_setting_and_constraints_of_their_own_pack_pods_behind_services() -> None:
    snapshot = with_services(
        [builders.node(f"n{n}", labels={ZONE: f"z{n % 2}"}) for n in range(4)], (), WEB
    )
    for pods, policy in (
        (behind(4, gpus=1), GpuPolicy()),
        (behind(4, of=apart()), GpuPolicy()),
        (behind(4), GpuPolicy(replicas=PlainReplicas.PACK)),
    ):
        made = plan(snapshot, plain(pods), now_s=0.0, policy=policy)
        assert len({each.node for verdict in made.verdicts for each in verdict.binds}) == 1


def test_pods_behind_further_services_count_and_others_do_not() -> None:
    """Those that run, those that this plan placed, and those that it took back."""
    both = {"app": "web", "tier": "front"}
    front = frozenset(both.items())
    runs = [
        *((pod, "a") for pod in behind(2, labels=both)),
        (replica("rs", labels={"app": "web"}), "c"),
        *((pod, "d") for pod in behind(2, "other")),
        *((pod, "d") for pod in behind(1, "ends", labels=both, deleting=True)),
    ]
    snapshot = with_services(some(), runs, WEB, front)
    for asks_first in (True, False):
        counts = PodCounts(snapshot.table, snapshot.pods_by_node)
        (web,), (leader,) = (
            behind(1, "asks", labels={"app": "web"}),
            behind(1, "leads", labels=both),
        )
        if asks_first:
            assert peers_near(counts, web) == [(2, 2), (2, 0), (1, 1), (-1, 0)]
            assert peers_near(counts, leader) == [(2, 2), (2, 0), (0, 0), (-1, 0)]
        counts.move([leader, web], [1, 2], +1)
        assert peers_near(counts, web) == [(3, 2), (3, 1), (2, 2), (-1, 0)]
        assert peers_near(counts, leader) == [(3, 2), (3, 1), (0, 0), (-1, 0)]
        counts.take_back([leader, web], [1, 2], +1)
        assert peers_near(counts, web) == [(2, 2), (2, 0), (1, 1), (-1, 0)]
        assert peers_near(counts, leader) == [(2, 2), (2, 0), (0, 0), (-1, 0)]
