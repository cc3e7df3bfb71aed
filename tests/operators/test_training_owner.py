"""The real training-operator without gang scheduling: its jobs are gangs of their owner, without a
PodGroup.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest
from control_plane import ControlPlane
from control_plane import objects as make
from control_plane.api import Api, Object
from control_plane.applying import ROOT, apply_yaml
from control_plane.following import Following
from control_plane.pods import nodes_of

from tests.operators.members import (
    GROUPS,
    PODS,
    WITHIN_S,
    await_bound,
    await_refused,
    give_them_back,
    starts_whole,
    take_gpus,
)
from tests.operators.operator import Operator
from tests.operators.training import API, JOBS, training_installed

pytestmark = pytest.mark.e2e

NAMESPACE = "/api/v1/namespaces/default"
ASKS = {"gangsched.dev/gang": "owner"}
KINDS = {
    "PyTorchJob": ("pytorchReplicaSpecs", "pytorch", {"Master": 1, "Worker": 2}),
    "TFJob": ("tfReplicaSpecs", "tensorflow", {"Chief": 1, "Worker": 2}),
    "XGBoostJob": ("xgbReplicaSpecs", "xgboost", {"Master": 1, "Worker": 2}),
    "PaddleJob": ("paddleReplicaSpecs", "paddle", {"Worker": 3}),
    "JAXJob": ("jaxReplicaSpecs", "jax", {"Worker": 3}),
    "MPIJob": ("mpiReplicaSpecs", "mpi", {"Launcher": 1, "Worker": 2}),
}
"""The field with the replicas of each kind, the name that its container must have, and its pods."""


@pytest.fixture(scope="module", autouse=True)
def operator(plane: ControlPlane) -> Iterator[Operator]:
    """training-operator, and gangsched may read its jobs."""
    api = Api.of(plane)
    for name in ("rbac-owners.yaml", "rbac-owners-kubeflow.yaml"):
        apply_yaml(api, ROOT / "manifests" / name)
    # The operator gives the launchers of MPIJobs a container that asks for it.
    room = {"ephemeral-storage": "100Gi"}
    api.patch("/api/v1/nodes/gpu-1/status", {"status": {"allocatable": room, "capacity": room}})
    api.close()
    with training_installed(plane) as started:
        yield started


@pytest.fixture(autouse=True)
def left(api: Api, pods: Following) -> Iterator[None]:
    """Jobs of all kinds go, and the namespace asks for nothing."""
    yield
    for kind in KINDS:
        for item in api.list(path_of(kind)).items:
            api.delete(f"{path_of(kind)}/{item['metadata']['name']}")
    api.patch(NAMESPACE, {"metadata": {"labels": {"gangsched.dev/gang": None}}})


def path_of(kind: str) -> str:
    """Where the jobs of a kind are."""
    return f"{API}/{kind.lower()}s"


def job(kind: str, labels: Mapping[str, str] = ASKS, **policy: object) -> Object:
    """A job of three pods, each of which needs a GPU."""
    field, container, replicas = KINDS[kind]
    pod = make.pod("unused", gpus=1)
    pod["spec"]["containers"][0]["name"] = container
    # The operator sets it, with a warning where the template has one.
    del pod["spec"]["restartPolicy"]
    template = {"metadata": {"labels": dict(labels)}, "spec": pod["spec"]}
    specs = {name: {"replicas": each, "template": template} for name, each in replicas.items()}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": kind,
        "metadata": {"name": "bert"},
        "spec": {field: specs, "runPolicy": policy},
    }


@pytest.mark.parametrize("kind", KINDS)
def test_a_job_that_asks_waits_whole_and_starts_whole(kind: str, api: Api, pods: Following) -> None:
    """O3: all replicas start together, of each kind."""
    take_gpus(api, pods, 2)
    api.post(path_of(kind), job(kind))
    await_refused(pods, 3)
    assert not nodes_of(pods.objects(), "bert-")
    give_them_back(api)
    await_bound(pods, "bert-", 3)
    assert not api.list(GROUPS).items


def test_a_namespace_asks_for_its_jobs(api: Api, pods: Following) -> None:
    """O1: its label is enough, beside the schedulerName."""
    api.patch(NAMESPACE, {"metadata": {"labels": ASKS}})
    body = job("PyTorchJob", labels={})
    starts_whole(api, pods, lambda: api.post(JOBS, body), prefix="bert-", lacks_gpus=2)
    assert not api.list(GROUPS).items


def test_the_minimum_may_be_less_than_all(api: Api, pods: Following) -> None:
    """O3: `minAvailable: 2` starts two where three have no room, and the third once it has."""
    take_gpus(api, pods, 2)
    api.post(JOBS, job("PyTorchJob", schedulingPolicy={"minAvailable": 2}))
    await_bound(pods, "bert-", 2)
    await_refused(pods, 1)
    give_them_back(api)
    await_bound(pods, "bert-", 3)


def test_a_suspended_job_starts_whole_once_it_is_resumed(api: Api, pods: Following) -> None:
    """O3: it has no pods until then."""
    api.post(JOBS, job("PyTorchJob", suspend=True))

    def resume() -> None:
        api.patch(f"{JOBS}/bert", {"spec": {"runPolicy": {"suspend": False}}})

    starts_whole(api, pods, resume, prefix="bert-", lacks_gpus=2)


def test_a_pod_that_is_lost_comes_back_alone(api: Api, pods: Following) -> None:
    """O4: the operator replaces it, and the others run on."""
    api.post(JOBS, job("PyTorchJob"))
    await_bound(pods, "bert-", 3)
    before = set(pods.objects())
    take_gpus(api, pods)
    api.delete(f"{PODS}/bert-worker-1")

    def is_replaced(items: Mapping[str, Object]) -> bool:
        new = set(items) - before
        return len(nodes_of(items, "bert-")) == 3 and len(new) == 2

    pods.wait_for(is_replaced, within_s=WITHIN_S, what="a new worker is bound")
    give_them_back(api)


def test_a_job_that_is_created_again_starts_whole(api: Api, pods: Following) -> None:
    """O2: its pods wait for each other although it has the name of the one before."""
    api.post(JOBS, job("PyTorchJob"))
    await_bound(pods, "bert-", 3)
    first = set(pods.objects())
    api.delete(f"{JOBS}/bert")
    pods.wait_for(
        lambda items: not first & set(items),
        within_s=WITHIN_S,
        what="the end of the first job's pods",
    )
    starts_whole(api, pods, lambda: api.post(JOBS, job("PyTorchJob")), prefix="bert-", lacks_gpus=2)
