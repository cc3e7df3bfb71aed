"""Input and result of reservation decisions.

Invariant: values only. The state passes each `Reserved` from one plan to the next, so that room
stays reserved even if a plan does not decide the group it is reserved for (semantics H12). Times
ending in `_s` are epoch seconds; durations are marked as such. `math.inf` is an unknown time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import msgspec

from gangsched.model.backfill import BackfillOrder
from gangsched.model.gang import Group, Placement
from gangsched.model.objects import Pod
from gangsched.model.snapshot import Floats, NodeTable


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservationLimits:
    """Limits on reservations: their number, owners and duration, in seconds.

    If `reservations` is 0, there are no heads. Fields with a comment are constants.
    """

    reservations: int = 8
    per_namespace: int = 2
    share: float = 0.5
    """Maximum share of one kind of accelerator in all reservations but the oldest (H7): however
    many groups wait, half of it stays open to work that no reservation delays."""
    small_head_after_s: float = 3_600.0
    """Minimum wait before a group of less than a node gets a reservation (H3). With one hour for
    all, 8-GPU jobs of the Philly trace waited 16 h on 72 nodes: small groups used up the few
    reservations (decision 0021).
    """
    small_head_latest_s: float = 172_800.0
    """Upper limit of that wait, which otherwise is the group's expected run time; also used where
    that is unknown.
    """
    fence_after_s: float = 21_600.0
    fence_age_s: float = 604_800.0
    """Maximum age of a fence (H6): long, since a fence of many nodes fills slowly and to end it
    early is waste.
    """
    fence_idle_s: float = 345_600.0
    """Maximum mean idle time of a fence's accelerators; long for the same reason
    (decision 0040).
    """
    horizon_s: float = 604_800.0
    """How far ahead a timed reservation may start (H5): a start that rests on longer run times is
    no promise.
    """
    order: BackfillOrder = BackfillOrder.SHORTEST


class Occupant(msgspec.Struct, frozen=True, gc=False):
    """A pod that uses room on a node. `ends_s` is its expected end (H2). `group` is the id of its
    group, or its own key if it has no group.
    """

    pod: Pod
    node: str
    started_s: float
    ends_s: float
    group: str = ""


class Blocker(NamedTuple):
    """What must end before a reservation starts: a group, by id, or a pod in no group of this
    scheduler, by key.
    """

    id: str
    namespace: str


class Reserved(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Room that is reserved for a group, as one plan passes it on to the next."""

    group: str
    #: Namespaces of its pods.
    namespaces: frozenset[str]
    #: It restricts groups of this priority or lower.
    priority: int
    #: The group has waited since then (H4).
    since_s: int
    #: Expected run time of the group, in seconds.
    run_time_s: float
    #: Start of the reservation; `math.inf` for a fence, which reserves its `nodes` as a whole.
    at_s: float
    nodes: tuple[str, ...]
    #: Of a tree: the gangs that it is for; empty: those that come first (I9).
    choice: frozenset[str] = frozenset()
    #: Nodes of the needed pods, empty for a fence.
    placements: tuple[Placement, ...] = ()
    #: The first group of the queue has a promise.
    first: bool = False
    #: The start time reported when it became first, `math.inf` until a time is certain.
    promised_s: float = math.inf
    #: Number of nodes of a fence that have no pods.
    empty: int = 0
    #: Groups and pods that must end on these nodes, the last to end first.
    waits_for: tuple[Blocker, ...] = ()

    @property
    def is_fence(self) -> bool:
        """Whether the reservation is a fence, which has no start time."""
        return self.at_s == math.inf

    @property
    def is_promised(self) -> bool:
        """Whether a latest start time was promised to the group."""
        # Only the first head: the times of others move whenever one before them starts or grows
        # (H13).
        return self.first and self.promised_s < math.inf


class How(StrEnum):
    """How a group was backfilled (H8): on nodes without reservations, in room that reservations
    leave free, or because it ends before the reserved room is needed.
    """

    BESIDE = "beside"
    SPARE = "spare"
    SHORT = "short"


