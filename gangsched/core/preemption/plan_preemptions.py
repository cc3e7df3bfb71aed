"""Preemption within a plan: which group preempts, and how the result changes the verdict and the
ledger (V10, V15).

Invariant: a group preempts only after it was refused for room, and at most `per_cycle` groups
preempt per plan. The nominated members then occupy the ledger in addition to their victims, so no
later group uses that room. If preemption does not help, only the verdict's text changes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, inf

import numpy as np

from gangsched.core import findings
from gangsched.core.group_rules import rules_key
from gangsched.core.homes import healed_at_home
from gangsched.core.preemption.alike import MAX_TOGETHER, alike_behind, is_single, shares, together
from gangsched.core.preemption.attempt import Attempt, Found, held
from gangsched.core.preemption.columns import PodTableCache, RunningColumns
from gangsched.core.preemption.holding_back import preempts_soon, wanted
from gangsched.core.preemption.preemptor import Preemptor, preemptor_of, refused_for_room
from gangsched.core.preemption.sums import NeededSums
from gangsched.core.promises import HeldBackNodes
from gangsched.core.queue_sort import group_key
from gangsched.core.reservations.heads import needed, waiting_since_s
from gangsched.core.reserve import Ledger
from gangsched.model.gang import Group, Rank, Refusal
from gangsched.model.plan import RoundOutcome, Verdict
from gangsched.model.preemption import (
    STUCK_S,
    NotHelpful,
    Obstacle,
    Preemption,
    PreemptionInput,
    Running,
    VictimScope,
)
from gangsched.model.snapshot import Ints

PODS_A_UNIT = 4
"""Running pods that are looked at in one unit of the plan's work; rounds are charged
by themselves.
"""
COVERED_A_UNIT = 3
"""Pods under PodDisruptionBudgets that are counted in one unit, once a plan."""
LOOK_UNITS = 150
ATTEMPT_UNITS = 1_500
"""Units for finding out whether a group preempts, and least units of an attempt: about 15 small
ones per plan.
"""
NOMINATION_UNITS = 200
"""Units for each group for which an attempt makes room together with others."""

Decide = Callable[[Group], Verdict]
"""Decides one group on the ledger as it is."""
Behind = Callable[[int], Sequence[Group]]
"""The next groups of the queue, at most so many."""
Part = tuple[Preemptor, Verdict, Found]
"""One group that preempts, what was decided of it before, and its room."""


@dataclass(eq=False)
class PlanPreemptions:
    """The preemptions of one plan; `decide` is the plan's function that decides one group."""

    given: PreemptionInput
    ledger: Ledger
    now_s: float
    decide: Decide
    cache: PodTableCache = field(default_factory=PodTableCache)
    #: Number of nominations.
    made: int = 0
    #: The verdicts of groups that released their holds.
    gave: dict[str, Verdict] = field(default_factory=dict)
    #: The groups that were nominated together with the last group for which `turn` was called.
    alike: Sequence[Group] = ()
    #: Units of work beyond the plan's limit. They are deducted from the work for later groups, so
    #: that the current group need not be refused for taking too much.
    unpaid: int = 0
    #: The lowest priority of what runs and of what waits for a node, infinite if nothing does.
    _lowest: float = field(init=False)
    _lowest_waiting: float = field(init=False)
    _most_together: int = MAX_TOGETHER
    #: Rank of the group that holds others back; only one that ranks before it takes its place.
    _first: Rank | None = None
    #: What runs is asked for by the first group that preempts, since most plans have none.
    _running: Running | None = None
    _columns: RunningColumns | None = None
    #: By kind: the nodes that hold others back, and the least members that were not helped, with
    #: the reason. The second is cleared once a decision may have left more room.
    _wanted: dict[Hashable, tuple[str, ...]] = field(default_factory=dict)
    _in_vain: dict[Hashable, tuple[int, NotHelpful]] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        given: PreemptionInput | None,
        ledger: Ledger,
        now_s: float,
        decide: Decide,
        cache: PodTableCache,
    ) -> PlanPreemptions | None:
        """Set up the preemptions of a plan; None if preemption is off."""
        if given is None or given.settings.scope is VictimScope.OFF:
            return None

        first = given.held_back
        if first is not None:
            ledger.promises.held_back = HeldBackNodes(
                first.group,
                first.right,
                ledger.table.having(first.nodes),
            )

        return cls(given, ledger, now_s, decide, cache, _first=first and first.rank)

    def __post_init__(self) -> None:
        lowest = (self.given.lowest_priority, self.given.lowest_waiting)
        self._lowest, self._lowest_waiting = (inf if each is None else each for each in lowest)

    def turn(
        self,
        group: Group,
        verdict: Verdict,
        holders: Sequence[Group],
        behind: Behind = lambda _: (),
    ) -> dict[str, Verdict]:
        """Let a refused group preempt; return its verdict, and the verdicts of the groups in
        `holders` that release their holds for it.

        The result includes the verdicts of groups `behind` this group that preempt together with
        it.
        """
        self.alike = ()
        self._first = None if self.ledger.promises.end_hold_back(group.id) else self._first

        if not refused_for_room(verdict):
            return {group.id: verdict}

        holders = [
            each for each in holders if each.id != group.id and _priority(each) < group.priority
        ]
        waits = group.id in self.given.nominated or group.id in self.given.overdue

        starting = not any(gang.satisfied for gang in group.gangs)
        # Whether anything of lower priority runs is known without asking what runs (V25).
        if starting and not waits and not holders and self._lowest >= group.priority:
            return {group.id: _in_vain(verdict, self._nothing_lower(group, verdict), group)}

        self.ledger.work.charge(LOOK_UNITS)
        preemptor = preemptor_of(group, verdict, self.ledger.table)
        if preemptor is None:
            return {group.id: verdict}
        if group.id in self.given.nominated:
            return {group.id: _told(verdict, self.given.nominated[group.id], preemptor)}
        overdue = self._overdue(group, preemptor)
        if overdue is not None:
            return self._nominated([(preemptor, verdict, overdue)], overdue)

        holders = [each for each in holders if _priority(each) < preemptor.right]
        found: Found | NotHelpful | None = self._excused(group, preemptor, holders)

        is_alone = found is None and not holders and is_single(group)
        if is_alone and (made := self._with_alike(group, preemptor, verdict, behind)):
            return made

        if found is None:
            preemptor, found = self._attempt_from_home(preemptor, holders)

        if isinstance(found, NotHelpful):
            found = preemptor.with_weakest(found, group.priority)
            return {group.id: _in_vain(verdict, self._held_back(preemptor, found), preemptor.group)}

        if not found.awaited:
            return self._at_once(group, verdict, found)

        return self._nominated([(preemptor, verdict, found)], found)

    @property
    def is_full(self) -> bool:
        """Whether the plan has made as many preemptions as it may."""
        return self.made >= self.given.settings.per_cycle

    def _overdue(self, group: Group, preemptor: Preemptor) -> Found | None:
        """Room once those are gone that overran what let them onto the group's reserved
        room (H11).
        """
        uids = self.given.overdue.get(group.id)
        if not uids or preemptor.never or self.is_full or not self.running.whole:
            return None
        if self.given.retry_at_s.get(group.id, self.now_s) > self.now_s or self._delayed(group):
            return None

        return self._new_attempt(preemptor).take_overdue(uids)

    def _nothing_lower(self, group: Group, verdict: Verdict) -> NotHelpful:
        """That nothing of lower priority runs, of which something may wait to start (V27)."""
        found = NotHelpful(why=Obstacle.NOTHING_LOWER)
        preemptor = (
            preemptor_of(group, verdict, self.ledger.table)
            if self._lowest_waiting < group.priority
            else None
        )
        if preemptor is None or preemptor.never:
            return found

        return self._held_back(preemptor, found)

    def _held_back(self, preemptor: Preemptor, found: NotHelpful) -> NotHelpful:
        """`found`, with the nodes where groups of lower priority are held back, from now on in this
        plan (V27).
        """
        given = self.given
        group = preemptor.group
        rank = group_key(preemptor.group)
        shares_s = (
            given.share_until_s.get((namespace, preemptor.right), inf)
            for namespace in group.namespaces
        )

        is_over = min(given.held_until_s.get(group.id, inf), *shares_s) <= self.now_s
        if is_over or not (
            preempts_soon(group.id, found, given.held_back) and given.settings.hold_back_s
        ):
            return found
        if found.why is Obstacle.NOTHING_LOWER and self._lowest_waiting >= preemptor.right:
            return found

        if not found.wanted:
            found = replace(found, wanted=self._nodes_of(preemptor), right=preemptor.right)

        if found.wanted and (self._first is None or rank < self._first):
            self._first = rank
            nodes = self.ledger.table.having(found.wanted)
            self.ledger.promises.held_back = HeldBackNodes(group.id, preemptor.right, nodes)

        return found

    def _nodes_of(self, preemptor: Preemptor) -> tuple[str, ...]:
        """`wanted`, remembered for those that ask the same."""
        kind = self._kind(preemptor)
        if kind is None:
            return wanted(preemptor, self.ledger)

        key = kind, len(preemptor.pods)
        if key not in self._wanted:
            self._wanted[key] = wanted(preemptor, self.ledger)

        return self._wanted[key]

    def _delayed(self, group: Group) -> NotHelpful | None:
        """Until when the group gives an autoscaler time to bring nodes; None if that is
        over (V28).
        """
        delay_s = group.preemption_delay_s
        until_s = 0
        if delay_s and (lacks := needed(group)):
            until_s = ceil(waiting_since_s(lacks) + delay_s)

        nodes_until_s = self.given.nodes_until_s.get(group.id, 0)
        if nodes_until_s > until_s:
            until_s = nodes_until_s
            delay_s = 0.0

        left_s = until_s - self.given.wall_s

        if left_s > 0:
            return NotHelpful(
                why=Obstacle.DELAYED,
                seconds=left_s,
                amount=until_s,
                delay_s=delay_s,
            )

        return None

    def _excused(
        self,
        group: Group,
        preemptor: Preemptor,
        holders: Sequence[Group],
    ) -> NotHelpful | None:
        """Why nobody looks for victims; None if somebody should."""
        given = self.given
        if preemptor.never:
            return NotHelpful(why=Obstacle.POLICY_NEVER)
        if not holders and self._lowest >= preemptor.right:
            return NotHelpful(why=Obstacle.NOTHING_LOWER)
        if given.forbidden:
            return NotHelpful(why=Obstacle.FORBIDDEN, name=given.forbidden)
        delayed = self._delayed(group)
        if delayed is not None:
            return delayed

        wait_s = given.retry_at_s.get(group.id, self.now_s) - self.now_s
        if wait_s > 0:
            return NotHelpful(why=Obstacle.BACK_OFF, seconds=ceil(wait_s))

        known = given.known.get(group.id)
        if (
            known is not None
            and known.why is not Obstacle.LATER
            and not 0 < known.until_s <= given.wall_s
        ):
            return known
        if self.is_full or not self.running.whole:
            return NotHelpful(why=Obstacle.LATER)

        return None

    def _attempt_from_home(
        self,
        preemptor: Preemptor,
        holders: Sequence[Group],
    ) -> tuple[Preemptor, Found | NotHelpful]:
        """Attempts for a broken group, until one helps: at its home for all that it lost, then for
        one member alone (L4), then both wherever it may be. Any other group has one attempt.
        """
        first, *others = self._from_home(preemptor)
        in_vain = self._attempt(first, holders)
        if isinstance(in_vain, Found):
            return first, in_vain

        for sought in others:
            helped = self._attempt(sought, holders)
            if isinstance(helped, Found):
                return sought, helped

        return first, in_vain

    def _from_home(self, preemptor: Preemptor) -> list[Preemptor]:
        group = preemptor.group
        if not group.broken or group.tree is not None:
            return [preemptor]

        home = healed_at_home(group, self.ledger)
        places = [preemptor] if home is group else [replace(preemptor, group=home), preemptor]

        preemptors: list[Preemptor] = []
        for place in places:
            preemptors.append(place)
            if len(place.pods) > 1:
                preemptors.append(place.first_alone)

        return preemptors

    def _attempt(self, preemptor: Preemptor, holders: Sequence[Group]) -> Found | NotHelpful:
        """One attempt, or what one of the same kind found earlier in this plan: room has only
        become less since.
        """
        kind = self._kind(preemptor)
        needed = len(preemptor.pods)

        least, why = self._in_vain.get(kind, (needed + 1, None)) if kind is not None else (0, None)
        if why is not None and least <= needed:
            if why.why is Obstacle.TOO_LITTLE:
                return replace(why, needed=needed)

            return why

        self.ledger.work.charge(ATTEMPT_UNITS + len(self.columns.running) // PODS_A_UNIT)
        found = self._new_attempt(
            preemptor,
            holders,
            self.given.known.get(preemptor.group.id),
        ).make_room()
        if isinstance(found, NotHelpful) and kind is not None and found.why is not Obstacle.LATER:
            self._in_vain[kind] = (needed, found)

        return found

    def _new_attempt(
        self,
        preemptor: Preemptor,
        holders: Sequence[Group] = (),
        known: NotHelpful | None = None,
    ) -> Attempt:
        return Attempt(preemptor, self.columns, self.ledger, self.given.settings, holders, known)

    def _with_alike(
        self,
        group: Group,
        preemptor: Preemptor,
        verdict: Verdict,
        behind: Behind,
    ) -> dict[str, Verdict] | None:
        """The verdicts on this group and on those like it, for which one attempt makes room; None
        if it tries alone.
        """
        kind = self._kind(preemptor)
        most = min(self._most_together, self.given.settings.per_cycle - self.made)
        if kind is None or most < 2:
            return None

        others = list(self._that_may(kind, verdict, alike_behind(group, behind(most - 1))))
        preemptors = [preemptor, *others]
        joint = together(preemptors)

        sums = NeededSums.of(joint, self.ledger) if others else None
        if sums is None or not sums.exact:
            return None

        units = (
            ATTEMPT_UNITS
            + len(self.columns.running) // PODS_A_UNIT
            + NOMINATION_UNITS * len(preemptors)
        )
        self.ledger.work.charge(units)
        found = self._new_attempt(joint).make_room()

        parts = None
        if isinstance(found, Found):
            parts = shares(found, preemptors)

        if parts is None or not isinstance(found, Found):
            # There may be room for fewer; to try one less each time would take an attempt for each.
            self._most_together //= 4
            return None

        self.alike = tuple(each.group for each in others)
        told = (_as_of(verdict, each) for each in preemptors)
        return self._nominated(list(zip(preemptors, told, parts, strict=True)), found)

    def _that_may(
        self,
        kind: Hashable,
        verdict: Verdict,
        groups: Sequence[Group],
    ) -> Iterator[Preemptor]:
        """The preemptors of these groups up to the first that may not preempt or is of another
        kind.
        """
        for group in groups:
            preemptor = preemptor_of(group, verdict, self.ledger.table)
            if (
                preemptor is None
                or group.id in self.given.nominated
                or group.id in self.given.overdue
            ):
                return
            if self._excused(group, preemptor, ()) is not None or self._kind(preemptor) != kind:
                return

            yield preemptor

    def _kind(self, preemptor: Preemptor) -> Hashable:
        """Equal for preemptors of which the one that needs less is helped if the other is; None for
        one of its own.
        """
        group = preemptor.group
        shapes = list(preemptor.counts)

        bound = any(gang.nodes or gang.held or gang.min_resources for gang in group.gangs)
        if bound or len(shapes) > 1:
            return None

        required = tuple(gang.constraints for gang in group.gangs)
        return shapes[0], preemptor.right, required, rules_key(group, shapes[0], self.ledger)

    @property
    def running(self) -> Running:
        """Running pods, requested once per plan and only when a group preempts."""
        if self._running is None:
            self._running = self.given.running(self.ledger.work.left)
            self.unpaid = self._running.units
            if not self._running.whole:
                # Read into the cache now, so that the plan which knows all need not read
                # everything.
                self.cache.table(self._running)

        return self._running

    @property
    def columns(self) -> RunningColumns:
        """Running pods as columns."""
        if self._columns is None:
            given = self.given
            self.ledger.work.charge(
                sum(len(budget.uids) for budget in self.running.budgets) // COVERED_A_UNIT
            )
            self._columns = RunningColumns.of(
                self.running,
                given.settings,
                given.wall_s,
                self.ledger,
                self.cache,
            )

        return self._columns

    def _at_once(self, group: Group, verdict: Verdict, found: Found) -> dict[str, Verdict]:
        """Only holds were in the way: they are released and the group is decided again, as after
        D1.
        """
        checkpoint = self.ledger.checkpoint()
        for each in found.released:
            self.ledger.move(held(each), -1)

        now = self.decide(group)
        if now.round is None or now.round.outcome is not RoundOutcome.PERMITTED or not now.binds:
            self.ledger.rollback(checkpoint)
            return {group.id: verdict}

        self._in_vain.clear()
        gave = {
            each.id: replace(_gives_up(each, group), yields_to=group.id) for each in found.released
        }
        self.gave |= gave

        return {**gave, group.id: now}

    def _nominated(self, parts: Sequence[Part], found: Found) -> dict[str, Verdict]:
        """The nominated members take their nodes beside the victims, who leave; holds are released
        at once.

        `found` is the room of all `parts` together.
        """
        columns = self.columns
        ledger = self.ledger

        for group in found.released:
            ledger.move(held(group), -1)

        ledger.move(((placement.pod, placement.node) for placement in found.placements), 1)
        leaving = columns.leaving_on(
            {ledger.table.index[placement.node] for placement in found.placements}
        )
        made = dict[str, Verdict]()

        for preemptor, verdict, part in parts:
            preemption, told = self._decision(preemptor.group, part, leaving)
            made[verdict.group] = replace(_told(verdict, told, preemptor), preemption=preemption)

            # The next part waits for these victims, too, if it is on their node.
            for i in part.candidate.pods if part.candidate is not None else ():
                leaving[int(columns.node[i])].append(i)

        ledger.count_on(self._beside(found))
        if found.candidate is not None:
            columns.leave(found.candidate.pods, ledger)

        # What goes may leave more room than is taken, so that another group is helped after all.
        self._in_vain.clear()
        self.made += len(parts)
        first = parts[0][0].group
        gave = {group.id: _gives_up(group, first) for group in found.released}
        self.gave |= gave

        return gave | made

    def _decision(
        self,
        group: Group,
        found: Found,
        leaving_on: Mapping[int, Sequence[int]],
    ) -> tuple[Preemption, Refusal]:
        """The decision for the group and what is told of it; `leaving_on` are by node the pods that
        leave it already.
        """
        columns = self.columns
        wall_s = self.given.wall_s
        max_wait_s = self.given.settings.max_wait_s
        overdue = frozenset[str]().union(*self.given.overdue.values())
        victims = {}
        if found.candidate is not None:
            victims = found.candidate.victims(overdue)

        nodes = (
            sorted({self.ledger.table.index[placement.node] for placement in found.placements})
            if leaving_on
            else ()
        )
        leaving: list[int] = []
        for node in nodes:
            leaving += leaving_on.get(node, ())

        # Whoever may take longer is not waited for: the group may preempt others then (V12).
        grace_s = min(max((columns.running[i].pod.grace_s for i in victims), default=0), max_wait_s)
        ends_s = [
            columns.running[i].pod.deletion_s or wall_s + columns.running[i].pod.grace_s
            for i in leaving
        ]
        deadline_s = (
            max([wall_s + grace_s, *(min(end_s, wall_s + max_wait_s) for end_s in ends_s)])
            + STUCK_S
        )
        going = [*victims, *leaving]
        preemption = Preemption(
            placements=found.placements,
            victims=tuple(sorted(victims.values())),
            awaited=tuple(sorted(columns.running[i].pod.uid for i in leaving)),
            stopped=tuple(found.candidate.stopped) if found.candidate else (),
            harm=found.candidate.harm if found.candidate else None,
            grace_s=grace_s,
            deadline_s=deadline_s,
        )
        ending = ((columns.running[i].pod, columns.running[i].gang) for i in going)
        refusal = findings.nominated(
            (placement.node for placement in found.placements),
            ending,
            group.namespaces,
            until_s=deadline_s,
        )

        return preemption, refusal

    def _beside(self, found: Found) -> Ints:
        """`amounts[r][n]` of the placements' room on each node that is in use by those who leave
        for it (V10).
        """
        columns = self.columns
        ledger = self.ledger
        goes = (
            columns.leaving | columns.mask(found.candidate.pods)
            if found.candidate is not None
            else columns.leaving
        )
        asked = ledger.amounts((placement.pod, placement.node) for placement in found.placements)
        going = np.flatnonzero(goes & columns.on_node)

        # Room that others count on already is not counted on twice, so this starts below zero.
        there = -ledger.in_use()
        for row, requests in enumerate(columns.requests(list(ledger.resources), going)):
            np.add.at(there[row], columns.node[going], requests)

        beside: Ints = np.minimum(asked, np.maximum(there, 0))
        return beside


def _priority(holder: Group) -> int:
    """The highest of its members."""
    return max([holder.priority, *(pod.priority for pod, _ in held(holder))])


def _gives_up(holder: Group, beneficiary: Group) -> Verdict:
    """The verdict of a group of lower priority that gives up its holds (V6)."""
    releases = tuple(pod.uid for pod, _ in held(holder))
    told = findings.yielded(holder, beneficiary.id)
    return Verdict(group=holder.id, generation=holder.generation, told=told, releases=releases)


def _told(verdict: Verdict, told: Refusal, preemptor: Preemptor) -> Verdict:
    """The verdict with this told of the group, and of the needed members that were told something
    of their own.
    """
    needed = {pod.uid for pod in preemptor.pods}
    return replace(
        verdict,
        told=told,
        notes=tuple((uid, told if uid in needed else note) for uid, note in verdict.notes),
    )


def _as_of(verdict: Verdict, preemptor: Preemptor) -> Verdict:
    """The refusal of a single pod as that of another one which asks the same."""
    group = preemptor.group
    notes = tuple((pod.uid, note) for pod in preemptor.pods for _, note in verdict.notes)
    had = verdict.round
    own = None
    if had is not None:
        own = replace(had, number=group.rounds + 1)

    return replace(verdict, group=group.id, generation=group.generation, round=own, notes=notes)


def not_done(group: Group, verdict: Verdict, why: Obstacle) -> Verdict:
    """The refusal of a group whose preemption takes more work than is left, or than any
    plan has.
    """
    needed = sum(len(gang.pending) + len(gang.retry) for gang in group.gangs)
    return _in_vain(verdict, NotHelpful(why=why, needed=needed), group)


def _in_vain(verdict: Verdict, why: NotHelpful, group: Group) -> Verdict:
    """The verdict, which says why preemption does not help the pending members of `group`."""
    notes = verdict.notes
    if notes:
        needed = set()
        for gang in group.gangs:
            for pod in (*gang.pending, *gang.retry):
                needed.add(pod.uid)

        # Thousands of members share one note, by identity: its sentence is made once.
        shared = {id(note): note for _, note in notes}
        told = {}
        for each, note in shared.items():
            told[each] = findings.with_obstacle(note, why)

        notes = tuple((uid, told[id(note)] if uid in needed else note) for uid, note in notes)

    return replace(
        verdict,
        told=findings.with_obstacle(verdict.told, why),
        notes=notes,
        preemption=why,
    )
