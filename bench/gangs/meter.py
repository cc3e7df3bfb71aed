"""The meter: when each pod was created and bound, and to which node, as seen by a client of the API
server.

Invariant: a pod is bound when a watch of bound pods shows it, created when its creation was
answered; all times are monotonic seconds. The watch resumes where the server closed it; if it
cannot (410), the measurement is void.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass

import aiohttp
import msgspec

SERVER_CLOSES_AFTER_S = 280
READ_BUFFER_BYTES = 2**21


class _Meta(msgspec.Struct, rename="camel"):
    name: str = ""
    resource_version: str = ""


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str = ""


class _Pod(msgspec.Struct):
    metadata: _Meta
    spec: _Spec = msgspec.field(default_factory=_Spec)


class _Line(msgspec.Struct):
    type: str
    object: _Pod


_line = msgspec.json.Decoder(_Line)


class SpoiltError(Exception):
    """The watch lost its position: times of this measurement would be wrong."""


@dataclass(slots=True)
class _Wait:
    left: set[str]
    done: asyncio.Event


class Meter:
    """Follows the bound pods of one namespace; an async context manager."""

    def __init__(self, url: str, context: ssl.SSLContext, namespace: str) -> None:
        # Only bound pods: half the lines, and nothing to look up.
        self._path = f"{url}/api/v1/namespaces/{namespace}/pods?fieldSelector=spec.nodeName!%3D"
        self._context = context
        self._version = ""
        self._waits: dict[str, _Wait] = {}
        self._task: asyncio.Task[None] | None = None
        self.created_s: dict[str, float] = {}
        self.bound_s: dict[str, float] = {}
        self.node: dict[str, str] = {}
        self.resumed = -1

    async def __aenter__(self) -> Meter:
        self._session = aiohttp.ClientSession(
            read_bufsize=READ_BUFFER_BYTES, headers={"Accept-Encoding": "identity"}
        )
        async with self._session.get(f"{self._path}&limit=1", ssl=self._context) as answer:
            self._version = (await answer.json())["metadata"]["resourceVersion"]
        self._task = asyncio.create_task(self._follow())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        await self._session.close()

    async def bound(self, names: Collection[str], *, within_s: float) -> bool:
        """Wait until all of these pods are bound; returns whether they are. At most one waiter per
        pod.
        """
        assert self._task is not None
        wait = _Wait({name for name in names if name not in self.bound_s}, asyncio.Event())
        self._waits.update(dict.fromkeys(wait.left, wait))
        if not wait.left:
            return True
        done = asyncio.create_task(wait.done.wait())
        await asyncio.wait(
            (done, self._task), timeout=within_s, return_when=asyncio.FIRST_COMPLETED
        )
        done.cancel()
        if self._task.done():
            self._task.result()
        return not wait.left

    async def _follow(self) -> None:
        while True:
            self.resumed += 1
            url = f"{self._path}&watch=true&allowWatchBookmarks=true"
            url += f"&timeoutSeconds={SERVER_CLOSES_AFTER_S}"
            with suppress(aiohttp.ClientPayloadError):
                timeout = aiohttp.ClientTimeout(total=None)
                async with self._session.get(
                    f"{url}&resourceVersion={self._version}", ssl=self._context, timeout=timeout
                ) as answer:
                    tail = b""
                    async for chunk in answer.content.iter_any():
                        *lines, tail = (tail + chunk).split(b"\n")
                        self._take(lines)

    def _take(self, lines: list[bytes]) -> None:
        seen_s = time.monotonic()
        for raw in lines:
            line = _line.decode(raw)
            if line.type == "ERROR":
                raise SpoiltError(raw[:300].decode(errors="replace"))
            self._version = line.object.metadata.resource_version
            if line.type == "ADDED":
                name = line.object.metadata.name
                self.bound_s[name] = seen_s
                self.node[name] = line.object.spec.node_name
                wait = self._waits.pop(name, None)
                if wait is not None:
                    wait.left.discard(name)
                    if not wait.left:
                        wait.done.set()
