"""Rules of the fault proxy: which requests go wrong, and how.

    Rule(verb="create", resource="pods", subresource="binding", faults=nth(3, Delay(2.0)))

Invariant: a rule gives each matching request the next of its `faults`; None and what comes after
the last lets it pass. The first rule that gives one wins. What a fault does with the request is
written in it and nowhere else.
"""

from __future__ import annotations

import asyncio
import itertools
import socket
import struct
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from aiohttp import web

from tests.faults.requests import ApiRequest

Edit = Callable[[AsyncIterator[bytes]], AsyncIterator[bytes]]
"""What becomes of the lines of a watch: lines with their newline in, bytes out."""


class Exchange(Protocol):
    """One request on its way to the API server."""

    request: web.Request
    asked: ApiRequest

    async def forward(self, *, limit: int | None = None) -> web.Response:
        """Have it carried out; the server's answer. Not for watches, which do not end. `limit` is
        that of a list.
        """

    async def stream(self, edit: Edit | None = None) -> web.StreamResponse:
        """Open a watch and pass it on to its end, edited. What `edit` raises ends it."""

    async def carry_out(self) -> None:
        """Have it carried out, a watch opened; nobody gets the answer."""

    def later(self, delay_s: float) -> None:
        """Have it carried out after `delay_s`, whatever becomes of the connection; nobody gets the
        answer.
        """


class Fault(Protocol):
    """What goes wrong."""

    async def strike(self, exchange: Exchange) -> web.StreamResponse:
        """The answer to give. Raises Cut to give none."""


class Cut(Exception):  # noqa: N818  (it is no error, it is the fault)
    """The connection ends without an answer; `reset` with RST instead of FIN."""

    def __init__(self, *, reset: bool = False) -> None:
        super().__init__()
        self.reset = reset


class Closed(Exception):  # noqa: N818
    """A watch ends in good order."""


@dataclass(frozen=True, slots=True)
class Delay:
    """The request arrives `seconds` late, or with `applied` in time and its answer is late; it is
    the server's.
    """

    seconds: float
    applied: bool = False

    async def strike(self, exchange: Exchange) -> web.StreamResponse:
        if self.applied:
            answer = await exchange.forward()
            await asyncio.sleep(self.seconds)
            return answer
        await asyncio.sleep(self.seconds)
        return await (exchange.stream() if exchange.asked.verb == "watch" else exchange.forward())


@dataclass(frozen=True, slots=True)
class Drop:
    """The connection is closed, with `reset` by RST; `applied`: after the server carried the
    request out.
    """

    applied: bool = False
    reset: bool = False

    async def strike(self, exchange: Exchange) -> web.StreamResponse:
        if self.applied:
            await exchange.carry_out()
        raise Cut(reset=self.reset)


@dataclass(frozen=True, slots=True)
class BlackHole:
    """The connection stays open and silent for `seconds`; `applied`: the server carries the request
    out.
    """

    seconds: float = 3600.0
    applied: bool = False

    async def strike(self, exchange: Exchange) -> web.StreamResponse:
        if self.applied:
            exchange.later(0.0)
        await asyncio.sleep(self.seconds)
        raise Cut


@dataclass(frozen=True)
class Held:
    """The connection stays open and silent until `release` is set, and is closed then."""

    release: threading.Event = field(default_factory=threading.Event)

    async def strike(self, exchange: Exchange) -> web.StreamResponse:
        while not self.release.is_set():  # noqa: ASYNC110  (it is set by another thread)
            await asyncio.sleep(0.02)
        raise Cut


@dataclass(frozen=True, slots=True)
class Answer:
    """This answer instead of the server's; `applied_after_s`: the request is carried out all the
    same, later.
    """

    status: int
    body: str
    content_type: str = "application/json"
    applied_after_s: float | None = None
    retry_after_s: int | None = None

    async def strike(self, exchange: Exchange) -> web.StreamResponse:
        if self.applied_after_s is not None:
            exchange.later(self.applied_after_s)
        headers = {} if self.retry_after_s is None else {"Retry-After": str(self.retry_after_s)}
        body = self.body.encode()
        return web.Response(
            status=self.status, body=body, content_type=self.content_type, headers=headers
        )


def nth(number: int, fault: Fault) -> Iterator[Fault | None]:
    """`fault` for the n-th request (from 1) only."""
    return itertools.chain(itertools.repeat(None, number - 1), (fault,))


@dataclass(slots=True)
class Rule:
    """Which requests, None for any, and what they meet; `struck` counts the faults given.

    `next_page`: only lists that go on from a continue token. `where` says more of the requests
    meant.
    """

    faults: Iterable[Fault | None]
    verb: str | None = None
    resource: str | None = None
    subresource: str | None = None
    next_page: bool | None = None
    where: Callable[[ApiRequest], bool] = lambda _: True
    struck: int = 0
    _next: Iterator[Fault | None] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._next = iter(self.faults)

    def fault_for(self, request: ApiRequest) -> Fault | None:
        """What happens to a request; None: nothing."""
        wanted = (
            (self.verb, request.verb),
            (self.resource, request.resource),
            (self.subresource, request.subresource),
            (self.next_page, request.is_next_page),
        )
        if any(asked is not None and asked != given for asked, given in wanted) or not self.where(
            request
        ):
            return None
        fault = next(self._next, None)
        self.struck += fault is not None
        return fault


def reset(transport: asyncio.BaseTransport | None) -> None:
    """End a connection with RST."""
    if isinstance(transport, asyncio.Transport):
        transport.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
        )
        transport.abort()
