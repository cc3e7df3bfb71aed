"""The heartbeat measures how late the event loop is.

A blocked loop cannot report itself, but its beat is late or missing. /livez then answers 503
(`health`) and the kubelet restarts the daemon.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from gangsched.telemetry.metrics import Metrics

EVERY_S = 0.1
# Far above the longest turn, so that only a loop that hangs is restarted.
ALIVE_BELOW_S = 5.0


class Heartbeat:
    """Beats every 100 ms and measures the delay of each beat; `run` never returns."""

    def __init__(
        self,
        metrics: Metrics,
        *,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        """`now` is in monotonic seconds."""
        self.lag_s = 0.0
        self.max_stall_s = 0.0
        self._now = now
        self._sleep = sleep
        self._due_s = now()
        metrics.loop_lag_seconds.set_function(lambda: self.lag_s)
        metrics.loop_stall_max_seconds.set_function(lambda: self.max_stall_s)

    @property
    def late_s(self) -> float:
        """Delay of the last beat, or how overdue the next beat is, whichever is longer."""
        # A loop that is blocked right now has not updated `lag_s`; the overdue beat shows it.
        return max(self.lag_s, self._now() - self._due_s, 0.0)

    @property
    def alive(self) -> bool:
        """Whether the loop is less than 5 s late."""
        return self.late_s < ALIVE_BELOW_S

    async def run(self) -> None:
        """Beat until cancelled."""
        while True:
            self._due_s = self._now() + EVERY_S
            await self._sleep(EVERY_S)
            self.lag_s = max(self._now() - self._due_s, 0.0)
            self.max_stall_s = max(self.max_stall_s, self.lag_s)
