"""A freed node starts the gang that waits for it, and meanwhile the debug pages say what it waits
for.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from control_plane import ControlPlane
from control_plane.api import Api
from control_plane.daemon import Daemon
from control_plane.following import Following

from bench.wakeup import PODS, FullCluster

pytestmark = pytest.mark.e2e


def ask(daemon: Daemon, path: str) -> tuple[int, Any]:
    """Status and JSON of a debug page."""
    status, text = daemon.http(path, port=daemon.debug_port)
    return status, json.loads(text)


def test_a_deleted_pod_wakes_the_waiting_gang(plane: ControlPlane) -> None:
    """Q3: the eight waiting members are bound to exactly the node that was freed, time
    after time.
    """
    api = Api.of(plane)
    with Daemon(plane) as daemon, Following(api, PODS) as pods:
        cluster = FullCluster(api, pods, nodes=4, members=8)
        for trial, node in enumerate(("n002", "n000", "n002")):
            name = f"gang-{trial}"
            cluster.wait(name)
            status, gang = ask(daemon, f"/debug/gangs/default/{name}")
            assert (status, gang["reason"], gang["queue"]) == (200, "Unschedulable", "parked")
            assert gang["counts"] == {"pending": 8}
            assert gang["spec"]["min"] == {
                "value": 8,
                "source": f"spec.minMember of PodGroup default/{name}",
            }
            cluster.free(node)
            assert cluster.bound(name) == {node}
            cluster.clear(name, node)
        assert ask(daemon, "/debug/gangs/default/none")[0] == 404
    api.close()
