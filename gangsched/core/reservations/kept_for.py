"""Whether a refused group would fit without reservations, and until when these last (semantics
H14).

Invariant: computed from totals of room, like the arithmetic of P4; read-only. The result is
computed once for groups with equal needs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import TypeAlias

from msgspec import structs

from gangsched.core.group_rules import rules_key
from gangsched.core.permit import missing
from gangsched.core.placement_attempt import PlacementAttempt
from gangsched.core.reservations.heads import needed
from gangsched.core.reservations.passing import Backfill
from gangsched.core.reserve import Ledger
from gangsched.core.scopes import usable
from gangsched.model.gang import Group
from gangsched.model.objects import Shape
from gangsched.model.plan import Need
from gangsched.model.reservation import KeptFor

Ask: TypeAlias = tuple[tuple[tuple[Shape, int], ...], int]
"""Of a gang: how many pods of each shape wait, and how many of them must find room."""


def kept_for(
    group: Group,
    needs: Sequence[Need],
    backfill: Backfill,
    ledger: Ledger,
    *,
    wall_s: float,
) -> KeptFor | None:
    """How long reservations prevent the start of a group, as of epoch second `wall_s`; None if they
    do not prevent it.

    `needs` is the room for lack of which the group was refused.
    """
    # Where room is too little for whomever it is kept, no reservation is to blame.
    if not backfill.binds(group) or (needs and _room(needs[0].shape, ledger) < needs[0].count):
        return None

    asks = tuple(
        (tuple(Counter(pod.shape for pod in gang.pending).items()), missing(gang, 0))
        for gang in needed(group)
    )
    if not asks:
        return None

    attempt = PlacementAttempt(group, ledger)
    shapes = {shape for counts, _ in asks for shape, _ in counts}
    key: Hashable = (
        kept_for,
        asks,
        frozenset((shape, rules_key(shape, attempt)) for shape in shapes),
    )
    return ledger.recall(key, lambda: _kept_for(asks, attempt, backfill, wall_s=wall_s))


def _room(shape: Shape, ledger: Ledger) -> int:
    """How many pods of the shape all nodes take, whoever they are kept for or closed to."""
    return ledger.recall((_room, shape), lambda: int(ledger.room(shape).sum()))


def _kept_for(
    asks: Sequence[Ask],
    attempt: PlacementAttempt,
    backfill: Backfill,
    *,
    wall_s: float,
) -> KeptFor | None:
    if _enough(asks, attempt):
        return None

    group = attempt.group

    # Nominations still count: what is promised by preemption no run time opens.
    with attempt.ledger.promises.without_reservations():
        if not _enough(asks, attempt):
            return None

    times_s = backfill.times_s(group)
    # The latest first: the longest run time that would do is the easiest to keep.
    for at_s in times_s:
        ends_in_time = tuple(
            structs.replace(gang, run_time_s=at_s - wall_s) for gang in group.gangs
        )
        in_time = attempt.of(structs.replace(group, gangs=ends_in_time))
        if wall_s < at_s and _enough(asks, in_time):
            return KeptFor(until_s=at_s, run_time_s=at_s - wall_s)

    return KeptFor(until_s=times_s[0])


def _enough(asks: Sequence[Ask], attempt: PlacementAttempt) -> bool:
    for counts, lack in asks:
        fits = sum(min(count, int(usable(shape, attempt).sum())) for shape, count in counts)
        if fits < lack:
            return False

    return True
