"""What the tests on a real API server share."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from control_plane import ControlPlane
from control_plane.api import Api
from control_plane.applying import SCHEDULER_NAMES, apply_manifests

PODS = "/api/v1/pods"
COLLECTIONS = (PODS, "/apis/scheduling.x-k8s.io/v1alpha1/podgroups", "/api/v1/nodes")


def pytest_configure() -> None:
    """Commands under test must hear Ctrl-C, also where a shell started pytest in the background,
    deaf to it.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def control_plane() -> Iterator[ControlPlane]:
    """An API server for the whole session: no kwok, no CRDs, nothing in it; tests clean up after
    themselves.
    """
    with ControlPlane() as plane:
        yield plane


@pytest.fixture(scope="module")
def plane(request: pytest.FixtureRequest) -> Iterator[ControlPlane]:
    """A control plane with our CRDs and our ServiceAccount.

    A module's `PLANE` has arguments of `ControlPlane`, its `SERVED` the scheduler names of its
    daemons.
    """
    with ControlPlane(**getattr(request.module, "PLANE", {})) as plane:
        apply_manifests(
            Api.of(plane), scheduler_names=getattr(request.module, "SERVED", SCHEDULER_NAMES)
        )
        yield plane


@pytest.fixture
def api(plane: ControlPlane) -> Iterator[Api]:
    """An administrator's client; leaves no pod, PodGroup or node behind."""
    api = Api.of(plane)
    yield api
    delete_all(api, *COLLECTIONS)
    api.close()


def delete_all(api: Api, *collections: str) -> None:
    """Delete every object of these collections, each given by its path over all namespaces."""
    for collection in collections:
        version, _, plural = collection.rpartition("/")
        for item in api.list(collection).items:
            namespace = item["metadata"].get("namespace")
            path = f"{version}/namespaces/{namespace}/{plural}" if namespace else collection
            api.delete(f"{path}/{item['metadata']['name']}")
