"""Objects with absurd values, and objects whose application raises: neither ends the process
(semantics I8).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gangsched.api.podgroup import parse_pod_group
from gangsched.kube.read import resources
from gangsched.kube.read.shapes import ShapeTable
from gangsched.kube.read.store import Store
from gangsched.model.objects import Node, Pod
from gangsched.model.protocol import Applied, Replaced
from gangsched.model.reservation import ReservationLimits
from gangsched.model.resources import AMOUNT_LIMIT, OVERFULL, PODS
from gangsched.state.cluster import Cluster
from gangsched.state.groups import Registry
from gangsched.state.member_store import MemberStore
from gangsched.state.rule_set import Rules
from gangsched.state.storage_cache import StorageCache
from tests.builders import members, node, pod, running
from tests.sizes import of_size
from tests.world import World

QUANTITIES = (
    "0",
    "1",
    "100m",
    "-1",
    "1e-9",
    "8Gi",
    "8191P",
    "9007199254740991",
    "9223372036854775807",
    "8Ei",
    "1e40",
    "1e999",
)
INTEGERS = (0, 1, -1, 2**31 - 1, -(2**31), 2**53, 2**63 - 1, -(2**63))
TIMES = ("2030-01-01T00:00:00Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "no time")
TEXTS = (
    "",
    "1",
    "-1",
    "99999999999999999999h",
    "9" * 400,
    "x" * 5000,
    "\x00",
    "[]",
    '["a","b"]',
    "Strict",
    "NonStrict",
)
NAMES = ("cpu", "memory", "nvidia.com/gpu", "ephemeral-storage", "pods", "example.com/x")
GANG_KEYS = (
    "gang.scheduling.koordinator.sh/name",
    "gang.scheduling.koordinator.sh/min-available",
    "gang.scheduling.koordinator.sh/waiting-time",
    "gang.scheduling.koordinator.sh/mode",
    "gang.scheduling.koordinator.sh/groups",
    "gangsched.dev/expected-runtime",
    "gangsched.dev/permitted",
)

quantity, integer, time, text = (
    st.sampled_from(each) for each in (QUANTITIES, INTEGERS, TIMES, TEXTS)
)
int32 = st.sampled_from([0, 1, -1, 2**31 - 1, -(2**31)])
amounts = st.dictionaries(st.sampled_from(NAMES), quantity, max_size=4)
node_name = st.sampled_from(["", "", "n-0", "n-1", "unknown"])
name = st.sampled_from(["a", "b", "c", "d"])
marks = st.dictionaries(st.sampled_from(GANG_KEYS), text, max_size=4)


def _meta(**more: Any) -> st.SearchStrategy[dict[str, Any]]:
    fields = {"name": name, "creationTimestamp": time, **more}
    return st.fixed_dictionaries(fields).map(
        lambda m: {"namespace": "ns", "uid": f"uid-{m['name']}", **m}
    )


term = st.fixed_dictionaries(
    {
        "topologyKey": st.sampled_from(["kubernetes.io/hostname", "zone", ""]),
        "labelSelector": st.just({}),
    }
)
pods = st.fixed_dictionaries(
    {
        "metadata": _meta(labels=marks, annotations=marks, deletionTimestamp=st.none() | time),
        "spec": st.fixed_dictionaries(
            {
                "schedulerName": st.sampled_from(["gangsched", "gangsched", "default-scheduler"]),
                "nodeName": node_name,
                "priority": int32,
                "terminationGracePeriodSeconds": integer,
                "activeDeadlineSeconds": integer,
                "containers": st.lists(
                    amounts.map(lambda a: {"name": "c", "resources": {"requests": a}}), max_size=3
                ),
                "overhead": amounts,
                "volumes": st.lists(
                    name.map(lambda n: {"name": n, "persistentVolumeClaim": {"claimName": n}}),
                    max_size=2,
                ),
                "topologySpreadConstraints": st.lists(
                    st.fixed_dictionaries(
                        {
                            "maxSkew": int32,
                            "minDomains": int32,
                            "topologyKey": st.just("zone"),
                            "whenUnsatisfiable": st.sampled_from(
                                ["DoNotSchedule", "ScheduleAnyway"]
                            ),
                            "labelSelector": st.just({}),
                        }
                    ),
                    max_size=1,
                ),
                "affinity": st.fixed_dictionaries(
                    {
                        "podAntiAffinity": st.fixed_dictionaries(
                            {
                                "preferredDuringSchedulingIgnoredDuringExecution": st.lists(
                                    st.fixed_dictionaries(
                                        {"weight": int32, "podAffinityTerm": term}
                                    ),
                                    max_size=1,
                                )
                            }
                        )
                    }
                ),
            }
        ),
        "status": st.fixed_dictionaries(
            {
                "phase": st.sampled_from(["Pending", "Running", "Running", "Failed"]),
                "startTime": time,
            }
        ),
    }
)
nodes = st.fixed_dictionaries(
    {
        "metadata": _meta(name=st.sampled_from(["n-0", "n-1"]), labels=st.just({"zone": "z"})),
        "spec": st.just({}),
        "status": st.fixed_dictionaries({"allocatable": amounts}),
    }
)
budgets = st.fixed_dictionaries(
    {
        "metadata": _meta(generation=integer),
        "spec": st.just({"selector": {}}),
        "status": st.fixed_dictionaries(
            {"disruptionsAllowed": int32, "observedGeneration": integer}
        ),
    }
)
claims = st.fixed_dictionaries(
    {
        "metadata": _meta(),
        "spec": st.fixed_dictionaries(
            {
                "storageClassName": st.sampled_from(["", "fast"]),
                "accessModes": st.just(["ReadWriteOnce"]),
                "resources": amounts.map(
                    lambda a: {"requests": {"storage": next(iter(a.values()), "1")}}
                ),
            }
        ),
        "status": st.just({"phase": "Pending"}),
    }
)
volumes = st.fixed_dictionaries(
    {
        "metadata": _meta(),
        "spec": quantity.map(
            lambda q: {"capacity": {"storage": q}, "accessModes": ["ReadWriteOnce"]}
        ),
        "status": st.just({"phase": "Available"}),
    }
)
csi_nodes = st.fixed_dictionaries(
    {
        "metadata": _meta(name=st.sampled_from(["n-0", "n-1"])),
        "spec": int32.map(lambda n: {"drivers": [{"name": "d", "allocatable": {"count": n}}]}),
    }
)
devices = st.fixed_dictionaries(
    {
        "metadata": _meta(),
        "status": st.just(
            {"allocation": {"nodeSelector": {"nodeSelectorTerms": []}}, "reservedFor": []}
        ),
    }
)
namespaces = st.fixed_dictionaries({"metadata": _meta(labels=marks)})
services = st.fixed_dictionaries(
    {"metadata": _meta(), "spec": st.fixed_dictionaries({"selector": st.one_of(st.none(), marks)})}
)
pod_groups = st.fixed_dictionaries(
    {
        "metadata": _meta(annotations=marks, generation=integer),
        "spec": st.fixed_dictionaries(
            {"minMember": integer, "scheduleTimeoutSeconds": integer, "minResources": amounts}
        ),
    }
)
KINDS: dict[str, tuple[Callable[[], Any], st.SearchStrategy[dict[str, Any]]]] = {
    "pods": (lambda: resources.pods(ShapeTable()), pods),
    "nodes": (lambda: resources.nodes(lambda _: None), nodes),
    "namespaces": (lambda: resources.NAMESPACES, namespaces),
    "services": (lambda: resources.SERVICES, services),
    "budgets": (lambda: resources.DISRUPTION_BUDGETS, budgets),
    "claims": (lambda: resources.CLAIMS, claims),
    "volumes": (lambda: resources.VOLUMES, volumes),
    "csi": (lambda: resources.CSI_NODES, csi_nodes),
    "devices": (lambda: resources.RESOURCE_CLAIMS, devices),
}
lines = st.one_of(
    pods.map(lambda body: ("pods", body)),
    *(st.tuples(st.just(kind), strategy) for kind, (_, strategy) in KINDS.items()),
    pod_groups.map(lambda body: ("podgroups", body)),
    st.just(("advance", {})),
)


@given(st.lists(lines, max_size=30))
@settings(max_examples=of_size(20, 4_000))
def test_absurd_values_are_only_values(history: list[tuple[str, dict[str, Any]]]) -> None:
    """I8: whatever numbers, times and texts objects hold, they are applied, planned with and told
    of.
    """
    rules = Rules(reservations=ReservationLimits(small_head_after_s=0.0))
    world = World(node("n-0", gpus=4), node("n-1", gpus=4), rules=rules, preempts=True)
    stores = {kind: Store(make(), world.say, lambda _: None) for kind, (make, _) in KINDS.items()}
    for store in stores.values():
        store.resource_version = "1"
    for kind, body in history:
        if kind == "advance":
            world.advance(31.0)
        elif kind == "podgroups":
            found = parse_pod_group(body, api_group="scheduling.x-k8s.io", version="v1alpha1")
            world.say(Applied(found))
        else:
            stores[kind].take_line(json.dumps({"type": "MODIFIED", "object": body}).encode())
            world.turn()
    world.advance(100.0)
    # every column is made again
    world.say(Replaced(Node, (*world.nodes.values(), node("n-2", gpus=1))))
    world.say(Applied(ours := pod("ours", gpus=1)))
    world.pods[ours.uid] = ours
    world.told()


def test_pods_that_ask_for_more_than_int64_leave_a_full_node() -> None:
    """I8: pods that name their node may ask any sum of it; it is full, and room comes back as they
    go.
    """
    world = World(node("n-0", gpus=4, cpu_milli=64_000), node("n-1", gpus=4, cpu_milli=64_000))
    greedy = [running(pod(f"g-{i}", gpus=0, cpu_milli=AMOUNT_LIMIT), "n-0") for i in range(40_000)]
    world.create(greedy)
    world.add_nodes(node("n-2", gpus=4, cpu_milli=64_000))  # every column is made again
    row = world.state.snapshot().resources["cpu"]
    assert world.state.snapshot().free[row, 0] == OVERFULL
    world.create(pod("p", gpus=1, cpu_milli=1))
    assert world.settle().bound()["p"] != "n-0"
    world.delete(*greedy)
    world.check()
    assert world.state.snapshot().free[row, 0] == 64_000


PARTS = (
    (Cluster, "occupy"),
    (Cluster, "_count_terms"),
    (Cluster, "_settle"),
    (Cluster, "nominate"),
    (StorageCache, "keep"),
    (StorageCache, "apply"),
    (MemberStore, "_enter"),
    (MemberStore, "_leave"),
    (Registry, "touch"),
    (Registry, "gang"),
    (Cluster, "apply_node"),
)


def test_a_member_whose_deletion_fails_halfway_is_of_no_gang(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """I8: whatever else is lost of the change, a pod that is gone counts for no minimum."""
    world = World(node("n-0", gpus=4))
    world.sets_aside = True
    first, *_ = there = members("g", 2)
    world.create(*there)
    with monkeypatch.context() as broken:
        broken.setattr(MemberStore, "_leave", mock.Mock(side_effect=OverflowError("too large")))
        world.delete(first)
    world.check()
    assert first.uid not in world.state.registry.gangs["ns/g"].members


@given(
    st.sampled_from(PARTS),
    st.integers(0, 12),
    st.lists(
        st.tuples(st.sampled_from(["run", "wait", "delete", "relabel", "node"]), st.integers(0, 3)),
        max_size=12,
    ),
)
def test_an_object_whose_application_raises_is_set_aside(
    part: tuple[type, str], good: int, history: list[tuple[str, int]]
) -> None:
    """I8: wherever it raises, everything that is counted stays a recount, and the next gang is
    scheduled.
    """
    world = World(node("n-0", gpus=4), node("n-1", gpus=4), node("n-2", gpus=4))
    world.sets_aside = True
    of, method = part
    real, left = getattr(of, method), good

    def fails(*args: Any, **more: Any) -> Any:
        nonlocal left
        left -= 1
        if left == -1:
            raise OverflowError("Python int too large to convert to C long")
        return real(*args, **more)

    with mock.patch.object(of, method, fails):
        for step, number in history:
            match step:
                case "run":
                    world.create(
                        running(pod(f"r-{number}", gpus=1, uid=f"u-{number}"), f"n-{number % 2}")
                    )
                case "wait":
                    world.create(*(members(f"g-{number}", 2)))
                case "delete":
                    world.delete(
                        *[each for each in world.pods.values() if each.uid.endswith(str(number))]
                    )
                case "relabel" if f"u-{number}" in world.pods:
                    world.update(world.pods[f"u-{number}"], labels={"a": str(number)})
                case "node":
                    world.add_nodes(node(f"n-{number}", gpus=number))
            world.check()
    world.turn()
    world.add_nodes(node("spare", gpus=20))
    world.create(members("last", 2))
    assert {name for name in world.settle().bound() if name.startswith("last")} == {
        "last-0",
        "last-1",
    }
    told = [message for _, _, message in world.events("SetAside")]
    assert len(told) <= 1


@pytest.mark.parametrize("again", [False, True])
def test_a_node_with_a_pod_that_is_set_aside_is_full(again: bool) -> None:
    """I8: a pod on a node that cannot be applied takes all its room, until it can be or is gone; it
    is told of once.
    """
    world = World(node("n-0", gpus=4))
    world.sets_aside = True
    bad = running(pod("bad", gpus=1), "n-0")
    real = Cluster.occupy

    def fails(cluster: Cluster, pod: Pod, node: str) -> None:
        real(cluster, pod, node)
        if pod.shape is bad.shape:
            raise OverflowError("too large")

    with mock.patch.object(Cluster, "occupy", fails):
        world.create(bad)
        world.update(bad, labels={"a": "b"})
    ((about, _, message),) = world.events("SetAside")
    assert about == "Pod ns/bad"
    assert message.startswith("gangsched cannot process Pod ns/bad;")
    assert (
        "; until the object changes, node n-0 counts as full: OverflowError: too large" in message
    )
    assert world.state.counts.set_aside == 2
    world.create(pod("p", gpus=2))
    assert "p" not in world.settle().bound()
    world.update(bad, labels={}) if again else world.delete(bad)
    assert world.settle().bound()["p"] == "n-0"


def test_a_pod_that_cannot_be_decoded_takes_its_node() -> None:
    """I8: so does one whose requests are no quantities, if no version of it was
    understood before.
    """
    world = World(node("n-0", gpus=4))
    complaints: list[str] = []
    store = Store(resources.pods(ShapeTable()), world.say, complaints.append)
    store.resource_version = "1"
    body = {
        "metadata": {"name": "bad", "namespace": "ns", "uid": "u"},
        "spec": {
            "nodeName": "n-0",
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "much"}}}],
        },
        "status": {"phase": "Running"},
    }
    store.take_line(json.dumps({"type": "ADDED", "object": body}).encode())
    (complaint,) = complaints
    assert complaint.startswith('Pod ns/bad cannot be understood: cpu: "much" is not a quantity')
    world.check()
    assert world.state.snapshot().free[world.state.snapshot().resources[PODS], 0] < 0
    store.take_line(json.dumps({"type": "DELETED", "object": body}).encode())
    assert world.state.snapshot().free[world.state.snapshot().resources[PODS], 0] > 0
