"""The Jobs of a soak: what is created, at random but by one seed."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

from control_plane import objects as make
from control_plane.api import Object

NAMESPACE = "default"
GROUP = "soak-group"
"""The label of pods that names their PodGroup, for what a soak does to them."""


MANY = 1_000
"""More than the soak lets fail: a Job that fails has done so by its own doing."""
ASKS = {"gangsched.dev/gang": "owner"}
JOB = "Job"
JOB_SET = "JobSet"
VERSIONS = {JOB: "batch/v1", JOB_SET: "jobset.x-k8s.io/v1alpha2"}


@dataclass(frozen=True)
class SoakJob:
    """A Job or JobSet, with its PodGroup; None if its pods are a gang of their owner."""

    name: str
    pod_group: Object | None
    body: Object


def soak_job(number: int, random: Random, *, job_sets: bool = False) -> SoakJob:
    """A Job, or one in four times a JobSet. Its pods fail often and it does not.

    Some keep what has ended, others remove it at once.
    """
    name = f"job-{number:04}"
    asks = random.random() < 0.5
    kind = JOB_SET if job_sets and random.random() < 0.25 else JOB
    template = _template("" if asks else name, name)
    if kind == JOB_SET:
        spec, width = _job_set(random, template)
    else:
        spec, width = _job(random, template)

    if random.random() < 0.5:
        spec["ttlSecondsAfterFinished"] = random.choice([0, 2, 10])

    body: Object = {
        "apiVersion": VERSIONS[kind],
        "kind": kind,
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {GROUP: name}},
        "spec": spec,
    }
    return SoakJob(name, None if asks else make.pod_group(name, NAMESPACE, width), body)


def _job(random: Random, template: Object) -> tuple[Object, int]:
    """A Job with all pods at once, an index each, or in batches; and its pods at a time."""
    width = random.randint(1, 4)
    kind = random.choice(["at once", "indexed", "batches"])
    spec = _job_spec(template, width, completions=width * (2 if kind == "batches" else 1))
    if kind == "indexed":
        spec["completionMode"] = "Indexed"

    return spec, width


def _job_set(random: Random, template: Object) -> tuple[Object, int]:
    """A JobSet of a driver and workers, which replaces a pod that fails, or all of its Jobs."""
    restarts = random.random() < 0.5
    workers = random.randint(1, 2)
    width = random.randint(1, 2)
    jobs = []
    for part, replicas, pods in (("driver", 1, 1), ("worker", workers, width)):
        spec = _job_spec(template, pods, completions=pods)
        if restarts:
            spec["backoffLimit"] = 0

        jobs.append({"name": part, "replicas": replicas, "template": {"spec": spec}})

    spec = {"replicatedJobs": jobs}
    if restarts:
        spec["failurePolicy"] = {"maxRestarts": MANY}

    return spec, 1 + workers * width


def _job_spec(template: Object, width: int, *, completions: int) -> dict[str, Any]:
    return {
        "parallelism": width,
        "completions": completions,
        "backoffLimit": MANY,
        "template": template,
    }


def cron_job(name: str, width: int) -> tuple[Object, Object]:
    """A PodGroup and a CronJob whose runs share it; a run lasts longer than the pause to the next
    one now and then.
    """
    job = {
        "spec": {
            "parallelism": width,
            "completions": width,
            "backoffLimit": MANY,
            "ttlSecondsAfterFinished": 30,
            "template": _template(name, name),
        }
    }
    body: Object = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"schedule": "* * * * *", "concurrencyPolicy": "Allow", "jobTemplate": job},
    }
    return make.pod_group(name, NAMESPACE, width), body


def _template(gang: str, name: str) -> Object:
    """A pod template of a gang of that name, of its owner's gang for ""."""
    labels = {GROUP: name, **({} if gang else ASKS)}
    template = make.pod("unused", NAMESPACE, gang=gang, gpus=1, labels=labels)
    return {"metadata": {"labels": template["metadata"]["labels"]}, "spec": template["spec"]}
