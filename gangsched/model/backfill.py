"""The administrator's settings for backfill that are not numbers; the numbers are in
`model.reservation.ReservationLimits`.

Invariant: values only; `core` makes the decisions.
"""

from __future__ import annotations

from enum import StrEnum


class BackfillOrder(StrEnum):
    """Order of groups of equal priority that may be backfilled (H9): the shortest run-time class
    first, or the oldest first.
    """

    SHORTEST = "shortest"
    AGE = "age"


class OnOverrun(StrEnum):
    """Treatment of a backfilled group that runs longer than it declared (H11)."""

    TELL = "tell"
    EVICT = "evict"
