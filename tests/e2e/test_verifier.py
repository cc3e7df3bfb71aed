"""A core that is wrong about one tree binds nothing of it on a real API server, and all others
start (B2, I10).
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping

import pytest
from control_plane import ControlPlane
from control_plane import objects as make
from control_plane.api import Api, Object
from control_plane.daemon import Daemon
from control_plane.following import Following

from gangsched.api import keys
from tests.e2e.conftest import PODS
from tests.mutants.run import ROOT, SITE
from tests.wrong_core import FAULTS

pytestmark = [pytest.mark.e2e, pytest.mark.alone]

RACK = "example.com/rack"
WITHIN_S = 15.0
WATCHED_S = 2.0
"""Set aside, the tree is tried again once a second at first."""


def create_tree(api: Api, spec: Mapping[str, object]) -> None:
    """A tree of two gangs of one pod each, in one rack; the small node has room for one of them."""
    for number, (rack, cpu) in enumerate((("r0", "8"), ("r0", "8"), ("r1", "8"), ("r0", "1"))):
        api.post("/api/v1/nodes", make.node(f"n{number}", cpu=cpu, labels={RACK: rack}))
    marks = {keys.MIN_CHILDREN[0]: "2", keys.TOPOLOGY[0]: RACK}
    make.create_all(api, [make.pod_group("svc", "default", 1, annotations=marks)])
    for name in ("a", "b"):
        stated = make.gang_annotations(name, 1) | {keys.PARENT[0]: "svc"}
        make.create_all(api, [make.pod(f"{name}-0", cpu="800m", annotations=stated, spec=spec)])


@pytest.mark.parametrize("fault", [name for name in FAULTS if name != "a device twice"])
def test_a_wrong_core_binds_nothing(plane: ControlPlane, api: Api, fault: str) -> None:
    """The tree is told of an internal error and stays unbound; a pod that comes later is bound
    within a second.
    """
    path = os.pathsep.join((str(SITE), str(ROOT)))
    environment = {"WRONG_CORE": fault, "PYTHONPATH": path}
    port = {"containerPort": 80, "hostPort": 80}
    container = {
        "name": "main",
        "image": "x",
        "ports": [port],
        "resources": {"requests": {"cpu": "800m"}},
    }
    with Daemon(plane, environment=environment) as daemon, Following(api, PODS) as pods:
        create_tree(api, {"containers": [container]} if fault == "a port twice" else {})

        def told(items: Mapping[str, Object]) -> bool:
            conditions = [
                each for item in items.values() for each in item["status"].get("conditions", [])
            ]
            return sum("internal error" in each.get("message", "") for each in conditions) == 2

        pods.wait_for(told, within_s=WITHIN_S, what="both pods to be told")
        began_s = time.monotonic()
        make.create_all(api, [make.pod("other", "kube-public")])

        def bound(items: Mapping[str, Object]) -> set[str]:
            return {
                item["metadata"]["name"] for item in items.values() if item["spec"].get("nodeName")
            }

        pods.wait_for(
            lambda items: "other" in bound(items),
            within_s=WITHIN_S,
            what="the other pod to be bound",
        )
        assert time.monotonic() - began_s < 1.0
        time.sleep(max(0.0, began_s + WATCHED_S - time.monotonic()))
        daemon.check()
        assert {
            item["metadata"]["name"]
            for item in api.list(PODS).items
            if item["spec"].get("nodeName")
        } == {"other"}
