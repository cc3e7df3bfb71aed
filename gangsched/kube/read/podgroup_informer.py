"""The PodGroup informer, for every API group, whether it is served or not.

Invariant: a plain watch (`_watch`) and kopf (`kopf_watch`) both deliver events, a periodic LIST
corrects what both missed, and `podgroup_store` keeps the newest version of each object. kopf takes
about ten times as long per event and falls behind in bursts, so usually the plain watch delivers an
event first (decision 0057). Discovery for a missing API group is repeated every few seconds; if an
API group is no longer served, its PodGroups are removed. `api.podgroup` interprets PodGroups and
`status` writes them.
"""

from __future__ import annotations

import asyncio
import importlib
import signal
from collections.abc import Callable, Coroutine, Mapping
from contextlib import aclosing, suppress
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import Any, Protocol, cast

import msgspec

from gangsched.api.dialects import DIALECTS
from gangsched.kube.background import in_background
from gangsched.kube.http.backoff import Backoff, RequestPace
from gangsched.kube.http.client import ApiClient
from gangsched.kube.http.faults import FORBIDDEN, NOT_FOUND, ApiFault, Fault, Malformed, Silent
from gangsched.kube.http.permissions import Permission, may_not
from gangsched.kube.ports import Runtime, Sink
from gangsched.kube.read.podgroup_store import PodGroupStore
from gangsched.kube.read.reflector import RESUMES_AT_ONCE, SILENCE_S, SLICE_S, WATCH_S, LineSplitter
from gangsched.kube.read.wire import Line
from gangsched.kube.trouble import Trouble
from gangsched.kube.waiting import wait_for_event
from gangsched.model.counter import counter
from gangsched.model.objects import PodGroup
from gangsched.model.protocol import Message

# client-go's default page size.
PAGE_LIMIT = 500
SLICE = 50
SWEEP_EVERY_S = 60.0
LISTEN_WITHIN_S = 3.0
"""kopf takes 200 ms of CPU to import and start: it waits for the binds of a backlog, but not for
longer than that.
"""
CHANGES = frozenset({"ADDED", "MODIFIED", "DELETED"})
FIRST_SWEEP_AFTER_S = 3.0
"""kopf lists on its own after we did; what was deleted in between only a list after that
can tell.
"""
STOP_WITHIN_S = 5.0
TRY_AT_MOST_EVERY_S = 1.0
UNFOLLOWED_AFTER_S = 10.0
"""A fault that lasts for less is an interruption, which the next list makes up for."""
GONE_AFTER_S = 5.0
"""PodGroups are dropped once their API group was absent for so long: a server that just started may
say 404.
"""
LOOK_AGAIN_AFTER_S = 1.0


_line = msgspec.json.Decoder(Line[dict[str, Any]])


def release_signals() -> None:
    """The `restore_signals` for programs without signal handlers.

    kopf installs no handlers if the event loop does not support them (outside the main thread, or
    on some systems).
    """
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        with suppress(NotImplementedError, RuntimeError, ValueError):
            loop.remove_signal_handler(number)


Handler = Callable[[str | None, Mapping[str, Any]], None]
"""Gets the type (None for an object listed at the start, ADDED, MODIFIED, DELETED) and
the object.
"""


class Follow(Protocol):
    """Source of events of one API version: `kopf_watch.follow`."""

    def __call__(
        self,
        client: ApiClient,
        api_group: str,
        version: str,
        on_event: Handler,
        /,
        *,
        pace: RequestPace,
        stop: asyncio.Event,
        restore_signals: Callable[[], None],
    ) -> Coroutine[Any, Any, None]:
        """Hand on every event until `stop` is set. Raises Fault."""


async def _kopf() -> Follow:
    module = await in_background(
        partial(importlib.import_module, "gangsched.kube.read.kopf_watch"),
        name="import of kopf",
    )
    return cast(Follow, module.follow)


@dataclass(slots=True)
class PodGroupCounts:
    """Counters for metrics."""

    starts: int = counter("starts of the PodGroup watch")
    sweeps: int = counter("full lists of PodGroups")
    events: int = counter("PodGroup events received")
    faults: int = counter("failures of the PodGroup watch")


