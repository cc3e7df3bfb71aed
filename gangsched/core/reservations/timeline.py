"""The timeline: which pods take room now and when each of them is expected to end (H2 of the backfill design).

Law: it is made from its arguments alone and never changes; one more reservation gives a new one. Among pods that end
at the same time no order means anything.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from typing import Any

import numpy as np
import numpy.typing as npt

from gangsched.core.reserve import Ledger
from gangsched.model.gang import Placement
from gangsched.model.objects import Pod, Shape
from gangsched.model.reservation import Occupant
from gangsched.model.snapshot import Ints

Floats = npt.NDArray[np.float64]


class Timeline:
    """The occupants in the order in which they are expected to end, as columns: `ends_s[i]` of each, and others."""

    def __init__(self, occupants: Iterable[Occupant], ledger: Ledger) -> None:
        """Occupants of nodes that the ledger does not know are left out."""
        index = ledger.table.index
        known = [each for each in occupants if each.node in index]
        ends_s = np.array([each.ends_s for each in known], dtype=np.float64)
        order = np.argsort(ends_s, kind="stable")
        self.ends_s: Floats = ends_s[order]
        self._resources = ledger.resources
        self._shapes: list[Shape] = []
        pods = [each.pod for each in known]
        self._pods: npt.NDArray[Any] = _column(pods)[order]
        self._shape = self._codes(pods)[order]
        self._amounts = _amounts(self._shapes, self._resources)
        self._claims = np.array([bool(pod.claims) for pod in pods], dtype=np.bool_)[order]
        self._node: Ints = np.array([index[each.node] for each in known], dtype=np.int64)[order]
        self._started_s: Floats = np.array([each.started_s for each in known], dtype=np.float64)[order]

    def _codes(self, pods: Sequence[Pod]) -> Ints:
        """The number of each pod's shape; shapes that are new get the next ones."""
        numbers = {id(shape): number for number, shape in enumerate(self._shapes)}
        new = {id(pod.shape): pod.shape for pod in pods if id(pod.shape) not in numbers}
        self._shapes += new.values()
        numbers.update(zip(new, range(len(numbers), len(self._shapes)), strict=True))
        return np.array([numbers[id(pod.shape)] for pod in pods], dtype=np.int64)

    def with_reserved(self, placements: Sequence[Placement], at_s: float, ends_s: float, ledger: Ledger) -> Timeline:
        """The timeline in which these pods of a reservation run from `at_s` on, and end together."""
        both = copy(self)
        both._shapes = list(self._shapes)
        pods = [each.pod for each in placements]
        codes = both._codes(pods)
        nodes = np.array([ledger.table.index[each.node] for each in placements], dtype=np.int64)
        at = self.ended(ends_s)
        both.ends_s = np.insert(self.ends_s, at, np.full(len(pods), ends_s))
        both._started_s = np.insert(self._started_s, at, np.full(len(pods), at_s))
        both._node = np.insert(self._node, at, nodes)
        both._shape = np.insert(self._shape, at, codes)
        both._claims = np.insert(self._claims, at, [bool(pod.claims) for pod in pods])
        both._pods = np.concatenate((self._pods[:at], _column(pods), self._pods[at:]))
        if len(both._shapes) > len(self._shapes):
            both._amounts = _amounts(both._shapes, self._resources)
        return both

    def distinct_ends_s(self, until_s: float) -> Floats:
        """The known ends until then, each once, in order."""
        ends_s = self.ends_s[: self.ended(min(until_s, _LAST_S))]
        first = np.ones(len(ends_s), dtype=np.bool_)
        np.not_equal(ends_s[1:], ends_s[:-1], out=first[1:])
        return ends_s[first]

    def ended(self, at_s: float) -> int:
        """How many have ended at that time."""
        return int(np.searchsorted(self.ends_s, at_s, side="right"))

    def freed(self, first: int, last: int, size: int, rows: Sequence[int] | None = None) -> Ints:
        """`freed[r][n]`: what the occupants from `first` to before `last` take of each of `size` nodes.

        Resources not in `rows`, None for all, are left 0.
        """
        nodes, shapes = self._node[first:last], self._shape[first:last]
        found = np.zeros((len(self._amounts), size), dtype=np.int64)
        for row in range(len(found)) if rows is None else rows:
            np.add.at(found[row], nodes, self._amounts[row][shapes])
        return found

    def release(self, ended: int, ledger: Ledger) -> None:
        """Give back on `ledger` what the first `ended` occupants take."""
        if ended:
            amounts = self.freed(0, ended, len(ledger.table))
            claiming = np.flatnonzero(self._claims[:ended]).tolist()
            ledger.release_many(self._pods[:ended].tolist(), self._node[:ended], amounts, claiming=claiming)

    def longest_started_s(self, size: int) -> Floats:
        """When the occupant of each node that has run longest started; `math.inf` on a node without any."""
        started = np.full(size, math.inf)
        np.minimum.at(started, self._node, self._started_s)
        return started


_LAST_S = float(np.finfo(np.float64).max)
"""The end of time: what ends later has no known end."""


def _column(pods: Sequence[Pod]) -> npt.NDArray[Any]:
    column = np.empty(len(pods), dtype=object)
    column[:] = pods
    return column


def _amounts(shapes: Sequence[Shape], resources: Mapping[str, int]) -> Ints:
    """`amounts[r][shape]` that a pod of each shape asks of each resource."""
    found = np.zeros((len(resources), len(shapes)), dtype=np.int64)
    for number, shape in enumerate(shapes):
        for name, amount in shape.requests:
            if name in resources:
                found[resources[name], number] = amount
    return found
