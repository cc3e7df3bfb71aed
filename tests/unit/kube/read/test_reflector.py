"""The reflector against a server that misbehaves in every way real ones do."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from gangsched.kube.ports import Runtime
from gangsched.kube.read.reflector import (
    RESUMES_AT_ONCE,
    SILENCE_S,
    SPREAD_S,
    WATCH_S,
    LineSplitter,
    Reflector,
)
from gangsched.kube.read.resources import nodes, pods
from gangsched.kube.read.shapes import ShapeTable
from gangsched.kube.read.store import Store
from gangsched.model.objects import Node, Pod
from gangsched.model.protocol import Applied, Gone, Message, Replaced
from tests.server_thread import Handler
from tests.unit.kube.fakes import (
    FakeServer,
    bookmark,
    compact,
    line,
    node,
    page,
    pod,
    says,
    serving,
    status,
    streams,
)

PODS, NODES = "/api/v1/pods", "/api/v1/nodes"


class Run:
    """A reflector at work; its pauses are noted, and take time only by its clock."""

    def __init__(self, server: FakeServer) -> None:
        self.server = server
        self.messages: list[Message] = []
        self.reports: list[str] = []
        self.pauses: list[float] = []
        self.reflector: Reflector[Any, Any]

    def sink(self, message: Message) -> None:
        self.messages.append(message)

    async def sleep(self, seconds: float) -> None:
        if seconds:
            self.pauses.append(seconds)
        await asyncio.sleep(0)

    def now_s(self) -> float:
        return time.monotonic() + sum(self.pauses)

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not holds():  # noqa: ASYNC110
                await asyncio.sleep(0.001)

    def names(self) -> set[str]:
        """What the state would hold now."""
        held: dict[str, str] = {}
        for message in self.messages:
            match message:
                case Replaced(kind=kind, items=found) if kind is Pod:
                    held = {p.uid: p.name for p in found}
                case Applied(item=Pod() as one):
                    held[one.uid] = one.name
                case Gone(kind=kind, key=uid) if kind is Pod:
                    held.pop(uid, None)
        return set(held.values())


@asynccontextmanager
async def reflecting(
    tmp_path: Path,
    lists: list[Handler],
    watches: list[Handler],
    silence_s: float = 5.0,
    line_s: float = 0.0,
    refused: Callable[..., None] | None = None,
) -> AsyncIterator[Run]:
    """With `line_s` a clock on which nothing takes time but a message, and that this
    many seconds.
    """
    async with serving(tmp_path) as (server, client):
        server.will("GET", PODS, *lists)
        server.will("WATCH", PODS, *watches)
        run = Run(server)
        store = Store(pods(ShapeTable()), run.sink, run.reports.append)
        reflector = Reflector(
            client,
            store,
            runtime=Runtime(
                warn=run.reports.append,
                now=(lambda: len(run.messages) * line_s) if line_s else run.now_s,
                sleep=run.sleep,
                rng=random.Random(1),
            ),
            silence_s=silence_s,
            refused=refused,
        )
        run.reflector = reflector
        task = asyncio.create_task(reflector.run())
        try:
            yield run
        finally:
            task.cancel()
            await asyncio.wait({task})


def versions(run: Run) -> list[str]:
    return [query["resourceVersion"] for query in run.server.queries("WATCH", PODS)]


async def test_lists_in_pages_and_follows(tmp_path: Path) -> None:
    """Pages are read to the end, then the watch starts at the list's version, asking
    for bookmarks.
    """
    lists = [says(page(pod("a"), rv="5", token="next")), says(page(pod("b"), rv="5"))]
    async with reflecting(
        tmp_path, lists, [streams(line("ADDED", pod("c", rv="6")), hold=True)]
    ) as run:
        await run.until(lambda: run.names() == {"a", "b", "c"})
        assert [query.get("continue") for query in run.server.queries("GET", PODS)] == [
            None,
            "next",
        ]
        watch = run.server.queries("WATCH", PODS)[0]
        assert (watch["resourceVersion"], watch["allowWatchBookmarks"]) == ("5", "true")
        assert WATCH_S <= int(watch["timeoutSeconds"]) < WATCH_S + SPREAD_S


async def test_a_label_selector_goes_with_every_list_and_watch(tmp_path: Path) -> None:
    """I7: the API server selects; an object that stops matching is deleted for us."""
    selector = "pool in (a,b),!spot"
    async with serving(tmp_path) as (server, client):
        server.will(
            "GET", NODES, says(page(node("x"), rv="5", token="next")), says(page(node("y"), rv="5"))
        )
        gone = line("DELETED", node("x", rv="6", labels={"pool": "c"}))
        server.will("WATCH", NODES, streams(gone, hold=True))
        run = Run(server)
        store = Store(nodes(run.reports.append, selector), run.sink, run.reports.append)
        task = asyncio.create_task(
            Reflector(
                client, store, runtime=Runtime(warn=run.reports.append, sleep=run.sleep)
            ).run()
        )
        await run.until(lambda: Gone(Node, "x") in run.messages)
        task.cancel()
        await asyncio.wait({task})
        asked = [
            query["labelSelector"]
            for kind in ("GET", "WATCH")
            for query in server.queries(kind, NODES)
        ]
    assert asked == [selector] * 3
    assert run.reports == []


class Pages:
    """A client that has two pages and notes what happens when."""

    def __init__(self) -> None:
        self.log: list[str] = []

    async def request(self, method: str, path: str, *, timeout_s: float) -> bytes:
        self.log.append(f"asked for {path.partition('continue=')[2] or 'the first'}")
        await asyncio.sleep(0)
        return compact(
            page(pod("b"), rv="5") if "continue" in path else page(pod("a"), rv="5", token="next")
        )

    async def chunks(self, path: str, *, silence_s: float) -> AsyncIterator[bytes]:
        self.log.append("watched")
        await asyncio.Event().wait()
        yield b""


async def test_the_next_page_is_asked_for_before_the_last_one_is_decoded() -> None:
    """The server works on a page while we work on the one before it."""
    client = Pages()
    store = Store(pods(ShapeTable()), lambda message: client.log.append("told"), client.log.append)
    task = asyncio.create_task(
        Reflector(client, store, runtime=Runtime(warn=client.log.append)).run()
    )
    async with asyncio.timeout(10):
        while "watched" not in client.log:  # noqa: ASYNC110
            await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task})
    assert client.log == ["asked for the first", "asked for next", "told", "told", "watched"]


async def test_a_page_of_garbage_leaves_no_request_behind() -> None:
    """A page whose head is fine and whose items are not: the list starts again, and what was asked
    for is dropped.
    """
    client = Pages()
    good = client.request
    answers = [compact(page(pod("a"), token="next"))[:-20], compact(page(pod("c"), rv="9"))]

    async def request(method: str, path: str, *, timeout_s: float) -> bytes:
        await good(method, path, timeout_s=timeout_s)
        if "continue" in path:
            await asyncio.Event().wait()
        return answers.pop(0)

    client.request = request  # type: ignore[method-assign]
    store = Store(pods(ShapeTable()), lambda message: None, client.log.append)
    task = asyncio.create_task(
        Reflector(client, store, runtime=Runtime(warn=client.log.append)).run()
    )
    async with asyncio.timeout(10):
        while "watched" not in client.log:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    left = [each for each in asyncio.all_tasks() if each not in {task, asyncio.current_task()}]
    task.cancel()
    await asyncio.wait({task})
    assert (len(store), left) == (1, [])


async def test_resumes_after_a_normal_end(tmp_path: Path) -> None:
    """A stream the server closes is continued from the last version seen, bookmarks counted,
    without a new list.
    """
    watches = [
        streams(line("ADDED", pod("b", rv="7"))),
        streams(bookmark("9")),
        streams(line("ADDED", pod("c", rv="10")), hold=True),
    ]
    async with reflecting(tmp_path, [says(page(pod("a"), rv="5"))], watches) as run:
        await run.until(lambda: run.names() == {"a", "b", "c"})
        assert versions(run) == ["5", "7", "9"]
        assert len(run.server.queries("GET", PODS)) == 1


@pytest.mark.parametrize("code", [410, 500])
async def test_error_line_relists_and_replaces(tmp_path: Path, code: int) -> None:
    """After an ERROR line everything is listed again, and what vanished meanwhile is gone."""
    lists = [says(page(pod("a"), pod("ghost"), rv="5")), says(page(pod("a"), rv="50"))]
    watches = [
        streams(line("ADDED", pod("b", rv="6")), line("ERROR", status(code, "Expired", "no"))),
        streams(hold=True),
    ]
    async with reflecting(tmp_path, lists, watches) as run:
        await run.until(lambda: run.names() == {"a"} and len(versions(run)) == 2)
        assert versions(run) == ["5", "50"]


async def test_gone_as_http_status_relists(tmp_path: Path) -> None:
    """A 410 instead of a stream means the same."""
    lists = [says(page(pod("a"), rv="5")), says(page(pod("b"), rv="50"))]
    watches = [says(status(410, "Expired", "too old"), 410), streams(hold=True)]
    async with reflecting(tmp_path, lists, watches) as run:
        await run.until(lambda: run.names() == {"b"})


async def test_gone_in_the_middle_of_a_list_starts_it_again(tmp_path: Path) -> None:
    """A continue token that expired restarts the list, in one piece this time; what only half a
    list had is gone.
    """
    lists = [
        says(page(pod("x"), token="t")),
        says(status(410, "Expired", "token too old"), 410),
        says(page(pod("a"), rv="50")),
    ]
    async with reflecting(tmp_path, lists, [streams(hold=True)]) as run:
        await run.until(lambda: run.names() == {"a"})
        assert [query.get("limit") for query in run.server.queries("GET", PODS)] == [
            "500",
            "500",
            None,
        ]
        assert isinstance(run.messages[-1], Replaced)


async def test_broken_connection_resumes(tmp_path: Path) -> None:
    """A connection cut in the middle of a line loses nothing: the stream is resumed before that
    line.
    """
    watches = [
        streams(line("ADDED", pod("b", rv="7")), b'{"type":"ADDED","object":{"metad', cut=True),
        streams(line("ADDED", pod("c", rv="8")), hold=True),
    ]
    async with reflecting(tmp_path, [says(page(pod("a"), rv="5"))], watches) as run:
        await run.until(lambda: run.names() == {"a", "b", "c"})
        assert versions(run) == ["5", "7"]


async def test_silent_stream_is_opened_again(tmp_path: Path) -> None:
    """A stream without even a bookmark is given up after a while and resumed."""
    watches = [
        streams(line("ADDED", pod("b", rv="7")), hold=True),
        streams(line("ADDED", pod("c")), hold=True),
    ]
    async with reflecting(tmp_path, [says(page(pod("a"), rv="5"))], watches, silence_s=0.2) as run:
        await run.until(lambda: run.names() == {"a", "b", "c"})
        assert versions(run)[:2] == ["5", "7"]
        assert (
            run.reports[0]
            == "The watch of pods was silent for 0.2 s; it is opened again where it stopped."
        )


async def test_giant_line_arrives(tmp_path: Path) -> None:
    """A pod of 1.4 MB in one line is read like any other, and so are the lines around it."""
    giant = pod("giant", rv="7", annotations={"big": "x" * 1_400_000})
    parts = [line("ADDED", pod("b", rv="6")), line("ADDED", giant), line("ADDED", pod("c", rv="8"))]
    async with reflecting(tmp_path, [says(page(rv="5"))], [streams(*parts, hold=True)]) as run:
        await run.until(lambda: run.names() == {"giant", "b", "c"})


async def test_bad_line_does_not_stop_the_others(tmp_path: Path) -> None:
    """One bad object in a stream is reported; the stream goes on."""
    parts = [line("ADDED", pod("bad", rv="6", cpu="much")), line("ADDED", pod("c", rv="8"))]
    async with reflecting(tmp_path, [says(page(rv="5"))], [streams(*parts, hold=True)]) as run:
        # A pending pod is told why it is not scheduled.
        await run.until(lambda: run.names() == {"bad", "c"})
        assert len(run.server.queries("WATCH", PODS)) == 1
        assert "ns/bad" in run.reports[0]


async def test_garbage_relists(tmp_path: Path) -> None:
    """A line that is no JSON may hide anything, so everything is listed again."""
    lists = [says(page(pod("a"), rv="5")), says(page(pod("b"), rv="50"))]
    async with reflecting(tmp_path, lists, [streams(b"<html>\n"), streams(hold=True)]) as run:
        await run.until(lambda: run.names() == {"b"})


async def test_backs_off_and_says_so_once(tmp_path: Path) -> None:
    """A server in trouble is asked less and less often; people hear of it once, and when it is
    over.
    """
    trouble = says(status(500, "InternalError", "etcd is slow"), 500)
    async with reflecting(
        tmp_path, [trouble] * 6 + [says(page(pod("a")))], [streams(hold=True)]
    ) as run:
        await run.until(lambda: run.names() == {"a"})
        assert run.pauses == pytest.approx(sorted(run.pauses), abs=0.2)
        assert 0.8 < run.pauses[0] <= 1.0
        assert 2.0 < run.pauses[5] <= 3.2
        assert run.reports == [
            "Cannot follow pods: etcd is slow; trying again.",
            "Following pods again.",
        ]


async def test_honours_retry_after(tmp_path: Path) -> None:
    """A 429 is tried again when the server said, not before."""
    lists = [
        says(status(429, "TooManyRequests", "busy"), 429, **{"Retry-After": "4"}),
        says(page(pod("a"))),
    ]
    async with reflecting(tmp_path, lists, [streams(hold=True)]) as run:
        await run.until(lambda: run.names() == {"a"})
        assert run.pauses == [4.0]


async def test_denied_is_told_with_the_fix(tmp_path: Path) -> None:
    """Missing permission is named with its fix and tried again slowly."""
    lists = [says(status(403, "Forbidden", "pods is forbidden"), 403), says(page(pod("a")))]
    async with reflecting(tmp_path, lists, [streams(hold=True)]) as run:
        await run.until(lambda: run.names() == {"a"})
        assert run.pauses == [10.0]
        assert "pods is forbidden; apply manifests/rbac.yaml" in run.reports[0]


async def test_a_permission_that_is_taken_away_is_noticed_with_the_next_watch(
    tmp_path: Path,
) -> None:
    """An open watch goes on; once the next one is denied, a list tells that nothing can be read any
    more, and it is tried again slowly.
    """
    denied = says(status(403, "Forbidden", "pods is forbidden"), 403)
    lists = [says(page(pod("a"), rv="10")), denied, says(page(pod("c"), rv="20"))]
    watches = [streams(line("ADDED", pod("b", rv="11"))), denied, streams(hold=True)]
    told: list[bool] = []

    def refused(*, forbidden: bool) -> None:
        told.append(forbidden)

    async with reflecting(tmp_path, lists, watches, refused=refused) as run:
        await run.until(lambda: run.names() == {"c"} and len(versions(run)) == 3)
        assert versions(run) == ["10", "11", "20"]
        assert [pause for pause in run.pauses if pause > 2] == [10.0]
        assert told == [True]


async def test_without_the_permission_to_watch_lists_are_few(tmp_path: Path) -> None:
    """What may only be listed counts as read, and is listed again after a few refusals."""
    denied = says(status(403, "Forbidden", "pods is forbidden"), 403)
    lists = [says(page(pod("a"), rv="10")), says(page(pod("b"), rv="20"))]
    told: list[bool] = []

    def refused(*, forbidden: bool) -> None:
        told.append(forbidden)

    async with reflecting(
        tmp_path, lists, [denied] * 5 + [streams(hold=True)], refused=refused
    ) as (run):
        await run.until(lambda: run.names() == {"b"} and len(versions(run)) == 6)
        assert versions(run) == [*["10"] * 5, "20"]
        assert run.pauses == [10.0] * 5
        assert told == []


async def test_watch_refused_again_and_again_relists(tmp_path: Path) -> None:
    """A server that knows less than we do (restored from a backup) is listed afresh after a few
    refusals.
    """
    lists = [says(page(pod("a"), rv="500")), says(page(pod("b"), rv="5"))]
    refused = says(status(504, "Timeout", "Too large resource version"), 504)
    async with reflecting(tmp_path, lists, [refused] * 5 + [streams(hold=True)]) as run:
        await run.until(lambda: run.names() == {"b"} and versions(run)[-1] == "5")
        assert versions(run) == ["500"] * 5 + ["5"]


async def test_streams_that_end_at_once_are_not_a_busy_loop(tmp_path: Path) -> None:
    """A proxy that closes every watch at once slows us down instead of spinning."""
    watches = [streams()] * 4 + [streams(hold=True)]
    async with reflecting(tmp_path, [says(page(pod("a")))], watches) as run:
        await run.until(lambda: len(versions(run)) == 5)
        assert len(run.pauses) == 4
        assert run.pauses[-1] > 0.5


async def test_streams_that_end_after_one_line_are_soon_opened_once_a_second(
    tmp_path: Path,
) -> None:
    """Under load the API server ends a watch several times a second: ten are resumed at once, not a
    storm of them.
    """
    at_once, later = RESUMES_AT_ONCE, 4
    ending = [streams(line("ADDED", pod("b", rv=str(11 + n)))) for n in range(at_once + later)]
    async with reflecting(tmp_path, [says(page(pod("a")))], [*ending, streams(hold=True)]) as run:
        await run.until(lambda: len(versions(run)) == at_once + later + 1)
        assert run.pauses == pytest.approx([1.0] * later, abs=0.5)


async def test_streams_that_break_after_one_line_are_opened_once_a_second(tmp_path: Path) -> None:
    """A connection that breaks again and again is an outage, however much comes in between."""
    breaking = [streams(line("ADDED", pod("b", rv=str(11 + n))), cut=True) for n in range(4)]
    async with reflecting(tmp_path, [says(page(pod("a")))], [*breaking, streams(hold=True)]) as run:
        await run.until(lambda: len(versions(run)) == 5)
        assert run.pauses == pytest.approx([1.0] * 4, abs=0.2)


def test_silence_exceeds_what_a_watch_may_last() -> None:
    """A quiet watch may have no bookmark for 120 s, but its end comes; a dead one is noticed as
    client-go does.
    """
    assert WATCH_S + SPREAD_S + 4 <= SILENCE_S <= 30


async def test_refused_watches_do_not_become_a_storm_of_lists(tmp_path: Path) -> None:
    """A server that lists but answers every watch with 410 is listed ever more slowly."""
    watches = [streams(line("ERROR", status(410, "Expired", "no")))] * 5 + [streams(hold=True)]
    async with reflecting(tmp_path, [says(page(pod("a")))], watches) as run:
        await run.until(lambda: len(versions(run)) == 6)
        assert run.pauses == pytest.approx(sorted(run.pauses), abs=0.2)
        assert run.pauses[-1] > 1.0


async def test_long_bursts_leave_others_their_turn(tmp_path: Path) -> None:
    """Of thousands of lines at once one turn of the loop takes no more than fit into 5 ms, of two
    chunks each.
    """
    burst = [line("ADDED", pod(f"p{n}", rv=str(n + 10))) for n in range(5000)]
    async with reflecting(
        tmp_path, [says(page(rv="5"))], [streams(*burst, hold=True)], line_s=0.0001
    ) as run:
        most, before = 0, 0
        async with asyncio.timeout(60):
            while len(run.messages) < 5001:
                await asyncio.sleep(0)
                most, before = max(most, len(run.messages) - before), len(run.messages)
        assert len(run.names()) == 5000
        assert most <= 2 * 51


def test_splitter() -> None:
    """Lines come out whole however the chunks fall."""
    text = b"one\ntwo\n\nthree\nfour"
    for size in range(1, len(text) + 1):
        splitter = LineSplitter()
        lines = [
            found
            for at in range(0, len(text), size)
            for found in splitter.feed(text[at : at + size])
        ]
        assert lines == [b"one", b"two", b"", b"three"]


async def test_request_that_never_answers(tmp_path: Path) -> None:
    """`synced` is not set before a whole list is in."""

    async def never(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(3600)
        return web.Response()

    async with serving(tmp_path) as (server, client):
        server.will("GET", PODS, never)
        messages: list[Message] = []
        reflector = Reflector(
            client, Store(pods(ShapeTable()), messages.append, print), runtime=Runtime(warn=print)
        )
        task = asyncio.create_task(reflector.run())
        await asyncio.sleep(0.05)
        assert not reflector.synced.is_set()
        assert messages == []
        task.cancel()
        await asyncio.wait({task})


async def test_all_is_listed_again_when_it_is_decoded_otherwise(tmp_path: Path) -> None:
    """A quiet watch is left at once, and resumed behind the new list."""
    lists = [says(page(pod("a"), rv="5")), says(page(pod("a"), pod("b"), rv="9"))]
    watches = [streams(hold=True), streams(line("ADDED", pod("c", rv="10")), hold=True)]
    async with reflecting(tmp_path, lists, watches) as run:
        await run.until(lambda: run.reflector.counts.watches == 1)
        run.reflector.list_again()
        await run.until(lambda: len(run.names()) == 3)
        assert run.names() == {"a", "b", "c"}
        assert run.reflector.counts.lists == 2
        assert run.reflector.counts.faults == 0
