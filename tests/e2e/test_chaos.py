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
from control_plane import objects as make
from control_plane.api import Api, Object
from control_plane.checks import Checks
from control_plane.daemon import Daemon
from control_plane.following import Following

from tests.kwok_plane import plane_with_nodes

pytestmark = pytest.mark.e2e

PODS = "/api/v1/pods"
SEED = int(os.environ.get("CHAOS_SEED", "1"))
ROUNDS = int(os.environ.get("CHAOS_ROUNDS", "8"))
GANGS_PER_ROUND = 8
NODES, GPUS = 6, 8
#: A gang that was being bound is completed by the next process, or the next API server.
PARTLY_BOUND_LIMIT_S = 15.0
STARTS_WITHIN_S = 30.0


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """A control plane of its own: its API server does not live through this."""
    with plane_with_nodes(NODES, gpus=GPUS) as plane:
        yield plane


class Jobs:
    """What a job controller does: it makes gangs, and takes away those that have started."""

    def __init__(self, api: Api, checks: Checks, rng: random.Random) -> None:
        self._api, self._checks, self._rng = api, checks, rng
        #: Objects by gang of the gangs that have not been taken away.
        self.gangs: dict[str, list[Object]] = {}

    def create(self, name: str) -> None:
        """A gang of a random kind that fits the empty cluster."""
        rng = self._rng
        gpus = rng.choice((1, 2, 4, 8))
        members = rng.randint(1, min(12, NODES * (GPUS // gpus)))
        minimum = rng.randint(max(1, members - 1), members)
        mode = rng.choice(("Strict", "Strict", "NonStrict"))
        if rng.random() < 0.3:
            gang_metadata = make.gang_annotations(name, minimum, total=members, mode=mode)
            objects = [
                make.pod(f"{name}-{index}", gpus=gpus, annotations=gang_metadata)
                for index in range(members)
            ]
        else:
            objects = make.gang(name, members=members, min_member=minimum, gpus=gpus)
            objects[0]["metadata"]["annotations"] = {f"{make.KOORDINATOR}mode": mode}
        self._checks.expect(f"default/{name}", minimum)
        self.gangs[name] = make.create_all(self._api, objects)

    def started(self) -> list[str]:
        """Gangs that have their minimum bound."""
        return [
            name for name in self.gangs if self._checks.started_s(f"default/{name}") is not None
        ]

    def take_away(self, names: list[str]) -> None:
        """Delete gangs with all that belongs to them."""
        for name in names:
            for item in reversed(self.gangs.pop(name)):
                self._api.delete(f"{self._api.path_of(item)}/{item['metadata']['name']}")


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
    jobs = Jobs(api, checks, rng)
    # Two connections make the binding of a gang last long enough to be hit.
    daemon = Daemon(plane, environment={"GANGSCHED_BIND_CONNECTIONS": "2"})
    daemon.start()
    try:
        with (
            Following(api, "/api/v1/nodes", on_change=checks.node_changed),
            Following(api, PODS, on_change=checks.pod_changed) as pods,
        ):
            for number in range(ROUNDS):
                for index in range(GANGS_PER_ROUND):
                    jobs.create(f"g{number}-{index}")
                print(f"round {number}: killed {disturb(plane, daemon, rng)}")
                jobs.take_away(jobs.started())
            while jobs.gangs:
                try:
                    found = pods.wait_for(
                        lambda _: jobs.started() or None,
                        within_s=STARTS_WITHIN_S,
                        what="the next gang to start",
                    )
                except TimeoutError:
                    print("\n".join(waiting(pods.objects())))
                    raise
                jobs.take_away(found)
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
