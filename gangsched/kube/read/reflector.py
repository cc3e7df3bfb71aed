"""The reflector: LIST, then WATCH, indefinitely; the store receives every page and line in order,
as in client-go.

Invariant: a new list replaces everything. A stream that ends is resumed from the last
resourceVersion, at once for the first few times, then at most once a second. Every fault is retried
with back-off, at most once a second. Work on the event loop is split into slices of a few
milliseconds. The `store` reads the objects; the caller decides by `synced` whether enough was read.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Generic, Protocol
from urllib.parse import quote

from gangsched.kube.http.backoff import Backoff, RequestPace
from gangsched.kube.http.faults import (
    FORBIDDEN,
    GONE,
    NOT_FOUND,
    UNAUTHORIZED,
    ApiFault,
    Fault,
    Malformed,
    Silent,
)
from gangsched.kube.ports import Runtime
from gangsched.kube.read.resources import T, W
from gangsched.kube.read.store import Store, WatchError, continue_token
from gangsched.kube.trouble import Trouble
from gangsched.model.counter import counter

PAGE_LIMIT = 500
# Binds and lease renewals run on the same loop; 5 ms delay them less than a request takes.
SLICE_S = 0.005
# A missing permission is repaired by hand, if at all.
DENIED_PAUSE_S = 10.0
NOT_SERVED_PAUSE_S = 60.0
LIVELY_S = 1.0
TRY_AT_MOST_EVERY_S = 1.0
RESUMES_AT_ONCE = 10
"""An API server under load ends a watch that it cannot serve fast enough, a few times a second;
nothing is scheduled until that is resumed. A further one may be resumed at once each second."""
WATCH_S = 22
SPREAD_S = 4
"""The server ends a watch after so long, and up to `SPREAD_S` later, so that watches do not all end
together. It often sends a bookmark before; whether it does or not, a watch that is alive shows it
by its end (decision 0036).
"""
SILENCE_S = 30.0
"""A watch that has not even ended by then hangs on a dead connection. No idle connection is kept
for as long (aiohttp: 15 s), so the next watch has a new one, or one that has answered since."""
REFUSED_WATCHES_BEFORE_RELIST = 5
BAD_REQUEST = 400


class Reads(Protocol):
    """The part of the client that a reflector needs."""

    async def request(self, method: str, path: str, *, timeout_s: float) -> bytes:
        """Send one request and return the body of the answer."""

    def chunks(self, path: str, *, silence_s: float) -> AsyncIterator[bytes]:
        """Stream an answer's body."""


class LineSplitter:
    """Splits a byte stream into lines of any length. An unfinished line is kept until it is
    complete, and dropped with the stream.
    """

    def __init__(self) -> None:
        self._tail: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """Lines that `chunk` completes, without their newline."""
        if b"\n" not in chunk:
            self._tail.append(chunk)
            return []

        # One split per chunk: finding lines one by one would move the rest of the buffer each time.
        lines = chunk.split(b"\n")
        if self._tail:
            lines[0] = b"".join((*self._tail, lines[0]))

        self._tail = [lines.pop()]
        return lines


@dataclass(slots=True)
class ReflectorCounts:
    """Counters for metrics."""

    lists: int = counter(
        "full lists of a resource; expected once per start and once per expired resourceVersion"
    )
    watches: int = counter("watches opened; each lives for about 25 seconds")
    silences: int = counter("watches closed because no event and no bookmark came")
    faults: int = counter("lists and watches that failed")


