"""Messages about preemption: nominations, evictions, and why no pod is preempted (semantics V20 to
V22).

Invariant: a message shows an object of the reader's namespace by name, and an object of any other
namespace only by uid.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gangsched.model.preemption import UnitKind, Victim
from gangsched.model.protocol import ObjectRef
from gangsched.model.text import counted
from gangsched.model.verdict_facts import Nominated
from gangsched.sentences.times import by
from gangsched.sentences.wording import Sentences

NAMED: Final = 2
"""Nodes, and gangs or pods that end, which the headline of a nomination names."""


def nominated(fact: Nominated) -> Sentences:
    """The nodes of a nominated group, what it waits for, and how long."""
    gives_up = f"gives up at {by(fact.until_s)}"
    starts = f"will start on {_nodes(fact.nodes)}"
    if not fact.pods:
        return Sentences(starts, f"the pods there have stopped; {gives_up}", joint=": ")

    have = "has" if fact.pods == 1 or _is_one_gang(fact) else "have"
    ends = f"when {_ending(fact)} {have} stopped; {gives_up}"
    return Sentences(starts, ends, joint=" ", lack="when pods that run there have stopped")


def _nodes(names: Sequence[str]) -> str:
    """`gpu-1 and gpu-2`, `gpu-1, gpu-2 and 3 more nodes`."""
    if len(names) <= NAMED:
        return " and ".join(names)

    return f"{', '.join(names[:NAMED])} and {counted(len(names) - NAMED, 'more node')}"


def _is_one_gang(fact: Nominated) -> bool:
    return len(fact.named) == 1 and fact.named[0].pods == fact.pods


def _ending(fact: Nominated) -> str:
    """`ml/a (2 pods), pod ml/p and 3 more pods`."""
    named = fact.named[:NAMED]
    if not named:
        return counted(fact.pods, "pod")

    parts = []
    for ending in named:
        parts.append(
            f"{ending.name} ({counted(ending.pods, 'pod')})"
            if ending.is_gang
            else f"pod {ending.name}"
        )

    left = fact.pods - sum(ending.pods for ending in named)
    if left:
        parts.append(counted(left, "more pod"))

    return " and ".join(parts) if len(parts) < 3 else f"{parts[0]}, {parts[1]} and {parts[2]}"


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


def being_preempted() -> str:
    """What waiting members wait for while bound members of their group are evicted (V17)."""
    return (
        "the gang is being preempted; it is scheduled again as a whole once its last bound member"
        " is being deleted"
    )


def evicting() -> str:
    """What a group waits for whose victims' evictions are under way (V11)."""
    return "the group starts once all pods of the gangs that it preempts are being evicted"


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
        what = "its only member" if evicted == 1 else f"all {evicted} members"

    return f"Preempted by {_named(by, namespace)}: {what}"


def _named(by: ObjectRef, namespace: str) -> str:
    """Whom room was made for, as an object of `namespace` may be told."""
    kind = "pod group" if by.kind == "PodGroup" else "pod"
    return f"{kind} {by.name if by.namespace == namespace else by.uid}"
