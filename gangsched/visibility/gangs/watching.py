"""Watches: changes of gangs as a stream of events.

Invariant: while there are watches, one task checks all gangs once a second, however many watches
there are. A client that falls behind the stored changes gets 410 and must list again. A client that
reads nothing for half a minute is disconnected. The user's permission is checked again every
minute.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import msgspec
from aiohttp import web

from gangsched.visibility.gangs.store import Entry, GangStore
from gangsched.visibility.gangs.tables import TABLE_VERSION, Form, metadata_of, row, table
from gangsched.visibility.pace import Pace
from gangsched.visibility.ports import API_VERSION, Clocks, Json
from gangsched.visibility.requests import ListOptions
from gangsched.visibility.statuses import RequestRefused

EVERY_S = 1.0
EVERY_MINUTE_S = 60.0
"""How often a bookmark is due, and whether the user may still watch is asked again."""
SEND_WITHIN_S = 30.0
INITIAL_END = "k8s.io/initial-events-end"


class Watches:
    """`serve` streams one watch; `run` checks the gangs for changes while there are watches."""

    def __init__(self, store: GangStore, pace: Pace, clocks: Clocks) -> None:
        self._store = store
        self._pace = pace
        self._clocks = clocks
        self._open = 0
        self._wanted = asyncio.Event()

    async def run(self) -> None:
        """Check for changes while there are watches; never returns."""
        while True:
            await self._wanted.wait()
            async with self._pace.work() as step:
                await self._store.observe(step)

            await asyncio.sleep(EVERY_S)

    async def serve(
        self,
        request: web.Request,
        options: ListOptions,
        form: Form,
        include: str,
        still_may: Callable[[], Awaitable[None]],
    ) -> web.StreamResponse:
        """Stream changes until the time-out, or until `still_may` raises. Raises RequestRefused
        (410) before anything is sent.
        """
        # As the watch cache: version 0 starts with the current objects.
        is_from_now = options.version == 0 or options.initial_events
        if not is_from_now and not self._store.knows(options.version):
            raise RequestRefused(
                410,
                f"too old resource version: {options.version} (this replica does not know it)",
            )

        async with self._place():
            response = web.StreamResponse(headers={"Content-Type": "application/json"})
            await response.prepare(request)
            shown = _Shown(form, include, self._clocks.wall_s)

            with suppress(TimeoutError, ConnectionError):
                async with asyncio.timeout(options.timeout_s):
                    try:
                        await self._stream(
                            response,
                            options,
                            shown,
                            still_may,
                            is_from_now=is_from_now,
                        )
                    except RequestRefused as refused:
                        await self.send(response, shown.refused(refused))

            with suppress(TimeoutError, ConnectionError):
                async with asyncio.timeout(SEND_WITHIN_S):
                    await response.write_eof()

            return response

    async def _stream(
        self,
        response: web.StreamResponse,
        options: ListOptions,
        shown: _Shown,
        still_may: Callable[[], Awaitable[None]],
        *,
        is_from_now: bool,
    ) -> None:
        store = self._store
        seen = options.version

        if is_from_now:
            async with store.reading, self._pace.work() as step:
                keys = await store.keys(options.namespace, step)
                found = [
                    entry
                    async for entry in store.entries(keys, step)
                    if options.name in {"", entry.key[1]}
                ]
                seen = store.version

            for entry in found:
                await self.send(response, shown.event("ADDED", entry))

            if options.initial_events and options.bookmarks:
                await self.send(response, shown.bookmark(seen, {INITIAL_END: "true"}))

        minute_s = self._clocks.now_s() + EVERY_MINUTE_S
        while True:
            is_due = self._clocks.now_s() >= minute_s
            if is_due:
                minute_s = self._clocks.now_s() + EVERY_MINUTE_S
                await still_may()

            now = store.version
            changes = store.changes_after(seen, options.namespace)
            if changes is None:
                raise RequestRefused(410, f"too old resource version: {seen}")

            seen = now  # also past the changes of others, or this would never wait
            for change in changes:
                if options.name in {"", change.entry.key[1]}:
                    await self.send(response, shown.event(change.kind, change.entry))

            if options.bookmarks and is_due:
                await self.send(response, shown.bookmark(seen, {}))

            await self._next_change(seen)

    async def _next_change(self, seen: int) -> None:
        """Wait until there is something after a version, or a minute is over."""
        store = self._store
        with suppress(TimeoutError):
            # A bookmark and the check of the permission are due at least once a minute.
            async with asyncio.timeout(EVERY_MINUTE_S), store.changed:
                await store.changed.wait_for(lambda: store.version > seen)

    async def send(self, response: web.StreamResponse, line: bytes) -> None:
        """Send one line; a client that does not read is disconnected."""
        try:
            async with asyncio.timeout(SEND_WITHIN_S):
                await response.write(line)
        except TimeoutError:
            # As if the client had gone: the response is abandoned without another write.
            raise ConnectionResetError("the reader takes nothing") from None

    @asynccontextmanager
    async def _place(self) -> AsyncIterator[None]:
        self._open += 1
        self._wanted.set()

        try:
            yield
        finally:
            self._open -= 1
            if not self._open:
                self._wanted.clear()


class _Shown:
    """Events in the form that was asked for; only the first table of a watch has its columns."""

    def __init__(self, form: Form, include: str, wall_s: Callable[[], float]) -> None:
        self._form = form
        self._include = include
        self._wall_s = wall_s
        self._has_columns = False

    def event(self, kind: str, entry: Entry) -> bytes:
        """The event for a change of one gang."""
        return self._line(kind, self._object(entry))

    def bookmark(self, version: int, annotations: Json) -> bytes:
        """The bookmark event at a version."""
        meta = {
            "resourceVersion": str(version),
            **({"annotations": annotations} if annotations else {}),
        }
        if self._form is Form.TABLE:
            body = msgspec.json.encode(
                {"kind": "PartialObjectMetadata", "apiVersion": TABLE_VERSION, "metadata": meta}
            )
            rows = [msgspec.json.encode({"cells": [], "object": msgspec.Raw(body)})]
            return self._line(
                "BOOKMARK",
                table(rows, {"resourceVersion": str(version)}, with_columns=False),
            )

        kind = (
            ("PartialObjectMetadata", TABLE_VERSION)
            if self._form is Form.METADATA
            else ("Gang", API_VERSION)
        )
        return self._line(
            "BOOKMARK",
            msgspec.json.encode({"kind": kind[0], "apiVersion": kind[1], "metadata": meta}),
        )

    def refused(self, refused: RequestRefused) -> bytes:
        """The last event of a watch that fell behind, or whose user lost the permission."""
        return self._line("ERROR", msgspec.json.encode(refused.body()))

    def _object(self, entry: Entry) -> bytes:
        if self._form is Form.METADATA:
            return metadata_of(entry)
        if self._form is Form.WHOLE:
            return entry.body

        rows = [row(entry, self._include, self._wall_s())]
        made = table(
            rows,
            {"resourceVersion": str(entry.version)},
            with_columns=not self._has_columns,
        )
        self._has_columns = True

        return made

    @staticmethod
    def _line(kind: str, body: bytes) -> bytes:
        return b'{"type":"%s","object":%s}\n' % (kind.encode(), body)
