"""Processes of reviews: what they hold, how they end, and that the daemon's loop goes on meanwhile
(0044).
"""

from __future__ import annotations

import asyncio
import os
import resource
import time
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path

import pytest

from gangsched.visibility.pace import Pace
from gangsched.visibility.reviews import processes
from gangsched.visibility.reviews.processes import AT_ONCE, CPU_S, NICE, Processes

SOON_S = 5.0


def children() -> set[str]:
    """Processes of this one, those that ended and are not looked after included."""
    return {
        pid
        for task in Path("/proc/self/task").iterdir()
        for pid in (task / "children").read_text().split()
    }


async def gone(others: set[str]) -> None:
    """Wait until there are no more than those."""
    async with asyncio.timeout(SOON_S):
        while children() - others:  # noqa: ASYNC110  (nobody tells)
            await asyncio.sleep(0.01)


async def told(work: processes.Lines) -> list[bytes]:
    """All lines of one."""
    return [line.strip() async for line in Processes(Pace()).lines(work)]


async def test_it_gives_way_and_holds_nothing_open() -> None:
    """Nothing of the daemon's sockets, or their peers would wait for their ends until it
    is gone.
    """

    def looks() -> Iterator[bytes]:
        mine = [
            fd
            for fd in os.listdir("/proc/self/fd")
            if int(fd) > 2 and Path(f"/proc/self/fd/{fd}").exists()
        ]
        yield str(len(mine)).encode()
        yield str(os.nice(0)).encode()
        yield str(resource.getrlimit(resource.RLIMIT_CPU)[0]).encode()
        yield Path("/proc/self/oom_score_adj").read_bytes().strip()

    one, other = os.pipe()
    try:
        assert await told(looks) == [
            b"1",
            str(min(19, os.nice(0) + NICE)).encode(),
            str(CPU_S).encode(),
            b"1000",
        ]
    finally:
        os.close(one)
        os.close(other)


def for_ever() -> Iterator[bytes]:
    """A plan that does not end."""
    yield b"begun"
    while True:
        pass


async def test_it_ends_with_who_waits_and_the_loop_goes_on() -> None:
    """Other requests have their turn within a moment; cancelled, the process is killed and looked
    after.
    """
    before, running = children(), asyncio.Event()

    async def wait() -> None:
        async with aclosing(Processes(Pace()).lines(for_ever)) as found:
            async for _ in found:
                running.set()

    waiting = asyncio.create_task(wait())
    await asyncio.wait_for(running.wait(), SOON_S)
    assert len(children() - before) == 1
    late_s = 0.0
    for _ in range(20):
        began_s = time.monotonic()
        await asyncio.sleep(0.01)
        late_s = max(late_s, time.monotonic() - began_s - 0.01)
    assert late_s < 1.0
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await gone(before)


async def test_it_ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the clock, and by what it took of a processor; what it told until then is known."""
    before = children()
    monkeypatch.setattr(processes, "WITHIN_S", 0.3)
    with pytest.raises(TimeoutError):
        await told(for_ever)
    await gone(before)
    monkeypatch.setattr(processes, "WITHIN_S", 20.0)
    monkeypatch.setattr(processes, "CPU_S", 1)
    # else others may leave it too little of a processor until then
    monkeypatch.setattr(processes, "NICE", 0)
    assert await told(for_ever) == [b"begun"]
    await gone(before)


async def test_few_run_at_once() -> None:
    """The others wait for a slot."""
    before, many = children(), Processes(Pace())

    async def wait() -> None:
        async for _ in many.lines(for_ever):
            pass

    waiting = [asyncio.create_task(wait()) for _ in range(AT_ONCE + 3)]
    await asyncio.sleep(0.2)
    assert len(children() - before) == AT_ONCE
    for each in waiting:
        each.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    await gone(before)
