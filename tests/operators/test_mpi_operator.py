"""The real mpi-operator with `--gang-scheduling=gangsched`: what it emits is scheduled as a gang, unchanged."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from control_plane import ControlPlane
from control_plane import objects as make
from control_plane.api import Api, Object
from control_plane.applying import ROOT, load_yaml
from control_plane.following import Following
from control_plane.pods import nodes_of, refusal

from tests.operators.conftest import PODS, WITHIN_S, unschedulable
from tests.operators.operator import Operator, install, of_the_guide, source

pytestmark = pytest.mark.e2e

JOBS = "/apis/kubeflow.org/v2beta1/namespaces/default/mpijobs"
GROUPS = "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/default/podgroups"
GROUP_LABEL = "scheduling.x-k8s.io/pod-group"
ARGV = ["-kubeConfig=@KUBECONFIG@", "-gang-scheduling=gangsched", "-lock-namespace=mpi-operator", "-monitoring-port=0"]


@pytest.fixture(scope="module", autouse=True)
def operator(plane: ControlPlane) -> Iterator[Operator]:
    """mpi-operator, installed as its manifests say."""
    api = Api.of(plane)
    install(api, source("mpi-operator") / "manifests" / "overlays" / "standalone")
    api.close()
    with Operator(plane, "mpi-operator", account="mpi-operator/mpi-operator", argv=ARGV) as started:
        yield started


def job(name: str, **spec: Any) -> Object:
    """The job of the guide under another name, with fields of its spec set."""
    body = of_the_guide("MPIJob")
    return {**body, "metadata": {"name": name}, "spec": {**body["spec"], **spec}}


def essence(pod: Object) -> tuple[object, ...]:
    """What the scheduler reads of a member: its role, its gang, its scheduler, its requests."""
    labels = pod["metadata"]["labels"]
    requests = [container.get("resources") for container in pod["spec"]["containers"]]
    return labels["training.kubeflow.org/job-role"], labels[GROUP_LABEL], pod["spec"]["schedulerName"], requests


def with_requests(pod: Object) -> Object:
    """As the API server stores it: a limit is a request, too."""
    for container in pod["spec"]["containers"]:
        resources = container["resources"]
        resources["requests"] = {**resources.get("limits", {}), **resources["requests"]}
    return pod


def test_the_guides_job_waits_whole_and_starts_whole(api: Api, pods: Following) -> None:
    """What it makes is what `examples/mpi-launcher-workers.yaml` shows; none is bound before all have room."""
    api.post(PODS, make.pod("in-the-way", gpus=1))
    pods.wait_for(lambda items: nodes_of(items, "in-the-way"), within_s=WITHIN_S, what="the pod in the way")
    api.post(JOBS, of_the_guide("MPIJob"))
    waiting = pods.wait_for(lambda items: unschedulable(items, 3), within_s=WITHIN_S, what="the reason on all three")
    assert not nodes_of(pods.objects(), "pi-")
    group, *example = load_yaml(ROOT / "examples" / "mpi-launcher-workers.yaml")
    assert api.get(f"{GROUPS}/pi")["spec"] == group["spec"]
    assert sorted(map(essence, waiting), key=repr) == sorted(map(essence, map(with_requests, example)), key=repr)
    api.delete(f"{PODS}/in-the-way")
    pods.wait_for(lambda items: len(nodes_of(items, "pi-")) == 3, within_s=WITHIN_S, what="all three to be bound")


def test_it_overwrites_the_templates_scheduler(api: Api, pods: Following) -> None:
    """A template that says another scheduler is served all the same: the flag's value is what pods say."""
    body = job("other")
    for replica in body["spec"]["mpiReplicaSpecs"].values():
        replica["template"]["spec"]["schedulerName"] = "default-scheduler"
    api.post(JOBS, body)
    pods.wait_for(lambda items: len(nodes_of(items, "other-")) == 3, within_s=WITHIN_S, what="all three to be bound")
    assert {pod["spec"]["schedulerName"] for pod in pods.objects().values()} == {"gangsched"}


def test_a_launcher_that_waits_for_workers_needs_a_smaller_minimum(api: Api, pods: Following) -> None:
    """`WaitForWorkersReady` alone waits for ever for its launcher; with `minAvailable` = workers it starts."""
    late = {"launcherCreationPolicy": "WaitForWorkersReady"}
    api.post(JOBS, job("never", **late))

    def lacks_one(items: Any) -> bool:
        said = [refusal(pod) for pod in items.values()]
        return [reason for reason, _ in said] == ["WaitingForMembers"] * 2

    pods.wait_for(lacks_one, within_s=WITHIN_S, what="two workers that wait for a third member")
    api.delete(f"{JOBS}/never")
    pods.wait_for(lambda items: not items, within_s=WITHIN_S, what="the end of its pods")
    api.post(JOBS, job("starts", **late, runPolicy={"schedulingPolicy": {"minAvailable": 2}}))
    pods.wait_for(lambda items: len(nodes_of(items, "starts-")) == 3, within_s=WITHIN_S, what="workers, then launcher")
    by_name = {pod["metadata"]["name"]: pod for pod in pods.objects().values()}
    launcher = next(pod for name, pod in by_name.items() if "launcher" in name)
    assert launcher["metadata"]["creationTimestamp"] >= by_name["starts-worker-1"]["metadata"]["creationTimestamp"]
