"""The HTTP client: requests to the API server, and streams from it, as bytes.

Invariant: every failure is a chained `Fault`; a 401 reloads the credentials and retries once, and
nothing else is retried here. Bodies are bytes, because frequent callers encode and decode them
themselves.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Sequence
from functools import cache
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any

from yarl import URL

from gangsched.kube.http.aio import aiohttp
from gangsched.kube.http.answers import ANY_JSON, decoded, fault_of
from gangsched.kube.http.backoff import Backoff
from gangsched.kube.http.credentials import Credentials
from gangsched.kube.http.faults import (
    UNAUTHORIZED,
    ApiFault,
    Fault,
    Misconfigured,
    Silent,
    Unreachable,
    is_away,
    said,
)
from gangsched.kube.http.fence import Fence
from gangsched.kube.http.location import in_cluster, kubeconfig_path
from gangsched.kube.http.permissions import VOLUMES, Lease, Permission, check_permissions
from gangsched.kube.http.sockets import open_socket
from gangsched.kube.ports import Now, Sleep, Warn, silent

JSON = "application/json"
JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"

# Lists come in megabytes; aiohttp's default of 64 KiB would pause and resume reading for each
# piece.
READ_BUFFER_BYTES = 2**21
CONNECT_TIMEOUT_S = 10.0
HEADERS_TIMEOUT_S = 25.0
"""An answer begins within this time, and its body never pauses for longer; a watch's may
(`chunks`).
"""
RELOAD_AT_MOST_EVERY_S = 1.0


class ApiClient:
    """Requests to one API server over keep-alive connections; close it, or use it as an async
    context manager.
    """

    def __init__(self, credentials: Credentials, *, now: Now = time.monotonic) -> None:
        """`credentials` must be loaded already; see `connect`."""
        self.credentials = credentials
        self._now = now
        self._reloading = asyncio.Lock()
        self._reloaded_s = float("-inf")
        self._session = _session(_connector(ttl_dns_cache=60))

    async def __aenter__(self) -> ApiClient:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every connection; requests in flight end as Unreachable."""
        await self._session.close()

    async def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        content_type: str = JSON,
        timeout_s: float = 30.0,
        accept: str = JSON,
        fence: Fence | None = None,
    ) -> bytes:
        """Send one request; return the body. Raises ApiFault, Unreachable or Malformed.

        `path` starts with a slash and is already percent-encoded. After Unreachable the request may
        have been carried out. If the write gate `fence` is closed, the request is not sent and
        Fenced is raised.
        """
        limits = aiohttp.ClientTimeout(
            total=timeout_s,
            sock_connect=CONNECT_TIMEOUT_S,
            sock_read=HEADERS_TIMEOUT_S,
        )
        # A second time only after a 401, with credentials that were read again.
        for attempt in (1, 2):
            try:
                async with await self._open(
                    method,
                    path,
                    body,
                    content_type,
                    limits,
                    accept,
                    fence,
                ) as response:
                    answer = await response.read()
                    status = response.status
                    retry_after = response.headers.get("Retry-After")
            except (aiohttp.ClientError, OSError) as error:  # TimeoutError is an OSError
                raise Unreachable(
                    f"No answer from {self.credentials.server}: {said(error)}."
                ) from error

            if status < 400:
                return answer
            if status != UNAUTHORIZED or attempt == 2 or not await self.reload():
                raise fault_of(status, answer, retry_after)

        raise AssertionError("unreachable")

    async def request_json(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        content_type: str = JSON,
        timeout_s: float = 30.0,
    ) -> Any:
        """`request` with a decoded answer. Raises Malformed if it is not JSON."""
        answer = await self.request(
            method,
            path,
            body,
            content_type=content_type,
            timeout_s=timeout_s,
        )
        return decoded(
            ANY_JSON,
            answer,
            f"The answer of {self.credentials.server} to {method} {path} is not JSON",
        )

    async def chunks(self, path: str, *, silence_s: float) -> AsyncIterator[bytes]:
        """Stream a watch's body as it arrives, in chunks of any size, until the server ends it.

        Raises Silent if nothing arrived for `silence_s`, Unreachable if the connection broke,
        ApiFault at the start. Wrap it in `contextlib.aclosing`, so that the connection is closed
        when the reader leaves early.
        """
        limits = aiohttp.ClientTimeout(
            total=None,
            sock_connect=CONNECT_TIMEOUT_S,
            sock_read=silence_s,
        )
        try:
            async with await self._open("GET", path, None, JSON, limits) as response:
                if response.status >= 400:
                    answer = await response.read()
                    if response.status == UNAUTHORIZED:
                        await self.reload()

                    raise fault_of(response.status, answer, response.headers.get("Retry-After"))

                async for chunk in response.content.iter_any():
                    yield chunk
        except aiohttp.SocketTimeoutError as error:
            raise Silent(
                f"The watch on {self.credentials.server} was silent for {silence_s:g} s."
            ) from error
        except (aiohttp.ClientError, OSError) as error:
            raise Unreachable(
                f"The watch on {self.credentials.server} broke off: {said(error)}."
            ) from error

    async def reload(self) -> bool:
        """Read the credentials again; false if they cannot be read."""
        asked_s = self._now()
        async with self._reloading:
            # Dozens of requests fail with 401 at once; the first one reloads for all.
            if self._reloaded_s >= asked_s - RELOAD_AT_MOST_EVERY_S:
                return True

            try:
                await self.credentials.load()
            except Fault:
                return False

            self._reloaded_s = self._now()
            return True

    def session(self, middleware: aiohttp.ClientMiddlewareType) -> aiohttp.ClientSession:
        """A separate session for a library that makes its own requests; the caller closes it.

        Every request uses the current credentials and passes through `middleware` first.
        """
        credentials = self.credentials

        async def authorize(
            request: aiohttp.ClientRequest,
            handler: aiohttp.ClientHandlerType,
        ) -> aiohttp.ClientResponse:
            await credentials.renew()
            if credentials.authorization:
                request.headers["Authorization"] = credentials.authorization

            return await handler(request)

        # The middlewares of a session run in this order; the token is added last, when the request
        # really starts.
        return _session(
            _connector(ssl=_tls(credentials)),
            middleware,
            authorize,
            proxy=credentials.proxy,
        )

    async def check(
        self,
        *,
        optional: Sequence[Permission] = VOLUMES,
        lease: Lease | None = None,
        wait_s: float = 0.0,
        warn: Warn = silent,
        sleep: Sleep = asyncio.sleep,
    ) -> tuple[Permission, ...]:
        """Check that the server answers and grants the required permissions; return the missing
        ones of `optional`.

        An unreachable server is retried for `wait_s`. `lease` is the Lease of leader election.
        Raises Misconfigured with one sentence that names the remedy. For start-up only.
        """
        server = self.credentials.server
        gives_up_s = self._now() + wait_s
        backoff = Backoff(1.0, 8.0, rng=Random())

        while True:
            try:
                return await self._check(optional, lease)
            except Fault as fault:
                if not is_away(fault):
                    raise

                delay_s = backoff.next_s()
                left_s = gives_up_s - self._now()
                if delay_s >= left_s:
                    raise Misconfigured(
                        f"Cannot reach the API server {server} of {self.credentials.name}"
                        f" ({_cause(fault)}): check that the cluster runs and that the address is"
                        " right."
                    ) from fault

                warn(
                    f"The API server {server} does not answer ({_cause(fault)}); trying for"
                    f" {left_s:.0f} s more."
                )

            await sleep(delay_s)

    async def _check(
        self,
        optional: Sequence[Permission],
        lease: Lease | None,
    ) -> tuple[Permission, ...]:
        try:
            await self.request("GET", "/version", timeout_s=10.0)
        except ApiFault as fault:
            # Some servers refuse /version to strangers; whether we are one is asked below.
            if fault.status == UNAUTHORIZED:
                raise Misconfigured(
                    f"The API server {self.credentials.server} does not accept the credentials of "
                    f"{self.credentials.name}: renew them."
                ) from fault
            if is_away(fault):
                raise

        return await check_permissions(self, optional, lease)

    async def _open(
        self,
        method: str,
        path: str,
        body: bytes | None,
        content_type: str,
        limits: aiohttp.ClientTimeout,
        accept: str = JSON,
        fence: Fence | None = None,
    ) -> aiohttp.ClientResponse:
        headers = {"Accept": accept, **({"Content-Type": content_type} if body is not None else {})}
        credentials = self.credentials
        await credentials.renew()

        if credentials.authorization:
            headers["Authorization"] = credentials.authorization

        return await self._session.request(
            method,
            # Already encoded: yarl would encode the `%` of a continue token once more.
            URL(credentials.server + path, encoded=True),
            data=body,
            headers=headers,
            timeout=limits,
            # The write gate checks one request; a redirect would send another one.
            allow_redirects=False,
            ssl=_tls(credentials),
            proxy=credentials.proxy,
            trace_request_ctx=fence,
        )


