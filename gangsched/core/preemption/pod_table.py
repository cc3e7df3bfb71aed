"""Numbers about running pods, kept from one plan to the next: what changed is read, the rest is copied as columns.

Law: a table depends on nothing but the pods; the table that it is made from only saves work. Names become numbers here
that mean nothing outside of one table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress
from operator import is_
from zlib import crc32

import numpy as np

from gangsched.model.objects import Shape
from gangsched.model.preemption import Running, RunningPod
from gangsched.model.snapshot import Ints

FIELDS = (
    "node",
    "gang",
    "scheduler",
    "shape",
    "priority",
    "start",
    "deletion",
    "created",
    "fixed",
    "going",
    "ordinal",
    "key",
)
NAMES_LIMIT = 1_000
"""Names beyond twice the pods at which a table is made from nothing, so that those of pods long gone are forgotten."""


@dataclass(frozen=True, slots=True, eq=False)
class Names:
    """Names met so far, each with its number."""

    nodes: dict[str, int]
    gangs: dict[str, int]
    schedulers: dict[str, int]
    shapes: dict[Shape, int]

    def __len__(self) -> int:
        return len(self.nodes) + len(self.gangs) + len(self.schedulers) + len(self.shapes)


@dataclass(frozen=True, slots=True, eq=False)
class PodTable:
    """`columns[f][i]` is field `f` of `pods[i]`; nodes, gangs, schedulers and shapes are numbers of `names`.

    `fixed` is 1 for pods that are never victims whatever the settings say, `going` for those that leave. `gang` is -1
    for plain pods. `ordinal` is the number at the end of the name, and `key` tells pods apart that are alike in all
    else, the same in every process.
    """

    pods: Sequence[RunningPod]
    names: Names
    columns: Ints

    @classmethod
    def of(cls, running: Running) -> PodTable:
        """The table of what runs."""
        last = running.memo.table
        made = _after(last, running.pods) if isinstance(last, PodTable) else None
        if made is None:
            names = Names({}, {}, {}, {})
            made = cls(running.pods, names, _read(running.pods, names))
        running.memo.table = made
        return made

    def field(self, name: str) -> Ints:
        """One column. Read-only."""
        found: Ints = self.columns[FIELDS.index(name)]
        return found


def _after(last: PodTable, pods: Sequence[RunningPod]) -> PodTable | None:
    """The table of `pods` made from the last one, if those that are in both come first and in the same order."""
    if len(last.names) > 2 * len(pods) + NAMES_LIMIT:
        return None
    present = set(map(id, pods))
    stays = [id(pod) in present for pod in last.pods]
    kept = sum(stays)
    if not all(map(is_, compress(last.pods, stays), pods)):
        return None
    if kept == len(last.pods) == len(pods):
        return last
    return PodTable(pods, last.names, np.hstack((last.columns[:, stays], _read(pods[kept:], last.names))))


def _read(pods: Sequence[RunningPod], names: Names) -> Ints:
    """The columns of these pods; `names` learns new ones."""
    nodes, gangs, schedulers, shapes = names.nodes, names.gangs, names.schedulers, names.shapes
    rows = [
        (
            nodes.setdefault(node, len(nodes)),
            gangs.setdefault(gang, len(gangs)) if gang else -1,
            schedulers.setdefault(pod.scheduler_name, len(schedulers)),
            shapes.setdefault(pod.shape, len(shapes)),
            pod.priority,
            pod.start_s,
            pod.deletion_s,
            pod.creation_s,
            pod.mirror or pod.controller_kind == "DaemonSet",
            leaving or pod.deleting,
            _ordinal(pod.name),
            crc32(pod.uid.encode()),
        )
        for pod, node, gang, leaving in pods
    ]
    return np.array(rows, dtype=np.int64).reshape(len(rows), len(FIELDS)).T.copy()


def _ordinal(name: str) -> int:
    """The number at the end of a name, as indexed jobs and replicas have it; 0 without one."""
    digits = name[len(name.rstrip("0123456789")) :]
    return int(digits[-9:]) if digits else 0
