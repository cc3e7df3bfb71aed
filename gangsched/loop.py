"""The loop: it applies messages, makes a plan, hands out actions and applies their outcomes.

Invariant: one task owns the state. It applies nothing between preparing a plan and its commit, so a
plan is committed on exactly the state that it was made from. While another instance leads, messages
are applied but no decisions are made, so that the state is ready when this instance takes over. The
loop uses Protocols, never `kube`; time comes from its clock.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

import structlog

from gangsched.core.cycle import Limits
from gangsched.core.scopes import look_ahead
from gangsched.model.fault import FaultPlace
from gangsched.model.plan import Plan, PlanInput
from gangsched.model.protocol import (
    Action,
    BindFailed,
    BindGone,
    BindOrder,
    Bound,
    Message,
    PreemptionOrder,
    ProvisioningOrder,
    RecordEvent,
    Report,
)
from gangsched.model.reasons import EventReason
from gangsched.state.scheduling import SchedulingState
from gangsched.telemetry.audit import Audit
from gangsched.telemetry.history import History
from gangsched.telemetry.metrics import Metrics
from gangsched.turn import Planned, commit_plan, make_plan, plan_input, prepare

MESSAGES_PER_TURN = 1_000
APPLY_AT_MOST_S = 0.015
MESSAGES_BETWEEN_LOOKS = 5
"""A turn applies no more messages once they have taken that long: the PodGroup of a gang of
thousands takes half a millisecond and more.
"""
READ_PER_TURN = 2_500
"""Units of changed gangs that a turn reads (`Registry.refresh`), 10 to 15 ms; 20,000 new pods took
one turn 0.5 s.
"""
MESSAGES_BESIDE_A_PLAN = 200
READ_BESIDE_A_PLAN = 600
"""A turn that applies more, or would read more, leaves the plan to the next one, which applies
nothing: plans have most of a turn's 50 ms, and no stream of messages keeps them off. Of new gangs
others are read in the turn after the plan (`state.changed_gangs`): however many one namespace
creates, every second turn has a plan."""
NEXT_STEP_WITHIN_S = 0.01
"""A turn that has taken longer leaves its next step to the next turn, which goes on there: each of
them may have most of a turn's 50 ms.
"""
TURN_EVERY_S = 0.01
"""A turn costs as much for one message as for ten: the first one is looked at at once, the next
ones together.
"""
SOONEST_S = 0.002
TIMES_A_TURN = 4.0
"""After a turn that decided nothing the next one comes sooner, for a gang may be whole by then:
after four times what it took, so that turns take a quarter of the time at most."""
PASSES = 4
"""Passes of the event loop after each turn of many, so that a renewal of the Lease, a probe or an
answer of the API of gangs takes few turns, however busy they are (decision 48): a timer, a request,
its answer and who waited for it.
"""
LOOK_AHEAD_EVERY_S = 1.0
DEADLINE_UNKNOWN_S = 1.0
"""When the next turn is due if the computation of its time raises."""
BIND_RESULTS: dict[type, str] = {Bound: "bound", BindGone: "gone", BindFailed: "failed"}


class Binds(Protocol):
    """Carries out binds; the loop's inbox receives each answer."""

    def submit(self, orders: Sequence[BindOrder]) -> None:
        """Enqueue; never blocks."""


class Clock(Protocol):
    """Source of time; a simulator has its own."""

    def now_s(self) -> float:
        """Monotonic seconds."""

    def wall(self) -> str:
        """Current time in RFC 3339, whole seconds, UTC."""

    def wall_s(self) -> float:
        """Current time in epoch seconds."""


@dataclass(slots=True)
class Ports:
    """The loop's outputs. `tell` accepts status writes and Events, `preempt` accepts evictions,
    `provision` requests to autoscalers; none of them blocks.
    """

    binds: Binds
    tell: Callable[[Report], None]
    preempt: Callable[[PreemptionOrder], None]
    clock: Clock
    provision: Callable[[ProvisioningOrder], None] = lambda order: None


