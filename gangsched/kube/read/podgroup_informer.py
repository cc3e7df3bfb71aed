"""Operator: the PodGroups of every API group that has them, whether it is served yet or not.

Law: kopf brings the events (`embedded`), a full LIST sweeps what it missed, and `podgroup_store` settles their race.
An API group that is absent is looked for again every few seconds, and one that disappears takes its PodGroups along.
What it does *not* do: decide what a PodGroup means (`api.podgroup` reads it), or write one (see `status`).
"""

from __future__ import annotations

import asyncio
import importlib
import random
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from gangsched.api.keys import NATIVE, SIGS, X_K8S
from gangsched.kube.http.backoff import Backoff
from gangsched.kube.http.client import ApiClient
from gangsched.kube.http.faults import FORBIDDEN, NOT_FOUND, ApiFault, Fault
from gangsched.kube.ports import Now, Sink, Sleep, Warn
from gangsched.kube.read.podgroup_store import PodGroupStore
from gangsched.kube.waiting import wait_for_event
from gangsched.model.objects import PodGroup

API_GROUPS = (X_K8S, SIGS, NATIVE)
PAGE_LIMIT = 500
SLICE = 50
SWEEP_EVERY_S = 60.0
LISTEN_WITHIN_S = 3.0
"""kopf takes 200 ms of CPU to import and start: it waits for the binds of a backlog, but not for longer than that."""
FIRST_SWEEP_AFTER_S = 3.0
"""kopf lists on its own after we did; what was deleted in between only a list after that can tell."""
STOP_WITHIN_S = 5.0


def release_signals() -> None:
    """The `restore_signals` of programs that handle no signals themselves.

    Where a loop takes no signal handlers (outside the main thread, or on a system without them) kopf has set none.
    """
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        with suppress(NotImplementedError, RuntimeError, ValueError):
            loop.remove_signal_handler(number)


@dataclass(slots=True)
class PodGroupCounts:
    """What happened so far, for metrics."""

    starts: int = 0
    sweeps: int = 0
    events: int = 0
    faults: int = 0


class PodGroupInformer:
    """Follows all API groups. `synced` is set once each was listed or found absent; `run` never returns."""

    def __init__(
        self,
        client: ApiClient,
        sink: Sink,
        *,
        warn: Warn,
        api_groups: tuple[str, ...] = API_GROUPS,
        restore_signals: Callable[[], None] = release_signals,
        backlog_bound: asyncio.Event | None = None,
        sweep_every_s: float = SWEEP_EVERY_S,
        now: Now = time.monotonic,
        sleep: Sleep = asyncio.sleep,
        rng: random.Random | None = None,
    ) -> None:
        """`restore_signals` installs the program's own signal handlers again each time kopf has taken them.

        `backlog_bound` is set when what was waiting at the start is bound; without one there is nobody to give way to.
        """
        self.synced = asyncio.Event()
        self.counts = PodGroupCounts()
        self._sources = [
            PodGroupSource(
                client,
                api_group,
                PodGroupStore(api_group, sink, warn),
                counts=self.counts,
                warn=warn,
                on_listed=self._on_listed,
                restore_signals=restore_signals,
                backlog_bound=backlog_bound,
                sweep_every_s=sweep_every_s,
                now=now,
                sleep=sleep,
                rng=rng or random.Random(),
            )
            for api_group in api_groups
        ]

    async def run(self) -> None:
        """Follow until cancelled."""
        async with asyncio.TaskGroup() as group:
            for source in self._sources:
                group.create_task(source.run(), name=f"podgroups of {source.api_group}")

    def _on_listed(self) -> None:
        if all(source.listed for source in self._sources):
            self.synced.set()


