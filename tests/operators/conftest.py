"""What the tests of operators share: a control plane with the real Job controller, a node, the
daemon.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from control_plane import ControlPlane
from control_plane import objects as make
from control_plane.api import Api, ApiError
from control_plane.applying import apply_manifests
from control_plane.daemon import Daemon
from control_plane.following import Following

from tests.operators.members import PODS, WITHIN_S

GPUS = 4
"""Of the one node."""
READY_WITHIN_S = 120.0


@contextmanager
def suppress_missing() -> Iterator[None]:
    """Ignore that an object is gone."""
    try:
        yield
    except ApiError as error:
        if error.status != 404:
            raise


@pytest.fixture(scope="module")
def both(request: pytest.FixtureRequest) -> Iterator[tuple[ControlPlane, Daemon]]:
    """A control plane with one node of 4 GPUs, on which pods run, and gangsched of the module's
    `SCHEDULER_NAMES`.
    """
    names = getattr(request.module, "SCHEDULER_NAMES", ["gangsched"])
    with ControlPlane(kcm=True, kwok=True) as plane:
        api = Api.of(plane)
        apply_manifests(api)
        make.create_all(api, [make.node("gpu-1", gpus=GPUS)])
        with Daemon(plane, scheduler_names=names, ready_timeout_s=READY_WITHIN_S) as daemon:
            yield plane, daemon
        api.close()


@pytest.fixture(scope="module")
def plane(both: tuple[ControlPlane, Daemon]) -> ControlPlane:
    """The control plane, beside which gangsched runs."""
    return both[0]


@pytest.fixture(scope="module")
def daemon(both: tuple[ControlPlane, Daemon]) -> Daemon:
    """gangsched, to be killed."""
    return both[1]


@pytest.fixture
def api(plane: ControlPlane) -> Iterator[Api]:
    """An administrator's client."""
    api = Api.of(plane)
    yield api
    api.close()


@pytest.fixture
def pods(request: pytest.FixtureRequest, api: Api) -> Iterator[Following]:
    """Pods of the namespace; the test leaves none behind, nor one of the module's `JOBS`."""
    jobs = request.module.JOBS
    with Following(api, PODS) as pods:
        yield pods
        for job in api.list(jobs).items:
            # An operator whose object a test has deleted may be faster.
            with suppress_missing():
                api.call(
                    "DELETE",
                    f"{jobs}/{job['metadata']['name']}",
                    {"propagationPolicy": "Background"},
                )
        for pod in pods.objects().values():
            if not pod["metadata"].get("ownerReferences"):
                api.delete(f"{PODS}/{pod['metadata']['name']}")
        pods.wait_for(lambda items: not items, within_s=WITHIN_S, what="the end of the job's pods")
