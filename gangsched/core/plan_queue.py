"""Turns: which group a plan decides next, and how much work it may take (semantics Q4, decision 47).

Invariant: a plan does about `most` units of work for groups. A group that needs more than what is left is rolled back
and left to the next plan, which receives its progress. While a group is unfinished, each plan gives it half of the work
and the other groups the other half, so that neither blocks the other. A group without progress is given up. Making room
is done within one plan: where less was left than it took, the next plan begins with that group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from gangsched.core.messages import placing
from gangsched.core.progress import Progress
from gangsched.core.reserve import Ledger
from gangsched.core.work import OutOfWork, Work
from gangsched.model.gang import Group
from gangsched.model.plan import Need, Unfinished, Verdict
from gangsched.model.preemption import Obstacle

UNITS_A_GROUP = 100
"""Units of deciding one group, whatever it is: a plan may come to hundreds."""
BEYOND = 3_000
"""Units of each plan for what comes after the groups: who yields, and whom groups that hold preempt."""

T = TypeVar("T")


class PlanQueue:
    """Iterates over the groups of one plan; `begun` are those that it rolled back, `unfinished` is passed to the next
    plan.
    """

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
        self._goes_first = self._resumed is not None and before is not None and before.goes_first
        shares = self._resumed is not None and not self._goes_first
        self._limit = (self._begin + self._most) // 2 if shares else self._most
        self._is_over = False
        self._next = 0
        self.begun: frozenset[str] = frozenset()
        self.unfinished = before if self._resumed is not None else None

    def __iter__(self) -> Iterator[Group]:
        """The groups in their order, and the unfinished one once half of the work is done, unless it goes first."""
        if self._resumed is not None and self._goes_first:
            yield self._resumed
        for group in self._groups:
            if self._is_over or self._work.used >= self._limit:
                break
            self._next += 1
            yield group
        if self._resumed is not None and not self._goes_first:
            self._limit, self._is_over = self._most, False
            yield self._resumed

    def behind(self, most: int) -> Sequence[Group]:
        """The next groups in their order, at most so many."""
        return self._groups[self._next : self._next + max(0, most)]

    def end(self, group: Group) -> bool:
        """Whether the plan, having decided enough groups, ends before this one; never before an unfinished group."""
        self._is_over = group is not self._resumed
        return self._is_over

    def decide(
        self,
        group: Group,
        decided: Callable[[Group], Verdict],
        make_room: Callable[[Verdict], dict[str, Verdict]],
        not_done: Callable[[Group, Verdict, Obstacle], Verdict],
    ) -> Mapping[str, Verdict]:
        """Return verdicts on a group and on the groups that make room for it.

        Empty if the plan has too little work left; the ledger is then unchanged. `not_done` is the verdict on a group
        for which making room takes more than a plan that begins with it, or than is left while another is unfinished.
        """
        ledger, work = self._ledger, self._work
        progress = Progress(self._before if group is self._resumed else None)
        if progress.ends:
            self.unfinished = None
            return {group.id: given_up(group, ledger)}
        third, left = (self._most - self._begin) // 3, 0
        checkpoint = ledger.checkpoint()
        ledger.progress, ledger.choices = progress, 0
        verdict: Verdict | None = None
        may, work.most = work.most, min(work.most, self._limit)
        try:
            work.charge(UNITS_A_GROUP)
            verdict = decided(group)
            ledger.progress = None
            placed, left = ledger.checkpoint(), self._limit - work.used
            made = make_room(verdict)
        except OutOfWork:
            is_others = self._resumed is not None and group is not self._resumed
            if verdict is not None and is_others and left >= third:
                ledger.rollback(placed)  # those behind it have the rest
                made = {group.id: not_done(group, verdict, Obstacle.LATER)}
            elif verdict is not None and self._goes_first and group is self._resumed:
                ledger.rollback(placed)
                made = {group.id: not_done(group, verdict, Obstacle.TOO_MUCH_WORK)}
            else:
                ledger.rollback(checkpoint)
                self._is_over = True
                self.begun |= {group.id}
                if not is_others:
                    self.unfinished = replace(progress.so_far(group, ledger), goes_first=verdict is not None)
                return {}
        finally:
            work.most, ledger.progress = may, None
        if group is self._resumed:
            self.unfinished = None
        return made

    def beyond(self, act: Callable[[], T]) -> T | None:
        """Run `act` with up to `BEYOND` units beyond the work of the plan; None, with the ledger rolled back, if it
        needs more.
        """
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
    """Verdict on a group without progress; any freed room wakes it."""
    shapes = dict.fromkeys(pod.shape for gang in group.gangs for pod in (*gang.pending, *gang.retry))
    needs = tuple(Need(shape, 0) for shape in shapes if shape in ledger.table.static_fits)
    return Verdict(group=group.id, generation=group.generation, told=placing.too_much_work(group), needs=needs)
