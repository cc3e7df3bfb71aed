"""Serve a small web application on one address.

Invariant: if the port is not available, a SettingsError names the setting to change; port 0
disables the server. `health` and `debug` have the pages.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from gangsched.settings import SettingsError


@asynccontextmanager
async def serve(
    app: web.Application,
    host: str,
    port: int,
    *,
    what: str,
    remedy: str,
) -> AsyncIterator[None]:
    """Serve `app` inside the context; `what` and `remedy` are texts for the error message."""
    if port == 0:
        yield
        return

    # The daemon handles signals itself; aiohttp would end the loop instead of draining it.
    runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=1.0)
    await runner.setup()

    try:
        try:
            # None binds all interfaces, IPv4 and IPv6.
            await web.TCPSite(runner, host or None, port).start()
        except OSError as error:
            where = (
                f"[{host}]:{port}" if ":" in host else f"{host}:{port}" if host else f"port {port}"
            )
            raise SettingsError(
                f"Cannot serve {what} on {where}: {_said(error)}; {remedy}."
            ) from error

        yield
    finally:
        await runner.cleanup()


def _said(error: OSError) -> str:
    """The operating system's message, which asyncio wraps in its own; failed name look-ups have
    negative numbers.
    """
    known = error.errno is not None and error.errno > 0
    if known and error.errno:
        return os.strerror(error.errno)

    return error.strerror or str(error)
