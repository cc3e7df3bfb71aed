"""How often a PodGroup's status is written, on a real API server."""

from __future__ import annotations

import time
from http import HTTPStatus
from typing import Any

import pytest
from control_plane import ControlPlane
from control_plane import objects as make
from control_plane.api import Api, ApiError, Object
from control_plane.daemon import Daemon

pytestmark = pytest.mark.e2e

SIGS = "scheduling.sigs.k8s.io"
DEFINITION = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/podgroups.{SIGS}"
POD_GROUPS = f"/apis/{SIGS}/v1alpha1/namespaces/default/podgroups"
LOOK_FOR_S = 6.0
WITHIN_S = 20.0


@pytest.fixture
def no_subresource(plane: ControlPlane, api: Api) -> None:
    """The definition is as Koordinator's users have it: without a status subresource."""
    definition = api.get(DEFINITION)
    for version in definition["spec"]["versions"]:
        version.pop("subresources", None)
    api.put(DEFINITION, definition)


@pytest.mark.usefixtures("no_subresource")
def test_our_own_write_is_no_reason_to_write(plane: ControlPlane, api: Api) -> None:
    """Without a subresource each status write makes a new generation: it is observed, not answered
    (E3).
    """
    path = f"{POD_GROUPS}/g"
    _create(api, make.pod_group("g", min_member=2, api=SIGS))
    with Daemon(plane):
        make.create_all(api, [make.pod(f"g-{n}", gang="g", gpus=1) for n in range(2)])
        deadline_s = time.monotonic() + WITHIN_S
        # The definition has a condition for a PodGroup of which nobody has written yet.
        found = _status(api, path)
        while all(each["reason"] == "NoPods" for each in found.get("conditions", ())):
            assert time.monotonic() < deadline_s, "the PodGroup has no status yet"
            time.sleep(0.1)
            found = _status(api, path)
        time.sleep(LOOK_FOR_S)  # what must not happen has this long to happen
        generation = api.get(path)["metadata"]["generation"]
    print(f"generation {generation} after {LOOK_FOR_S:g} s with phase {found['phase']}")
    assert generation <= 4


def _create(api: Api, pod_group: Object) -> None:
    """Create a PodGroup; while its changed definition is taken up the API server answers 503."""
    deadline_s = time.monotonic() + WITHIN_S
    while True:
        try:
            api.post(POD_GROUPS, pod_group)
            return
        except ApiError as error:
            if error.status != HTTPStatus.SERVICE_UNAVAILABLE or time.monotonic() > deadline_s:
                raise
            time.sleep(0.1)


def _status(api: Api, path: str) -> dict[str, Any]:
    status: dict[str, Any] = api.get(path).get("status", {})
    return status
