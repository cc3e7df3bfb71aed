"""A turn: preparations, the plan and its commit, in the same order for all callers.

Invariant: the daemon's loop, `gangsched simulate` and the tests' `World` share this code, so that
no caller leaves out a step or an argument. The caller reads the clocks and carries out the actions:

1. Bind members whose claims are bound. 2. Report pods that have run longer than declared, and look
   once for what an earlier process wrote late. 3. Update the queue. 4. Apply
the API server's answers to nominations, and restore the nominations of an earlier process. 5. Plan
the ready groups. 6. Commit on exactly the state that the plan was made from.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import msgspec
from msgspec import structs

from gangsched.core.cycle import Limits, plan
from gangsched.core.plan_cache import PlanCache
from gangsched.model.fault import AtWork, FaultPlace
from gangsched.model.gang import namespace_of
from gangsched.model.gpu_policy import GpuPolicy
from gangsched.model.plan import Plan, PlanInput
from gangsched.model.protocol import Action, RecordEvent
from gangsched.state.broken_deadlocks import all_fit
from gangsched.state.scheduling import SchedulingState

MOST_FAULTS: Final = 8
"""Groups that may raise in one turn, so that it stays short."""
FAULTS_A_NAMESPACE: Final = 3
"""After as many, the groups of a namespace are left to the next turn."""


class Prepared(msgspec.Struct, frozen=True):
    """Actions of steps 1 to 4; `overruns` are the Events among them about pods that have run longer
    than declared.
    """

    actions: list[Action]
    overruns: list[RecordEvent]


class Planned(msgspec.Struct, frozen=True):
    """A plan that is not committed yet, its input, and its duration."""

    given: PlanInput
    plan: Plan
    took_s: float


class Decided(msgspec.Struct, frozen=True):
    """A committed plan: its input, the actions that carry it out, and its duration."""

    given: PlanInput
    plan: Plan
    actions: list[Action]
    took_s: float


def prepare(
    state: SchedulingState,
    now_s: float,
    wall_s: float,
    *,
    most_new: float = math.inf,
) -> Prepared:
    """Do steps 1 to 4; `most_new` limits the work for new gangs, in units of `Registry.refresh`."""
    state.bulkhead.begin_turn(now_s)
    if state.bulkhead.is_skipped:
        return Prepared([], [])

    run = partial(state.bulkhead.run, FaultPlace.TURN)
    none: list[Any] = []
    claims = run(lambda: state.claims_due(now_s), none, now_s)
    overruns = run(lambda: state.overruns.due(now_s, wall_s), none, now_s)

    # Before the refresh: room that members to come no longer need may wake parked groups.
    run(lambda: state.coming.due(now_s, wall_s), None, now_s)
    # Before it, too: gangs whose pods store what they were not told are read again.
    late = run(lambda: state.late_writes.due(now_s), none, now_s)
    run(lambda: state.refresh(now_s, most_new=most_new), None, now_s)
    # After it, for which gangs ask that is known then, also after a restart.
    struck = run(lambda: state.bad_nodes.due(now_s, wall_s), none, now_s)
    nominations = run(lambda: state.preemptions.due(now_s, wall_s), none, now_s)
    run(lambda: state.reservations.read_ends(wall_s), None, now_s)
    run(lambda: _look_for_deadlock(state, now_s), None, now_s)
    provisioning = run(lambda: state.asks.due(now_s, wall_s), none, now_s)
    events = (*state.coming.take_events(), *state.pod_gangs.owners.take_events())
    actions = [*overruns, *struck, *events, *state.bulkhead.take_actions()]

    return Prepared([*claims, *nominations, *late, *provisioning, *actions], overruns)


def _look_for_deadlock(state: SchedulingState, now_s: float) -> None:
    """Answer one question about running gangs that may wait for each other's room (D2)."""
    question = state.deadlocks.question(now_s)
    if question is None:
        return

    # Nobody preempts here, and nothing is reserved: what counts is the room that the other holds.
    given = PlanInput(
        snapshot=question.snapshot,
        queue=(question.group,),
        without=question.gone,
    )
    proposal = plan_of(given, now_s, limits=None, policy=state.registry.policy)
    fits = all_fit(question.group, proposal.verdicts)
    state.deadlocks.answer(question, fits=fits, now_s=now_s)


def plan_and_commit(
    state: SchedulingState,
    now_s: float,
    wall_s: float,
    *,
    limits: Limits | None,
    clock: Callable[[], float] = lambda: 0.0,
) -> Decided | None:
    """Do steps 5 and 6; None if there is nothing to decide. `clock` measures the plan, for metrics
    and back-offs.
    """
    given = plan_input(state, now_s, wall_s)
    if given is None:
        return None

    planned = make_plan(state, given, now_s, limits=limits, clock=clock)
    return commit_plan(state, planned, now_s) if planned is not None else None


def plan_input(state: SchedulingState, now_s: float, wall_s: float) -> PlanInput | None:
    """What step 5 is made from; None if there is nothing to decide."""
    bulkhead = state.bulkhead
    if bulkhead.is_skipped:
        return None

    given = bulkhead.run(FaultPlace.TURN, lambda: state.plan_input(now_s, wall_s), None, now_s)
    if given is None:
        bulkhead.went_well()

    return given


