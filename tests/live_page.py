"""A live page for tests: the command's parts on a fake API server, and a client of HTTP."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from kubectl_gangsched.page.changes import applied
from kubectl_gangsched.page.document import Change, Document, Moment
from kubectl_gangsched.page.live.feed import Feed
from kubectl_gangsched.page.live.login import user_of
from kubectl_gangsched.page.live.questions import Questions
from kubectl_gangsched.page.live.server import PageServer
from kubectl_gangsched.session import GANGS, Session
from tests.fake_api import forbidden, listed, node, pod
from tests.fake_watches import FakeWatches, watched

NODES = ("/api/v1/nodes",)
PODS = ("/api/v1/pods", "/api/v1/namespaces/team/pods")
GANG_LISTS = (f"{GANGS}/gangs", f"{GANGS}/namespaces/team/gangs")
GROUPS = "/apis/scheduling.x-k8s.io/v1alpha1"
WITHIN_S = 20.0


class Answer(NamedTuple):
    """One answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def value(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


def cluster(**more: Any) -> dict[str, Any]:
    """A cluster of two nodes that can be watched, without the gangs API."""
    pods = (pod("runs-0", gang="runs", node="n0", gpus=4), pod("waits-0", gang="waits", gpus=8))
    return {
        "/version": {"gitVersion": "v1.36.0"},
        NODES[0]: listed(node("n0", 8), node("n1", 8)),
        PODS[0]: listed(*pods),
        PODS[1]: listed(*pods),
        **more,
    }


def tenant(**more: Any) -> dict[str, Any]:
    """The same for a user of one namespace."""
    return cluster(**more) | {
        NODES[0]: forbidden("list", "nodes"),
        PODS[0]: forbidden("list", "pods"),
        GANG_LISTS[0]: forbidden("list", "gangs"),
    }


class Page:
    """The page as a browser sees it."""

    fake: FakeWatches

    def __init__(self, server: PageServer) -> None:
        self.server = server
        self.port = server.guard.port
        self.key = ""

    def ask(
        self, path: str, method: str = "GET", body: bytes | None = None, **headers: Any
    ) -> Answer:
        """One request; a header that is None is not sent."""
        given: dict[str, str | None] = {"Host": f"127.0.0.1:{self.port}"}
        if self.key:
            given["Authorization"] = f"Bearer {self.key}"
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WITHIN_S)
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            if body is not None and "Content_Length" not in headers:
                given["Content-Length"] = str(len(body))
            for name, value in given.items():
                if value is not None:
                    connection.putheader(name, value)
            connection.endheaders(body)
            answer = connection.getresponse()
            return Answer(answer.status, dict(answer.getheaders()), answer.read())
        finally:
            connection.close()

    def raw(self, text: bytes) -> bytes:
        """Send these bytes; what comes until the server closes."""
        with socket.create_connection(("127.0.0.1", self.port), WITHIN_S) as connection:
            connection.sendall(text)
            return b"".join(iter(lambda: connection.recv(65_536), b""))

    def enter(self) -> None:
        """Exchange the code for the key."""
        answer = self.ask("/api/session", Authorization=f"Code {self.server.guard.code}")
        assert answer.status == 200, answer
        self.key = answer.value["key"]

    def document(self) -> tuple[int, Document]:
        """The id and the document."""
        answer = self.ask("/api/document")
        assert answer.status == 200, answer
        return answer.value["id"], msgspec.json.decode(answer.body, type=Document)


class Stream:
    """The events behind a document; `moment` is kept up to date by them."""

    def __init__(self, page: Page) -> None:
        self.id, document = page.document()
        self.moment: Moment = document.moment
        self.events: list[tuple[str, Any]] = []
        self._connection = http.client.HTTPConnection("127.0.0.1", page.port, timeout=WITHIN_S)
        headers = {"Authorization": f"Bearer {page.key}"}
        self._connection.request("GET", f"/api/changes?after={self.id}", headers=headers)
        self._socket = self._connection.sock  # which the answer takes over
        self.answer = self._connection.getresponse()
        self._news = threading.Condition()
        self._thread = threading.Thread(target=self._read, daemon=True)
        if self.answer.status == 200:
            self._thread.start()

    def close(self) -> None:
        """Leave."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def until(self, wanted: Any, within_s: float = WITHIN_S) -> None:
        """Wait until `wanted(self)`."""
        with self._news:
            assert self._news.wait_for(lambda: wanted(self), within_s), self.events[-5:]

    def _read(self) -> None:
        kind = ""
        try:
            for line in self.answer:
                if line.startswith(b"event: "):
                    kind = line[7:].decode().strip()
                elif line.startswith(b"id: "):
                    self.id = int(line[4:])
                elif line.startswith(b"data: "):
                    self._take(kind, line[6:])
        except (OSError, ValueError, AttributeError):
            return

    def _take(self, kind: str, data: bytes) -> None:
        with self._news:
            if kind == "change":
                self.moment = applied(self.moment, msgspec.json.decode(data, type=Change))
            self.events.append((kind, json.loads(data)))
            self._news.notify_all()


@contextmanager
def live(
    tmp_path: Path, answers: dict[str, Any], *, rights_s: float = 0.2, enter: bool = True
) -> Iterator[Page]:
    """The page of a fake cluster, entered unless told otherwise."""
    with (
        watched(tmp_path, answers) as (fake, kubeconfig),
        opened(Session(None, kubeconfig), rights_s=rights_s) as page,
    ):
        page.fake = fake
        if enter:
            page.enter()
        yield page


@contextmanager
def opened(session: Session, *, rights_s: float = 20.0) -> Iterator[Page]:
    """The page of a session; nobody has entered it yet."""
    feed = Feed(session, user_of(session), rights_s=rights_s)
    server = PageServer(feed, Questions(session, feed))
    serving = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    feed.start()
    feed.wait_for_first()
    serving.start()
    try:
        yield Page(server)
    finally:
        feed.end()
        server.shutdown()
        server.server_close()
        serving.join()
