"""Work: the amount of computation that one plan may do, counted where it is done (decision 47).

Invariant: a unit is about a microsecond of one core, charged for the pods, nodes or terms about to
be read. The same plan charges the same units on every machine, so no decision depends on a clock.
`OutOfWork` may interrupt code that charges; that code charges before it changes anything, or undoes
its changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import inf


class OutOfWork(Exception):  # noqa: N818 - not an error: the rest is for the next plan
    """The plan, or a part of it, has used up its units of work."""


class Work:
    """Units of work: `used` so far. Charging more than `most` in total raises OutOfWork.

    `choices` are those of exact searches so far, which are bounded over several plans.
    """

    __slots__ = ("choices", "most", "used")

    def __init__(self, most: float = inf) -> None:
        self.used = 0
        self.choices = 0
        self.most = most

    def charge(self, units: int) -> None:
        """Count `units` before the work is done. Raises OutOfWork."""
        self.used += units
        if self.used > self.most:
            raise OutOfWork

    @property
    def left(self) -> float:
        """Units left."""
        return self.most - self.used

    @contextmanager
    def at_most(self, units: float) -> Iterator[None]:
        """Limit the work inside the context to `units`, and to what is left."""
        most = self.most
        self.most = min(self.most, self.used + units)

        try:
            yield
        finally:
            self.most = most

    @contextmanager
    def unlimited(self) -> Iterator[None]:
        """Count work inside the context without a limit."""
        most = self.most
        self.most = inf

        try:
            yield
        finally:
            self.most = most

    def reserved(self, units: float) -> None:
        """Raise OutOfWork unless `units` are left; call it before work whose result is useless if
        interrupted.
        """
        if self.left < units:
            raise OutOfWork
