"""Members: the state of each pod, and the table of its transitions.

Invariant: a member is in exactly one state, and `TABLE` has every allowed transition, including
races between a bind's answer and the watch, which may show the outcome first. A missing row is a
bug and ends the process; every state has a row for everything that the API server may show. Room
and indexes are updated by `member_store`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Set
from enum import StrEnum
from typing import TypeAlias

import msgspec

from gangsched.model.objects import TERMINAL, PermitStamp, Pod
from gangsched.model.storage import Selection


class State(StrEnum):
    """State of a member; the comment says whether it takes room."""

    GATED = "gated"
    FOREIGN = "foreign"  # another scheduler's, without a node
    PENDING = "pending"
    HELD = "held"  # takes room until Permit, timeout or yield (R3)
    # takes room; bound once its claims, and those of its start, are
    WAITING_FOR_CLAIMS = "waiting for claims"
    BINDING = "binding"  # takes room; its bind is sent and not answered
    BOUND = "bound"  # takes room
    # Permit let it through, and its bind or the write of its claims failed; it keeps its room for
    # the next try (B3)
    KEPT = "kept"
    RETRY = "retry"  # the same without room
    # is being deleted while its bind is under way; takes room until the answer
    WITHDRAWN = "withdrawn"
    TERMINATING = "terminating"  # is being deleted on its node; takes room until it is gone
    DELETED = "deleted"  # is being deleted and has no node, or the API server says that it is gone
    ENDED = "ended"  # Succeeded or Failed


class Change(StrEnum):
    """Cause of a transition: seen in the watch, decided by a plan, or answered by the
    API server.
    """

    SEEN_GATED = "seen gated"
    SEEN_FOREIGN = "seen foreign"
    SEEN_PENDING = "seen pending"
    SEEN_BOUND = "seen bound"
    SEEN_DELETED = "seen deleted"  # with a deletionTimestamp, without a node
    SEEN_TERMINATING = "seen terminating"  # with a deletionTimestamp, on a node
    SEEN_ENDED = "seen ended"
    HOLD = "hold"
    RELEASE = "release"
    SEND_CLAIMS = "send claims"
    SEND_BIND = "send bind"
    LEAVE_GANG = "leave gang"  # drop what it had only as a member of its gang
    CLAIMS_WRITTEN = "claims written"
    ANSWERED_BOUND = "answered bound"
    ANSWERED_GONE = "answered gone"
    ANSWERED_FAILED = "answered failed"


Row: TypeAlias = Mapping[Change, State]

TAKES_ROOM: Set[State] = frozenset(
    {
        State.HELD,
        State.KEPT,
        State.WAITING_FOR_CLAIMS,
        State.BINDING,
        State.BOUND,
        State.WITHDRAWN,
        State.TERMINATING,
    }
)
"""The states of members that have a node; all others have none."""
UNDER_WAY: Set[State] = frozenset({State.WAITING_FOR_CLAIMS, State.BINDING, State.WITHDRAWN})
"""The states of members that have left Permit and of which it is not known yet whether they are
bound.
"""
STARTED: Set[State] = frozenset({State.WAITING_FOR_CLAIMS, State.BINDING, State.BOUND})
"""The states of members that have left Permit, or were bound by others, and are not going."""
KEEPS_STAMP: Set[State] = frozenset(
    {State.BINDING, State.BOUND, State.WITHDRAWN, State.TERMINATING, State.ENDED}
)
"""The states in which a stamp counts: in all others no bind has been sent, or it failed (semantics
B4).
"""

SEEN: Row = {
    Change.SEEN_GATED: State.GATED,
    Change.SEEN_FOREIGN: State.FOREIGN,
    Change.SEEN_PENDING: State.PENDING,
    Change.SEEN_BOUND: State.BOUND,
    Change.SEEN_DELETED: State.DELETED,
    Change.SEEN_TERMINATING: State.TERMINATING,
    Change.SEEN_ENDED: State.ENDED,
}
"""Where a member goes of which we decided nothing: it is what the API server shows."""
_UNBOUND = (Change.SEEN_GATED, Change.SEEN_FOREIGN, Change.SEEN_PENDING)
_ANSWERS = (
    Change.CLAIMS_WRITTEN,
    Change.ANSWERED_BOUND,
    Change.ANSWERED_GONE,
    Change.ANSWERED_FAILED,
)


def _stays(state: State, *changes: Change) -> Row:
    return dict.fromkeys(changes, state)


_STARTED: Row = {Change.SEND_CLAIMS: State.WAITING_FOR_CLAIMS, Change.SEND_BIND: State.BINDING}
_LEFT: Row = {Change.LEAVE_GANG: State.PENDING}

TABLE: Mapping[State, Row] = {
    # An answer may come about a pod that had left our sight and is back.
    State.GATED: {**SEEN, **_stays(State.GATED, *_ANSWERS)},
    State.FOREIGN: {**SEEN, **_stays(State.FOREIGN, *_ANSWERS)},
    State.PENDING: {
        **SEEN,
        **_STARTED,
        **_stays(State.PENDING, *_ANSWERS),
        Change.HOLD: State.HELD,
    },
    State.HELD: {
        **SEEN,
        **_STARTED,
        Change.SEEN_PENDING: State.HELD,
        Change.RELEASE: State.PENDING,
        **_LEFT,
    },
    # Until its bind is answered a member stays what we made it, unless the watch shows more than
    # the bind asks for.
    State.WAITING_FOR_CLAIMS: {
        **SEEN,
        **_stays(State.WAITING_FOR_CLAIMS, *_UNBOUND, Change.CLAIMS_WRITTEN),
        Change.ANSWERED_FAILED: State.KEPT,
        Change.RELEASE: State.RETRY,
        Change.SEND_BIND: State.BINDING,
    },
    State.BINDING: {
        **SEEN,
        **_stays(State.BINDING, *_UNBOUND),
        Change.SEEN_DELETED: State.WITHDRAWN,
        Change.ANSWERED_BOUND: State.BOUND,
        Change.ANSWERED_GONE: State.DELETED,
        Change.ANSWERED_FAILED: State.KEPT,
    },
    State.WITHDRAWN: {
        **SEEN,
        **_stays(State.WITHDRAWN, *_UNBOUND, Change.SEEN_DELETED),
        Change.ANSWERED_BOUND: State.TERMINATING,
        Change.ANSWERED_GONE: State.DELETED,
        Change.ANSWERED_FAILED: State.DELETED,
    },
    # Once it is bound the watch may be behind, and an answer still to come says nothing that it
    # does not show.
    State.BOUND: {
        **SEEN,
        **_stays(State.BOUND, *_UNBOUND, *_ANSWERS),
        Change.SEEN_DELETED: State.TERMINATING,
    },
    State.TERMINATING: {
        **SEEN,
        **_stays(State.TERMINATING, *_UNBOUND, Change.SEEN_DELETED, *_ANSWERS),
    },
    State.KEPT: {
        **SEEN,
        **_STARTED,
        Change.SEEN_PENDING: State.KEPT,
        Change.RELEASE: State.RETRY,
        **_LEFT,
    },
    # It goes alone while its gang is satisfied; of a gang that is not (any more) it is a pending
    # member like others.
    State.RETRY: {
        **SEEN,
        **_STARTED,
        Change.SEEN_PENDING: State.RETRY,
        Change.HOLD: State.HELD,
        **_LEFT,
    },
    State.DELETED: {**SEEN, **_stays(State.DELETED, *_ANSWERS)},
    State.ENDED: {**SEEN, **_stays(State.ENDED, *_UNBOUND, Change.SEEN_DELETED, *_ANSWERS)},
}
"""`TABLE[state][change]` is the next state. A pod may be gone from any state; its member is then
dropped.
"""


class ClaimsWait(msgspec.Struct, eq=False, gc=False):
    """The wait of a member for its claims, and for the claims of members that start with it
    (semantics B7).
    """

    #: The stamp that its bind will carry; None for a plain pod.
    permit: PermitStamp | None = None
    #: The version that our own write gave each claim and volume, by key.
    versions: dict[str, str] = msgspec.field(default_factory=dict)
    #: The monotonic second in which the wait began, and, once it was reported, the epoch second.
    began_s: float = 0.0
    began_epoch_s: int | None = None
    #: The wait ends at this monotonic second; infinite while the claims are being written.
    deadline_s: float = math.inf
    #: Keys of its claims that the last look found unbound; None before the first look.
    unbound: tuple[str, ...] | None = None
    #: Devices are checked again at this monotonic second; 0 if other schedulers' writes need not be
    #: awaited.
    settles_s: float = 0.0
    #: All its claims are bound, and their volumes reach the node.
    is_ready: bool = False
    #: Its start has been sent without it, so that it waits for its own claims only.
    is_alone: bool = False

    @property
    def is_written(self) -> bool:
        """Whether no write of its claims is under way."""
        return self.deadline_s < math.inf


class Member(msgspec.Struct, eq=False, gc=False):
    """One pod, and its node if its state takes room."""

    pod: Pod
    state: State
    #: Id of its gang, "" for a pod that only uses room or claims.
    gang: str = ""
    node: str = ""
    #: Decisions about its claims until it is bound; `wait` is set while it waits for them.
    selections: tuple[Selection, ...] = ()
    wait: ClaimsWait | None = None
    #: Why its bind failed, until the next verdict.
    fault: str = ""
    #: Its timeout annotation is being written and already counts (T2).
    marking: bool = False
    #: Monotonic second until which it keeps its room after failed binds.
    keeps_until_s: float = 0.0
    #: The stamp of the Permit that it passed: as gangsched wrote it, else as the pod had it when it
    #: was first seen (B4).
    permit: PermitStamp | None = None
    #: The stamp is no text of the pod's owner: we wrote it, a Binding carried it, or a policy
    #: guards it (B4).
    is_proven: bool = False
    #: The home of its gang, if its node was chosen outside of it (L3).
    outside: str = ""
    #: It replaces a lost member.
    heals: bool = False
    #: Its loss is counted.
    is_lost: bool = False


def seen(pod: Pod, names: Set[str]) -> Change:
    """The transition that this version of a pod causes; `names` are the scheduler names of
    gangsched (semantics I1).
    """
    # Before everything else: a pod that has ended takes no room, also while it is being deleted.
    if pod.phase in TERMINAL:
        return Change.SEEN_ENDED

    # A pod that is being deleted without a node has no kubelet to wait for and is as good as gone.
    if pod.deleting:
        if pod.node_name:
            return Change.SEEN_TERMINATING

        return Change.SEEN_DELETED

    if pod.node_name:
        return Change.SEEN_BOUND
    # After the node, since a bound pod takes room whoever bound it.
    if pod.scheduler_name not in names:
        return Change.SEEN_FOREIGN

    return Change.SEEN_GATED if pod.gated else Change.SEEN_PENDING


def next_state(member: Member, change: Change) -> State:
    """The next state. Raises AssertionError if the table has no row."""
    state = TABLE[member.state].get(change)
    assert state is not None, f"{member.pod.key} is {member.state}, which does not allow: {change}"
    return state
