"""A proxy between a client and a real API server that does to requests what its rules say.

    with FaultProxy(plane) as proxy:
        proxy.rules.append(Rule(subresource="binding", faults=[Drop(applied=True)]))
        Daemon(plane, url=proxy.url)

Invariant: TLS on loopback with the control plane's own certificate, a thread and an event loop of
its own; a request that no rule strikes goes through unchanged, credentials and watches included. It
decides nothing itself.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from types import TracebackType
from typing import NamedTuple, Self

import aiohttp
from aiohttp import web
from control_plane import ControlPlane
from yarl import URL

from tests.faults.requests import ApiRequest
from tests.faults.rules import Closed, Cut, Edit, Rule, reset
from tests.server_thread import ServerThread, tls_of

PASSED_ON = ("Authorization", "Content-Type", "Accept", "User-Agent")


class Answered(NamedTuple):
    """What the API server itself answered, whatever became of its answer."""

    asked: ApiRequest
    status: int


class _Stream(NamedTuple):
    """A watch under way: the server's end, and the client's."""

    answer: aiohttp.ClientResponse
    transport: asyncio.Transport | None


class FaultProxy:
    """`rules` may be changed while it runs; `background` are requests that are still to be carried
    out.

    `asked` are all requests in the order of their arrival, `answered` those that the API server
    answered.
    """

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane
        self.rules: list[Rule] = []
        self.asked: list[ApiRequest] = []
        self.answered: list[Answered] = []
        #: How many requests, watches aside, the API server is at.
        self.carrying = 0
        self.background: set[asyncio.Task[None]] = set()
        self._streams: set[_Stream] = set()
        self._server = ServerThread(
            self._handle, tls_of(plane.pki.server_cert, plane.pki.server_key)
        )

    @property
    def url(self) -> str:
        """Where clients find it."""
        return self._server.url

    def __enter__(self) -> Self:
        self._server.start()
        self._server.run(self._connect())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.run(self._disconnect())
        self._server.stop()

    def cut_watches(self) -> None:
        """End the connection of every watch, so that the client opens it again."""
        self._server.run(self._cut_watches())

    async def _cut_watches(self) -> None:
        for stream in list(self._streams):
            stream.answer.close()
            if stream.transport is not None:
                stream.transport.abort()

    async def _connect(self) -> None:
        trust = ssl.create_default_context(cafile=str(self.plane.ca_path))
        connector = aiohttp.TCPConnector(limit=0, ssl=trust)
        self.session = aiohttp.ClientSession(connector=connector, auto_decompress=False)

    async def _disconnect(self) -> None:
        for task in self.background:
            task.cancel()
        await self.session.close()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        watch, next_page = request.query.get("watch") in {"true", "1"}, "continue" in request.query
        asked = ApiRequest.of(request.method, request.path, watch=watch, next_page=next_page)
        exchange = _Exchange(self, request, await request.read(), asked)
        self.asked.append(asked)
        fault = next((found for rule in list(self.rules) if (found := rule.fault_for(asked))), None)
        try:
            if fault is not None:
                return await fault.strike(exchange)
            return await (exchange.stream() if watch else exchange.forward())
        except (Cut, aiohttp.ClientError) as cut:
            if isinstance(cut, Cut) and cut.reset:
                reset(request.transport)
            elif request.transport is not None:
                request.transport.abort()
            return web.Response(status=500)  # nobody reads it


class _Exchange:
    """One request through the proxy."""

    def __init__(
        self, proxy: FaultProxy, request: web.Request, body: bytes, asked: ApiRequest
    ) -> None:
        self._proxy = proxy
        self.request = request
        self.asked = asked
        self._body = body
        # The API server compresses lists above 128 KiB for whoever does not refuse that.
        self._headers = {"Accept-Encoding": "identity"} | {
            name: request.headers[name] for name in PASSED_ON if name in request.headers
        }

    async def forward(self, *, limit: int | None = None) -> web.Response:
        """Have it carried out; the server's answer."""
        self._proxy.carrying += 1
        try:
            async with self._send(limit) as answer:
                body = await answer.read()
        finally:
            self._proxy.carrying -= 1
        self._note(answer)
        headers = {
            name: answer.headers[name]
            for name in ("Content-Type", "Retry-After")
            if name in answer.headers
        }
        return web.Response(status=answer.status, body=body, headers=headers)

    async def carry_out(self) -> None:
        """Have it carried out, a watch opened; nobody gets the answer."""
        if self.asked.verb != "watch":
            await self.forward()
            return
        async with self._send() as answer:
            self._note(answer)

    def later(self, delay_s: float) -> None:
        """Have it carried out after `delay_s`; nobody gets the answer."""

        async def carry_out() -> None:
            await asyncio.sleep(delay_s)
            await self.carry_out()

        task = asyncio.get_running_loop().create_task(carry_out())
        self._proxy.background.add(task)
        task.add_done_callback(self._proxy.background.discard)

    async def stream(self, edit: Edit | None = None) -> web.StreamResponse:
        """Pass a watch on as it comes, or its lines edited."""
        async with self._send() as answer:
            self._note(answer)
            passed = web.StreamResponse(
                status=answer.status, headers={"Content-Type": answer.content_type}
            )
            stream = _Stream(answer, self.request.transport)
            self._proxy._streams.add(stream)
            try:
                await passed.prepare(self.request)
                async for piece in (
                    answer.content.iter_any() if edit is None else edit(_lines(answer.content))
                ):
                    await passed.write(piece)
            except Closed:
                pass
            finally:
                self._proxy._streams.discard(stream)
            return passed

    def _note(self, answer: aiohttp.ClientResponse) -> None:
        self._proxy.answered.append(Answered(self.asked, answer.status))

    def _send(self, limit: int | None = None) -> aiohttp.client._RequestContextManager:
        url = URL(self._proxy.plane.url + self.request.raw_path, encoded=True)
        return self._proxy.session.request(
            self.request.method,
            url if limit is None else url.update_query(limit=str(limit)),
            data=self._body or None,
            headers=self._headers,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=5.0),
        )


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Lines of any length, with their newline."""
    pending = b""
    async for chunk in content.iter_any():
        *lines, pending = (pending + chunk).split(b"\n")
        for line in lines:
            yield line + b"\n"
