"""The record of one group: everything known about it between plans, its place in the queue, and the
table of transitions.

Invariant: everything known about a group is in its record and is dropped with it. Other modules
keep ids of groups only as indexes of records, in the order that they need; `validate` recounts each
of them. A group is in exactly one state of the queue, `TABLE` has every allowed transition, and
only `Queue` makes transitions. Whether a group holds, has yielded, is nominated or is being
preempted is independent of the queue: a parked group may be all of these.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple, TypeAlias

import msgspec

from gangsched.model.capacity_facts import NotAsking
from gangsched.model.gang import Gang, Group, Refusal
from gangsched.model.objects import Shape
from gangsched.model.plan import Need, Verdict
from gangsched.model.preemption import HeldBack, NotHelpful
from gangsched.model.reasons import Reason
from gangsched.model.reservation import NotReserved
from gangsched.model.tree import Composite, Part, root_part
from gangsched.state.autoscaling.asking import Asking
from gangsched.state.autoscaling.node_request import NodeRequest
from gangsched.state.avoided import AvoidedNode
from gangsched.state.preemption.nomination import NominationRecord
from gangsched.state.reporting.reserved import Told

Rank: TypeAlias = tuple[Any, ...]
"""The result of `core.queue_sort.group_key`: smaller goes first."""
HeadRank: TypeAlias = tuple[int, int, int, bool, int, str]
"""The result of `core.reservations.heads.rank`: smaller is served first."""
PendingPart: TypeAlias = tuple[str, bool, int, int, bool, str, bool]
"""One gang: its reason, whether it is a plain pod, numbers of waiting and of holding pods, whether
it is broken.
"""
Entry: TypeAlias = tuple[Rank, str]
"""The rank of a group and its id."""


class QueueState(StrEnum):
    """The part of the queue that a group is in; kube-scheduler's name is in parentheses."""

    NEW = ""  # in none: a gang of it still awaits its PodGroup
    ACTIVE = "active"  # planned next (activeQ)
    BACKING_OFF = "backoff"  # planned once its back-off is over (backoffQ)
    # refused, or nothing to do; planned once something may help it (unschedulable pods)
    PARKED = "parked"


class QueueCause(StrEnum):
    """Why a group changes its state in the queue."""

    # It is planned again.
    CHANGED = "the group changed"
    NODE_MOVED = "the node of one of its pods was added, removed or relabelled"
    ROOM_FREED = "capacity was freed"
    NEXT_IN_LINE = "a group ahead of it left capacity"
    RESERVED_ROOM_FREED = "its reserved capacity is free now"
    RESERVATIONS_CHANGED = "the reservations ahead of it changed"
    PREEMPTION_MAY_HELP = "the pods that it may preempt changed"
    DEADLOCK = "a running gang yields to it"
    OVERRUN = "a pod exceeded its run time on capacity reserved for the group"
    LOWER_WAITS = "a group of lower priority began to wait"
    HOLDS_CHANGED = "its holds were lost or may move"
    YIELD_OVER = "the group that it yielded to started or is gone"
    NOMINATION_CHANGED = "its nomination changed"
    EVICTION_CHANGED = "the eviction of its members began or ended"
    NOT_COMMITTED = "the state changed during the plan"
    NOT_FINISHED = "the plan had no work left for it"
    DUE = "it is due"
    TOLD_FALSELY = "its message is outdated"
    ORDERED = "an administrator ordered it"
    SAFETY_NET = "it was parked for too long"
    # It backs off, or no longer does.
    BIND_FAILED = "a bind failed"
    CLAIMS_LATE = "its claims were not bound in time"
    INTERNAL_ERROR = "it was set aside"
    BACK_OFF_OVER = "its back-off is over"
    REGROUPED = "it was formed again"
    # It waits, or has nothing to do.
    DECIDED = "a plan decided it"
    NOTHING_WAITS = "none of its pods waits"


