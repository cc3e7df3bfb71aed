"""Gangs of all kinds while the scheduler is killed -9 at random instants and the API server is
killed under it.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator, Mapping

import pytest
from control_plane import ControlPlane
from control_plane.api import Api, Object
from control_plane.checks import Checks
from control_plane.daemon import Daemon
from control_plane.following import Following

from tests.crowd import GPUS, Crowd
from tests.kwok_plane import plane_with_nodes

pytestmark = pytest.mark.e2e

PODS = "/api/v1/pods"
SEED = int(os.environ.get("CHAOS_SEED", "1"))
ROUNDS = int(os.environ.get("CHAOS_ROUNDS", "8"))
GANGS_PER_ROUND = 8
NODES = 6
#: A gang that was being bound is completed by the next process, or the next API server.
PARTLY_BOUND_LIMIT_S = 15.0
STARTS_WITHIN_S = 30.0


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """A control plane of its own: its API server does not live through this."""
    with plane_with_nodes(NODES, gpus=GPUS) as plane:
        yield plane


def disturb(plane: ControlPlane, daemon: Daemon, rng: random.Random) -> str:
    """Kill something at a random instant and bring it back; what it was."""
    time.sleep(rng.uniform(0.0, 0.8))  # the instant is random; nothing is waited for
    if rng.random() < 0.3:
        os.kill(plane.pids["kube-apiserver"], signal.SIGKILL)
        plane.stop_component("kube-apiserver")
        plane.start_component("kube-apiserver")
        return "the API server"
    daemon.kill()
    daemon.start()
    return "the scheduler"


def waiting(pods: Mapping[str, Object]) -> list[str]:
    """One line for each pod: where it is and what it says."""
    return [
        f"{pod['metadata']['name']} on {pod['spec'].get('nodeName')}: {pod['status'].get('phase')} "
        + " ".join(entry.get("message", "") for entry in pod["status"].get("conditions", ()))
        for pod in pods.values()
    ]


def test_nothing_is_lost_whatever_is_killed(plane: ControlPlane) -> None:
    """Every gang starts in the end; no node is ever over-committed; what was half bound at a kill
    is completed.
    """
    rng = random.Random(SEED)
    print(f"CHAOS_SEED={SEED} CHAOS_ROUNDS={ROUNDS}")
    api, checks = Api.of(plane), Checks(limit_s=PARTLY_BOUND_LIMIT_S)
    crowd = Crowd(api, checks, rng, "g", NODES)
    # Two connections make the binding of a gang last long enough to be hit.
    daemon = Daemon(plane, environment={"GANGSCHED_BIND_CONNECTIONS": "2"})
    daemon.start()
    try:
        with (
            Following(api, "/api/v1/nodes", on_change=checks.node_changed),
            Following(api, PODS, on_change=checks.pod_changed) as pods,
        ):
            for number in range(ROUNDS):
                for _ in range(GANGS_PER_ROUND):
                    crowd.add()
                print(f"round {number}: killed {disturb(plane, daemon, rng)}")
                crowd.take_away(crowd.started())
            while crowd.jobs:
                try:
                    found = pods.wait_for(
                        lambda _: crowd.started() or None,
                        within_s=STARTS_WITHIN_S,
                        what="the next gang to start",
                    )
                except TimeoutError:
                    print("\n".join(waiting(pods.objects())))
                    raise
                crowd.take_away(found)
            checks.look(time.monotonic())
        assert daemon.complaints() == []
    finally:
        daemon.kill()
        api.close()
    print(
        f"{ROUNDS * GANGS_PER_ROUND} gangs started; one was partly bound for"
        f" {checks.longest_partly_s:.2f} s at most"
    )
    assert checks.violations == []
