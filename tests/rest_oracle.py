"""Who sleeps though a plan from scratch would place it or make room for it: the oracle of wake-ups
(Q3, V25).

Invariant: asking changes nothing that a plan decides on. All that waits is planned at once, on what
is known now, and nothing that was found of a group in an earlier plan is believed; a search for
victims is brought to its end. What may keep a group asleep all the same are rules, each with its
end; the next turn that is due for it plans the group again:

- its binds fail, and it backs off (Q3);
- its PodGroup may be on its way (P1);
- its nomination is under way, and what it could hold early is promised to it anyway (V11, V16), or
  the next one may not come yet (V12);
- preemptors are examined once a second at most, 16 of them, and of those that ask the same the
  first (V25);
- its victims have not run for long enough (V5);
- others are held back for it, or it is held back for others (V27);
- room is reserved, for it or for others; reservations are made anew at most once a second (H8,
  H17);
- its group yielded, timed out or lacks members (D1, T3, P1);
- the wall clock has jumped, which the next turn notices.

All of them but the first two and the last are in what a plan is given, so that the plan asked here
keeps them by itself.
"""

from __future__ import annotations

import math
from collections.abc import Set

from msgspec import structs

from gangsched.core.cycle import Limits, plan
from gangsched.model.gang import Group
from gangsched.model.gpu_policy import GpuPolicy
from gangsched.model.plan import Verdict
from gangsched.model.preemption import NotHelpful, Obstacle, Preemption
from gangsched.state.scheduling import SchedulingState
from gangsched.state.timers import JUMP_S

EVERYTHING = Limits(groups=100_000, pods=1_000_000, work=10**12)
MOST_PLANS = 20
"""The last rounds of a search for victims are in one of so many plans."""


def sleepers(
    state: SchedulingState, now_s: float, wall_s: float, policy: GpuPolicy | None = None
) -> list[str]:
    """The groups that sleep wrongly, and what a plan would do with them; to be asked when no turn
    is due.
    """
    if abs(wall_s - now_s - state.preemptions.nominations.offset_s) >= JUMP_S:
        return []
    groups = [state.registry.group(group_id, now_s) for group_id in sorted(state.registry.groups)]
    examines = state.queue.preemptors.next_deadline_s() < math.inf
    held_back = state.preemptions.holding_back.now()
    unexamined = held_back.group if examines and held_back is not None else ""
    waiting = [
        group
        for group in groups
        if any(gang.waiting for gang in group.gangs)
        and not state.queue.backs_off(group.id, now_s)
        and not state.registry.awaits_pod_group(group.id)
        and group.id != unexamined
    ]
    nominated = {record.group for record in state.preemptions.nominations.all()}
    found = _found(state, waiting, nominated, now_s, wall_s, policy)
    others = [group for group in waiting if group.id not in nominated]
    if found and len(others) < len(waiting):
        # What one that sleeps by its nomination could hold elsewhere leaves room to others only
        # when it does: until then all of its promises are kept (V11, V16).
        beside = _found(state, others, nominated, now_s, wall_s, policy)
        found = {
            group_id: text
            for group_id, text in found.items()
            if group_id in nominated or group_id in beside
        }
    return [*found.values()]


def _found(
    state: SchedulingState,
    waiting: list[Group],
    nominated: Set[str],
    now_s: float,
    wall_s: float,
    policy: GpuPolicy | None,
) -> dict[str, str]:
    """By group, what a plan of these would do."""
    if not waiting:
        return {}
    examines = state.queue.preemptors.next_deadline_s() < math.inf
    # Whose room of unbound members yields to a higher priority, though they wait for no room.
    beside = [*state.holds.beside({group.id for group in waiting}, now_s)]
    preempting = state.preemptions.input((group.id for group in waiting), wall_s)
    if preempting is not None:
        preempting = structs.replace(preempting, known={}, overdue=state.overdue.heads)
    for _ in range(MOST_PLANS):
        proposal = plan(
            state.snapshot(),
            [*waiting, *beside],
            now_s=now_s,
            limits=EVERYTHING,
            policy=policy,
            reserving=state.reservations.glance(now_s, wall_s, {group.id for group in waiting}),
            preempting=preempting,
        )
        later = {
            verdict.group: left
            for verdict in proposal.verdicts
            if (left := _unfinished(verdict)) is not None
        }
        if preempting is None or not later:
            break
        preempting = structs.replace(preempting, known=later)
    # Who gives up room to one that preempts does so when that one is examined.
    gives_up_later = examines and any(
        isinstance(verdict.preemption, Preemption) for verdict in proposal.verdicts
    )
    found = {}
    for verdict in proposal.verdicts:
        done = [
            f"{name} {sorted((each.pod.name, each.node) for each in placed)}"
            for name, placed in (("binds", verdict.binds), ("holds", verdict.holds))
            if placed and (name == "binds" or verdict.group not in nominated)
        ]
        if verdict.releases and (verdict.yields_to or not gives_up_later):
            done.append(f"releases {sorted(verdict.releases)}")
        if isinstance(verdict.preemption, Preemption) and not examines:
            victims = sorted(each.name for each in verdict.preemption.victims)
            done.append(
                f"preempts {victims} of"
                f" {sorted((e.pod.name, e.node) for e in verdict.preemption.placements)}"
            )
        if done:
            found[verdict.group] = f"{verdict.group} sleeps, and a plan {' and '.join(done)}"
    return found


def _unfinished(verdict: Verdict) -> NotHelpful | None:
    """What a search for victims has come to that takes more rounds than one plan has (V25)."""
    found = verdict.preemption
    return found if isinstance(found, NotHelpful) and found.why is Obstacle.LATER else None
