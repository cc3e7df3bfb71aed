"""The interface of preemption to the rest of the state: the input of plans, and the effects of
their decisions (the V rules).

Invariant: plans get no input if no running pod has a lower priority than a waiting one, if
preemption is off, or if PodDisruptionBudgets cannot be read (evictions could violate them).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Set

from gangsched.core.queue_sort import group_key
from gangsched.model.plan import Verdict
from gangsched.model.preemption import (
    BudgetRule,
    HeldBack,
    NotHelpful,
    Obstacle,
    Preemption,
    PreemptionInput,
    Running,
    VictimScope,
)
from gangsched.model.protocol import (
    Action,
    Evicted,
    EvictionDelayed,
    EvictionsForbidden,
    PreemptionAnswer,
    PreemptionPrepared,
    RecordEvent,
)
from gangsched.model.snapshot import Snapshot
from gangsched.state.cluster import Cluster
from gangsched.state.group_record import GroupRecord, QueueCause
from gangsched.state.groups import Registry
from gangsched.state.member_store import MemberStore
from gangsched.state.preemption.disruption_budgets import Budgets, DisruptionBudgets
from gangsched.state.preemption.hold_back_times import HoldingBack
from gangsched.state.preemption.nominations import Nominations
from gangsched.state.preemption.restore import restore
from gangsched.state.preemption.running import RunningPods
from gangsched.state.preemption.search_turns import SearchTurns
from gangsched.state.queueing.queue import Queue
from gangsched.state.reporting.reports import Reports
from gangsched.state.rule_set import Rules
from gangsched.state.timers import JUMP_S

PASSING = frozenset({Obstacle.BACK_OFF, Obstacle.DELAYED, Obstacle.TOO_YOUNG})
"""Obstacles that end by themselves, so that nothing need change before a group is
examined again.
"""
ROUNDING_S = 0.001
"""A moment of the wall clock may come this much before its second, and is asked for again then."""

ATTEMPTS = {
    Obstacle.POLICY_NEVER: "not_allowed",
    Obstacle.FORBIDDEN: "not_allowed",
    Obstacle.BUDGET: "pdb",
}


class Preemptions:
    """Call `due` and `input` before a plan, `planned` after it, `answer` when the API server
    answers.
    """

    def __init__(
        self,
        members: MemberStore,
        cluster: Cluster,
        registry: Registry,
        queue: Queue,
        reports: Reports,
        budgets: DisruptionBudgets,
        rules: Rules,
    ) -> None:
        self.nominations = Nominations(members, cluster, registry, queue, reports, rules)
        self.running = RunningPods(members, registry)
        self.searches = SearchTurns(registry.groups)
        self.holding_back = HoldingBack(cluster, hold_back_s=rules.preemption.hold_back_s)
        self.forbidden = ""
        self._paused = ""
        self._members = members
        self._cluster = cluster
        self._registry = registry
        self._queue = queue
        self._budgets = budgets
        self._settings = rules.preemption
        self._known_on: tuple[Snapshot, Budgets, int] | None = None

        # Grows with what results of preemption depend on; a result of an earlier version is not
        # believed.
        self._version = 0
        self._lowest: set[GroupRecord] = set()
        self._lowest_waiting: int | None = None
        self._is_restored = False

    def due(self, now_s: float, wall_s: float) -> list[Action]:
        """Update nominations before a plan; the first call restores the nominations of an earlier
        process (V24).
        """
        # Before anything is restored: this look sets the wall clock by which deadlines are
        # converted.
        before_s = self.nominations.offset_s
        actions = self.nominations.look(now_s, wall_s)

        # After a jump of the wall clock, such as that of a resumed machine, it is another time at
        # which victims will have run for long enough; monotonic timers do not notice.
        has_jumped = abs(self.nominations.offset_s - before_s) >= JUMP_S
        if self._budgets.take_changed() or has_jumped:
            self._queue.preemptors.note((), anywhere=True)

        self._look_who_waits()
        if not self._is_restored:
            self._is_restored = True
            # The PodDisruptionBudgets that may be broken where nothing else helps (V7).
            may_break = self._settings.budgets is BudgetRule.LAST_RESORT
            breakable = (self._budgets.snapshot() or {}) if may_break else {}
            actions += restore(
                self.nominations,
                self._members,
                self._cluster,
                self._registry,
                now_s,
                wall_s,
                breakable=breakable,
            )

        self.nominations.follow()
        searching = self.searches.begin()
        if searching:
            self._queue.activate(searching, QueueCause.NOT_FINISHED)

        return actions

    @property
    def work(self) -> int:
        """Units of work (`core.work`) that this turn has spent on nominations."""
        return self.nominations.promised.work

    def woken_by(self, priority: int) -> Set[str]:
        """Groups that would be evaluated again if a pod of this priority began to wait (V27)."""
        before = self._lowest_waiting
        if before is None or priority < before:
            return {group.id for group in self._lowest}

        return frozenset()

    def _look_who_waits(self) -> None:
        """Groups that held nobody back because nobody of lower priority waited are looked at again
        if one does.
        """
        before = self._lowest_waiting
        self._lowest_waiting = self._members.lowest_waiting
        if self._lowest_waiting is not None and (before is None or self._lowest_waiting < before):
            for group in self._lowest:
                group.is_lowest = False
                self._queue.activate(group.id, QueueCause.LOWER_WAITS)

            self._lowest.clear()

    def input(self, group_ids: Iterable[str], wall_s: float) -> PreemptionInput | None:
        """Preemption input of a plan of these groups; None if preemption is off."""
        budgets = self._budgets.snapshot()
        # Unknown budgets forbid all evictions; if these are forbidden anyway, the plan may still
        # say so.
        forbidden = self.forbidden or self._paused
        if self._settings.scope is VictimScope.OFF or (budgets is None and not forbidden):
            return None

        budgets = budgets if budgets is not None else {}
        known_on = self._cluster.snapshot(), budgets, self._queue.preemptors.version

        # Snapshots and budgets are compared by identity: each is the same object until something in
        # it changes.
        snapshot, seen, version = self._known_on or (None, None, 0)
        if snapshot is not known_on[0] or seen is not known_on[1] or version != known_on[2]:
            self._known_on = known_on
            self._version = self._version + 1

        groups = []
        for each in group_ids:
            if each in self._registry.groups:
                groups.append(self._registry.groups[each])

        def running(left: float) -> Running:
            return self.running.now(self.nominations.victims(), budgets, left)

        return PreemptionInput(
            running=running,
            wall_s=int(wall_s),
            lowest_priority=self._members.lowest_priority,
            settings=self._settings,
            nominated=self.nominations.told(groups),
            retry_at_s={
                record.id: record.nominates_at_s
                for record in groups
                if record.nominates_at_s is not None
            },
            nodes_until_s={
                record.id: record.nodes_until_s
                for record in groups
                if record.nodes_until_s > wall_s
            },
            known={
                record.id: found for record in groups if (found := self._found(record)) is not None
            },
            postponed=frozenset(
                record.id for record in groups if self.searches.is_put_off(record.id)
            ),
            searching=self.searches.now,
            held_back=self.holding_back.now(),
            held_until_s={
                record.id: record.holds_back_until_s
                for record in groups
                if record.holds_back_until_s is not None
            },
            share_until_s=self.holding_back.share_until_s(),
            lowest_waiting=self._members.lowest_waiting,
            forbidden=forbidden,
        )

    def _found(self, group: GroupRecord) -> NotHelpful | None:
        """Why preemption did not help the group, unless what that depends on has changed.

        A search that is under way goes on all the same, or it might never end.
        """
        version, found = group.not_helpful or (0, None)
        if found is None or version == self._version:
            return found

        goes_on = self.searches.is_under_way(group.id) or self.searches.is_put_off(group.id)
        return found if found.why is Obstacle.LATER and goes_on else None

    def changed(self, group: GroupRecord) -> None:
        """Drop results about a group that has changed."""
        group.not_helpful = None
        self.searches.end(group.id)
        self.nominations.changed(group.id)

    def gone(self, group: GroupRecord) -> None:
        """Remove a group that is gone."""
        self._lowest.discard(group)
        self.searches.end(group.id)
        self.holding_back.end(group, started=True)
        self.nominations.changed(group.id)

    def indexes(self) -> Iterator[tuple[str, Set[str], Callable[[GroupRecord], bool]]]:
        """For validation: each index with its groups, and a predicate for the groups that should be
        in it.
        """
        yield "lowest", {group.id for group in self._lowest}, lambda group: group.is_lowest
        yield "holding back", self.holding_back.groups(), lambda group: group.holds_back is not None

    def planned(self, group: GroupRecord, verdict: Verdict, now_s: float) -> list[Action]:
        """Apply a committed verdict on the group."""
        found = verdict.preemption
        if isinstance(found, Preemption):
            self.nominations.journal.attempt("nominated")
        elif found is not None and self._found(group) is not found:
            self._note(group, found, now_s)

        # Joined again below if the verdict is still that nothing of lower priority runs.
        self._lowest.discard(group)
        group.is_lowest = False

        if isinstance(found, NotHelpful):
            self._waits(group, found, verdict, now_s)
            self._goes_on(group, found)
        else:
            self.searches.end(group.id)
            self._queue.preemptors.left(group)
            self.holding_back.end(group, started=bool(verdict.binds))

        return self.nominations.planned(group, verdict, now_s)

    def _waits(
        self,
        group: GroupRecord,
        found: NotHelpful,
        verdict: Verdict,
        now_s: float,
    ) -> None:
        """Follow a group that waits, since preemption could not help."""
        # Not of groups that start: their view is made again with what is bound.
        waits = self._registry.group(group.id, now_s)
        self._queue.preemptors.put(waits, found)

        if found.wanted:
            where = HeldBack(group.id, found.right, found.wanted, group_key(waits))
            self.holding_back.wait(group, waits.namespaces, where, now_s)
            return

        self.holding_back.end(group, started=bool(verdict.binds))
        if found.why is Obstacle.NOTHING_LOWER and group.holds_back_until_s is None:
            self._lowest.add(group)
            group.is_lowest = True

    def _goes_on(self, group: GroupRecord, answer: NotHelpful) -> None:
        """Let a group look for victims in a later plan if this one did not come to an end."""
        if answer.why is not Obstacle.LATER:
            self.searches.end(group.id)
        elif answer.begun:
            self.searches.wait(group.id)
        else:
            self._queue.activate(group.id, QueueCause.NOT_FINISHED)

    def _note(self, group: GroupRecord, found: NotHelpful, now_s: float) -> None:
        """Preemption could not help; see that the group is looked at again when it could."""
        if found.why not in PASSING:
            version = self._version
            if not self.searches.is_under_way(group.id):
                group.searches_since = None  # it has seen all that changed before
            elif group.not_helpful is not None:
                version, _ = group.not_helpful

            group.not_helpful = version, found

        if found.why not in PASSING | {Obstacle.LATER}:
            self.nominations.journal.attempt(ATTEMPTS.get(found.why, "not_helpful"))

        if found.until_s:
            self._queue.wake_at(
                group.id,
                max(self.nominations.monotonic_s(found.until_s), now_s + ROUNDING_S),
            )
        elif found.why is Obstacle.DELAYED:
            self._queue.wake_at(group.id, now_s + found.seconds)
        elif found.why is Obstacle.BACK_OFF:
            self._queue.wake_at(
                group.id,
                group.nominates_at_s if group.nominates_at_s is not None else now_s,
            )

    def set_aside(self, group: GroupRecord, verdict: Verdict, now_s: float) -> list[Action]:
        """End the nomination of a group that is set aside, and what it holds others back from
        (I10).
        """
        self._queue.preemptors.left(group)
        self.searches.end(group.id)
        self.holding_back.end(group, started=False)
        self._lowest.discard(group)
        group.is_lowest = False
        group.not_helpful = None

        return self.nominations.give_up(group, verdict, now_s)

    def answer(self, answer: PreemptionAnswer, now_s: float) -> tuple[RecordEvent, ...]:
        """Apply an answer of the API server; return Events that must be written regardless of later
        plans.
        """
        match answer:
            case PreemptionPrepared():
                self.nominations.prepared(answer)
            case Evicted():
                return self.nominations.evicted(answer, now_s)
            case EvictionDelayed():
                return self.nominations.delayed(answer)
            case EvictionsForbidden(message=message):
                self.forbidden = message

        return ()

    def pause(self, reason: str) -> None:
        """Begin no preemption while `reason` is not "", and end those that have begun.

        A gang of which a member was evicted is still evicted whole, since what is left of it would
        run in vain.
        """
        reason = f"an administrator paused preemption: {reason}" if reason else ""
        if reason == self._paused:
            return

        self._paused = reason
        self._version += 1

        if reason:
            self.nominations.lose_all(reason)

        # No change of a pod wakes those who were refused for the order.
        for group in self._registry.groups.values():
            _, found = group.not_helpful or (0, None)
            if found is not None and found.why is Obstacle.FORBIDDEN:
                self._queue.activate(group.id, QueueCause.ORDERED)

    def next_deadline_s(self) -> float:
        """Time at which `due` must be called even without a message."""
        if self.searches.is_due:
            return -math.inf

        return min(self.nominations.next_deadline_s(), self.holding_back.next_deadline_s())
