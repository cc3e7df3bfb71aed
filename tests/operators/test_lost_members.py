"""Members that are killed, with real controllers: all Jobs and JobSets complete, and groups of a
LeaderWorkerSet run again (healing). `LOSSES=50` for the long form.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from control_plane import ControlPlane
from control_plane import objects as make
from control_plane.api import Api, Object
from control_plane.applying import ROOT, apply_yaml
from control_plane.daemon import Daemon
from control_plane.following import Following

from tests.operators import jobset
from tests.operators.jobset import jobset_installed
from tests.operators.losses import Losses, await_running, end
from tests.operators.members import WITHIN_S

pytestmark = pytest.mark.e2e

JOBS = "/apis/batch/v1/namespaces/default/jobs"
NODES = "/api/v1/nodes"
LOSSES = int(os.environ.get("LOSSES", "6"))
"""Members that are killed of each kind."""
WIDTH = 3
COMPLETES_WITHIN_S = 240.0


@pytest.fixture(scope="module", autouse=True)
def cluster(plane: ControlPlane) -> None:
    """gangsched may read Jobs and JobSets, and there is room for half of what comes."""
    api = Api.of(plane)
    for name in ("rbac-owners.yaml", "rbac-owners-jobset.yaml"):
        apply_yaml(api, ROOT / "manifests" / name)

    make.create_all(api, [make.node(f"more-{number}", gpus=4) for number in range(7)])
    api.close()


@pytest.fixture(scope="module")
def operator(plane: ControlPlane) -> Iterator[None]:
    """JobSet."""
    with jobset_installed(plane):
        yield


def template() -> Object:
    """A pod template that asks for the gang of its owner."""
    pod = make.pod("unused", gpus=1, labels={"gangsched.dev/gang": "owner"})
    return {"metadata": {"labels": pod["metadata"]["labels"]}, "spec": pod["spec"]}


def job_spec(width: int, **spec: Any) -> Object:
    """An Indexed Job, each index of which may fail: Kubernetes then waits 10 s for each, and not
    ever longer for all.
    """
    return {
        "parallelism": width,
        "completions": width,
        "completionMode": "Indexed",
        "backoffLimitPerIndex": 100,
        "template": template(),
        **spec,
    }


def completed(sets: Following, condition: str) -> set[str]:
    """Names of those that have completed."""
    names = set()
    for each in sets.objects().values():
        for one in each.get("status", {}).get("conditions", ()):
            if (one["type"], one["status"]) == (condition, "True"):
                names.add(each["metadata"]["name"])

    return names


def test_twenty_of_twenty_jobs_that_lose_each_index_once_complete(
    daemon: Daemon, api: Api, pods: Following
) -> None:
    """L2, O4: gangs of owners, in any order of losses and ends; gangsched is killed twice."""
    names = {f"job-{number}" for number in range(20)}
    for name in sorted(names):
        metadata = {"name": name, "namespace": "default"}
        body = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata}
        api.post(JOBS, {**body, "spec": job_spec(WIDTH)})

    losses = Losses(api, pods, Random(0))
    kills = [10, 40]

    def kill() -> None:
        if kills and len(losses.lost) >= kills[0]:
            kills.pop(0)
            daemon.kill()
            daemon.start()

    with Following(api, JOBS) as jobs:
        losses.until(
            lambda: completed(jobs, "Complete") == names,
            within_s=COMPLETES_WITHIN_S,
            beside=kill,
        )

    assert len(losses.lost) == len(names) * WIDTH
    assert kills == []


def job_set(name: str, **spec: Any) -> Object:
    """A JobSet of a driver and two Jobs of one worker."""
    jobs = []
    for part, replicas in (("driver", 1), ("worker", 2)):
        jobs.append({"name": part, "replicas": replicas, "template": {"spec": job_spec(1)}})

    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"replicatedJobs": jobs, **spec},
    }


def delete_sets(api: Api) -> None:
    """Delete all JobSets with all that they made."""
    for each in api.list(jobset.JOBS).items:
        path = f"{jobset.JOBS}/{each['metadata']['name']}"
        api.call("DELETE", path, {"propagationPolicy": "Background"})


@pytest.mark.usefixtures("operator")
def test_job_sets_that_lose_each_pod_once_complete(api: Api, pods: Following) -> None:
    """L2, O3: the Jobs of each start together, and their replacements by themselves."""
    names = {f"set-{number}" for number in range(-(-LOSSES // WIDTH))}
    for name in sorted(names):
        api.post(jobset.JOBS, job_set(name))

    losses = Losses(api, pods, Random(1))
    with Following(api, jobset.JOBS) as sets:
        losses.until(
            lambda: completed(sets, "Completed") == names,
            within_s=COMPLETES_WITHIN_S,
        )

    assert len(losses.lost) == len(names) * WIDTH
    delete_sets(api)


@pytest.mark.usefixtures("operator")
def test_a_job_set_that_restarts_starts_whole_each_time(api: Api, pods: Following) -> None:
    """O2, O4: each loss makes JobSet create all Jobs again, and then it completes."""
    body = job_set("again", failurePolicy={"maxRestarts": 1_000})
    for part in body["spec"]["replicatedJobs"]:
        spec = part["template"]["spec"]
        del spec["backoffLimitPerIndex"]
        spec["backoffLimit"] = 0

    api.post(jobset.JOBS, body)
    random = Random(2)
    gone: set[str] = set()
    for _ in range(LOSSES):
        running = await_running(pods, WIDTH, gone)
        end(api, random.choice(running), "Failed")
        gone |= {pod["metadata"]["uid"] for pod in running}

    for pod in await_running(pods, WIDTH, gone):
        end(api, pod, "Succeeded")

    with Following(api, jobset.JOBS) as sets:
        sets.wait_for(
            lambda _: completed(sets, "Completed") == {"again"},
            within_s=WITHIN_S,
            what="the JobSet completes",
        )
        (found,) = sets.objects().values()

    assert found["status"]["restarts"] == LOSSES
    delete_sets(api)
