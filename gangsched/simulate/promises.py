"""Reservations in a simulation: promised start times and idle reserved room.

Invariant: a promise is the start time reported to a group when it became the first head (H13); later reports do not
count. Reserved room that no pod uses counts as idle, even if other groups could use it, so that the cost of
reservations is never understated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from gangsched.model.reservation import Reserved
from gangsched.model.snapshot import Snapshot
from gangsched.simulate.workload import GPU, gpus_of


@dataclass(slots=True)
class Promises:
    """Promised start times in `told_s` by group id, `math.inf` for a fence; `idle_gpu_s` are the GPU-seconds that were
    idle until `seen_s`.

    `standing` are the current reservations, in which `idle_gpus` GPUs are idle.
    """

    told_s: dict[str, float] = field(default_factory=dict)
    idle_gpu_s: float = 0.0
    seen_s: float = 0.0
    idle_gpus: int = 0
    standing: tuple[Reserved, ...] = ()

    def pass_to(self, now_s: float) -> None:
        """Advance to `now_s` with unchanged reservations."""
        self.idle_gpu_s += self.idle_gpus * (now_s - self.seen_s)
        self.seen_s = now_s

    def look(self, standing: Iterable[Reserved], snapshot: Snapshot) -> None:
        """Record the current reservations and their room."""
        self.standing = tuple(standing)
        for each in self.standing:
            if each.is_promised or (each.first and each.is_fence):
                # Only the first report: later ones move with what happens meanwhile.
                self.told_s.setdefault(each.group, each.promised_s)
        self.idle_gpus = idle_gpus(self.standing, snapshot) if self.standing else 0


def idle_gpus(standing: Iterable[Reserved], snapshot: Snapshot) -> int:
    """Free GPUs on reserved nodes: on each node at most the reserved number, or all for a fence."""
    reserved: Counter[str] = Counter()
    for each in standing:
        if each.is_fence:
            # Whole nodes: more than any node has.
            reserved.update(dict.fromkeys(each.nodes, 10**9))
        for placement in each.placements:
            reserved[placement.node] += gpus_of(placement.pod.shape)
    row, index = snapshot.resources.get(GPU), snapshot.table.index
    if row is None:
        return 0
    there = ((int(snapshot.free[row, index[name]]), amount) for name, amount in reserved.items() if name in index)
    return sum(min(max(free, 0), amount) for free, amount in there)
