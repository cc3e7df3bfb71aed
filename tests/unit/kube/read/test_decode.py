"""Decoding: what of an API object becomes a value, and what is said about what does not."""

from __future__ import annotations

import gc
import json
from typing import Any

import msgspec
import pytest

from gangsched.kube.read.decode import (
    DecodeFault,
    decode_disruption_budget,
    decode_node,
    decode_pod,
    decode_service,
)
from gangsched.kube.read.shapes import ShapeTable
from gangsched.kube.read.wire import WireDisruptionBudget, WireNode, WirePod, WireService
from gangsched.model.disruption import PodDisruptionBudget
from gangsched.model.inter_pod import Requirement
from gangsched.model.objects import (
    PermitStamp,
    Phase,
    Pod,
    ScheduledCondition,
    Service,
    Taint,
    Toleration,
)
from tests.unit.kube.fakes import node, pod


def decoded(body: dict[str, Any], shapes: ShapeTable | None = None) -> Pod:
    table = ShapeTable() if shapes is None else shapes
    kept = decode_pod(msgspec.json.decode(json.dumps(body), type=WirePod), table)
    assert kept is not None
    return kept


def requests(body: dict[str, Any]) -> dict[str, int]:
    return dict(decoded(body).shape.requests)


def status_of(name: str, cpu: str | None, allocated: str | None = None) -> dict[str, Any]:
    status: dict[str, Any] = {"name": name, "resources": {"requests": {"cpu": cpu}}}
    return status | ({"allocatedResources": {"cpu": allocated}} if allocated is not None else {})


def test_plain_pod() -> None:
    """Identity, order and requests are read exactly."""
    kept = decoded(pod(labels={"a": "b"}, spec={"priority": 7}))
    assert (kept.key, kept.uid, kept.creation_s, kept.priority) == ("ns/p", "uid-p", 1767225605, 7)
    assert kept.shape.requests == (("cpu", 1000), ("pods", 1))
    assert (kept.phase, kept.node_name, kept.deleting, kept.gated, kept.gang_metadata) == (
        Phase.PENDING,
        "",
        False,
        False,
        (),
    )
    assert kept.labels == {"a": "b"}


def test_marks_timeout_gates_and_native_group() -> None:
    """Everything that makes a gang member is carried along (semantics I2, T3)."""
    kept = decoded(
        pod(
            labels={"scheduling.x-k8s.io/pod-group": "g"},
            annotations={"gang.scheduling.koordinator.sh/timeout": "true"},
            spec={"schedulingGates": [{"name": "x"}], "schedulingGroup": {"podGroupName": "n"}},
        )
    )
    assert kept.gang_metadata == (("scheduling.x-k8s.io/pod-group", "g"),)
    assert (kept.timed_out, kept.gated, kept.native_group) == (True, True, "n")


def test_owner_is_the_controller() -> None:
    """The workload a pod belongs to is the owner that controls it (semantics E3, occupiedBy)."""
    body = pod()
    body["metadata"]["ownerReferences"] = [{"name": "other"}, {"name": "job", "controller": True}]
    assert decoded(body).owner == "job"


def test_condition_of_unbound_pods() -> None:
    """PodScheduled is known while the pod waits, so that an unchanged verdict is not written again
    (E1).
    """
    conditions = [
        {"type": "Ready", "status": "False"},
        {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": "no room",
        },
    ]
    assert decoded(pod(status={"conditions": conditions})).condition == ScheduledCondition(
        "False", "Unschedulable", "no room"
    )


def test_placement_terms() -> None:
    """Selectors, both kinds of node affinity and tolerations reach the shape as the API spells
    them.
    """
    expression = {"key": "k", "operator": "In", "values": ["v"]}
    shape = decoded(
        pod(
            spec={
                "nodeSelector": {"b": "2", "a": "1"},
                "tolerations": [
                    {
                        "key": "t",
                        "operator": "Exists",
                        "effect": "NoSchedule",
                        "tolerationSeconds": 3,
                    }
                ],
                "affinity": {
                    "nodeAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": {
                            "nodeSelectorTerms": [
                                {"matchExpressions": [expression], "matchFields": [expression]},
                                {},
                            ]
                        },
                        "preferredDuringSchedulingIgnoredDuringExecution": [
                            {"weight": 5, "preference": {"matchExpressions": [expression]}}
                        ],
                    }
                },
            }
        )
    ).shape
    requirement = Requirement("k", "In", ("v",))
    assert shape.node_selector == (("a", "1"), ("b", "2"))
    assert shape.tolerations == (Toleration("t", "Exists", "", "NoSchedule"),)
    assert shape.required is not None
    assert [(term.labels, term.fields) for term in shape.required] == [
        ((requirement,), (requirement,)),
        ((), ()),
    ]
    assert [(p.weight, p.term.labels) for p in shape.preferred] == [(5, (requirement,))]
    assert decoded(pod()).shape.required is None


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"volumes": [{"name": "v", "emptyDir": {}}]}, ()),
        (
            {"resourceClaims": [{"name": "c"}]},
            ("uses resource claims of an unknown kind, which gangsched does not support yet",),
        ),
    ],
)
def test_unsupported_features_are_named(spec: dict[str, Any], words: tuple[str, ...]) -> None:
    """What this version cannot honour is said in words, and what does not bind a pod to a place is
    not.
    """
    assert decoded(pod(spec=spec)).shape.unsupported == words


