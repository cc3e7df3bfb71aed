"""The real mpi-operator with `--gang-scheduling=gangsched`: what it emits is scheduled as a gang,
unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from control_plane import ControlPlane
from control_plane.api import Api, Object
from control_plane.applying import ROOT, load_yaml
from control_plane.following import Following

from tests.operators.members import (
    GROUP_LABEL,
    GROUPS,
    await_bound,
    await_none,
    await_refused,
    starts_whole,
)
from tests.operators.operator import Operator, example, install, source

pytestmark = pytest.mark.e2e

JOBS = "/apis/kubeflow.org/v2beta1/namespaces/default/mpijobs"
ARGV = [
    "-kubeConfig=@KUBECONFIG@",
    "-gang-scheduling=gangsched",
    "-lock-namespace=mpi-operator",
    "-monitoring-port=0",
]


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
    body = example("MPIJob")
    return {**body, "metadata": {"name": name}, "spec": {**body["spec"], **spec}}


def essence(pod: Object) -> tuple[object, ...]:
    """What the scheduler reads of a member: its role, its gang, its scheduler, its requests."""
    labels = pod["metadata"]["labels"]
    requests = [container.get("resources") for container in pod["spec"]["containers"]]
    return (
        labels["training.kubeflow.org/job-role"],
        labels[GROUP_LABEL],
        pod["spec"]["schedulerName"],
        requests,
    )


def with_requests(pod: Object) -> Object:
    """As the API server stores it: a limit is a request, too."""
    for container in pod["spec"]["containers"]:
        resources = container["resources"]
        resources["requests"] = {**resources.get("limits", {}), **resources["requests"]}
    return pod


def test_the_guides_job_waits_whole_and_starts_whole(api: Api, pods: Following) -> None:
    """What it makes is what `examples/mpi-launcher-workers.yaml` shows; none is bound before all
    have room.
    """
    waiting = starts_whole(api, pods, lambda: api.post(JOBS, example("MPIJob")), prefix="pi-")
    group, *shown = load_yaml(ROOT / "examples" / "mpi-launcher-workers.yaml")
    assert api.get(f"{GROUPS}/pi")["spec"] == group["spec"]
    assert sorted(map(essence, waiting), key=repr) == sorted(
        map(essence, map(with_requests, shown)), key=repr
    )


def test_it_overwrites_the_templates_scheduler(api: Api, pods: Following) -> None:
    """A template that says another scheduler is served all the same: the flag's value is what pods
    say.
    """
    body = job("other")
    for replica in body["spec"]["mpiReplicaSpecs"].values():
        replica["template"]["spec"]["schedulerName"] = "default-scheduler"
    api.post(JOBS, body)
    await_bound(pods, "other-", 3)
    assert {pod["spec"]["schedulerName"] for pod in pods.objects().values()} == {"gangsched"}


def test_a_launcher_that_waits_for_workers_needs_a_smaller_minimum(
    api: Api, pods: Following
) -> None:
    """`WaitForWorkersReady` alone waits for ever for its launcher; with `minAvailable` = workers it
    starts.
    """
    late = {"launcherCreationPolicy": "WaitForWorkersReady"}
    api.post(JOBS, job("never", **late))
    await_refused(pods, 2, "WaitingForMembers")
    assert len(pods.objects()) == 2
    api.delete(f"{JOBS}/never")
    await_none(pods)
    api.post(JOBS, job("starts", **late, runPolicy={"schedulingPolicy": {"minAvailable": 2}}))
    await_bound(pods, "starts-", 3)
    by_name = {pod["metadata"]["name"]: pod for pod in pods.objects().values()}
    launcher = next(pod for name, pod in by_name.items() if "launcher" in name)
    assert (
        launcher["metadata"]["creationTimestamp"]
        >= by_name["starts-worker-1"]["metadata"]["creationTimestamp"]
    )
