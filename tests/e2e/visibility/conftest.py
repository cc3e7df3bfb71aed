"""A daemon that serves the API of gangs behind the aggregation layer of a real API server."""

from __future__ import annotations

import http.client
import json
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from control_plane import ControlPlane
from control_plane.api import Api, ApiError
from control_plane.applying import apply_manifests, apply_visibility
from control_plane.components import KUBECTL
from control_plane.daemon import Daemon
from control_plane.ports import free_ports

GANGS = "/apis/visibility.gangsched.dev/v1alpha1"
API_SERVICE = "/apis/apiregistration.k8s.io/v1/apiservices/v1alpha1.visibility.gangsched.dev"


@dataclass(frozen=True)
class Kubectl:
    """kubectl as a user of the cluster."""

    plane: ControlPlane
    user: str = ""

    def run(
        self, *words: str, text: str = "", within_s: float = 30.0
    ) -> subprocess.CompletedProcess[str]:
        """Run it; the caller judges the exit code."""
        asked_as = ("--as", self.user, "--as-group", "system:authenticated") if self.user else ()
        cache = self.plane.workdir / "kubectl-cache"
        argv = [
            str(KUBECTL),
            "--kubeconfig",
            str(self.plane.kubeconfig),
            "--cache-dir",
            str(cache),
            *asked_as,
            *words,
        ]
        return subprocess.run(
            argv, input=text, capture_output=True, text=True, timeout=within_s, check=False
        )

    def out(self, *words: str, text: str = "") -> str:
        """What it prints; it must succeed."""
        done = self.run(*words, text=text)
        assert done.returncode == 0, done.stderr
        return done.stdout


@dataclass(frozen=True)
class Served:
    """A plane, a daemon that serves there, and its port."""

    plane: ControlPlane
    daemon: Daemon
    port: int

    def kubectl(self, user: str = "") -> Kubectl:
        """kubectl as this user; the administrator without one."""
        return Kubectl(self.plane, user)


def serving(plane: ControlPlane, port: int, **environment: str) -> Daemon:
    """A daemon that serves on this port of 127.0.0.1."""
    settings = {
        "GANGSCHED_VISIBILITY_PORT": str(port),
        "GANGSCHED_SHUTDOWN_S": "1",  # nothing routes to it once it is told to stop
    }
    log_path = plane.logs / f"gangsched-{port}.log"
    # With a Lease it is ready once it has waited for the Lease's duration.
    return Daemon(
        plane, environment={**settings, **environment}, log_path=log_path, ready_timeout_s=90.0
    )


def await_available(api: Api, *, within_s: float = 30.0) -> None:
    """Wait until the API server finds the API of gangs available, and has read how it explains
    itself.
    """
    deadline_s = time.monotonic() + within_s
    while True:
        try:
            api.get(GANGS)
            if (
                _condition(api) == "True"
                and GANGS.removeprefix("/") in api.get("/openapi/v3")["paths"]
            ):
                return
        except (ApiError, OSError):
            pass
        assert time.monotonic() < deadline_s, json.dumps(api.get(API_SERVICE).get("status"))
        time.sleep(0.05)


def _condition(api: Api) -> str:
    found = api.get(API_SERVICE).get("status", {}).get("conditions", [])
    return next((each["status"] for each in found if each["type"] == "Available"), "")


def ask(
    served: Served,
    context: ssl.SSLContext,
    path: str,
    headers: dict[str, str],
    method: str = "GET",
    body: bytes = b"",
) -> Any:
    """Status and body of a request past the API server."""
    connection = http.client.HTTPSConnection("127.0.0.1", served.port, context=context, timeout=10)
    try:
        connection.request(method, path, headers=headers, body=body or None)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def stranger() -> ssl.SSLContext:
    """Without a certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def proxied(
    served: Served, path: str, headers: dict[str, str], method: str = "GET", body: bytes = b""
) -> Any:
    """The same with the front proxy's certificate."""
    proxy = stranger()
    proxy.load_cert_chain(served.plane.pki.proxy_cert, served.plane.pki.proxy_key)
    return ask(served, proxy, path, headers, method, body)


@contextmanager
def plane_that_serves(**environment: str) -> Iterator[Served]:
    """With a controller manager, which adds our rules to `edit`; kwok's kubelets take no part."""
    with ControlPlane(kcm=True) as plane:
        api = Api.of(plane)
        apply_manifests(api)
        (port,) = free_ports(1)
        apply_visibility(api, port)
        with serving(plane, port, **environment) as daemon:
            await_available(api)
            yield Served(plane, daemon, port)
        api.close()


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    """A daemon without a Lease."""
    with plane_that_serves() as served:
        yield served
