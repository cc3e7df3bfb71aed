"""The tools' client against a server that misbehaves the way real ones do: closing, refusing, expiring."""

import http.server
import json
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from control_plane.api import Api, ApiError
from control_plane.following import Following
from control_plane.pki import make_pki


class Server(http.server.ThreadingHTTPServer):
    """Answers each GET with the next entry of `script`: a status and a body, or lines of a watch."""

    daemon_threads = True

    def __init__(self, context: ssl.SSLContext) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.script: list[tuple[int, Any]] = []
        self.asked: list[str] = []
        self.connections = 0
        #: Whether it closes a connection after each answer without announcing it.
        self.hangs_up = False
        self.socket = context.wrap_socket(self.socket, server_side=True)


class Handler(http.server.BaseHTTPRequestHandler):
    """One connection of a client."""

    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        super().setup()
        cast(Server, self.server).connections += 1

    def do_GET(self) -> None:
        server = cast(Server, self.server)
        server.asked.append(self.path)
        status, body = server.script.pop(0) if server.script else (503, {"message": "the script is over"})
        watch = isinstance(body, list)
        text = "".join(json.dumps(line) + "\n" for line in body) if watch else json.dumps(body)
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())
        self.close_connection = server.hangs_up or watch

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A server on a free port."""
    pki = make_pki(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(str(pki.server_cert), str(pki.server_key))
    with Server(context) as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture
def api(server: Server, tmp_path: Path) -> Iterator[Api]:
    """Its client."""
    context = ssl.create_default_context(cafile=str(tmp_path / "ca.crt"))
    client = Api(f"https://127.0.0.1:{server.server_port}", context, timeout_s=5.0)
    yield client
    client.close()


def item(name: str, version: int) -> dict[str, Any]:
    """An object as a list or a watch has it."""
    return {"metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": str(version)}}


def listing(version: int, *items: dict[str, Any], more: str = "") -> dict[str, Any]:
    """One page of a list."""
    return {"items": list(items), "metadata": {"resourceVersion": str(version), "continue": more}}


def test_a_kept_connection_that_was_closed_is_replaced(server: Server, api: Api) -> None:
    """The caller does not notice that the server closed an idle connection; while it is open it is used again."""
    server.script = [(200, {"n": n}) for n in range(5)]
    assert [api.get("/a")["n"], api.get("/b")["n"]] == [0, 1]
    assert server.connections == 1
    server.hangs_up = True
    assert [api.get("/c")["n"], api.get("/d")["n"], api.get("/e")["n"]] == [2, 3, 4]
    assert server.connections == 3


def test_a_refusal_carries_status_and_sentence(server: Server, api: Api) -> None:
    """What the server says is what the error says, a Status object or not."""
    server.script = [(403, {"message": "not you"}), (500, "broken")]
    for said in ("403: not you", '500: "broken"'):
        with pytest.raises(ApiError) as caught:
            api.get("/a")
        assert str(caught.value) == said


def test_a_server_that_is_busy_is_asked_again(server: Server, api: Api) -> None:
    """429 is not an answer."""
    server.script = [(429, {"message": "storage is (re)initializing"}), (200, {"n": 1})]
    assert api.get("/a") == {"n": 1}


def test_a_list_reads_every_page(server: Server, api: Api) -> None:
    """Pages are put together, and the version is that of the list."""
    server.script = [(200, listing(7, item("a", 1), more="next")), (200, listing(7, item("b", 2)))]
    listed = api.list("/pods")
    assert [one["metadata"]["name"] for one in listed.items] == ["a", "b"]
    assert listed.resource_version == "7"
    assert server.asked == ["/pods?limit=500", "/pods?limit=500&continue=next"]


def test_a_watch_goes_on_where_it_was_and_a_gap_is_told_as_changes(server: Server, api: Api) -> None:
    """An ended stream is resumed after the last version; after 410 the difference to a new list is told."""
    server.script = [
        (200, listing(5, item("a", 3), item("b", 4))),
        (200, [{"type": "ADDED", "object": item("c", 6)}, {"type": "BOOKMARK", "object": item("", 9)}]),
        (200, [{"type": "ERROR", "object": {"code": 410, "message": "too old resource version"}}]),
        (200, listing(20, item("a", 3), item("c", 15), item("d", 16))),
        (200, [{"type": "DELETED", "object": item("a", 21)}]),
    ]
    told: list[tuple[str, str]] = []
    with Following(api, "/pods", on_change=lambda kind, one, _: told.append((kind, one["metadata"]["name"]))) as pods:
        pods.wait_for(lambda all_pods: set(all_pods) == {"uid-c", "uid-d"}, within_s=5)
    assert [kind + " " + name for kind, name in told] == [
        "ADDED a",
        "ADDED b",
        "ADDED c",
        "DELETED b",
        "MODIFIED c",
        "ADDED d",
        "DELETED a",
    ]
    watched = [path.partition("resourceVersion=")[2].partition("&")[0] for path in server.asked if "watch" in path]
    assert watched[:3] == ["5", "9", "20"]


def test_waiting_ends_with_what_was_waited_for(server: Server, api: Api) -> None:
    """A wait that is in vain names what it waited for, and one on a following that failed raises its error."""
    server.script = [(200, listing(5)), (403, {"message": "no longer"})]
    pods = Following(api, "/pods")
    pods.start()
    with pytest.raises(ApiError, match="no longer"):
        pods.wait_for(lambda all_pods: len(all_pods) == 1, within_s=5)
    with pytest.raises(ApiError, match="no longer"):
        pods.close()
    server.script = [(200, listing(5))]
    with Following(api, "/pods") as again, pytest.raises(TimeoutError, match="one pod"):
        again.wait_for(lambda all_pods: len(all_pods) == 1, within_s=0.05, what="one pod")
