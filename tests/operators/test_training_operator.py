"""The real training-operator, `--gang-scheduler-name=gangsched`: its PyTorchJob is scheduled as a gang, unchanged."""

from __future__ import annotations

import base64
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from control_plane import ControlPlane
from control_plane import objects as make
from control_plane.api import Api, Object
from control_plane.applying import apply
from control_plane.following import Following
from control_plane.pods import nodes_of
from control_plane.ports import free_ports

from tests.operators.conftest import PODS, WITHIN_S, unschedulable
from tests.operators.operator import Operator, install, of_the_guide, source

pytestmark = pytest.mark.e2e

JOBS = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs"
GROUPS = "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/default/podgroups"
EVENTS = "/api/v1/namespaces/default/events"
SECRET = "/api/v1/namespaces/kubeflow/secrets/training-operator-webhook-cert"
CERTIFICATES = Path("/tmp/k8s-webhook-server/serving-certs")
"""The operator knows no other place."""
ARGV = [
    "--kubeconfig=@KUBECONFIG@",
    "--gang-scheduler-name=gangsched",
    "--enable-scheme=pytorchjob",
    "--metrics-bind-address=0",
    "--health-probe-bind-address=0",
]


@pytest.fixture(scope="module", autouse=True)
def operator(plane: ControlPlane) -> Iterator[Operator]:
    """training-operator, installed as its manifests say; its webhook is asked about no namespace."""
    api = Api.of(plane)
    for body in install(api, source("training-operator") / "manifests" / "overlays" / "standalone"):
        if body["kind"] == "ValidatingWebhookConfiguration":  # without it, it does not start
            for webhook in body["webhooks"]:
                webhook["namespaceSelector"] = {"matchLabels": {"example.com/asked": "yes"}}
            apply(api, body)
    argv = [*ARGV, f"--webhook-server-port={free_ports(1)[0]}"]
    try:
        with Operator(plane, "training-operator", account="kubeflow/training-operator", argv=argv) as started:
            _mount(api)
            started.said("Starting workers", within_s=WITHIN_S)
            yield started
    finally:
        shutil.rmtree(CERTIFICATES, ignore_errors=True)
        api.close()


def _mount(api: Api) -> None:
    """Put the Secret, once the operator has filled it, where the kubelet would."""
    deadline_s = time.monotonic() + WITHIN_S
    while not (data := api.get(SECRET).get("data")):
        assert time.monotonic() < deadline_s, "the operator makes no certificate"
        time.sleep(0.1)
    CERTIFICATES.mkdir(parents=True, exist_ok=True)
    for name, text in data.items():
        (CERTIFICATES / name).write_bytes(base64.b64decode(text))


def job(name: str) -> Object:
    """The job of the guide under another name."""
    return {**of_the_guide("PyTorchJob"), "metadata": {"name": name}}


def test_the_guides_job_waits_whole_and_starts_whole(api: Api, pods: Following) -> None:
    """Its PodGroup counts all replicas, its pods name the scheduler; none is bound before all have room."""
    api.post(PODS, make.pod("in-the-way", gpus=1))
    pods.wait_for(lambda items: nodes_of(items, "in-the-way"), within_s=WITHIN_S, what="the pod in the way")
    api.post(JOBS, of_the_guide("PyTorchJob"))
    waiting = pods.wait_for(lambda items: unschedulable(items, 3), within_s=WITHIN_S, what="the reason on all three")
    assert not nodes_of(pods.objects(), "bert-")
    assert {pod["spec"]["schedulerName"] for pod in waiting} == {"gangsched"}
    assert {pod["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] for pod in waiting} == {"bert"}
    assert api.get(f"{GROUPS}/bert")["spec"]["minMember"] == 3
    api.delete(f"{PODS}/in-the-way")
    pods.wait_for(lambda items: len(nodes_of(items, "bert-")) == 3, within_s=WITHIN_S, what="all three to be bound")


def test_a_templates_scheduler_stays_with_a_warning(api: Api, pods: Following) -> None:
    """Pods of such a template are not ours, so the gang lacks them."""
    body = job("other")
    for replica in body["spec"]["pytorchReplicaSpecs"].values():
        replica["template"]["spec"]["schedulerName"] = "default-scheduler"
    with Following(api, EVENTS) as events:
        api.post(JOBS, body)
        pods.wait_for(lambda items: len(items) == 3 or None, within_s=WITHIN_S, what="its pods")
        events.wait_for(
            lambda items: any(event["reason"] == "SetPodTemplateSchedulerName" for event in items.values()),
            within_s=WITHIN_S,
            what="the operator's warning",
        )
    assert {pod["spec"]["schedulerName"] for pod in pods.objects().values()} == {"default-scheduler"}


def test_the_minimum_may_be_less_than_all(api: Api, pods: Following) -> None:
    """`minAvailable: 2` starts two where three have no room, and the third once it has."""
    api.post(PODS, make.pod("in-the-way", gpus=1))
    pods.wait_for(lambda items: nodes_of(items, "in-the-way"), within_s=WITHIN_S, what="the pod in the way")
    body = job("elastic")
    body["spec"]["runPolicy"] = {"schedulingPolicy": {"minAvailable": 2}}
    api.post(JOBS, body)
    pods.wait_for(lambda items: len(nodes_of(items, "elastic-")) == 2, within_s=WITHIN_S, what="two to be bound")
    pods.wait_for(lambda items: unschedulable(items, 1), within_s=WITHIN_S, what="the third to say why it waits")
    api.delete(f"{PODS}/in-the-way")
    pods.wait_for(lambda items: len(nodes_of(items, "elastic-")) == 3, within_s=WITHIN_S, what="the third to be bound")
