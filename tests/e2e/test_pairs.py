"""PodGroups that are created right before their pods, in a burst: semantics I2."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from control_plane import ControlPlane
from control_plane import objects as make
from control_plane.api import Api
from control_plane.daemon import Daemon
from control_plane.following import Following

from bench.pairs import KOPF_LISTENS_S, PODS_A_NODE, VERDICTS, Watching, create_pair
from tests.e2e.conftest import PODS

pytestmark = pytest.mark.e2e

PAIRS = 600
CLIENTS = 8


def test_pod_group_that_exists_is_never_told_to_be_missing(plane: ControlPlane, api: Api) -> None:
    """A burst that kopf falls behind: each pod is created once the creation of its PodGroup is
    answered.
    """
    make.create_all(
        api,
        [
            make.node(f"n{number}", pods=PODS_A_NODE, gpus=0)
            for number in range(PAIRS // PODS_A_NODE + 1)
        ],
    )
    watching = Watching()
    with Daemon(plane) as daemon, Following(api, PODS, on_change=watching.heard) as pods:
        time.sleep(KOPF_LISTENS_S)  # until then nobody relies on kopf
        with ThreadPoolExecutor(CLIENTS) as clients:
            list(clients.map(lambda number: create_pair(api, f"p{number:05}"), range(PAIRS)))
        pods.wait_for(
            lambda _: len(watching.bound_s) == PAIRS, within_s=60.0, what=f"{PAIRS} bound pods"
        )
        assert daemon.metrics().get(VERDICTS, 0) == 0
    assert not watching.refused
