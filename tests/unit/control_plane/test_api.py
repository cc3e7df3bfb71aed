"""The tools' client against a server that misbehaves the way real ones do: closing, refusing,
expiring.
"""

import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from control_plane.api import Api, ApiError
from control_plane.following import Following
from control_plane.pki import make_pki

from tests.server_thread import ServerThread, tls_of
from tests.unit.kube.fakes import FakeServer, hangs_up, line, says, streams


class Served(FakeServer):
    """A scripted server in a thread of its own."""

    def script(self, path: str, *bodies: dict[str, Any]) -> None:
        """Answer the GETs of a path with these objects, one after the other."""
        self.will("GET", path, *map(says, bodies))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    """A server on a free port."""
    pki = make_pki(tmp_path)
    served = Served()
    thread = ServerThread(served.handle, tls_of(pki.server_cert, pki.server_key))
    thread.start()
    served.url = thread.url
    yield served
    thread.stop()


@pytest.fixture
def api(server: Served, tmp_path: Path) -> Iterator[Api]:
    """Its client."""
    client = Api(
        server.url, ssl.create_default_context(cafile=str(tmp_path / "ca.crt")), timeout_s=5.0
    )
    yield client
    client.close()


def item(name: str, version: int) -> dict[str, Any]:
    """An object as a list or a watch has it."""
    return {"metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": str(version)}}


LATER = (("a", 3), ("c", 15), ("d", 16))


def listing(version: int, *items: dict[str, Any], more: str = "") -> dict[str, Any]:
    """One page of a list."""
    return {"items": list(items), "metadata": {"resourceVersion": str(version), "continue": more}}


def test_a_kept_connection_that_was_closed_is_replaced(server: Served, api: Api) -> None:
    """The caller does not notice that the server closed an idle connection; while it is open it is
    used again.
    """
    for path in "/a", "/b":
        server.script(path, {"of": path})
    for path in "/c", "/d", "/e":
        server.will("GET", path, hangs_up(says({"of": path})))
    assert [api.get(path)["of"] for path in ("/a", "/b")] == ["/a", "/b"]
    assert len(server.connections) == 1
    assert [api.get(path)["of"] for path in ("/c", "/d", "/e")] == ["/c", "/d", "/e"]
    assert len(server.connections) == 3


def test_a_refusal_carries_status_and_sentence(server: Served, api: Api) -> None:
    """What the server says is what the error says, a Status object or not."""
    server.will("GET", "/a", says({"message": "not you"}, 403), says("broken", 500))
    for said in ("403: not you", '500: "broken"'):
        with pytest.raises(ApiError) as caught:
            api.get("/a")
        assert str(caught.value) == said


def test_a_server_that_is_busy_is_asked_again(server: Served, api: Api) -> None:
    """429 is not an answer."""
    server.will("GET", "/a", says({"message": "storage is (re)initializing"}, 429), says({"n": 1}))
    assert api.get("/a") == {"n": 1}


def test_a_list_reads_every_page(server: Served, api: Api) -> None:
    """Pages are put together, and the version is that of the list."""
    server.script("/pods", listing(7, item("a", 1), more="next"), listing(7, item("b", 2)))
    listed = api.list("/pods")
    assert [one["metadata"]["name"] for one in listed.items] == ["a", "b"]
    assert listed.resource_version == "7"
    assert [request.path_qs for request in server.seen] == [
        "/pods?limit=500",
        "/pods?limit=500&continue=next",
    ]


def test_a_watch_goes_on_where_it_was_and_a_gap_is_told_as_changes(
    server: Served, api: Api
) -> None:
    """An ended stream is resumed after the last version; after 410 the difference to a new list is
    told.
    """
    server.script(
        "/pods", listing(5, item("a", 3), item("b", 4)), listing(20, *(item(*one) for one in LATER))
    )
    server.will(
        "WATCH",
        "/pods",
        streams(line("ADDED", item("c", 6)), line("BOOKMARK", item("", 9))),
        streams(line("ERROR", {"code": 410, "message": "too old resource version"})),
        streams(line("DELETED", item("a", 21)), hold=True),
    )
    told: list[tuple[str, str]] = []
    with Following(
        api, "/pods", on_change=lambda kind, one, _: told.append((kind, one["metadata"]["name"]))
    ) as pods:
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
    watched = [query["resourceVersion"] for query in server.queries("WATCH", "/pods")]
    assert watched == ["5", "9", "20"]


def test_waiting_ends_with_what_was_waited_for(server: Served, api: Api) -> None:
    """A wait that is in vain names what it waited for, and one on a following that failed raises
    its error.
    """
    server.script("/pods", listing(5))
    server.will("WATCH", "/pods", says({"message": "no longer"}, 403), streams(hold=True))
    pods = Following(api, "/pods")
    pods.start()
    with pytest.raises(ApiError, match="no longer"):
        pods.wait_for(lambda all_pods: len(all_pods) == 1, within_s=5)
    with pytest.raises(ApiError, match="no longer"):
        pods.close()
    with Following(api, "/pods") as again, pytest.raises(TimeoutError, match="one pod"):
        again.wait_for(lambda all_pods: len(all_pods) == 1, within_s=0.05, what="one pod")
