"""Ports: protocols of the API server, the sink of messages and the clock.

Invariant: only types and the daemon's defaults, each defined once so that every class of the
package uses the same.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from random import Random
from typing import Final, Protocol, TypeAlias

from gangsched.model.protocol import Message

WRITE_TIMEOUT_S: Final = 10.0
"""How long the answer to a bind, an eviction or a write of a claim is awaited; without one its
result is unknown.
"""


class RestClient(Protocol):
    """One API server, for writers; implemented by `ApiClient` and `ConnectionPool`."""

    async def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        content_type: str = "application/json",
        timeout_s: float = 10.0,
    ) -> bytes:
        """Send one request; return the body. Raises ApiFault, Unreachable or Malformed."""


Sink: TypeAlias = Callable[[Message], None]
"""Where messages go: synchronous, never blocks, called from the event loop only."""

Warn: TypeAlias = Callable[[str], None]
"""Logs one sentence for the administrator of the daemon."""

Now: TypeAlias = Callable[[], float]
"""Monotonic seconds."""

Wall: TypeAlias = Callable[[], datetime]
"""The time of day, for what is written into API objects; always aware, UTC."""

Sleep: TypeAlias = Callable[[float], Awaitable[object]]
"""`asyncio.sleep`, or what a simulator puts in its place."""


def utc_now() -> datetime:
    """The current time in UTC."""
    return datetime.now(UTC)


def boot_s() -> float:
    """Monotonic seconds that include the time during which the machine was suspended, if the system
    has such a clock (Linux).
    """
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    return time.monotonic()


def silent(sentence: str) -> None:
    """Ignore the warning; for use without a log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """Log, clocks and random numbers of everything that reads or writes; a simulator replaces them.

    `boot` is a clock that includes suspension, which a Lease requires.
    """

    warn: Warn = silent
    now: Now = time.monotonic
    boot: Now = boot_s
    wall: Wall = utc_now
    sleep: Sleep = asyncio.sleep
    rng: Random = field(default_factory=Random)
