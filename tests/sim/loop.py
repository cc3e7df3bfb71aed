"""An asyncio loop without a selector: its clock is given, and its connections lead to the simulated
network.

Invariant: nothing real happens in it. Threads run inline, a connection is what `connect` makes of
it, and callbacks run only when the simulation says so, so that a process can be stopped between any
two of them. Tasks are hashed by their number: sets of them have the same order in every run.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import socket
from asyncio import events
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context
from typing import Any

Connect = Callable[["VirtualLoop", asyncio.BaseProtocol], asyncio.Transport]
LATE_S = 1e-9
"""How late timers are, so that differences of floats make none early."""


class NumberedTask(asyncio.Task[Any]):
    """A task whose hash is its number in the loop."""

    def __init__(self, coroutine: Any, *, number: int, **more: Any) -> None:
        self._number = number
        super().__init__(coroutine, **more)

    def __hash__(self) -> int:
        return self._number


class VirtualLoop(asyncio.BaseEventLoop):
    """`clock` is the process's monotonic time in seconds."""

    def __init__(self, clock: Callable[[], float], connect: Connect) -> None:
        super().__init__()
        self._clock = clock
        self._connect = connect
        self._numbers = itertools.count()
        self.failures: list[str] = []
        self.set_task_factory(self._make_task)
        self.set_exception_handler(self._failed)

    # --- what the simulation asks ----------------------------------------------------------------

    @property
    def is_busy(self) -> bool:
        """Whether a callback is to be run now."""
        return bool(self._ready)  # type: ignore[attr-defined]

    def next_s(self) -> float:
        """When its next timer is due, by its own clock; infinity if there is none."""
        timers = self._scheduled  # type: ignore[attr-defined]
        while timers and timers[0]._cancelled:
            heapq.heappop(timers)._scheduled = False
            self._timer_cancelled_count -= 1  # type: ignore[attr-defined]
        return timers[0]._when if timers else float("inf")

    def run_callbacks(self, most: int) -> int:
        """Run what is due, at most so many callbacks; how many were run."""
        due_s = self.time()
        ready, timers = self._ready, self._scheduled  # type: ignore[attr-defined]
        while self.next_s() <= due_s:
            handle = heapq.heappop(timers)
            handle._scheduled = False
            ready.append(handle)
        done = 0
        before = events._get_running_loop()
        events._set_running_loop(self)
        try:
            while ready and done < most:
                handle = ready.popleft()
                if not handle._cancelled:
                    handle._run()
                    done += 1
        finally:
            events._set_running_loop(before)
        return done

    # --- what asyncio asks -----------------------------------------------------------------------

    def time(self) -> float:
        return self._clock()

    async def create_connection(self, protocol_factory: Any, *_: Any, **__: Any) -> Any:
        protocol = protocol_factory()
        await asyncio.sleep(0)
        transport = self._connect(self, protocol)
        protocol.connection_made(transport)
        return transport, protocol

    async def sock_connect(self, sock: socket.socket, address: Any) -> None:
        """Connect nowhere: the socket is closed, and the connection is made
        by `create_connection`.
        """
        sock.close()

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> Any:  # type: ignore[override]
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Any, *args: Any, context: Context | None = None
    ) -> Any:
        return self.call_soon(callback, *args, context=context)

    def _make_task(
        self,
        loop: asyncio.AbstractEventLoop,
        coroutine: Coroutine[Any, Any, Any] | Generator[Any, None, Any],
        **more: Any,
    ) -> NumberedTask:
        return NumberedTask(coroutine, loop=loop, number=next(self._numbers), **more)

    def _failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.failures.append(f"{context.get('message')}: {context.get('exception')!r}")

    def _process_events(self, event_list: Any) -> None:
        raise AssertionError("there is no selector")

    def _write_to_self(self) -> None:
        """Wake nobody: there is one thread."""