@dataclass(slots=True)
class PodGroupInformer:
    """Watches the PodGroups of all API groups. `synced` is set once each was listed or found
    absent; `run` never returns.

    `restore_signals` reinstalls the program's signal handlers each time kopf has replaced them.
    `backlog_bound` is set once the pods that waited at the start are bound; None if there were
    none. `follow` can replace kopf, which is imported late.
    """

    client: ApiClient
    sink: Sink
    _: KW_ONLY
    runtime: Runtime
    api_groups: tuple[str, ...] = tuple(DIALECTS)
    restore_signals: Callable[[], None] = release_signals
    backlog_bound: asyncio.Event | None = None
    sweep_every_s: float = SWEEP_EVERY_S
    follow: Follow | None = None
    counts: PodGroupCounts = field(init=False, default_factory=PodGroupCounts)
    synced: asyncio.Event = field(init=False, default_factory=asyncio.Event)
    _followers: list[_ApiGroup] = field(init=False, default_factory=list)

    def known(self) -> list[Message]:
        """Messages about everything that was reported so far, for a new receiver."""
        return [message for follower in self._followers for message in follower.store.known()]

    @property
    def heard_s(self) -> float | None:
        """Monotonic time of the last response, of the API group whose last response is oldest; None
        before each has responded.
        """
        heard = [follower.heard_s for follower in self._followers]
        return min((heard_s for heard_s in heard if heard_s is not None), default=None)

    def is_live(self) -> bool:
        """Whether a watch or kopf delivers changes; otherwise only lists do."""
        return bool(self._followers) and all(
            api_group.is_live or api_group.is_watching for api_group in self._followers
        )

    def is_followed(self) -> bool:
        """False if an API group has been unreadable for UNFOLLOWED_AFTER_S, or since the start."""
        return all(api_group.store.live for api_group in self._followers)

    async def catch_up(self) -> None:
        """List the API groups that kopf does not watch yet. Raises Fault."""
        await asyncio.gather(
            *(follower.catch_up() for follower in self._followers if not follower.is_live)
        )

    async def run(self) -> None:
        """Follow until cancelled."""
        self._followers = followers = [_ApiGroup(self, api_group) for api_group in self.api_groups]
        async with asyncio.TaskGroup() as group:
            for follower in followers:
                group.create_task(follower.run(), name=f"podgroups of {follower.api_group}")

            for follower in followers:
                await follower.listed.wait()

            self.synced.set()


