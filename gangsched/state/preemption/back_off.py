"""When a group whose nomination came to nothing may make the next one (semantics V12).

Invariant: after 30 s where pods were evicted in vain and after 1 s where nobody was harmed, doubling to 10 min; a start
of the group resets it.
"""

from __future__ import annotations

from collections.abc import Mapping

FIRST_S = 30.0
FIRST_HARMLESS_S = 1.0
LONGEST_S = 600.0


class BackOff:
    """By group id."""

    def __init__(self) -> None:
        self._delay_s: dict[str, float] = {}
        self._retry_at_s: dict[str, float] = {}

    def retry_at_s(self) -> Mapping[str, float]:
        """The monotonic second before which a group makes no nomination."""
        return self._retry_at_s

    def failed(self, group_id: str, now_s: float, *, harmed: bool) -> float:
        """A nomination ended without a start; returns when the next one may come."""
        first_s = FIRST_S if harmed else FIRST_HARMLESS_S
        delay_s = min(max(self._delay_s.get(group_id, 0.0) * 2, first_s), LONGEST_S)
        self._delay_s[group_id] = delay_s
        self._retry_at_s[group_id] = now_s + delay_s
        return now_s + delay_s

    def reset(self, group_id: str) -> None:
        """The group has started, or is gone."""
        self._delay_s.pop(group_id, None)
        self._retry_at_s.pop(group_id, None)
