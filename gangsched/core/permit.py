"""Permit: whether the members that have a node may be bound now.

Invariant: a group is permitted when each of its gangs has its minimum; then all placed and held
members start together (semantics B1). Nothing waits inside Permit; a group that is not permitted is
refused or holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import structs

from gangsched.model.gang import Gang
from gangsched.model.parts import all_of, is_whole


def missing(gang: Gang, placed: int) -> int:
    """Number of members that the gang still needs once `placed` of its pending members have a node;
    0 if none.
    """
    if gang.free_running:
        return 0

    return max(0, gang.min_member - gang.counted(placed))


def permitted(gangs: Sequence[Gang], placed: Mapping[str, int]) -> bool:
    """Whether every gang has its minimum; `placed` counts newly placed members by gang id."""
    least = {gang.id: 0 if gang.free_running else gang.min_member for gang in gangs}
    return is_whole(
        all_of(least),
        {gang.id: gang.counted(placed.get(gang.id, 0)) for gang in gangs},
    )


def needs_its_rest(gang: Gang) -> Gang | None:
    """A gang that has started, as one that starts with the members that it lacks, so that these get
    room together with others. None if its members have places that only they may use.
    """
    apart = gang.kept or gang.held or gang.promised or gang.constraints.slices
    if apart or not gang.free_running:
        return None

    return structs.replace(
        gang,
        satisfied=False,
        min_member=min(gang.permitted_min, gang.min_member),
        bound=gang.bound + gang.succeeded,
        pending=gang.unhindered,
        retry=(),
        # Members that are bound already use most of it.
        min_resources=(),
    )
