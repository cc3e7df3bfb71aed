"""The store: pages and lines in, messages out."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gangsched.kube.http.faults import Malformed
from gangsched.kube.read.resources import nodes, pods
from gangsched.kube.read.shapes import ShapeTable
from gangsched.kube.read.store import Store, WatchError, continue_token
from gangsched.kube.read.wire import WirePod
from gangsched.model.objects import Pod
from gangsched.model.protocol import Applied, Gone, Message, Replaced
from tests.unit.kube.fakes import bookmark, compact, line, node, page, pod, status


class Watched:
    """A store of pods with what it said."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.reports: list[str] = []
        self.store: Store[WirePod, Pod] = Store(
            pods(ShapeTable()), self.messages.append, self.reports.append
        )

    def relist(self, *items: dict[str, Any], rv: str = "10", token: str = "") -> str:
        return self.store.add_page(json.dumps(page(*items, rv=rv, token=token)).encode())

    def line(self, body: dict[str, Any]) -> None:
        self.store.take_line(json.dumps(body).encode())

    def said(self) -> list[str]:
        """The messages since the last call, in short."""
        short = []
        for message in self.messages:
            match message:
                case Replaced(kind=kind, items=found) if kind is Pod:
                    short.append("=" + ",".join(sorted(p.name for p in found)))
                case Applied(item=Pod() as found):
                    short.append(f"+{found.name}@{found.node_name}")
                case Gone(kind=kind, key=uid) if kind is Pod:
                    short.append(f"-{uid}")
        self.messages.clear()
        return short


def test_list_then_lines() -> None:
    """A list replaces, lines change, bookmarks only move the resourceVersion."""
    watched = Watched()
    assert watched.relist(pod("a"), pod("b"), rv="20") == ""
    watched.line(line("MODIFIED", pod("a", node="n", rv="21")))
    watched.line(line("ADDED", pod("c", rv="22")))
    watched.line(line("DELETED", pod("b", rv="23")))
    watched.line(bookmark("30"))
    assert watched.said() == ["=a,b", "+a@n", "+c@", "-uid-b"]
    assert watched.store.resource_version == "30"


def test_long_first_list_is_told_page_by_page() -> None:
    """A first list of many pages is not one message whose intake blocks the loop; later ones
    replace as a whole.
    """
    watched = Watched()
    assert watched.relist(pod("a"), token="t") == "t"
    assert watched.said() == ["+a@"]
    assert watched.relist(pod("b"), rv="20") == ""
    assert watched.said() == ["+b@"]
    watched.relist(pod("a"), token="t")
    assert watched.said() == []
    watched.relist(pod("c"), rv="30")
    assert watched.said() == ["=a,c"]


def test_first_list_that_broke_off_leaves_no_ghosts() -> None:
    """What was told of it and is not in the next one is gone; what is in both is not told again."""
    watched = Watched()
    watched.relist(pod("a"), pod("b"), token="t")
    watched.store.begin_list()
    watched.relist(pod("b"), token="t")
    assert watched.said() == ["+a@", "+b@"]
    watched.relist(pod("c"), rv="20")
    assert watched.said() == ["+c@", "=b,c"]


def test_relist_leaves_no_ghosts() -> None:
    """What is not in the new list is gone with it (replace semantics)."""
    watched = Watched()
    watched.relist(pod("a"), pod("b"))
    watched.relist(pod("b"), pod("c"))
    assert watched.said() == ["=a,b", "=b,c"]
    watched.line(line("DELETED", pod("a")))
    assert watched.said() == []


def test_unfinished_list_changes_nothing() -> None:
    """Pages of a list that broke off are forgotten."""
    watched = Watched()
    watched.relist(pod("a"))
    watched.relist(pod("x"), token="t")
    watched.store.begin_list()
    watched.relist(pod("a"), pod("b"))
    assert watched.said() == ["=a", "=a,b"]


def test_repetition_is_silent() -> None:
    """A line that changes nothing we look at costs nobody anything."""
    watched = Watched()
    watched.relist(pod("a"))
    watched.line(line("MODIFIED", pod("a", rv="50")))
    assert watched.said() == ["=a"]
    assert (watched.store.resource_version, watched.store.counts.unchanged) == ("50", 1)


