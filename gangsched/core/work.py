"""Work: how much one plan may do, counted where it is done (decision 47).

Invariant: a unit is about a microsecond of one core and is charged by what is about to be looked at: pods, nodes,
terms. The same plan charges the same units on every machine, so that no decision depends on a clock. Whoever charges
may be interrupted by `OutOfWork`, and so charges before anything is changed or undoes it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import inf


class OutOfWork(Exception):  # noqa: N818 - not an error: the rest is for the next plan
    """The work that a plan, or a part of it, may do is done."""


class Work:
    """`used` units so far; charging beyond `most` raises OutOfWork."""

    __slots__ = ("most", "used")

    def __init__(self, most: float = inf) -> None:
        self.used = 0
        self.most = most

    def charge(self, units: int) -> None:
        """Count units that are about to be done. Raises OutOfWork."""
        self.used += units
        if self.used > self.most:
            raise OutOfWork

    @property
    def left(self) -> float:
        """Units that may still be done."""
        return self.most - self.used

    @contextmanager
    def at_most(self, units: float) -> Iterator[None]:
        """Do no more than so many units for as long as the context lasts, nor more than may be done anyway."""
        most, self.most = self.most, min(self.most, self.used + units)
        try:
            yield
        finally:
            self.most = most

    @contextmanager
    def unlimited(self) -> Iterator[None]:
        """Count, and interrupt nobody, for as long as the context lasts."""
        most, self.most = self.most, inf
        try:
            yield
        finally:
            self.most = most

    def reserved(self, units: float) -> None:
        """Raise OutOfWork unless so many units are left, for work that is of no use if it is cut short."""
        if self.left < units:
            raise OutOfWork
