"""Fakes: a clock that a test advances, an API in memory, and a server with scripted answers."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import json
import random
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from aiohttp import web

from gangsched.kube.http.client import JSON, ApiClient, connect
from gangsched.kube.http.faults import Fault
from gangsched.kube.ports import Runtime, Warn, silent
from gangsched.kube.write.binder import BindFate
from gangsched.kube.write.pause import InFlight
from tests.server_thread import Handler

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


async def settle() -> None:
    """Let every task run until it waits."""
    for _ in range(50):
        await asyncio.sleep(0)


class FakeTime:
    """A clock and its sleep: time passes only in `advance`."""

    def __init__(self) -> None:
        self.at_s = 1000.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = itertools.count()

    def now(self) -> float:
        return self.at_s

    def wall(self) -> datetime:
        return EPOCH + timedelta(seconds=self.at_s - 1000.0)

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self.at_s + seconds, next(self._order), future))
        await future

    async def advance(self, seconds: float) -> None:
        """Let `seconds` pass, waking sleepers in order."""
        await settle()
        until_s = self.at_s + seconds
        while self._sleepers and self._sleepers[0][0] <= until_s:
            self.at_s, _, future = heapq.heappop(self._sleepers)
            if not future.done():
                future.set_result(None)
            await settle()
        self.at_s = until_s

    def runtime(self, warn: Warn = silent) -> Runtime:
        """What kube's classes are given in place of the machine's clocks."""
        return Runtime(
            warn=warn, now=self.now, wall=self.wall, sleep=self.sleep, rng=random.Random(1)
        )


class FakeBinds:
    """A binder that is as busy as the test says."""

    def __init__(self, time: FakeTime) -> None:
        self.in_flight = InFlight(time.now)
        self.fates: dict[str, BindFate] = {}

    def fate(self, uid: str) -> BindFate | None:
        return self.fates.get(uid)

    def begin(self) -> None:
        """Binds are under way."""
        self.in_flight.begin()

    def end(self) -> None:
        """None are any more."""
        self.in_flight.end()


@asynccontextmanager
async def running(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """A part of the daemon at work, which is cancelled at the end; it never ends by itself: that
    raises why it did.
    """
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})
        if not task.cancelled():
            task.result()


class Sent(NamedTuple):
    """One request as the server saw it."""

    method: str
    path: str
    body: Any
    content_type: str


Answer = dict[str, Any] | Fault


class FakeRequests:
    """An API in memory: `answer` decides each request; without one everything succeeds with an
    empty object.
    """

    def __init__(self, answer: Callable[[Sent], Answer] | None = None) -> None:
        self.sent: list[Sent] = []
        self.answer = answer
        self.blocked: asyncio.Event | None = None

    async def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        content_type: str = JSON,
        timeout_s: float = 10.0,
    ) -> bytes:
        sent = Sent(method, path, json.loads(body) if body else None, content_type)
        self.sent.append(sent)
        if self.blocked is not None:
            await self.blocked.wait()
        answer = self.answer(sent) if self.answer is not None else {}
        if isinstance(answer, Fault):
            raise answer
        return json.dumps(answer).encode()

    def of(self, method: str) -> list[Sent]:
        """The requests with this method, in order."""
        return [sent for sent in self.sent if sent.method == method]


class FakeServer:
    """An HTTP server with queued answers per method and path; the last one of a queue repeats."""

    def __init__(self) -> None:
        self.url = ""
        self.seen: list[web.Request] = []
        self.connections: set[object] = set()
        self._answers: dict[tuple[str, str], deque[Handler]] = defaultdict(deque)

    def will(self, method: str, path: str, *handlers: Handler) -> None:
        """Queue answers for a path (without its query)."""
        self._answers[method, path].extend(handlers)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.seen.append(request)
        self.connections.add(request.protocol)
        kind = "WATCH" if "watch" in request.query else request.method
        queue = self._answers.get((kind, request.path))
        if not queue:
            return web.json_response(status(404, "NotFound", "nothing here"), status=404)
        return await (queue.popleft() if len(queue) > 1 else queue[0])(request)

    def queries(self, kind: str, path: str) -> list[dict[str, str]]:
        """The queries of the requests of one kind (WATCH for watches)."""
        return [
            dict(request.query)
            for request in self.seen
            if request.path == path
            and kind == ("WATCH" if "watch" in request.query else request.method)
        ]


@asynccontextmanager
async def serving(tmp_path: Path) -> AsyncIterator[tuple[FakeServer, ApiClient]]:
    """A fake server, and a client with a kubeconfig for it."""
    server = FakeServer()
    runner = web.ServerRunner(web.Server(server.handle), shutdown_timeout=0.1)  # type: ignore[arg-type]
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    server.url = f"http://{host}:{port}"
    async with await connect(kubeconfig(tmp_path / "kubeconfig", server.url)) as client:
        yield server, client
    await runner.cleanup()


def kubeconfig(path: Path, url: str, **user: str) -> Path:
    """Write a kubeconfig for `url`."""
    text = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": user}],
    }
    path.write_text(yaml.safe_dump(text))
    return path


def status(code: int, reason: str, message: str, **details: Any) -> dict[str, Any]:
    """A metav1.Status."""
    return {
        "kind": "Status",
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": message,
    } | ({"details": details} if details else {})


def says(body: Any, code: int = 200, **headers: str) -> Handler:
    """Answer with a JSON body."""

    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(
            body=compact(body), status=code, headers=headers, content_type="application/json"
        )

    return answer


def hangs_up(handler: Handler) -> Handler:
    """Answer, and close the connection without having said so."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = await handler(request)
        await response.prepare(request)
        await response.write_eof()
        assert request.transport is not None
        request.transport.close()
        return response

    return answer


