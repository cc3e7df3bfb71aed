"""Other users of the machine cannot keep the page's own user out."""

from __future__ import annotations

import http.client
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from kubectl_gangsched.page.live import connections
from tests.live_page import WITHIN_S, Page, Stream, cluster, live


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Page]:
    """One page that has been entered."""
    with live(tmp_path, cluster()) as page:
        yield page


def stranger(page: Page, stack: ExitStack) -> socket.socket:
    """A connection that sends the start of a request and no more."""
    connection = socket.create_connection(("127.0.0.1", page.port), WITHIN_S)
    stack.enter_context(connection)
    connection.sendall(b"GET / HTTP/1.1\r\n")
    return connection


def until_closed(connection: socket.socket) -> bytes:
    """What comes until the server closes."""
    parts = []
    with suppress(ConnectionResetError):
        while part := connection.recv(65_536):
            parts.append(part)

    return b"".join(parts)


def test_strangers_leave_places_for_who_has_the_key(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many connect and say nothing more: streams and kept connections go on, a new tab is
    answered at once, and the oldest strangers go long before their time is over.
    """
    monkeypatch.setattr(connections, "STRANGER_S", 10 * WITHIN_S)
    stream = Stream(page)
    kept = http.client.HTTPConnection("127.0.0.1", page.port, timeout=WITHIN_S)
    headers = {"Authorization": f"Bearer {page.key}"}
    kept.request("GET", "/api/document", headers=headers)
    assert kept.getresponse().read()
    socket_before = kept.sock

    with ExitStack() as stack:
        first = stranger(page, stack)
        for _ in range(2 * connections.STRANGERS):
            stranger(page, stack)

        assert page.ask("/api/document").status == 200
        kept.request("GET", "/api/document", headers=headers)
        assert kept.getresponse().status == 200
        assert kept.sock is socket_before
        assert until_closed(first) == b""

    assert not [kind for kind, _ in stream.events if kind == "over"]
    stream.close()
    kept.close()


def test_who_sends_slowly_is_left(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte now and then does not keep a place: the whole request has its time."""
    monkeypatch.setattr(connections, "STRANGER_S", 0.5)
    with socket.create_connection(("127.0.0.1", page.port), WITHIN_S) as connection:
        began_s = time.monotonic()
        connection.sendall(b"GET / HTTP/1.1\r\n")
        with suppress(OSError):
            while time.monotonic() < began_s + WITHIN_S / 2:
                connection.sendall(b"X")
                connection.settimeout(0.05)
                with suppress(TimeoutError):
                    assert connection.recv(1) == b""
                    break

        assert time.monotonic() < began_s + WITHIN_S / 2


def test_a_body_that_does_not_come_is_not_waited_for(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is one of which a byte comes now and then."""
    monkeypatch.setattr(connections, "REQUEST_S", 0.5)
    head = (
        f"POST /api/ask HTTP/1.1\r\nHost: 127.0.0.1:{page.port}\r\n"
        f"Authorization: Bearer {page.key}\r\nContent-Type: application/json\r\n"
        "Content-Length: 100\r\n\r\n{"
    )
    began_s = time.monotonic()
    page.raw(head.encode())
    assert time.monotonic() < began_s + WITHIN_S / 2


def test_a_head_without_end_is_refused(page: Page) -> None:
    """A hundred headers of 64 KB each would be read otherwise."""
    head = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    exact = head + b"X-A: " + b"a" * (connections.HEAD_BYTES - len(head) - 5)
    assert b" 431 " in page.raw(exact)

    sent = 0
    with socket.create_connection(("127.0.0.1", page.port), WITHIN_S) as connection:
        with suppress(OSError):
            connection.sendall(head)
            for number in range(100):
                sent += connection.send(b"X-%d: %s\r\n" % (number, b"a" * 60_000))

        until_closed(connection)

    assert page.ask("/").status == 200


def test_places_are_given_back(page: Page) -> None:
    """Whoever had the key and went leaves no place taken."""
    threads = threading.active_count()
    for _ in range(2 * connections.KNOWN):
        assert page.ask("/api/document").status == 200

    deadline_s = time.monotonic() + WITHIN_S
    while threading.active_count() > threads and time.monotonic() < deadline_s:
        time.sleep(0.02)

    assert threading.active_count() <= threads


def test_too_many_with_the_key_are_told(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    """One sentence, until one of them is closed."""
    stream = Stream(page)
    monkeypatch.setattr(connections, "KNOWN", 1)
    refused = page.ask("/api/document")
    assert (refused.status, set(refused.value)) == (503, {"sentence"})
    stream.close()
