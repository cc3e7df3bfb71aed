"""One attempt to preempt for one group. In this order, it waits for terminating pods, releases
holds, or evicts the cheapest victims (V3-V9).

Invariant: victims are chosen only if, on the plan's ledger, every gang of the group then reaches
Permit. The attempt leaves the ledger exactly as it was, whatever its result.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, field, replace

import numpy as np
from msgspec import structs

from gangsched.core.preemption import blocked
from gangsched.core.preemption.by_rounds import GIVEN_UP, LEFT_OVER, Probe, TrialRounds
from gangsched.core.preemption.columns import RunningColumns
from gangsched.core.preemption.preemptor import Preemptor
from gangsched.core.preemption.regions import Regions
from gangsched.core.preemption.sums import NeededSums
from gangsched.core.preemption.units import PreemptionCandidate, Units
from gangsched.core.reserve import Ledger
from gangsched.core.work import OutOfWork
from gangsched.model.gang import Group, Placement
from gangsched.model.objects import Pod
from gangsched.model.preemption import BudgetRule, NotHelpful, Obstacle, PreemptionSettings

BY_CHOICE = frozenset({Obstacle.TOO_MANY, Obstacle.BUDGET})
"""Obstacles of the victims that were chosen: there was room, and other victims may be possible."""
TOO_MANY = "too many"
"""Before the number of pods of a candidate, where those that a search passed are named."""
NAMES_A_UNIT = 8
"""Running pods whose names are looked up in one unit."""
LEVELS = 4
"""Priorities that are tried one after the other where sums promised room and a round found none;
then the highest.
"""


@dataclass(frozen=True, slots=True)
class Found:
    """Room for the needed members: their nodes, the victims, and the groups that must release their
    holds.

    `awaited`: terminating pods must be gone before the members can be bound.
    """

    placements: tuple[Placement, ...]
    candidate: PreemptionCandidate | None = None
    released: tuple[Group, ...] = ()
    awaited: bool = False


@dataclass(eq=False)
class Attempt:
    """One attempt to make room for one preemptor on the plan's ledger."""

    preemptor: Preemptor
    columns: RunningColumns
    ledger: Ledger
    settings: PreemptionSettings
    #: Lower-priority groups whose holds may be released.
    holders: Sequence[Group]
    #: The result of the last plan if it was LATER, so that this one goes on; other results are the
    #: caller's to return.
    known: NotHelpful | None = None
    #: Whether victims may be chosen by rounds, which take most of a plan.
    in_turn: bool = True
    rounds: TrialRounds = field(init=False)
    #: Regions that the searches of this plan and of the last ones have finished, by name of the
    #: search.
    passed: list[str] = field(init=False)
    #: Part of the names of searches, whose results differ by it.
    _takes_slow: bool = False

    def __post_init__(self) -> None:
        self.rounds = TrialRounds(self.preemptor, self.columns, self.ledger)
        self.passed = []
        if self.known is not None and self.known.why is not Obstacle.LATER:
            self.known = None

        if self.known is not None:
            self.passed = list(self.known.passed)

    def make_room(self) -> Found | NotHelpful:
        """Look for room in the order of preemption cost."""
        ledger = self.ledger
        with ledger.tentative():
            sums = NeededSums.of(self.preemptor, ledger)
            if sums is None:
                return NotHelpful(why=Obstacle.TOO_LITTLE, needed=len(self.preemptor.pods))

            # Holds harm nobody who runs, so they are released before anybody is evicted.
            for group in self.holders:
                ledger.move(held(group), -1)

            if self.holders:
                placed = self._placed(sums)
                if placed is not None:
                    return Found(placed, released=self._in_the_way(placed))

            gone = self.columns.gone(ledger)
            if gone.pods:
                ledger.leave_for_promises()
                ledger.release_many(gone.pods, gone.nodes, gone.amounts, claiming=gone.claiming)

                placed = self._placed(sums)
                if placed is not None:
                    released = self._in_the_way(placed)
                    return Found(placed, released=released, awaited=True)

            return self._take(sums)

    def take_overdue(self, uids: Set[str]) -> Found | None:
        """Room after evicting as few as possible of these groups, each as a whole; None if evicting
        all of them does not suffice (H11).
        """
        columns = self.columns
        overdue = np.fromiter((pod.pod.uid in uids for pod in columns.running), dtype=np.bool_)

        # They may be of the preemptor's own priority.
        preemptor = replace(self.preemptor, right=self.preemptor.right + 1)
        units = Units.of(preemptor, columns, overdue)
        singles = np.flatnonzero(units.single & columns.plain)
        cores = units.cores.among(overdue) + units.first_core

        left = singles.tolist() + cores.tolist()
        if not left or self.rounds.places(units.pods_of(left)) is None:
            return None

        # Greedily, a round for each group.
        for unit in list(left):
            fewer = [other for other in left if other != unit]
            if not fewer or not self.rounds.may_go_on:
                continue

            if self.rounds.places(units.pods_of(fewer)) is not None:
                left = fewer

        candidate = units.candidate(left)
        if candidate.harm.budgets_broken:
            return None

        confirmed = self._confirmed(candidate)
        return confirmed if isinstance(confirmed, Found) else None

    def _take(self, sums: NeededSums) -> Found | NotHelpful:
        """Choose victims; those that may take longer to end than the settings allow only where no
        others help.
        """
        columns = self.columns
        allowed = ~columns.young & ~columns.foreign
        regions = Regions.of(self.preemptor, sums, columns, self.ledger, allowed & ~columns.slow)

        if (columns.slow & allowed).any():
            result = self._take_among(regions)
            if isinstance(result, Found) or result.why is Obstacle.LATER:
                return result

            regions = regions.among(allowed)

        self._takes_slow = True
        result = self._take_among(regions)
        if isinstance(result, Found) or result.why not in BY_CHOICE:
            return result

        is_lower = columns.priority < self.preemptor.right
        young = columns.young & ~columns.foreign & ~columns.spared & is_lower
        if not young.any():
            return result

        # Once another pod may be evicted, another choice is possible.
        first_start_s = int(columns.start[young].min())
        return structs.replace(result, until_s=first_start_s + self.settings.min_run_s)

    def _take_among(self, regions: Regions) -> Found | NotHelpful:
        """Choose victims among the units of these regions."""
        levels = regions.levels()
        if not levels:
            return obstacle(regions, self.settings)

        number = regions.least_victims
        if number > self.settings.max_pods:
            return NotHelpful(why=Obstacle.TOO_MANY, pods=number, needed=self.settings.max_pods)

        # The lowest first (V8), and the highest in any case, at which the most pods may go.
        tried = levels
        if len(levels) > LEVELS:
            tried = [*levels[:LEVELS], levels[-1]]

        may_break = [False]
        if self.settings.budgets is BudgetRule.LAST_RESORT:
            may_break.append(True)

        for breaking in may_break:
            for level in tried:
                result = self._take_at(level, regions, breaking=breaking)
                if result is not None:
                    return result

        number = self._fewest_passed_over()
        if number:
            return NotHelpful(why=Obstacle.TOO_MANY, pods=number, needed=self.settings.max_pods)
        if GIVEN_UP in self.passed:
            return NotHelpful(why=Obstacle.TOO_MUCH_WORK, needed=len(self.preemptor.pods))

        return self._blocked(regions, tried)

    def _take_at(
        self,
        level: int,
        regions: Regions,
        *,
        breaking: bool,
    ) -> Found | NotHelpful | None:
        """Choose victims up to one priority: by sums if they say anything, then by rounds."""
        sums = regions.everywhere.sums
        if sums.exact or sums.slices:
            result = self._by_sums(level, regions, breaking=breaking)
            if result is not None or sums.exact:
                return result

        return self._by_rounds(level, regions, breaking=breaking)

    def _blocked(self, regions: Regions, tried: Sequence[int]) -> NotHelpful:
        """The budget that the cheapest victims break most; without one, other obstacles."""
        for level in tried:
            chosen = regions.candidates(level, breaking=True)
            if chosen:
                break
        else:
            return obstacle(regions, self.settings)

        broken = self.columns.budgets.most_broken(chosen[0].pods)
        if broken is None:
            return obstacle(regions, self.settings)

        highest = tried[-1]
        others = 0
        if not blocked.is_blocked(regions, highest):
            others = int(np.count_nonzero(regions.units.could_go(highest)))

        key, left, asked = broken
        # names of other namespaces are told to nobody
        name = key if self.preemptor.group.is_of(key) else ""
        return NotHelpful(
            why=Obstacle.BUDGET,
            pods=others,
            name=name,
            allowed=max(0, left),
            needed=asked,
        )

    def _by_sums(
        self,
        level: int,
        regions: Regions,
        *,
        breaking: bool,
    ) -> Found | NotHelpful | None:
        """The first candidate of this level by sums that a round confirms, of two if sums are
        exact.

        Slices may take more work than is left after choosing: the next plan then begins with the
        candidate.
        """
        name = f"{self._takes_slow} {level} {breaking} by sums"
        sums = regions.everywhere.sums
        work = self.ledger.work

        if self.known is not None and self.known.name == name:
            before = self._chosen_before(self.known, regions.units)
            confirmed = self._confirmed(before)
            if confirmed is not None:
                return confirmed

        most = 2 if sums.exact else 1
        candidates = regions.candidates(level, breaking=breaking)
        # The cheapest one may be of more pods than may go, and another one of fewer.
        few_enough = list(filter(self._is_few_enough, candidates))
        for candidate in (few_enough or candidates)[:most]:
            # Some work is left over for a plan that is put off to say who is held back meanwhile.
            try:
                with work.at_most(work.left - LEFT_OVER):
                    confirmed = self._confirmed(candidate)
            except OutOfWork:
                if not sums.slices:
                    raise

                names = [regions.units.name(unit) for unit in candidate.units]
                return NotHelpful(
                    why=Obstacle.LATER,
                    begun=True,
                    name=name,
                    resume=tuple(names),
                    passed=tuple(self.passed),
                )

            if confirmed is not None:
                return confirmed

        return None

    def _chosen_before(self, known: NotHelpful, units: Units) -> PreemptionCandidate:
        """The candidate of the last plan, without units that may not be evicted any more."""
        columns = self.columns
        names = set(known.resume)
        self.ledger.work.charge(len(columns.running) // NAMES_A_UNIT)

        chosen = []
        for pod in np.flatnonzero(units.single).tolist():
            if columns.running[pod].pod.uid in names:
                chosen.append(pod)

        cores = np.flatnonzero(units.cores.open) + units.first_core
        for core in cores.tolist():
            if units.name(core) in names:
                chosen.append(core)

        return units.candidate(chosen)

    def _by_rounds(
        self,
        level: int,
        regions: Regions,
        *,
        breaking: bool,
    ) -> Found | NotHelpful | None:
        """The candidate of this level that rounds come down to; one made without budgets counts if
        it breaks none.
        """
        if not self.in_turn:
            has_begun = self.known is not None and self.known.begun
            return self.known if has_begun else NotHelpful(why=Obstacle.LATER, begun=True)

        # Members may be allowed on a node by pods that run elsewhere (required affinity, spread).
        closely = False
        for pod in self.preemptor.pods:
            terms = pod.shape.inter_pod
            if terms is not None and (terms.affinity or terms.spread):
                closely = True

        ways = [breaking]
        if self.columns.budgets.covering and not breaking:
            ways = [False, True]

        for anyway in ways:
            name = f"{self._takes_slow} {level} {breaking} {anyway}"
            probe = Probe(
                regions,
                level,
                self.rounds,
                name,
                self.passed,
                breaking=anyway,
                closely=closely,
                known=self.known,
            )

            candidate = probe.choose()
            while isinstance(candidate, PreemptionCandidate):
                if candidate.harm.budgets_broken and not breaking:
                    break
                if self._is_few_enough(candidate):
                    return self._confirmed(candidate)

                # Another region may do with fewer; the search of the next plan knows it, too.
                self.passed.append(f"{TOO_MANY} {candidate.harm.victims}")
                candidate = probe.choose()

            if isinstance(candidate, NotHelpful):
                return candidate

        return None

    def _confirmed(self, candidate: PreemptionCandidate) -> Found | NotHelpful | None:
        """The candidate with the places that a round finds once its pods are gone."""
        if not self._is_few_enough(candidate):
            return NotHelpful(
                why=Obstacle.TOO_MANY,
                pods=candidate.harm.victims,
                needed=self.settings.max_pods,
            )

        with self.rounds.without(candidate.pods) as placed:
            if placed is None:
                return None

            released = self._in_the_way(placed) if self.holders else ()
            return Found(placed, candidate, released, awaited=True)

    def _is_few_enough(self, candidate: PreemptionCandidate) -> bool:
        return candidate.harm.victims <= self.settings.max_pods

    def _fewest_passed_over(self) -> int:
        """The fewest pods of a candidate that was passed over; 0 if none was."""
        numbers = []
        for name in self.passed:
            what, _, number = name.rpartition(" ")
            if what == TOO_MANY:
                numbers.append(int(number))

        return min(numbers, default=0)

    def _placed(self, sums: NeededSums) -> tuple[Placement, ...] | None:
        """Places on the ledger as it is, reserved; None if there are none."""
        if sums.enough(sums.free(self.ledger)):
            return self.rounds.placed()

        return None

    def _in_the_way(self, placed: Sequence[Placement]) -> tuple[Group, ...]:
        """The groups whose holds are in the way of `placed`, which is reserved; the first in rank
        keep theirs first.
        """
        needed: list[Group] = []
        own = [(placement.pod, placement.node) for placement in placed]
        for group in self.holders:
            holds = held(group)
            self.ledger.move(holds, 1)

            both = holds + own
            if not all(self.ledger.fits_still(pod, node) for pod, node in both):
                self.ledger.move(holds, -1)
                needed.append(group)

        return tuple(needed)


def held(group: Group) -> list[tuple[Pod, str]]:
    """The group's unbound pods that may give up their room, each with its node."""
    return [(placement.pod, placement.node) for placement in group.yieldable]


BISECTIONS = 4
"""Looks for the moment at which young pods are old enough; what is found is never too late, and
seldom too early.
"""


def obstacle(regions: Regions, settings: PreemptionSettings) -> NotHelpful:
    """The obstacle to preemption: young pods, otherwise pods of other schedulers, otherwise too
    little room.
    """
    columns = regions.columns
    sums = regions.everywhere.sums
    any_young = (columns.young & ~columns.foreign & ~columns.spared).any()

    if any_young and regions.among(~columns.foreign).levels():
        return _young(regions, settings)
    if columns.foreign.any() and regions.among(np.ones_like(columns.foreign)).levels():
        return _foreign(regions)

    lower = regions.among(~columns.young & ~columns.foreign)
    could_go = lower.units.could_go(regions.preemptor.right - 1) & columns.inside(sums.mask)
    if not could_go.any():
        return NotHelpful(why=Obstacle.NOTHING_LOWER)

    needed = len(regions.preemptor.pods)
    without = lower.everywhere.without(could_go)
    room = int(lower.domains.room(without).max(initial=0))

    return NotHelpful(
        why=Obstacle.TOO_LITTLE,
        pods=int(np.count_nonzero(could_go)),
        room=min(room, needed),
        needed=needed,
    )


def _young(regions: Regions, settings: PreemptionSettings) -> NotHelpful:
    """Counts gangs once, and plain pods; finds out when enough of them have run for long enough, by
    bisection.
    """
    columns = regions.columns
    young = columns.young & ~columns.spared
    there = young & columns.inside(regions.everywhere.sums.mask)
    gangs = np.unique(columns.gang[there & columns.in_gang])
    plain_pods = int(np.count_nonzero(there & columns.plain))

    starts = np.unique(columns.start[young & ~columns.foreign])
    low = 0
    high = len(starts) - 1  # that all but the last may go is not known to be enough

    for _ in range(BISECTIONS):
        if low == high:
            break

        middle = (low + high) // 2
        old_enough = columns.start <= starts[middle]
        if regions.among(old_enough & ~columns.foreign).levels():
            high = middle
        else:
            low = middle + 1

    until_s = 0
    if len(starts):
        until_s = int(starts[low]) + settings.min_run_s

    return NotHelpful(
        why=Obstacle.TOO_YOUNG,
        pods=gangs.size + plain_pods,
        seconds=settings.min_run_s,
        until_s=until_s,
    )


def _foreign(regions: Regions) -> NotHelpful:
    """How much of what the members need most of is in use by pods of other schedulers."""
    columns = regions.columns
    sums = regions.everywhere.sums
    ask = sums.asks[0]

    lower = (columns.priority < regions.preemptor.right) & ~columns.spared
    theirs = np.flatnonzero(columns.foreign & lower & columns.inside(sums.mask))
    amounts = columns.requests(sums.names, theirs).sum(axis=1).tolist()

    used = []
    for row, name in enumerate(sums.names):
        if ask.amounts[row]:
            # An accelerator first.
            is_accelerator = bool(ask.accelerated and "/" in name)
            members = amounts[row] // max(1, ask.amounts[row])
            used.append((is_accelerator, members, name))

    _, _, name = max(used)
    amount = amounts[sums.names.index(name)]
    return NotHelpful(why=Obstacle.OTHER_SCHEDULERS, amount=amount, name=name)
