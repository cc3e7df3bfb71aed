"""How members end: what container statuses say of those that failed or restart again and again.

Invariant: only statuses of failed pods, and of pods with a container that has restarted three times
or more, are decoded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from gangsched.kube.read.shapes import conditions
from gangsched.kube.read.wire import ContainerStatus, ContainerTerminated, PodStatus, Statuses
from gangsched.model.disruption import DISRUPTION_TARGET
from gangsched.model.objects import Death, Phase

FAILED: Final = Phase.FAILED.value
COMPLETED: Final = "Completed"
CAUSE_KEPT: Final = 200
"""Characters of a cause: a reason is one word, but anybody with pods/status may write more."""
RESTARTS_TOLD: Final = 3
_MANY_RESTARTS: Final = re.compile(rb'"restartCount":\s*(?:[3-9]|[1-9]\d)')
"""Found in the raw bytes of few pods, so that the others are not decoded."""
_decoder: Final = msgspec.json.Decoder(Statuses)


def death_of(status: PodStatus, seconds: Callable[[str], int]) -> Death | None:
    """How the pod ended; None if it did not fail, or if its node has no part in that: it was
    evicted, or its containers completed.

    Raises msgspec.DecodeError.
    """
    if status.phase != FAILED or _is_disrupted(status):
        return None

    ended = list(_terminated(status))
    failed = [state for state in ended if state.exit_code or state.reason not in {"", COMPLETED}]
    if ended and not failed:
        return None

    if not failed:
        return Death((status.reason or "no container ran")[:CAUSE_KEPT], 0)

    last = max(failed, key=lambda state: state.finished_at or "")
    cause = f"{last.reason or 'Error'} ({last.exit_code})"
    return Death(cause[:CAUSE_KEPT], seconds(last.finished_at or ""))


def restarts_of(status: PodStatus) -> int:
    """Restarts of the container that restarts most, 0 if they are fewer than three.

    Raises msgspec.DecodeError.
    """
    # Pods that wait have none.
    if not status.container_statuses:
        return 0

    raw = bytes(status.container_statuses)
    if _MANY_RESTARTS.search(raw) is None:
        return 0

    return max(container.restart_count for container in _containers(status))


def _containers(status: PodStatus) -> list[ContainerStatus]:
    raw = bytes(status.container_statuses)
    if raw in {b"", b"null"}:
        return []

    return _decoder.decode(raw)


def _terminated(status: PodStatus) -> Iterator[ContainerTerminated]:
    for container in _containers(status):
        for state in (container.state, container.last_state):
            if state is not None and state.terminated is not None:
                yield state.terminated
                break


def _is_disrupted(status: PodStatus) -> bool:
    for condition in conditions(status):
        if condition.type == DISRUPTION_TARGET and condition.status == "True":
            return True

    return False
