"""Messages about preemption: nominations, evictions, and why no pod is preempted (semantics V20 to
V22).

Invariant: a message shows an object of the reader's namespace by name, and an object of any other
namespace only by uid.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import assert_never

from gangsched.api.timestamps import time_of_day
from gangsched.model.gang import Placement, Refusal, namespace_of
from gangsched.model.preemption import NotHelpful, Obstacle, UnitKind, Victim
from gangsched.model.protocol import ObjectRef
from gangsched.model.reasons import Reason
from gangsched.model.resources import format_quantity
from gangsched.model.text import counted


def nominated(
    placements: Sequence[Placement],
    *,
    pods: int,
    gangs: int,
    deadline_s: int,
    wall_s: int,
) -> Refusal:
    """Status of a nominated group that waits until `pods` pods of `gangs` gangs have ended; `gangs`
    is 0 if some of these pods have no gang.
    """
    nodes = sorted({placement.node for placement in placements})
    more = f" and {counted(len(nodes) - 1, 'more node')}" if len(nodes) > 1 else ""
    of_gangs = f" of {counted(gangs, 'gang')}" if gangs else ""
    waiting = (
        f"waiting for {counted(pods, 'pod')}{of_gangs} to end, until"
        f" {time_of_day(deadline_s, wall_s)} at the latest"
    )

    return Refusal(Reason.PREEMPTING, f"nominated to {nodes[0]}{more}", waiting)


def with_obstacle(told: Refusal, why: NotHelpful) -> Refusal:
    """The refusal `told` with the reason why preemption does not help; unchanged if the pods could
    never fit anyway.
    """
    if told.never and why.why is Obstacle.NOTHING_LOWER:
        return told

    is_object = why.why in {Obstacle.BUDGET, Obstacle.NOTHING_LOWER} and bool(why.name)
    if is_object and told.of not in {"", namespace_of(why.name)}:
        why = replace(why, name="")  # names of other namespaces are told to nobody (I4)

    sentence = (
        f"{_sentence(why)}." if why.why is Obstacle.DELAYED else f"Preemption: {_sentence(why)}."
    )
    return replace(told, now=f"{told.now.rstrip()} {sentence}" if told.now else sentence)


def delayed(victim: Victim, regarding: ObjectRef, message: str) -> str:
    """Text of the Event of an eviction that a PodDisruptionBudget blocks.

    The API server's message may name objects, so it appears only within the victim's namespace.
    """
    if victim.namespace != regarding.namespace:
        return f"the eviction of pod {victim.uid} waits for a PodDisruptionBudget"

    return f"the eviction of pod {victim.name} waits: {message}"


def not_nominated(message: str, others: Sequence[Victim]) -> str:
    """Why a nomination could not be written. `others` omit the API server's `message`, because it
    may name victims.
    """
    if others:
        return "the pods could not be nominated"

    return f"the pods could not be nominated: {message}"


def not_evicted(victim: Victim, message: str, *, named: bool) -> str:
    """Why a nomination ended although a victim still runs. `named`: the reader may see the victim's
    name.
    """
    if named:
        return f"pod {victim.name} was not evicted: {message}"

    return f"pod {victim.uid} was not evicted"


def lost(cause: str, in_vain: int) -> str:
    """Text of the Event of a nomination that ended without a start, after `in_vain` pods were
    evicted for it.
    """
    if not in_vain:
        return f"{cause}; no pods were evicted"

    return (
        f"{cause}; {counted(in_vain, 'pod')} {'was' if in_vain == 1 else 'were'} evicted without"
        " effect"
    )


def being_preempted() -> Refusal:
    """Refusal of waiting members while bound members of their group are evicted (semantics V17)."""
    text = (
        "the gang is being preempted; it is scheduled again as a whole once its last bound member"
        " is being deleted"
    )
    return Refusal(Reason.WAITING_FOR_MEMBERS, text)


def evicting() -> Refusal:
    """Refusal of a group whose victims' evictions are under way (semantics V11)."""
    return Refusal(
        Reason.PREEMPTING,
        "the group starts once all pods of the gangs that it preempts are being evicted",
    )


def preempted_pod(victim: Victim, by: ObjectRef) -> str:
    """Text of the Event of an evicted pod."""
    return f"Preempted by {_named(by, victim.namespace)} on node {victim.node}"


def preempted_gang(
    kind: UnitKind,
    evicted: int,
    bound: int,
    min_member: int,
    by: ObjectRef,
    namespace: str,
) -> str:
    """Text of the Event of a gang that lost `evicted` of its `bound` members."""
    if kind is UnitKind.SURPLUS:
        what = f"{evicted} of {counted(bound, 'member')}; it keeps its minimum of {min_member}"
    else:
        what = f"all {counted(evicted, 'member')}"

    return f"Preempted by {_named(by, namespace)}: {what}"


def _sentence(why: NotHelpful) -> str:
    match why.why:
        case Obstacle.NOTHING_LOWER:
            weakest = (
                f" than {why.amount}, the priority of its member {why.name}," if why.name else ""
            )
            return f"no pods of lower priority{weakest} run on eligible nodes"
        case Obstacle.TOO_LITTLE:
            room = f"room for only {why.room} of {why.needed}"
            if why.pods:
                return f"evicting {_all(why.pods)} of lower priority would make {room}"

            return f"there is {room}"
        case Obstacle.BUDGET:
            budget = (
                f"PodDisruptionBudget {why.name}"
                if why.name
                else "a PodDisruptionBudget of another namespace"
            )
            return f"{budget} allows {why.allowed} of {counted(why.needed, 'eviction')}"
        case Obstacle.POLICY_NEVER:
            return "not allowed by preemptionPolicy Never"
        case Obstacle.TOO_YOUNG:
            they = "it has" if why.pods == 1 else "they have"
            ran = f"{they} run for less than {_duration(why.seconds)} (preempt_min_run_s)"
            return f"{counted(why.pods, 'gang')} cannot be preempted yet: {ran}"
        case Obstacle.OTHER_SCHEDULERS:
            amount = f"{format_quantity(why.name, why.amount)} {why.name}"
            return (
                f"{amount} are used by lower-priority pods of other schedulers, which are not"
                " preempted"
            )
        case Obstacle.BACK_OFF:
            return f"next attempt in {_duration(why.seconds)}"
        case Obstacle.DELAYED:
            return (
                f"The group preempts no pods before {_moment(why.amount)} (preemption-delay"
                f" {why.name})"
            )
        case Obstacle.FORBIDDEN:
            return f"off, since {why.name.rstrip('.')}"
        case Obstacle.TOO_MANY:
            return (
                f"{counted(why.pods, 'pod')} would have to be evicted, but at most {why.needed} "
                "may be evicted for one gang"
            )
        case Obstacle.TOO_MUCH_WORK:
            cure = "use fewer different requests, affinity terms and spread constraints"
            return f"choosing pods to evict for {counted(why.needed, 'pod')} takes too long: {cure}"
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


def _moment(epoch_s: int) -> str:
    """The time of day in UTC, without seconds where they are 0."""
    clock = time_of_day(epoch_s, epoch_s)
    return f"{clock.removesuffix(':00')}Z"


def _named(by: ObjectRef, namespace: str) -> str:
    """Whom room was made for, as an object of `namespace` may be told."""
    kind = "pod group" if by.kind == "PodGroup" else "pod"
    return f"{kind} {by.name if by.namespace == namespace else by.uid}"
