"""The real mpi-operator without gang scheduling: its jobs are gangs of their owner, without a
PodGroup.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator

import pytest
from control_plane import ControlPlane
from control_plane.api import Api, Object
from control_plane.applying import ROOT, apply_yaml
from control_plane.following import Following
from control_plane.pods import nodes_of

from tests.operators.members import (
    GROUPS,
    await_bound,
    await_refused,
    give_them_back,
    starts_whole,
    take_gpus,
)
from tests.operators.operator import Operator, example, install, source

pytestmark = pytest.mark.e2e

JOBS = "/apis/kubeflow.org/v2beta1/namespaces/default/mpijobs"
ARGV = [
    "-kubeConfig=@KUBECONFIG@",
    "-lock-namespace=mpi-operator",
    "-monitoring-port=0",
]


@pytest.fixture(scope="module", autouse=True)
def operator(plane: ControlPlane) -> Iterator[None]:
    """mpi-operator, and gangsched may read its jobs."""
    api = Api.of(plane)
    install(api, source("mpi-operator") / "manifests" / "overlays" / "standalone")
    for name in ("rbac-owners.yaml", "rbac-owners-kubeflow.yaml"):
        apply_yaml(api, ROOT / "manifests" / name)
    api.close()
    with Operator(plane, "mpi-operator", account="mpi-operator/mpi-operator", argv=ARGV):
        yield


def asking(**spec: object) -> Object:
    """The guide's job, whose pods ask for the gang of their owner."""
    body = copy.deepcopy(example("MPIJob"))
    body["spec"].update(spec)
    for replica in body["spec"]["mpiReplicaSpecs"].values():
        template = replica["template"]
        template["metadata"] = {"labels": {"gangsched.dev/gang": "owner"}}
        template["spec"]["schedulerName"] = "gangsched"
    return body


def test_launcher_and_workers_wait_whole_and_start_whole(api: Api, pods: Following) -> None:
    """O3: although the launcher is the pod of a Job."""
    starts_whole(api, pods, lambda: api.post(JOBS, asking()), prefix="pi-")
    assert not api.list(GROUPS).items


def test_workers_start_without_a_launcher_that_waits_for_them(api: Api, pods: Following) -> None:
    """O3: with WaitForWorkersReady the launcher comes once they are ready, and starts."""
    take_gpus(api, pods)
    api.post(JOBS, asking(launcherCreationPolicy="WaitForWorkersReady"))
    await_refused(pods, 2)
    assert not nodes_of(pods.objects(), "pi-")
    give_them_back(api)
    await_bound(pods, "pi-", 3)