def test_ended_pod_without_gang_frees_its_room() -> None:
    """An ended pod that nobody asks about is gone at once, before it is deleted."""
    watched = Watched()
    watched.relist(pod("a", node="n"), pod("old", status={"phase": "Succeeded"}))
    watched.line(line("MODIFIED", pod("a", node="n", status={"phase": "Succeeded"})))
    watched.line(line("DELETED", pod("a", node="n", status={"phase": "Succeeded"})))
    assert watched.said() == ["=a", "-uid-a"]


@pytest.mark.parametrize(
    ("bad", "listed"),
    [
        # A pending pod is told why it is not scheduled, so the state knows it.
        (pod("b", cpu="much"), "=a,b,c"),
        (pod("b", spec={"containers": "none"}), "=a,b,c"),
        (pod("b", labels=[1]), "=a,c"),
    ],
)
def test_bad_object_is_skipped_and_told_once(bad: dict[str, Any], listed: str) -> None:
    """One object that cannot be understood stops nothing, and is reported once per kind
    of fault.
    """
    watched = Watched()
    watched.relist(pod("a"), bad, pod("c"))
    watched.line(line("MODIFIED", bad))
    watched.line(line("ADDED", pod("d", rv="40")))
    assert watched.said() == [listed, "+d@"]
    assert len(watched.reports) == 1
    assert "ns/b" in watched.reports[0]
    assert watched.store.counts.bad_objects == 2


@pytest.mark.parametrize(
    "bad", [pod("a", rv="30", cpu="much"), pod("a", rv="30", spec={"containers": "none"})]
)
def test_known_pod_that_turns_bad_keeps_its_room(bad: dict[str, Any]) -> None:
    """The last good version stands, through lines and relists, until the object is deleted."""
    watched = Watched()
    watched.relist(pod("a", node="n"))
    watched.line(line("MODIFIED", bad))
    assert watched.store.resource_version == "30"
    watched.relist(bad, pod("b"))
    assert watched.said() == ["=a", "=a,b"]
    watched.line(line("DELETED", bad))
    assert watched.said() == ["-uid-a"]


def test_error_line_asks_for_a_relist() -> None:
    """An ERROR line is a fault with its code and words."""
    with pytest.raises(WatchError, match="too old") as caught:
        Watched().line(line("ERROR", status(410, "Expired", "too old resource version")))
    assert caught.value.status == 410


def test_garbage_is_a_fault() -> None:
    """What is not JSON is not guessed at."""
    watched = Watched()
    with pytest.raises(Malformed, match="not JSON"):
        watched.store.take_line(b'{"type": "ADDED", "obj')
    with pytest.raises(Malformed, match="not a list"):
        watched.store.add_page(b"<html>")


def test_node_without_allocatable_is_told_once() -> None:
    """A node that reports no room is kept with none, and said to be so once."""
    messages: list[Message] = []
    reports: list[str] = []
    store = Store(nodes(reports.append), messages.append, reports.append)
    store.add_page(json.dumps(page(node("a"), node("b", cpu=None))).encode())
    store.take_line(json.dumps(line("MODIFIED", node("b", cpu=None, labels={"x": "y"}))).encode())
    first, second = messages
    assert isinstance(first, Replaced)
    assert isinstance(second, Applied)
    assert [len(found.allocatable) for found in (*first.items, second.item)] == [1, 0, 0]
    assert reports == [
        "Node b has no allocatable resources in its status; nothing can be placed on it."
    ]


@pytest.mark.parametrize(
    ("raw", "token"),
    [
        (compact(page(pod("a"), token="next")), "next"),
        (compact(page(pod("a"))), ""),
        (compact(page()), ""),
        (b'{"items":[],"metadata":{"continue":"late"}}', ""),
        (b'{"metadata":{"continue":7},"items":[]}', ""),
        (b'{"metadata":{"continue":"x"}}', ""),
        (b'<html>,"items":[', ""),
        (b"", ""),
    ],
)
def test_continue_token(raw: bytes, token: str) -> None:
    """It is read off a page's head where API servers write it, and otherwise left to the decoding
    of the page.
    """
    assert continue_token(raw) == token
