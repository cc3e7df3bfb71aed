"""Choose victims by rounds where sums do not suffice: for members of several shapes, or if filters
read other pods (V9).

Invariant: a round permitted the members without the candidate's pods, and would not permit them if
any unit of it stayed. If sums refute a candidate, no round is run. When the plan has no rounds or
too little work left, the next plan continues from the known results (V25); each plan finishes at
least one region, or makes progress in one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from msgspec import structs

from gangsched.core import rounds
from gangsched.core.permit import permitted
from gangsched.core.preemption.columns import RunningColumns
from gangsched.core.preemption.numbers import ints
from gangsched.core.preemption.preemptor import Preemptor
from gangsched.core.preemption.regions import Regions
from gangsched.core.preemption.selection import Region
from gangsched.core.preemption.units import PreemptionCandidate
from gangsched.core.reserve import Ledger
from gangsched.core.work import OutOfWork
from gangsched.model.gang import Placement
from gangsched.model.preemption import NotHelpful, Obstacle

ROUNDS = 24
"""Rounds of one attempt; what is left is for the next plan (V25)."""
LEFT_OVER = 2_000
"""Units of a plan that are left where a choice is put off, for who is held back meanwhile."""
GIVEN_UP = "given up"
"""Among the regions that are passed: one was because to search it takes too many rounds."""
MOST_SPARED = 8
"""Units of a node of which each is spared once where all of them together do not help."""
UNKNOWN = None
"""Instead of whether a round places the members: the next plan finds out."""


@dataclass(eq=False)
class TrialRounds:
    """The rounds of one attempt. Each tests whether the members would be permitted if some running
    pods were gone.
    """

    preemptor: Preemptor
    columns: RunningColumns
    ledger: Ledger
    made: int = 0
    most_expensive: int = 0
    #: Units that are left over already for the hold-backs.
    saved: int = 0

    def placed(self) -> tuple[Placement, ...] | None:
        """Run a round on the ledger as it is, and reserve the places that it finds; None if it does
        not permit the members.
        """
        self.made += 1
        before = self.ledger.work.used
        trial, _ = rounds.run_round(self.preemptor.group, self.preemptor.gangs, self.ledger)
        self.most_expensive = max(self.most_expensive, self.ledger.work.used - before)
        is_permitted = trial.culprit is None and permitted(self.preemptor.gangs, trial.counts)

        return trial.placements if is_permitted else None

    @contextmanager
    def without(self, pods: Sequence[int]) -> Iterator[tuple[Placement, ...] | None]:
        """Inside the context, reserve the places that a round finds once `pods` are gone; None as
        for `placed`.
        """
        running = self.columns.running
        with self.ledger.tentative():
            self.ledger.move([(running[i].pod, running[i].node) for i in pods], -1)
            yield self.placed()

    def places(self, pods: Sequence[int]) -> tuple[Placement, ...] | None:
        """The places that a round finds once `pods` are gone; nothing stays reserved."""
        with self.without(pods) as placed:
            return placed

    @property
    def may_go_on(self) -> bool:
        """Whether the attempt has rounds left."""
        return self.made < ROUNDS

    @property
    def have_work(self) -> bool:
        """Whether the plan has work left for another round, and for the hold-backs that follow from
        its result.
        """
        return self.ledger.work.left + self.saved > LEFT_OVER + 2 * self.most_expensive


@dataclass(frozen=True, slots=True, eq=False)
class Probe:
    """A search at one priority `level`. A plan runs further rounds only while they `may_go_on`;
    once it has made more progress than the last plan, only while they also `have_work` left.
    """

    regions: Regions
    level: int
    rounds: TrialRounds
    name: str
    #: The regions, by name of the search, that the searches for the group have finished; this one
    #: adds to them.
    passed: list[str]
    #: Budgets may be violated.
    breaking: bool = False
    #: More victims may help less, so single nodes are searched, too.
    closely: bool = False
    #: The result of the last plan.
    known: NotHelpful | None = None

    def choose(self) -> PreemptionCandidate | NotHelpful | None:
        """The units to evict. None if none suffice; Obstacle.LATER if rounds run out before the
        choice is minimal.
        """
        for region in self.regions.tried(self.level, closely=self.closely):
            name = f"{self.name} {region.name}"
            if name in self.passed:
                continue

            try:
                with self._saving_work():
                    outcome = self._in_region(region, name)
            except OutOfWork:
                # What was learnt of the regions before is not lost.
                if self._is_further:
                    return self._later()
                raise

            if outcome is not None:
                return outcome

        return None

    @contextmanager
    def _saving_work(self) -> Iterator[None]:
        """Inside the context, leave some work for what follows where the search is put off."""
        work = self.rounds.ledger.work
        self.rounds.saved = LEFT_OVER if self._is_further else 0
        try:
            with work.at_most(work.left - self.rounds.saved):
                yield
        finally:
            self.rounds.saved = 0

    def _in_region(self, region: Region, name: str) -> PreemptionCandidate | NotHelpful | None:
        """The units of one region to evict; None if none suffice."""
        in_order = region.ordered(self.level, by_node=False, breaking=self.breaking)
        if not self.breaking and region.shortest(in_order) is None:
            in_order = region.admissible(self.level)

        ordered = in_order.tolist()
        # Of the region in which the last plan ended, what it had come down to is not searched
        # again.
        taken, tested = self._resumed(ordered)
        is_further = not taken

        if not taken:
            sufficient = self._sufficient(region, ordered, name)
            if isinstance(sufficient, NotHelpful):
                return sufficient

            taken = sufficient

        if not taken:
            self.passed.append(name)
            return None

        candidate = self._give_back(taken, tested, is_further=is_further)
        if isinstance(candidate, NotHelpful):
            return structs.replace(candidate, passed=tuple(self.passed))

        self.passed.append(name)  # unless the candidate helps, the search goes on behind it
        return candidate

    def _sufficient(
        self,
        region: Region,
        ordered: Sequence[int],
        name: str,
    ) -> list[int] | NotHelpful:
        """Units of the region without which a round places the members; none if there are none.
        Obstacle.LATER if this plan does not come to an end of it.
        """
        taken = [] if self._begun(name) else self._exchanged(region, ordered)
        if taken:
            return taken

        length = self._length(region, ordered, name)
        if isinstance(length, NotHelpful):
            return length
        if length is not None:
            return list(ordered[:length])

        if region.is_extra:
            taken = self._all_but_one(region, ordered)
            if taken:
                return taken

        if self._ends(self._is_further):
            if self._is_further:
                return self._later()

            if not region.is_extra:
                self.passed.append(GIVEN_UP)  # it takes more rounds than a plan has

        return []

    def _places(self, units: Sequence[int]) -> tuple[Placement, ...] | None:
        return self.rounds.places(self.regions.units.pods_of(units))

    @property
    def _is_further(self) -> bool:
        """Whether this plan is done with a region that the last one was not."""
        return len(self.passed) > (0 if self.known is None else len(self.known.passed))

    def _ends(self, is_further: bool) -> bool:
        """Whether the plan runs no more rounds, which has come further than the last one or not."""
        return not self.rounds.may_go_on or (is_further and not self.rounds.have_work)

    def _resumed(self, ordered: Sequence[int]) -> tuple[list[int], int]:
        """The units that the last plan had come down to, and how many of them it needs; none if
        that is void now.
        """
        if self.known is None or not self.known.resume or self.known.name or self._is_further:
            return [], 0

        by_name = {self.regions.units.name(unit): unit for unit in ordered}
        units = [by_name[name] for name in self.known.resume if name in by_name]
        # One of them may have ended, or others may have come meanwhile: then the search begins
        # again.
        if len(units) < len(self.known.resume) or self._places(units) is None:
            return [], 0

        return units, self.known.tested

    def _exchanged(self, region: Region, ordered: Sequence[int]) -> list[int]:
        """The units of which totals say that they do less harm than the cheapest ones, if a round
        agrees; otherwise none.
        """
        if self._ends(self._is_further):
            return []

        better = region.exchanged(ints(ordered))
        if better is None or self._places(better.units) is None:
            return []

        return list(better.units)

    def _length(
        self,
        region: Region,
        ordered: Sequence[int],
        name: str,
    ) -> int | NotHelpful | None:
        """How many units, the cheapest first, a round needs at least; from the least that sums
        allow, 1, 2, 4, … on. None if all of them do not suffice, or rounds run out; Obstacle.LATER
        if work does.
        """
        least = region.shortest(ints(ordered))
        if least is None:
            return None

        before = max(least - 1, self._refuted(name, ordered))
        failed = before

        while True:
            # Each length that is tried costs a round: double the step, then bisect what the last
            # step passed over.
            length = min(len(ordered), failed + max(1, failed + 1 - least))
            is_further = self._is_further or failed > before
            if not self.rounds.may_go_on:
                return None

            placed = self._if_work(ordered[:length], is_further=is_further)
            if placed is UNKNOWN:
                return self._later(name, ordered[:failed])
            if placed:
                break
            if length == len(ordered):
                return None

            failed = length

        while length - failed > 1 and self.rounds.may_go_on:
            middle = (failed + length) // 2
            placed = self._if_work(ordered[:middle], is_further=True)
            if placed is UNKNOWN:
                break

            if placed:
                length = middle
            else:
                failed = middle

        return length

    def _all_but_one(self, region: Region, ordered: Sequence[int]) -> list[int]:
        """All units of a node but one, if a round agrees: the cheapest may be what the members must
        run near. None of those that do not suffice together.
        """
        for unit in ordered[:MOST_SPARED]:
            if self._ends(self._is_further):
                break

            less = [other for other in ordered if other != unit]
            if region.shortest(ints(less)) is None:
                continue
            if self._places(less) is not None:
                return less

        return []

    def _begun(self, name: str) -> bool:
        """Whether the last plan ended among the lengths of this search."""
        return self.known is not None and self.known.name == name

    def _refuted(self, name: str, ordered: Sequence[int]) -> int:
        """How many units do not suffice, as the last plan has found."""
        if self.known is None or not self._begun(name):
            return 0

        refuted = self.known.resume
        number = len(refuted)
        names = tuple(self.regions.units.name(unit) for unit in ordered[:number])
        # Others may have come or gone meanwhile: then the search begins again.
        return number if names == refuted else 0

    def _later(self, name: str = "", refuted: Sequence[int] = ()) -> NotHelpful:
        """That the next plan goes on, in a region with more units than these."""
        return NotHelpful(
            why=Obstacle.LATER,
            begun=True,
            name=name,
            resume=tuple(self.regions.units.name(unit) for unit in refuted),
            passed=tuple(self.passed),
        )

    def _if_work(self, units: Sequence[int], *, is_further: bool) -> bool | None:
        """Whether a round places the members once these units are gone; UNKNOWN if the work of this
        plan, which has come further than the last one, does not suffice. Else raises OutOfWork.
        """
        if not is_further:
            return self._places(units) is not None
        if not self.rounds.have_work:
            return UNKNOWN

        work = self.rounds.ledger.work
        try:
            with work.at_most(work.left + self.rounds.saved - LEFT_OVER):
                return self._places(units) is not None
        except OutOfWork:
            return UNKNOWN

    def _give_back(
        self,
        taken: list[int],
        tested: int,
        *,
        is_further: bool,
    ) -> PreemptionCandidate | NotHelpful:
        """Give back what is off the nodes that the members get, then from the most expensive down;
        `tested` are needed.
        """
        before = tested, len(taken)
        if not tested and self.rounds.may_go_on and self.rounds.have_work:
            taken = self._on_their_nodes(taken)

        while tested < len(taken):
            # The units behind are needed, as tests of this plan or of the last one have shown.
            unit = taken[len(taken) - 1 - tested]
            less = [other for other in taken if other != unit]
            if self.regions.have_room(less):
                has_come_on = is_further or before != (tested, len(taken))
                placed = UNKNOWN
                if self.rounds.may_go_on:
                    placed = self._if_work(less, is_further=has_come_on)

                if placed is UNKNOWN:
                    names = tuple(self.regions.units.name(other) for other in taken)
                    return NotHelpful(
                        why=Obstacle.LATER,
                        begun=True,
                        resume=names,
                        tested=tested,
                    )

                if placed:
                    taken = less
                    continue

            tested += 1

        return self.regions.units.candidate(taken)

    def _on_their_nodes(self, taken: list[int]) -> list[int]:
        """`taken` without units that have no pod where the members are placed, if a
        round agrees.
        """
        running = self.regions.units.columns.running
        placed = self._places(taken)
        if placed is None:
            return taken

        nodes = {placement.node for placement in placed}
        less = []

        for unit in taken:
            if any(running[i].node in nodes for i in self.regions.units.pods_of([unit])):
                less.append(unit)

        if len(less) == len(taken) or self._places(less) is None:
            return taken

        return less
