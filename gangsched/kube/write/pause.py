"""Pauses between binds, in which all other writes are sent.

Invariant: conditions, statuses and Events never delay a bind; they wait here, each up to its own limit.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from gangsched.kube.ports import Runtime
from gangsched.kube.waiting import wait_for_event

INSTANT_S = 1e-6
"""Shorter waits are none: differences of floats are not exact."""


class Binding(Protocol):
    """Whether binds are in flight: `idle` is set while there is none, since `idle_since_s`."""

    idle: asyncio.Event
    idle_since_s: float


class Pause:
    """Waits for pauses between binds."""

    def __init__(self, binding: Binding, runtime: Runtime) -> None:
        self._binding = binding
        self._runtime = runtime

    def missing_s(self, pause_s: float) -> float:
        """Seconds without a bind in flight until the pause lasts `pause_s`; 0 if it already does."""
        if not self._binding.idle.is_set():
            return pause_s or INSTANT_S
        left_s = self._binding.idle_since_s + pause_s - self._runtime.now()
        return left_s if left_s > INSTANT_S else 0.0

    async def wait(self, pause_s: float, *, until_s: float) -> None:
        """Return once no bind has been in flight for `pause_s`, at `until_s` at the latest."""
        runtime = self._runtime
        while (missing_s := self.missing_s(pause_s)) and (left_s := until_s - runtime.now()) > 0:
            if self._binding.idle.is_set():
                await runtime.sleep(min(left_s, missing_s))
            else:
                await wait_for_event(self._binding.idle, left_s, sleep=runtime.sleep)
