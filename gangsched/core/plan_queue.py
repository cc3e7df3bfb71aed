"""Turns: which group is next in a plan, and how much work it may take (semantics Q4, decision 47).

Invariant: a plan does `most` units of work for groups and a little more. A group that does not fit into what is left is
taken back whole and left to the next plan, which is told how far it came. While one is unfinished others have half of
each plan and it has the other half, so that neither keeps the other waiting. One that comes no further is given up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from gangsched.core.messages import placing
from gangsched.core.progress import Progress
from gangsched.core.reserve import Ledger
from gangsched.core.work import OutOfWork, Work
from gangsched.model.gang import Group
from gangsched.model.plan import Need, Unfinished, Verdict

BEYOND = 3_000
"""Units of each plan for what comes after the groups: who yields, and whom groups that hold preempt."""

T = TypeVar("T")


class PlanQueue:
    """Iterates over the groups of one plan; `begun` are those that it took back, `unfinished` is for the next plan."""

    def __init__(self, ready: Sequence[Group], before: Unfinished | None, ledger: Ledger, most: int) -> None:
        """`ready` is in order; they have half of the work at least, whatever was done before."""
        same = (each for each in ready if before is not None and _is_same(each, before))
        self._resumed = next(same, None)
        self._groups = [group for group in ready if group is not self._resumed]
        self._before = before
        self._ledger = ledger
        self._work: Work = ledger.work
        self._begin = self._work.used
        self._most = max(most, self._begin + most // 2)
        self._limit = self._most if self._resumed is None else (self._begin + self._most) // 2
        self._is_over = False
        self.begun: frozenset[str] = frozenset()
        self.unfinished = before if self._resumed is not None else None

    def __iter__(self) -> Iterator[Group]:
        """The groups in their order, and the unfinished one once half of the work is done."""
        for group in self._groups:
            if self._is_over or self._work.used >= self._limit:
                break
            yield group
        if self._resumed is not None:
            self._limit, self._is_over = self._most, False
            yield self._resumed

    def end(self, group: Group) -> bool:
        """Whether the plan, which has looked at enough groups, ends before this one: not before an unfinished one."""
        self._is_over = group is not self._resumed
        return self._is_over

    def decide(
        self, group: Group, decided: Callable[[Group], Verdict], make_room: Callable[[Verdict], dict[str, Verdict]]
    ) -> Mapping[str, Verdict]:
        """The verdicts on a group and on those that make room for it; none if the work of this plan does not do for it.

        Then the ledger is as found.
        """
        ledger, work = self._ledger, self._work
        progress = Progress(self._before if group is self._resumed else None)
        if progress.ends:
            self.unfinished = None
            return {group.id: given_up(group, ledger)}
        # The end of a share is none: beside an unfinished group the others stop at half of the work.
        has_share = self._limit - work.used >= (self._most - self._begin) // 2
        checkpoint = ledger.checkpoint()
        ledger.progress, ledger.choices = progress, 0
        verdict: Verdict | None = None
        may, work.most = work.most, min(work.most, self._limit)
        try:
            verdict = decided(group)
            ledger.progress = None
            placed = ledger.checkpoint()
            made = make_room(verdict)
        except OutOfWork:
            if verdict is not None and has_share:
                ledger.rollback(placed)
                made = {group.id: verdict}
            else:
                ledger.rollback(checkpoint)
                self._is_over = True
                self.begun |= {group.id}
                if self._resumed is None or group is self._resumed:
                    self.unfinished = progress.so_far(group, ledger)
                return {}
        finally:
            work.most, ledger.progress = may, None
        if group is self._resumed:
            self.unfinished = None
        return made

    def beyond(self, act: Callable[[], T]) -> T | None:
        """What `act` returns; None if it takes too much work, and the ledger is as it was then."""
        checkpoint = self._ledger.checkpoint()
        try:
            with self._work.at_most(self._most + BEYOND - self._work.used):
                return act()
        except OutOfWork:
            self._ledger.rollback(checkpoint)
            return None


def _is_same(group: Group, before: Unfinished) -> bool:
    return (group.id, group.generation) == (before.group, before.generation)


def given_up(group: Group, ledger: Ledger) -> Verdict:
    """The verdict on a group that plans came no further with; any room is worth another look."""
    shapes = dict.fromkeys(pod.shape for gang in group.gangs for pod in (*gang.pending, *gang.retry))
    needs = tuple(Need(shape, 0) for shape in shapes if shape in ledger.table.static_fits)
    return Verdict(group=group.id, generation=group.generation, told=placing.too_much_work(group), needs=needs)
