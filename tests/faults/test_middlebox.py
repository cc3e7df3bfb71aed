"""Connections that are dead and do not end: a middlebox takes everything and passes nothing on.

No packet is missing for the kernel, whose keepalives are answered; what notices is time alone. The
long form is `make dead-connections`, twenty trials.
"""

from __future__ import annotations

import os
import random
import time

import pytest
from control_plane import ControlPlane
from control_plane import objects as make
from control_plane.api import Api
from control_plane.daemon import Daemon
from control_plane.following import Following
from control_plane.pods import nodes_of

from tests.e2e.conftest import PODS
from tests.faults.middlebox import Middlebox
from tests.kwok_plane import plane_with_nodes

TRIALS = int(os.environ.get("DEAD_CONNECTIONS", "1"))
MEMBERS = 4
WITHIN_S = 45.0
"""client-go's HTTP/2 notices after 30 s without a frame and 15 s without the answer to a ping."""


@pytest.mark.e2e
def test_gangs_start_although_every_connection_is_dead() -> None:
    """A gang that is created when nothing passes any more, with its PodGroup, is bound within
    45 s.
    """
    took_s: list[float] = []
    rng = random.Random(1)
    with plane_with_nodes(1, gpus=8) as plane, Middlebox(_port(plane)) as middlebox:
        api = Api.of(plane)
        with Following(api, PODS) as pods, Daemon(plane, url=middlebox.url):
            for trial in range(TRIALS + 1):
                if trial:  # the first gang shows that all is well
                    time.sleep(rng.uniform(1.0, 8.0) if TRIALS == 1 else rng.uniform(1.0, 30.0))
                    middlebox.swallow()
                name, began_s = f"gang-{trial}", time.monotonic()
                bodies = make.gang(name, members=MEMBERS)
                make.create_all(api, bodies)
                pods.wait_for(
                    lambda items, name=f"{name}-": len(nodes_of(items, name)) == MEMBERS,  # type: ignore[misc]
                    within_s=200,
                    what=f"{name} bound",
                )
                took_s.append(round(time.monotonic() - began_s, 1))
                print(f"gang {trial}: whole after {took_s[-1]} s")
                for body in bodies:
                    api.delete(f"{api.path_of(body)}/{body['metadata']['name']}")
        api.close()
    assert max(took_s) <= WITHIN_S, took_s


def _port(plane: ControlPlane) -> int:
    return int(plane.url.rpartition(":")[2])
