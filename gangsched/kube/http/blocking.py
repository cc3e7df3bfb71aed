"""A client for commands: sequential requests, or several at once in threads, without an event loop.

Invariant: every failure is a `Fault`, as in `client`; only a request on an idle connection that the
server had already closed is retried. Connections stay open as long as the client.
"""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from email.utils import parsedate_to_datetime
from typing import Any, TypeAlias
from urllib.parse import urlencode, urlsplit

import msgspec

from gangsched.kube.http.answers import ANY_JSON, decoded, fault_of
from gangsched.kube.http.faults import Fault, Malformed, Misconfigured, Unreachable, said
from gangsched.kube.http.plain_credentials import Access

JSON = "application/json"
PAGE = 500
AT_A_TIME = 6
SILENCE_S = 15.0
CONNECT_S = 3.0
CHUNK = 1 << 16
LINE_BYTES = 1 << 25
"""Of a watch; an object is a twentieth of it at most."""
Headers: TypeAlias = list[tuple[str, bytes]]


class BlockingClient:
    """Requests to one API server."""

    def __init__(self, access: Access, *, within_s: float | None = None) -> None:
        """`within_s` limits each request as a whole, 0 for no limit; None limits each silence of
        the server.
        """
        self.access = access
        self._within_s = within_s
        self._silence_s = SILENCE_S if within_s is None else within_s or None
        self._idle: list[http.client.HTTPConnection] = []  # append and pop are atomic
        #: When the server sent an answer last, by its own clock; None if it has not said so.
        self.answered_s: float | None = None

    def close(self) -> None:
        """Close every kept connection."""
        while self._idle:
            self._idle.pop().close()

    def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        accept: str = JSON,
    ) -> bytes:
        """Send one request; return the body. Raises ApiFault or Unreachable."""
        deadline_s = time.monotonic() + self._within_s if self._within_s else None
        with self._in_sentences():
            headers = self._headers(body, accept)
            connection, answer = self._send(
                method,
                urlsplit(self.access.server).path + path,
                body,
                headers,
            )
            text = _read(connection, answer, deadline_s)

        self._idle.append(connection)
        self.answered_s = _sent_s(answer) or self.answered_s
        if answer.status >= 300:
            raise fault_of(answer.status, text, answer.getheader("Retry-After"))

        return text

    @contextmanager
    def _in_sentences(self) -> Iterator[None]:
        """Raise what fails as Misconfigured or Unreachable, in a sentence for users."""
        try:
            yield
        except ValueError as error:
            raise Misconfigured(
                f"Cannot send what {self.access.name} has: {said(error)}."
            ) from error
        except (OSError, http.client.HTTPException) as error:
            raise Unreachable(
                f"No answer from {self.access.server} of {self.access.name}: {said(error)}."
            ) from error

    def _headers(self, body: bytes | None, accept: str) -> Headers:
        """The headers as pairs, since the group of an impersonated user may repeat. Raises
        ValueError.
        """
        headers = [
            ("Accept", accept),
            ("User-Agent", "kubectl-gangsched"),
            *self.access.impersonation,
        ]
        if body is not None:
            headers += [("Content-Type", JSON), ("Content-Length", str(len(body)))]

        if self.access.authorization:
            headers.append(("Authorization", self.access.authorization))

        return [(name, value.encode()) for name, value in headers]

    def lines(
        self, path: str, opened: Callable[[http.client.HTTPConnection], None]
    ) -> Iterator[bytes]:
        """Yield the lines of a watch as they come, until the server ends it; `opened` receives the
        connection, whose socket another thread may shut down. Raises Fault.
        """
        connection = self._connection()
        opened(connection)
        with closing(connection), self._in_sentences():
            headers = self._headers(None, JSON)
            # A connection is there at once or not at all: after packets were lost for a while, the
            # kernel would try again only seconds after the server is back.
            connection.timeout = min(CONNECT_S, self._silence_s or CONNECT_S)
            connection.connect()
            _patient(connection, self._silence_s)
            answer = _asked(
                connection,
                "GET",
                urlsplit(self.access.server).path + path,
                None,
                headers,
            )
            if answer.status >= 300:
                raise fault_of(answer.status, answer.read(), answer.getheader("Retry-After"))

            while line := answer.readline(LINE_BYTES):
                if len(line) == LINE_BYTES and not line.endswith(b"\n"):
                    raise Malformed(f"A line of the watch of {path} does not end.")

                yield line

    def json(self, method: str, path: str, body: object = None) -> Any:
        """`request` with decoded bodies. Also raises Malformed."""
        text = self.request(method, path, None if body is None else msgspec.json.encode(body))
        return decoded(
            ANY_JSON,
            text,
            f"The answer of {self.access.server} to {method} {path} is not JSON",
        )

    def get(self, path: str) -> Any:
        """GET and decode an object. Raises Fault."""
        parsed = self.json("GET", path)
        if not isinstance(parsed, dict):
            raise Malformed(f"The answer of {self.access.server} to GET {path} is not an object.")

        return parsed

    def named(self, path: str) -> Any:
        """`get` of an object of the API, which has a name. Raises Fault."""
        body = self.get(path)
        _check_named(
            body,
            f"The answer of {self.access.server} to GET {path} is not an object of the API.",
        )
        return body

    def pages(self, path: str, **query: str) -> Iterator[bytes]:
        """Yield every page of a list."""
        token = ""
        while True:
            asked = {"limit": str(PAGE), **query, **({"continue": token} if token else {})}
            text = self.request("GET", f"{path}?{urlencode(asked)}")
            token = decoded(
                _page,
                text,
                f"The list at {path} of {self.access.server} is not one",
            ).metadata.token
            yield text

            if not token:
                return

    def items(self, path: str, **query: str) -> list[Any]:
        """Return every object of a list, decoded. Raises Fault."""
        bodies = [
            item
            for page in self.pages(path, **query)
            for item in msgspec.json.decode(page).get("items") or ()
        ]
        for item in bodies:
            _check_named(
                item,
                f"The list at {path} of {self.access.server} has something that is no object of the"
                " API.",
            )

        return bodies

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
        self,
        method: str,
        path: str,
        body: bytes | None,
        headers: Headers,
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        try:
            connection = self._idle.pop()
        except IndexError:
            pass
        else:
            try:
                return connection, _asked(connection, method, path, body, headers)
            # The server closed an idle connection: the request cannot have been carried out, so it
            # is sent once more.
            except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError):
                connection.close()

        connection = self._connection()
        return connection, _asked(connection, method, path, body, headers)

    def _connection(self) -> http.client.HTTPConnection:
        server = urlsplit(self.access.server)
        proxy = urlsplit(self.access.proxy)
        if proxy.scheme not in {"", "http"}:
            raise Misconfigured(
                f"Proxies of {proxy.scheme} are not supported here: {self.access.proxy}."
            )

        host = server.hostname or ""
        port = server.port or (443 if server.scheme == "https" else 80)
        to = (proxy.hostname or "", proxy.port or 3128) if proxy.scheme else (host, port)
        connection = (
            http.client.HTTPConnection(*to, timeout=self._silence_s)
            if self.access.tls is None
            else http.client.HTTPSConnection(*to, timeout=self._silence_s, context=self.access.tls)
        )

        if proxy.scheme:
            connection.set_tunnel(host, port)

        return connection


