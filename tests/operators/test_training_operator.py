"""The real training-operator, `--gang-scheduler-name=gangsched`: its PyTorchJob is scheduled as a
gang, unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from control_plane import ControlPlane
from control_plane.api import Api, ApiError, Object
from control_plane.following import Following

from tests.operators.members import (
    GROUP_LABEL,
    GROUPS,
    WITHIN_S,
    await_bound,
    await_refused,
    give_them_back,
    starts_whole,
    take_gpus,
)
from tests.operators.operator import Operator, example
from tests.operators.training import JOBS, training_installed

pytestmark = pytest.mark.e2e

EVENTS = "/api/v1/namespaces/default/events"


@pytest.fixture(scope="module", autouse=True)
def operator(plane: ControlPlane) -> Iterator[Operator]:
    """training-operator with gang scheduling."""
    flags = "--gang-scheduler-name=gangsched", "--enable-scheme=pytorchjob"
    with training_installed(plane, *flags) as started:
        yield started


def job(name: str) -> Object:
    """The job of the guide under another name."""
    return {**example("PyTorchJob"), "metadata": {"name": name}}


def test_the_guides_job_waits_whole_and_starts_whole(api: Api, pods: Following) -> None:
    """Its PodGroup counts all replicas, its pods name the scheduler; none is bound before all have
    room.
    """
    waiting = starts_whole(api, pods, lambda: api.post(JOBS, example("PyTorchJob")), prefix="bert-")
    assert {pod["spec"]["schedulerName"] for pod in waiting} == {"gangsched"}
    assert {pod["metadata"]["labels"][GROUP_LABEL] for pod in waiting} == {"bert"}
    assert api.get(f"{GROUPS}/bert")["spec"]["minMember"] == 3


def test_its_webhook_is_asked(api: Api) -> None:
    """What it refuses is refused: a job without a container of the name that PyTorchJobs have."""
    body = job("refused")
    body["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"][0]["name"] = (
        "other"
    )
    with pytest.raises(ApiError, match=r"validator\.pytorchjob\.training-operator\.kubeflow\.org"):
        api.post(JOBS, body)


def test_a_templates_scheduler_stays_with_a_warning(api: Api, pods: Following) -> None:
    """Pods of such a template are not ours, so the gang lacks them."""
    body = job("other")
    for replica in body["spec"]["pytorchReplicaSpecs"].values():
        replica["template"]["spec"]["schedulerName"] = "default-scheduler"
    with Following(api, EVENTS) as events:
        api.post(JOBS, body)
        pods.wait_for(lambda items: len(items) == 3 or None, within_s=WITHIN_S, what="its pods")
        events.wait_for(
            lambda items: any(
                event["reason"] == "SetPodTemplateSchedulerName" for event in items.values()
            ),
            within_s=WITHIN_S,
            what="the operator's warning",
        )
    assert {pod["spec"]["schedulerName"] for pod in pods.objects().values()} == {
        "default-scheduler"
    }


def test_the_minimum_may_be_less_than_all(api: Api, pods: Following) -> None:
    """`minAvailable: 2` starts two where three have no room, and the third once it has."""
    take_gpus(api, pods)
    body = job("elastic")
    body["spec"]["runPolicy"] = {"schedulingPolicy": {"minAvailable": 2}}
    api.post(JOBS, body)
    await_bound(pods, "elastic-", 2)
    await_refused(pods, 1)
    give_them_back(api)
    await_bound(pods, "elastic-", 3)