class Loop:
    """The scheduling loop. `inbox` receives every message; `run` returns only after `stop`."""

    def __init__(
        self,
        state: SchedulingState,
        ports: Ports,
        *,
        metrics: Metrics,
        limits: Limits,
        ready: Callable[[], bool],
        leads: Callable[[], bool] = lambda: True,
        history: History | None = None,
    ) -> None:
        """Plans are made only while `ready()` and `leads()` are true; once true, `ready()` must
        stay true. What is decided about gangs goes into `history`.
        """
        self.audit = Audit(state, history or History(ports.clock.wall_s))
        self._state = state
        self._ports = ports
        self._metrics = metrics
        self._limits = limits
        self._ready = ready
        self._leads = leads

        # A deque and an event instead of asyncio.Queue: senders must not wait, and a turn takes
        # many at once.
        self._messages: deque[Message] = deque()
        self._wake = asyncio.Event()
        self._looked_ahead_s = float("-inf")
        self._plan_is_next = False
        #: Steps of the last turn, with which the next one goes on.
        self._is_prepared = False
        self._given: PlanInput | None = None
        self._planned: Planned | None = None
        self._stopping = False
        self._log = structlog.get_logger()

    def inbox(self, message: Message) -> None:
        """Queue a message for the next turn."""
        self._messages.append(message)
        self._wake.set()

    def wake(self) -> None:
        """Start a turn, because a deadline may have passed."""
        self._wake.set()

    def stop(self) -> None:
        """Stop planning; `run` returns. `listen` applies later messages, `drain` the
        last outcomes.
        """
        self._stopping = True
        self._wake.set()

    async def run(self) -> None:
        """Take turns until stopped. Each turn applies messages, and plans if a group can be
        decided.
        """
        clock = asyncio.get_running_loop().time
        while not self._stopping:
            began_s = clock()
            self._wake.clear()
            busy = self._turn_walled()
            next_s = began_s + spacing_s(busy=busy, took_s=clock() - began_s)

            for _ in range(PASSES if busy else 1):
                await asyncio.sleep(0)

            if not busy and not self._wake.is_set():
                # it saves time and decides nothing; a plan that asks the same tells of it
                with suppress(Exception):
                    self._look_ahead()

                await self._sleep()

            goes_on = self._plan_is_next or self._is_prepared
            if len(self._messages) < MESSAGES_PER_TURN and not goes_on:
                await asyncio.sleep(next_s - clock())  # a negative time is none

    def _turn_walled(self) -> bool:
        """Take one turn; what it raises outside of the walls in it pauses planning (I10)."""
        try:
            return self.turn()
        except Exception as error:
            self._plan_is_next = False
            self._drop_steps()
            self._state.bulkhead.blame(error, FaultPlace.TURN, self._ports.clock.now_s())
            return bool(self._messages)

    def _deadline_s(self, now_s: float) -> float | None:
        try:
            return self._state.next_deadline_s(now_s)
        except Exception as error:
            self._state.bulkhead.blame(error, FaultPlace.TURN, now_s)
            return now_s + DEADLINE_UNKNOWN_S

    def turn(self) -> bool:
        """Take one turn, or what the last one left of it; True if another is needed at once."""
        began_s = self._ports.clock.now_s()
        if not self._is_prepared:
            is_busy = self._begin(began_s)
            if not self._is_prepared:
                return is_busy
            if self._took_long(began_s):
                return True

        # Nothing is applied before the commit, so that all of it is still current.
        given = self._given
        planned = self._planned
        self._drop_steps()
        if not self._decides():
            return True

        if planned is None and given is None:
            given = self._input()
            if given is not None and self._took_long(began_s):
                self._is_prepared = True
                self._given = given
                return True

        if planned is None and given is not None:
            planned = self._plan(given)
            if planned is not None and self._took_long(began_s):
                self._is_prepared = True
                self._planned = planned
                return True

        self._commit(planned, self._ports.clock.now_s())
        return planned is not None or bool(self._messages)

    def _begin(self, began_s: float) -> bool:
        """Apply messages, and prepare a plan if none is left to the next turn; True if another turn
        is needed at once.
        """
        applied = 0 if self._plan_is_next else self._take_in()
        # More messages than one turn applies: planning on half of a burst would start gangs on
        # outdated nodes.
        is_burst = bool(self._messages) and not self._plan_is_next
        if is_burst or not self._ready():
            return bool(self._messages)

        now_s = self._ports.clock.now_s()
        is_late = self._reads_ahead(now_s)
        if not self._decides():
            # A leader that is paused says so of whatever waits; a standby writes nothing.
            if self._leads():
                self._report(now_s)

            return is_late

        # The next turn applies nothing and plans, so that no stream of messages keeps plans off.
        is_long = applied > MESSAGES_BESIDE_A_PLAN or (applied > 0 and self._took_long(began_s))
        self._plan_is_next = is_late or is_long
        if not self._plan_is_next:
            self._prepare(now_s)
            self._is_prepared = True

        return True

    def _drop_steps(self) -> None:
        """The next turn begins anew."""
        self._is_prepared = False
        self._given = None
        self._planned = None

    def _took_long(self, began_s: float) -> bool:
        """Whether a turn has taken so long that the next step is the next turn's."""
        return self._ports.clock.now_s() > began_s + NEXT_STEP_WITHIN_S

    def _prepare(self, now_s: float) -> None:
        """Do what comes before a plan, and carry it out."""
        prepared = prepare(
            self._state,
            now_s,
            self._ports.clock.wall_s(),
            most_new=READ_BESIDE_A_PLAN,
        )
        overruns_told = sum(
            record_event.reason is EventReason.OVERRUN for record_event in prepared.overruns
        )
        self._metrics.reservations.overruns.inc(overruns_told)

        # Before the plan, which these binds and evictions need not wait for.
        self._carry_out(prepared.actions)

    def _commit(self, planned: Planned | None, now_s: float) -> None:
        """Commit a plan, if one was made, and report."""
        if planned is not None:
            self._decide(planned, now_s)

        for start in self._state.waits.take_started():
            self._metrics.gangs.started(start)

        for heal in self._state.waits.take_healed():
            self._metrics.gangs.healed(heal, self._ports.clock.wall_s())

        self._report(now_s, is_after_plan=planned is not None)
        if (counts := self._state.preemptions.nominations.journal.take_counts()) is not None:
            self._metrics.preemption.add(counts)

    def _reads_ahead(self, now_s: float) -> bool:
        """Read some of what changed where that is too much for a turn with a plan; whether it was.

        A standby reads as well, so that its first plan after a failover need not read everything at
        once.
        """
        state = self._state
        is_late = state.registry.exceeds(READ_BESIDE_A_PLAN, with_new=not self._plan_is_next)
        if is_late or not self._decides():
            state.refresh(now_s, in_turn=False, most=READ_PER_TURN)

        wall_s = self._ports.clock.wall_s()
        if state.reservations.is_behind(wall_s):
            state.reservations.catch_up(wall_s)
            is_late = True

        return is_late

    def _report(self, now_s: float, *, is_after_plan: bool = False) -> None:
        """Hand out the reports that are due."""
        reports = self._state.take_reports(
            now_s=now_s,
            wall=self._ports.clock.wall(),
            is_after_plan=is_after_plan,
        )
        for report in reports:
            self._tell(report)

    async def listen(self) -> None:
        """After `stop`: apply messages until cancelled, because binds in flight still check their
        nodes (B2).
        """
        while True:
            self._wake.clear()
            self._take_in()

            if not self._messages:
                await self._wake.wait()

            await asyncio.sleep(TURN_EVERY_S)

    def drain(self) -> None:
        """After `stop`: apply the last outcomes and hand out all pending reports."""
        while self._messages:
            self._take_in()

        clock = self._ports.clock
        self._state.bulkhead.run(
            FaultPlace.TURN,
            lambda: self._state.refresh(clock.now_s()),
            None,
            clock.now_s(),
        )

        for report in self._state.take_reports(
            now_s=clock.now_s(),
            wall=clock.wall(),
            everything=True,
        ):
            self._tell(report)

    def _decides(self) -> bool:
        """Whether decisions are made. A leader that is paused reads, as a standby does."""
        return self._leads() and not self._state.orders.paused

    def _take_in(self) -> int:
        """Apply a bounded number of messages, so that health and binds are served in between;
        returns how many.
        """
        clock = self._ports.clock
        applied = 0
        answers: Counter[type] = Counter()
        now_s = clock.now_s()

        for _ in range(min(len(self._messages), MESSAGES_PER_TURN)):
            if applied % MESSAGES_BETWEEN_LOOKS == 0 and clock.now_s() > now_s + APPLY_AT_MOST_S:
                break

            message = self._messages.popleft()
            applied += 1

            if type(message) in BIND_RESULTS:
                answers[type(message)] += 1

            for event in self._state.apply(message, now_s=now_s):
                if event.reason == EventReason.SET_ASIDE:
                    self._log.error(event.message)

                self._tell(event)

        for answer, number in answers.items():
            self._metrics.binds[BIND_RESULTS[answer]].inc(number)

        return applied

    def _input(self) -> PlanInput | None:
        """What the next plan is made from; None if nothing is ready."""
        clock = self._ports.clock
        return plan_input(self._state, clock.now_s(), clock.wall_s())

    def _plan(self, given: PlanInput) -> Planned | None:
        """Plan what is ready."""
        clock = self._ports.clock
        return make_plan(
            self._state,
            given,
            clock.now_s(),
            limits=self._limits,
            clock=clock.now_s,
        )

    def _decide(self, planned: Planned, now_s: float) -> None:
        """Commit a plan, and carry it out."""
        decided = commit_plan(self._state, planned, now_s)
        self.audit.plan += 1
        self._carry_out(decided.actions)
        self.audit.planned(decided.plan)
        self._count(decided.plan, decided.took_s)
        self._metrics.reservations.planned(
            decided.plan,
            decided.given.queue,
            decided.given.snapshot,
            wall_s=self._ports.clock.wall_s(),
            policy=self._state.registry.policy,
        )

    def _carry_out(self, actions: Sequence[Action]) -> None:
        # Binds first: reports and nominations of the same turn wait for pauses between them anyway.
        if binds := [action for action in actions if isinstance(action, BindOrder)]:
            self._ports.binds.submit(binds)

        self.audit.ordered(actions)
        for action in actions:
            if isinstance(action, PreemptionOrder):
                self._ports.preempt(action)
            elif isinstance(action, ProvisioningOrder):
                self._ports.provision(action)
            elif not isinstance(action, BindOrder):
                self._tell(action)

    def _tell(self, report: Report) -> None:
        """Hand out a report; an Event about a gang is an entry of the audit trail as well."""
        if isinstance(report, RecordEvent):
            self.audit.reported(report)

        self._ports.tell(report)

    def _count(self, proposal: Plan, planned_s: float) -> None:
        """Metrics and at most one log line per cycle that did something."""
        metrics = self._metrics
        metrics.cycles.inc()
        metrics.cycle_seconds.observe(planned_s)
        metrics.plan_pods.inc(proposal.pods_tried)

        for verdict in proposal.verdicts:
            metrics.verdicts[verdict.reason].inc()
            if verdict.round is not None:
                metrics.rounds[verdict.round.outcome].inc()

        moved = [
            verdict
            for verdict in proposal.verdicts
            if verdict.binds or verdict.holds or verdict.releases
        ]
        if moved:
            # Orders: whether the binds succeed is in the audit trail, once each is answered.
            self._log.info(
                "planned",
                plan=self.audit.plan,
                groups=len(proposal.verdicts),
                binds_ordered=sum(len(verdict.binds) for verdict in moved),
                holds=sum(len(verdict.holds) for verdict in moved),
                releases=sum(len(verdict.releases) for verdict in moved),
                ms=round(planned_s * 1e3, 2),
                left=len(proposal.left),
            )

    def _look_ahead(self) -> None:
        """Read now, while nothing is to be done, what the next plan asks of all nodes."""
        now_s = self._ports.clock.now_s()
        if self._ready() and now_s >= self._looked_ahead_s + LOOK_AHEAD_EVERY_S:
            self._looked_ahead_s = now_s
            look_ahead(self._state.cluster.table(), self._state.registry.policy)

    async def _sleep(self) -> None:
        """Sleep until a message comes or something is due."""
        # A standby has no deadlines: what is due is decided by the leader.
        leads = self._ready() and self._leads()
        deadline_s = self._deadline_s(self._ports.clock.now_s()) if leads else None
        delay_s = None if deadline_s is None else max(0.0, deadline_s - self._ports.clock.now_s())

        try:
            async with asyncio.timeout(delay_s):
                await self._wake.wait()
        except TimeoutError:
            return


def spacing_s(*, busy: bool, took_s: float) -> float:
    """Minimum time from the start of a turn that took `took_s` to the start of the next one."""
    if busy:
        return TURN_EVERY_S

    return min(max(TIMES_A_TURN * took_s, SOONEST_S), TURN_EVERY_S)
