"""The phases that PodGroups of a soak go through, and which histories are allowed (E3)."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from control_plane.api import Object

FORWARD: Final = ("Pending", "PreScheduling", "Scheduling", "Scheduled", "Running")
"""A start goes through these in this order, and may leave some out; a loss leads back."""
OVER: Final = frozenset({"Finished"})
"""Of a Job with a PodGroup of its own nothing follows."""


@dataclass
class PhaseHistories:
    """By PodGroup, the phases that its status had, without repetitions."""

    histories: dict[str, list[str]] = field(default_factory=dict)

    def hear(self, kind: str, pod_group: Object, seen_s: float) -> None:
        """A PodGroup has changed."""
        phase = pod_group.get("status", {}).get("phase")
        history = self.histories.setdefault(pod_group["metadata"]["name"], [])
        if kind != "DELETED" and phase and history[-1:] != [phase]:
            history.append(phase)

    def faults(self, *, shared: frozenset[str]) -> list[str]:
        """Histories that are not allowed; `shared` PodGroups have the pods of several Jobs."""
        found: list[str] = []
        for name, history in sorted(self.histories.items()):
            for before, after in pairwise(history):
                if before in OVER and name not in shared:
                    found.append(f"{name}: {after} after {before}: {', '.join(history)}")
                    break

        return found