class Reflector(Generic[W, T]):
    """Keeps one store up to date with the API server. `run` never returns.

    `synced` is set once the first list is complete, or an optional resource was refused. `heard_s`
    is the monotonic second of the last sign of a live watch (a list, an event, a bookmark); None
    before the first list, and while an optional resource is refused.
    """

    def __init__(
        self,
        client: Reads,
        store: Store[W, T],
        *,
        runtime: Runtime,
        silence_s: float = SILENCE_S,
        refused: Callable[..., None] | None = None,
    ) -> None:
        """`silence_s` must exceed `WATCH_S` and its spread, which bound one watch.

        `refused` makes the resource optional; it is called whenever a list is `forbidden` or not
        served.
        """
        self.synced = asyncio.Event()
        self.counts = ReflectorCounts()
        self.heard_s: float | None = None
        self._client = client
        self._store: Store[W, T] = store
        selector = store.resource.label_selector
        self._selection = [f"labelSelector={quote(selector, safe='')}"] if selector else []
        self._warn = runtime.warn
        self._silence_s = silence_s
        self._now = runtime.now
        self._sleep = runtime.sleep
        self._rng = runtime.rng
        self._refused = refused
        self._backoff = Backoff(0.1, 10.0, rng=self._rng)
        self._resumes = RequestPace(
            TRY_AT_MOST_EVERY_S,
            at_once=RESUMES_AT_ONCE,
            now=self._now,
            sleep=self._sleep,
        )
        self._page_limit = PAGE_LIMIT
        self._refused_watches = 0
        #: A watch since the last list has worked.
        self._has_watched = False
        self._trouble = Trouble(runtime.warn)
        self._tried_s = 0.0
        #: All objects are to be listed again; the watch that ends for this.
        self._must_list_again = False
        self._stream: asyncio.Timeout | None = None
        #: How often a version was not served: each time, the next one is tried.
        self._versions_missed = 0

    async def run(self) -> None:
        """Follow the API server until cancelled."""
        relist = True
        while True:
            self._tried_s = self._now()
            fault: Fault | None = None
            useful = False

            try:
                if relist:
                    await self._list()
                    relist = False

                useful = await self._watch_until_again()
                relist = self._must_list_again
            except Silent:
                self._fell_silent()
                useful = True
            except Fault as caught:
                fault = caught
                # Before it counts as not served: pods would start without what it says.
                if relist and self._tries_next_version(fault):
                    continue

                if (
                    relist
                    and isinstance(fault, ApiFault)
                    and fault.status in {FORBIDDEN, NOT_FOUND}
                ):
                    self._list_refused(forbidden=fault.status == FORBIDDEN)

                relist = relist or self._must_relist(fault)

            await self._pause(fault, useful=useful)

    def list_again(self) -> None:
        """List all objects again, because they are decoded otherwise now."""
        if self._stream is not None and not self._must_list_again:
            self._stream.reschedule(asyncio.get_running_loop().time())

        self._must_list_again = True

    async def _watch_until_again(self) -> bool:
        """Follow one stream to its end, or until all is to be listed again."""
        if self._must_list_again:
            return True

        try:
            # Without a time: `list_again` sets one, which has passed.
            async with asyncio.timeout(None) as self._stream:
                return await self._watch()
        except TimeoutError:
            if not self._must_list_again:
                raise

            return True
        finally:
            self._stream = None

    async def _list(self) -> None:
        """Read every page; the last one replaces the store's contents."""
        store = self._store
        self._must_list_again = False
        store.begin_list()
        page = await self._page("")

        while True:
            ahead = continue_token(page)
            # The continue token is read from the first bytes, so the next page is on its way while
            # this one is decoded.
            coming = asyncio.create_task(self._page(ahead)) if ahead else None

            try:
                await self._sleep(0)  # the server makes the next page while we decode this one
                token = store.add_page(page)
                if not token:
                    break

                page = await (coming or self._page(token))
            finally:
                if coming is not None:
                    coming.cancel()
                    await asyncio.gather(coming, return_exceptions=True)

        self._page_limit = PAGE_LIMIT
        self.counts.lists += 1
        self._has_watched = False
        self.heard_s = self._now()
        self._recovered()
        self.synced.set()

    async def _page(self, token: str) -> bytes:
        """The page that a continue token stands for, the first one for "". Raises Fault."""
        query = [f"limit={self._page_limit}"] if self._page_limit else []
        query += [f"continue={token}"] if token else []
        query += self._selection
        path = f"{self._path}?{'&'.join(query)}".rstrip("?")

        try:
            return await self._client.request("GET", path, timeout_s=60.0)
        except ApiFault as fault:
            # The token outlived the server's memory: this list is too slow in pages, take it in
            # one.
            if fault.status == GONE and token:
                # 0 is no limit in the API.
                self._page_limit = 0

            raise

    @property
    def _path(self) -> str:
        """Where the resource is read, in the version that is tried now."""
        resource = self._store.resource
        versions = resource.versions
        if len(versions) < 2:
            return resource.path

        version = versions[self._versions_missed % len(versions)]
        return resource.path.replace(f"/{versions[0]}/", f"/{version}/", 1)

    def _tries_next_version(self, fault: Fault) -> bool:
        """Whether the list is tried at once in another version, because this one is not served."""
        if not isinstance(fault, ApiFault) or fault.status != NOT_FOUND:
            return False

        versions = self._store.resource.versions
        if len(versions) < 2:
            return False

        self._versions_missed += 1
        return self._versions_missed % len(versions) > 0

    def _list_refused(self, *, forbidden: bool) -> None:
        """Without an optional resource the daemon goes on."""
        self._has_watched = False
        if self._refused is not None:
            self._refused(forbidden=forbidden)
            self.heard_s = None
            self.synced.set()

    async def _watch(self) -> bool:
        """Follow one stream to its end; false if it ended at once without any line."""
        store = self._store
        # Whole seconds: timeoutSeconds is an integer.
        lasts_s = WATCH_S + self._rng.randrange(SPREAD_S)
        query = [
            f"resourceVersion={store.resource_version}",
            f"timeoutSeconds={lasts_s}",
            *self._selection,
        ]
        path = f"{self._path}?watch=true&allowWatchBookmarks=true&{'&'.join(query)}"
        self.counts.watches += 1
        began_s = self._now()
        splitter = LineSplitter()
        useful = False

        try:
            async with aclosing(self._client.chunks(path, silence_s=self._silence_s)) as chunks:  # type: ignore[type-var]
                async for chunk in chunks:
                    lines = splitter.feed(chunk)
                    if lines:
                        await self._take(lines)
                        self.heard_s = self._now()
                        useful = True
                        self._recovered()

            # it ended when we asked for it: by whoever has heard us
            if self._now() - began_s > lasts_s - LIVELY_S:
                self.heard_s = self._now()
        finally:
            # A list alone does not reset the backoff: a server that refuses every watch would be
            # listed at full speed.
            useful = useful or self._now() - began_s > LIVELY_S
            if useful:
                self._has_watched = True
                self._refused_watches = 0
                self._backoff.reset()

        return useful

    async def _take(self, lines: list[bytes]) -> None:
        """Pass lines to the store; other tasks run every few milliseconds."""
        slice_ends_s = self._now() + SLICE_S
        for line in lines:
            if not line:
                continue

            self._store.take_line(line)
            if self._now() > slice_ends_s:
                await self._sleep(0)
                slice_ends_s = self._now() + SLICE_S

    def _must_relist(self, fault: Fault) -> bool:
        """Whether the stream cannot be resumed after `fault`."""
        if isinstance(fault, WatchError | Malformed):
            return True
        if not isinstance(fault, ApiFault):
            return False
        if fault.status in {GONE, BAD_REQUEST} or self._is_taken_away(fault):
            return True

        # A server restored from a backup refuses our resourceVersion as too new, again and again.
        self._refused_watches += 1
        return self._refused_watches >= REFUSED_WATCHES_BEFORE_RELIST

    def _is_taken_away(self, fault: Fault) -> bool:
        """Whether an optional resource that could be watched may not be any more: a list tells, and
        until then it would count as read. Without the permission to watch, only lists work.
        """
        is_denied = isinstance(fault, ApiFault) and fault.status == FORBIDDEN
        return is_denied and self._refused is not None and self._has_watched

    async def _pause(self, fault: Fault | None, *, useful: bool) -> None:
        """Wait before the next try, and warn once per outage."""
        if useful and fault is None:
            await self._resumes.turn("watch")
            return

        # A stream that brought something is resumed without a delay, beyond the pace of one try a
        # second.
        delay_s = 0.0 if useful else self._backoff.next_s(fault)
        if fault is not None:
            self.counts.faults += 1
            status = fault.status if isinstance(fault, ApiFault) else 0
            if status == FORBIDDEN and not self._is_taken_away(fault):
                delay_s = max(delay_s, DENIED_PAUSE_S)
            delay_s = max(delay_s, NOT_SERVED_PAUSE_S) if self._not_served(fault) else delay_s
            self._complain(fault, denied=status in {UNAUTHORIZED, FORBIDDEN})

        delay_s = max(delay_s, self._tried_s + TRY_AT_MOST_EVERY_S - self._now())
        if delay_s > 0:
            await self._sleep(delay_s)

    def _fell_silent(self) -> None:
        self.counts.silences += 1
        name = self._store.resource.name
        silence_s = self._silence_s
        self._warn(
            f"The watch of {name} was silent for {silence_s:g} s; it is opened again where it"
            " stopped."
        )

    def _not_served(self, fault: Fault) -> bool:
        """Whether the API server does not know a kind that we can do without."""
        return (
            self._refused is not None and isinstance(fault, ApiFault) and fault.status == NOT_FOUND
        )

    def _complain(self, fault: Fault, *, denied: bool) -> None:
        """Warn when an outage begins; an expected fault (410) is not reported."""
        if self._not_served(fault) or (isinstance(fault, ApiFault) and fault.status == GONE):
            return

        resource = self._store.resource
        fix = "trying again"
        if denied:
            fix = f"apply manifests/{resource.manifest} or renew the credentials"

        meanwhile = f"; {resource.meanwhile}" if denied and resource.meanwhile else ""

        sentence = f"Cannot follow {resource.name}: {str(fault).rstrip('.')}; {fix}{meanwhile}."
        self._trouble.begins(sentence)

    def _recovered(self) -> None:
        self._trouble.is_over(f"Following {self._store.resource.name} again.")
