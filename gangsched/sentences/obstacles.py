"""Sentences about why preemption does not help a group (semantics V21).

Invariant: every obstacle has a sentence (`SENTENCES`); a name is told only where the fact has it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final

from gangsched.model.preemption import NotHelpful, Obstacle
from gangsched.model.resources import format_quantity
from gangsched.model.text import counted
from gangsched.sentences.times import by
from gangsched.sentences.words import EQUAL


@lru_cache(maxsize=EQUAL)
def obstacle(why: NotHelpful) -> str:
    """Why preemption does not help."""
    sentence = SENTENCES[why.why](why)
    return f"{sentence}." if why.why is Obstacle.DELAYED else f"Preemption: {sentence}."


def _nothing_lower(why: NotHelpful) -> str:
    weakest = f" than {why.amount}, the priority of its member {why.name}," if why.name else ""
    return f"no pods of lower priority{weakest} run on eligible nodes"


def _too_little(why: NotHelpful) -> str:
    if not why.pods:
        return f"there is room for at most {why.room} of {why.needed}"
    if why.room >= why.needed:
        pods = counted(why.pods, "pod")
        for_all = f"that makes room for all {why.needed}"
        return f"no choice among the {pods} of lower priority was found {for_all}"

    room = f"room for at most {why.room} of {why.needed}"
    if not why.room:
        room = f"no room for any of the {why.needed}"

    return f"evicting {_all(why.pods)} of lower priority would make {room}"


def _budget(why: NotHelpful) -> str:
    budget = (
        f"PodDisruptionBudget {why.name}"
        if why.name
        else "a PodDisruptionBudget of another namespace"
    )
    allows = f"{budget} allows {why.allowed} of {counted(why.needed, 'eviction')}"
    if not why.pods:
        return allows

    # Another choice may break no budget.
    pods = counted(why.pods, "pod")
    return f"no choice among the {pods} of lower priority was found that budgets allow; {allows}"


def _policy_never(_: NotHelpful) -> str:
    return "not allowed by preemptionPolicy Never"


def _too_young(why: NotHelpful) -> str:
    they = "it has" if why.pods == 1 else "they have"
    ran = f"{they} run for less than {_duration(why.seconds)} (preempt_min_run_s)"
    return f"{counted(why.pods, 'gang')} cannot be preempted yet: {ran}"


def _other_schedulers(why: NotHelpful) -> str:
    amount = f"{format_quantity(why.name, why.amount)} {why.name}"
    return f"{amount} are used by lower-priority pods of other schedulers, which are not preempted"


def _back_off(why: NotHelpful) -> str:
    return f"next attempt in {_duration(why.seconds)}"


def _delayed(why: NotHelpful) -> str:
    because = "an autoscaler may add nodes for it"
    if why.delay_s:
        because = f"preemption-delay {short_duration(why.delay_s)}"

    return f"The group preempts no pods before {by(why.amount)} ({because})"


def _forbidden(why: NotHelpful) -> str:
    return f"off, since {why.name.rstrip('.')}"


def _too_many(why: NotHelpful) -> str:
    pods = counted(why.pods, "pod")
    return f"{pods} would have to be evicted, but at most {why.needed} may be evicted for one gang"


def _too_much_work(why: NotHelpful) -> str:
    pods = counted(why.needed, "pod")
    cure = "use fewer different requests, affinity terms and spread constraints"
    return f"choosing pods to evict for {pods} takes too long: {cure}"


def _later(_: NotHelpful) -> str:
    return "still being evaluated"


SENTENCES: Final[Mapping[Obstacle, Callable[[NotHelpful], str]]] = {
    Obstacle.NOTHING_LOWER: _nothing_lower,
    Obstacle.TOO_LITTLE: _too_little,
    Obstacle.BUDGET: _budget,
    Obstacle.POLICY_NEVER: _policy_never,
    Obstacle.TOO_YOUNG: _too_young,
    Obstacle.OTHER_SCHEDULERS: _other_schedulers,
    Obstacle.BACK_OFF: _back_off,
    Obstacle.DELAYED: _delayed,
    Obstacle.FORBIDDEN: _forbidden,
    Obstacle.TOO_MANY: _too_many,
    Obstacle.TOO_MUCH_WORK: _too_much_work,
    Obstacle.LATER: _later,
}


def _all(pods: int) -> str:
    return "the 1 pod" if pods == 1 else f"all {pods} pods"


def _duration(seconds: int) -> str:
    """As Go writes it: `30s`, `10m0s`, `1h0m0s`."""
    hours, rest = divmod(seconds, 3600)
    if hours:
        return f"{hours}h{rest // 60}m{rest % 60}s"
    if rest >= 60:
        return f"{rest // 60}m{rest % 60}s"

    return f"{rest}s"


def short_duration(seconds: float) -> str:
    """Duration without parts that are 0: `30s`, `5m`, `1h30m`; fractions of a second are kept."""
    whole, rest = divmod(seconds, 60)
    hours, minutes = divmod(int(whole), 60)
    parts = []

    for amount, unit in ((hours, "h"), (minutes, "m"), (round(rest, 3), "s")):
        if amount:
            parts.append(f"{amount:g}{unit}")

    return "".join(parts) or "0s"
