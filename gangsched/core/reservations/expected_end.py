"""When a pod is expected to end (semantics H2).

Invariant: a pure function of start, run time and the present, so a restart computes the same value. Times are
wall-clock seconds; `math.inf` is an unknown end or run time.
"""

from __future__ import annotations

OVERRUN_STEP_S = 600.0
"""The least by which an end moves that has passed."""


def expected_end_s(started_s: float, run_time_s: float, now_s: float) -> float:
    """Start + run time. Once that has passed: start + twice the elapsed time, at least 10 min later, repeatedly.

    A terminating pod starts at its deletionTimestamp and has run time 0. The end moves only when it has passed, so
    repeated reads agree.
    """
    end_s = started_s + run_time_s
    while end_s <= now_s:
        end_s = max(end_s + (end_s - started_s), end_s + OVERRUN_STEP_S)
    return end_s
