"""Blocking work, such as an import, in a thread that does not delay the end of the process.

asyncio joins the threads of its executor when the loop and the interpreter end, so a process that
stops would first finish its imports, which takes seconds on a busy machine.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")


async def in_background(work: Callable[[], T], *, name: str) -> T:
    """Return the result of `work`, or raise its exception. If this call is cancelled, the thread,
    called `name`, continues alone.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(settling: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the loop is closed, so the result is not needed
            loop.call_soon_threadsafe(lambda: None if done.done() else settling())

    def run() -> None:
        try:
            result = work()
        except BaseException as error:  # raised where it is awaited
            fault = error
            settle(lambda: done.set_exception(fault))
        else:
            settle(lambda: done.set_result(result))

    threading.Thread(target=run, name=name, daemon=True).start()
    return await done
