"""A web server on loopback with a thread and an event loop of its own, for clients that block."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from aiohttp import web

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class ServerThread:
    """Serves `handle` from `start` to `stop`; `url` is where."""

    def __init__(self, handle: Handler, tls: ssl.SSLContext | None = None) -> None:
        self.url = ""
        self._handle = handle
        self._tls = tls
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="web server", daemon=True
        )

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something in the server's loop, and wait for its end."""
        asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    def start(self) -> None:
        """Listen on a free port."""
        self._thread.start()
        self.run(self._listen())

    def stop(self) -> None:
        """Close every connection, end the handlers that still run, and end the thread."""
        self.run(self._runner.cleanup())
        self.run(_cancel_others())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _listen(self) -> None:
        self._runner = web.ServerRunner(web.Server(self._handle), shutdown_timeout=0.1)  # type: ignore[arg-type]
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=self._tls).start()
        self.url = f"{'https' if self._tls else 'http'}://127.0.0.1:{self._runner.addresses[0][1]}"


async def _cancel_others() -> None:
    """Cancel every task of this loop but the present one, and wait for their ends."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


def tls_of(certificate: object, key: object) -> ssl.SSLContext:
    """What a server needs to show this certificate."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(str(certificate), str(key))
    return context
