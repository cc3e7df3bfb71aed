"""A fake API server whose lists change and can be watched, for the live page."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from aiohttp import web

from tests.fake_api import FakeApi, Json, kubeconfig, listed, status
from tests.server_thread import ServerThread

STEP_S = 0.01


class FakeWatches(FakeApi):
    """`change` adds, modifies or deletes an object of the lists at some paths; watches are told.

    While `is_away` connections are cut, and while `is_silent` nobody gets an answer. With a `token`
    whoever has another one gets 401. `garbage` is what lists and watches of a path get instead.
    """

    def __init__(self, answers: dict[str, Json]) -> None:
        super().__init__(answers)
        self.version = 1
        self.log: list[tuple[int, str, bytes]] = []
        self.oldest = 0
        self.is_away = False
        self.is_silent = False
        self.token = ""
        self.garbage: dict[str, bytes] = {}
        self.drops = 0
        self.watching: list[str] = []
        self.queue_asked: list[str] = []
        self.queue: Json = {"kind": "GangQueue", "total": 0, "offset": 0, "items": []}

    def change(self, kind: str, paths: tuple[str, ...], item: Json) -> None:
        """Make a change of an object, in a list at each path."""
        self.version += 1
        item = copy.deepcopy(item)
        item["metadata"]["resourceVersion"] = str(self.version)
        key = (item["metadata"].get("namespace"), item["metadata"]["name"])
        line = json.dumps({"type": kind, "object": item}).encode() + b"\n"
        for path in paths:
            others = [
                other
                for other in self.answers[path]["items"]
                if (other["metadata"].get("namespace"), other["metadata"]["name"]) != key
            ]
            if kind != "DELETED":
                others.append(item)
            self.answers[path] = listed(*others)
            if "/namespaces/" in path:
                one = f"{path}/{item['metadata']['name']}"
                self.answers.pop(one, None)
                if kind != "DELETED":
                    self.answers[one] = item
            self.log.append((self.version, path, line))

    def tell(self, kind: str, path: str, item: Json) -> None:
        """Tell watches of a change without making it: a list of 40,000 takes a while to change."""
        self.version += 1
        item["metadata"]["resourceVersion"] = str(self.version)
        line = json.dumps({"type": kind, "object": item}).encode() + b"\n"
        self.log.append((self.version, path, line))

    def forget(self) -> None:
        """Watches from before now get 410."""
        self.oldest = self.version

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer one request."""
        while self.is_silent:  # noqa: ASYNC110  (tests set it from another thread)
            await asyncio.sleep(STEP_S)
        if self.is_away:
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        if self.token and request.headers.get("Authorization") != f"Bearer {self.token}":
            return web.json_response(status(401, "Unauthorized", "Unauthorized"), status=401)
        path = unquote(request.path)
        if request.query.get("view") == "queue":
            self.queue_asked.append(request.query["offset"])
            return web.json_response(self.queue)
        if path in self.garbage:
            return web.Response(body=self.garbage[path], content_type="application/json")
        answer = self.answers.get(path)
        if answer is not None and answer.get("kind") == "List":
            answer["metadata"]["resourceVersion"] = str(self.version)
            if "watch" in request.query:
                return await self._watch(request, path)
            if request.query.get("limit") == "1":
                # Asked only whether it may be read: 40,000 pods would hold up everybody else.
                self.asked.append(f"{request.method} {request.path_qs}")
                return web.json_response({**answer, "items": answer["items"][:1]})
        return await super().handle(request)

    async def _watch(self, request: web.Request, path: str) -> web.StreamResponse:
        since = int(request.query["resourceVersion"])
        self.asked.append(f"WATCH {path}")
        if since < self.oldest:
            status = {"kind": "Status", "code": 410, "message": "too old"}
            return web.json_response(status, status=410)
        response = web.StreamResponse()
        await response.prepare(request)
        self.watching.append(path)
        place, drops = 0, self.drops
        clock = asyncio.get_running_loop().time
        until_s = clock() + float(request.query["timeoutSeconds"])
        try:
            while not self.is_away and drops == self.drops:
                if clock() > until_s:
                    return response

                while place < len(self.log) and not self.is_silent:
                    version, where, line = self.log[place]
                    place += 1
                    if where == path and version > since:
                        await response.write(line)
                await asyncio.sleep(STEP_S)
        finally:
            self.watching.remove(path)
        if request.transport is not None:
            request.transport.abort()
        return response


@contextmanager
def watched(tmp_path: Path, answers: dict[str, Any]) -> Iterator[tuple[FakeWatches, Path]]:
    """The fake at work, and a kubeconfig for it whose namespace is "team"."""
    fake = FakeWatches(answers)
    server = ServerThread(fake.handle)
    server.start()
    try:
        yield fake, kubeconfig(tmp_path / "kubeconfig", server.url, namespace="team")
    finally:
        fake.drops += 1
        server.stop()
