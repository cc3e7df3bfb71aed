"""When a pod is expected to end (semantics H2).

Invariant: an expected end is a pure function of the pod's start, its run time and the present, so that a restart comes
to the same one. Times are wall-clock seconds given by the caller; `math.inf` is an end or a run time that nobody knows.
"""

from __future__ import annotations

OVERRUN_STEP_S = 600.0
"""The least by which an end moves that has passed."""


def expected_end_s(started_s: float, run_time_s: float, now_s: float) -> float:
    """Start + run time; once that has passed, start + twice the time run until then, at least 10 min later, repeatedly.

    A terminating pod starts at its deletionTimestamp and runs for no time. The end moves only when it has passed, not
    with every look at it.
    """
    end_s = started_s + run_time_s
    while end_s <= now_s:
        end_s = max(end_s + (end_s - started_s), end_s + OVERRUN_STEP_S)
    return end_s
