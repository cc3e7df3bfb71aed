"""Owners of gangs as numbers: what of a Job, a StatefulSet or an operator's object is read
(semantics O3, O7).
"""

from __future__ import annotations

import json
import sys
import tracemalloc
from typing import Any

import pytest

from gangsched.kube.ports import silent
from gangsched.kube.read import resources
from gangsched.kube.read.shapes import ShapeTable
from gangsched.kube.read.store import Store
from gangsched.model.owners import ControllerRef, JobOwner, StatefulSetOwner, controller_kind
from gangsched.model.protocol import Gone, Message, Replaced, Unread

BYTES_AN_OWNER = 500


def job(name: str = "train", *, status: dict[str, Any] | None = None, **spec: Any) -> Any:
    """A Job with a pod template that is not read."""
    return {
        "metadata": {"name": name, "namespace": "ml", "uid": f"{name}-uid"},
        "spec": {"template": {"spec": {"containers": [{"name": "x" * 1_000}]}}, **spec},
        "status": status or {},
    }


def read(resource: Any, body: Any) -> Any:
    """The object as the store keeps it."""
    return resource.convert(resource.item.decode(json.dumps(body).encode()))


@pytest.mark.parametrize(
    ("spec", "status", "minimum", "succeeded"),
    [
        ({}, {}, 1, 0),
        ({"parallelism": 4}, {}, 4, 0),
        ({"parallelism": 4}, {"succeeded": 2}, 4, 0),
        ({"parallelism": 4, "completions": 5}, {}, 4, 0),
        ({"parallelism": 4, "completions": 5}, {"succeeded": 4}, 1, 4),
        ({"parallelism": 4, "completions": 2}, {}, 2, 0),
        ({"parallelism": 0, "completions": 2}, {}, 0, 0),
        ({"parallelism": None, "completions": None}, {}, 1, 0),
        ({"parallelism": 2, "completions": 2}, {"succeeded": 9}, 0, 9),
    ],
)
def test_the_pods_of_a_job_at_a_time(
    spec: dict[str, Any], status: dict[str, Any], minimum: int, succeeded: int
) -> None:
    """O3: parallelism, at the end the completions that are left."""
    found = read(resources.JOBS, job(status=status, **spec))
    assert (found.minimum, found.succeeded) == (minimum, succeeded)
    assert (found.uid, found.namespace, found.name) == ("train-uid", "ml", "train")


def test_a_suspended_job_and_its_annotations() -> None:
    """O2, O3: only keys of gangs are kept."""
    body = job(suspend=True)
    body["metadata"]["annotations"] = {"note": "x", "gangsched.dev/topology": "rack"}
    found = read(resources.JOBS, body)
    assert found.suspended
    assert found.gang_metadata == (("gangsched.dev/topology", "rack"),)


@pytest.mark.parametrize(("policy", "one_by_one"), [("Parallel", False), ("OrderedReady", True)])
def test_the_replicas_of_a_stateful_set(policy: str, one_by_one: bool) -> None:
    """O3: and whether it creates them one by one."""
    body = {
        "metadata": {"name": "web", "namespace": "ml", "uid": "u"},
        "spec": {"replicas": 3, "podManagementPolicy": policy},
    }
    found = read(resources.STATEFUL_SETS, body)
    assert found == StatefulSetOwner(
        uid="u", namespace="ml", name="web", minimum=3, one_by_one=one_by_one
    )


def test_an_owner_that_cannot_be_read_keeps_its_last_version() -> None:
    """I8: others are read as usual."""
    told: list[Message] = []
    warned: list[str] = []
    store = Store(resources.JOBS, told.append, warned.append)
    store.add_page(json.dumps({"metadata": {"resourceVersion": "1"}, "items": [job()]}).encode())
    bad = job(parallelism="many")
    store.take_line(json.dumps({"type": "MODIFIED", "object": bad}).encode())
    assert "One of the jobs, ml/train, cannot be understood" in warned[0]
    kept = store.get("train-uid")
    assert kept is not None
    assert kept.minimum == 1


def test_what_was_read_is_told_after_the_right_is_gone() -> None:
    """O7: to a daemon that begins then, too."""
    told: list[Message] = []
    store = Store(resources.JOBS, told.append, silent)
    store.add_page(json.dumps({"metadata": {"resourceVersion": "1"}, "items": [job()]}).encode())
    store.refused(forbidden=True)
    listed, unread = store.known()
    assert isinstance(listed, Replaced)
    assert [owner.name for owner in listed.items] == ["train"]
    assert unread == Unread(JobOwner)
    store.take_line(json.dumps({"type": "DELETED", "object": job()}).encode())
    assert told[-1] == Gone(JobOwner, "train-uid")


