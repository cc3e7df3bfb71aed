"""Selects managed pods by `spec.schedulerName`, and reports each name that looks misspelt once.

No other component reports a pod whose scheduler does not exist. Invariant: a bounded number of
other names is stored, and only names of about the same length.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gangsched.api.problem import quoted
from gangsched.kube.ports import Warn
from gangsched.model.counter import counter

LETTERS = 2
REMEMBERED = 1_000
TOLD_AT_MOST = 100


@dataclass(slots=True)
class SchedulerNameCounts:
    """Counters for metrics."""

    misspelt: int = counter(
        "scheduler names within two letters of a name of gangsched, each counted once; the log has"
        " the first 100 and a pod of each"
    )


class SchedulerNames:
    """The served names, and other pods' names that have been compared with them."""

    def __init__(self, ours: Iterable[str], warn: Warn) -> None:
        self.counts = SchedulerNameCounts()
        self.ours = frozenset(ours)
        self._longest = max(map(len, self.ours), default=0) + LETTERS
        self._compared: set[str] = set()
        self._warn = warn

    def compare(self, name: str, pod: str) -> None:
        """Report a `name` within two edits of a served name, the first time that it occurs; `pod`
        is "namespace/name".
        """
        if name in self.ours or len(name) > self._longest or name in self._compared:
            return

        if len(self._compared) >= REMEMBERED:
            # Users choose the names: rather than grow, the set starts again, and a name may be
            # reported twice.
            self._compared.clear()

        self._compared.add(name)
        near = min((mine for mine in self.ours if within(LETTERS, name, mine)), default=None)
        if near is None:
            return

        self.counts.misspelt += 1
        if self.counts.misspelt <= TOLD_AT_MOST:
            self._warn(
                f"Pod {pod} has schedulerName {quoted(name)}, which is not ours but close to"
                f' "{near}": if it is misspelt, nobody schedules the pod.'
            )


def within(letters: int, a: str, b: str) -> bool:
    """Whether the Levenshtein distance of `a` and `b` is at most `letters`."""
    row = list(range(len(b) + 1))
    for i, letter in enumerate(a, 1):
        above = row
        row = [i]

        for j, other in enumerate(b, 1):
            row.append(min(above[j] + 1, row[j - 1] + 1, above[j - 1] + (letter != other)))

    return row[-1] <= letters
