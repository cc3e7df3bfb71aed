"""Standing reservations compared with those before a plan: which room was freed, and for whom.

Invariant: pure functions.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from gangsched.model.gang import ORDINARY_TURN
from gangsched.model.objects import Shape
from gangsched.model.reservation import Reserved
from gangsched.state.group_record import HeadRank


def rooms(reservations: Iterable[Reserved]) -> list[tuple[Any, ...]]:
    """What is compared of the rooms of reservations: whose, from when, and where."""
    compared: list[tuple[Any, ...]] = []
    for reservation in reservations:
        compared.append((reservation.group, reservation.at_s, reservation.nodes))

    return compared


def rank_of(reservation: Reserved) -> HeadRank:
    """The rank of a reservation's head."""
    # Comparable to `heads.rank`, with the turn of a head that is not broken, which comes last: a
    # broken group takes its place.
    return (
        -reservation.priority,
        ORDINARY_TURN,
        0,
        True,
        reservation.since_s,
        reservation.group,
    )


def freed(
    before: Iterable[Reserved],
    after: Iterable[Reserved],
) -> set[str]:
    """Nodes on which a reservation leaves more than it did, to anybody."""
    now = {reservation.group: reservation for reservation in after}
    freed: set[str] = set()

    for old in before:
        new = now.get(old.group)
        if new is old:
            continue

        # A later start lets more groups end before it, and a lower priority restricts fewer.
        if (
            new is None
            or old.is_fence != new.is_fence
            or new.at_s > old.at_s
            or new.priority < old.priority
        ):
            freed |= set(old.nodes)
        else:  # the same nodes may be kept for fewer of its pods
            freed |= set(old.nodes) - set(new.nodes)
            freed |= {node for _, node in _asked(old) - _asked(new)}

    return freed


def overtaking(
    before: Sequence[Reserved],
    after: Sequence[Reserved],
) -> Iterator[str]:
    """Groups whose reservation now comes before one that could restrict them until now (H8).

    A group may be older than the one before it in the queue by the age of its members (H4): it was
    refused beside that one's reservation before it had its own.
    """
    places: dict[str, float] = {}
    for number, reservation in enumerate(before):
        places[reservation.group] = number

    for number, reservation in enumerate(after):
        own_place = places.get(reservation.group, math.inf)
        for other in after[number + 1 :]:
            if other.priority < reservation.priority:
                continue

            was_before = places.get(other.group, math.inf) < own_place
            if was_before or own_place == math.inf:
                yield reservation.group
                break


def _asked(reservation: Reserved) -> Counter[tuple[Shape, str]]:
    """How many pods of each shape are to run on each node."""
    return Counter((placed.pod.shape, placed.node) for placed in reservation.placements)
