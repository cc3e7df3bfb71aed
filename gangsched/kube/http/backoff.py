"""Delays between requests: `Backoff` after a fault, `RequestPace` after any answer.

Invariant: clock and random numbers are arguments.
"""

from __future__ import annotations

from random import Random

from gangsched.kube.http.faults import ApiFault, Fault
from gangsched.kube.ports import Now, Sleep


class Backoff:
    """Delays that double from `first_s` to `limit_s`, each shortened by up to a quarter at random.

    The jitter prevents many clients from sending at the same moment when an API server returns, as
    in client-go.
    """

    def __init__(
        self,
        first_s: float,
        limit_s: float,
        *,
        rng: Random,
    ) -> None:
        self._first_s = first_s
        self._limit_s = limit_s
        self._rng = rng
        self._next_s = first_s

    def next_s(self, fault: Fault | None = None) -> float:
        """Delay before the next try; at least as long as the server's Retry-After."""
        jitter = 0.25 * self._rng.random()
        delay_s = self._next_s * (1.0 - jitter)
        self._next_s = min(self._next_s * 2.0, self._limit_s)

        if isinstance(fault, ApiFault) and fault.retry_after_s is not None:
            # The server knows its load; the delay still doubles, in case it does not mean it.
            return max(delay_s, fault.retry_after_s)

        return delay_s

    def reset(self) -> None:
        """Start again with the shortest delay."""
        self._next_s = self._first_s


class RequestPace:
    """Spaces requests of one kind `every_s` apart, so that no answer can cause a storm of requests.

    After a pause up to `at_once` requests may start at the same time.
    """

    def __init__(
        self,
        every_s: float,
        *,
        at_once: int = 1,
        now: Now,
        sleep: Sleep,
    ) -> None:
        self._every_s = every_s
        # The turns are booked in advance; being this far ahead of the clock is still allowed.
        self._ahead_s = (at_once - 1) * every_s
        self._now = now
        self._sleep = sleep
        self._free_s: dict[str, float] = {}

    async def turn(self, kind: str) -> None:
        """Wait until a request of `kind` may start."""
        now_s = self._now()
        # Unused turns are lost: after a pause only `at_once` requests may start together.
        booked_s = self._free_s.get(kind, now_s)
        free_s = max(now_s, booked_s)
        self._free_s[kind] = free_s + self._every_s

        starts_s = free_s - self._ahead_s
        wait_s = starts_s - now_s
        if wait_s > 0:
            await self._sleep(wait_s)
