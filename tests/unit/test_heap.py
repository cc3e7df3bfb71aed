"""The heap: what is free goes back to the system, while the daemon runs."""

from __future__ import annotations

import asyncio
import gc
import os
import re
import subprocess
import sys
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gangsched import app, heap
from gangsched.reload import Reloader
from gangsched.settings import Settings

PIECE_BYTES, PIECES = 3_000, 20_000
EVERY = 50
"""One piece in so many stays: all between two of them is free, and none of it at the end of the
heap.
"""


def resident_bytes() -> int:
    """Of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


glibc_only = pytest.mark.skipif(heap.malloc_trim() is None, reason="the C library is not glibc")


@glibc_only
def test_large_blocks_are_mapped_apart_whatever_was_freed_before() -> None:
    """glibc alone extends the heap instead, once a larger block was freed: to what stays among
    them.
    """
    script = """
import ctypes
from gangsched import heap
bytes(80 * heap.APART_BYTES)
heap.set_options()
blocks = [bytes(heap.APART_BYTES) for _ in range(400)]
ctypes.CDLL(None).malloc_stats()
"""
    said = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stderr
    (most,) = re.findall(r"^max mmap regions = +(\d+)", said, re.MULTILINE)
    assert int(most) > 300, "what is free in the heap is used first"


@glibc_only
def test_what_is_free_between_what_stays_goes_back() -> None:
    """60 MB of pieces, of which one in fifty stays: nearly all of it comes back, and only by a
    trim.
    """
    trim = heap.malloc_trim()
    assert trim is not None
    trim(0)
    before = resident_bytes()
    pieces = [bytes(PIECE_BYTES) for _ in range(PIECES)]
    full = resident_bytes() - before
    kept = pieces[::EVERY]
    del pieces
    untrimmed = resident_bytes() - before
    trim(0)
    left = resident_bytes() - before
    assert len(kept) == PIECES // EVERY
    assert untrimmed > 0.8 * full > 0.8 * PIECE_BYTES * PIECES * 0.9
    assert left < 0.3 * full


@glibc_only
def test_a_thread_takes_from_the_one_heap() -> None:
    """In an own one, what a thread that imports leaves free would be of no use to others: it had 23
    of 49 MB free.
    """
    script = """
import ctypes, threading
from gangsched import heap
heap.set_options()
thread = threading.Thread(target=lambda: [bytes(2_000) for _ in range(1_000)])
thread.start()
thread.join()
ctypes.CDLL(None).malloc_stats()
"""
    said = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stderr
    assert re.findall(r"^Arena (\d+):", said, re.MULTILINE) == ["0"]


async def test_it_is_trimmed_again_and_again_until_the_context_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All free memory each time; nothing goes on after it."""
    kept, calls, third = list[int](), list[str](), asyncio.Event()

    def trim(keep: int) -> int:
        kept.append(keep)
        if len(kept) == 3:
            third.set()
        return 1

    monkeypatch.setattr(heap, "COLLECT_EVERY_S", 0.0)
    monkeypatch.setattr(heap, "malloc_trim", lambda: trim)
    monkeypatch.setattr(heap, "set_options", lambda: calls.append("options"))
    async with heap.kept_trimmed():
        await asyncio.wait_for(third.wait(), 30)
    await asyncio.sleep(0)
    assert set(kept) == {0}
    assert calls == ["options"]
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "heap"]


class Cycle:
    """An object that only the garbage collector finds."""

    def __init__(self) -> None:
        self.itself = self


@pytest.mark.parametrize("few", [0, 10**9])
async def test_cycles_go_although_python_does_not_look_for_them_yet(
    monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    """Also with another C library, and those that were in use when they were looked at first, few
    objects or many.
    """
    monkeypatch.setattr(heap, "COLLECT_EVERY_S", 0.0)
    monkeypatch.setattr(heap, "OLDER_EVERY", 3)
    monkeypatch.setattr(heap, "RARELY", 6)
    monkeypatch.setattr(heap, "FEW_OBJECTS", few)
    monkeypatch.setattr(heap, "malloc_trim", lambda: None)
    thresholds = gc.get_threshold()
    gc.enable()
    gc.set_threshold(0)  # never by itself
    try:
        cycle = Cycle()
        old = weakref.ref(cycle)
        gc.collect(0)  # it is one of those that stay
        del cycle
        new = weakref.ref(Cycle())
        async with heap.kept_trimmed():
            for _ in range(20):
                await asyncio.sleep(0)
        assert old() is None
        assert new() is None
    finally:
        gc.set_threshold(*thresholds)


async def test_what_is_kept_of_freed_tuples_goes_where_objects_are_few(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Python keeps 2,000 tuples of each length; where there are many objects, to find them would
    take long.
    """
    monkeypatch.setattr(heap, "COLLECT_EVERY_S", 0.0)
    monkeypatch.setattr(heap, "OLDER_EVERY", 3)
    monkeypatch.setattr(heap, "malloc_trim", lambda: None)

    async def freed(few: int) -> int:
        monkeypatch.setattr(heap, "FEW_OBJECTS", few)
        tuples = [tuple(range(number, number + 17)) for number in range(1_500)]
        del tuples
        before = sys.getallocatedblocks()
        async with heap.kept_trimmed():
            for _ in range(5):
                await asyncio.sleep(0)
        return before - sys.getallocatedblocks()

    gc.collect()
    assert await freed(0) < 1_000
    assert await freed(10**9) > 1_400


async def test_nothing_is_looked_through_while_much_is_being_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Python's collector is off until the daemon is ready: what lists of 150,000 pods make would be
    looked through.
    """
    monkeypatch.setattr(heap, "COLLECT_EVERY_S", 0.0)
    monkeypatch.setattr(heap, "malloc_trim", lambda: None)
    gc.disable()
    try:
        cycle = weakref.ref(Cycle())
        async with heap.kept_trimmed():
            for _ in range(20):
                await asyncio.sleep(0)
        assert cycle() is not None
    finally:
        gc.enable()


async def test_the_daemon_keeps_its_heap_trimmed(monkeypatch: pytest.MonkeyPatch) -> None:
    """From its connection to the API server to its end."""
    said = list[str]()

    @asynccontextmanager
    async def noted(name: str) -> AsyncIterator[None]:
        said.append(f"{name} begins")
        yield
        said.append(f"{name} ends")

    async def connect(_: Path | None) -> object:
        return noted("client")

    async def check(*_: object) -> None:
        """It is told to stop before its permissions are known."""
        said.append("runs")

    monkeypatch.setattr(app, "connect", connect)
    monkeypatch.setattr(app, "kept_trimmed", lambda: noted("trimming"))
    monkeypatch.setattr(app, "_check", check)
    monkeypatch.setattr(app, "_daemon", lambda: object)
    await app._run(Reloader(Settings(), Settings, None))
    assert said == ["client begins", "trimming begins", "runs", "trimming ends", "client ends"]
