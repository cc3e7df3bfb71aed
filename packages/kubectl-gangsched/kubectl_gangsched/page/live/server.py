"""The web server of the live page: a fixed list of answers on 127.0.0.1.

Invariant: no path, header or body of a request reaches the API server, but for the name of a gang
and a manifest. Every answer has the headers of `guard`.
"""

from __future__ import annotations

import io
import socket
import threading
import time
from collections.abc import Callable, Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeAlias
from urllib.parse import parse_qs, urlsplit

import msgspec

from gangsched.kube.http.faults import FORBIDDEN, ApiFault, Fault
from gangsched.snapshots.file import SnapshotError
from kubectl_gangsched import session
from kubectl_gangsched.page import bundle
from kubectl_gangsched.page.live import connections
from kubectl_gangsched.page.live.connections import Connections
from kubectl_gangsched.page.live.feed import Feed
from kubectl_gangsched.page.live.guard import BODY_BYTES, HEADERS, Guard, Refused, check_body
from kubectl_gangsched.page.live.questions import Questions, encoded
from kubectl_gangsched.session import CannotAnswer, told
from kubectl_gangsched.terminal import clean

STREAMS = 5
"""A browser opens six connections to one host: one is left for everything else."""
HEARTBEAT_S = 5.0
JSON = "application/json"
Query: TypeAlias = dict[str, list[str]]
ASKED = (
    CannotAnswer,
    SnapshotError,
    Fault,
    msgspec.MsgspecError,
)
"""What a question may end with."""