def streams(*parts: dict[str, Any] | bytes, hold: bool = False, cut: bool = False) -> Handler:
    """Answer a watch: objects become lines, bytes are sent as they are; then end, `hold` it open,
    or `cut` it off.
    """

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for part in parts:
            await response.write(
                part if isinstance(part, bytes) else json.dumps(part).encode() + b"\n"
            )
        if hold:
            await asyncio.sleep(3600)
        if cut and request.transport is not None:
            request.transport.abort()
        return response

    return answer


def compact(body: Any) -> bytes:
    """JSON as API servers write it: without a space."""
    return json.dumps(body, separators=(",", ":")).encode()


def page(*items: dict[str, Any], rv: str = "10", token: str = "") -> dict[str, Any]:
    """A page of a list."""
    return {"metadata": {"resourceVersion": rv, "continue": token}, "items": list(items)}


def pod(
    name: str = "p", *, rv: str = "11", node: str = "", cpu: Any = "1", **more: Any
) -> dict[str, Any]:
    """A pod as the API server writes it; `more` may hold `labels`, `annotations`, `spec` and
    `status` entries.
    """
    body: dict[str, Any] = {
        "metadata": {
            "name": name,
            "namespace": "ns",
            "uid": f"uid-{name}",
            "resourceVersion": rv,
            "creationTimestamp": "2026-01-01T00:00:05Z",
            "labels": more.get("labels"),
            "annotations": more.get("annotations"),
        },
        "spec": {
            "schedulerName": "gangsched",
            "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}],
        },
        "status": {"phase": "Pending"},
    }
    if node:
        body["spec"]["nodeName"] = node
    body["spec"].update(more.get("spec", {}))
    body["status"].update(more.get("status", {}))
    return body


def node(name: str, *, cpu: Any = "8", rv: str = "11", **more: Any) -> dict[str, Any]:
    """A node as the API server writes it."""
    return {
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "resourceVersion": rv,
            "labels": more.get("labels"),
        },
        "spec": more.get("spec", {}),
        "status": {"allocatable": {"cpu": cpu}} if cpu is not None else {},
    }


def line(kind: str, body: dict[str, Any]) -> dict[str, Any]:
    """A watch line."""
    return {"type": kind, "object": body}


def bookmark(rv: str) -> dict[str, Any]:
    """A BOOKMARK line of a pod watch, with null containers."""
    return line(
        "BOOKMARK",
        {"metadata": {"resourceVersion": rv}, "spec": {"containers": None}, "status": {}},
    )
