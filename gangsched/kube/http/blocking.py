"""A client for commands: sequential requests, or several at once in threads, without an event loop.

Invariant: every failure is a `Fault`, as in `client`; only a request on an idle connection that the server had already
closed is retried. Connections stay open as long as the client.
"""

from __future__ import annotations

import http.client
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import urlencode, urlsplit

import msgspec

from gangsched.kube.http.answers import ANY_JSON, decoded, fault_of
from gangsched.kube.http.faults import Fault, Misconfigured, Unreachable, said
from gangsched.kube.http.plain_credentials import Access

JSON = "application/json"
PAGE = 500
AT_A_TIME = 6


class BlockingClient:
    """Requests to one API server."""

    def __init__(self, access: Access, *, timeout_s: float = 15.0) -> None:
        """`timeout_s` is for connecting, and for each silence of the server."""
        self.access = access
        self._timeout_s = timeout_s
        self._idle: list[http.client.HTTPConnection] = []  # append and pop are atomic

    def close(self) -> None:
        """Close every kept connection."""
        while self._idle:
            self._idle.pop().close()

    def request(self, method: str, path: str, body: bytes | None = None, *, accept: str = JSON) -> bytes:
        """Send one request; return the body. Raises ApiFault or Unreachable."""
        headers = {"Accept": accept, "User-Agent": "kubectl-gangsched"}
        if body is not None:
            headers["Content-Type"] = JSON
        if self.access.authorization:
            headers["Authorization"] = self.access.authorization
        try:
            connection, answer = self._send(method, urlsplit(self.access.server).path + path, body, headers)
            text = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise Unreachable(f"No answer from {self.access.server} of {self.access.name}: {said(error)}.") from error
        self._idle.append(connection)
        if answer.status >= 300:
            raise fault_of(answer.status, text, answer.getheader("Retry-After"))
        return text

    def json(self, method: str, path: str, body: object = None) -> Any:
        """`request` with decoded bodies. Also raises Malformed."""
        text = self.request(method, path, None if body is None else msgspec.json.encode(body))
        return decoded(ANY_JSON, text, f"The answer of {self.access.server} to {method} {path} is not JSON")

    def get(self, path: str) -> Any:
        """GET and decode."""
        return self.json("GET", path)

    def pages(self, path: str, **query: str) -> Iterator[bytes]:
        """Yield every page of a list."""
        token = ""
        while True:
            asked = {"limit": str(PAGE), **query, **({"continue": token} if token else {})}
            text = self.request("GET", f"{path}?{urlencode(asked)}")
            token = decoded(_page, text, f"The list at {path} of {self.access.server} is not one").metadata.token
            yield text
            if not token:
                return

    def items(self, path: str, **query: str) -> list[Any]:
        """Return every object of a list, decoded."""
        return [item for page in self.pages(path, **query) for item in msgspec.json.decode(page).get("items") or ()]

    def gets(self, paths: Sequence[str]) -> list[Any]:
        """GET several paths at a time; return the body of each, or the Fault of one that failed."""
        from concurrent.futures import ThreadPoolExecutor

        def one(path: str) -> Any:
            try:
                return self.get(path)
            except Fault as fault:
                return fault

        if len(paths) == 1:
            return [one(paths[0])]
        with ThreadPoolExecutor(AT_A_TIME) as pool:
            return list(pool.map(one, paths))

    def _send(
        self, method: str, path: str, body: bytes | None, headers: dict[str, str]
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        try:
            connection = self._idle.pop()
        except IndexError:
            pass
        else:
            try:
                connection.request(method, path, body, headers)
                return connection, connection.getresponse()
            # The server closed an idle connection: the request cannot have been carried out, so it is sent once more.
            except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
                connection.close()
        connection = self._connection()
        connection.request(method, path, body, headers)
        return connection, connection.getresponse()

    def _connection(self) -> http.client.HTTPConnection:
        server, proxy = urlsplit(self.access.server), urlsplit(self.access.proxy)
        if proxy.scheme not in {"", "http"}:
            raise Misconfigured(f"Proxies of {proxy.scheme} are not supported here: {self.access.proxy}.")
        host, port = server.hostname or "", server.port or (443 if server.scheme == "https" else 80)
        to = (proxy.hostname or "", proxy.port or 3128) if proxy.scheme else (host, port)
        connection = (
            http.client.HTTPConnection(*to, timeout=self._timeout_s)
            if self.access.tls is None
            else http.client.HTTPSConnection(*to, timeout=self._timeout_s, context=self.access.tls)
        )
        if proxy.scheme:
            connection.set_tunnel(host, port)
        return connection


class _PageMeta(msgspec.Struct):
    token: str = msgspec.field(name="continue", default="")


class _Page(msgspec.Struct):
    metadata: _PageMeta


_page = msgspec.json.Decoder(_Page)
