"""Return free memory of the C library and of Python to the system; all threads share one heap of
the C library.

Invariant: no memory in use is freed. Without this module three kinds of memory would grow for an
hour. glibc returns free memory only from the end of its heap, while TLS buffers, bodies and arrays
leave gaps between objects that stay. Libraries leave reference cycles: each watch line of kopf
leaves a cycle of 33 objects, and Python collects cycles only after 30,000 new objects. Python keeps
freed tuples on its free lists.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ctypes

M_MMAP_THRESHOLD = -3
APART_BYTES = 256 * 1024
"""Larger blocks are mapped apart: each TLS connection has one of 256 KiB and uses little of it, and
the holes that they leave in the heap are where what stays would spread. glibc raises its own limit
to 32 MiB as such blocks are freed.
"""
M_ARENA_MAX = -8
"""One heap, so that what imports in a thread leave free is used by all; threads are few
and short.
"""
COLLECT_EVERY_S = 0.5
"""New cycles are found so soon that few come together: of 50 pods a second 28,000 blocks of them
came and went with ten seconds, 5,500 with two, 1,200 with this. It takes 0.8 ms then, and 2.5 with
two seconds."""
TRIM_EVERY = 4
"""The heap is trimmed once in so many times, so often that there is little to give back, for the
loop stands still meanwhile: 0.4 ms at 20,000 pods."""
OLDER_EVERY = 20
RARELY = 1_200
"""Cycles of which a part was in use the first time are looked for once in so many times, rarely
where there are many objects to look through."""
FEW_OBJECTS = 40_000
"""So few are looked through all at once: 17,000, with 500 pods, take 5 ms, and 125,000, with 20,000
pods, 100 ms. That also gives back what Python keeps of tuples that were freed, 2,000 of each
length: it came to 20,000 blocks, which grew with each new peak and held the pages around them."""


@asynccontextmanager
async def kept_trimmed() -> AsyncIterator[None]:
    """Inside the context, keep large blocks out of the heap, and periodically collect garbage and
    trim the heap.
    """
    if malloc_trim() is not None:
        set_options()

    trimming = asyncio.create_task(_trim_for_ever(), name="heap")
    try:
        yield
    finally:
        trimming.cancel()


async def _trim_for_ever() -> None:
    trim = malloc_trim()
    for turn in itertools.count(1):
        await asyncio.sleep(COLLECT_EVERY_S)
        if gc.isenabled():  # before the first lists are read, all there is would be looked through
            gc.collect(_generation(turn))

        if trim is not None and turn % TRIM_EVERY == 0:
            trim(0)


def _generation(turn: int) -> int:
    """The oldest objects that are looked through this time."""
    if turn % OLDER_EVERY:
        return 0
    # The count costs a list of all objects, so it is taken only once in `OLDER_EVERY` times.
    if len(gc.get_objects(1)) + len(gc.get_objects(2)) <= FEW_OBJECTS:
        return 2

    return 1 if turn % RARELY == 0 else 0


def set_options() -> None:
    """Make glibc always map large blocks separately, and use one heap for all threads created
    later.
    """
    mallopt = _c_library().mallopt
    mallopt(M_MMAP_THRESHOLD, APART_BYTES)
    mallopt(M_ARENA_MAX, 1)


def malloc_trim() -> Callable[[int], int] | None:
    """glibc's `malloc_trim`; None with another C library. Its argument is the number of bytes to
    keep.
    """
    trim: Callable[[int], int] | None = (
        getattr(_c_library(), "malloc_trim", None) if os.name == "posix" else None
    )
    return trim


def _c_library() -> ctypes.CDLL:
    """The functions of the process's C library."""
    import ctypes  # 2 ms

    return ctypes.CDLL(None)
