"""What is told of preemption: where a group is nominated, or why nobody is evicted for it (V20, V21)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import assert_never

from gangsched.api.timestamps import format_timestamp
from gangsched.model.gang import Placement, Refusal
from gangsched.model.preemption import NotHelpful, Obstacle
from gangsched.model.reasons import Reason
from gangsched.model.resources import format_quantity
from gangsched.model.text import counted


def nominated(placements: Sequence[Placement], *, pods: int, gangs: int, deadline_s: int, wall_s: int) -> Refusal:
    """Told of a group for which room is made; `pods` must go first, of so many `gangs`, 0 if some are of none."""
    nodes = sorted({placement.node for placement in placements})
    more = f" and {counted(len(nodes) - 1, 'more node')}" if len(nodes) > 1 else ""
    of_gangs = f" of {counted(gangs, 'gang')}" if gangs else ""
    waiting = f"waiting for {counted(pods, 'pod')}{of_gangs} to end, until {_until(deadline_s, wall_s)} at the latest"
    return Refusal(Reason.PREEMPTING, f"nominated to {nodes[0]}{more}", waiting)


def with_obstacle(told: Refusal, why: NotHelpful) -> Refusal:
    """The refusal, which ends with why preemption does not help; one that can never fit needs no such reason."""
    if told.never and why.why is Obstacle.NOTHING_LOWER:
        return told
    sentence = f"{_sentence(why)}." if why.why is Obstacle.DELAYED else f"Preemption: {_sentence(why)}."
    return replace(told, now=f"{told.now.rstrip()} {sentence}" if told.now else sentence)


def _sentence(why: NotHelpful) -> str:
    match why.why:
        case Obstacle.NOTHING_LOWER:
            weakest = f" than {why.amount}, the priority of its member {why.name}," if why.name else ""
            return f"no pods of lower priority{weakest} run on eligible nodes"
        case Obstacle.TOO_LITTLE:
            room = f"room for only {why.room} of {why.needed}"
            return f"evicting {_all(why.pods)} of lower priority would make {room}" if why.pods else f"there is {room}"
        case Obstacle.BUDGET:
            budget = f"PodDisruptionBudget {why.name}" if why.name else "a PodDisruptionBudget of another namespace"
            return f"{budget} allows {why.allowed} of {counted(why.needed, 'eviction')}"
        case Obstacle.POLICY_NEVER:
            return "not allowed by preemptionPolicy Never"
        case Obstacle.TOO_YOUNG:
            verb = "has" if why.pods == 1 else "have"
            return f"{counted(why.pods, 'gang')} {verb} run for less than {_duration(why.seconds)} (preempt_min_run_s)"
        case Obstacle.OTHER_SCHEDULERS:
            amount = f"{format_quantity(why.name, why.amount)} {why.name}"
            return f"{amount} are used by lower-priority pods of other schedulers, which are not preempted"
        case Obstacle.BACK_OFF:
            return f"next attempt in {_duration(why.seconds)}"
        case Obstacle.DELAYED:
            return f"The group preempts no pods before {_moment(why.amount)} (preemption-delay {why.name})"
        case Obstacle.FORBIDDEN:
            return f"off, because a permission is missing: {why.name.rstrip('.')}"
        case Obstacle.TOO_MANY:
            return f"{counted(why.pods, 'pod')} would have to be evicted, and at most {why.needed} may be for one gang"
        case Obstacle.LATER:
            return "still being evaluated"
    assert_never(why.why)


def _all(pods: int) -> str:
    return "the 1 pod" if pods == 1 else f"all {pods} pods"


def _duration(seconds: int) -> str:
    """As Go writes it: `30s`, `10m0s`, `1h0m0s`."""
    hours, rest = divmod(seconds, 3600)
    if hours:
        return f"{hours}h{rest // 60}m{rest % 60}s"
    return f"{rest // 60}m{rest % 60}s" if rest >= 60 else f"{rest}s"


def short_duration(seconds: float) -> str:
    """As users write it: `30s`, `5m`, `1h30m`, without parts that are 0; parts of a second stay."""
    whole, rest = divmod(seconds, 60)
    hours, minutes = divmod(int(whole), 60)
    parts = [f"{amount:g}{unit}" for amount, unit in ((hours, "h"), (minutes, "m"), (round(rest, 3), "s")) if amount]
    return "".join(parts) or "0s"


def _moment(epoch_s: int) -> str:
    """The time of day in UTC, without seconds where they are 0."""
    clock = _clock(epoch_s)
    return f"{clock.removesuffix(':00')}Z"


def _until(epoch_s: int, wall_s: int) -> str:
    """The time of day in UTC; with its date where that is not today."""
    return _clock(epoch_s) if epoch_s // 86_400 == wall_s // 86_400 else format_timestamp(epoch_s)


def _clock(epoch_s: int) -> str:
    """The time of day in UTC."""
    return f"{epoch_s // 3600 % 24:02}:{epoch_s // 60 % 60:02}:{epoch_s % 60:02}"
