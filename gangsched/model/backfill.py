"""What an administrator may say about backfill in words; the numbers are `model.reservation.ReservationLimits`.

Invariant: these are values only; `core` decides by them.
"""

from __future__ import annotations

from enum import StrEnum


class BackfillOrder(StrEnum):
    """Who goes first among equal groups that may pass a reservation (H9): the shortest class, or the oldest."""

    SHORTEST = "shortest"
    AGE = "age"


class OnOverrun(StrEnum):
    """What happens to a group that was let onto reserved room and runs for longer than it stated (H11)."""

    TELL = "tell"
    EVICT = "evict"
