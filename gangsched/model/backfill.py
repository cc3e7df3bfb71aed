"""The administrator's choices about backfill; the numbers are in `model.reservation.ReservationLimits`.

Invariant: values only; `core` decides by them.
"""

from __future__ import annotations

from enum import StrEnum


class BackfillOrder(StrEnum):
    """Order of equal groups that may be backfilled (H9): the shortest run-time class first, or the oldest."""

    SHORTEST = "shortest"
    AGE = "age"


class OnOverrun(StrEnum):
    """Action for a backfilled group that runs longer than it declared (H11)."""

    TELL = "tell"
    EVICT = "evict"