class PodGroupSource:
    """Follows one API group: look for it, list, listen, sweep, and all over again."""

    def __init__(
        self,
        client: ApiClient,
        api_group: str,
        store: PodGroupStore,
        *,
        counts: PodGroupCounts,
        warn: Warn,
        on_listed: Callable[[], None],
        restore_signals: Callable[[], None],
        backlog_bound: asyncio.Event | None,
        sweep_every_s: float,
        now: Now,
        sleep: Sleep,
        rng: random.Random,
    ) -> None:
        self.api_group = api_group
        self.listed = False
        self._client = client
        self._store = store
        self._counts = counts
        self._warn = warn
        self._on_listed = on_listed
        self._restore_signals = restore_signals
        self._backlog_bound = backlog_bound
        self._sweep_every_s = sweep_every_s
        self._now = now
        self._sleep = sleep
        self._absent = Backoff(2.0, 8.0, rng=rng)
        self._backoff = Backoff(0.5, 30.0, rng=rng)
        self._trouble: str | None = None

    async def run(self) -> None:
        """Follow the API group until cancelled."""
        while True:
            began_s = self._now()
            try:
                version = await self._served_version()
                if version is not None:
                    await self._sweep(version)
                    self._absent.reset()
                    await self._listen(version)
                    continue
                self._store.replace_with_none()
                self._mark_listed()
                delay_s = self._absent.next_s()
            except Fault as fault:
                if self._now() - began_s > self._sweep_every_s:
                    self._backoff.reset()
                self._counts.faults += 1
                self._complain(fault)
                delay_s = self._backoff.next_s(fault)
            await self._sleep(delay_s)

    async def _served_version(self) -> str | None:
        """The version that has PodGroups, the server's preferred one first; None when there is none."""
        try:
            group = await self._client.request_json("GET", f"/apis/{self.api_group}")
            for version in [entry["version"] for entry in group.get("versions", ())]:
                kinds = await self._client.request_json("GET", f"/apis/{self.api_group}/{version}")
                if any(kind.get("name") == "podgroups" for kind in kinds.get("resources", ())):
                    return str(version)
        except ApiFault as fault:
            if fault.status != NOT_FOUND:
                raise
        return None

    async def _sweep(self, version: str) -> None:
        """List everything and replace what is known; a native API group we may not read counts as absent."""
        try:
            pod_groups, resource_version = await self._list(version)
        except ApiFault as fault:
            if fault.status != FORBIDDEN or self.api_group != NATIVE:
                raise
            self._store.replace_with_none()
            self._mark_listed()
            raise
        self._counts.sweeps += 1
        self._store.replace(pod_groups, resource_version)
        self._mark_listed()
        self._trouble = None

    async def _list(self, version: str) -> tuple[list[PodGroup], str]:
        pod_groups: list[PodGroup] = []
        token = ""
        while True:
            path = f"/apis/{self.api_group}/{version}/podgroups?limit={PAGE_LIMIT}"
            page = await self._client.request_json("GET", f"{path}&continue={token}" if token else path)
            for number, body in enumerate(page.get("items") or ()):
                if number % SLICE == 0:
                    await self._sleep(0)
                pod_group = self._store.read(body, version)
                if pod_group is not None:
                    pod_groups.append(pod_group)
            metadata = page.get("metadata", {})
            token = metadata.get("continue") or ""
            if not token:
                return pod_groups, str(metadata.get("resourceVersion", ""))

    async def _listen(self, version: str) -> None:
        """Run kopf's operator and sweep now and then; ends with the fault that ended either."""
        if self._backlog_bound is not None:
            await wait_for_event(self._backlog_bound, LISTEN_WITHIN_S, sleep=self._sleep)
        embedded = await asyncio.to_thread(importlib.import_module, "gangsched.kube.read.kopf_watch")
        self._counts.starts += 1
        stop = asyncio.Event()
        ended = asyncio.Event()

        def on_event(kind: str | None, body: Mapping[str, Any]) -> None:
            self._counts.events += 1
            if kind == "DELETED":
                self._store.gone(body)
            else:
                self._store.applied(body, version)

        listening = asyncio.create_task(
            embedded.follow(
                self._client, self.api_group, version, on_event, stop=stop, restore_signals=self._restore_signals
            ),
            name=f"kopf for {self.api_group}",
        )
        listening.add_done_callback(lambda _: ended.set())
        try:
            pause_s = FIRST_SWEEP_AFTER_S
            while not await wait_for_event(ended, pause_s, sleep=self._sleep):
                await self._sweep(version)
                pause_s = self._sweep_every_s
            await listening
        finally:
            stop.set()
            await self._end(listening)

    async def _end(self, listening: asyncio.Task[None]) -> None:
        with suppress(Fault):
            try:
                await asyncio.wait_for(asyncio.shield(listening), STOP_WITHIN_S)
            except TimeoutError:
                listening.cancel()
                with suppress(asyncio.CancelledError):
                    await listening

    def _mark_listed(self) -> None:
        if not self.listed:
            self.listed = True
            self._on_listed()

    def _complain(self, fault: Fault) -> None:
        if isinstance(fault, ApiFault) and fault.status == NOT_FOUND:
            return  # the API group just went; the next look will find it absent
        sentence = f"Cannot follow PodGroups of {self.api_group}: {str(fault).rstrip('.')}; trying again."
        if sentence != self._trouble:
            self._trouble = sentence
            self._warn(sentence)
