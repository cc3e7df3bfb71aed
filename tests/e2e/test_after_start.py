"""Right after the start: kopf does not listen yet, and few connections are open."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

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
SOCKETS_AT_MOST = 48
"""A watch each of a dozen resources, those that binds begin with, and the ports that it serves."""


def test_gangs_of_the_first_seconds_are_bound_at_once(plane: ControlPlane, api: Api) -> None:
    """A PodGroup and its pods that are created 0, 0.5, 1 and 3 s after /readyz is green do not wait for kopf."""
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


def test_connections_for_binds_are_opened_once_they_are_needed(plane: ControlPlane, api: Api) -> None:
    """With nothing to bind a start opens a few of its 96 connections; a gang that needs more of them is bound."""
    make.create_all(api, [make.node(f"n{index}") for index in range(4)])
    with Following(api, PODS) as pods, Daemon(plane) as daemon:
        assert sockets_of(daemon.pid) <= SOCKETS_AT_MOST
        make.create_all(api, make.gang("wide", members=200))
        pods.wait_for(lambda items: len(nodes_of(items, "wide-")) == 200, within_s=30, what="200 bound pods")
        assert sockets_of(daemon.pid) > SOCKETS_AT_MOST


def sockets_of(pid: int) -> int:
    """The sockets that a process has open."""
    kinds = []
    for file in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            kinds.append(os.readlink(file))
    return sum(kind.startswith("socket:") for kind in kinds)