def make_plan(
    state: SchedulingState,
    given: PlanInput,
    now_s: float,
    *,
    limits: Limits | None,
    clock: Callable[[], float] = lambda: 0.0,
) -> Planned | None:
    """Do step 5 with its input, of the state as it is; None if no plan can be made.

    The work that this turn has spent on nominations and on ordering groups reduces the plan's limit
    of work, unless the plan continues an unfinished group, which may need the whole limit.
    """
    limits = limits or Limits()
    limits = structs.replace(limits, groups=min(limits.groups, given.most_groups))
    if given.unfinished is None:
        # At least half: a turn that spends its work on nominations must still decide groups.
        limits = structs.replace(
            limits,
            work=max(limits.work // 2, limits.work - state.preemptions.work - state.batches.units),
        )

    began_s = clock()
    planned = _Planning(state, now_s, limits, clock=clock, began_s=began_s).plan(given)
    if planned is None:
        return None

    given, proposal = planned
    return Planned(given, proposal, clock() - began_s)


def commit_plan(state: SchedulingState, planned: Planned, now_s: float) -> Decided:
    """Do step 6, with nothing applied since the plan was made."""
    actions = state.bulkhead.run(
        FaultPlace.COMMIT,
        lambda: state.commit(planned.plan, planned.given.snapshot, now_s=now_s),
        list[Action](),
        now_s,
    )
    state.bulkhead.went_well()

    return Decided(planned.given, planned.plan, actions, planned.took_s)


@dataclass(slots=True)
class _Planning:
    """Plans without the groups that raise: each is set aside, and the plan is made again (I10)."""

    state: SchedulingState
    now_s: float
    limits: Limits
    clock: Callable[[], float]
    #: What `clock` said when the first attempt began.
    began_s: float
    #: By namespace, the groups that raised in this turn.
    _failed: Counter[str] = field(default_factory=Counter)

    def plan(self, given: PlanInput) -> tuple[PlanInput, Plan] | None:
        """The plan, and the input without the groups that raised; None if none was made in this
        turn.
        """
        while True:
            try:
                return given, self._attempt(given)
            except Exception as error:
                culprit = self._culprit(given, error)
                self.state.plan_failed()

                if not culprit:
                    self.state.bulkhead.shared(error, FaultPlace.PLAN, self._failed_s())
                    return None

                self.state.bulkhead.set_aside(
                    culprit,
                    error,
                    FaultPlace.PLAN,
                    self.now_s,
                    failed_s=self._failed_s(),
                )

            given = self._without(given, culprit)
            if self._failed.total() > MOST_FAULTS or all(group.unchanged for group in given.queue):
                self.state.bulkhead.is_behind = True
                return None

    def _failed_s(self) -> float:
        """The time now, on the clock of the turn's `now_s`.

        A plan may run for seconds before it is stopped: a back-off from the start of the turn would
        be over by then.
        """
        return self.now_s + self.clock() - self.began_s

    def _attempt(self, given: PlanInput) -> Plan:
        # Nothing that raised is rolled back: the next attempt has a ledger of its own, and no
        # caches of this one.
        at_work = self.state.bulkhead.at_work
        at_work.begin()

        try:
            return plan_of(
                given,
                self.now_s,
                limits=self.limits,
                policy=self.state.registry.policy,
                cache=self.state.plan_cache(),
                at_work=at_work,
            )
        finally:
            at_work.end()

    def _without(self, given: PlanInput, culprit: str) -> PlanInput:
        """The input without a group, and without namespaces of which several failed in this turn.

        Else whoever has thousands of such groups would keep everybody else waiting for as many
        attempts.
        """
        self._failed[namespace_of(culprit)] += 1
        many = set()

        for namespace, number in self._failed.items():
            if number >= FAULTS_A_NAMESPACE:
                many.add(namespace)

        queue = []
        for group in given.queue:
            if group.id != culprit and many.isdisjoint(group.namespaces):
                queue.append(group)

        unfinished = (
            given.unfinished
            if given.unfinished is not None and given.unfinished.group != culprit
            else None
        )
        return structs.replace(given, queue=tuple(queue), unfinished=unfinished)

    def _culprit(self, given: PlanInput, error: Exception) -> str:
        """The group at which the plan raised; if it was at none, the one without which it does not,
        "" if any does.

        Found by halves: of the first n groups in order, the plan of n raises and that of n - 1 does
        not.
        """
        at_work = self.state.bulkhead.at_work
        if at_work.group:
            return at_work.group

        good = -1
        bad = len(given.queue)
        while bad - good > 1:
            middle = (good + bad) // 2
            try:
                self._attempt(structs.replace(given, queue=given.queue[:middle]))
            except Exception:
                if at_work.group:
                    return at_work.group

                bad = middle
            else:
                good = middle

            self.state.plan_failed()

        # Raises with no group at all: only what the exception itself was about can tell.
        if bad > 0:
            return given.queue[good].id

        return self.state.bulkhead.culprit(error)


def plan_of(
    given: PlanInput,
    now_s: float,
    *,
    limits: Limits | None,
    policy: GpuPolicy | None,
    cache: PlanCache | None = None,
    at_work: AtWork | None = None,
) -> Plan:
    """Make the plan for this input."""
    return plan(
        given.snapshot,
        given.queue,
        now_s=now_s,
        limits=limits,
        policy=policy,
        reserving=given.reserving,
        preempting=given.preempting,
        looked_at=given.looked_at,
        unfinished=given.unfinished,
        without=given.without,
        fenced=given.fenced,
        cache=cache,
        at_work=at_work,
    )
