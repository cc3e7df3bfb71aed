"""The state that the loop uses: it applies messages, provides queue and snapshot, commits plans,
and returns due reports.

Invariant: it changes only by `apply` and `commit`, both synchronous. A verdict is committed as a
whole or, if anything that it depends on has changed since its snapshot, not at all (semantics B2).
Time is an argument, in monotonic seconds.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from functools import partial

from msgspec import structs

from gangsched.core.filter.count_cache import CountCache
from gangsched.core.plan_cache import PlanCache
from gangsched.core.preemption.columns import PodTableCache
from gangsched.core.reserve import Ledger
from gangsched.model.fault import FaultPlace
from gangsched.model.gang import Group
from gangsched.model.orders import NO_ORDERS, Orders
from gangsched.model.plan import Plan, PlanInput, Verdict
from gangsched.model.protocol import (
    Action,
    Applied,
    BindFailed,
    BindGone,
    Bound,
    ClaimsWritten,
    Message,
    Ordered,
    Outcome,
    PreemptionAnswer,
    ProvisioningAnswer,
    RecordEvent,
    Report,
    WriteUndecided,
)
from gangsched.model.provisioning import ProvisioningRequest
from gangsched.model.snapshot import Snapshot
from gangsched.state.autoscaling.capacity_asks import CapacityAsks
from gangsched.state.broken_deadlocks import BrokenDeadlocks
from gangsched.state.bulkhead import Bulkhead
from gangsched.state.claim_binding import ClaimBinding
from gangsched.state.cluster import Cluster
from gangsched.state.committer import Committer
from gangsched.state.event_handlers import EventHandlers
from gangsched.state.group_record import GroupRecord, QueueCause, Refreshed
from gangsched.state.groups import Registry
from gangsched.state.holds import Holds
from gangsched.state.kept_rooms import KeptRooms
from gangsched.state.late_writes import LateWrites
from gangsched.state.member_store import MemberStore
from gangsched.state.members import STARTED, State
from gangsched.state.preemption.disruption_budgets import DisruptionBudgets
from gangsched.state.preemption.preemptions import Preemptions
from gangsched.state.queueing.batches import Batches
from gangsched.state.queueing.parked import VisibleRoom
from gangsched.state.queueing.queue import Queue
from gangsched.state.reporting.gang_numbers import GangCounts, GangWaits, PendingCount
from gangsched.state.reporting.reports import Reports
from gangsched.state.reserving.expected_ends import ExpectedEnds
from gangsched.state.reserving.overdue import Overdue
from gangsched.state.reserving.overruns import Overruns
from gangsched.state.reserving.reservations import StandingReservations
from gangsched.state.room_to_come import RoomToCome
from gangsched.state.rule_set import Rules
from gangsched.state.start_check import StartCheck
from gangsched.state.unfinished import UnfinishedLook
from gangsched.state.verify import Verifier

LATE_CLAIMS_S = 30.0
LATE_CLAIMS_LONGEST_S = 600.0
"""When a group whose claims took too long is planned again, doubling: it kept room for 10 min."""
CLAIM_STEPS = 150
"""Gangs that a turn looks at again because a claim changed that they name, about as many as it
reads.
"""
PLACED = frozenset({State.HELD, State.WAITING_FOR_CLAIMS, State.BINDING})
"""The states in which a commit leaves what it places."""
ANSWERS = (Bound, BindGone, BindFailed, ClaimsWritten)


class SchedulingState:
    """The whole state between two plans."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self.orders = NO_ORDERS
        self.cluster = Cluster(
            allocates=rules.allocates,
            extends=rules.extends,
            topology_keys=rules.policy.topology_keys,
        )
        self.registry = Registry(rules, self.cluster.storage_cache.fixes_node)
        self.queue = Queue(self.registry.groups, unattended=rules.unattended)
        self.disruption_budgets = DisruptionBudgets()
        self.reports = Reports(self.registry.groups, rules, self.cluster.storage_cache)
        self.members = MemberStore(self.cluster, self.registry, names=rules.scheduler_names)
        self.counts = GangCounts()
        self.waits = GangWaits(self.registry)
        self.pending = PendingCount(self.registry)
        self.overruns = Overruns(self.members, self.registry, rules)
        self.overdue = Overdue(self.members, self.registry, self.queue, rules)
        self._event_handlers = EventHandlers(
            self.members,
            self.cluster,
            self.registry,
            self.queue,
            self.disruption_budgets,
            self.overruns,
            self.counts,
            rules,
        )
        self.bad_nodes = self._event_handlers.bad_nodes
        self.pod_gangs = self._event_handlers.pod_gangs
        self.claims = ClaimBinding(self.members, self.cluster, self.registry)
        self.expected_ends = ExpectedEnds(self.cluster, self.members, self.registry, rules)
        self.reservations = StandingReservations(
            self.expected_ends,
            self.cluster,
            self.registry,
            self.queue,
            rules,
        )
        self.holds = Holds(self.members, self.cluster, self.registry, self.queue)
        self.coming = RoomToCome(self.cluster, self.registry, self.members)
        self._committer = Committer(
            self.members,
            self.cluster,
            self.registry,
            self.queue,
            self.reports,
            self.claims,
            self.counts,
            self.holds,
            self.coming,
            self.bad_nodes,
            names=rules.scheduler_names,
            rank=self.reservations.rank,
        )
        self.preemptions = Preemptions(
            self.members,
            self.cluster,
            self.registry,
            self.queue,
            self.reports,
            self.disruption_budgets,
            rules,
        )
        self.late_writes = LateWrites(
            self.members,
            self.registry,
            self.preemptions.nominations,
        )
        asks_of = (self.members, self.registry, self.cluster, self.queue)
        self.asks = CapacityAsks(*asks_of, rules, self._tells_anew)
        self.bulkhead = Bulkhead(
            self.registry,
            self.queue,
            self.members,
            self.holds,
            self.preemptions,
            self.reservations,
            self.reports,
            self.pending,
        )
        self.pending.fails = self.bulkhead.count_failed
        self.reports.fails = self.bulkhead.report_failed
        self.verifier = Verifier(self.members, self.cluster, self.registry)
        self.deadlocks = BrokenDeadlocks(
            self.cluster,
            self.registry,
            self.queue,
            self.reports,
            rules,
        )
        self.start_check = StartCheck(self.members, self.cluster, self.registry)
        self._kept_rooms = KeptRooms(self.members, self.registry, self.queue)
        self.batches = Batches(self.registry, self.reservations.rank)
        self._looked_at: set[str] = set()  # decided since a plan last left ready groups
        self._most_groups = sys.maxsize
        self._unfinished = UnfinishedLook()

    @property
    def names(self) -> frozenset[str]:
        """Served scheduler names (semantics I1)."""
        return self._rules.scheduler_names

    def apply(self, message: Message, *, now_s: float) -> tuple[RecordEvent, ...]:
        """Apply one message; return Events that must be written regardless of later plans."""
        self.start_check.forget()
        try:
            return self._apply(message, now_s)
        except Exception as error:  # of objects, `_event_handlers` knows better what to do (I8)
            about = ""
            if isinstance(message, ANSWERS):
                about = self._answer_again(message)

            self.bulkhead.message_failed(error, about, now_s)
            return ()

    def _apply(self, message: Message, now_s: float) -> tuple[RecordEvent, ...]:
        if isinstance(message, ANSWERS):
            return self._answer(message, now_s)
        # Most others: objects that exist or have changed, of which one kind is not for the members.
        if isinstance(message, Applied) and not isinstance(message.item, ProvisioningRequest):
            return self._event_handlers.apply(message, now_s=now_s)
        if isinstance(message, PreemptionAnswer):
            return self.preemptions.answer(message, now_s)
        if isinstance(message, ProvisioningAnswer):
            return self.asks.answered(message, now_s)
        if self.asks.read(message):
            return ()
        if isinstance(message, WriteUndecided):
            self.late_writes.undecided(message.uid, now_s)
            return ()
        if isinstance(message, Ordered):
            self._order(message.orders, now_s)
            return ()

        return self._event_handlers.apply(message, now_s=now_s)

    def _answer_again(self, answer: Outcome | ClaimsWritten) -> str:
        """Take what an answer says from the start, because it was applied in an unknown part;
        return whose group it is about (I10).
        """
        member = self.members.get(answer.uid)
        if member is None:
            return ""

        # The watch may not show the node yet, and the pod takes room there from now on.
        if isinstance(answer, Bound):
            member.pod = structs.replace(member.pod, node_name=answer.node)

        nodes = (answer.node,) if not isinstance(answer, ClaimsWritten) else ()
        self.members.restart((member,), *nodes)
        return self.registry.group_of.get(member.gang, "")

    def _order(self, orders: Orders, now_s: float) -> None:
        """Carry out the orders of the administrator; `orders.paused` is the caller's to obey."""
        self.orders = orders
        self.reports.pause(orders.paused, now_s)
        self.registry.set_aside(orders.set_aside)
        self.reservations.forbid(orders.unreserved, now_s)
        self.preemptions.pause(orders.no_preemption)

    def _answer(self, answer: Outcome | ClaimsWritten, now_s: float) -> tuple[RecordEvent, ...]:
        """An order of ours is carried out, or not."""
        if isinstance(answer, ClaimsWritten):
            self.claims.written(answer, now_s)
            return ()

        events = self._event_handlers.apply(answer, now_s=now_s)
        if isinstance(answer, BindFailed):
            self.claims.failed(answer.uid)

        member = self.members.get(answer.uid)
        gang = None
        if member is not None:
            gang = self.registry.gangs.get(member.gang)

        if member is not None and gang is not None and not gang.plain:
            self.reports.answered(gang, member, answer)
            if isinstance(answer, Bound) and gang.id in self.registry.group_of:
                group = self.registry.groups[self.registry.group_of[gang.id]]
                self.waits.bound(member, self.registry.view(gang.id), group, now_s)

            self.reports.note(self.registry.group_of.get(gang.id, ""), now_s)

        if member is not None and member.state is State.KEPT:
            self._kept_rooms.note(member.gang)

        return events

    def claims_due(self, now_s: float) -> list[Action]:
        """Binds of members whose claims are bound, and Events about members whose claims could not
        be bound.
        """
        due = self.claims.due(now_s)
        for group_id in due.late & self.registry.groups.keys():
            self.queue.rest(group_id, now_s, first_s=LATE_CLAIMS_S, longest_s=LATE_CLAIMS_LONGEST_S)

        self.reports.note_all(due.changed, now_s)
        actions: list[Action] = [*due.binds, *due.withdrawn]
        for outcome in due.ended:
            actions += self.apply(outcome, now_s=now_s)

        return actions

    # --- the input of a plan, and its commit -----------------------------------------------------

    def refresh(
        self,
        now_s: float,
        *,
        in_turn: bool = True,
        most: float = math.inf,
        most_new: float = math.inf,
    ) -> None:
        """Update groups and queue from all applied messages; for `most`, see `Registry.refresh`.

        `in_turn` wakes groups for room freed earlier, which a plan that awaits its commit may use.
        """
        self.bulkhead.look(now_s)
        # First: the room that it gives back is freed room for all that follows.
        self._kept_rooms.release(now_s)

        self.pod_gangs.owners.look(now_s)
        if in_turn and self._event_handlers.is_behind:
            self._event_handlers.assign(now_s)
        if most_new > 0 and self.cluster.storage_cache.waits:
            self._look_at_claims(is_bounded=min(most, most_new) < math.inf)

        refreshed = self.registry.refresh(now_s, most, most_new=most_new)
        if in_turn:
            self._event_handlers.settle_starts()

        # Most turns, and nearly all commits, find nothing here.
        if refreshed.gone:
            self._drop_groups(refreshed.gone, now_s)
        if refreshed.is_any:
            self._follow_groups(refreshed, now_s)

        # Some in each refresh, so that a scrape of the metrics has little left to count.
        self.pending.catch_up()
        for group_id, raised in self.registry.take_faults().items():
            self.bulkhead.set_aside(group_id, raised, FaultPlace.REFRESH, now_s)

        for group_id in self._event_handlers.take_restated():
            self.reports.note(group_id, now_s)

        self.bulkhead.take_suspects(now_s)
        follow_room = partial(self._follow_room, refreshed.changed, now_s, in_turn=in_turn)
        self.bulkhead.run(FaultPlace.REFRESH, follow_room, None, now_s)

    def _look_at_claims(self, *, is_bounded: bool) -> None:
        """Look again at gangs whose claims changed, some in each turn.

        All of them as long as the gangs of the start are read, which is all gangs.
        """
        is_start = not self.registry.is_caught_up
        self._event_handlers.look_at_claims(CLAIM_STEPS if is_bounded and not is_start else None)

    def _drop_groups(self, gone: Mapping[str, GroupRecord], now_s: float) -> None:
        """Forget the groups that are gone."""
        self.pending.changed(gone.values())
        for group in gone.values():
            self.queue.drop(group)
            self.bulkhead.gone(group)
            self.preemptions.gone(group)
            self.asks.gone(group, now_s)
            self.holds.gone(group)
            self.reports.reservations.gone(group)

        self.reservations.gone(gone)

    def _follow_groups(self, refreshed: Refreshed, now_s: float) -> None:
        """Follow the groups that changed; one that raises is set aside."""
        self._unfinished.forget(refreshed.changed | refreshed.gone.keys())
        self.preemptions.running.forget(refreshed.forgotten)

        changed = [self.registry.groups[group_id] for group_id in refreshed.changed]
        self.pending.changed(changed)
        of_groups = (group.gangs for group in changed)
        self.coming.changed(refreshed.forgotten.union(*of_groups))
        idle = self.holds.idle(refreshed.changed, now_s) if self.holds.any_yielded else set()
        self.holds.end_yields(refreshed.gone.keys() | idle)

        for group in changed:
            try:
                self._follow_group(group, now_s)
            except Exception as error:
                self.bulkhead.set_aside(group.id, error, FaultPlace.REFRESH, now_s)

        self.reservations.changed({group.id: group for group in changed})

    def _follow_group(self, group: GroupRecord, now_s: float) -> None:
        self.holds.follow(group, now_s)
        self.bad_nodes.follow(group)
        self.claims.changed(group.gangs)
        self.waits.changed(group, map(self.registry.view, group.gangs), now_s)
        self.preemptions.changed(group)
        self.asks.changed(group, now_s)
        if not self.bulkhead.changed(group, now_s):
            return

        if group.verdict is None:
            # else there would be nothing to tell its members meanwhile
            self.queue.forgive(group.id)

        if self.registry.awaits_pod_group(group.id):
            return  # nothing is reported while its PodGroup may still arrive

        self.queue.activate(group.id, QueueCause.CHANGED)
        self.reports.note(group.id, now_s)

    def _follow_room(self, changed: set[str], now_s: float, *, in_turn: bool) -> None:
        """Wake the groups that freed room, or what else changed in the cluster, may help."""
        self.preemptions.holding_back.look(now_s)
        self.preemptions.nominations.follow()

        # Once for all who ask, as taking resets it.
        freed = self.cluster.take_freed()
        pods_changed = self.cluster.take_pods_changed()
        heads = self.reservations.heads

        visible_room = None
        if freed or pods_changed:
            visible_room = self._visible_to_first(now_s)

        if visible_room is not None and (freed or self.queue.minds_pods()):
            self.queue.wake(
                visible_room,
                freed,
                pods_changed=pods_changed,
                heads=heads,
            )
            self._unfinished.missed(freed, pods_changed=pods_changed)
        elif in_turn and self.queue.parked.has_pending:
            self.queue.wake_pending(self._visible_to_first(now_s))

        # After new room was offered to the first in line: those behind get what is left.
        if self.queue.passed:
            self.queue.wake_behind(self.holds.visible_to_next(self._open_room(), now_s), heads)

        moved = self.cluster.take_moved()
        self.coming.look(moved)
        self.holds.look(freed, moved, now_s)
        self._look_at_preemptors(freed | moved, changed, now_s)

        if visible_room is not None:
            self.reservations.cluster_changed(
                freed,
                visible_room.most,
                now_s,
                evicting=self.overdue.heads,
            )
            self.queue.room_changed(now_s)

        if self.queue.review_is_due(now_s):
            self.queue.review(self._open_room(), now_s)

    def _visible_to_first(self, now_s: float) -> VisibleRoom:
        """The open room as the first in line see it."""
        return self.holds.visible_to_first(self._open_room(), now_s)

    def _follow_reserved_room(self, now_s: float) -> None:
        """Wake the groups that room helps which reservations no longer keep from them."""
        opened = self.reservations.take_opened()
        if opened:
            self.queue.wake(self._visible_to_first(now_s), opened)
            self.preemptions.nominations.opened(opened)

    def _look_at_preemptors(self, moved: set[str], changed: set[str], now_s: float) -> None:
        """Groups that wait beside what they may preempt are planned anew where that changed
        (semantics V25).
        """
        preemptors = self.queue.preemptors
        # A gang that changed may be taken now, or more of it, on whatever nodes it runs.
        gangs = (
            self.registry.gangs[gang]
            for group_id in changed
            for gang in self.registry.groups[group_id].gangs
        )
        moved.update(member.node for gang in gangs for member in gang.of(*STARTED))

        if (narrowed := self.cluster.take_narrowed()) or moved:
            preemptors.note(moved, anywhere=narrowed)

        for group_id in preemptors.look(self.cluster.snapshot, self.members.lowest_priority, now_s):
            self.queue.activate(group_id, QueueCause.PREEMPTION_MAY_HELP)

    def _open_room(self, of: Snapshot | None = None) -> Snapshot:
        """The cluster, the newest unless given, less the room that is promised to the highest that
        wait (V10).

        Groups are woken for no other room, and what they are told of room is compared with this: as
        victims end one by one, the room that they leave is promised already, and would else be told
        to all that wait in vain.
        """
        highest = self.members.highest_waiting
        return self.cluster.without_promised(highest if highest is not None else 0, of)

    def ready(self, now_s: float) -> tuple[Group, ...]:
        """Groups to plan now, and all other groups with holds as unchanged; empty if there is
        nothing to decide.
        """
        expired = set()
        for group_id, at_s in self.holds.expiries(now_s):
            if now_s >= at_s:
                expired.add(group_id)

        def always() -> set[str]:  # asked only where thousands are ready
            nominated = (
                nomination_record.group for nomination_record in self.preemptions.nominations.all()
            )
            searching = {self.preemptions.searches.now or ""}
            heads = self.reservations.heads
            return expired.union(self._unfinished.groups, searching, nominated, heads)

        groups: list[Group] = []
        batch = self.batches.next(self.queue.ready(now_s) | expired, always, self._looked_at, now_s)
        for group_id in batch:
            group = self.registry.group(group_id, now_s)
            # Ready by a change that took away its last waiting pod: a plan would decide nothing.
            if group.waits:
                groups.append(group)
            else:
                self.queue.park(group_id, (), cause=QueueCause.NOTHING_WAITS)
                self.bulkhead.decided(self.registry.groups[group_id], None, now_s)
                self.reservations.left(group_id)

                if not any(gang.bound for gang in group.gangs):
                    # its texts about members do not apply without them
                    self.registry.groups[group_id].verdict = None

        if not groups:
            # none of them waits, and others may
            if not batch - expired:
                return ()

            return self.ready(now_s)

        return (*groups, *self.holds.beside({group.id for group in groups}, now_s))

    def plan_input(self, now_s: float, wall_s: float) -> PlanInput | None:
        """Input of the next plan, at wall second `wall_s`; None if there is nothing to plan."""
        # Before the ready groups are read: an overrun may make a head ready.
        self.overdue.look(now_s, wall_s)
        queue = self.ready(now_s)
        searches = self.preemptions.searches
        self._unfinished.resume(group.id for group in queue if not searches.is_put_off(group.id))

        reserving = self.reservations.given(queue, now_s, wall_s)
        self._follow_reserved_room(now_s)
        if not queue and reserving is None:
            return None

        preempting = self.preemptions.input((group.id for group in queue), wall_s)
        evicting = {**self.overdue.heads, **self.deadlocks.yields}
        if preempting is not None and evicting:
            preempting = structs.replace(preempting, overdue=evicting)

        return PlanInput(
            snapshot=self.snapshot(),
            queue=queue,
            reserving=reserving,
            preempting=preempting,
            looked_at=self._looked_at,
            most_groups=self._most_groups,
            unfinished=self._unfinished.known,
            fenced=self.asks.fenced(now_s),
        )

    def plan_cache(self) -> PlanCache:
        """Results of earlier plans of this state, for the next one."""
        return PlanCache(
            self.cluster.counts,
            self.preemptions.running.cache,
            self.reservations.cache,
        )

    def plan_failed(self) -> None:
        """Drop what a plan that raised may have left half written: its caches, and the progress of
        earlier plans.
        """
        self.cluster.counts = CountCache()
        self.preemptions.running.cache = PodTableCache()
        self.reservations.cache.clear()
        self._unfinished = UnfinishedLook()

    def snapshot(self) -> Snapshot:
        """Current snapshot of the cluster."""
        return self.cluster.snapshot()

    def commit(self, plan: Plan, snapshot: Snapshot, *, now_s: float) -> list[Action]:
        """Apply the verdicts of a plan; return the actions that carry them out.

        Messages applied since the snapshot are taken into account (B2). If anything moved, or a
        verdict was dropped that later ones depended on, committed verdicts stay valid but every
        group is planned again.
        """
        self.refresh(now_s, in_turn=False, most_new=0)
        self.start_check.forget()
        actions: list[Action] = []
        told: dict[str, int] = {}
        newest = None
        if self.cluster.snapshot() is not snapshot:
            newest = self._newest()

        told_on = self._open_room(snapshot)
        self.verifier.begin(plan, snapshot)

        for verdict in plan.verdicts:
            group = self.registry.groups.get(verdict.group)
            if group is None:
                newest = newest if newest is not None else self._newest()
                continue

            try:
                is_current = self._is_current(group, verdict, newest)
                why = self.verifier.objection(group, verdict) if is_current else ""
                if is_current and not why:
                    actions += self._commit(group, verdict, plan, told_on, now_s)
                    if not verdict.moves:
                        told[group.id] = group.generation
                else:
                    # The plan was made from just this state, so it is not outdated but wrong (B2).
                    if why and newest is None:
                        self.bulkhead.set_aside(group.id, why, FaultPlace.VERIFY, now_s)

                    newest = newest if newest is not None else self._newest()
            except Exception as error:  # the group's own fault (I10)
                self._undo(verdict)
                self.bulkhead.set_aside(group.id, error, FaultPlace.COMMIT, now_s)
                newest = self._newest()

            # Later verdicts of this plan rested on one that was dropped, or on a snapshot that is
            # outdated.
            if newest is not None:
                self.queue.activate(verdict.group, QueueCause.NOT_COMMITTED)

        self.bulkhead.run(
            FaultPlace.COMMIT,
            lambda: self._follow_plan(plan, told, now_s),
            None,
            now_s,
        )
        return [*actions, *self.bulkhead.take_actions()]

    def _follow_plan(self, plan: Plan, told: dict[str, int], now_s: float) -> None:
        """Follow a plan whose verdicts are committed; `told` are groups that only got another
        message.
        """
        looked_at = {*plan.begun, *(verdict.group for verdict in plan.verdicts)}
        self._looked_at = self._looked_at | looked_at if plan.left else set()
        self._most_groups = len(plan.verdicts) // 2 if plan.is_overflowed else sys.maxsize
        missed = self._unfinished.goes_on(plan.unfinished, told)
        if missed is not None:
            # It was not parked meanwhile.
            self.queue.wake(
                self._visible_to_first(now_s),
                missed.freed,
                pods_changed=missed.pods_changed,
            )

        for group_id in plan.again & self.registry.groups.keys():
            self.queue.activate(group_id, QueueCause.NOT_FINISHED)

        self.preemptions.holding_back.look(now_s)
        if plan.reservations is not None:
            self.reservations.take(plan.reservations, now_s)
            self._follow_reserved_room(now_s)
            self.reports.reserved(
                plan.reservations,
                now_s=now_s,
                wall_s=self.reservations.wall_s(now_s),
            )

        self.preemptions.nominations.follow()

    def _is_current(self, group: GroupRecord, verdict: Verdict, newest: Ledger | None) -> bool:
        """Whether nothing changed that the verdict depends on (B2)."""
        if group.generation != verdict.generation:
            return False

        return newest is None or self._committer.still_fits(verdict, newest)

    def _commit(
        self,
        group: GroupRecord,
        verdict: Verdict,
        plan: Plan,
        told_on: Snapshot,
        now_s: float,
    ) -> list[Action]:
        """Apply one verdict; return the actions that carry it out."""
        actions = [*self._committer.commit(group, verdict, told_on, now_s)]
        actions += self.preemptions.planned(group, verdict, now_s)
        self.deadlocks.committed(group, verdict)
        self.asks.committed(group, verdict, now_s)
        self.pending.changed((group,))

        if plan.reservations is not None:
            self.overdue.committed(
                verdict,
                (*self.reservations.standing, *plan.reservations.standing),
            )
            self.reservations.settled(verdict, now_s)

        self.bulkhead.decided(group, verdict, now_s)
        return actions

    def _undo(self, verdict: Verdict) -> None:
        """Take back a verdict of which an unknown part was applied; none of its actions is carried
        out.
        """
        placements = (*verdict.binds, *verdict.holds)
        found = (self.members.get(placement.pod.uid) for placement in placements)
        placed = []
        for each in found:
            if each is not None and each.state in PLACED:
                placed.append(each)

        self.members.restart(placed, *(placement.node for placement in placements))

    def _tells_anew(self, group: GroupRecord, now_s: float) -> None:
        """Report a group whose verdict reads otherwise, although nothing was decided."""
        self.pending.changed((group,))
        self.reports.note(group.id, now_s, at_once=True)

    def _newest(self) -> Ledger:
        return Ledger(self.cluster.snapshot(), counts=self.cluster.counts)

    # --- time, and reports -----------------------------------------------------------------------

    def next_deadline_s(self, now_s: float, *, reporting: bool = True) -> float | None:
        """Time at which a turn is due without a message; without `reporting`, reports
        are ignored.
        """
        # Nothing is decided, so that only reports are due.
        if self.orders.paused:
            return _unless_never(self.reports.next_deadline_s())

        # First: what is not done in a pause is due as soon as it is over.
        if self.bulkhead.is_paused(now_s):
            return self.bulkhead.pause.until_s
        if self.registry.is_behind or self._event_handlers.is_behind:
            return now_s
        if self.cluster.storage_cache.waits:
            return now_s
        if self.bulkhead.is_behind or self.holds.is_behind:
            return now_s

        parts = (
            self.registry,
            self.queue,
            self.claims,
            self.preemptions,
            self.reservations,
            self.overruns,
            self.bad_nodes,
            self.pod_gangs.owners,
            self.overdue,
            self.deadlocks,
            self.asks,
            self.coming,
            self._kept_rooms,
            self.bulkhead,
            self.late_writes,
        )
        times_s = [part.next_deadline_s() for part in parts]
        times_s += [at_s for _, at_s in self.holds.expiries(now_s)]
        if reporting:
            times_s.append(self.reports.next_deadline_s())

        return _unless_never(min(times_s))

    def take_reports(
        self,
        *,
        now_s: float,
        wall: str,
        everything: bool = False,
        is_after_plan: bool = False,
    ) -> list[Report]:
        """Reports that are due now; `wall` is the current time in RFC 3339."""
        return self.reports.take(
            self.registry,
            now_s=now_s,
            wall=wall,
            everything=everything,
            is_after_plan=is_after_plan,
        )


def _unless_never(at_s: float) -> float | None:
    """The time, or None if it never comes."""
    return at_s if at_s < math.inf else None
