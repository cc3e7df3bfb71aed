"""What docs/runbook.md says of a full etcd and an expired certificate, on a control plane of its
own.

A rollback is in test_install.py, the other verbs are in test_orders.py, the causes in
test_three_am.py.
"""

from __future__ import annotations

import datetime
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from control_plane import ControlPlane, kubeconfig
from control_plane import objects as make
from control_plane.api import Api, ApiError
from control_plane.applying import ROOT, apply_manifests
from control_plane.daemon import Daemon
from control_plane.pki import issue_client
from control_plane.pods import nodes_of

from tests.e2e.conftest import PODS
from tests.e2e.test_kubectl import ask

pytestmark = pytest.mark.e2e

QUOTA_BYTES = 16 << 20
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
WITHIN_S = 60.0
ACCOUNT = "system:serviceaccount:gangsched-system:gangsched"
ELECTS = ("--leader-elect", "--lease-duration-s", "4")
LIFE_S = 6.0
FULL = "etcdserver: mvcc: database space exceeded"
RUNBOOK = (ROOT / "docs" / "runbook.md").read_text()


@pytest.fixture(scope="module")
def small() -> Iterator[ControlPlane]:
    """A control plane whose etcd is soon full, with the manifests and two nodes."""
    with ControlPlane(etcd_quota_bytes=QUOTA_BYTES) as plane:
        api = Api.of(plane)
        apply_manifests(api)
        make.create_all(api, [make.node("n0"), make.node("n1")])
        api.close()
        yield plane


@pytest.fixture
def api(small: ControlPlane) -> Iterator[Api]:
    """An administrator's client."""
    api = Api.of(small)
    yield api
    api.close()


def until(met: Callable[[], bool], what: Callable[[], object]) -> None:
    """Wait for what others do; fails with `what()`."""
    deadline_s = time.monotonic() + WITHIN_S
    while not met():
        assert time.monotonic() < deadline_s, what()
        time.sleep(0.1)


def is_ready(daemon: Daemon) -> bool:
    """Whether the daemon says so; one that begins anew after it lost its Lease does not answer."""
    try:
        return daemon.http("/readyz")[0] == 200
    except OSError:
        return False


def bound(api: Api, gang: str) -> int:
    """How many pods of a gang have a node."""
    pods = {pod["metadata"]["name"]: pod for pod in api.list(PODS).items}
    return len(nodes_of(pods, f"{gang}-"))


def log(daemon: Daemon) -> str:
    """All lines of the log, with their fields."""
    return "\n".join(map(str, daemon.log_lines()))


def doctor(plane: ControlPlane) -> str:
    """What the doctor says."""
    return " ".join(ask(plane.kubeconfig, "doctor").out.split())


def fill(api: Api) -> list[str]:
    """Write until etcd takes no more; the names of what was written."""
    names: list[str] = []
    for number in range(100):
        name = f"ballast-{number}"
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name},
            "data": {"text": "x" * 900_000},
        }
        try:
            api.post(CONFIG_MAPS, body)
        except ApiError as error:
            if FULL not in error.message:
                raise
            return names
        names.append(name)
    raise AssertionError("etcd is not full")


def test_a_full_etcd(small: ControlPlane, api: Api) -> None:
    """Nothing is lost: what could not be written is written once there is room."""
    with Daemon(small, extra_args=ELECTS) as daemon:
        until(lambda: "leading" in log(daemon), lambda: log(daemon))
        os.kill(daemon.pid, signal.SIGSTOP)
        make.create_all(api, make.gang("waiting", members=2, gpus=8))
        names = fill(api)
        os.kill(daemon.pid, signal.SIGCONT)
        until(lambda: FULL in log(daemon), lambda: log(daemon))
        assert FULL in RUNBOOK
        assert not bound(api, "waiting")
        until(lambda: "etcd is full" in doctor(small), lambda: doctor(small))
        assert FULL in doctor(small)

        for name in names:
            api.delete(f"{CONFIG_MAPS}/{name}")
        small.compact()
        small.ask_etcd("maintenance/defragment", {})
        for alarm in small.ask_etcd("maintenance/alarm", {"action": "GET"})["alarms"]:
            small.ask_etcd("maintenance/alarm", {**alarm, "action": "DEACTIVATE"})
        until(lambda: bound(api, "waiting") == 2, lambda: log(daemon))


def test_an_expired_certificate(small: ControlPlane, api: Api, tmp_path: Path) -> None:
    """The log says why, pods wait, and a renewed certificate is read without a restart."""
    path = tmp_path / "kubeconfig"

    def issue(life_s: float) -> None:
        life = datetime.timedelta(seconds=life_s)
        cert, key = issue_client(
            small.pki, tmp_path, ACCOUNT, group="system:serviceaccounts", lifetime=life
        )
        user = kubeconfig.certificate_user(cert, key)
        kubeconfig.write(path, url=small.url, ca=small.ca_path, user=user, name="short")

    issue(LIFE_S)
    with Daemon(small, extra_args=(*ELECTS, "--kubeconfig", str(path))) as daemon:
        until(lambda: "Unauthorized" in log(daemon), lambda: log(daemon))
        assert "Unauthorized" in RUNBOOK
        make.create_all(api, make.gang("late", members=2, gpus=0))
        until(lambda: not is_ready(daemon), lambda: log(daemon))
        assert not bound(api, "late")
        # It is no pod, so that only its log can say more.
        until(lambda: "read the log of" in doctor(small), lambda: doctor(small))

        issue(3_600.0)
        until(lambda: bound(api, "late") == 2, lambda: log(daemon))
