"""How long a piece of work takes; medians and ratios are for those who ask."""

from __future__ import annotations

import time
from collections.abc import Callable


def timed_ms(work: Callable[[], object]) -> tuple[float, float]:
    """Milliseconds by the clock, and of the process."""
    started, started_cpu = time.perf_counter(), time.process_time()
    work()
    return (time.perf_counter() - started) * 1e3, (time.process_time() - started_cpu) * 1e3
