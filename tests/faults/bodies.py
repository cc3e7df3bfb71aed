"""Faults in the body of an answer: it comes slowly, in part or twice, and a watch stops, freezes or
says nonsense.

Invariant: what is passed on of the server's bytes stays in their order.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from enum import Enum, auto

from aiohttp import web

from tests.faults.answers import status
from tests.faults.rules import Closed, Cut, Exchange

PIECES = 10


@dataclass(frozen=True, slots=True)
class Trickle:
    """The body of the server's answer comes in pieces over `seconds`; with `cut` the connection
    ends half-way.
    """

    seconds: float
    cut: bool = False

    async def strike(self, exchange: Exchange) -> web.StreamResponse:
        answer = await exchange.forward()
        assert isinstance(answer.body, bytes)
        passed = web.StreamResponse(
            status=answer.status, headers={"Content-Type": answer.content_type}
        )
        passed.content_length = len(answer.body)
        await passed.prepare(exchange.request)
        size = -(-len(answer.body) // PIECES)
        for number in range(PIECES // 2 if self.cut else PIECES):
            await asyncio.sleep(self.seconds / PIECES)
            await passed.write(answer.body[number * size : (number + 1) * size])
        if self.cut:
            raise Cut
        return passed


@dataclass(frozen=True, slots=True)
class SmallPages:
    """A list is answered in pages of at most `limit` objects, so that it has continue tokens."""

    limit: int = 1

    async def strike(self, exchange: Exchange) -> web.StreamResponse:
        return await exchange.forward(limit=self.limit)


class End(Enum):
    """What becomes of a watch."""

    CUT = auto()
    """The connection ends in the middle of a line."""
    CLOSED = auto()
    """The stream ends as when the server has had enough."""
    FROZEN = auto()
    """The connection stays open and nothing comes any more."""
    EXPIRED = auto()
    """A line says that the resourceVersion is too old, and the stream ends."""
    GARBLED = auto()
    """A line that is no JSON, and the stream goes on behind it."""
    MISSHAPEN = auto()
    """A line that is JSON and no watch event, and the stream goes on behind it."""


@dataclass(frozen=True, slots=True)
class Watch:
    """A watch that goes well for `lines` lines, then `end`."""

    end: End
    lines: int = 0

    async def strike(self, exchange: Exchange) -> web.StreamResponse:
        return await exchange.stream(self._edit)

    async def _edit(self, lines: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        left = self.lines
        if left == 0 and self.end is not End.CUT:
            async for said in self._end(b""):
                yield said
        async for line in lines:
            left -= 1
            if left >= 0 or self.end in {End.GARBLED, End.MISSHAPEN}:
                yield line
            if left == (-1 if self.end is End.CUT else 0):
                async for said in self._end(line):
                    yield said

    async def _end(self, line: bytes) -> AsyncIterator[bytes]:
        match self.end:
            case End.CUT:
                yield line[: len(line) // 2]
                raise Cut
            case End.CLOSED:
                raise Closed
            case End.FROZEN:
                await asyncio.sleep(3600.0)
            case End.EXPIRED:
                gone = {"type": "ERROR", "object": status(410, "too old resource version: 1 (2)")}
                yield json.dumps(gone).encode() + b"\n"
                raise Closed
            case End.GARBLED:
                yield b'{"type":"MODIFIED","object":{"meta\xff\x00data":\n'
            case End.MISSHAPEN:
                yield (
                    b'{"type":"MODIFIED","object":'
                    b'{"metadata":{"name":["not","a","name"]},"spec":7}}\n'
                )


@dataclass(frozen=True, slots=True)
class Repeated:
    """Each line of a watch comes twice; with `replay` all lines until now come again after each,
    from the first on.
    """

    replay: bool = False

    async def strike(self, exchange: Exchange) -> web.StreamResponse:
        return await exchange.stream(self._edit)

    async def _edit(self, lines: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        before: list[bytes] = []
        async for line in lines:
            before = [*before, line] if self.replay else [line]
            yield line
            for again in before:
                yield again
