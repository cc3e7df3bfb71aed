"""Plan reviews in separate processes: a forked process plans on the current snapshot and exits.

Invariant: no review is planned in the daemon's process; the event loop only forks. A process ends
with its request, after `CPU_S` of CPU time, or after `WITHIN_S`; it has a lower priority than the
daemon (nice), is killed first if memory is short, and keeps none of the daemon's file descriptors
but its pipe (decision 0044).
"""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import signal
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from typing import NoReturn

from gangsched.visibility.pace import Pace
from gangsched.visibility.statuses import RequestRefused

AT_ONCE = 2
# RLIMIT_CPU ends a process that the daemon, being blocked, cannot kill.
WITHIN_S = 15.0
CPU_S = 10
REAP_EVERY_S = 0.05
LINE_BYTES = 4 * 1024 * 1024
NICE = 19
# oom_score_adj: the kernel kills a review before the daemon.
FIRST_TO_GO = "1000"
ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

Lines = Callable[[], Iterable[bytes]]


class Processes:
    """`lines` yields the output of work that runs in a process."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def lines(self, work: Lines) -> AsyncGenerator[bytes, None]:
        """Yield the lines of `work`, run in a process. Raises TimeoutError; ends early if the
        process was killed.
        """
        # Forking copies the page tables of the daemon on the event loop, so it is paced.
        async with self._slots, self._pace.work() as step:
            pid, pipe = _fork(work)
            reader = _PipeReader(pipe)

            try:
                await step()  # what forks take is the API's share of the loop
                async with asyncio.timeout(WITHIN_S), reader.opened() as stream:
                    while line := await stream.readline():
                        yield line
            finally:
                reader.close()
                with suppress(ProcessLookupError):
                    # Also after it has ended: a zombie takes the signal without effect, and its pid
                    # is not yet reused.
                    os.kill(pid, signal.SIGKILL)

                _reap(pid)


class _PipeReader:
    """The end of a pipe that the daemon reads."""

    def __init__(self, pipe: int) -> None:
        self._pipe: int | None = pipe

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[asyncio.StreamReader]:
        """Open a stream that reads from the pipe."""
        assert self._pipe is not None
        stream = asyncio.StreamReader(LINE_BYTES)
        source = os.fdopen(self._pipe, "rb", 0)
        self._pipe = None
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(stream),
            source,
        )

        try:
            yield stream
        finally:
            transport.close()

    def close(self) -> None:
        """Close the pipe if no stream was opened."""
        if self._pipe is not None:
            os.close(self._pipe)


def _fork(work: Lines) -> tuple[int, int]:
    """The process and the pipe that it writes to."""
    reads, writes = os.pipe()
    try:
        pid = os.fork()
    except OSError as error:  # too many processes, or no memory
        os.close(reads)
        os.close(writes)
        raise RequestRefused(
            503,
            f"no process can be made for a review: {error.strerror}",
            retry_after_s=10,
        ) from None

    # In the child; `_run` never returns.
    if not pid:
        _run(work, writes)

    os.close(writes)
    return pid, reads


def _run(work: Lines, pipe: int) -> NoReturn:
    """In the new process: nothing of the daemon goes on here, and no `finally` of it is run."""
    try:
        gc.disable()  # it would touch, and so copy, all there is
        # The descriptor is the daemon's: a signal to the child would wake the parent's loop.
        signal.set_wakeup_fd(-1)

        for each in ENDING:
            signal.signal(each, signal.SIG_DFL)

        os.closerange(3, pipe)
        os.closerange(pipe + 1, os.sysconf("SC_OPEN_MAX"))
        os.nice(NICE)
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))

        with suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
            score.write(FIRST_TO_GO)

        with os.fdopen(pipe, "wb", 0) as out:
            for line in work():
                out.write(line + b"\n")
    finally:
        # No atexit handlers, buffers or finalizers of the daemon may run here.
        os._exit(0)


def _reap(pid: int) -> None:
    """Look after a process that was killed until it is gone."""
    with suppress(ChildProcessError):
        if os.waitpid(pid, os.WNOHANG) == (0, 0):
            asyncio.get_running_loop().call_later(REAP_EVERY_S, _reap, pid)
