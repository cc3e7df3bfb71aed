"""The real JobSet, with its webhooks: a gang of all its jobs, and what of JobSet keeps such a gang
from starting.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
from control_plane import ControlPlane
from control_plane import objects as make
from control_plane.api import Api, Object
from control_plane.applying import ROOT, apply_yaml
from control_plane.following import Following
from control_plane.pods import nodes_of

from tests.operators.jobset import JOBS, jobset_installed
from tests.operators.members import (
    GROUP_LABEL,
    GROUPS,
    IN_THE_WAY,
    PODS,
    WITHIN_S,
    await_bound,
    await_refused,
    await_told,
    give_them_back,
    starts_whole,
    take_gpus,
)
from tests.operators.operator import example

pytestmark = pytest.mark.e2e

EVENTS = "/api/v1/namespaces/default/events"
LACKS_TWO = "waiting for members of gang default/training: 1 of 3 are ready; 2 are missing"
LACKS_ONE = "waiting for members of gang default/training: 2 of 3 are ready; 1 is missing"


@pytest.fixture(scope="module", autouse=True)
def operator(plane: ControlPlane) -> Iterator[None]:
    """JobSet."""
    with jobset_installed(plane):
        yield


@pytest.fixture(autouse=True)
def groups(api: Api) -> Iterator[None]:
    """No PodGroup is left behind."""
    yield
    for group in api.list(GROUPS).items:
        api.delete(f"{GROUPS}/{group['metadata']['name']}")


def jobset(**spec: Any) -> Object:
    """The guide's JobSet, with fields of its spec set."""
    body = example("JobSet")
    return {**body, "spec": {**body["spec"], **spec}}


def create(api: Api, body: Object) -> None:
    """Create it, and the guide's PodGroup."""
    api.post(GROUPS, example("PodGroup", name="training"))
    api.post(JOBS, body)


def test_the_guides_jobset_waits_whole_and_starts_whole(api: Api, pods: Following) -> None:
    """Driver and workers are one gang: none is bound before all have room."""
    waiting = starts_whole(api, pods, lambda: create(api, jobset()), prefix="training-")
    jobs = sorted(
        pod["metadata"]["labels"]["jobset.sigs.k8s.io/replicatedjob-name"] for pod in waiting
    )
    assert jobs == ["driver", "worker", "worker"]


IN_ORDER = jobset(startupPolicy={"startupPolicyOrder": "InOrder"})
DEPENDS = jobset()
DEPENDS["spec"]["replicatedJobs"][1]["dependsOn"] = [{"name": "driver", "status": "Ready"}]


@pytest.mark.parametrize("body", [IN_ORDER, DEPENDS], ids=["InOrder", "dependsOn"])
def test_a_gang_of_jobs_that_start_in_order_waits_for_itself(
    body: Object, api: Api, pods: Following
) -> None:
    """The workers come once the driver is ready, and the driver starts once they are there."""
    create(api, body)
    await_refused(pods, 1, "WaitingForMembers")
    await_told(api, "training", LACKS_TWO)
    assert len(pods.objects()) == 1
    conditions = api.get(f"{JOBS}/training").get("status", {}).get("conditions", [])
    assert all(condition["type"] != "StartupPolicyCompleted" for condition in conditions)


@pytest.mark.parametrize("body", [IN_ORDER, DEPENDS], ids=["InOrder", "dependsOn"])
def test_a_gang_for_each_job_starts_in_order(body: Object, api: Api, pods: Following) -> None:
    """The driver starts, then the workers come, and wait as a gang of their own."""
    body = copy.deepcopy(body)
    for job, members in zip(body["spec"]["replicatedJobs"], (1, 2), strict=True):
        job["template"]["spec"]["template"]["metadata"]["labels"][GROUP_LABEL] = job["name"]
        api.post(GROUPS, make.pod_group(job["name"], min_member=members))
    take_gpus(api, pods)
    api.post(JOBS, body)
    await_bound(pods, "training-driver-", 1)
    await_refused(pods, 2)
    assert not nodes_of(pods.objects(), "training-worker-")
    give_them_back(api)
    await_bound(pods, "training-worker-", 2)


def test_exclusive_topology_keeps_all_but_the_first_pods_from_being_made(
    api: Api, pods: Following
) -> None:
    """JobSet's webhook refuses a job's second pod until its first one has a node."""
    body = jobset()
    body["metadata"]["annotations"] = {
        "alpha.jobset.sigs.k8s.io/exclusive-topology": "kubernetes.io/hostname"
    }
    with Following(api, EVENTS) as events:
        create(api, body)
        await_refused(pods, 2, "WaitingForMembers")
        await_told(api, "training", LACKS_ONE)
        events.wait_for(
            lambda items: any(
                "follower pod node selector not set" in each["message"] for each in items.values()
            ),
            within_s=WITHIN_S,
            what="JobSet's refusal of the third pod",
        )
    assert len(pods.objects()) == 2


