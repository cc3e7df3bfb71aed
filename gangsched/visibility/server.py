"""The server: TLS on one port, and what has to be read again now and then.

Law: it takes connections once it has a certificate. New ones are bounded in number and rate, since a handshake costs
the event loop a millisecond. A connection without a client certificate is answered 401 and ended soon.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import structlog
from aiohttp import web

from gangsched.model.gpu_policy import GpuPolicy
from gangsched.settings import Settings
from gangsched.visibility.access.authorization import Authorizer
from gangsched.visibility.access.certificates import Serving
from gangsched.visibility.access.front_proxy import CONFIG_MAP, FrontProxy
from gangsched.visibility.access.identity import Files, Identity
from gangsched.visibility.application import Parts, application
from gangsched.visibility.gangs.store import GangStore
from gangsched.visibility.gangs.watching import Watches
from gangsched.visibility.pace import Admission, Bucket, Pace
from gangsched.visibility.ports import Calls, Clocks, Json
from gangsched.visibility.reviews.review import Reviewer

LOOK_EVERY_S, LOOK_SOON_S = 20.0, 1.0
CONNECTIONS = 256
HANDSHAKES_PER_S, HANDSHAKES_BURST = 50.0, 100.0
HANDSHAKE_WITHIN_S = 5.0
STRANGERS_FOR_S = 5.0


class Server:
    """`serving` is a context in which it runs."""

    def __init__(
        self,
        settings: Settings,
        calls: Calls,
        store: GangStore,
        *,
        clocks: Clocks,
        leads: Callable[[], bool],
        reviewer: Reviewer,
        policy: GpuPolicy,
        served_by: Callable[[], Json],
    ) -> None:
        self._settings = settings
        self._calls, self._clocks, self._leads = calls, clocks, leads
        self._log = structlog.get_logger()
        self._warned = ""
        self._front_proxy = FrontProxy()
        self._seen: tuple[Serving, str] | None = None
        self._tls: ssl.SSLContext | None = None
        self.pace = Pace()
        self._watches = Watches(store, self.pace, clocks)
        parts = Parts(
            store=store,
            watches=self._watches,
            authorizer=Authorizer(calls, clocks.now_s),
            admission=Admission(),
            pace=self.pace,
            clocks=clocks,
            front_proxy=lambda: self._front_proxy,
            reviewer=reviewer,
            policy=policy,
            served_by=served_by,
        )
        self._runner = web.AppRunner(application(parts), access_log=None, handle_signals=False, shutdown_timeout=1.0)
        certificate, key = settings.visibility_cert_file, settings.visibility_key_file
        self._identity = Identity(
            calls,
            settings.lease_namespace,
            files=Files(certificate, key) if certificate is not None and key is not None else None,
            leads=leads,
            wall_s=clocks.wall_s,
            warn=self._warn,
        )

    @property
    def is_open(self) -> bool:
        """Whether connections are taken: there is a certificate."""
        return self._tls is not None

    @asynccontextmanager
    async def serving(self, listener: socket.socket) -> AsyncIterator[None]:
        """Serve while the block runs who connects to `listener`."""
        await self._runner.setup()
        parts = (self._look(), self._watches.run(), self._accept(listener))
        tasks = [asyncio.create_task(part, name="visibility") for part in parts]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._runner.cleanup()

    # --- what is read again -----------------------------------------------------------------------------------------

    async def _look(self) -> None:
        while True:
            try:
                is_complete = await self._look_once()
            except Exception:
                self._log.exception("the visibility API cannot be brought up to date")
                is_complete = False
            await self._rest(LOOK_EVERY_S if is_complete else LOOK_SOON_S)

    async def _rest(self, seconds: float) -> None:
        """Wait; whoever begins to lead looks at once, for only the leader writes."""
        led, until_s = self._leads(), self._clocks.now_s() + seconds
        while self._clocks.now_s() < until_s and (led or not self._leads()):  # noqa: ASYNC110  (nobody tells)
            await asyncio.sleep(LOOK_SOON_S)

    async def _look_once(self) -> bool:
        """Read authority and certificate again; whether all is there."""
        answer = await self._calls("GET", CONFIG_MAP)
        if answer.is_ok:
            self._front_proxy = FrontProxy.of(answer.body)
            if not self._front_proxy.authority:
                self._warn("The cluster has no front proxy (requestheader-client-ca-file): nobody can use the API.")
        else:
            self._warn(
                f"The ConfigMap of the front proxy cannot be read (status {answer.status}): nobody new is let in."
            )
        serving = await self._identity.look()
        if serving is None:
            return False
        now = (serving, self._front_proxy.authority)
        if now != self._seen:
            try:
                self._tls = tls_context(*now)
            except (ssl.SSLError, OSError, ValueError) as error:
                self._warn(f"The certificate of the visibility API is not usable: {error}.")
                return False
            if self._seen is None:
                self._log.info("serving the visibility API", port=self._settings.visibility_port)
            elif self._seen[1] != now[1]:
                self._end_connections()
            self._seen = now
        return answer.is_ok and bool(self._front_proxy.authority)

    def _end_connections(self) -> None:
        """The authority of clients is another one: who was let in by the old one comes again."""
        server = self._runner.server
        for connection in server.connections if server is not None else ():
            connection.force_close()

    def _warn(self, sentence: str) -> None:
        """Say it once, until something else is to be said."""
        if sentence != self._warned:
            self._warned = sentence
            self._log.warning(sentence)

    # --- connections ------------------------------------------------------------------------------------------------

    async def _accept(self, listener: socket.socket) -> None:
        """Take connections, at a rate; the others wait in the kernel."""
        loop = asyncio.get_running_loop()
        bucket = Bucket(HANDSHAKES_PER_S, HANDSHAKES_BURST, loop.time())
        greeting: set[asyncio.Task[None]] = set()
        while True:
            if self._tls is None or len(greeting) + self._connections() >= CONNECTIONS:
                await asyncio.sleep(0.05)
                continue
            if wait_s := bucket.take(loop.time()):
                await asyncio.sleep(wait_s)
                continue
            try:
                connection, _ = await loop.sock_accept(listener)
            except OSError as error:  # no descriptors left, or the peer has gone already
                self._warn(f"A connection to the visibility API cannot be taken: {error.strerror}.")
                await asyncio.sleep(0.1)
                continue
            task = asyncio.create_task(self._greet(connection, self._tls), name="handshake")
            greeting.add(task)
            task.add_done_callback(greeting.discard)

    def _connections(self) -> int:
        server = self._runner.server
        return len(server.connections) if server is not None else 0

    async def _greet(self, connection: socket.socket, tls: ssl.SSLContext) -> None:
        loop = asyncio.get_running_loop()
        assert self._runner.server is not None
        with suppress(OSError, ssl.SSLError, asyncio.CancelledError):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            transport, _ = await loop.connect_accepted_socket(
                self._runner.server, connection, ssl=tls, ssl_handshake_timeout=HANDSHAKE_WITHIN_S
            )
            if not transport.get_extra_info("peercert"):
                loop.call_later(STRANGERS_FOR_S, transport.abort)
            return
        connection.close()


def tls_context(serving: Serving, authority: str) -> ssl.SSLContext:
    """A server's context that asks for a client certificate of `authority` and takes connections without one, too.

    Raises SSLError or ValueError for what is no certificate.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    # A file that no disk has: Python loads keys from files only.
    descriptor = os.memfd_create("gangsched-visibility", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, f"{serving.certificate}\n{serving.key}".encode())
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)
    if authority:
        context.load_verify_locations(cadata=authority)
        context.verify_mode = ssl.CERT_OPTIONAL
    return context
