"""A turn: preparations, the plan and its commit, in the same order for all callers.

Invariant: the daemon's loop, `gangsched simulate` and the tests' `World` share this code, so that no caller leaves out
a step or an argument. The caller reads the clocks and carries out the actions:

1. Bind members whose claims are bound. 2. Report pods that have run longer than declared. 3. Update the queue. 4. Apply
the API server's answers to nominations, and restore the nominations of an earlier process. 5. Plan the ready groups. 6.
Commit on exactly the state that the plan was made from.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from gangsched.core.cycle import Limits, plan
from gangsched.core.plan_cache import PlanCache
from gangsched.model.gpu_policy import GpuPolicy
from gangsched.model.plan import Plan, PlanInput
from gangsched.model.protocol import Action, RecordEvent
from gangsched.state.scheduling import SchedulingState


@dataclass(frozen=True, slots=True)
class Prepared:
    """Actions of steps 1 to 4; `overruns` are the Events among them about pods that have run longer than declared."""

    actions: list[Action]
    overruns: list[RecordEvent]


@dataclass(frozen=True, slots=True)
class Decided:
    """A committed plan: its input, the actions that carry it out, and its duration."""

    given: PlanInput
    plan: Plan
    actions: list[Action]
    took_s: float


def prepare(state: SchedulingState, now_s: float, wall_s: float, *, most_new: float = math.inf) -> Prepared:
    """Do steps 1 to 4; `most_new` limits the work for new gangs, in units of `Registry.refresh`."""
    claims = state.claims_due(now_s)
    overruns = state.overruns.due(now_s, wall_s)
    # Before the refresh: room that members to come no longer need may wake parked groups.
    state.coming.due(now_s, wall_s)
    state.refresh(now_s, most_new=most_new)
    nominations = state.preemptions.due(now_s, wall_s)
    return Prepared([*claims, *nominations, *overruns, *state.coming.take_events()], overruns)


def plan_and_commit(
    state: SchedulingState,
    now_s: float,
    wall_s: float,
    *,
    limits: Limits | None,
    clock: Callable[[], float] = lambda: 0.0,
) -> Decided | None:
    """Do steps 5 and 6; None if there is nothing to decide. `clock` measures the plan, for metrics.

    The work that this turn has spent on nominations and on ordering groups reduces the plan's limit of work, unless the
    plan continues an unfinished group, which may need the whole limit.
    """
    given = state.plan_input(now_s, wall_s)
    if given is None:
        return None
    limits = limits or Limits()
    if given.unfinished is None:
        # At least half: a turn that spends its work on nominations must still decide groups.
        limits = replace(limits, work=max(limits.work // 2, limits.work - state.preemptions.work - state.batches.units))
    began_s = clock()
    proposal = plan_of(given, now_s, limits=limits, policy=state.registry.policy, cache=state.plan_cache())
    took_s = clock() - began_s
    return Decided(given, proposal, state.commit(proposal, given.snapshot, now_s=now_s), took_s)


def plan_of(
    given: PlanInput, now_s: float, *, limits: Limits | None, policy: GpuPolicy | None, cache: PlanCache | None = None
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
        cache=cache,
    )
