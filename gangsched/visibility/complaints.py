"""Rate-limited logging of request errors.

Invariant: users control the number and length of these errors, so each kind is logged once per
interval, in a bounded line with a count.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable

import structlog

EVERY_S = 10.0
FRAMES = 4
CHARACTERS = 1_000


class Complaints:
    """Logs errors that requests cause; it is also the logger of aiohttp's protocol."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._log = structlog.get_logger()
        self._written: dict[str, tuple[float, int]] = {}

    def error(self, event: str, error: BaseException | None) -> None:
        """Log an error, unless the same event was logged within the interval."""
        now_s = self._clock()
        at_s, others = self._written.get(event, (float("-inf"), 0))
        if now_s < at_s + EVERY_S:
            # Counted, and reported with the next line that is written.
            self._written[event] = at_s, others + 1
            return

        self._written[event] = now_s, 0
        frames = traceback.extract_tb(error.__traceback__)[-FRAMES:] if error is not None else ()
        at = " < ".join(f"{frame.name}:{frame.lineno}" for frame in reversed(frames))
        self._log.error(
            event,
            error=f"{type(error).__name__}: {error}"[:CHARACTERS],
            at=at,
            not_logged=others,
        )

    def exception(self, message: str, *_: object, exc_info: BaseException | None = None) -> None:
        """Log an exception, with the signature of logging.Logger; `message` comes from aiohttp."""
        self.error(f"visibility: {message.partition(' from ')[0]}", exc_info)

    def debug(self, message: str, *_: object, **__: object) -> None:
        """Ignore the message."""
