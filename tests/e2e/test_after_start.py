"""Gangs that are created right after the start, while kopf does not listen yet."""

from __future__ import annotations

import time

import pytest
from control_plane import ControlPlane
from control_plane import objects as make
from control_plane.api import Api
from control_plane.daemon import Daemon
from control_plane.following import Following
from control_plane.pods import nodes_of

from tests.e2e.conftest import PODS

pytestmark = pytest.mark.e2e

MEMBERS = 4
WITHIN_S = 2.0
"""Without the watch that precedes kopf, the gangs of the first second wait for 3 to 6 s."""
CREATED_AT_S = (0.0, 0.5, 1.0, 3.0)


def test_gangs_of_the_first_seconds_are_bound_at_once(plane: ControlPlane, api: Api) -> None:
    """A PodGroup and its pods that are created 0, 0.5, 1 and 3 s after /readyz is green do not wait
    for kopf.
    """
    make.create_all(api, [make.node("n0")])
    with Following(api, PODS) as pods, Daemon(plane):
        ready_s = time.monotonic()
        took_s: dict[float, float] = {}
        for number, created_at_s in enumerate(CREATED_AT_S):
            time.sleep(max(0.0, ready_s + created_at_s - time.monotonic()))
            make.create_all(api, make.gang(f"gang-{number}", members=MEMBERS))
            began_s = time.monotonic()
            pods.wait_for(
                lambda items, name=f"gang-{number}-": len(nodes_of(items, name)) == MEMBERS,  # type: ignore[misc]
                within_s=30,
                what=f"gang-{number} bound",
            )
            took_s[created_at_s] = time.monotonic() - began_s
    assert max(took_s.values()) < WITHIN_S, took_s