class NotEntitled(StrEnum):
    """Why a group that waits for room has no reservation (H3, H5, H7)."""

    IMPOSSIBLE = "it would not start even on an empty cluster"
    SEARCHING = "the time when enough devices will be free is still being computed"
    TOO_MUCH_WORK = (
        "its start time takes longer to compute than one scheduling cycle; the next attempt is in a"
        " minute"
    )
    TOO_YOUNG = "it needs less than one node and has not waited long enough"
    NAMESPACE = "its namespace has reached its maximum number of reservations"
    LATER = "older gangs hold the maximum number of reservations"
    NO_TIME = (
        "running pods declare no run times, and it has not waited long enough to reserve whole"
        " nodes"
    )
    SHARE = "other reservations already cover half of the accelerators of this kind"
    REFUSED = "it did not start although the nodes reserved for it were empty"
    FENCE_OVER = "its earlier reservation has expired"
    ORDERED = "an administrator ordered it"


class NotReserved(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Why a group that was refused for room has no reservation, with the facts for the message
    (H14).

    `until_s` is the time at which the group may get one, if only waiting is necessary. IMPOSSIBLE:
    the group `needs` this many nodes and the cluster `offers` that many (0 if not applicable).
    NAMESPACE: `namespace` has `offers` reservations.
    """

    why: NotEntitled
    until_s: float = math.inf
    needs: int = 0
    offers: int = 0
    namespace: str = ""


class KeptFor(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The group would fit if no room were reserved (H14).

    Room is reserved until `until_s`, `math.inf` for a fence. The group could start now with an
    expected run time of at most `run_time_s`; this is 0 if no run time suffices.
    """

    until_s: float
    run_time_s: float = 0.0

    def tells_the_same(self, other: KeptFor) -> bool:
        """Whether both would be reported in the same way. The run time is ignored, because it gets
        a little shorter with each plan.
        """
        # Within a minute, as the sentence has it: each plan would else be a new condition.
        return (
            abs(self.until_s - other.until_s) < 60
            and self.run_time_s // 60 == other.run_time_s // 60
        )


class Reserving(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """Reservation input of `plan`; None disables reservations, which then have no cost."""

    limits: ReservationLimits
    #: The current time.
    wall_s: float
    #: Every pod that takes room, by node name; the same object until any of them changes. Called
    #: only if a reservation exists or is made.
    occupants: Callable[[], Mapping[str, Sequence[Occupant]]]
    #: Reservations of the last plan, in order.
    standing: tuple[Reserved, ...] = ()
    #: Groups whose reservations must be recomputed.
    stale: frozenset[str] = frozenset()
    #: Groups that were refused for room in earlier plans: heads and candidates.
    waiting: tuple[Group, ...] = ()
    #: By group id: why a group has no reservation, while nothing that this depends on has changed.
    known: Mapping[str, NotReserved] = msgspec.field(default_factory=dict)
    #: The latest end of a pod with accelerators on each node, -inf for none (H10). Called only when
    #: a group of known run time is placed.
    last_ends: Callable[[NodeTable], Floats] | None = None
    #: Number of reservations that a plan may recompute; the first plan after a start recomputes all
    #: (H16).
    made_at_most: int = 2
    #: Groups whose reservations end, with the reason.
    ended: Mapping[str, NotReserved] = msgspec.field(default_factory=dict)


class Reservations(msgspec.Struct, frozen=True, kw_only=True):
    """Reservations after a plan, in the order of heads.

    `stale` are groups whose reservation was not recomputed yet, because a plan recomputes only a
    few reservations. `not_reserved` says why decided groups have no reservation.
    """

    standing: tuple[Reserved, ...] = ()
    stale: frozenset[str] = frozenset()
    not_reserved: Mapping[str, NotReserved] = msgspec.field(default_factory=dict)
    replaced: tuple[Reserved, ...] = ()
