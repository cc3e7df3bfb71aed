"""Pauses between binds, and between the writes of preemption, in which all other writes are sent.

Invariant: conditions, statuses and Events never delay a bind; they wait here, each up to its own
limit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from gangsched.kube.ports import Runtime
from gangsched.kube.waiting import wait_for_event

INSTANT_S = 1e-6
"""Shorter waits are none: differences of floats are not exact."""


class InFlight:
    """Requests in flight: `idle` is set while no request is in flight, since `idle_since_s`."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.idle = asyncio.Event()
        self.idle.set()
        self.idle_since_s = float("-inf")
        self._now = now
        self._number = 0

    def begin(self) -> None:
        """Record that a request is about to be sent."""
        self._number += 1
        self.idle.clear()

    def end(self) -> None:
        """Record that a request was answered, or that it will not be sent."""
        self._number -= 1
        if not self._number:
            self.idle.set()
            self.idle_since_s = self._now()


class Pause:
    """Waits for pauses, in which no request of any of several kinds is in flight."""

    def __init__(self, urgent: Sequence[InFlight], runtime: Runtime) -> None:
        self._urgent = urgent
        self._runtime = runtime

    def missing_s(self, pause_s: float) -> float:
        """Seconds without a request in flight until the pause lasts `pause_s`; 0 if it already
        does.
        """
        # A pause begins when the last kind of urgent requests became idle.
        since_s = float("-inf")
        for in_flight in self._urgent:  # a loop, because it is asked before each write
            if not in_flight.idle.is_set():
                return pause_s or INSTANT_S

            since_s = max(since_s, in_flight.idle_since_s)

        left_s = since_s + pause_s - self._runtime.now()
        return left_s if left_s > INSTANT_S else 0.0

    async def wait(self, pause_s: float, *, until_s: float) -> None:
        """Return once no request has been in flight for `pause_s`, at `until_s` at the latest."""
        runtime = self._runtime
        while (missing_s := self.missing_s(pause_s)) and (left_s := until_s - runtime.now()) > 0:
            # Waiting for one of several is enough: the loop looks again at all of them.
            busy = next(
                (in_flight for in_flight in self._urgent if not in_flight.idle.is_set()), None
            )
            if busy is None:
                await runtime.sleep(min(left_s, missing_s))
            else:
                await wait_for_event(busy.idle, left_s, sleep=runtime.sleep)
