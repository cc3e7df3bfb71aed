"""Numeric columns of running pods, kept from plan to plan; only changed pods are read again.

Invariant: a table depends on the pods only; the previous table only saves work. Names are encoded as numbers that are
valid within one table.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, islice
from operator import itemgetter
from typing import TypeVar
from zlib import crc32

import numpy as np

from gangsched.core.preemption.numbers import NONE
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
    "grace",
    "created",
    "fixed",
    "going",
    "ordinal",
    "key",
)
Name = TypeVar("Name", bound=Hashable)
_MARK = itemgetter(RunningPod._fields.index("mark"))  # asked of every pod in every plan that preempts
UNREAD = -1
LONGEST_GRACE_S = 2**40
"""A pod may state any int64; this leaves room for adding a time."""
NAMES_MORE = 100
"""Names beyond twice those at first at which a table is made from nothing, so that old ones are forgotten."""


@dataclass(frozen=True, slots=True, eq=False)
class Names:
    """Names seen so far, numbered, and what the shapes request of each resource that was asked about."""

    nodes: dict[str, int]
    gangs: dict[str, int]
    schedulers: dict[str, int]
    shapes: dict[Shape, int]
    _requests: dict[str, list[int]] = field(default_factory=dict)

    def requests(self, name: str) -> Ints:
        """`requests[s]`: request of a pod of shape `s` for the resource `name`, 0 for none. A shape is read once."""
        known = self._requests.setdefault(name, [])
        for shape in islice(self.shapes, len(known), None):
            known.append(next((amount for each, amount in shape.requests if each == name), 0))
        return np.array(known, dtype=np.int64)

    def __len__(self) -> int:
        return len(self.nodes) + len(self.gangs) + len(self.schedulers) + len(self.shapes)


@dataclass(frozen=True, slots=True, eq=False)
class PodTable:
    """`columns[f][i]` is field `f` of `pods[i]`; nodes, gangs, schedulers and shapes are numbers of `names`.

    `fixed` is 1 for pods that are never victims under any settings, `going` for terminating ones. `gang` is NONE for
    plain pods. `ordinal` is the number at the end of the name, read on demand, and `key` breaks ties between otherwise
    equal pods, identically in every process. `marks` are the pods' versions; the table kept for the next plan has only
    these and no pods, so that it keeps no deleted pod alive. `names_at_first` is the number of names when a table was
    last built from scratch.
    """

    pods: Sequence[RunningPod]
    marks: Ints
    names: Names
    names_at_first: int
    columns: Ints

    def ordinals(self, of: Ints) -> Ints:
        """Numbers at the end of these pods' names, as in indexed Jobs; 0 without one.

        Read on demand, since few pods' ordinals are ever needed.
        """
        column = self.columns[FIELDS.index("ordinal")]
        unread = of[column[of] == UNREAD]
        names = [self.pods[i].pod.name for i in unread.tolist()]
        ends = [name[len(name.rstrip("0123456789")) :] for name in names]
        column[unread] = [int(end[-9:]) if end else 0 for end in ends]
        found: Ints = column[of]
        return found

    def field(self, name: str) -> Ints:
        """A column by name, except `ordinal`. Read-only."""
        found: Ints = self.columns[FIELDS.index(name)]
        return found


class PodTableCache:
    """The table of the last plan, without its pods."""

    def __init__(self) -> None:
        self.last: PodTable | None = None

    def table(self, running: Running) -> PodTable:
        """The table of the running pods; those that are in the last one are not read again."""
        pods = running.pods
        marks = np.fromiter(map(_MARK, pods), dtype=np.int64, count=len(pods))
        made = _after(self.last, pods, marks) if self.last is not None else None
        if made is None:
            names = Names({}, {}, {}, {})
            columns = _read(pods, names)
            made = PodTable(pods, marks, names, len(names), columns)
        # While the input is read in parts its names grow because more is read, not because old ones are left.
        at_first = made.names_at_first if running.whole else len(made.names)
        self.last = replace(made, pods=(), names_at_first=at_first)
        return made


def _after(last: PodTable, pods: Sequence[RunningPod], marks: Ints) -> PodTable | None:
    """The table of `pods` made from the last one, if those that are in both come first and in the same order."""
    if len(last.names) > 2 * last.names_at_first + NAMES_MORE:
        return None
    # Rows are reused by position, which is right only if all that stay come first and in the order of the last table.
    stays = np.isin(last.marks, marks[marks != 0])
    kept = int(stays.sum())
    if not np.array_equal(last.marks[stays], marks[:kept]):
        return None
    if kept == len(last.marks) == len(pods):
        return replace(last, pods=pods)
    columns = np.hstack((last.columns[:, stays], _read(pods[kept:], last.names)))
    return replace(last, pods=pods, marks=marks, columns=columns)


def _read(running: Sequence[RunningPod], names: Names) -> Ints:
    """The columns of these pods; `names` learns new ones.

    A column is read at a time: a row at a time takes three times as long, in which a plan stalls at its first look.
    """
    found = np.zeros((len(FIELDS), len(running)), dtype=np.int64)
    if not running:
        return found
    pods = [each.pod for each in running]
    columns: tuple[list[int] | list[bool], ...] = (
        _numbers([each.node for each in running], names.nodes),
        _numbers([each.gang for each in running], names.gangs, none=""),
        _numbers([pod.scheduler_name for pod in pods], names.schedulers),
        _numbers([pod.shape for pod in pods], names.shapes),
        [pod.priority for pod in pods],
        [pod.start_s for pod in pods],
        [pod.deletion_s for pod in pods],
        [min(pod.grace_s, LONGEST_GRACE_S) for pod in pods],
        [pod.creation_s for pod in pods],
        [pod.ends_with_node for pod in pods],
        [each.leaving or each.pod.deleting for each in running],
        [UNREAD] * len(running),
        list(map(crc32, map(str.encode, [pod.uid for pod in pods]))),
    )
    for row, column in zip(found, columns, strict=True):
        row[:] = column
    return found


def _numbers(met: Sequence[Name], known: dict[Name, int], *, none: Name | None = None) -> list[int]:
    """The number of each name, NONE for `none`; `known` learns new ones."""
    new = [name for name in dict.fromkeys(met) if name not in known and name != none]
    known.update(zip(new, count(len(known)), strict=False))
    numbers = known if none is None else {**known, none: NONE}
    return list(map(numbers.__getitem__, met))
