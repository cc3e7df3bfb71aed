"""Times in sentences: `2026-11-28T18:58Z`, the only notation, with date and zone (semantics E7).

Invariant: a promise is rounded up and a past time down, so that neither is said too early.
"""

from __future__ import annotations

import math
from typing import Final

from gangsched.api.timestamps import format_timestamp

MINUTE_S: Final = 60


def by(at_s: float) -> str:
    """The minute by which something promised for epoch second `at_s` has happened."""
    return format_timestamp(minute_by(at_s), seconds=False)


def since(at_s: float) -> str:
    """The minute in which something has begun, at epoch second `at_s`."""
    return format_timestamp(math.floor(at_s / MINUTE_S) * MINUTE_S, seconds=False)


def minute_by(at_s: float) -> int:
    """The epoch second that `by` writes."""
    return math.ceil(at_s / MINUTE_S) * MINUTE_S
