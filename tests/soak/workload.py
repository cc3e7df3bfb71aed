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


@dataclass(frozen=True)
class SoakJob:
    """One Job with its PodGroup."""

    name: str
    pod_group: Object
    job: Object


def soak_job(number: int, random: Random) -> SoakJob:
    """A Job: all pods at once, an index each, or in batches; its pods fail often and it does not.

    Some keep what has ended, others remove it at once.
    """
    name = f"job-{number:04}"
    width = random.randint(1, 4)
    kind = random.choice(["at once", "indexed", "batches"])
    spec: dict[str, Any] = {
        "parallelism": width,
        "completions": width * (2 if kind == "batches" else 1),
        # More than the soak lets fail: a Job that fails has done so by its own doing.
        "backoffLimit": 1_000,
        "template": _template(name),
    }
    if kind == "indexed":
        spec["completionMode"] = "Indexed"
    if random.random() < 0.5:
        spec["ttlSecondsAfterFinished"] = random.choice([0, 2, 10])

    body: Object = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {GROUP: name}},
        "spec": spec,
    }
    return SoakJob(name, make.pod_group(name, NAMESPACE, width), body)


def cron_job(name: str, width: int) -> tuple[Object, Object]:
    """A PodGroup and a CronJob whose runs share it; a run lasts longer than the pause to the next
    one now and then.
    """
    job = {
        "spec": {
            "parallelism": width,
            "completions": width,
            "backoffLimit": 1_000,
            "ttlSecondsAfterFinished": 30,
            "template": _template(name),
        }
    }
    body: Object = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"schedule": "* * * * *", "concurrencyPolicy": "Allow", "jobTemplate": job},
    }
    return make.pod_group(name, NAMESPACE, width), body


def _template(name: str) -> Object:
    template = make.pod("unused", NAMESPACE, gang=name, gpus=1, labels={GROUP: name})
    labels = template["metadata"]["labels"]
    return {"metadata": {"labels": labels}, "spec": template["spec"]}
