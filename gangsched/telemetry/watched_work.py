"""Watches the group that is being planned: a plan that does not end is stopped, and the next
process learns at which group this one ended.

Invariant: one write to memory per group. The file is mapped, so that what was written stays after
SIGKILL.
"""

from __future__ import annotations

import mmap
import os
import signal
import threading
from pathlib import Path
from types import FrameType
from typing import Final

from gangsched.model.fault import AtWork

PLAN_CPU_S: Final = 2.0
"""CPU time of one plan, a hundred times its usual limit. CPU time, since a starved machine is no
fault of a group.
"""
SIZE: Final = 512
HEAD: Final = 3
FILE: Final = "at-work"


class PlanTooLongError(Exception):
    """A plan used up its CPU time."""


class WatchedWork(AtWork):
    """`AtWork` of the daemon. `before` is the group at which the last process ended, "" if it ended
    between plans.
    """

    __slots__ = ("_alarmed", "_memory", "before")

    def __init__(self, directory: Path | None) -> None:
        """Without a directory, nothing outlasts the process. Raises OSError if the file cannot be
        made.
        """
        self._memory: mmap.mmap = _mapped(directory)
        self.before = _read(self._memory)
        self._memory[0] = 0
        self.group = ""

        # Handlers can be set in the main thread only; a daemon in another thread is a test.
        self._alarmed = threading.current_thread() is threading.main_thread()
        if self._alarmed:
            signal.signal(signal.SIGVTALRM, self._ring)

    def enter(self, group: str) -> None:
        """The plan comes to a group."""
        self.group = group
        name = group.encode()[: SIZE - HEAD]
        size = len(name)
        self._memory[1 : HEAD + size] = size.to_bytes(2, "big") + name

    def begin(self) -> None:
        """A plan begins."""
        self.group = ""
        self._memory[1:HEAD] = b"\0\0"

        self._memory[0] = 1
        if self._alarmed:
            signal.setitimer(signal.ITIMER_VIRTUAL, PLAN_CPU_S)

    def end(self) -> None:
        """The plan has ended, or raised."""
        self._memory[0] = 0
        if self._alarmed:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)

    def _ring(self, number: int, frame: FrameType | None) -> None:
        # Only while a plan is made, of which nothing is kept if it raises. Elsewhere half of a
        # change would be made.
        if self._memory[0]:
            raise PlanTooLongError(f"the plan took more than {PLAN_CPU_S:g} s of CPU time")


def _mapped(directory: Path | None) -> mmap.mmap:
    if directory is None:
        return mmap.mmap(-1, SIZE)

    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Never through a link that somebody else left there.
    descriptor = os.open(directory / FILE, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)

    try:
        os.ftruncate(descriptor, SIZE)
        return mmap.mmap(descriptor, SIZE)
    finally:
        os.close(descriptor)


def _read(memory: mmap.mmap) -> str:
    """The group in the file, if a plan was being made."""
    size = int.from_bytes(memory[1:HEAD], "big")
    if not memory[0] or not 0 < size <= SIZE - HEAD:
        return ""

    return memory[HEAD : HEAD + size].decode(errors="ignore")