# --- asked for by its owner ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def readable(plane: ControlPlane) -> None:
    """gangsched may read Jobs and JobSets."""
    api = Api.of(plane)
    for name in ("rbac-owners.yaml", "rbac-owners-jobset.yaml"):
        apply_yaml(api, ROOT / "manifests" / name)
    api.close()


def asking(spec: Object | None = None) -> Object:
    """The guide's JobSet, whose pods ask for the gang of their owner."""
    body = copy.deepcopy(jobset(**(spec or {})))
    for each in body["spec"]["replicatedJobs"]:
        labels = each["template"]["spec"]["template"]["metadata"]["labels"]
        del labels[GROUP_LABEL]
        labels["gangsched.dev/gang"] = "owner"
    return body


@pytest.mark.usefixtures("readable")
def test_a_jobset_that_asks_is_a_gang_without_a_pod_group(api: Api, pods: Following) -> None:
    """O3: driver and workers, which are two Jobs, start together."""
    starts_whole(api, pods, lambda: api.post(JOBS, asking()), prefix="training-")
    assert not api.list(GROUPS).items


@pytest.mark.usefixtures("readable")
@pytest.mark.parametrize("body", [IN_ORDER, DEPENDS], ids=["InOrder", "dependsOn"])
def test_a_jobset_that_asks_starts_stage_by_stage(body: Object, api: Api, pods: Following) -> None:
    """O3: the driver starts, then the workers come, and start as a whole."""
    take_gpus(api, pods)
    api.post(JOBS, asking(body["spec"]))
    await_bound(pods, "training-driver-", 1)
    await_refused(pods, 2)
    assert not nodes_of(pods.objects(), "training-worker-")
    give_them_back(api)
    await_bound(pods, "training-worker-", 2)


@pytest.mark.usefixtures("readable")
def test_an_exclusive_job_that_asks_starts_where_all_have_room(api: Api, pods: Following) -> None:
    """O5: its first pod waits for room for both, which is kept for the second one."""
    body = asking()
    # There is one node, where the driver would be in the way: a domain is for one Job.
    del body["spec"]["replicatedJobs"][0]
    body["spec"]["replicatedJobs"][0]["template"]["metadata"] = {
        "annotations": {"alpha.jobset.sigs.k8s.io/exclusive-topology": "kubernetes.io/hostname"}
    }
    take_gpus(api, pods)
    api.post(JOBS, body)
    await_refused(pods, 1)
    assert not nodes_of(pods.objects(), "training-")
    give_them_back(api)
    await_bound(pods, "training-worker-", 2)


@pytest.mark.usefixtures("readable")
def test_a_jobset_that_asks_and_starts_anew_is_a_whole_gang_again(
    api: Api, pods: Following
) -> None:
    """O2, O4: the Jobs are other ones, and the JobSet is the same."""
    body = asking({"failurePolicy": {"maxRestarts": 1}})
    body["spec"]["replicatedJobs"][1]["template"]["spec"]["backoffLimit"] = 0
    api.post(JOBS, body)
    await_bound(pods, "training-", 3)
    api.post(PODS, make.pod(IN_THE_WAY, gpus=1))
    await_refused(pods, 1)
    worker = next(name for name in nodes_of(pods.objects()) if "worker" in name)
    api.patch(f"{PODS}/{worker}/status", {"status": {"phase": "Failed"}})
    await_bound(pods, IN_THE_WAY, 1)
    await_refused(pods, 3)
    assert not nodes_of(pods.objects(), "training-")
    give_them_back(api)
    await_bound(pods, "training-", 3)


def test_a_jobset_that_starts_anew_is_a_whole_gang_again(api: Api, pods: Following) -> None:
    """A failed Job makes JobSet replace all pods; where room for one was lost meanwhile,
    all wait.
    """
    body = jobset(failurePolicy={"maxRestarts": 1})
    body["spec"]["replicatedJobs"][1]["template"]["spec"]["backoffLimit"] = 0
    create(api, body)
    await_bound(pods, "training-", 3)
    api.post(PODS, make.pod(IN_THE_WAY, gpus=1))
    await_refused(pods, 1)
    worker = next(name for name in nodes_of(pods.objects()) if "worker" in name)
    api.patch(f"{PODS}/{worker}/status", {"status": {"phase": "Failed"}})
    await_bound(pods, IN_THE_WAY, 1)
    waiting = await_refused(pods, 3)
    assert {pod["metadata"]["labels"]["jobset.sigs.k8s.io/restart-attempt"] for pod in waiting} == {
        "1"
    }
    assert not nodes_of(pods.objects(), "training-")
    give_them_back(api)
    await_bound(pods, "training-", 3)
