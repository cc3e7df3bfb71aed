"""How failed pods ended, as their statuses say (semantics L8)."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from gangsched.kube.read.deaths import death_of, restarts_of
from gangsched.kube.read.decode import seconds
from gangsched.kube.read.wire import PodStatus
from gangsched.model.objects import Death

DONE = "2026-11-24T14:02:00Z"


def status(phase: str = "Failed", **fields: Any) -> PodStatus:
    """The decoded status of a pod."""
    return msgspec.json.decode(json.dumps({"phase": phase, **fields}), type=PodStatus)


def ended(
    code: int, reason: str = "", *, where: str = "state", restarts: int = 0
) -> dict[str, Any]:
    """The status of a container that ended."""
    terminated = {"exitCode": code, "reason": reason, "finishedAt": DONE}
    return {"name": "main", "restartCount": restarts, where: {"terminated": terminated}}


def death(of: PodStatus) -> Death | None:
    """How the pod died."""
    return death_of(of, seconds)


@pytest.mark.parametrize(
    ("container", "cause"),
    [
        (ended(137, "OOMKilled"), "OOMKilled (137)"),
        (ended(1, "Error"), "Error (1)"),
        (ended(128, "StartError"), "StartError (128)"),
        (ended(0, "ContainerCannotRun"), "ContainerCannotRun (0)"),
        (ended(2, where="lastState"), "Error (2)"),
    ],
)
def test_the_cause_is_reason_and_exit_code(container: dict[str, Any], cause: str) -> None:
    """L8: of the container that failed, in its last state if it waits now."""
    found = death(status(containerStatuses=[ended(0, "Completed"), container]))
    assert found == Death(cause, seconds(DONE))


def test_a_pod_without_container_states_died_too() -> None:
    """L8: such as one whose sandbox could not be made."""
    assert death(status(reason="UnexpectedAdmissionError")) == Death("UnexpectedAdmissionError", 0)
    assert death(status(containerStatuses=[{"name": "main"}])) == Death("no container ran", 0)


def test_evicted_and_completed_pods_did_not_die() -> None:
    """L8: the node has no part in an eviction, nor in containers that completed."""
    target = {"type": "DisruptionTarget", "status": "True"}
    died = [ended(143, "Error")]
    assert death(status(containerStatuses=died, conditions=[target])) is None
    assert death(status(containerStatuses=[ended(0, "Completed")])) is None
    assert death(status("Succeeded", containerStatuses=died)) is None
    assert death(status("Running", containerStatuses=died)) is None

    over = {**target, "status": "False"}
    assert death(status(containerStatuses=died, conditions=[over])) is not None


def test_a_long_reason_is_cut() -> None:
    """I8: anybody who may write a pod's status may write more than a word."""
    found = death(status(containerStatuses=[ended(1, "x" * 10_000)]))
    assert found is not None
    assert len(found.cause) == 200


@pytest.mark.parametrize(("restarts", "told"), [(0, 0), (2, 0), (3, 3), (12, 12)])
def test_restarts_count_from_three_on(restarts: int, told: int) -> None:
    """L8: of the container that restarts most."""
    containers = [ended(1, restarts=0), ended(1, restarts=restarts)]
    assert restarts_of(status("Running", containerStatuses=containers)) == told


def test_restarts_of_a_pod_without_statuses_are_none() -> None:
    """L8: as of one that has no node."""
    assert restarts_of(status("Pending")) == 0
