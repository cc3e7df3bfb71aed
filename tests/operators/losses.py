"""Members that are killed: each once, by a failure or with its node, and its replacement succeeds.

Invariant: this does to pods what kubelets and nodes do, and no more: what comes in the place of a
pod is its controller's and gangsched's doing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import TypeAlias

from control_plane.api import Api, ApiError, Object
from control_plane.following import Following

from tests.operators.members import PODS, WITHIN_S

PAUSE_S = 0.02
JOB_NAME = "batch.kubernetes.io/job-name"
INDEX = "batch.kubernetes.io/job-completion-index"
Place: TypeAlias = tuple[str, str]
"""A Job, and an index of it."""


@dataclass
class Losses:
    """Kills the first pod of each place, and lets the next one succeed."""

    api: Api
    pods: Following
    random: Random
    lost: dict[Place, str] = field(default_factory=dict)

    def until(
        self,
        are_complete: Callable[[], bool],
        *,
        within_s: float,
        beside: Callable[[], None] = lambda: None,
    ) -> None:
        """End one pod after the other until all is complete. Raises TimeoutError with what is
        left.
        """
        deadline_s = time.monotonic() + within_s
        while not are_complete():
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"after {within_s:g} s: {told(self.pods.objects())}")

            beside()
            running = self._running()
            if running:
                self._end(self.random.choice(running))

            time.sleep(PAUSE_S)

    def _running(self) -> list[Object]:
        pods = []
        for pod in self.pods.objects().values():
            is_running = pod["status"].get("phase") == "Running"
            if is_running and place_of(pod) and not pod["metadata"].get("deletionTimestamp"):
                pods.append(pod)

        return sorted(pods, key=lambda pod: str(pod["metadata"]["name"]))

    def _end(self, pod: Object) -> None:
        place = place_of(pod)
        uid = pod["metadata"]["uid"]
        first = self.lost.setdefault(place, uid)
        path = f"{PODS}/{pod['metadata']['name']}"
        try:
            if first != uid:
                end(self.api, pod, "Succeeded")
            elif self.random.random() < 0.5:
                end(self.api, pod, "Failed")
            else:
                self.api.delete(path)
        except ApiError as error:
            # It has ended, and this was not seen yet.
            if error.status not in {404, 409}:
                raise


def place_of(pod: Object) -> Place:
    """Which index of which Job a pod is."""
    labels = pod["metadata"].get("labels", {})
    return labels.get(JOB_NAME, ""), labels.get(INDEX, "")


def end(api: Api, pod: Object, phase: str) -> None:
    """End a pod as its kubelet reports it. Raises ApiError if it is gone."""
    code = 0 if phase == "Succeeded" else 1
    containers = []
    for container in pod["status"].get("containerStatuses", ()):
        state = {"terminated": {"exitCode": code, "reason": "Error" if code else "Completed"}}
        containers.append({**container, "ready": False, "started": False, "state": state})

    status = {"phase": phase, "containerStatuses": containers}
    api.patch(f"{PODS}/{pod['metadata']['name']}/status", {"status": status})


def told(items: Mapping[str, Object]) -> str:
    """The pods that have not succeeded, with their phase and what they say."""
    lines = []
    for pod in items.values():
        phase = pod["status"].get("phase")
        if phase == "Succeeded":
            continue

        messages = [
            condition.get("message", "")
            for condition in pod["status"].get("conditions", ())
            if condition["type"] == "PodScheduled"
        ]
        lines.append(f"{pod['metadata']['name']} {phase}: {' '.join(messages)}")

    return "\n".join(sorted(lines))


def await_running(pods: Following, number: int, gone: Collection[str]) -> list[Object]:
    """The pods that run, by name, once so many do that are none of those that are `gone`. Raises
    TimeoutError.
    """

    def running(items: Mapping[str, Object]) -> list[Object] | None:
        found = []
        for uid, pod in items.items():
            is_going = "deletionTimestamp" in pod["metadata"]
            if uid not in gone and not is_going and pod["status"].get("phase") == "Running":
                found.append(pod)

        is_enough = len(found) == number
        return sorted(found, key=lambda pod: str(pod["metadata"]["name"])) if is_enough else None

    return pods.wait_for(running, within_s=WITHIN_S, what=f"{number} pods that run again")
