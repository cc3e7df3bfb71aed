"""A middlebox between a client and an API server, as firewalls and balancers are that forget their
connections.

    with Middlebox(port) as middlebox:
        Daemon(plane, url=middlebox.url)
        middlebox.swallow()

Invariant: bytes go through as they are, TLS is the ends' own. `swallow` ends no connection: from
then on those that are open take what is sent and acknowledge it, and pass nothing on. Later ones
pass.
"""

from __future__ import annotations

import asyncio
import threading
from types import TracebackType
from typing import Self


class Middlebox:
    """See the module; `port` is the API server's, on 127.0.0.1."""

    def __init__(self, port: int) -> None:
        self.url = ""
        self._port = port
        self._epoch = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="middlebox", daemon=True
        )

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(10)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def swallow(self) -> None:
        """From now on nothing passes on the connections that are open."""
        self._epoch += 1

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._accepted, "127.0.0.1", 0)
        self.url = f"https://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _close(self) -> None:
        self._server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        epoch = self._epoch
        to_server, from_server = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            await asyncio.gather(
                self._pass(reader, from_server, epoch), self._pass(to_server, writer, epoch)
            )
        # asyncio logs a handler that was cancelled as an error
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            writer.close()
            from_server.close()

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, epoch: int
    ) -> None:
        """Pass on what comes, to its end; an end is swallowed, too."""
        while data := await reader.read(2**16):
            if epoch == self._epoch:
                writer.write(data)
                await writer.drain()
        if epoch == self._epoch:
            writer.close()
