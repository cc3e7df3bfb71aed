"""What people are told of nominations (semantics V20, V22).

Invariant: pure texts. An object of another namespace is named by its uid only, one of one's own by its name.
"""

from __future__ import annotations

from collections.abc import Sequence

from gangsched.model.gang import Refusal
from gangsched.model.preemption import UnitKind, Victim
from gangsched.model.protocol import ObjectRef
from gangsched.model.reasons import Reason
from gangsched.model.text import counted


def delayed(victim: Victim, regarding: ObjectRef, message: str) -> str:
    """The Event of an eviction that a PodDisruptionBudget stops; the API server's words are for its namespace only."""
    if victim.namespace != regarding.namespace:
        return f"the eviction of pod {victim.uid} waits for a PodDisruptionBudget"
    return f"the eviction of pod {victim.name} waits: {message}"


def not_nominated(message: str, others: Sequence[Victim]) -> str:
    """Why a nomination could not be written; the API server's words may name a victim, so not with one of `others`."""
    return "the pods could not be nominated" if others else f"the pods could not be nominated: {message}"


def not_evicted(victim: Victim, message: str, *, named: bool) -> str:
    """Why a nomination ends whose victim stays; the API server's words name it."""
    return f"pod {victim.name} was not evicted: {message}" if named else f"pod {victim.uid} was not evicted"


def lost(cause: str, in_vain: int) -> str:
    """The Event of a nomination that ended without a start."""
    if not in_vain:
        return f"{cause}; no pods were evicted for it"
    return f"{cause}; {counted(in_vain, 'pod')} {'was' if in_vain == 1 else 'were'} evicted without effect"


def being_preempted() -> Refusal:
    """What the waiting members of a group are told while its bound ones are evicted (semantics V17)."""
    text = "the gang is being preempted; it is scheduled again as a whole once its last bound member is being deleted"
    return Refusal(Reason.WAITING_FOR_MEMBERS, text)


def preempted_pod(victim: Victim, by: ObjectRef) -> str:
    """The Event of a victim."""
    return f"Preempted by {_named(by, victim.namespace)} on node {victim.node}"


def preempted_gang(kind: UnitKind, evicted: int, bound: int, min_member: int, by: ObjectRef, namespace: str) -> str:
    """The Event of a gang of which members were evicted; `bound` members it had before."""
    if kind is UnitKind.SURPLUS:
        what = f"{evicted} of {counted(bound, 'member')}, it keeps its minimum of {min_member}"
    else:
        what = f"all {counted(evicted, 'member')}"
    return f"Preempted by {_named(by, namespace)}: {what}"


def _named(by: ObjectRef, namespace: str) -> str:
    """Whom room was made for, as an object of `namespace` may be told."""
    kind = "pod group" if by.kind == "PodGroup" else "pod"
    return f"{kind} {by.name if by.namespace == namespace else by.uid}"