def test_ten_thousand_jobs_take_five_megabytes_at_most() -> None:
    """O8: an owner is a few numbers, whatever its template holds."""
    number = 10_000
    items = [job(f"train-{index}", parallelism=10, completions=10) for index in range(number)]
    page = json.dumps({"metadata": {"resourceVersion": "1"}, "items": items}).encode()
    del items
    store = Store(resources.JOBS, lambda message: None, silent)
    tracemalloc.start()
    store.add_page(page)
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert used < number * BYTES_AN_OWNER, used
    assert sys.getsizeof(next(iter(store.items()))[1]) < 200


def reference(kind: str, api_version: str, *, controller: bool = True) -> dict[str, Any]:
    """An owner reference."""
    return {
        "kind": kind,
        "apiVersion": api_version,
        "name": "train",
        "uid": "u",
        "controller": controller,
    }


@pytest.mark.parametrize(
    ("reference", "controller"),
    [
        (reference("JobSet", "jobset.x-k8s.io/v1alpha2"), ControllerRef("JobSet", "train", "u")),
        (reference("MPIJob", "kubeflow.org/v2beta1"), ControllerRef("MPIJob", "train", "u")),
        (reference("JobSet", "jobset.x-k8s.io/v1alpha2", controller=False), None),
        (reference("JobSet", "example.com/v1"), None),
        (reference("RayJob", "ray.io/v1"), None),
        (reference("CronJob", "batch/v1"), None),
    ],
)
def test_the_owner_of_a_job_counts_if_its_jobs_start_together(
    reference: dict[str, Any], controller: ControllerRef | None
) -> None:
    """O3: the job that submits to a RayCluster is a Job like any other."""
    body = job()
    body["metadata"]["ownerReferences"] = [reference]
    body["metadata"]["labels"] = {"jobset.sigs.k8s.io/replicatedjob-name": "worker", "a": "b"}
    found = read(resources.JOBS, body)
    assert (found.controller, found.part) == (controller, "worker")


def replicated(name: str, jobs: int | None, *, job_level: bool = True, **fields: Any) -> Any:
    """A template of a JobSet; `exclusive` gives each Job a domain."""
    exclusive = fields.pop("exclusive", None)
    annotated = {"metadata": {"annotations": exclusive or {}}}
    template = {"spec": {"template": annotated}}
    return {"name": name, "replicas": jobs, "template": annotated if job_level else template}


DOMAIN = {"alpha.jobset.sigs.k8s.io/exclusive-topology": "rack"}
SELECTED = {**DOMAIN, "alpha.jobset.sigs.k8s.io/node-selector": "true"}


@pytest.mark.parametrize(
    ("annotations", "driver", "spec", "parts", "in_stages"),
    [
        ({}, {}, {}, "driver 1 worker 3", False),
        ({}, {}, {"startupPolicy": {"startupPolicyOrder": "InOrder"}}, "driver 1 worker 3", True),
        ({}, {}, {"startupPolicy": {"startupPolicyOrder": "AnyOrder"}}, "driver 1 worker 3", False),
        ({}, {"dependsOn": [{"name": "x", "status": "Ready"}]}, {}, "driver 1 worker 3", True),
        (DOMAIN, {}, {}, "", False),
        (SELECTED, {}, {}, "driver 1 worker 3", False),
        ({}, replicated("driver", 1, exclusive=DOMAIN), {}, "worker 3", False),
        ({}, replicated("driver", 1, exclusive=DOMAIN, job_level=False), {}, "worker 3", False),
    ],
)
def test_the_jobs_of_a_job_set_that_start_together(
    annotations: dict[str, str],
    driver: dict[str, Any],
    spec: dict[str, Any],
    parts: str,
    in_stages: bool,
) -> None:
    """O3, O5: not those with a domain each; and whether they come in stages."""
    body = {
        "metadata": {"name": "train", "namespace": "ml", "uid": "u", "annotations": annotations},
        "spec": {
            "replicatedJobs": [
                {**replicated("driver", None), **driver},
                replicated("worker", 3),
            ],
            **spec,
        },
        "status": {"replicatedJobsStatus": [{"name": "worker", "succeeded": 1}]},
    }
    found = read(resources.JOB_SETS, body)
    assert " ".join(f"{part.name} {part.jobs}" for part in found.parts) == parts
    assert (found.minimum, found.in_stages) == (4, in_stages)
    assert [part.succeeded for part in found.parts if part.name == "worker"] in ([1], [])


@pytest.mark.parametrize(
    ("spec", "minimum"),
    [
        ({}, 1),
        ({"workerGroupSpecs": [{"replicas": 2}, {"replicas": 3, "numOfHosts": 4}]}, 15),
        ({"workerGroupSpecs": [{"replicas": 2, "suspend": True}]}, 1),
        ({"workerGroupSpecs": [{"minReplicas": 2}]}, 3),
        ({"workerGroupSpecs": [{"replicas": 1, "minReplicas": 2, "maxReplicas": 5}]}, 3),
        ({"workerGroupSpecs": [{"replicas": 9, "minReplicas": 2, "maxReplicas": 5}]}, 6),
        ({"workerGroupSpecs": [{"replicas": -9}]}, 1),
        (
            {
                "enableInTreeAutoscaling": True,
                "workerGroupSpecs": [{"replicas": 4, "minReplicas": 1, "numOfHosts": 2}],
            },
            3,
        ),
    ],
)
def test_the_pods_of_a_ray_cluster(spec: dict[str, Any], minimum: int) -> None:
    """O3: the head and the workers, counted as KubeRay counts them."""
    body = {"metadata": {"name": "ray", "namespace": "ml", "uid": "u"}, "spec": spec}
    assert read(resources.RAY_CLUSTERS, body).minimum == minimum


