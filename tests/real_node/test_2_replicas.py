"""Replicas that are rolled, killed and drained."""

from __future__ import annotations

import threading
import time

import pytest
from control_plane.api import Object

from tests.real_node.stage import (
    GANGS,
    LABEL,
    NAMESPACE,
    Stage,
    container_id,
    gang,
    pod_spec,
    say,
    step,
)

pytestmark = pytest.mark.real_node

USERS, POLL_EVERY_S = 4, 0.2
#: At least so many, and all of two rollouts.
POLLS = 300
#: Less than a replica requests.
LEFT_MILLI = 100


class Poller:
    """Asks for the gangs through the API server until the block ends, as several users at once.

    The API server keeps its connections to replicas, so one user alone notices a replica that goes
    only where his goes.
    """

    def __init__(self, stage: Stage) -> None:
        self._api = stage.cluster.api()
        self._ends = threading.Event()
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(USERS)]
        self._answers, self.failures = list[None](), list[str]()

    @property
    def answers(self) -> int:
        """How many requests were answered."""
        return len(self._answers)

    def __enter__(self) -> Poller:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        for thread in self._threads:
            thread.join()
        self._api.close()

    def _run(self) -> None:
        while not self._ends.wait(POLL_EVERY_S):
            try:
                self._api.get(GANGS)
                self._answers.append(None)
            except Exception as error:
                self.failures.append(f"{time.strftime('%H:%M:%S')} {error}")


def test_rolling_restarts_do_not_interrupt_the_api_of_gangs(stage: Stage) -> None:
    """Not one of 300 requests fails during two rolling restarts."""
    with step("two rolling restarts under requests"), Poller(stage) as poller:
        for _ in range(2):
            stage.cluster.kubectl("-n", NAMESPACE, "rollout", "restart", "deploy/gangsched")
            stage.rolled_out()
        stage.until(lambda: poller.answers + len(poller.failures) >= POLLS, f"{POLLS} requests")
    say(f"{poller.answers} answers, {len(poller.failures)} failures")
    assert not poller.failures, poller.failures


def test_a_leader_that_is_killed(stage: Stage) -> None:
    """SIGKILL of its container: the standby takes over when the Lease has run out, and a new gang
    starts.
    """
    leader = stage.leader()
    with step("SIGKILL of the leader, until a gang that came after it runs"):
        stage.cluster.kill_container(leader["spec"]["nodeName"], container_id(leader))
        stage.apply(*gang("after", 3))
        stage.until(lambda: len(stage.running("after-")) == 3, "a gang that a standby started")
    stage.rolled_out()
    stage.clear()


def test_a_drain_evicts_nobody_for_a_standby(stage: Stage) -> None:
    """All nodes are full of training pods: the evicted replica waits, and no pod ends for it."""
    nodes = stage.cluster.names
    with step("fill the nodes, and drain the standby's"):
        leader = stage.leader()["metadata"]["name"]
        (standby,) = [pod for pod in stage.replicas() if pod["metadata"]["name"] != leader]
        node = standby["spec"]["nodeName"]
        stage.apply(*(filler(name, stage.free_cpu_milli(name) - LEFT_MILLI) for name in nodes))
        stage.until(lambda: len(stage.running("filler-")) == len(nodes), "full nodes")
        before = {pod["metadata"]["uid"] for pod in stage.pods("filler-")}
        drain = (
            "drain",
            node,
            f"--pod-selector={LABEL}",
            "--delete-emptydir-data",
            "--timeout=60s",
        )
        stage.cluster.kubectl(*drain, within_s=90.0)
        stage.until(lambda: waits(stage), "a replica that no node takes")
    with step("10 s of a waiting replica"):
        deadline_s = time.monotonic() + 10.0
        while time.monotonic() < deadline_s:
            alive = [
                pod for pod in stage.pods("filler-") if "deletionTimestamp" not in pod["metadata"]
            ]
            assert {pod["metadata"]["uid"] for pod in alive} == before, (
                "a pod was evicted for a standby"
            )
            time.sleep(0.5)
        assert stage.leader()["metadata"]["name"] == leader
    stage.cluster.kubectl("uncordon", node)
    stage.rolled_out()
    stage.clear()


def filler(node: str, cpu_milli: int) -> Object:
    """A training pod that kube-scheduler places on this node."""
    spec = pod_spec("sleep 3600", cpu=f"{cpu_milli}m") | {
        "schedulerName": "default-scheduler",
        "nodeSelector": {"kubernetes.io/hostname": node},
    }
    metadata = {"name": f"filler-{node}", "namespace": "default"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def waits(stage: Stage) -> bool:
    """Whether a replica is told that there is no room for it."""
    return any(
        "nodeName" not in pod["spec"] and pod["status"].get("conditions")
        for pod in stage.replicas()
    )
