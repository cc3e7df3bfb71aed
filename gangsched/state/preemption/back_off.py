"""Back-off between the nominations of a group (semantics V12).

Invariant: 30 s after a failed nomination that evicted pods, 1 s after one that did not, doubling up to 10 min; a start
of the group resets it.
"""

from __future__ import annotations

from collections.abc import Mapping

FIRST_S = 30.0
FIRST_HARMLESS_S = 1.0
LONGEST_S = 600.0


class BackOff:
    """Back-off by group id."""

    def __init__(self) -> None:
        self._delay_s: dict[str, float] = {}
        self._retry_at_s: dict[str, float] = {}

    def retry_at_s(self) -> Mapping[str, float]:
        """Monotonic second before which a group makes no nomination."""
        return self._retry_at_s

    def failed(self, group_id: str, now_s: float, *, harmed: bool) -> float:
        """Record a nomination without a start; return the time of the next attempt."""
        first_s = FIRST_S if harmed else FIRST_HARMLESS_S
        delay_s = min(max(self._delay_s.get(group_id, 0.0) * 2, first_s), LONGEST_S)
        self._delay_s[group_id] = delay_s
        self._retry_at_s[group_id] = now_s + delay_s
        return now_s + delay_s

    def reset(self, group_id: str) -> None:
        """Reset the back-off of a group that has started or is gone."""
        self._delay_s.pop(group_id, None)
        self._retry_at_s.pop(group_id, None)
