"""Times as the API writes them: RFC 3339 in UTC, converted from and to whole seconds since the
epoch.

Invariant: pure arithmetic on the Gregorian calendar; nothing here reads a clock.
"""

from __future__ import annotations

import calendar
import re
from typing import Final

_TIMESTAMP: Final = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:\.\d+)?Z", re.ASCII)
_DAY_S: Final = 86_400
_LAST_S: Final = 253_370_764_799
"""The last second of the year 9998."""


def parse_timestamp(text: str) -> int | None:
    """Epoch seconds of a text such as `2026-11-22T14:05:09Z`; None if it is not a time."""
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        return None

    try:
        return calendar.timegm(tuple(int(part) for part in match.groups()))
    except ValueError:
        return None


def format_timestamp(at_s: int, *, seconds: bool = True) -> str:
    """The time as text: `2026-11-22T14:05:09Z`, or without `seconds` `2026-11-22T14:05Z`.

    Tenants choose grace periods, and with these some of the times. For a time before 1970 or after
    9998 the nearest valid time is written.
    """
    # Sums of grace periods can leave the range that RFC 3339 can write.
    at_s = min(max(at_s, 0), _LAST_S)
    days, left_s = divmod(at_s, _DAY_S)

    # At most a few years too early, as a year has at most 366 days.
    year = 1970 + days // 366
    while calendar.timegm((year + 1, 1, 1, 0, 0, 0)) <= at_s:
        year += 1

    month = next(
        month for month in range(12, 0, -1) if calendar.timegm((year, month, 1, 0, 0, 0)) <= at_s
    )
    day = 1 + days - calendar.timegm((year, month, 1, 0, 0, 0)) // _DAY_S
    minutes, second = divmod(left_s, 60)
    text = f"{year:04}-{month:02}-{day:02}T{minutes // 60:02}:{minutes % 60:02}"

    return f"{text}:{second:02}Z" if seconds else f"{text}Z"
