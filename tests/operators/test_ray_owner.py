"""The real KubeRay without a batch scheduler: its clusters, also of RayJobs and RayServices, are
gangs of their owner, without a PodGroup.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from control_plane import ControlPlane
from control_plane.api import Api, Object
from control_plane.applying import ROOT, apply_yaml
from control_plane.following import Following

from tests.operators.members import (
    GROUPS,
    WITHIN_S,
    await_bound,
    await_none,
    await_refused,
    give_them_back,
    starts_whole,
    take_gpus,
)
from tests.operators.operator import Operator, example, install, source

pytestmark = pytest.mark.e2e

RAY = "/apis/ray.io/v1/namespaces/default"
JOBS = f"{RAY}/rayclusters"
ARGV = [
    "-kubeconfig=@KUBECONFIG@",
    "--metrics-addr=0",
    "--health-probe-bind-address=0",
    "--enable-leader-election=false",
]
OTHERS = (f"{RAY}/rayjobs", f"{RAY}/rayservices")
ASKS = {"gangsched.dev/gang": "owner"}


@pytest.fixture(scope="module", autouse=True)
def operator(plane: ControlPlane) -> Iterator[Operator]:
    """KubeRay, and gangsched may read its clusters."""
    api = Api.of(plane)
    install(api, source("kuberay") / "config" / "default")
    apply_yaml(api, ROOT / "manifests" / "rbac-owners-kuberay.yaml")
    api.close()
    with Operator(plane, "kuberay", account="default/kuberay-operator", argv=ARGV) as started:
        yield started


@pytest.fixture(autouse=True)
def left(api: Api, pods: Following) -> Iterator[None]:
    """RayJobs and RayServices of the test go."""
    yield
    for path in OTHERS:
        for item in api.list(path).items:
            api.patch(f"{path}/{item['metadata']['name']}", {"metadata": {"finalizers": None}})
            api.delete(f"{path}/{item['metadata']['name']}")


def spec(*, replicas: int = 2, **changes: Any) -> Object:
    """The spec of the guide's cluster, whose pods ask for the gang of their owner."""
    body: Object = copy.deepcopy(example("RayCluster")["spec"])
    body.update(changes)
    for group in (body["headGroupSpec"], *body["workerGroupSpecs"]):
        group["template"]["metadata"] = {"labels": ASKS}
        group["template"]["spec"]["schedulerName"] = "gangsched"
    for group in body["workerGroupSpecs"]:
        group["replicas"] = replicas
    return body


def cluster(**changes: Any) -> Object:
    """A RayCluster of that spec."""
    return ray("RayCluster", spec(**changes))


def ray(kind: str, of: Object) -> Object:
    """An object of KubeRay."""
    return {"apiVersion": "ray.io/v1", "kind": kind, "metadata": {"name": "tune"}, "spec": of}


def resize(api: Api, replicas: int) -> None:
    """Give the cluster another number of workers."""
    groups = spec(replicas=replicas)["workerGroupSpecs"]
    api.patch(f"{JOBS}/tune", {"spec": {"workerGroupSpecs": groups}})


def test_a_cluster_that_asks_waits_whole_and_starts_whole(api: Api, pods: Following) -> None:
    """O3: the head waits for room for both workers."""
    starts_whole(api, pods, lambda: api.post(JOBS, cluster()), prefix="tune-", lacks_gpus=3)
    assert not api.list(GROUPS).items


def test_a_ray_job_that_asks_is_a_gang(api: Api, pods: Following) -> None:
    """O3: by the RayCluster that KubeRay creates for it."""
    body = {
        "rayClusterSpec": spec(),
        "entrypoint": "python -V",
        "submissionMode": "InteractiveMode",
    }
    job = ray("RayJob", body)
    starts_whole(api, pods, lambda: api.post(f"{RAY}/rayjobs", job), prefix="tune-", lacks_gpus=3)
    assert not api.list(GROUPS).items


def test_a_ray_service_that_asks_is_a_gang(api: Api, pods: Following) -> None:
    """O3: as a RayJob."""
    service = ray("RayService", {"rayClusterConfig": spec(), "serveConfigV2": "applications: []"})
    starts_whole(
        api, pods, lambda: api.post(f"{RAY}/rayservices", service), prefix="tune-", lacks_gpus=3
    )
    assert not api.list(GROUPS).items


def test_a_cluster_with_rays_autoscaler_starts_with_the_workers_that_it_needs(
    api: Api, pods: Following
) -> None:
    """O3: the head and `minReplicas`; a worker more is placed by itself once it has room."""
    body = cluster(enableInTreeAutoscaling=True)
    (group,) = body["spec"]["workerGroupSpecs"]
    group["minReplicas"] = 1
    take_gpus(api, pods, 3)
    api.post(JOBS, body)
    await_bound(pods, "tune-", 2)
    await_refused(pods, 1)
    give_them_back(api)
    await_bound(pods, "tune-", 3)


def test_all_hosts_of_a_replica_start_together(api: Api, pods: Following) -> None:
    """O3: a replica of two hosts is two pods."""
    body = cluster(replicas=1)
    (group,) = body["spec"]["workerGroupSpecs"]
    group["numOfHosts"] = 2
    starts_whole(api, pods, lambda: api.post(JOBS, body), prefix="tune-", lacks_gpus=3)


def test_a_cluster_that_is_smaller_before_it_starts_needs_no_more(
    api: Api, pods: Following
) -> None:
    """O4: the minimum follows the cluster, and a worker that is added later starts alone."""
    take_gpus(api, pods, 3)
    api.post(JOBS, cluster())
    await_refused(pods, 3)
    resize(api, 1)
    await_bound(pods, "tune-", 2)
    give_them_back(api)
    resize(api, 3)
    await_bound(pods, "tune-", 4)


def test_a_cluster_that_is_suspended_starts_whole_again(api: Api, pods: Following) -> None:
    """O3: suspended, all of its pods go; resumed, they wait for each other."""
    api.post(JOBS, cluster())
    await_bound(pods, "tune-", 3)
    api.patch(f"{JOBS}/tune", {"spec": {"suspend": True}})
    await_none(pods)

    def resume() -> None:
        api.patch(f"{JOBS}/tune", {"spec": {"suspend": False}})

    starts_whole(api, pods, resume, prefix="tune-", lacks_gpus=3)


def test_a_head_that_is_lost_comes_back_alone(api: Api, pods: Following) -> None:
    """O4: the workers run on, and the new head needs no room for the whole."""
    api.post(JOBS, cluster())
    await_bound(pods, "tune-", 3)
    before = set(pods.objects())
    take_gpus(api, pods, 2)
    (head,) = [
        pod["metadata"]["name"]
        for pod in pods.objects().values()
        if pod["metadata"].get("labels", {}).get("ray.io/node-type") == "head"
    ]
    api.delete(f"/api/v1/namespaces/default/pods/{head}")

    def is_replaced(items: Mapping[str, Object]) -> bool:
        new = [items[uid] for uid in set(items) - before]
        heads = [pod for pod in new if "ray.io/node-type" in pod["metadata"].get("labels", {})]
        return any(pod["spec"].get("nodeName") for pod in heads)

    pods.wait_for(is_replaced, within_s=WITHIN_S, what="another head is bound")
