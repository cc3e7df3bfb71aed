"""Leader and standby answer alike; and what breaks in the cluster while nobody answers."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http import HTTPStatus

import pytest
from control_plane import ControlPlane
from control_plane import objects as make
from control_plane.api import Api, ApiError
from control_plane.applying import apply_manifests, apply_visibility
from control_plane.daemon import Daemon
from control_plane.ports import free_ports

from tests.e2e.visibility.conftest import API_SERVICE, GANGS, Kubectl, await_available, serving

pytestmark = pytest.mark.e2e

SECRET = "/api/v1/namespaces/gangsched-system/secrets/gangsched-visibility"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/gangsched-system/leases/gangsched"
GANG = f"{GANGS}/namespaces/default/gangs/training"


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """With a controller manager, which deletes namespaces."""
    with ControlPlane(kcm=True) as plane:
        api = Api.of(plane)
        apply_manifests(api)
        make.create_all(api, [make.node("n0", gpus=4)])
        api.close()
        yield plane


@pytest.fixture
def api(plane: ControlPlane) -> Iterator[Api]:
    """The administrator."""
    api = Api.of(plane)
    yield api
    api.close()


def until(found: Callable[[], bool], *, within_s: float = 60.0) -> float:
    """Wait until it is so; how long that took. Refusals of the server count as not yet."""
    began_s = time.monotonic()
    while True:
        try:
            if found():
                return time.monotonic() - began_s
        except ApiError:
            pass
        assert time.monotonic() < began_s + within_s
        time.sleep(0.1)


def test_a_rollout_that_turns_the_api_on_ends(plane: ControlPlane, api: Api) -> None:
    """A replica with the API becomes ready beside a leader without it, which makes no certificate;
    then it serves.
    """
    (port,) = free_ports(1)
    apply_visibility(api, port)
    make.create_all(api, [make.released_lease()])
    elect = {"GANGSCHED_LEADER_ELECT": "true"}
    with ExitStack() as stack:
        old = Daemon(plane, environment=elect, log_path=plane.logs / "old.log")
        new = serving(plane, port, **elect)
        stack.callback(old.kill)
        stack.callback(new.kill)
        old.start()
        until(lambda: bool(api.get(LEASE)["spec"].get("holderIdentity")))
        new.start()
        assert not api.get(SECRET).get("data"), "nobody made a certificate yet"
        old.stop()
        await_available(api)
        new.stop()
    api.delete(LEASE)


def test_leader_standby_and_nobody(plane: ControlPlane, api: Api) -> None:
    """A standby shows what the leader told, and says that it is one; without any, one command mends
    the cluster.
    """
    ports = free_ports(2)
    apply_visibility(api, ports[0])
    make.create_all(api, [make.released_lease()])
    elect = {"GANGSCHED_LEADER_ELECT": "true"}
    with ExitStack() as stack:
        leader, standby = (
            serving(plane, port, **elect, GANGSCHED_IDENTITY=f"r{port}") for port in ports
        )
        stack.callback(leader.kill)
        stack.callback(standby.kill)
        leader.start()
        await_available(api)
        standby.start()
        make.create_all(api, make.gang("training", members=3, gpus=2))
        until(lambda: api.get(GANG)["status"]["reason"] == "Unschedulable")
        until(
            lambda: "position" in api.get(GANG)["status"]
        )  # positions are counted anew each second, not for each answer
        by_leader = api.get(GANG)["status"]
        assert by_leader["servedBy"] == {"role": "leader", "identity": f"r{ports[0]}"}
        api.patch(API_SERVICE, {"spec": {"service": {"port": ports[1]}}})
        until(lambda: api.get(GANG)["status"]["servedBy"]["role"] == "standby")
        until(lambda: "Insufficient" in api.get(GANG)["status"]["message"])
        until(lambda: "position" in api.get(GANG)["status"])
        by_standby = api.get(GANG)["status"]
        assert by_standby["reason"] == by_leader["reason"]
        for field in ("members", "position", "phase"):
            assert by_standby[field] == by_leader[field]
        assert "lacks" not in by_standby
        assert set(api.get(SECRET)["data"]) == {"ca.crt", "tls.crt", "tls.key"}
        _nobody_answers(plane, api, leader, standby, ports[0])


def _nobody_answers(
    plane: ControlPlane, api: Api, leader: Daemon, standby: Daemon, port: int
) -> None:
    kubectl = Kubectl(plane)
    standby.kill()
    leader.kill()
    api.post("/api/v1/namespaces", {"metadata": {"name": "leaving"}})
    refused_s = until(lambda: not _answers(api))
    assert kubectl.run("get", "pods", "-A").returncode == 0
    unavailable_s = until(lambda: _is_available(api) == "False", within_s=90.0)
    api.delete("/api/v1/namespaces/leaving")
    until(
        lambda: (
            "NamespaceDeletionDiscoveryFailure"
            in json.dumps(api.get("/api/v1/namespaces/leaving")["status"])
        )
    )
    said = kubectl.run("get", "gangs", "-A")
    assert said.returncode != 0
    assert kubectl.run("get", "pods", "-A").returncode == 0
    # The command of docs/visibility.md.
    kubectl.out("delete", "apiservice", "v1alpha1.visibility.gangsched.dev")
    mended_s = until(lambda: _is_gone(api, "/api/v1/namespaces/leaving"), within_s=120.0)
    print(
        f"nobody answers: refused after {refused_s:.1f} s, unavailable after {unavailable_s:.1f} s,"
        f" namespace gone {mended_s:.1f} s after the command"
    )
    apply_visibility(api, port)
    leader.start()
    await_available(api, within_s=60.0)  # the lease of those that were killed has to run out first


def _answers(api: Api) -> bool:
    try:
        api.get(f"{GANGS}/gangs")
    except ApiError as error:
        return error.status != 503
    return True


def _is_available(api: Api) -> str:
    found = api.get(API_SERVICE)["status"]["conditions"]
    return str(next(each["status"] for each in found if each["type"] == "Available"))


def _is_gone(api: Api, path: str) -> bool:
    try:
        api.get(path)
    except ApiError as error:
        return error.status == 404
    return False


def test_a_replica_that_stops_answers_until_nothing_routes_to_it(
    plane: ControlPlane, api: Api
) -> None:
    """After SIGTERM the Lease is free at once and /readyz is red, while requests that still arrive
    are answered.
    """
    (port,) = free_ports(1)
    apply_visibility(api, port)
    api.delete(LEASE)
    make.create_all(api, [make.released_lease()])
    drain_s = 3.0
    daemon = serving(
        plane, port, GANGSCHED_LEADER_ELECT="true", GANGSCHED_SHUTDOWN_S=str(2 * drain_s)
    )
    daemon.start()
    try:
        assert json.loads(daemon.http("/readyz")[1])["ready"], (
            "ready means that the API of gangs is served, too"
        )
        await_available(api)
        until(lambda: bool(api.get(LEASE)["spec"].get("holderIdentity")))
        os.kill(daemon.pid, signal.SIGTERM)
        told_s = time.monotonic()
        until(lambda: not api.get(LEASE)["spec"].get("holderIdentity"), within_s=1.0)
        answers = 0
        while time.monotonic() < told_s + drain_s - 0.5:
            assert api.get(f"{GANGS}/gangs")["kind"] == "GangList"
            assert daemon.http("/readyz")[0] == HTTPStatus.SERVICE_UNAVAILABLE
            answers += 1
        assert answers > 10
        assert daemon.stop() == 0
    finally:
        daemon.kill()
