"""Pace: how much of the event loop the API may take, in slices, so that the scheduler is not slowed.

Law: no slice is much longer than `SLICE_S`. Of a longer time the API takes at most `SHARE` of the loop, however many
ask; a burst of `BURST_S` is free. Requests are let in by count (`Admission`), for all users and for each.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from math import ceil

from gangsched.visibility.statuses import Refused

SLICE_S = 0.002
SHARE = 0.1
BURST_S = 0.5
PER_S, BURST = 50.0, 100.0
USER_PER_S, USER_BURST = 25.0, 50.0
USERS = 1_000
AT_ONCE = 64
"""Requests under way, watches aside."""


class Pace:
    """Work calls `step` between its parts; `spent_s` is all that it took.

    It is counted in CPU time: on a busy machine waiting for a core is not the work's doing, and must not slow it twice.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.perf_counter,
        work_clock: Callable[[], float] = time.thread_time,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self.spent_s = 0.0
        self._clock, self._work_clock, self._sleep = clock, work_clock, sleep
        self._left_s, self._filled_s = BURST_S, clock()

    @asynccontextmanager
    async def work(self) -> AsyncIterator[Callable[[], Awaitable[None]]]:
        """A piece of work on the loop; gives the `step` that it calls between its parts."""
        began_s = self._work_clock()

        async def step() -> None:
            nonlocal began_s
            took_s = self._work_clock() - began_s
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
        self._left_s = min(BURST_S, self._left_s + (now_s - self._filled_s) * SHARE) - took_s
        self._filled_s = now_s

    async def _rest(self, took_s: float) -> None:
        self._take(took_s)
        await self._sleep(max(0.0, -self._left_s / SHARE))


class Bucket:
    """A token bucket."""

    __slots__ = ("_at_s", "_burst", "_left", "_per_s")

    def __init__(self, per_s: float, burst: float, now_s: float) -> None:
        self._per_s, self._burst = per_s, burst
        self._left, self._at_s = burst, now_s

    def take(self, now_s: float) -> float:
        """Take one; 0, or the seconds after which there is one."""
        self._left = min(self._burst, self._left + (now_s - self._at_s) * self._per_s)
        self._at_s = now_s
        if self._left < 1:
            return (1 - self._left) / self._per_s
        self._left -= 1
        return 0.0


class Admission:
    """How many requests are let in."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._all = Bucket(PER_S, BURST, clock())
        self.users: OrderedDict[str, Bucket] = OrderedDict()
        self._under_way = 0

    def admit(self, user: str) -> None:
        """Let a request of `user` in, or raise Refused (429)."""
        now_s = self._clock()
        bucket = self.users.pop(user, None) or Bucket(USER_PER_S, USER_BURST, now_s)
        self.users[user] = bucket
        if len(self.users) > USERS:
            self.users.popitem(last=False)
        wait_s = bucket.take(now_s) or self._all.take(now_s)
        if wait_s:
            raise Refused(429, "Too many requests, please try again later.", retry_after_s=max(1, ceil(wait_s)))

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """A place among the requests under way; raises Refused (429) when all are taken."""
        if self._under_way >= AT_ONCE:
            raise Refused(429, "Too many requests are under way, please try again later.", retry_after_s=1)
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1
