"""How the daemon refuses to start: one sentence, the fix, exit code 2, no traceback."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from control_plane import ControlPlane
from control_plane.api import Api
from control_plane.daemon import ACCOUNT, COMMAND, NAMESPACE
from control_plane.ports import free_ports

pytestmark = pytest.mark.e2e


def refusal(*flags: str) -> str:
    """What `gangsched run` says before it gives up with exit code 2, without waiting for an API
    server.
    """
    ran = subprocess.run(
        [COMMAND, "run", "--health-port", "0", *flags],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "GANGSCHED_API_SERVER_WAIT_S": "0"},
    )
    assert ran.returncode == 2, ran.stderr
    assert "Traceback" not in ran.stderr
    assert len(ran.stderr.strip().splitlines()) == 1, ran.stderr
    return ran.stderr


def test_no_cluster(plane: ControlPlane, tmp_path: Path) -> None:
    """A server that does not answer is named."""
    port = free_ports(1)[0]
    config = plane.kubeconfig.read_text().replace(plane.url, f"https://127.0.0.1:{port}")
    (tmp_path / "config").write_text(config)
    assert f"https://127.0.0.1:{port}" in refusal("--kubeconfig", str(tmp_path / "config"))


def test_a_cluster_that_comes_late_is_waited_for(plane: ControlPlane, tmp_path: Path) -> None:
    """A start goes on for a while when nobody answers, says so, and ends with one sentence."""
    port = free_ports(1)[0]
    (tmp_path / "config").write_text(
        plane.kubeconfig.read_text().replace(plane.url, f"https://127.0.0.1:{port}")
    )
    ran = subprocess.run(
        [COMMAND, "run", "--health-port", "0", "--kubeconfig", str(tmp_path / "config")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "GANGSCHED_API_SERVER_WAIT_S": "2"},
    )
    *progress, last = ran.stderr.strip().splitlines()
    assert ran.returncode == 2
    assert progress, ran.stderr
    assert all("does not answer" in line and "s more" in line for line in progress), ran.stderr
    assert last.startswith("gangsched: Cannot reach the API server")


def test_a_start_that_waits_answers_its_probes(plane: ControlPlane, tmp_path: Path) -> None:
    """The kubelet does not kill who waits for an API server as configured: /livez is green, /readyz
    names the wait.
    """
    away, health = free_ports(2)
    (tmp_path / "config").write_text(
        plane.kubeconfig.read_text().replace(plane.url, f"https://127.0.0.1:{away}")
    )
    flags = (
        "--health-port",
        str(health),
        "--bind-address",
        "127.0.0.1",
        "--kubeconfig",
        str(tmp_path / "config"),
    )
    environment = {**os.environ, "GANGSCHED_API_SERVER_WAIT_S": "6"}
    with subprocess.Popen(
        [COMMAND, "run", *flags], stderr=subprocess.PIPE, text=True, env=environment
    ) as waiting:
        assert waiting.stderr is not None
        deadline_s = time.monotonic() + 10.0
        while (found := page(health, "/livez")) is None:
            assert time.monotonic() < deadline_s, "the health port is not open"
            time.sleep(0.05)
        assert found == (200, "ok\n")
        status, text = page(health, "/readyz") or (0, "{}")
        assert (status, json.loads(text)) == (
            503,
            {"ready": False, "waitingFor": ["the API server"]},
        )
        *_, last = waiting.stderr.read().strip().splitlines()
    assert waiting.returncode == 2
    assert last.startswith("gangsched: Cannot reach the API server")


def page(port: int, path: str) -> tuple[int, str] | None:
    """Status and text of a page of 127.0.0.1; None while nobody listens."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5.0) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except urllib.error.URLError:
        return None


def test_bad_kubeconfig(tmp_path: Path) -> None:
    """A kubeconfig that is none, or is not there, is named."""
    (tmp_path / "config").write_text("this: [is no kubeconfig")
    assert str(tmp_path / "config") in refusal("--kubeconfig", str(tmp_path / "config"))
    assert "absent" in refusal("--kubeconfig", str(tmp_path / "absent"))


def test_missing_rights(plane: ControlPlane, tmp_path: Path) -> None:
    """A right that RBAC does not give is named, with the manifest that gives it."""
    api = Api.of(plane)
    role = "/apis/rbac.authorization.k8s.io/v1/clusterroles/gangsched"
    rules = api.get(role)["rules"]
    token = plane.service_account_token(NAMESPACE, ACCOUNT)
    kubeconfig = plane.write_kubeconfig(tmp_path / "config", token=token)
    kept = [rule for rule in rules if "pods/binding" not in rule["resources"]]
    assert len(kept) == len(rules) - 1, "the role gives pods/binding in a rule of its own"
    api.patch(role, {"rules": kept})
    said = refusal("--kubeconfig", str(kubeconfig))
    assert "pods/binding" in said
    assert "manifests" in said


def test_unknown_setting(tmp_path: Path) -> None:
    """An unknown field of the config file is named, with the nearest known one."""
    (tmp_path / "config.yaml").write_text("wait_tme_s: 5\n")
    said = refusal("--config", str(tmp_path / "config.yaml"))
    assert "wait_tme_s" in said
    assert "wait_time_s" in said


def test_told_to_stop_before_it_has_started(tmp_path: Path) -> None:
    """SIGTERM while the API server has not answered yet ends it at once, with code 0."""
    with socket.create_server(("127.0.0.1", 0)) as mute:
        server = f"http://127.0.0.1:{mute.getsockname()[1]}"
        (tmp_path / "config").write_text(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context:"
            " {cluster: c, user: u}}]\nusers: [{name: u, user: {}}]\nclusters: [{name: c,"
            f" cluster: {{server: '{server}'}}}}]\n"
        )
        command = [
            str(COMMAND),
            "run",
            "--health-port",
            "0",
            "--kubeconfig",
            str(tmp_path / "config"),
        ]
        ran = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        mute.settimeout(30)
        connection, _ = mute.accept()  # it has begun to ask
        ran.send_signal(signal.SIGTERM)
        with connection:
            assert (ran.wait(5), ran.communicate()[1]) == (0, "")
