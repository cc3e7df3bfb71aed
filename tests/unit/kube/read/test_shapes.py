"""Requests of the pod as a whole, and what counts while they are resized in place."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from gangsched.kube.read.decode import decode_pod
from gangsched.kube.read.shapes import ShapeTable
from gangsched.kube.read.wire import WirePod
from tests.unit.kube.fakes import pod

WANTED = {"resources": {"requests": {"cpu": "2"}}}
INFEASIBLE = [{"type": "PodResizePending", "status": "Unknown", "reason": "Infeasible"}]


def counted(node: str, status: dict[str, Any]) -> dict[str, int]:
    """What a pod of one container of 1 cpu counts with, that asks for 2 as a whole."""
    body = json.dumps(pod(node=node, cpu="1", spec=WANTED, status=status))
    kept = decode_pod(msgspec.json.decode(body, type=WirePod), ShapeTable())
    assert kept is not None
    return dict(kept.shape.requests)


def given(cpu: str, *, allocated: str = "0", **rest: Any) -> dict[str, Any]:
    """A status that says what the pod has and what the node has set aside for it."""
    has = {"cpu": cpu, "memory": "9Gi"}
    return {"resources": {"requests": has}, "allocatedResources": {"cpu": allocated}, **rest}


def test_the_most_of_wanted_actual_and_allocated_counts() -> None:
    """A bound pod takes the most of the three; only resources that it states count."""
    assert counted("n", {})["cpu"] == 2000
    assert counted("n", given("1"))["cpu"] == 2000
    assert counted("n", given("3"))["cpu"] == 3000
    assert counted("n", given("1", allocated="4"))["cpu"] == 4000
    assert "memory" not in counted("n", given("3"))


def test_what_can_never_be_given_does_not_count() -> None:
    """With `Infeasible`, whatever the condition's status, the pod counts with what it has."""
    assert counted("n", given("1500m", conditions=INFEASIBLE))["cpu"] == 1500


def test_a_pod_without_a_node_counts_with_what_it_wants() -> None:
    """A status says nothing about a pod that does not run."""
    assert counted("", given("3"))["cpu"] == 2000
