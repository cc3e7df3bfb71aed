"""Work in a thread that nobody waits for."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

import pytest

from gangsched.kube.background import in_background

ENDS = """
import asyncio, time
from gangsched.kube.background import in_background

async def main():
    task = asyncio.create_task(in_background(lambda: time.sleep(600), name="slow"))
    await asyncio.sleep(0)
    task.cancel()

asyncio.run(main())
"""


async def test_the_result_or_the_error_comes_back() -> None:
    """As from a call."""

    def fails() -> None:
        raise ValueError("no")

    assert await in_background(lambda: threading.current_thread().name, name="worker") == "worker"
    with pytest.raises(ValueError, match="no"):
        await in_background(fails, name="worker")


async def test_what_nobody_waits_for_any_more_is_dropped() -> None:
    """The late result of a cancelled wait is no error of the loop."""
    goes_on, ended = threading.Event(), asyncio.Event()
    troubles: list[object] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: troubles.append(context))

    def work() -> None:
        goes_on.wait(30)
        loop.call_soon_threadsafe(lambda: loop.call_soon(ended.set))

    task = asyncio.create_task(in_background(work, name="worker"))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task})
    goes_on.set()
    await ended.wait()
    await asyncio.sleep(0)
    assert troubles == []


def test_a_process_ends_without_it() -> None:
    """Its thread does not keep the process."""
    ended = subprocess.run(
        [sys.executable, "-c", ENDS], timeout=60, capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")
