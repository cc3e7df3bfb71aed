"""What a simulation sees of reservations: the times that were told to the first of the queue, and the room kept idle.

Invariant: a promise is the time told to a group when it became the first head (H13); what it is told later counts for
nothing. Idle is reserved room that no pod uses, whoever could use it, so it never understates what reservations cost.
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
    """`told_s` by group id, `math.inf` for a fence; `idle_gpu_s` GPU-seconds were kept idle until `seen_s`.

    `standing` are the reservations that stand now, which keep `idle_gpus` idle.
    """

    told_s: dict[str, float] = field(default_factory=dict)
    idle_gpu_s: float = 0.0
    seen_s: float = 0.0
    idle_gpus: int = 0
    standing: tuple[Reserved, ...] = ()

    def pass_to(self, now_s: float) -> None:
        """Time passes, and what is reserved stays as it is."""
        self.idle_gpu_s += self.idle_gpus * (now_s - self.seen_s)
        self.seen_s = now_s

    def look(self, standing: Iterable[Reserved], snapshot: Snapshot) -> None:
        """These reservations stand now, in this room."""
        self.standing = tuple(standing)
        for each in self.standing:
            if each.is_promised or (each.first and each.is_fence):
                self.told_s.setdefault(each.group, each.promised_s)
        self.idle_gpus = idle_gpus(self.standing, snapshot) if self.standing else 0


def idle_gpus(standing: Iterable[Reserved], snapshot: Snapshot) -> int:
    """Free GPUs on reserved nodes, of each as many as are reserved; a fence reserves all."""
    reserved: Counter[str] = Counter()
    for each in standing:
        if each.is_fence:
            reserved.update(dict.fromkeys(each.nodes, 10**9))
        for placement in each.placements:
            reserved[placement.node] += gpus_of(placement.pod.shape)
    row, index = snapshot.resources.get(GPU), snapshot.table.index
    if row is None:
        return 0
    there = ((int(snapshot.free[row, index[name]]), amount) for name, amount in reserved.items() if name in index)
    return sum(min(max(free, 0), amount) for free, amount in there)
