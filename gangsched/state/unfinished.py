"""The group that is being decided over several plans, and events in the meantime that may help it
(semantics Q4).

Invariant: results of earlier plans are passed to the next one and dropped once a plan decides the
group. Room that is freed before its verdict wakes up only parked groups. It is therefore recorded
and reported to the queue after the verdict, because a member may have failed before the room was
freed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field, replace

from gangsched.model.plan import Unfinished


@dataclass(slots=True)
class Missed:
    """Nodes with freed room, and whether pods changed that others depend on."""

    freed: set[str] = field(default_factory=set)
    pods_changed: bool = False


@dataclass(slots=True)
class UnfinishedLook:
    """`known` is the progress from which the next plan continues; None unless a group is
    unfinished.
    """

    known: Unfinished | None = None
    #: By group: what several plans found of groups that look for victims when it is their turn.
    _put_off: dict[str, Unfinished] = field(default_factory=dict)
    _missed: Missed = field(default_factory=Missed)

    @property
    def groups(self) -> Set[str]:
        """The unfinished group, if there is one."""
        if self.known is None:
            return frozenset()

        return {self.known.group}

    def forget(self, groups: Set[str]) -> None:
        """Drop the progress of groups that are gone or have changed."""
        for group in self._put_off.keys() & groups:
            del self._put_off[group]

        if self.known is not None and self.known.group in groups:
            self.known = None
            self._missed = Missed()

    def resume(self, groups: Iterable[str]) -> None:
        """Let the next plan, of these groups, go on with the first that was put off, unless
        another one is unfinished.
        """
        if self.known is not None or not self._put_off:
            return

        for group in groups:
            if group in self._put_off:
                self.known = self._put_off.pop(group)
                return

    def missed(self, freed: set[str], *, pods_changed: bool) -> None:
        """Record freed room on these nodes."""
        if self.known is not None:
            self._missed.freed |= freed
            self._missed.pods_changed |= pods_changed

    def goes_on(self, unfinished: Unfinished | None, told: Mapping[str, int]) -> Missed | None:
        """Record a committed plan. If it finished the group, return the changes that the group
        missed, else None.

        `told` has the generations of groups about which the plan only reported why they still wait;
        such a report is not a change.
        """
        for group in self._put_off.keys() & told.keys():
            del self._put_off[group]  # found of it as it was

        if unfinished is not None and unfinished.group in told:
            # Telling a group changes its record and so its generation; without this the next plan
            # would begin again, each time.
            postponed = replace(unfinished, generation=told[unfinished.group])
            self._put_off[postponed.group] = postponed
            unfinished = None

        before = self.known
        self.known = unfinished

        if before is None or (unfinished is not None and unfinished.group == before.group):
            return None

        missed = self._missed
        self._missed = Missed()
        return missed if missed.freed or missed.pods_changed else None