def test_sidecars_overhead_and_pod_level() -> None:
    """Requests follow kube-scheduler: sidecars add up, overhead is added, pod-level amounts replace
    cpu and memory.
    """
    inits = [{"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}}]
    assert requests(pod(spec={"initContainers": inits, "overhead": {"cpu": "250m"}}))["cpu"] == 2250
    assert requests(pod(spec={"resources": {"requests": {"cpu": "4"}}}))["cpu"] == 4000


@pytest.mark.parametrize(
    ("actual", "allocated", "infeasible", "counted"),
    [
        ("1", "1", False, 1000),
        ("1000m", "1", False, 1000),
        ("2", "2", False, 2000),
        ("500m", "500m", False, 1000),
        ("500m", "750m", False, 1000),
        ("500m", "750m", True, 750),
        ("500m", None, True, 500),
    ],
)
def test_resize_in_place(
    actual: str, allocated: str | None, infeasible: bool, counted: int
) -> None:
    """A bound pod counts with the most of wanted, actual and allocated, unless what it wants is
    infeasible.
    """
    conditions = (
        [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]
        if infeasible
        else []
    )
    status = {"containerStatuses": [status_of("c", actual, allocated)], "conditions": conditions}
    assert requests(pod(node="n", cpu="1", status=status))["cpu"] == counted


def test_resize_ignores_plain_init_containers() -> None:
    """Only sidecars among the init containers can be resized."""
    inits = [
        {"name": "i", "resources": {"requests": {"cpu": "3"}}},
        {"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}},
    ]
    status = {
        "initContainerStatuses": [status_of("i", "9"), status_of("s", "4")],
        "containerStatuses": None,
    }
    assert (
        requests(pod(node="n", cpu="1", spec={"initContainers": inits}, status=status))["cpu"]
        == 5000
    )


def test_identical_pods_share_one_shape() -> None:
    """Shapes are equal by identity; names, nodes, images and other volumes do not matter."""
    shapes = ShapeTable()
    first = decoded(
        pod("a", spec={"volumes": [{"name": "kube-api-access-1", "projected": {}}]}), shapes
    )
    second = decoded(
        pod("b", node="n", spec={"volumes": [{"name": "kube-api-access-2", "projected": {}}]}),
        shapes,
    )
    other = decoded(pod("c", cpu="2"), shapes)
    assert first.shape is second.shape
    assert other.shape is not first.shape
    assert len(shapes) == 2


def test_shapes_do_not_leak() -> None:
    """A shape lives as long as a pod that has it."""
    shapes = ShapeTable()
    kept = [decoded(pod(str(n), cpu=str(n + 1)), shapes) for n in range(20)]
    assert len(shapes) == 20
    del kept[1:]
    gc.collect()
    assert len(shapes) == 1


def test_ended_pods_are_kept_only_as_members() -> None:
    """A pod that ended is forgotten, unless a gang must know how it ended (semantics B6, E3)."""
    ended = {"phase": "Failed", "reason": "OutOfcpu"}
    wire = msgspec.json.decode(json.dumps(pod(status=ended)), type=WirePod)
    assert decode_pod(wire, ShapeTable()) is None
    member = decoded(pod(status=ended, annotations={"gang.scheduling.koordinator.sh/name": "g"}))
    assert (member.phase, member.status_reason) == (Phase.FAILED, "OutOfcpu")


def test_bad_quantity_names_pod_and_field() -> None:
    """An amount that is none is a fault that says where it stands."""
    with pytest.raises(DecodeFault, match=r'Pod ns/p .*cpu.*"much"'):
        decoded(pod(cpu="much"))


def test_node() -> None:
    """Labels, taints, cordon and allocatable; capacity is not looked at."""
    body = node(
        "n",
        cpu="7500m",
        labels={"a": "b"},
        spec={"unschedulable": True, "taints": [{"key": "t", "effect": "NoSchedule"}]},
    )
    kept = decode_node(msgspec.json.decode(json.dumps(body), type=WireNode))
    assert (kept.name, kept.uid, kept.labels, kept.unschedulable) == (
        "n",
        "uid-n",
        {"a": "b"},
        True,
    )
    assert (kept.taints, kept.allocatable) == ((Taint("t", "", "NoSchedule"),), (("cpu", 7500),))


def test_node_with_bad_allocatable() -> None:
    """A node whose amounts make no sense is a fault that names it."""
    with pytest.raises(DecodeFault, match=r"Node n .*allocatable cpu"):
        decode_node(msgspec.json.decode(json.dumps(node("n", cpu="x")), type=WireNode))


@pytest.mark.parametrize(
    ("text", "stamp"),
    [
        ("4/2 uid-p", PermitStamp(4, 2)),
        ("4/2 uid-q", None),
        ("4/2", None),
        ("4 uid-p", None),
        ("", None),
        ("-1/2 uid-p", None),
        ("4/2/1 uid-p", None),
        ("4/99999999999 uid-p", None),
    ],
)
def test_stamp_of_a_permit_is_read_back(text: str, stamp: PermitStamp | None) -> None:
    """B4: what a bind wrote says after a restart that we started this member; any other text says
    nothing.
    """
    assert decoded(pod(annotations={"gangsched.dev/permitted": text})).permitted == stamp


def test_nominated_node_is_read_while_a_pod_waits() -> None:
    """F1: where another scheduler made room; of a bound pod it says nothing."""
    promised = {"nominatedNodeName": "n"}
    assert decoded(pod("a", status=promised)).nominated_node == "n"
    assert decoded(pod("a", node="m", status=promised)).nominated_node == ""


def test_run_times_starts_and_deletions() -> None:
    """H1, H2: what is stated, the deadline, the start that the kubelet reports, and when a pod is
    to be gone.
    """
    plain = decoded(pod("a"))
    assert (plain.run_time_metadata, plain.start_s, plain.deletion_s) == ((), 0, 0)
    body = pod(
        "b",
        annotations={"gangsched.dev/expected-runtime": "1h"},
        labels={"kueue.x-k8s.io/max-exec-time-seconds": "60"},
        spec={"activeDeadlineSeconds": 30},
        status={"startTime": "1970-01-02T00:00:00Z"},
    )
    body["metadata"]["deletionTimestamp"] = "1970-01-02T00:00:30Z"
    kept = decoded(body)
    assert (kept.start_s, kept.deletion_s) == (86_400, 86_430)
    assert dict(kept.run_time_metadata) == {
        "gangsched.dev/expected-runtime": "1h",
        "kueue.x-k8s.io/max-exec-time-seconds": "60",
        "activeDeadlineSeconds": "30",
    }


def test_a_strange_start_is_none() -> None:
    """H2: a text that is no time is as good as none."""
    assert decoded(pod("a", status={"startTime": "yesterday"})).start_s == 0


def test_what_preemption_asks_of_a_pod_is_read() -> None:
    """V2, V5: grace period, controller kind, mirror annotation and preemptionPolicy; plain values
    without them.
    """
    plain = decoded(pod())
    assert (plain.grace_s, plain.controller_kind, plain.mirror, plain.never_preempts) == (
        30,
        "",
        False,
        False,
    )
    body = pod(
        annotations={"kubernetes.io/config.mirror": "hash"},
        spec={"terminationGracePeriodSeconds": 0, "preemptionPolicy": "Never"},
    )
    body["metadata"]["ownerReferences"] = [
        {"kind": "Job", "name": "j", "uid": "1"},
        {"kind": "DaemonSet", "name": "d", "uid": "2", "controller": True},
    ]
    kept = decoded(body)
    assert (kept.grace_s, kept.controller_kind, kept.owner) == (0, "DaemonSet", "d")
    assert (kept.mirror, kept.never_preempts) == (True, True)
    assert not decoded(pod(spec={"preemptionPolicy": "PreemptLowerPriority"})).never_preempts


OURS = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "PreemptionByScheduler",
    "message": "gangsched: preempting to accommodate a higher priority pod group",
}


@pytest.mark.parametrize(
    ("change", "is_target"),
    [
        ({}, True),
        ({"status": "False"}, False),
        ({"reason": "EvictionByEvictionAPI"}, False),
        ({"message": "default-scheduler: preempting to accommodate a higher priority pod"}, False),
        ({"type": "PodScheduled"}, False),
    ],
)
def test_our_victims_are_known_by_their_condition(change: dict[str, str], is_target: bool) -> None:
    """V24: True, with our reason and our message; anything else is another's eviction, or one given
    up.
    """
    ready = {"type": "Ready", "status": "True", "message": "DisruptionTarget"}
    body = pod(node="n", status={"conditions": [ready, OURS | change]})
    assert decoded(body).disruption_target is is_target
    assert not decoded(pod(status={"conditions": [OURS]})).disruption_target, (
        "nobody evicts what has no node"
    )


def budget(selector: Any, **status: int) -> PodDisruptionBudget:
    """The decoded PodDisruptionBudget `w`, of generation 2."""
    body = {
        "metadata": {"name": "w", "namespace": "ns", "uid": "u", "generation": 2},
        "spec": {"minAvailable": "50%", "selector": selector},
        "status": {"observedGeneration": 2, "disruptionsAllowed": 3, "conditions": []} | status,
    }
    return decode_disruption_budget(
        msgspec.json.decode(json.dumps(body), type=WireDisruptionBudget)
    )


def test_a_budget_selects_as_the_api_has_it() -> None:
    """V7: null selects nothing, {} every pod of the namespace; labels and expressions must all
    match.
    """
    mine, other = decoded(pod(labels={"a": "b", "c": "d"})), decoded(pod(labels={"a": "x"}))
    assert not budget(None).covers(mine)
    assert budget({}).covers(mine)
    assert budget({}).covers(other)
    assert not budget({}).covers(msgspec.structs.replace(mine, namespace="elsewhere"))
    both = {
        "matchLabels": {"a": "b"},
        "matchExpressions": [{"key": "c", "operator": "In", "values": ["d", "e"]}],
    }
    assert budget(both).covers(mine)
    assert not budget(both).covers(other)
    assert not budget({"matchExpressions": [{"key": "c", "operator": "DoesNotExist"}]}).covers(mine)


def test_a_budget_allows_what_its_status_says_of_its_newest_spec() -> None:
    """V7: a status that is behind allows nothing, as the API server then answers 429."""
    assert budget({}).allowed == 3
    assert budget({}, disruptionsAllowed=0).allowed == 0
    assert budget({}, observedGeneration=1).allowed == 0
    assert budget({}, disruptionsAllowed=-1).allowed == 0


@pytest.mark.parametrize(
    ("reason", "message", "rejection"),
    [
        (
            "SysctlForbidden",
            "Pod was rejected: forbidden sysctl: a",
            "SysctlForbidden: forbidden sysctl: a",
        ),
        (
            "NodePorts",
            "Pod was rejected: Predicate NodePorts failed",
            "NodePorts: Predicate NodePorts failed",
        ),
        ("SomethingNew", "Pod was rejected: ", "SomethingNew"),
        (
            "OutOfcpu",
            "Node didn't have enough resource: cpu",
            "OutOfcpu: Node didn't have enough resource: cpu",
        ),
        ("Evicted", "Pod was evicted in response to imminent node shutdown.", ""),
        ("", "it was rejected", ""),
    ],
)
def test_a_rejection_is_known_by_how_the_kubelet_begins(
    reason: str, message: str, rejection: str
) -> None:
    """B6: all of them begin alike, whatever their reason; known reasons do for kubelets that did
    not yet.
    """
    bound = pod(annotations={"scheduling.k8s.io/group-name": "g"})
    for phase, expected in (("Failed", rejection), ("Running", "")):
        status = {"phase": phase, "reason": reason, "message": message}
        assert decoded({**bound, "status": status}).rejection == expected


@pytest.mark.parametrize(
    ("spec", "selector"),
    [
        (
            {"selector": {"app": "web", "tier": "front"}, "type": "LoadBalancer"},
            {("app", "web"), ("tier", "front")},
        ),
        ({"selector": {}}, None),
        ({"selector": None}, None),
        ({"externalName": "example.com"}, None),
    ],
)
def test_a_service_is_the_labels_that_it_selects(
    spec: Any, selector: set[tuple[str, str]] | None
) -> None:
    """As in kube-scheduler, a Service without a selector selects no pod."""
    body = {
        "metadata": {"name": "s", "namespace": "ns", "labels": {"a": "b"}},
        "spec": spec,
        "status": {"x": 1},
    }
    found = decode_service(msgspec.json.decode(json.dumps(body), type=WireService))
    assert found == (Service("ns", "s", frozenset(selector)) if selector else None)


@pytest.mark.parametrize(("stated", "kept"), [(2**63, 2**31 - 1), (-(10**30), -(2**31)), (7, 7)])
def test_a_priority_is_that_of_an_int32(stated: int, kept: int) -> None:
    """I8: an absurd number is the largest that the API has, so that no column overflows."""
    assert decoded(pod(spec={"priority": stated})).priority == kept
