"""A proxy between a client and a real API server that does to requests what its rules say.

    with FaultProxy(plane) as proxy:
        proxy.rules.append(Rule(subresource="binding", faults=[Drop(applied=True)]))
        Daemon(plane, url=proxy.url)

Law: TLS on loopback with the control plane's own certificate, a thread and an event loop of its own; a request that no
rule strikes goes through unchanged, credentials and watches included. It decides nothing itself.
"""

from __future__ import annotations

import asyncio
import ssl
from types import TracebackType
from typing import Self

import aiohttp
from aiohttp import web
from control_plane import ControlPlane

from tests.faults.requests import ApiRequest
from tests.faults.rules import Cut, Rule, reset
from tests.server_thread import ServerThread, tls_of

PASSED_ON = ("Authorization", "Content-Type", "Accept", "User-Agent")
CHUNK_BYTES = 2**16


class FaultProxy:
    """`rules` may be changed while it runs; `background` are requests that are still to be carried out."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane
        self.rules: list[Rule] = []
        self.background: set[asyncio.Task[None]] = set()
        self._server = ServerThread(self._handle, tls_of(plane.pki.server_cert, plane.pki.server_key))

    @property
    def url(self) -> str:
        """Where clients find it."""
        return self._server.url

    def __enter__(self) -> Self:
        self._server.start()
        self._server.run(self._connect())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.run(self._disconnect())
        self._server.stop()

    async def _connect(self) -> None:
        trust = ssl.create_default_context(cafile=str(self.plane.ca_path))
        connector = aiohttp.TCPConnector(limit=0, ssl=trust)
        self.session = aiohttp.ClientSession(connector=connector, auto_decompress=False)

    async def _disconnect(self) -> None:
        for task in self.background:
            task.cancel()
        await self.session.close()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        exchange = _Exchange(self, request, await request.read())
        watch = request.query.get("watch") in {"true", "1"}
        asked = ApiRequest.of(request.method, request.path, watch=watch)
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

    def server_url(self, request: web.Request) -> str:
        """Where a request goes on to."""
        return self.plane.url + request.raw_path


class _Exchange:
    """One request through the proxy."""

    def __init__(self, proxy: FaultProxy, request: web.Request, body: bytes) -> None:
        self._proxy = proxy
        self.request = request
        self._body = body
        self._headers = {name: request.headers[name] for name in PASSED_ON if name in request.headers}

    async def forward(self) -> web.Response:
        """Have it carried out; the server's answer."""
        async with self._send() as answer:
            body = await answer.read()
            headers = {name: answer.headers[name] for name in ("Content-Type", "Retry-After") if name in answer.headers}
            return web.Response(status=answer.status, body=body, headers=headers)

    def later(self, delay_s: float) -> None:
        """Have it carried out after `delay_s`; nobody gets the answer."""

        async def carry_out() -> None:
            await asyncio.sleep(delay_s)
            await self.forward()

        task = asyncio.get_running_loop().create_task(carry_out())
        self._proxy.background.add(task)
        task.add_done_callback(self._proxy.background.discard)

    async def stream(self) -> web.StreamResponse:
        """Pass a watch on as it comes."""
        async with self._send() as answer:
            passed = web.StreamResponse(status=answer.status, headers={"Content-Type": answer.content_type})
            await passed.prepare(self.request)
            async for chunk in answer.content.iter_any():
                await passed.write(chunk)
            return passed

    def _send(self) -> aiohttp.client._RequestContextManager:
        return self._proxy.session.request(
            self.request.method,
            self._proxy.server_url(self.request),
            data=self._body or None,
            headers=self._headers,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=5.0),
        )
