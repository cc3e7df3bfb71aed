"""Reservations in a simulation: promised start times and idle reserved room.

Invariant: a promise is the start time reported to a group when it became the first head (H13); later reports do not
count. Reserved room that no pod uses counts as idle, even if other groups could use it, so that the cost of
reservations is never understated.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from gangsched.model.gpu_policy import GpuPolicy
from gangsched.model.reservation import Reserved
from gangsched.model.snapshot import Snapshot
from gangsched.telemetry.reservations import idle


@dataclass(slots=True)
class Promises:
    """Promised start times in `told_s` by group id, `math.inf` for a fence; `idle_gpu_s` are the GPU-seconds that were
    idle until `seen_s`.

    `standing` are the current reservations, in which `idle_gpus` GPUs are idle.
    """

    told_s: dict[str, float] = field(default_factory=dict)
    idle_gpu_s: float = 0.0
    seen_s: float = 0.0
    idle_gpus: float = 0
    standing: tuple[Reserved, ...] = ()

    def pass_to(self, now_s: float) -> None:
        """Advance to `now_s` with unchanged reservations."""
        self.idle_gpu_s += self.idle_gpus * (now_s - self.seen_s)
        self.seen_s = now_s

    def look(self, standing: Iterable[Reserved], snapshot: Snapshot, policy: GpuPolicy) -> None:
        """Record the current reservations and their room."""
        self.standing = tuple(standing)
        for each in self.standing:
            if each.is_promised or (each.first and each.is_fence):
                # Only the first report: later ones move with what happens meanwhile.
                self.told_s.setdefault(each.group, each.promised_s)
        self.idle_gpus = idle(self.standing, snapshot, policy)["accelerators"] if self.standing else 0
