"""Rules of the fault proxy: which requests go wrong, and how.

    Rule(verb="create", resource="pods", subresource="binding", faults=nth(3, Delay(2.0)))

Law: a rule gives each matching request the next of its `faults`; None and what comes after the last lets it pass. The
first rule that gives one wins. What a fault does with the request is written in it and nowhere else.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import socket
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from aiohttp import web

from tests.faults.requests import ApiRequest


class Exchange(Protocol):
    """One request on its way: `forward` sends it to the API server (the answer is bytes), `later` after a while."""

    request: web.Request

    async def forward(self) -> web.Response:
        """Have it carried out; the server's answer."""

    def later(self, delay_s: float) -> None:
        """Have it carried out after `delay_s`, whatever becomes of the connection; nobody gets the answer."""


class Fault(Protocol):
    """What goes wrong."""

    async def strike(self, exchange: Exchange) -> web.StreamResponse:
        """The answer to give. Raises Cut to give none."""


class Cut(Exception):  # noqa: N818  (it is no error, it is the fault)
    """The connection ends without an answer; `reset` with RST instead of FIN."""

    def __init__(self, *, reset: bool = False) -> None:
        super().__init__()
        self.reset = reset


@dataclass(frozen=True, slots=True)
class Delay:
    """The request arrives `seconds` late; the answer is the server's."""

    seconds: float

    async def strike(self, exchange: Exchange) -> web.StreamResponse:
        await asyncio.sleep(self.seconds)
        return await exchange.forward()


@dataclass(frozen=True, slots=True)
class Drop:
    """The connection is closed, with `reset` by RST; `applied`: after the server carried the request out."""

    applied: bool = False
    reset: bool = False

    async def strike(self, exchange: Exchange) -> web.StreamResponse:
        if self.applied:
            await exchange.forward()
        raise Cut(reset=self.reset)


@dataclass(frozen=True, slots=True)
class BlackHole:
    """The connection stays open and silent for `seconds`; `applied`: the server carries the request out."""

    seconds: float = 3600.0
    applied: bool = False

    async def strike(self, exchange: Exchange) -> web.StreamResponse:
        if self.applied:
            exchange.later(0.0)
        await asyncio.sleep(self.seconds)
        raise Cut


@dataclass(frozen=True, slots=True)
class Answer:
    """This answer instead of the server's; `applied_after_s`: the request is carried out all the same, later."""

    status: int
    body: str
    content_type: str = "application/json"
    applied_after_s: float | None = None

    async def strike(self, exchange: Exchange) -> web.StreamResponse:
        if self.applied_after_s is not None:
            exchange.later(self.applied_after_s)
        return web.Response(status=self.status, body=self.body.encode(), content_type=self.content_type)


def etcd_timeout(applied_after_s: float | None) -> Answer:
    """What the API server 1.36 makes of a bind whose etcd write timed out: a Conflict with etcd's text in it."""
    text = 'Operation cannot be fulfilled on pods/binding "p": etcdserver: request timed out'
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": text, "reason": "Conflict"}
    return Answer(409, json.dumps({**body, "code": 409}), applied_after_s=applied_after_s)


def gateway_page(status: int, applied_after_s: float | None) -> Answer:
    """What a load balancer says when the server behind it takes too long or goes away."""
    page = f"<html><head><title>{status}</title></head><body><center><h1>{status}</h1></center></body></html>"
    return Answer(status, page, "text/html", applied_after_s)


def nth(number: int, fault: Fault) -> Iterator[Fault | None]:
    """`fault` for the n-th request (from 1) only."""
    return itertools.chain(itertools.repeat(None, number - 1), (fault,))


@dataclass(slots=True)
class Rule:
    """Which requests, None for any, and what they meet; `struck` counts the faults given."""

    faults: Iterable[Fault | None]
    verb: str | None = None
    resource: str | None = None
    subresource: str | None = None
    struck: int = 0
    _next: Iterator[Fault | None] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._next = iter(self.faults)

    def fault_for(self, request: ApiRequest) -> Fault | None:
        """What happens to a request; None: nothing."""
        wanted = ((self.verb, request.verb), (self.resource, request.resource), (self.subresource, request.subresource))
        if any(asked is not None and asked != given for asked, given in wanted):
            return None
        fault = next(self._next, None)
        self.struck += fault is not None
        return fault


def reset(transport: asyncio.BaseTransport | None) -> None:
    """End a connection with RST."""
    if isinstance(transport, asyncio.Transport):
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport.abort()
