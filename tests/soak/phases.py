"""The statuses that PodGroups of a soak go through (E5)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from control_plane.api import Object

from tests.phase_histories import faults


@dataclass
class StatusHistories:
    """By PodGroup, the statuses that it had, without repetitions."""

    histories: dict[str, list[Mapping[str, Any]]] = field(default_factory=dict)

    def hear(self, kind: str, pod_group: Object, seen_s: float) -> None:
        """A PodGroup has changed."""
        status = pod_group.get("status", {})
        history = self.histories.setdefault(pod_group["metadata"]["name"], [])
        if kind != "DELETED" and history[-1:] != [status]:
            history.append(status)

    def phases(self, name: str) -> list[str]:
        """The phases of one PodGroup, in order."""
        return [str(status.get("phase")) for status in self.histories.get(name, ())]

    def faults(self) -> list[str]:
        """What is wrong with a history, for each that is not allowed."""
        found: list[str] = []
        for name, history in sorted(self.histories.items()):
            if wrong := faults(history):
                found.append(f"{name}: {wrong[0]}: {', '.join(self.phases(name))}")

        return found
