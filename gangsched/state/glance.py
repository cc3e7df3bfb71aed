"""What would become of a group now, and what room is left for it: the input of a plan that decides
nothing (PlacementReviews), and a ledger (the best domains).

Invariant: reads the state and changes nothing.
"""

from __future__ import annotations

from msgspec import structs

from gangsched.core.plan_cache import PlanCache
from gangsched.core.reserve import Ledger
from gangsched.model.gang import Group
from gangsched.model.plan import PlanInput
from gangsched.model.snapshot import Snapshot
from gangsched.state.scheduling import SchedulingState


def glance_input(
    state: SchedulingState,
    group: Group,
    now_s: float,
    wall_s: float,
) -> PlanInput:
    """Input of a plan of `group`.

    A group that is part of the state is planned with its own reservation and nomination, and any
    other one as if it had just come.
    """
    lowest = group.lowest_priority
    woken = set()
    for group_id in state.preemptions.woken_by(lowest) - {group.id}:
        if not state.queue.backs_off(group_id, now_s):
            woken.add(group_id)

    preempting = state.preemptions.input((group.id, *woken), wall_s)
    if preempting is not None:
        waiting = preempting.lowest_waiting
        preempting = structs.replace(
            preempting,
            lowest_waiting=lowest if waiting is None else min(waiting, lowest),
        )

    others = [state.registry.group(group_id, now_s) for group_id in sorted(woken)]
    in_turn = woken | {group.id}
    holders = state.holds.beside(in_turn, now_s)
    return PlanInput(
        snapshot=state.snapshot(),
        queue=(group, *others, *holders),
        reserving=state.reservations.glance(now_s, wall_s, in_turn),
        preempting=preempting,
        fenced=state.asks.fenced(now_s),
    )


def glance_ledger(state: SchedulingState, snapshot: Snapshot, now_s: float) -> Ledger:
    """The room of a snapshot, without the nodes that an autoscaler added for other groups (E10)."""
    ledger = Ledger(snapshot, policy=state.registry.policy, counts=state.cluster.counts)
    ledger.promises.fence(state.asks.fenced(now_s), snapshot.table)
    return ledger


def glance_cache(state: SchedulingState) -> PlanCache:
    """Results of earlier plans for the plan of `glance_input`; reservations are not cached."""
    return PlanCache(state.cluster.counts, state.preemptions.running.cache)