MPI = {"Launcher": {}, "Worker": {"replicas": 4}}


@pytest.mark.parametrize(
    ("kind", "spec", "status", "minimum", "succeeded"),
    [
        (
            "PyTorchJob",
            {"pytorchReplicaSpecs": {"Master": {}, "Worker": {"replicas": 3}}},
            {},
            4,
            0,
        ),
        ("TFJob", {"tfReplicaSpecs": {"PS": {"replicas": 2}, "Worker": {"replicas": 0}}}, {}, 2, 0),
        ("XGBoostJob", {"xgbReplicaSpecs": {"Master": {"replicas": 1}}}, {}, 1, 0),
        ("PaddleJob", {"paddleReplicaSpecs": {"Worker": {"replicas": 5}}}, {}, 5, 0),
        ("JAXJob", {"jaxReplicaSpecs": {"Worker": {"replicas": 5}}}, {"Worker": 2}, 3, 2),
        ("MPIJob", {"mpiReplicaSpecs": MPI}, {}, 5, 0),
        (
            "MPIJob",
            {"mpiReplicaSpecs": MPI, "launcherCreationPolicy": "WaitForWorkersReady"},
            {},
            4,
            0,
        ),
        (
            "MPIJob",
            {
                "mpiReplicaSpecs": MPI,
                "runPolicy": {"schedulingPolicy": {"minAvailable": 3}},
            },
            {},
            3,
            0,
        ),
        ("TFJob", {}, {}, 0, 0),
    ],
)
def test_the_replicas_of_a_job_of_kubeflow(
    kind: str, spec: dict[str, Any], status: dict[str, int], minimum: int, succeeded: int
) -> None:
    """O3: all that have not succeeded, or minAvailable; a launcher that comes last is not
    counted.
    """
    body = {
        "metadata": {"name": "train", "namespace": "ml", "uid": "u"},
        "spec": spec,
        "status": {
            "replicaStatuses": {name: {"succeeded": number} for name, number in status.items()}
        },
    }
    found = read(resources.TRAINING_JOBS[kind], body)
    assert (found.minimum, found.succeeded) == (minimum, succeeded)
    assert not found.suspended
    body["spec"] = {**spec, "runPolicy": {"suspend": True}}
    assert read(resources.TRAINING_JOBS[kind], body).suspended


@pytest.mark.parametrize(
    ("stated", "status", "minimum", "out_of_reach"),
    [
        (2, {}, 2, None),
        (3, {}, 3, None),
        (5, {}, 3, (5, 3)),
        (3, {"Worker": 1}, 2, None),
        (-1, {}, 3, None),
    ],
)
def test_a_stated_minimum_that_the_pods_never_reach(
    stated: int, status: dict[str, int], minimum: int, out_of_reach: tuple[int, int] | None
) -> None:
    """E4: it is kept to be told; pods that have succeeded had been there."""
    body = {
        "metadata": {"name": "train", "namespace": "ml", "uid": "u"},
        "spec": {
            "pytorchReplicaSpecs": {"Worker": {"replicas": 3}},
            "runPolicy": {"schedulingPolicy": {"minAvailable": stated}},
        },
        "status": {
            "replicaStatuses": {name: {"succeeded": number} for name, number in status.items()}
        },
    }
    found = read(resources.TRAINING_JOBS["PyTorchJob"], body)
    assert (found.minimum, found.out_of_reach) == (minimum, out_of_reach)


@pytest.mark.parametrize(
    ("api_version", "kind", "seen"),
    [
        ("batch/v1", "Job", "Job"),
        ("batch/v1beta1", "Job", "Job"),
        ("batch.volcano.sh/v1alpha1", "Job", "Job.batch.volcano.sh"),
        ("apps.kruise.io/v1beta1", "StatefulSet", "StatefulSet.apps.kruise.io"),
        ("kubeflow.org/v2beta1", "MPIJob", "MPIJob"),
        ("example.com/v1", "Cake", "Cake"),
        ("", "Job", "Job"),
    ],
)
def test_a_kind_of_another_api_group_is_another_kind(
    api_version: str, kind: str, seen: str
) -> None:
    """O2: what Jobs of Kubernetes are, Jobs of Volcano are not."""
    assert controller_kind(api_version, kind) == seen
    body = {
        "metadata": {
            "name": "p",
            "namespace": "ml",
            "uid": "p",
            "ownerReferences": [reference(kind, api_version)],
        },
        "spec": {"containers": []},
    }
    assert read(resources.pods(ShapeTable()), body).controller_kind == seen
