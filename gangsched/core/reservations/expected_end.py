"""When a pod is expected to end (semantics H2).

Invariant: a pure function of start, run time and current time, so a restart computes the same
value. Times are wall-clock seconds; `math.inf` is an unknown end or run time.
"""

from __future__ import annotations

OVERRUN_STEP_S = 600.0
"""The least by which an end moves that has passed."""


def expected_end_s(started_s: float, run_time_s: float, now_s: float) -> float:
    """The start plus the run time. While that time is in the past, the run time is doubled, or
    increased by 10 min if that is more.

    For a terminating pod, the start is its deletionTimestamp and the run time is 0. The end changes
    only when it has passed, so repeated calls agree. `run_time_s` must not be negative, or the loop
    would not end.
    """
    end_s = started_s + run_time_s
    while end_s <= now_s:
        # Doubled, so that a pod without an end moves its reservation ever more seldom.
        end_s = max(end_s + (end_s - started_s), end_s + OVERRUN_STEP_S)

    return end_s
