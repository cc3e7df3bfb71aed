"""The real KubeRay, with `--batch-scheduler=scheduler-plugins` and without: which of its clusters
start as a gang.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from control_plane import ControlPlane
from control_plane.api import Api, Object
from control_plane.applying import ROOT, apply, load_yaml
from control_plane.following import Following

from tests.operators.members import GROUP_LABEL, GROUPS, WITHIN_S, await_bound, starts_whole
from tests.operators.operator import Operator, example, install, source

pytestmark = pytest.mark.e2e

SCHEDULER_NAMES = ["gangsched", "scheduler-plugins-scheduler"]
RAY = "/apis/ray.io/v1/namespaces/default"
JOBS = f"{RAY}/rayclusters"
BATCHING = "--batch-scheduler=scheduler-plugins"
FLAGS = ["--metrics-addr=0", "--health-probe-bind-address=0", "--enable-leader-election=false"]
RIGHTS = """\
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: kuberay-pod-groups}
rules:
  - {apiGroups: [scheduling.x-k8s.io], resources: [podgroups], verbs: [get, list, watch, create]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: kuberay-pod-groups}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: kuberay-pod-groups}
subjects: [{kind: ServiceAccount, name: kuberay-operator, namespace: default}]
"""


@pytest.fixture(scope="module", autouse=True)
def installed(plane: ControlPlane) -> None:
    """KubeRay's definitions and rights."""
    api = Api.of(plane)
    install(api, source("kuberay") / "config" / "default")
    api.close()


def kuberay(plane: ControlPlane, *flags: str) -> Operator:
    """The operator, with more flags."""
    argv = ["-kubeconfig=@KUBECONFIG@", *FLAGS, *flags]
    return Operator(plane, "kuberay", account="default/kuberay-operator", argv=argv)


@pytest.fixture
def batching(plane: ControlPlane, api: Api) -> Iterator[Operator]:
    """KubeRay as the guide sets it, with the right to PodGroups that the guide grants."""
    for body in load_yaml(RIGHTS):
        apply(api, body)
    with kuberay(plane, BATCHING) as operator:
        yield operator


@pytest.fixture
def plain(plane: ControlPlane) -> Iterator[Operator]:
    """KubeRay without a batch scheduler."""
    with kuberay(plane) as operator:
        yield operator


@pytest.fixture(autouse=True)
def left(api: Api, pods: Following) -> Iterator[None]:
    """RayJobs, RayServices and PodGroups of the test go."""
    yield
    for path in (f"{RAY}/rayjobs", f"{RAY}/rayservices", GROUPS):
        for item in api.list(path).items:
            api.patch(f"{path}/{item['metadata']['name']}", {"metadata": {"finalizers": None}})
            api.delete(f"{path}/{item['metadata']['name']}")


def templates(spec: Object) -> list[Object]:
    """The pod templates of a RayCluster's spec."""
    return [
        spec["headGroupSpec"]["template"],
        *(group["template"] for group in spec["workerGroupSpecs"]),
    ]


def essence(pod: Object) -> tuple[Any, ...]:
    """What the scheduler reads of a member, and the role."""
    labels = pod["metadata"]["labels"]
    return labels["ray.io/node-type"], labels[GROUP_LABEL], pod["spec"]["schedulerName"]


def test_its_own_rights_are_not_enough(plane: ControlPlane, api: Api, pods: Following) -> None:
    """With the rights of its manifests alone it makes neither PodGroup nor pods. (The next tests
    grant more.)
    """
    with kuberay(plane, BATCHING) as operator:
        api.post(JOBS, example("RayCluster"))
        operator.said("podgroups.scheduling.x-k8s.io is forbidden", within_s=WITHIN_S)
        assert not api.list(GROUPS).items
        assert not pods.objects()


def test_the_guides_cluster_waits_whole_and_starts_whole(
    batching: Operator, api: Api, pods: Following
) -> None:
    """Its PodGroup and pods are those of `examples/kuberay-head-workers.yaml`."""
    body = example("RayCluster")
    waiting = starts_whole(
        api, pods, lambda: api.post(JOBS, body), prefix="raycluster-", lacks_gpus=3
    )
    group, *shown = load_yaml(ROOT / "examples" / "kuberay-head-workers.yaml")
    assert api.get(f"{GROUPS}/raycluster")["spec"] == group["spec"]
    assert sorted(map(essence, waiting)) == sorted(map(essence, shown))


def test_a_cluster_that_grows_is_a_gang_of_its_first_size(
    batching: Operator, api: Api, pods: Following
) -> None:
    """A third worker is placed by itself, and the PodGroup stays as it is."""
    body = example("RayCluster")
    api.post(JOBS, body)
    await_bound(pods, "raycluster-", 3)
    body["spec"]["workerGroupSpecs"][0]["replicas"] = 3
    api.patch(
        f"{JOBS}/raycluster", {"spec": {"workerGroupSpecs": body["spec"]["workerGroupSpecs"]}}
    )
    await_bound(pods, "raycluster-", 4)
    assert api.get(f"{GROUPS}/raycluster")["spec"]["minMember"] == 3


def test_a_ray_service_is_a_gang(batching: Operator, api: Api, pods: Following) -> None:
    """The label of a RayService is the label of its RayCluster."""
    body = example("RayCluster")
    spec = {"rayClusterConfig": body["spec"], "serveConfigV2": "applications: []"}
    service = {
        **body,
        "kind": "RayService",
        "metadata": {**body["metadata"], "name": "served"},
        "spec": spec,
    }
    starts_whole(
        api, pods, lambda: api.post(f"{RAY}/rayservices", service), prefix="served-", lacks_gpus=3
    )


def ray_job(spec: Object) -> Object:
    """A RayJob with a cluster of that spec."""
    job = {"rayClusterSpec": spec, "entrypoint": "python -V", "submissionMode": "InteractiveMode"}
    return {"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": {"name": "pi"}, "spec": job}


def test_a_ray_job_is_refused_with_the_batch_scheduler(
    batching: Operator, api: Api, pods: Following
) -> None:
    """It has no RayCluster and no pods, and only the operator's log says why."""
    body = ray_job(example("RayCluster")["spec"])
    body["metadata"]["labels"] = {"ray.io/gang-scheduling-enabled": "true"}
    api.post(f"{RAY}/rayjobs", body)
    batching.said("currently only RayCluster is supported, got *v1.RayJob", within_s=WITHIN_S)
    assert not api.list(JOBS).items
    assert not pods.objects()


def test_a_ray_job_is_a_gang_by_its_templates_without_it(
    plain: Operator, api: Api, pods: Following
) -> None:
    """A PodGroup, its label and our name in every template: KubeRay leaves all of it as it is."""

    def create() -> None:
        api.post(GROUPS, example("PodGroup", name="tune"))
        api.post(f"{RAY}/rayjobs", example("RayJob"))

    starts_whole(api, pods, create, prefix="tune-", lacks_gpus=3)
