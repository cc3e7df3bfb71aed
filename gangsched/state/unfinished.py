"""The group that several plans decide together, and the news that it misses meanwhile (semantics Q4).

Invariant: what earlier plans found is given to the next one, and forgotten once one decides the group. Capacity that is
freed until then wakes nobody who is not parked, so it is kept and told to the queue after the verdict: why members
found no node may be older than it.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field

from gangsched.model.plan import Unfinished


@dataclass(slots=True)
class Missed:
    """Nodes with freed capacity, and whether pods came or went that others look at."""

    freed: set[str] = field(default_factory=set)
    pods_changed: bool = False


@dataclass(slots=True)
class UnfinishedLook:
    """`known` is what the next plan goes on from, None unless a group is unfinished."""

    known: Unfinished | None = None
    _missed: Missed = field(default_factory=Missed)

    def forget(self, groups: Set[str]) -> None:
        """These groups are gone or have changed."""
        if self.known is not None and self.known.group in groups:
            self.known, self._missed = None, Missed()

    def missed(self, freed: set[str], *, pods_changed: bool) -> None:
        """Capacity was freed on these nodes."""
        if self.known is not None:
            self._missed.freed |= freed
            self._missed.pods_changed |= pods_changed

    def goes_on(self, unfinished: Unfinished | None) -> Missed | None:
        """A plan is committed; what the group that it finished has missed, None for nothing."""
        before, self.known = self.known, unfinished
        if before is None or (unfinished is not None and unfinished.group == before.group):
            return None
        missed, self._missed = self._missed, Missed()
        return missed if missed.freed or missed.pods_changed else None
