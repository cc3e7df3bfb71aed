"""Nodes that die, and Jobs whose members do: what is left of a gang, and what heals it."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
from control_plane.api import Object

from tests.real_node.stage import (
    Stage,
    deployment,
    job,
    on_a_lost_node,
    pod_group,
    pod_spec,
    say,
    step,
)

pytestmark = pytest.mark.real_node

#: Jobs of each kind; `make real-node TRIALS=20` plays more.
TRIALS = int(os.environ.get("REAL_NODE_TRIALS") or "4")
#: Fails the first time that index 3 is tried.
FAILS_ONCE = 'if [ "$JOB_COMPLETION_INDEX$FAILURES" = 30 ]; then sleep 3; exit 1; fi; sleep 1'
#: The last index of five starts when another has ended.
ENDS_SOON = "sleep 1"


def test_gangs_on_a_node_that_dies(stage: Stage) -> None:
    """A Job's and a Deployment's members are replaced elsewhere; the dead ones are
    counted nowhere.
    """
    spec = pod_spec("sleep 600", cpu="600m") | {"tolerations": list(on_a_lost_node(3))}
    with step("a Job and a Deployment of two, spread over the nodes"):
        stage.apply(pod_group("train", 2), job("train", 2, spec))
        stage.apply(pod_group("serve", 2), deployment("serve", 2, spec))
        stage.until(
            lambda: len(stage.running("train-")) == len(stage.running("serve-")) == 2, "both gangs"
        )
    leader = stage.leader()["spec"]["nodeName"]
    lost = next(
        node for node in (*stage.running("train-"), *stage.running("serve-")) if node != leader
    )
    dead = {
        pod["metadata"]["name"]
        for pod in (*stage.pods("train-"), *stage.pods("serve-"))
        if on(pod, lost)
    }
    with step(f"{lost} dies: {len(dead)} members, until both gangs are whole elsewhere"):
        stage.cluster.kill_node(lost)
        stage.until(
            lambda: healed(stage, "train", lost) and healed(stage, "serve", lost),
            "healed gangs",
            within_s=120.0,
        )
    with step("the dead members are terminating, and counted nowhere"):
        assert any(pod["metadata"]["name"] in dead for pod in stage.pods()), (
            "a kubelet that is dead deleted a pod"
        )
        for name in ("train", "serve"):
            stage.until(
                lambda name=name: counts(stage, name) == (2, 2),  # type: ignore[misc]
                f"two members in the status of {name}",
            )
    with step(f"{lost} is back"):
        stage.cluster.revive_node(lost)
        stage.until(
            lambda: not dead & {pod["metadata"]["name"] for pod in stage.pods()},
            "an end of the dead members",
        )
    stage.clear()


def on(pod: Object, node: str) -> bool:
    """Whether it is on this node."""
    return bool(pod["spec"].get("nodeName") == node)


def healed(stage: Stage, name: str, lost: str) -> bool:
    """Whether two members run on nodes that live."""
    running = stage.running(f"{name}-")
    return len(running) == 2 and lost not in running


def counts(stage: Stage, name: str) -> tuple[int, int]:
    """Scheduled and running members, as the PodGroup says."""
    status = stage.pod_group(name)
    return status.get("scheduled", 0), status.get("running", 0)


def test_the_rest_of_a_job_starts(stage: Stage) -> None:
    """Three of four indexes succeed, the fourth fails and is tried again: L2, the start goes on."""
    spec = pod_spec(FAILS_ONCE, cpu="10m", container={"env": [failures()]})
    with step("Jobs of four whose last index fails once"):
        all_complete(stage, "rest", lambda name: job(name, 4, spec, backoffLimitPerIndex=2))
    with step("Jobs of five completions, four at a time"):
        all_complete(
            stage, "five", lambda name: job(name, 5, pod_spec(ENDS_SOON, cpu="10m"), parallelism=4)
        )
    with step("a Job made again under its name starts whole"):
        stage.cluster.kubectl("delete", "job", "five-0", "--wait=true")
        again = job("five-0", 4, pod_spec("sleep 600", cpu="1500m"))  # there is room for three
        stage.apply(again)
        stage.until(lambda: len(waiting(stage, "five-0-")) == 4, "four members that wait")
        assert not stage.running("five-0-")
    stage.clear()


def all_complete(stage: Stage, prefix: str, make: Callable[[str], Object]) -> None:
    """Create Jobs, each with a PodGroup of four, and wait until all of them are Complete."""
    for number in range(TRIALS):
        stage.apply(pod_group(f"{prefix}-{number}", 4), make(f"{prefix}-{number}"))
    try:
        stage.until(
            lambda: complete(stage, f"{prefix}-") == TRIALS,
            "complete Jobs",
            within_s=60.0 + 10.0 * TRIALS,
        )
    finally:
        say(f"{complete(stage, f'{prefix}-')} of {TRIALS} Jobs are complete")


def failures() -> Object:
    """How often this index has failed."""
    path = "metadata.annotations['batch.kubernetes.io/job-index-failure-count']"
    return {"name": "FAILURES", "valueFrom": {"fieldRef": {"fieldPath": path}}}


def complete(stage: Stage, prefix: str) -> int:
    """How many Jobs are Complete."""
    jobs = stage.api.list("/apis/batch/v1/namespaces/default/jobs").items
    return sum(
        any(
            each["type"] == "Complete" and each["status"] == "True"
            for each in found["status"].get("conditions", ())
        )
        for found in jobs
        if found["metadata"]["name"].startswith(prefix)
    )


def waiting(stage: Stage, prefix: str) -> list[Object]:
    """Pods that are told why they wait."""
    return [
        pod
        for pod in stage.pods(prefix)
        if any(
            each["type"] == "PodScheduled" and each["status"] == "False"
            for each in pod["status"].get("conditions", ())
        )
    ]
