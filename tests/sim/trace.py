"""The trace: everything that happened, in one hash, so that two runs of a seed can be compared to
the letter.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import TextIO

from tests.sim.timeline import Timeline


class Trace:
    """Adds lines to a hash, and writes them to `out` if there is one."""

    def __init__(
        self, timeline: Timeline, out: TextIO | None = None, *, shows: Callable[[str], bool] = bool
    ) -> None:
        self._timeline = timeline
        self._hash = hashlib.sha256()
        self._out = out
        self._shows = shows
        self.lines = 0

    def add(self, line: str, body: bytes = b"") -> None:
        """One thing that happened."""
        self.lines += 1
        text = f"{self._timeline.now_s:.6f} {line}"
        self._hash.update(text.encode())
        self._hash.update(body)
        if self._out is not None and self._shows(line):
            print(text, body.decode(errors="replace")[:600], file=self._out)

    def digest(self) -> str:
        """The hash so far."""
        return self._hash.hexdigest()[:16]