BACKS_OFF = frozenset({QueueCause.BIND_FAILED, QueueCause.CLAIMS_LATE, QueueCause.INTERNAL_ERROR})
ENDS_BACK_OFF = frozenset({QueueCause.BACK_OFF_OVER, QueueCause.REGROUPED})
PARKS = frozenset({QueueCause.DECIDED, QueueCause.NOTHING_WAITS})
WAKES = frozenset(QueueCause) - BACKS_OFF - ENDS_BACK_OFF - PARKS
Row: TypeAlias = Mapping[QueueCause, QueueState]
_PARKED: Row = dict.fromkeys(PARKS, QueueState.PARKED)
_BACKING_OFF: Row = dict.fromkeys(BACKS_OFF, QueueState.BACKING_OFF)
_ACTIVE: Row = dict.fromkeys(WAKES, QueueState.ACTIVE)

TABLE: Mapping[QueueState, Row] = {
    QueueState.NEW: {**_ACTIVE, **_BACKING_OFF, **_PARKED},
    QueueState.ACTIVE: {**_ACTIVE, **_BACKING_OFF, **_PARKED},
    # Nothing shortens a back-off. A group whose holds expire meanwhile is decided nevertheless
    # (T1).
    QueueState.BACKING_OFF: {
        **dict.fromkeys(WAKES | BACKS_OFF, QueueState.BACKING_OFF),
        **dict.fromkeys(ENDS_BACK_OFF, QueueState.ACTIVE),
        **_PARKED,
    },
    QueueState.PARKED: {**_ACTIVE, **_BACKING_OFF, **_PARKED},
}
"""`TABLE[state][cause]` is the next state. A group may be gone from any state; its record is then
dropped.
"""


class Entitlement(StrEnum):
    """Whether a group may be a head, for which capacity is reserved (H3)."""

    NONE = "none"  # it does not wait for room
    WAITING = "waiting"  # it may be one, and others come before it
    CANDIDATE = "candidate"  # it is among the first: plans see whether it gets a reservation
    # it waits for room, and may not be one: `ineligible` says why and until when
    INELIGIBLE = "ineligible"


class EntitlementCause(StrEnum):
    """Why the entitlement of a group changes."""

    REFUSED = "refused for room"
    CHANGED = "the group changed, or another decision was made"
    FIRST = "among the first"
    PASSED = "other groups are ahead of it"
    EXCLUDED = "it is not eligible for a reservation"
    ALLOWED = "it is eligible for a reservation again"


ENTITLEMENTS: Mapping[Entitlement, Mapping[EntitlementCause, Entitlement]] = {
    Entitlement.NONE: {
        EntitlementCause.REFUSED: Entitlement.WAITING,
        EntitlementCause.CHANGED: Entitlement.NONE,
    },
    Entitlement.WAITING: {
        EntitlementCause.REFUSED: Entitlement.WAITING,
        EntitlementCause.CHANGED: Entitlement.NONE,
        EntitlementCause.FIRST: Entitlement.CANDIDATE,
        EntitlementCause.EXCLUDED: Entitlement.INELIGIBLE,
    },
    Entitlement.CANDIDATE: {
        EntitlementCause.REFUSED: Entitlement.WAITING,  # with another rank
        EntitlementCause.CHANGED: Entitlement.NONE,
        EntitlementCause.PASSED: Entitlement.WAITING,
        EntitlementCause.EXCLUDED: Entitlement.INELIGIBLE,
    },
    # Else whoever edits a pod each minute would have an endless fence: some causes outlast a change
    # of the group.
    Entitlement.INELIGIBLE: {
        EntitlementCause.CHANGED: Entitlement.NONE,
        EntitlementCause.ALLOWED: Entitlement.WAITING,
    },
}
"""`ENTITLEMENTS[entitlement][cause]` is the next one."""


class Ineligibility(NamedTuple):
    """Why a group cannot be a head, and the shapes of its waiting pods."""

    why: NotReserved
    shapes: frozenset[Shape]


class NeededRoom(NamedTuple):
    """Room for pods of a shape, all of it in one domain of the labels `within`; without labels,
    anywhere.
    """

    shape: Shape
    within: tuple[str, ...] = ()


class Stay(NamedTuple):
    """Backfill class of a group: its run time and priority. Groups of different `kind` are never
    compared.
    """

    run_time_s: float = math.inf
    priority: int = 0
    kind: Hashable = None

    def passes_no_more_than(self, other: Stay) -> bool:
        """Whether reservations that keep `other` out would also keep groups of this class
        out (H8).
        """
        longer = self.run_time_s >= other.run_time_s
        return longer and self.priority <= other.priority and self.kind == other.kind


