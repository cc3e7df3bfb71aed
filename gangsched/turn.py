"""A turn: what is done before a plan, the plan, and its commit, in the one order that everybody shares who plans.

Invariant: the daemon's loop, `gangsched simulate` and the tests' `World` take their turns here, so that none can leave
out a step or an argument that another one has. Reading clocks and carrying actions out is left to the caller:

1. Binds of members whose claims are bound now. 2. Pods that ran longer than stated. 3. The queue is brought up to date.
4. Nominations: what the API server has answered, and what is left of an earlier process. 5. A plan of the groups that
are ready. 6. Its commit on exactly the state that it was made from.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gangsched.core.cycle import Limits, plan
from gangsched.model.gpu_policy import GpuPolicy
from gangsched.model.plan import Plan, PlanInput
from gangsched.model.protocol import Action, RecordEvent
from gangsched.state.scheduling import SchedulingState


@dataclass(frozen=True, slots=True)
class Prepared:
    """The actions of steps 1 to 4; `overruns` are the Events among them about pods that ran longer than stated."""

    actions: list[Action]
    overruns: list[RecordEvent]


@dataclass(frozen=True, slots=True)
class Decided:
    """A plan that is committed: what it was made from, the actions that carry it out, and how long it took."""

    given: PlanInput
    plan: Plan
    actions: list[Action]
    took_s: float


def prepare(state: SchedulingState, now_s: float, wall_s: float) -> Prepared:
    """Steps 1 to 4."""
    claims = state.claims_due(now_s)
    overruns = state.overruns.due(now_s, wall_s)
    state.refresh(now_s)
    nominations = state.preemptions.due(now_s, wall_s)
    return Prepared([*claims, *nominations, *overruns], overruns)


def plan_and_commit(
    state: SchedulingState,
    now_s: float,
    wall_s: float,
    *,
    limits: Limits | None,
    policy: GpuPolicy | None,
    clock: Callable[[], float] = lambda: 0.0,
) -> Decided | None:
    """Steps 5 and 6; None if nothing is to be decided. `clock` measures the plan, for metrics."""
    given = state.plan_input(now_s, wall_s)
    if given is None:
        return None
    began_s = clock()
    proposal = plan_of(given, now_s, limits=limits, policy=policy)
    took_s = clock() - began_s
    return Decided(given, proposal, state.commit(proposal, given.snapshot, now_s=now_s), took_s)


def plan_of(given: PlanInput, now_s: float, *, limits: Limits | None, policy: GpuPolicy | None) -> Plan:
    """The plan of all that is given."""
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
    )