class PageServer(ThreadingHTTPServer):
    """Serves one page to one session."""

    daemon_threads = True
    # Another program may not listen on the port as well.
    allow_reuse_address = False

    def __init__(self, feed: Feed, questions: Questions) -> None:
        """Listens on a free port of 127.0.0.1."""
        super().__init__(("127.0.0.1", 0), Handler)
        self.guard = Guard(self.server_address[1])
        self.feed = feed
        self.questions = questions
        self.streams = threading.BoundedSemaphore(STREAMS)
        self.connections = Connections()
        self.open_streams = 0
        self.used_s = time.monotonic()
        self.exchanged: Callable[[], None] = lambda: None

    @property
    def address(self) -> str:
        """Where the page is."""
        return f"http://127.0.0.1:{self.guard.port}/"

    def idle_s(self) -> float:
        """For how long nobody has asked; 0 while a page is open."""
        return 0.0 if self.open_streams else time.monotonic() - self.used_s

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread."""
        self.connections.admit(request)
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer, and give the place back."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.connections.leave(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that has gone is no news."""


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    timeout = connections.REQUEST_S
    server: PageServer
    _reader: connections.BoundedReader
    _given: dict[str, str]

    def setup(self) -> None:
        """Send small answers at once, and read no more than a request may have."""
        super().setup()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.rfile.close()
        self._reader = connections.BoundedReader(self.connection)
        self.rfile = io.BufferedReader(self._reader)

    def handle_one_request(self) -> None:
        """Answer one request, if it comes within its time and its bounds."""
        is_known = self.server.connections.is_known(self.connection)
        within_s = connections.REQUEST_S if is_known else connections.STRANGER_S
        self._reader.begin(within_s, connections.HEAD_BYTES)
        try:
            super().handle_one_request()
        except connections.TooLong:
            self.command = self.requestline = ""
            self.close_connection = True
            self._refuse(Refused(431, "The request is too long."))

    def version_string(self) -> str:
        """No versions."""
        return "gangsched"

    def log_message(self, format: str, *args: Any) -> None:
        """No log: it would have the code of the link."""

    def send_error(
        self,
        code: int,
        message: str | None = None,
        explain: str | None = None,
    ) -> None:
        """What is no HTTP, as `http.server` sees it, in our form."""
        self.close_connection = True
        self._refuse(Refused(code, clean(message or "The request is not understood.")))

    def do_GET(self) -> None:
        """Answer one of the fixed GETs."""
        self._guarded(self._get)

    def do_POST(self) -> None:
        """Answer the one POST."""
        self._guarded(self._post)

    def _guarded(self, answer: Callable[[str, Query], None]) -> None:
        """Check the request, and answer it; whatever goes wrong is a sentence."""
        # Only a body that is read to its end leaves the connection usable.
        unread = self.command != "GET" or "Content-Length" in self.headers
        try:
            parts = urlsplit(self.path)
            if parts.scheme or parts.netloc:
                raise Refused(400, "This is no proxy.")

            self._given = _headers(self.headers.items())
            self.server.guard.check_origin(self._given, is_page=parts.path == "/")
            answer(parts.path, parse_qs(parts.query))
        except Refused as refused:
            self.close_connection = self.close_connection or unread
            self._refuse(refused)
        except ASKED as error:
            status = 403 if isinstance(error, ApiFault) and error.status == FORBIDDEN else 422
            sentence = told(error) if isinstance(error, Fault) else str(error)
            self._refuse(Refused(status, clean(sentence)))
        except ValueError:
            self.close_connection = True
            self._refuse(Refused(400, "The request is not understood."))
        except OSError:
            raise  # the client has gone
        except Exception as error:  # a bug, or libraries that are missing
            sentence, _ = session.explained(error)
            self._refuse(Refused(500, sentence))

    def _get(self, path: str, query: Query) -> None:
        has_length = self._given.get("content-length", "0") != "0"
        if has_length or "transfer-encoding" in self._given:
            raise Refused(400, "A GET has no body.")

        if path in STATIC:
            media, read = STATIC[path]
            self._send(200, media, read().encode())
        elif path == "/api/session":
            key = self.server.guard.exchange(self._given.get("authorization", ""))
            self.server.used_s = time.monotonic()
            self.server.exchanged()
            self._answer({"key": key})
        elif path in ANSWERS:
            self._check_key()
            ANSWERS[path](self, query)
        else:
            raise Refused(404, "There is nothing here.")

    def _post(self, path: str, query: Query) -> None:
        if path != "/api/ask":
            is_known = path in STATIC or path in ANSWERS
            raise Refused(405 if is_known else 404, "Nothing is posted here.")

        self._check_key()
        body = self.rfile.read(check_body(self._given))
        self._answer(self.server.questions.ask(body))

    def _check_key(self) -> None:
        self.server.guard.check_key(self._given.get("authorization", ""))
        if not self.server.connections.prove(self.connection):
            raise Refused(503, "Too many connections are open: close a tab.")

        self._reader.begin(connections.REQUEST_S, BODY_BYTES)
        # What is refused is no use of the page: it would keep it open indefinitely.
        self.server.used_s = time.monotonic()

    def _document(self, query: Query) -> None:
        self._send(200, JSON, self.server.feed.document())

    def _gang(self, query: Query) -> None:
        key = _one(query, "id")
        self._answer(self.server.questions.detail(key))

    def _health(self, query: Query) -> None:
        self._answer(self.server.questions.health())

    def _changes(self, query: Query) -> None:
        last = _one(query, "after")
        if not (last.isascii() and last.isdigit() and len(last) < 20):
            raise Refused(400, "after is an id of the document.")
        if not self.server.streams.acquire(blocking=False):
            raise Refused(503, f"{STREAMS} tabs are open: close one of them.")

        self.server.open_streams += 1
        try:
            self._stream(int(last))
        finally:
            self.server.open_streams -= 1
            self.server.used_s = time.monotonic()
            self.server.streams.release()
            self.close_connection = True

    def _stream(self, last: int) -> None:
        feed = self.server.feed
        self._head(200, "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        was_behind = False
        sent_s = time.monotonic()

        while True:
            with feed.news:
                events = feed.after(last)
                if events == [] and not feed.is_over:
                    feed.news.wait(1.0)
                    events = feed.after(last)

            if feed.is_over:
                self._event("over", last, encoded("kubectl gangsched ui has ended."))
                return
            if events is None:
                self._event("again", last, b"{}")
                return

            for event in events:
                self._event(event.kind, event.id, event.data)
                last = event.id

            seconds, sentence = feed.behind()
            if seconds or was_behind:
                was_behind = bool(seconds)
                told_behind = {"seconds": seconds, "sentence": sentence}
                self._event("behind", last, encoded(told_behind))

            if events or seconds:
                sent_s = time.monotonic()
            elif time.monotonic() > sent_s + HEARTBEAT_S:
                self.wfile.write(b":\n\n")  # a client that has gone is noticed
                sent_s = time.monotonic()

    def _event(self, kind: str, number: int, data: bytes) -> None:
        self.wfile.write(b"event: %s\nid: %d\ndata: %s\n\n" % (kind.encode(), number, data))

    def _answer(self, found: Any) -> None:
        self._send(200, JSON, encoded(found))

    def _refuse(self, refused: Refused) -> None:
        self._send(refused.status, JSON, encoded({"sentence": refused.sentence}))

    def _send(self, status: int, media: str, body: bytes) -> None:
        self._head(status, media)
        self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")

        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _head(self, status: int, media: str) -> None:
        # To what looks like HTTP/0.9, too: without it there would be no headers.
        self.request_version = self.protocol_version
        self.send_response(status)
        self.send_header("Content-Type", media)
        for name, value in HEADERS.items():
            self.send_header(name, value)


def _headers(given: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Headers by their lower-case name. Raises Refused if one is there twice: the check and the
    answer could read different ones.
    """
    headers: dict[str, str] = {}
    for name, value in given:
        if name.lower() in headers:
            raise Refused(400, "A header is there twice.")

        headers[name.lower()] = value.strip()

    return headers


def _one(query: Query, name: str) -> str:
    values = query.get(name, [])
    if len(values) != 1:
        raise Refused(400, f"The request has no {name}.")

    return values[0]


STATIC: dict[str, tuple[str, Callable[[], str]]] = {
    "/": ("text/html; charset=utf-8", bundle.live_page),
    "/page.css": ("text/css; charset=utf-8", lambda: bundle.asset(bundle.STYLES)),
    "/page.js": ("text/javascript; charset=utf-8", bundle.script),
}
"""Without data, and so without a key."""
ANSWERS: dict[str, Callable[[Handler, Query], None]] = {
    "/api/document": Handler._document,
    "/api/changes": Handler._changes,
    "/api/gang": Handler._gang,
    "/api/health": Handler._health,
}
