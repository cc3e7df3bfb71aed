"""Request bodies: which are refused without being read, how the others are read, and how the
connection of a refused request ends.

Invariant: nothing is decompressed, since a megabyte may contain a gigabyte. Headers are checked
before any byte of the body is awaited (decision 0044).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress

from aiohttp import hdrs, web

from gangsched.visibility.statuses import RequestRefused

BODY_BYTES = 512 * 1024
READ_WITHIN_S = 5.0
REST_WITHIN_S = 1.0
"""How long the rest of a refused body is waited for, so that the connection, which others share,
can stay.
"""
END_WITHIN_S = 1.0
TOO_LARGE = f"Request entity too large: limit is {BODY_BYTES}"


def judge_head(request: web.Request) -> None:
    """Raise RequestRefused (400, 413, 415) for a body that must not be read."""
    if hdrs.CONTENT_ENCODING in request.headers:
        raise RequestRefused(
            415,
            "the body of the request is encoded - Content-Encoding is not supported",
        )
    if request.method in {"GET", "HEAD"} and request.body_exists:
        raise RequestRefused(400, f"a {request.method} has no body")
    if (request.content_length or 0) > BODY_BYTES:
        raise RequestRefused(413, TOO_LARGE)


async def read_body(request: web.Request, within_s: float | None = None) -> bytes:
    """Read the whole body. Raises RequestRefused (408, 413)."""
    found = bytearray()
    within_s = within_s or READ_WITHIN_S

    try:
        async with asyncio.timeout(within_s):
            async for part in request.content.iter_any():
                found += part
                # Content-Length may be missing (chunked), so the bytes are counted as well.
                if len(found) > BODY_BYTES:
                    raise RequestRefused(413, TOO_LARGE)
    except TimeoutError:
        raise RequestRefused(
            408,
            f"the body of the request did not come within {within_s:g} s",
        ) from None

    return bytes(found)


async def settle(
    request: web.Request,
    response: web.Response,
    place: Callable[[], AbstractContextManager[None]],
) -> None:
    """Keep the connection of a refused request open if its body is complete, otherwise close it.

    While it waits for the rest of the body, it counts as one of the concurrent requests (`place`).
    Raises RequestRefused if none is free.
    """
    is_short = (request.content_length or 0) <= BODY_BYTES
    # Whoever is not authenticated, too slow or too large gets no more of our time.
    if response.status not in {401, 408, 413} and is_short and not request.content.is_eof():
        with suppress(RequestRefused), place():
            await read_body(request, REST_WITHIN_S)

    if response.status == 401 or not request.content.is_eof():
        response.force_close()
        end_unread(request.transport)


def end_unread(transport: asyncio.Transport | None) -> None:
    """Stop reading, and close the connection soon, whether or not the client has received the
    answer.
    """
    if transport is not None:
        # Unread bytes stay in the kernel, which slows the sender down instead of filling our
        # memory.
        transport.pause_reading()
        asyncio.get_running_loop().call_later(END_WITHIN_S, transport.abort)
