"""What demo and playground share: the manifests on a running control plane, and gangsched with the
gangs API.

Invariant: when `gangsched_on` has yielded, `kubectl get gangs` answers.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from control_plane import ControlPlane, ControlPlaneError
from control_plane.api import Api
from control_plane.applying import ROOT, apply_manifests, apply_visibility, apply_yaml
from control_plane.daemon import Daemon
from control_plane.objects import create_all, released_lease
from control_plane.ports import free_ports

DEFINITION = ROOT / "crds" / "scheduling.x-k8s.io_podgroups.yaml"
GANGS = "/apis/visibility.gangsched.dev/v1alpha1/gangs"
READY_WITHIN_S = 60.0


@contextmanager
def gangsched_on(plane: ControlPlane) -> Iterator[Daemon]:
    """Install what manifests/install.yaml installs, and run gangsched as a process."""
    api = Api.of(plane)
    # Koordinator's definition is left out, as in install.yaml: it would answer to `kubectl get
    # podgroups`.
    apply_yaml(api, DEFINITION)
    # No autoscaler is here, and `kubectl gangsched doctor` reports a role that nothing uses.
    apply_manifests(api, crds=False, without=("rbac-provisioning.yaml",))
    (port,) = free_ports(1)
    apply_visibility(api, port)
    create_all(api, [released_lease()])  # or it would wait until the Lease of a predecessor expires

    environment = {
        "GANGSCHED_LEADER_ELECT": "true",
        "GANGSCHED_SHUTDOWN_S": "1",
        "GANGSCHED_VISIBILITY_PORT": str(port),
    }
    with Daemon(plane, environment=environment, ready_timeout_s=READY_WITHIN_S) as daemon:
        _await_gangs(api)
        yield daemon
    api.close()


def _await_gangs(api: Api) -> None:
    """Wait until the API server reaches the gangs API."""
    deadline_s = time.monotonic() + READY_WITHIN_S
    while not api.healthy(GANGS):
        if time.monotonic() > deadline_s:
            raise ControlPlaneError(f"The gangs API does not answer within {READY_WITHIN_S:g} s.")
        time.sleep(0.1)