class _ApiGroup:
    """Follows one API group: look for it, list, listen, list now and then, and all over again."""

    def __init__(self, informer: PodGroupInformer, api_group: str) -> None:
        self.api_group = api_group
        self._dialect = DIALECTS[api_group]
        self.listed = asyncio.Event()
        self._listing = asyncio.Lock()
        self.is_live = False
        self.is_watching = False
        self.heard_s: float | None = None
        self._informer = informer
        self._client = informer.client
        self._counts = informer.counts
        self._runtime = runtime = informer.runtime
        self._now = runtime.now
        self._sleep = runtime.sleep
        self.store = PodGroupStore(api_group, informer.sink, runtime.warn)
        self._absent = Backoff(2.0, 8.0, rng=runtime.rng)
        self._backoff = Backoff(0.5, 30.0, rng=runtime.rng)
        self._pace = RequestPace(TRY_AT_MOST_EVERY_S, now=runtime.now, sleep=runtime.sleep)
        self._resumes = RequestPace(
            TRY_AT_MOST_EVERY_S,
            at_once=RESUMES_AT_ONCE,
            now=runtime.now,
            sleep=runtime.sleep,
        )
        self._trouble = Trouble(runtime.warn)
        self._was_served = False
        self._absent_since_s: float | None = None

        #: When changes were last received for certain; None: never since the start.
        self._live_s: float | None = None

    async def run(self) -> None:
        """Follow the API group until cancelled."""
        while True:
            began_s = self._now()
            try:
                version = await self._served_version()
                if version is not None:
                    self._absent_since_s = None
                    resource_version = await self._sweep(version)
                    self._absent.reset()
                    await self._listen(version, resource_version)
                    continue

                # An aggregated or freshly started API server answers 404 for a group that it will
                # serve in a second.
                if self._may_come_back():
                    await self._sleep(LOOK_AGAIN_AFTER_S)
                    continue

                self.store.replace_with_none()
                self._note_absence()
                self.heard_s = self._now()
                self.listed.set()
                self._now_live()  # there is nothing to hear
                delay_s = self._absent.next_s()
            except Fault as fault:
                # It worked for longer than an interval of lists, so this is a new outage.
                if self._now() - began_s > self._informer.sweep_every_s:
                    self._backoff.reset()

                self._absent_since_s = None
                self._counts.faults += 1
                self._complain(fault)
                self._note_outage(fault)
                delay_s = self._backoff.next_s(fault)

            await self._sleep(delay_s)

    def _may_come_back(self) -> bool:
        """Whether its PodGroups are known, and no look found it for a few seconds only."""
        if self._absent_since_s is None:
            self._absent_since_s = self._now()

        return len(self.store) > 0 and self._now() - self._absent_since_s < GONE_AFTER_S

    async def catch_up(self) -> None:
        """List once more, if the API group is served."""
        version = await self._served_version()
        if version is not None:
            await self._sweep(version)

    def _note_absence(self) -> None:
        """Warn if the API group was served before: without its definition its gangs are gone."""
        if self._was_served:
            self._was_served = False
            self._trouble.begins(
                f"The API server no longer serves PodGroups of {self.api_group}: apply crds/ again."
            )

    async def _served_version(self) -> str | None:
        """The version that has its kind, the server's preferred one first; None when there
        is none.
        """
        try:
            group = await self._client.request_json("GET", f"/apis/{self._dialect.api_group}")
            # The kind need not be in every version, for example while a definition is being
            # upgraded.
            for version in [entry["version"] for entry in group.get("versions", ())]:
                kinds = await self._client.request_json(
                    "GET",
                    f"/apis/{self._dialect.api_group}/{version}",
                )
                if any(
                    kind.get("name") == self._dialect.plural for kind in kinds.get("resources", ())
                ):
                    return str(version)
        except ApiFault as fault:
            if fault.status != NOT_FOUND:
                raise

        return None

    async def _sweep(self, version: str) -> str:
        """List everything and replace what is known; the list's resourceVersion.

        An optional one that we may not read counts as absent. Raises Fault.
        """
        try:
            # One at a time: of two lists the older one could be applied last, and bring back what
            # was deleted between.
            async with self._listing:
                pod_groups, resource_version = await self._list(version)
                self.store.replace(pod_groups, resource_version)
        except ApiFault as fault:
            if not self._is_forbidden(fault):
                raise

            # Its gangs are told that they are unsupported, instead of waiting for objects that
            # never come.
            self.store.replace_with_none(forbidden=True)
            self.heard_s = None
            self.listed.set()
            raise

        self._counts.sweeps += 1
        self.heard_s = self._now()
        self.listed.set()

        self._trouble.is_over(f"Following PodGroups of {self.api_group} again.")
        self._was_served = True
        return resource_version

    async def _list(self, version: str) -> tuple[list[PodGroup], str]:
        pod_groups: list[PodGroup] = []
        token = ""

        while True:
            path = f"/apis/{self._dialect.api_group}/{version}/{self._dialect.plural}"
            path += f"?limit={PAGE_LIMIT}"
            page = await self._client.request_json(
                "GET",
                f"{path}&continue={token}" if token else path,
            )
            for number, body in enumerate(page.get("items") or ()):
                # Binds and other tasks run between the slices of a page.
                if number % SLICE == 0:
                    await self._sleep(0)

                pod_group = self.store.read(body, version)
                if pod_group is not None:
                    pod_groups.append(pod_group)

            metadata = page.get("metadata", {})
            token = metadata.get("continue") or ""
            if not token:
                return pod_groups, str(metadata.get("resourceVersion", ""))

    async def _listen(self, version: str, resource_version: str) -> None:
        """Follow what happened since a list: by a plain watch at once, by kopf as well later.

        Ends with the fault that ended kopf.
        """
        watching = asyncio.create_task(
            self._watch(version, resource_version),
            name=f"watch of {self.api_group}",
        )
        try:
            informer = self._informer
            if informer.backlog_bound is not None:
                await wait_for_event(informer.backlog_bound, LISTEN_WITHIN_S, sleep=self._sleep)

            await self._run_kopf(version)
        finally:
            watching.cancel()
            # The old watch must be gone before the next one starts, or two would report changes.
            await asyncio.wait((watching,))

    async def _watch(self, version: str, resource_version: str) -> None:
        """Watch what happened since a list, until cancelled: resume a stream that ended, list after
        one that broke.
        """
        backoff = Backoff(0.5, 30.0, rng=self._runtime.rng)
        pace = self._pace

        while True:
            await pace.turn("plain watch")  # kopf's watch has turns of its own
            try:
                if not resource_version:
                    resource_version = await self._sweep(version)

                before = resource_version
                pace = self._pace

                resource_version = await self._stream(version, resource_version)
                # a busy server ends streams that it cannot serve fast enough
                if resource_version != before:
                    pace = self._resumes
                    backoff.reset()
            except Silent:
                continue  # the connection is dead; the stream is resumed on another one
            except (Fault, msgspec.DecodeError, RecursionError) as error:
                resource_version = ""  # changes may be lost
                await self._sleep(backoff.next_s(error if isinstance(error, Fault) else None))

    async def _stream(self, version: str, resource_version: str) -> str:
        """Follow one stream to its end; the resourceVersion to resume from. Raises Fault or
        DecodeError.
        """
        query = f"watch=true&allowWatchBookmarks=true&resourceVersion={resource_version}"
        query += f"&timeoutSeconds={WATCH_S}"
        path = f"/apis/{self._dialect.api_group}/{version}/{self._dialect.plural}?{query}"
        splitter = LineSplitter()
        self.is_watching = True

        try:
            async with aclosing(self._client.chunks(path, silence_s=SILENCE_S)) as chunks:  # type: ignore[type-var]
                async for chunk in chunks:
                    slice_ends_s = self._now() + SLICE_S
                    for line in filter(None, splitter.feed(chunk)):
                        event = _line.decode(line)
                        if event.type == "ERROR":
                            raise Malformed(f"The watch of {self.api_group} ended with an error.")

                        if event.type in CHANGES:
                            self._heard(version, event.type, event.object)

                        metadata = event.object.get("metadata") or {}
                        # Also of bookmarks, which have nothing else.
                        resource_version = str(metadata.get("resourceVersion") or resource_version)

                        if self._now() > slice_ends_s:
                            await self._sleep(0)
                            slice_ends_s = self._now() + SLICE_S
        finally:
            self.is_watching = False

        return resource_version

    async def _run_kopf(self, version: str) -> None:
        """Run kopf's operator and list now and then; after the first of these lists kopf misses
        nothing.
        """
        self.is_live = False
        informer = self._informer
        follow = informer.follow or await _kopf()
        self._counts.starts += 1
        stop = asyncio.Event()
        ended = asyncio.Event()
        following = follow(
            self._client,
            self.api_group,
            version,
            partial(self._heard, version),
            pace=self._pace,
            stop=stop,
            restore_signals=informer.restore_signals,
        )
        listening = asyncio.create_task(following, name=f"kopf for {self.api_group}")
        listening.add_done_callback(lambda _: ended.set())

        try:
            pause_s = FIRST_SWEEP_AFTER_S
            # A list corrects what both streams missed.
            while not await wait_for_event(ended, pause_s, sleep=self._sleep):
                await self._sweep(version)
                if not ended.is_set():
                    self._now_live()

                pause_s = informer.sweep_every_s

            await listening
        finally:
            if self.is_live:
                self._live_s = self._now()

            self.is_live = False
            stop.set()
            await self._end(listening)

    def _heard(self, version: str, kind: str | None, body: Mapping[str, Any]) -> None:
        self._counts.events += 1
        self.heard_s = self._now()

        if kind == "DELETED":
            self.store.gone(body)
        else:
            self.store.applied(body, version)

    async def _end(self, listening: asyncio.Task[None]) -> None:
        with suppress(Fault):
            try:
                await asyncio.wait_for(asyncio.shield(listening), STOP_WITHIN_S)
            except TimeoutError:
                listening.cancel()
                with suppress(asyncio.CancelledError):
                    await listening

    def _now_live(self) -> None:
        """From here on no change is missed."""
        self.is_live = True
        self._live_s = self._now()
        self.store.follow(live=True)

    def _note_outage(self, fault: Fault) -> None:
        """Report that changes are not received: at once where they never were, else after
        UNFOLLOWED_AFTER_S.
        """
        if self._is_forbidden(fault):
            self._now_live()  # counts as absent, see `_sweep`
            return

        if self._live_s is None or self._now() - self._live_s > UNFOLLOWED_AFTER_S:
            self.store.follow(live=False)

    def _is_forbidden(self, fault: Fault) -> bool:
        return self._dialect.optional and isinstance(fault, ApiFault) and fault.status == FORBIDDEN

    def _complain(self, fault: Fault) -> None:
        if isinstance(fault, ApiFault) and fault.status == NOT_FOUND:
            return  # the API group just went; the next look will find it absent

        sentence = (
            f"Cannot follow PodGroups of {self.api_group}: {str(fault).rstrip('.')}; trying again."
        )
        if self._is_forbidden(fault):
            lacking = [Permission("list", self._dialect.api_group, self._dialect.plural)]
            sentence = (
                f"Gangs of {self.api_group} have to wait."
                f" {may_not(lacking, self._dialect.manifest)}"
            )

        self._trouble.begins(sentence)