NO_STAY = Stay()


class PreemptorKind(NamedTuple):
    """Key of equal preemptors: the shapes of their pods, and the highest priority that they may
    preempt with.
    """

    priority: int
    shapes: frozenset[Shape]
    asks: Hashable


@dataclass(slots=True)
class Aside:
    """A group that is set aside because of an internal error (I10); times are monotonic seconds."""

    reference: str
    failed_s: float
    #: When it is tried again unless it changes.
    retry_s: float
    #: What its gangs are while it is set aside, so that a change is noticed; None until its own
    #: changes have settled.
    seen: tuple[Gang, ...] | None = None
    #: It is being tried again.
    is_trying: bool = False
    #: An earlier process ended at it.
    is_suspect: bool = False


@dataclass(slots=True, kw_only=True, eq=False)
class GroupRecord:
    """The record of one group; times are monotonic seconds."""

    id: str
    gangs: tuple[str, ...]
    # --- what it is: given by its gangs (I4, I9) ---
    refusal: Refusal | None = None
    #: Gangs that its refusal blames.
    accused: tuple[str, ...] = ()
    #: The parts that its objects declare; None if all of its gangs start together.
    tree: Composite | None = None
    # --- what was decided about it ---
    rounds: int = 0
    verdict: Verdict | None = None
    #: When.
    decided_s: float | None = None
    #: It changes with every change of the group and is never reused, so that a plan for a group
    #: that was regrouped meanwhile is recognised as outdated (B2).
    generation: int = 0
    view: Group | None = None
    #: Since an internal error, until a plan decides it.
    aside: Aside | None = None
    # --- what it has beside its place in the queue ---
    #: Since when it holds; the clock waits while it is nominated (T1, V16).
    clock_s: float | None = None
    #: The group that it waits for, and how often it has yielded (D1).
    yielded_to: str = ""
    yields: int = 0
    #: While room is made for it (V16).
    nomination: NominationRecord | None = None
    #: Message while bound members are evicted (V17).
    taken: Refusal | None = None
    #: Its next back-off after a nomination that failed, and when the one that it is in ends (V12).
    nomination_back_off_s: float = 0.0
    nominates_at_s: float | None = None
    #: Why preemption did not help, and the version of what that depends on (V25).
    not_helpful: tuple[int, NotHelpful] | None = None
    #: The version of what preemption depends on when a search for victims began with which the next
    #: plan goes on.
    searches_since: int | None = None
    #: Where it would hold others back, and until when it may at most (V27).
    holds_back: HeldBack | None = None
    holds_back_until_s: float | None = None
    #: Nothing of lower priority ran or waited when it was decided (V27).
    is_lowest: bool = False
    #: Nodes that it avoids, with cause and end (B6, L8, V12).
    avoid: dict[str, AvoidedNode] = field(default_factory=dict)
    # --- its place in the queue, which `Queue` changes ---
    queue: QueueState = QueueState.NEW
    #: What brought it there.
    cause: QueueCause | None = None
    #: It is not planned before, unless its holds expire.
    back_off_until_s: float | None = None
    #: Its next back-off.
    back_off_s: float = 0.0
    #: When it was parked.
    parked_s: float = 0.0
    #: While it is parked: room that may help it, its rank among those that wait for room, and its
    #: backfill class.
    needs: tuple[Need, ...] = ()
    rank: Rank = ()
    stay: Stay = NO_STAY
    #: Rooms that it was woken for, with its rank then, until it is decided.
    woken_for: list[tuple[NeededRoom, Entry]] = field(default_factory=list)
    #: While it is parked: its kind among preemptors, and its rank (V25); the kind for which it was
    #: woken since.
    preempts_as: tuple[PreemptorKind, Rank] | None = None
    woken_as: PreemptorKind | None = None

    # --- whether capacity may be reserved for it, which `state.reserving` changes ---
    entitlement: Entitlement = Entitlement.NONE
    #: While it waits for room: its namespace, of several the first, and its rank among heads (H4).
    head: tuple[str, HeadRank] | None = None
    ineligible: Ineligibility | None = None
    #: Why the last plan that examined it as a candidate reserved nothing for it, while that still
    #: holds.
    not_reserved: NotReserved | None = None

    # --- what it asks autoscalers for, which `state.autoscaling` changes ---
    asking: Asking | None = None
    node_request: NodeRequest | None = None
    #: What its members say while it asks by a request, or why it does not.
    provisioning: NotAsking | None = None
    #: The epoch second until which it evicts no pods, since nodes are to come; 0 for none.
    nodes_until_s: int = 0
    #: While it does not ask, although nodes could help.
    pause: NotAsking | None = None

    # --- what was reported and counted of it ---
    #: Its reservation as last reported, or why it has none (H13, H14); and whether it ever had one.
    told_reserved: Told | None = None
    told_not_reserved: NotReserved | None = None
    had_reservation: bool = False
    #: What its waiting gangs add to the counts of waiting gangs and pods.
    counted: tuple[PendingPart, ...] = ()

    @property
    def told_verdict(self) -> Verdict | None:
        """Its last verdict as users read it: while it asks for no nodes, autoscalers must not read
        that nodes could help.
        """
        if self.verdict is None or self.not_asking is None:
            return self.verdict

        return self.verdict.while_not_asking(self.not_asking)

    @property
    def not_asking(self) -> NotAsking | None:
        """Why its members do not ask for nodes although nodes could help, None if they do."""
        if self.provisioning is None or self.provisioning.reason is Reason.UNSCHEDULABLE:
            return self.pause or self.provisioning

        return self.provisioning

    @property
    def awaits_room(self) -> bool:
        """Whether the group waits for room and may be a head, which gets a reservation."""
        return self.entitlement in {Entitlement.WAITING, Entitlement.CANDIDATE}

    @property
    def evictions(self) -> Refusal | None:
        """Why no pod of it may be placed while evictions are under way: of its own members, or for
        it (V11, V17).
        """
        return self.taken or (self.nomination.holds if self.nomination is not None else None)

    def entitle(self, cause: EntitlementCause) -> None:
        """Change its entitlement. Raises AssertionError if the table has no row."""
        entitlement = ENTITLEMENTS[self.entitlement].get(cause)
        assert entitlement is not None, (
            f"{self.id} is {self.entitlement}, which does not allow: {cause}"
        )
        self.entitlement = entitlement

    @property
    def root(self) -> Part:
        """Its outermost part; of a single gang, the gang."""
        return root_part(self.gangs, self.tree)

    def regroup(self, gangs: tuple[str, ...]) -> None:
        """Start over with other gangs: drop rounds, verdict, holds and yields. Its place in the
        queue stays.
        """
        self.gangs = gangs
        self.view = None
        self.generation = 0
        self.rounds = 0
        self.verdict = None
        self.decided_s = None
        self.clock_s = None
        self.yielded_to = ""
        self.yields = 0
        self.nomination = None
        self.taken = None
        self.avoid = {}


def next_state(group: GroupRecord, cause: QueueCause) -> QueueState:
    """The next state; a parked group that is woken during its back-off waits in the back-off queue
    until the back-off ends.

    Raises AssertionError if the table has no row.
    """
    state = TABLE[group.queue].get(cause)
    assert state is not None, f"{group.id} is {group.queue or 'new'}, which does not allow: {cause}"
    within = state is QueueState.ACTIVE and group.back_off_until_s is not None and cause in WAKES

    return QueueState.BACKING_OFF if within else state


class Refreshed(msgspec.Struct, frozen=True):
    """Ids of new or changed groups, the records of groups that are gone, and ids of gangs that were
    dropped.
    """

    changed: set[str]
    gone: dict[str, GroupRecord]
    forgotten: set[str]

    @property
    def is_any(self) -> bool:
        """Whether anything is new, changed or gone."""
        return bool(self.changed or self.gone or self.forgotten)


class Former(NamedTuple):
    """What a gang takes along into another group: the clock of its former group, and the nodes that
    this avoided.
    """

    clock_s: float | None
    avoid: dict[str, AvoidedNode]
