"""The client for commands: kept connections, pages, and failures as faults."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest
from aiohttp import web

from gangsched.kube.http.blocking import BlockingClient
from gangsched.kube.http.faults import ApiFault, Malformed, Unreachable
from gangsched.kube.http.plain_credentials import Access
from tests.server_thread import ServerThread


class Server:
    """Remembers what came, and over how many connections."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, str]] = []
        self.peers: set[object] = set()
        self.hang_up = False

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(
            (request.method, request.path_qs, request.headers.get("Authorization", ""))
        )
        assert request.transport is not None
        self.peers.add(request.transport.get_extra_info("peername"))
        if request.path == "/pages":
            last = "continue" in request.query
            meta = {} if last else {"continue": "more"}
            return web.json_response(
                {"metadata": meta, "items": [{"metadata": {"name": "2" if last else "1"}}]}
            )
        if request.path == "/no":
            status = {"kind": "Status", "reason": "Forbidden", "message": "not you"}
            return web.json_response(status, status=403)
        if request.path == "/html":
            return web.Response(text="<html>")
        if request.path == "/undated":
            return web.json_response({}, headers={"Date": "today"})
        response = web.json_response({"read": json.loads(await request.read() or b"null")})
        if self.hang_up:
            request.transport.close()
        return response


@pytest.fixture
def server() -> Iterator[tuple[Server, ServerThread]]:
    server = Server()
    thread = ServerThread(server.handle)
    thread.start()
    yield server, thread
    thread.stop()


def test_connections_are_kept_and_pages_followed(server: tuple[Server, ServerThread]) -> None:
    """One connection serves one request after another; the token is sent; every page of a list is
    read.
    """
    fake, thread = server
    client = BlockingClient(Access(thread.url, "test", authorization="Bearer t"))
    assert client.json("POST", "/x", {"a": 1}) == {"read": {"a": 1}}
    assert client.items("/pages", labelSelector="a=b") == [
        {"metadata": {"name": "1"}},
        {"metadata": {"name": "2"}},
    ]
    assert [path for _, path, _ in fake.requests[1:]] == [
        "/pages?limit=500&labelSelector=a%3Db",
        "/pages?limit=500&labelSelector=a%3Db&continue=more",
    ]
    assert {header for *_, header in fake.requests} == {"Bearer t"}
    assert len(fake.peers) == 1
    client.close()


def test_the_time_of_the_server_is_known(server: tuple[Server, ServerThread]) -> None:
    """By the header Date of its last answer, a refusal too."""
    _, thread = server
    client = BlockingClient(Access(thread.url, "test"))
    assert client.answered_s is None
    with pytest.raises(ApiFault):
        client.get("/no")
    assert client.answered_s == pytest.approx(time.time(), abs=5.0)
    client.get("/undated")
    assert client.answered_s == pytest.approx(time.time(), abs=5.0)


def test_failures_are_faults(server: tuple[Server, ServerThread]) -> None:
    """A refusal has its status, a page that is no JSON is malformed, and several answers come with
    their faults.
    """
    _, thread = server
    client = BlockingClient(Access(thread.url, "test"))
    with pytest.raises(ApiFault, match="not you") as refused:
        client.get("/no")
    assert refused.value.status == 403
    with pytest.raises(Malformed, match="is not JSON"):
        client.get("/html")
    with pytest.raises(Malformed, match="is not one"):
        client.items("/html")
    good, bad = client.gets(["/x", "/no"])
    assert good == {"read": None}
    assert isinstance(bad, ApiFault)


def test_a_server_that_is_away_is_unreachable(server: tuple[Server, ServerThread]) -> None:
    """The sentence has the address and the reason."""
    with pytest.raises(
        Unreachable, match=r"No answer from http://127.0.0.1:1 of test: Connection refused\."
    ):
        BlockingClient(Access("http://127.0.0.1:1", "test")).get("/x")


def test_a_kept_connection_that_was_closed_is_replaced(server: tuple[Server, ServerThread]) -> None:
    """The request is sent again over a new one."""
    fake, thread = server
    client = BlockingClient(Access(thread.url, "test"))
    client.get("/x")
    client._idle[0].sock.close()
    client._idle[0].sock = _Closed()
    assert client.get("/x") == {"read": None}
    assert len(fake.peers) == 2


class _Closed:
    """A socket whose other end is gone."""

    def sendall(self, data: bytes) -> None:
        raise BrokenPipeError

    def close(self) -> None:
        pass