def _asked(
    connection: http.client.HTTPConnection,
    method: str,
    path: str,
    body: bytes | None,
    headers: Headers,
) -> http.client.HTTPResponse:
    connection.putrequest(method, path, skip_accept_encoding=True)
    for name, value in headers:
        connection.putheader(name, value)

    connection.endheaders(body)
    return connection.getresponse()


def _read(
    connection: http.client.HTTPConnection,
    answer: http.client.HTTPResponse,
    deadline_s: float | None,
) -> bytes:
    """The body. Raises TimeoutError if it is not complete at the deadline."""
    if deadline_s is None:
        return answer.read()

    parts = []
    while not answer.isclosed():
        left_s = deadline_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError

        _patient(connection, left_s)
        parts.append(answer.read(CHUNK))

    _patient(connection, connection.timeout)
    return b"".join(parts)


def _sent_s(answer: http.client.HTTPResponse) -> float | None:
    """The time in the header Date; None if there is none that can be read."""
    try:
        return parsedate_to_datetime(answer.getheader("Date") or "").timestamp()
    except ValueError:
        return None


def _patient(connection: http.client.HTTPConnection, seconds: float | None) -> None:
    # A connection that the server closes with its answer has no socket any more.
    if connection.sock is not None:
        connection.sock.settimeout(seconds)


def _check_named(parsed: object, complaint: str) -> None:
    """Raise Malformed unless it has a name, as every object of the API has."""
    metadata = parsed.get("metadata") if isinstance(parsed, dict) else None
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
        raise Malformed(complaint)


class _PageMeta(msgspec.Struct):
    token: str = msgspec.field(name="continue", default="")


class _Page(msgspec.Struct):
    metadata: _PageMeta


_page = msgspec.json.Decoder(_Page)
