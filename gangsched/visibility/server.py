"""The server: TLS on one port, and periodic reloads.

Invariant: it accepts connections once it has a certificate.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import structlog
from aiohttp import web

from gangsched.settings import Settings
from gangsched.visibility.access.authorization import Authorizer
from gangsched.visibility.access.certificates import Serving
from gangsched.visibility.access.front_proxy import CONFIG_MAP, FrontProxy
from gangsched.visibility.access.identity import Identity
from gangsched.visibility.admission import Admission
from gangsched.visibility.application import Parts, application
from gangsched.visibility.connections import HTTP_OPTIONS, Connections, tls_context
from gangsched.visibility.gangs.store import GangStore
from gangsched.visibility.gangs.watching import Watches
from gangsched.visibility.pace import FORKS_SHARE, Pace
from gangsched.visibility.ports import Calls, Clocks
from gangsched.visibility.reviews.processes import Processes
from gangsched.visibility.reviews.review import Reviewer

LOOK_EVERY_S = 20.0
LOOK_SOON_S = 1.0


class Server:
    """HTTPS server of the gangs API; it runs while the context `serving` is entered."""

    def __init__(
        self,
        settings: Settings,
        calls: Calls,
        store: GangStore,
        *,
        clocks: Clocks,
        leads: Callable[[], bool],
        reviewer: Reviewer,
    ) -> None:
        self._settings = settings
        self._calls = calls
        self._clocks = clocks
        self._leads = leads
        self._log = structlog.get_logger()
        #: What was logged since all was well last.
        self._warned: set[str] = set()
        self._front_proxy = FrontProxy()
        self._seen: tuple[Serving, str] | None = None
        self.pace = Pace()
        self._watches = Watches(store, self.pace, clocks)
        parts = Parts(
            store=store,
            watches=self._watches,
            authorizer=Authorizer(calls, clocks.now_s),
            admission=Admission(),
            pace=self.pace,
            # A pace of its own: a fork copies page tables, which takes longer than any slice.
            processes=Processes(Pace(share=FORKS_SHARE)),
            clocks=clocks,
            front_proxy=lambda: self._front_proxy,
            reviewer=reviewer,
        )
        self._runner = web.AppRunner(
            application(parts),
            shutdown_timeout=1.0,
            logger=parts.complaints,
            **HTTP_OPTIONS,
        )
        self._connections = Connections(self._runner, self._warn)
        self._identity = Identity(
            calls,
            settings.lease_namespace,
            directory=settings.visibility_cert_dir,
            leads=leads,
            wall_s=clocks.wall_s,
            warn=self._warn,
        )

    @property
    def is_open(self) -> bool:
        """Whether connections are accepted, which requires a certificate."""
        return self._connections.tls is not None

    @property
    def awaits_leader(self) -> bool:
        """Whether this is a standby without a certificate, because no leader has created the first
        one (`Identity.awaits_leader`).
        """
        return self._identity.awaits_leader

    @asynccontextmanager
    async def serving(self, listener: socket.socket) -> AsyncIterator[None]:
        """Serve clients of `listener` inside the context."""
        await self._runner.setup()
        parts = (self._look(), self._watches.run(), self._connections.accept(listener))
        tasks = [asyncio.create_task(part, name="visibility") for part in parts]

        try:
            yield
        finally:
            for task in tasks:
                task.cancel()

            await asyncio.gather(*tasks, return_exceptions=True)
            await self._runner.cleanup()

    # --- what is read again ----------------------------------------------------------------------

    async def _look(self) -> None:
        while True:
            try:
                is_complete = await self._look_once()
            except Exception:
                self._log.exception("the visibility API cannot be brought up to date")
                is_complete = False

            if is_complete and self._warned:
                self._warned.clear()
                self._log.info("the visibility API is up to date again")

            await self._rest(LOOK_EVERY_S if is_complete else LOOK_SOON_S)

    async def _rest(self, seconds: float) -> None:
        """Wait; whoever begins to lead looks at once, for only the leader writes."""
        led = self._leads()
        until_s = self._clocks.now_s() + seconds
        while self._clocks.now_s() < until_s and (led or not self._leads()):  # noqa: ASYNC110  (there is no event to wait for)
            await asyncio.sleep(LOOK_SOON_S)

    async def _look_once(self) -> bool:
        """Read authority and certificate again; whether all is there."""
        answer = await self._calls("GET", CONFIG_MAP)
        if answer.is_ok:
            self._front_proxy = FrontProxy.of(answer.body)
            if not self._front_proxy.authority:
                self._warn(
                    "The cluster has no front proxy (requestheader-client-ca-file): nobody can use"
                    " the API."
                )
        else:
            self._warn(
                f"The ConfigMap of the front proxy cannot be read (status {answer.status}): nobody"
                " new is let in."
            )

        serving = await self._identity.look()
        if serving is None:
            return False

        now = (serving, self._front_proxy.authority)
        if now != self._seen:
            try:
                self._connections.tls = tls_context(*now)
            except (ssl.SSLError, OSError, ValueError) as error:
                self._warn(f"The certificate of the visibility API is not usable: {error}.")
                return False

            if self._seen is None:
                self._log.info("serving the visibility API", port=self._settings.visibility_port)
            elif self._seen[1] != now[1]:
                # Existing connections were verified with the old authority.
                self._connections.end_all()

            self._seen = now

        return answer.is_ok and bool(self._front_proxy.authority)

    def _warn(self, sentence: str) -> None:
        """Say it once, until all is well again."""
        if sentence not in self._warned:
            self._warned.add(sentence)
            self._log.warning(sentence)
