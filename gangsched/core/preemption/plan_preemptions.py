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
from msgspec import structs

from gangsched.core import findings
from gangsched.core.group_rules import rules_key
from gangsched.core.homes import healed_at_home
from gangsched.core.placement_attempt import PlacementAttempt
from gangsched.core.post_filter import awaits_devices
from gangsched.core.preemption.alike import MAX_TOGETHER, alike_behind, is_single, shares, together
from gangsched.core.preemption.attempt import Attempt, Found, held
from gangsched.core.preemption.columns import PodTableCache, RunningColumns
from gangsched.core.preemption.holding_back import preempts_soon, wanted
from gangsched.core.preemption.preemptor import Preemptor, preemptor_of, refused_for_room
from gangsched.core.preemption.sums import NeededSums
from gangsched.core.preemption.verdicts import as_of, gives_up, in_vain, with_refusal
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
ATTEMPT_UNITS = 1_000
"""Units for finding out whether a group preempts, and least units of an attempt, besides those of
choosing victims (`selection`).
"""
AFTER_ONE_IN_VAIN = 1_000
"""Further units of an attempt after one of the same plan that found nobody: those look longest, for
half as long again as they charge. The first may use all of a plan's work.
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

    preempting: PreemptionInput
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
    #: Whether the last attempt for one group found nobody.
    _was_in_vain: bool = False

    @classmethod
    def of(
        cls,
        preempting: PreemptionInput | None,
        ledger: Ledger,
        now_s: float,
        decide: Decide,
        cache: PodTableCache,
    ) -> PlanPreemptions | None:
        """Set up the preemptions of a plan; None if preemption is off."""
        if preempting is None or preempting.settings.scope is VictimScope.OFF:
            return None

        first = preempting.held_back
        if first is not None:
            ledger.promises.held_back = HeldBackNodes(
                first.group,
                first.right,
                ledger.table.having(first.nodes),
            )

        return cls(preempting, ledger, now_s, decide, cache, _first=first and first.rank)

    def __post_init__(self) -> None:
        preempting = self.preempting
        self._lowest = inf if preempting.lowest_priority is None else preempting.lowest_priority
        self._lowest_waiting = (
            inf if preempting.lowest_waiting is None else preempting.lowest_waiting
        )

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
        if self.ledger.promises.end_hold_back(group.id):
            self._first = None

        if not refused_for_room(verdict):
            return {group.id: verdict}

        preempting = self.preempting
        holders = [holder for holder in holders if holder.id != group.id]
        holders = _below(group.priority, holders)
        waits = group.id in preempting.nominated or group.id in preempting.overdue
        starting = not any(gang.satisfied for gang in group.gangs)
        # Whether anything of lower priority runs is known without asking what runs (V25).
        if starting and not waits and not holders and self._lowest >= group.priority:
            nothing_lower = self._nothing_lower(group, verdict)
            return {group.id: in_vain(verdict, nothing_lower, group)}

        self.ledger.work.charge(LOOK_UNITS)
        preemptor = preemptor_of(group, verdict, self.ledger.table)
        if preemptor is None:
            return {group.id: verdict}
        if group.id in preempting.nominated:
            refusal = preempting.nominated[group.id]
            return {group.id: with_refusal(verdict, refusal, preemptor)}

        overdue = self._overdue(group, preemptor)
        if overdue is not None:
            return self._nominated([(preemptor, verdict, overdue)], overdue)

        holders = _below(preemptor.right, holders)
        result: Found | NotHelpful | None = self._excused(group, preemptor, holders)
        if result is None and not holders and is_single(group):
            together_with_others = self._with_alike(group, preemptor, verdict, behind)
            if together_with_others:
                return together_with_others

        if result is None:
            preemptor, result = self._attempt_from_home(preemptor, holders)

        if isinstance(result, NotHelpful):
            why = preemptor.with_weakest(result, group.priority)
            why = self._held_back(preemptor, why)
            return {group.id: in_vain(verdict, why, preemptor.group)}

        if not result.awaited:
            return self._at_once(group, verdict, result)

        return self._nominated([(preemptor, verdict, result)], result)

    @property
    def is_full(self) -> bool:
        """Whether the plan has made as many preemptions as it may."""
        return self.made >= self.preempting.settings.per_cycle

    def _overdue(self, group: Group, preemptor: Preemptor) -> Found | None:
        """Room once those are gone that overran what let them onto the group's reserved
        room (H11).
        """
        uids = self.preempting.overdue.get(group.id)
        if not uids or preemptor.never or self.is_full or not self.running.whole:
            return None

        retry_at_s = self.preempting.retry_at_s.get(group.id, self.now_s)
        if retry_at_s > self.now_s or self._delayed(group):
            return None

        return self._new_attempt(preemptor).take_overdue(uids)

    def _nothing_lower(self, group: Group, verdict: Verdict) -> NotHelpful:
        """That nothing of lower priority runs, of which something may wait to start (V27)."""
        why = NotHelpful(why=Obstacle.NOTHING_LOWER)
        if self._lowest_waiting >= group.priority:
            return why

        preemptor = preemptor_of(group, verdict, self.ledger.table)
        if preemptor is None or preemptor.never:
            return why

        return self._held_back(preemptor, why)

    def _held_back(self, preemptor: Preemptor, why: NotHelpful) -> NotHelpful:
        """`why`, with the nodes where groups of lower priority are held back, from now on in this
        plan (V27).
        """
        preempting = self.preempting
        group = preemptor.group
        if self._hold_back_ends_s(preemptor) <= self.now_s or not preempting.settings.hold_back_s:
            return why
        if not preempts_soon(group.id, why, preempting.held_back):
            return why
        if why.why is Obstacle.NOTHING_LOWER and self._lowest_waiting >= preemptor.right:
            return why

        if not why.wanted:
            why = structs.replace(why, wanted=self._nodes_of(preemptor), right=preemptor.right)

        rank = group_key(group)
        if why.wanted and (self._first is None or rank < self._first):
            self._first = rank
            nodes = self.ledger.table.having(why.wanted)
            self.ledger.promises.held_back = HeldBackNodes(group.id, preemptor.right, nodes)

        return why

    def _hold_back_ends_s(self, preemptor: Preemptor) -> float:
        """When the group may hold nobody back any more, by itself or for the share of its
        namespaces.
        """
        preempting = self.preempting
        group = preemptor.group
        until_s = preempting.held_until_s.get(group.id, inf)
        for namespace in group.namespaces:
            share_until_s = preempting.share_until_s.get((namespace, preemptor.right), inf)
            until_s = min(until_s, share_until_s)

        return until_s

    def _nodes_of(self, preemptor: Preemptor) -> tuple[str, ...]:
        """`wanted`, remembered for those that ask the same."""
        kind = self._kind(preemptor)
        if kind is None:
            return wanted(preemptor, self.ledger)

        key = (kind, len(preemptor.pods))
        if key not in self._wanted:
            self._wanted[key] = wanted(preemptor, self.ledger)

        return self._wanted[key]

    def _delayed(self, group: Group) -> NotHelpful | None:
        """Until when the group gives an autoscaler time to bring nodes; None if that is
        over (V28).
        """
        delay_s = group.preemption_delay_s
        until_s = 0
        lacks = needed(group) if delay_s else ()
        if lacks:
            until_s = ceil(waiting_since_s(lacks) + delay_s)

        nodes_until_s = self.preempting.nodes_until_s.get(group.id, 0)
        if nodes_until_s > until_s:
            until_s = nodes_until_s
            delay_s = 0.0

        left_s = until_s - self.preempting.wall_s
        if left_s <= 0:
            return None

        return NotHelpful(
            why=Obstacle.DELAYED,
            seconds=left_s,
            amount=until_s,
            delay_s=delay_s,
        )

    def _excused(
        self,
        group: Group,
        preemptor: Preemptor,
        holders: Sequence[Group],
    ) -> NotHelpful | None:
        """Why nobody looks for victims; None if somebody should."""
        preempting = self.preempting
        if preemptor.never:
            return NotHelpful(why=Obstacle.POLICY_NEVER)
        if not holders and self._lowest >= preemptor.right:
            return NotHelpful(why=Obstacle.NOTHING_LOWER)
        if preempting.forbidden:
            return NotHelpful(why=Obstacle.FORBIDDEN, name=preempting.forbidden)
        delayed = self._delayed(group)
        if delayed is not None:
            return delayed

        wait_s = preempting.retry_at_s.get(group.id, self.now_s) - self.now_s
        if wait_s > 0:
            return NotHelpful(why=Obstacle.BACK_OFF, seconds=ceil(wait_s))

        known = preempting.known.get(group.id)
        if known is not None and known.why is not Obstacle.LATER:
            is_over = 0 < known.until_s <= preempting.wall_s
            if not is_over:
                return known

        if group.id in preempting.postponed or self.is_full or not self.running.whole:
            return self.later(group.id)

        return None

    def later(self, group_id: str, *, begun: bool = False) -> NotHelpful:
        """That a later plan looks for victims; what earlier ones have found is not lost."""
        known = self.preempting.known.get(group_id)
        if known is not None and known.why is Obstacle.LATER and known.begun >= begun:
            return known

        return NotHelpful(why=Obstacle.LATER, begun=begun)

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
        if not group.broken:
            return [preemptor]

        places = [preemptor]
        home = healed_at_home(group, self.ledger)
        if home is not group:
            places.insert(0, replace(preemptor, group=home))

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
        if kind is not None and kind in self._in_vain:
            least, why = self._in_vain[kind]
            if least <= needed:
                is_too_little = why.why is Obstacle.TOO_LITTLE
                return structs.replace(why, needed=needed) if is_too_little else why

        self._charge_attempt()
        known = self.preempting.known.get(preemptor.group.id)
        result = self._new_attempt(preemptor, holders, known).make_room()
        self._was_in_vain = not isinstance(result, Found)
        if isinstance(result, NotHelpful) and kind is not None and result.why is not Obstacle.LATER:
            self._in_vain[kind] = (needed, result)

        return result

    def _charge_attempt(self, more: int = 0) -> None:
        """Charge an attempt, and `more` for what is peculiar to it. Raises OutOfWork."""
        running = len(self.columns.running)
        units = ATTEMPT_UNITS + running // PODS_A_UNIT + more
        if self._was_in_vain:
            units += AFTER_ONE_IN_VAIN

        self.ledger.work.charge(units)

    def _new_attempt(
        self,
        preemptor: Preemptor,
        holders: Sequence[Group] = (),
        known: NotHelpful | None = None,
    ) -> Attempt:
        return Attempt(
            preemptor,
            self.columns,
            self.ledger,
            self.preempting.settings,
            holders,
            known,
            in_turn=self.preempting.searching in {None, preemptor.group.id},
        )

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
        most = min(self._most_together, self.preempting.settings.per_cycle - self.made)
        if kind is None or most < 2:
            return None

        alike = alike_behind(group, behind(most - 1))
        others = list(self._that_may(kind, verdict, alike))
        if not others:
            return None

        preemptors = [preemptor, *others]
        joint = together(preemptors)
        sums = NeededSums.of(joint, self.ledger)
        if sums is None or not sums.exact:
            return None

        self._charge_attempt(NOMINATION_UNITS * len(preemptors))
        result = self._new_attempt(joint).make_room()
        parts = shares(result, preemptors) if isinstance(result, Found) else None
        if parts is None or not isinstance(result, Found):
            # There may be room for fewer; to try one less each time would take an attempt for each.
            self._most_together //= 4
            return None

        self.alike = tuple(other.group for other in others)
        nominated: list[Part] = []
        for one_preemptor, room in zip(preemptors, parts, strict=True):
            refusal = as_of(verdict, one_preemptor)
            nominated.append((one_preemptor, refusal, room))

        return self._nominated(nominated, result)

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
            waits = group.id in self.preempting.nominated or group.id in self.preempting.overdue
            if preemptor is None or waits:
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
        # Its claims keep it from nodes where another of its shape fits.
        bound = bound or any(pod.claims for pod in preemptor.pods)
        if bound or len(shapes) > 1:
            return None

        (shape,) = shapes
        required = tuple(gang.constraints for gang in group.gangs)
        rules = rules_key(shape, PlacementAttempt(group, self.ledger))
        return shape, preemptor.right, required, rules

    @property
    def running(self) -> Running:
        """Running pods, requested once per plan and only when a group preempts."""
        if self._running is None:
            self._running = self.preempting.running(self.ledger.work.left)
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
            preempting = self.preempting
            covered = sum(len(budget.uids) for budget in self.running.budgets)
            self.ledger.work.charge(covered // COVERED_A_UNIT)
            self._columns = RunningColumns.of(
                self.running,
                preempting.settings,
                preempting.wall_s,
                self.ledger,
                self.cache,
            )

        return self._columns

    def _at_once(
        self,
        group: Group,
        verdict: Verdict,
        room: Found,
    ) -> dict[str, Verdict]:
        """Only holds were in the way: they are released and the group is decided again, as after
        D1.
        """
        checkpoint = self.ledger.checkpoint()
        for holder in room.released:
            self.ledger.move(held(holder), -1)

        without_holds = self.ledger.checkpoint()
        decided = self.decide(group)
        is_permitted = decided.round is not None and decided.round.outcome is RoundOutcome.PERMITTED
        if not is_permitted or not decided.binds:
            self.ledger.rollback(checkpoint)
            return {group.id: verdict}

        self._in_vain.clear()
        released = {}
        for holder in room.released:
            released[holder.id] = structs.replace(gives_up(holder, group), yields_to=group.id)

        self.gave |= released
        if awaits_devices(decided, room.released, self.ledger):
            # The plan may decide it again: what it has now would count twice.
            self.ledger.rollback(without_holds)
            decided = verdict

        self._keep_devices(room.released)
        return {**released, group.id: decided}

    def _nominated(self, parts: Sequence[Part], room: Found) -> dict[str, Verdict]:
        """The nominated members take their nodes beside the victims, who leave; holds are released
        at once.

        `room` is that of all `parts` together.
        """
        columns = self.columns
        ledger = self.ledger
        for holder in room.released:
            ledger.move(held(holder), -1)

        placed = [(placement.pod, placement.node) for placement in room.placements]
        ledger.move(placed, 1)
        leaving = columns.leaving_on({ledger.table.index[node] for _, node in placed})
        nominated: dict[str, Verdict] = {}

        for preemptor, verdict, part in parts:
            preemption, refusal = self._decision(preemptor.group, part, leaving)
            nominating = with_refusal(verdict, refusal, preemptor)
            nominated[verdict.group] = structs.replace(nominating, preemption=preemption)

            # The next part waits for these victims, too, if it is on their node.
            if part.candidate is not None:
                for victim in part.candidate.pods:
                    leaving[int(columns.node[victim])].append(victim)

        ledger.count_on(self._beside(room))
        if room.candidate is not None:
            columns.leave(room.candidate.pods, ledger)

        self._keep_devices(room.released)
        # What goes may leave more room than is taken, so that another group is helped after all.
        self._in_vain.clear()
        self.made += len(parts)

        preemptor, _, _ = parts[0]
        released = {holder.id: gives_up(holder, preemptor.group) for holder in room.released}
        self.gave |= released
        return released | nominated

    def _keep_devices(self, released: Sequence[Group]) -> None:
        """Leave to nobody else the devices of groups that gave up their holds in this plan."""
        for holder in released:
            self.ledger.keep_devices(pod for pod, _ in held(holder))

    def _decision(
        self,
        group: Group,
        room: Found,
        leaving_on: Mapping[int, Sequence[int]],
    ) -> tuple[Preemption, Refusal]:
        """The decision for the group and what is told of it; `leaving_on` are by node the pods that
        leave it already.
        """
        running = self.columns.running
        candidate = room.candidate
        overdue = frozenset[str]().union(*self.preempting.overdue.values())
        victims = candidate.victims(overdue) if candidate is not None else {}

        leaving: list[int] = []
        if leaving_on:
            index = self.ledger.table.index
            nodes = {index[placement.node] for placement in room.placements}
            for node in sorted(nodes):
                leaving += leaving_on.get(node, ())

        grace_s, deadline_s = self._times(list(victims), leaving)
        preemption = Preemption(
            placements=room.placements,
            victims=tuple(sorted(victims.values())),
            awaited=tuple(sorted(running[i].pod.uid for i in leaving)),
            stopped=tuple(candidate.stopped) if candidate else (),
            harm=candidate.harm if candidate else None,
            grace_s=grace_s,
            deadline_s=deadline_s,
        )

        ending = [(running[i].pod, running[i].gang) for i in (*victims, *leaving)]
        refusal = findings.nominated(
            (placement.node for placement in room.placements),
            ending,
            group.namespaces,
            until_s=deadline_s,
        )
        return preemption, refusal

    def _times(self, victims: Sequence[int], leaving: Sequence[int]) -> tuple[int, int]:
        """How long victims may take to end, and when all that must leave should have ended."""
        running = self.columns.running
        wall_s = self.preempting.wall_s
        # Whoever may take longer is not waited for: the group may preempt others then (V12).
        max_wait_s = self.preempting.settings.max_wait_s

        longest_s = max((running[i].pod.grace_s for i in victims), default=0)
        grace_s = min(longest_s, max_wait_s)
        last_end_s = wall_s + grace_s
        for i in leaving:
            pod = running[i].pod
            end_s = pod.deletion_s or wall_s + pod.grace_s
            last_end_s = max(last_end_s, min(end_s, wall_s + max_wait_s))

        return grace_s, last_end_s + STUCK_S

    def _beside(self, room: Found) -> Ints:
        """`amounts[r][n]` of the placements' room on each node that is in use by those who leave
        for it (V10).
        """
        columns = self.columns
        ledger = self.ledger
        goes = columns.leaving
        if room.candidate is not None:
            goes = goes | columns.mask(room.candidate.pods)

        asked = ledger.amounts((placement.pod, placement.node) for placement in room.placements)
        going = np.flatnonzero(goes & columns.on_node)

        # Room that others count on already is not counted on twice, so this starts below zero.
        # Also lower priorities: those behind them see their promises together with this one.
        in_use = -ledger.counted_on()
        for row, requests in enumerate(columns.requests(list(ledger.resources), going)):
            np.add.at(in_use[row], columns.node[going], requests)

        beside: Ints = np.minimum(asked, np.maximum(in_use, 0))
        return beside


def _priority(holder: Group) -> int:
    """The highest of its members."""
    priorities = [pod.priority for pod, _ in held(holder)]
    return max([holder.priority, *priorities])


def _below(priority: int, holders: Sequence[Group]) -> list[Group]:
    """The groups of lower priority."""
    return [holder for holder in holders if _priority(holder) < priority]
