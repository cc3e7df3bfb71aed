"""Decoding of what a pod says about other pods: ports, inter-pod affinity, topology spread,
namespaces.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from gangsched.kube.read.decode import decode_namespace, decode_pod
from gangsched.kube.read.shapes import ShapeTable
from gangsched.kube.read.wire import WireNamespace, WirePod
from gangsched.model.inter_pod import (
    HostPort,
    InterPodConstraints,
    PodTerm,
    Requirement,
    Spread,
    WeightedPodTerm,
)
from gangsched.model.objects import Namespace, Pod
from tests.unit.kube.fakes import pod

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
APP = {"matchLabels": {"app": "a"}}
APP_IS_A = (Requirement("app", "In", ("a",)),)


def decoded(spec: dict[str, Any], shapes: ShapeTable | None = None, **rest: Any) -> Pod:
    body = json.dumps(pod(spec=spec, **rest))
    table = ShapeTable() if shapes is None else shapes
    kept = decode_pod(msgspec.json.decode(body, type=WirePod), table)
    assert kept is not None
    return kept


def inter_pod(spec: dict[str, Any]) -> InterPodConstraints | None:
    return decoded(spec).shape.inter_pod


def test_plain_pod_has_no_ties() -> None:
    """The fast path: ports of the container only, empty lists and node affinity tie a pod to
    nobody.
    """
    assert inter_pod({}) is None
    assert (
        inter_pod(
            {"containers": [{"name": "c", "ports": [{"containerPort": 80, "protocol": "TCP"}]}]}
        )
        is None
    )
    assert (
        inter_pod(
            {"affinity": {"podAffinity": {}, "nodeAffinity": {}}, "topologySpreadConstraints": []}
        )
        is None
    )


def test_host_ports_of_containers_and_sidecars() -> None:
    """A sidecar's host port counts, a plain init container's does not; no address means every
    address.
    """
    sidecar = {
        "name": "s",
        "restartPolicy": "Always",
        "ports": [{"hostPort": 2, "hostIP": "10.0.0.1"}],
    }
    found = inter_pod(
        {
            "containers": [
                {"name": "c", "ports": [{"hostPort": 1, "protocol": "UDP"}, {"containerPort": 9}]}
            ],
            "initContainers": [{"name": "i", "ports": [{"hostPort": 3}]}, sidecar],
        }
    )
    assert found == InterPodConstraints(ports=(HostPort("UDP", 1), HostPort("TCP", 2, "10.0.0.1")))


def test_affinity_terms() -> None:
    """Required and preferred terms, namespaces and selectors; null selects nothing and {}
    everything.
    """
    term = {
        "topologyKey": "zone",
        "labelSelector": APP,
        "namespaces": ["b", "a"],
        "namespaceSelector": {},
    }
    found = inter_pod(
        {
            "affinity": {
                "podAffinity": {
                    REQUIRED: [term],
                    PREFERRED: [{"weight": 7, "podAffinityTerm": term}],
                },
                "podAntiAffinity": {
                    REQUIRED: [{"topologyKey": "host"}],
                    PREFERRED: [
                        {
                            "weight": 3,
                            "podAffinityTerm": {"topologyKey": "host", "labelSelector": {}},
                        }
                    ],
                },
            }
        }
    )
    expected = PodTerm("zone", APP_IS_A, ("a", "b"), ())
    assert found == InterPodConstraints(
        affinity=(expected,),
        anti_affinity=(PodTerm("host", None),),
        preferred=(WeightedPodTerm(7, expected), WeightedPodTerm(-3, PodTerm("host", ()))),
    )


def test_spread_constraints() -> None:
    """Hard and soft constraints apart, with kube-scheduler's defaults: minDomains 1, honor
    affinity, ignore taints.
    """
    full = {
        "topologyKey": "zone",
        "maxSkew": 2,
        "whenUnsatisfiable": "DoNotSchedule",
        "minDomains": 3,
        "labelSelector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]},
        "matchLabelKeys": ["job"],
        "nodeAffinityPolicy": "Ignore",
        "nodeTaintsPolicy": "Honor",
    }
    soft = {
        "topologyKey": "zone",
        "maxSkew": 1,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": APP,
    }
    assert inter_pod({"topologySpreadConstraints": [full, soft]}) == InterPodConstraints(
        spread=(
            Spread(
                topology_key="zone",
                max_skew=2,
                selector=(Requirement("app", "Exists"),),
                min_domains=3,
                honor_affinity=False,
                honor_taints=True,
                match_label_keys=("job",),
            ),
        ),
        soft_spread=(Spread(topology_key="zone", max_skew=1, selector=APP_IS_A),),
    )


@pytest.mark.parametrize("replica", ["0", "1"])
def test_members_that_differ_in_labels_only_share_a_shape(replica: str) -> None:
    """Replica indices must not break up a gang's shape, with ties or without."""
    spec = {
        "affinity": {"podAntiAffinity": {REQUIRED: [{"topologyKey": "host", "labelSelector": APP}]}}
    }
    shapes = ShapeTable()
    first = decoded(spec, shapes, labels={"app": "a"})
    assert decoded(spec, shapes, labels={"app": "a", "index": replica}).shape is first.shape


def test_namespace_labels() -> None:
    """Of a namespace only the labels are kept."""
    wire = msgspec.json.decode(
        b'{"metadata": {"name": "n", "labels": {"team": "x"}}}', type=WireNamespace
    )
    assert decode_namespace(wire) == Namespace("n", {"team": "x"})