async def connect(kubeconfig: Path | None = None, *, now: Now = time.monotonic) -> ApiClient:
    """A client for the given kubeconfig, else for the pod's service account, else for $KUBECONFIG,
    else for ~/.kube/config.

    Reads files (and runs exec plugins) but sends no request. Raises Misconfigured.
    """
    inside = kubeconfig is None and in_cluster()
    credentials = Credentials(None if inside else kubeconfig_path(kubeconfig), now=now)
    await credentials.load()

    return ApiClient(credentials, now=now)


def _tls(credentials: Credentials) -> ssl.SSLContext:
    """The TLS context of requests; to plain http that of a proxy, which the system's authorities
    vouch for.
    """
    return credentials.tls or _of_the_system()


@cache
def _of_the_system() -> ssl.SSLContext:
    return ssl.create_default_context()


def _connector(**more: Any) -> aiohttp.TCPConnector:
    # No limit: watches occupy connections for as long as they live. Callers limit their own
    # requests.
    return aiohttp.TCPConnector(limit=0, socket_factory=open_socket, **more)


def _session(
    connector: aiohttp.TCPConnector,
    *middlewares: aiohttp.ClientMiddlewareType,
    proxy: str | None = None,
) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=connector,
        read_bufsize=READ_BUFFER_BYTES,
        # The server would spend CPU on gzip for every page above 128 KiB, and we on undoing it.
        headers={"Accept-Encoding": "identity", "Accept": JSON, "User-Agent": "gangsched"},
        skip_auto_headers=("Content-Type",),
        proxy=proxy,
        middlewares=(*middlewares, _expect_headers),
        trace_configs=[_fencing()],
    )


def _fencing() -> aiohttp.TraceConfig:
    """Check the fence of a request when it has its connection, right before its bytes go out."""

    async def check(session: aiohttp.ClientSession, context: Any, event: Any) -> None:
        fence = context.trace_request_ctx
        if isinstance(fence, Fence):
            fence.check()

    tracing = aiohttp.TraceConfig()
    tracing.on_connection_create_end.append(check)
    tracing.on_connection_reuseconn.append(check)

    return tracing


async def _expect_headers(
    request: aiohttp.ClientRequest,
    handler: aiohttp.ClientHandlerType,
) -> aiohttp.ClientResponse:
    """Fail a request whose answer does not begin in time."""
    async with asyncio.timeout(HEADERS_TIMEOUT_S):
        return await handler(request)


def _cause(fault: Fault) -> str:
    if fault.__cause__ is not None:
        return said(fault.__cause__)

    return said(fault)
