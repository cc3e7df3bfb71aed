"""What goes wrong with requests, in the log: a bounded line, and not one for each.

Invariant: users choose how often and with how long a text something goes wrong, so of each event one is written in a
while, with how many there were meanwhile.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable

import structlog

EVERY_S = 10.0
FRAMES, CHARACTERS = 4, 1_000


class Complaints:
    """`error` logs an error that a request caused; it is the log of aiohttp's protocol as well."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._log = structlog.get_logger()
        self._written: dict[str, tuple[float, int]] = {}

    def error(self, event: str, error: BaseException | None) -> None:
        """Log it, unless the same event was logged a moment ago."""
        now_s = self._clock()
        at_s, others = self._written.get(event, (float("-inf"), 0))
        if now_s < at_s + EVERY_S:
            self._written[event] = at_s, others + 1
            return
        self._written[event] = now_s, 0
        frames = traceback.extract_tb(error.__traceback__)[-FRAMES:] if error is not None else ()
        at = " < ".join(f"{frame.name}:{frame.lineno}" for frame in reversed(frames))
        self._log.error(event, error=f"{type(error).__name__}: {error}"[:CHARACTERS], at=at, not_logged=others)

    def exception(self, message: str, *_: object, exc_info: BaseException | None = None) -> None:
        """As a logging.Logger; `message` is one of aiohttp's own."""
        self.error(f"visibility: {message.partition(' from ')[0]}", exc_info)

    def debug(self, message: str, *_: object, **__: object) -> None:
        """Nothing."""
