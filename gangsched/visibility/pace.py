"""Pace: limits the share of the event loop's time that the gangs API uses, and splits its work into
slices.

Invariant: a slice takes about `SLICE_S` at most. One pace uses at most its share of the loop,
however many requests there are; a burst of `BURST_S` is free. Forks for reviews have a separate
pace, so that lists do not wait for them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

# A fifth of the time between two turns of the loop.
SLICE_S = 0.002
SHARE = 0.1
FORKS_SHARE = 0.05
BURST_S = 0.5


class Pace:
    """Limits one kind of work, which must call `step` between its parts; `spent_s` is the CPU time
    used.

    CPU time is measured, because on a busy machine wall time would slow work down twice.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.perf_counter,
        work_clock: Callable[[], float] = time.thread_time,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        *,
        share: float = SHARE,
    ) -> None:
        self.spent_s = 0.0
        self._share = share
        self._clock = clock
        self._work_clock = work_clock
        self._sleep = sleep
        self._left_s = BURST_S
        self._filled_s = clock()

    @asynccontextmanager
    async def work(self) -> AsyncIterator[Callable[[], Awaitable[None]]]:
        """Inside the context, do a piece of work on the event loop; it yields the `step` to call
        between its parts.
        """
        began_s = self._work_clock()

        async def step() -> None:
            nonlocal began_s
            took_s = self._work_clock() - began_s
            # Sleeping is a pass of the event loop: not for every gang.
            if took_s < SLICE_S:
                return

            await self._rest(took_s)
            began_s = self._work_clock()

        try:
            yield step
        finally:
            self._take(self._work_clock() - began_s)

    def _take(self, took_s: float) -> None:
        now_s = self._clock()
        self.spent_s += took_s

        # A token bucket in seconds of CPU time; it may become negative by one slice.
        self._left_s = min(BURST_S, self._left_s + (now_s - self._filled_s) * self._share) - took_s
        self._filled_s = now_s

    async def _rest(self, took_s: float) -> None:
        self._take(took_s)
        await self._sleep(max(0.0, -self._left_s / self._share))
