"""The order in which a plan decides groups, and the work that each group may take (semantics Q4,
decision 47).

Invariant: a plan does about `most` units of work for groups. If a group needs more than is left, it
is rolled back, and the next plan receives its progress and continues. While a group is unfinished,
each plan spends half of its work on that group and half on the other groups, so neither blocks the
other. A group that makes no progress is given up. Preemption and reservations for a group are
computed within one plan; if too little work is left for them, the next plan begins with that group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from gangsched.core import findings
from gangsched.core.progress import Progress
from gangsched.core.reserve import Ledger
from gangsched.core.work import OutOfWork, Work
from gangsched.model.gang import Group
from gangsched.model.plan import Need, Unfinished, Verdict
from gangsched.model.preemption import NotHelpful, Obstacle

UNITS_A_GROUP = 100
"""Units of deciding one group, whatever it is: a plan may come to hundreds."""
TO_COME_A_UNIT = 4
"""Members to come that are made, and sorted, in the time of one unit."""
BEYOND = 3_000
"""Units of each plan for what comes after the groups: who yields, and whom groups that hold
preempt.
"""

ALL_BUT = 0.9
"""Share of a plan's work that is as good as all of it."""

T = TypeVar("T")


class PlanQueue:
    """Iterates over the groups of one plan. `begun` are the groups that it rolled back;
    `unfinished` is the progress for the next plan.
    """

    def __init__(
        self,
        ready: Sequence[Group],
        before: Unfinished | None,
        ledger: Ledger,
        most: int,
        declared: Mapping[str, Group],
    ) -> None:
        """`ready` are the groups in order. At least half of the work is left to them in
        any case. `declared` has the trees, of which `ready` has what their minimum needs.
        """
        same = (group for group in ready if before is not None and _is_same(group, before))
        self._resumed = next(same, None)
        self._groups = [group for group in ready if group is not self._resumed]
        self._before = before
        self._ledger = ledger
        self._declared = declared
        self._work: Work = ledger.work
        self._begin = self._work.used

        # Reservations are made before the groups; at least half of the work remains for deciding.
        self._most = max(most, self._begin + most // 2)
        self._goes_first = self._resumed is not None and before is not None and before.goes_first
        shares = self._resumed is not None and not self._goes_first

        # The first half for other groups: an unfinished one must not keep them waiting for 400
        # plans.
        self._limit = (self._begin + self._most) // 2 if shares else self._most
        self._is_over = False
        self._next = 0
        self.begun: frozenset[str] = frozenset()
        self.unfinished = before if self._resumed is not None else None

    def __iter__(self) -> Iterator[Group]:
        """Yield the groups in order, and the unfinished one when half of the work is done, unless
        it is first.
        """
        if self._resumed is not None and self._goes_first:
            yield self._resumed

        for group in self._groups:
            # Checked between groups; inside a group, `decide` limits the work.
            if self._is_over or self._work.used >= self._limit:
                break

            self._next += 1
            yield group

        if self._resumed is not None and not self._goes_first:
            self._limit = self._most
            self._is_over = False
            yield self._resumed

    def behind(self, most: int) -> Sequence[Group]:
        """The next groups in order, at most `most`."""
        return self._groups[self._next : self._next + max(0, most)]

    def shorten(self, units: int) -> None:
        """Reduce the work left for undecided groups by `units`; the unfinished group keeps its
        half.
        """
        self._limit -= units

    def end(self, group: Group) -> bool:
        """Whether the plan should end before this group because it has decided enough; never before
        an unfinished group.
        """
        self._is_over = group is not self._resumed
        return self._is_over

    def decide(
        self,
        group: Group,
        decided: Callable[[Group, Progress], Verdict],
        make_room: Callable[[Group, Verdict], dict[str, Verdict]],
        not_done: Callable[[Group, Verdict, Obstacle], Verdict],
    ) -> Mapping[str, Verdict]:
        """Return the verdicts on a group, and on the groups that release holds for it.

        Empty if the plan has too little work left; the ledger is then unchanged. `not_done` returns
        the verdict on a group for which preemption takes more work than a whole plan has, or than
        is left while another group is unfinished.
        """
        ledger = self._ledger
        work = self._work

        before = self._before if group is self._resumed else None
        progress = Progress(before, work.choices)
        if progress.ends:
            self.unfinished = None
            # Of a tree also the children above its minimum, which may be what took so long.
            declared = self._declared.get(group.id, group)
            return {group.id: given_up(declared, ledger)}

        third = (self._most - self._begin) // 3
        left = 0
        checkpoint = ledger.checkpoint()
        verdict: Verdict | None = None

        # An attribute, not a context manager: that took measurable time for thousands of groups.
        may = work.most
        work.most = min(work.most, self._limit)

        try:
            work.charge(UNITS_A_GROUP + _to_come(group) // TO_COME_A_UNIT)
            verdict = decided(group, progress)
            placed = ledger.checkpoint()
            left = self._limit - work.used
            made = make_room(group, verdict)
        except OutOfWork:
            is_others = self._resumed is not None and group is not self._resumed
            if verdict is not None and is_others and left >= third:
                ledger.rollback(placed)  # those behind it have the rest
                made = {group.id: not_done(group, verdict, Obstacle.LATER)}
            elif verdict is not None and self._had_all(group, left):
                ledger.rollback(placed)
                made = {group.id: not_done(group, verdict, Obstacle.TOO_MUCH_WORK)}
            else:
                ledger.rollback(checkpoint)
                self._is_over = True
                self.begun |= {group.id}

                if not is_others:
                    so_far = progress.so_far(group, ledger)
                    if verdict is not None:
                        so_far = _decided(so_far, before)

                    self.unfinished = replace(so_far, goes_first=verdict is not None)

                return {}
        finally:
            work.most = may

        if group is self._resumed:
            self.unfinished = None

        is_alone = self._resumed is None or group is self._resumed
        if is_alone and _is_put_off(made.get(group.id)):
            # What was found of it is not found again for each further plan that looks for victims.
            self.unfinished = _decided(progress.so_far(group, ledger), before)

        return made

    def _had_all(self, group: Group, left: int) -> bool:
        """Whether no plan could do more for a group than this one, which had so many units left to
        make room.
        """
        is_first = self._goes_first and group is self._resumed
        return is_first or left >= ALL_BUT * self._most

    def beyond(self, act: Callable[[], T]) -> T | None:
        """Run `act` with up to `BEYOND` units of work in addition to the plan's limit. If it needs
        more, roll the ledger back and return None.
        """
        checkpoint = self._ledger.checkpoint()
        try:
            with self._work.at_most(self._most + BEYOND - self._work.used):
                return act()
        except OutOfWork:
            self._ledger.rollback(checkpoint)
            return None


def _to_come(group: Group) -> int:
    """Members that do not exist yet; summed without a generator, for each group of a plan."""
    number = 0
    for gang in group.gangs:
        number += len(gang.to_come)

    return number


def _is_same(group: Group, before: Unfinished) -> bool:
    return (group.id, group.generation) == (before.group, before.generation)


def _decided(so_far: Unfinished, before: Unfinished | None) -> Unfinished:
    """The progress of a group that is decided but for what it may preempt: plans that only look for
    that do not count.
    """
    if before is None:
        return so_far

    return replace(so_far, plans=before.plans, in_vain=before.in_vain)


def _is_put_off(verdict: Verdict | None) -> bool:
    """Whether the next plan goes on looking for victims for the group."""
    answer = verdict.preemption if verdict is not None else None
    return isinstance(answer, NotHelpful) and answer.why is Obstacle.LATER


def given_up(group: Group, ledger: Ledger) -> Verdict:
    """Verdict on a group that made no progress; any freed room wakes it up."""
    shapes = dict.fromkeys(
        pod.shape for gang in group.gangs for pod in (*gang.pending, *gang.retry)
    )
    needs = tuple(Need(shape, 0) for shape in shapes if shape in ledger.table.static_fits)
    return Verdict(
        group=group.id,
        generation=group.generation,
        told=findings.too_much_work(group),
        needs=needs,
    )
