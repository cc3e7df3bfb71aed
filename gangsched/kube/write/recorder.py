"""Recorder: Events for people (events.k8s.io/v1), last in every queue (semantics E2).

Law: recording never blocks and never delays a bind: what does not fit the queue is dropped, Normal ones about pods
before all others, oldest first, and counted. The same words about the same object within ten minutes are one Event with
a series, whose count is written at most once a minute. A lost Event is no fault: it is tried a few times and let go.
"""

from __future__ import annotations

import asyncio
import random
import socket
import time
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias

import msgspec

from gangsched.kube.http.backoff import Backoff
from gangsched.kube.http.client import JSON, MERGE_PATCH
from gangsched.kube.http.faults import CONFLICT, NOT_FOUND, SERVER_ERROR, TOO_MANY_REQUESTS, ApiFault, Fault
from gangsched.kube.ports import Now, RestClient, Sleep, Wall, Warn, silent, utc_now
from gangsched.kube.waiting import wait_for_event
from gangsched.model.protocol import RecordEvent

CONTROLLER = "gangsched"
NOTE_BYTES = 1024
SAME_FOR_S = 600.0
SERIES_EVERY_S = 60.0
SWEEP_EVERY_S = 15.0
TRIES = 4
BIND_PATIENCE_S = 5.0
PAUSE_S = 0.2
"""How long no bind may be under way before Events about pods are written: there is one per bind, and to the API server
it is as much work as the bind."""
LOOKS_PER_PAUSE = 4
CLUSTER_NAMESPACE = "default"

_Key: TypeAlias = tuple[str, str, str]


@dataclass(slots=True)
class RecorderCounts:
    """What happened so far, for metrics."""

    recorded: int = 0
    repeated: int = 0
    written: int = 0
    dropped: int = 0
    faults: int = 0


@dataclass(slots=True)
class _Entry:
    """An Event of the last ten minutes. `count` is how often it was said, `told` how often the API server knows."""

    event: RecordEvent
    namespace: str
    name: str
    first: datetime
    last: datetime
    last_s: float
    queued_s: float = 0.0
    told_s: float = float("-inf")
    count: int = 1
    told: int = 0
    queued: bool = True
    """Waiting or being written: it must not be queued again meanwhile."""


class Recorder:
    """`record` never blocks; `run` never returns."""

    def __init__(
        self,
        client: RestClient,
        *,
        binds_idle: asyncio.Event,
        instance: str | None = None,
        capacity: int = 10_000,
        workers: int = 2,
        warn: Warn = silent,
        now: Now = time.monotonic,
        wall: Wall = utc_now,
        sleep: Sleep = asyncio.sleep,
        rng: random.Random | None = None,
    ) -> None:
        """`instance` is who reports, the host's name by default; `capacity` bounds the Events not yet written.

        `workers` write warnings about pods, as many what is usual of pods, and one those about gangs.
        """
        self.counts = RecorderCounts()
        self.empty = asyncio.Event()
        self.empty.set()
        self._client = client
        self._binds_idle = binds_idle
        self._instance = (instance or socket.gethostname())[:128]
        self._capacity = capacity
        self._workers = workers
        self._warn = warn
        self._now = now
        self._wall = wall
        self._sleep = sleep
        self._rng = rng or random.Random()
        self._known: OrderedDict[_Key, _Entry] = OrderedDict()
        self._of_gangs: deque[_Entry] = deque()  # they do not wait behind those of their many members
        self._soon: deque[_Entry] = deque()
        self._in_a_pause: deque[_Entry] = deque()
        self._in_flight = 0
        self._wake = asyncio.Event()
        self._trouble = False
        self._calm = self._draining = False

    def __len__(self) -> int:
        """Events not yet written."""
        return len(self._of_gangs) + len(self._soon) + len(self._in_a_pause) + self._in_flight

    def record(self, event: RecordEvent) -> None:
        """Record an Event, or count it if it was said in the last ten minutes."""
        self.counts.recorded += 1
        key = (event.regarding.uid or event.regarding.name, event.reason, event.message)
        now_s = self._now()
        known = self._known.get(key)
        if known is not None and now_s - known.last_s < SAME_FOR_S:
            self.counts.repeated += 1
            known.count += 1
            known.last, known.last_s = self._wall(), now_s
            self._known.move_to_end(key)
            return
        moment = self._wall()
        entry = _Entry(
            event=event,
            namespace=event.regarding.namespace or CLUSTER_NAMESPACE,
            name=f"{event.regarding.name[:230].rstrip('.-')}.{self._rng.getrandbits(64):016x}",
            first=moment,
            last=moment,
            last_s=now_s,
        )
        self._known[key] = entry
        self._known.move_to_end(key)
        if len(self._known) > 2 * self._capacity:
            self._known.popitem(last=False)
        self._enqueue(entry)

    async def run(self) -> None:
        """Write until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._work(self._of_gangs, self._let_binds_go_first), name="recorder of gangs")
            for number in range(self._workers):
                group.create_task(self._work(self._soon, self._let_binds_go_first), name=f"recorder {number}")
                group.create_task(self._work(self._in_a_pause, self._await_a_pause), name=f"recorder of pods {number}")
            group.create_task(self._sweep(), name="recorder series")

    async def drain(self, timeout_s: float) -> int:
        """Write every Event without a pause, in at most `timeout_s`; how many are left. The last call to it."""
        self._draining = True
        await wait_for_event(self.empty, timeout_s, sleep=self._sleep)
        return len(self)

    def _enqueue(self, entry: _Entry) -> None:
        if len(self._of_gangs) + len(self._soon) + len(self._in_a_pause) >= self._capacity:
            dropped = (self._in_a_pause or self._soon or self._of_gangs).popleft()
            dropped.queued = False
            self.counts.dropped += 1
        entry.queued, entry.queued_s = True, self._now()
        in_a_pause = entry.event.regarding.kind == "Pod" and not entry.event.warning
        if in_a_pause and not self._in_a_pause:
            self._calm = False  # who knows what was bound since the last one
        is_of_gang = entry.event.regarding.kind == "PodGroup"
        (self._of_gangs if is_of_gang else self._in_a_pause if in_a_pause else self._soon).append(entry)
        self.empty.clear()
        self._wake.set()

    async def _work(self, queue: deque[_Entry], first: Callable[[_Entry], Awaitable[None]]) -> None:
        """Write one queue; `first` waits until binds allow it."""
        while True:
            while not queue:
                self._wake.clear()
                await self._wake.wait()
            await first(queue[0])
            if not queue:
                continue
            entry = queue.popleft()
            self._in_flight += 1
            try:
                await self._write(entry)
            finally:
                entry.queued = False
                self._in_flight -= 1
                if not len(self):
                    self.empty.set()

    async def _binds_idle_for(self, entry: _Entry) -> bool:
        """Wait until no bind is under way; false when this Event has waited long enough before that."""
        left_s = entry.queued_s + BIND_PATIENCE_S - self._now()
        return left_s > 0 and await wait_for_event(self._binds_idle, left_s, sleep=self._sleep)

    async def _let_binds_go_first(self, entry: _Entry) -> None:
        await self._binds_idle_for(entry)

    async def _await_a_pause(self, entry: _Entry) -> None:
        while not (self._binds_idle.is_set() and (self._calm or self._draining)):
            self._calm = False
            if not await self._binds_idle_for(entry):
                return
            self._calm = await self._pause()

    async def _pause(self) -> bool:
        """Let a while pass; whether no bind was seen under way."""
        for _ in range(LOOKS_PER_PAUSE):
            await self._sleep(PAUSE_S / LOOKS_PER_PAUSE)
            if not self._binds_idle.is_set():
                return False
        return True

    async def _sweep(self) -> None:
        """Queue the series that grew a minute ago or more, and forget what is older than ten minutes."""
        while True:
            await self._sleep(SWEEP_EVERY_S)
            now_s = self._now()
            for key, entry in list(self._known.items()):
                if entry.count > entry.told and not entry.queued and now_s - entry.told_s >= SERIES_EVERY_S:
                    self._enqueue(entry)
                elif now_s - entry.last_s >= SAME_FOR_S and not entry.queued:
                    del self._known[key]

    async def _write(self, entry: _Entry) -> None:
        backoff = Backoff(0.5, 5.0, rng=self._rng)
        for attempt in range(1, TRIES + 1):
            try:
                await self._send(entry)
            except Fault as fault:
                self.counts.faults += 1
                if attempt == TRIES or not _may_pass(fault):
                    self.counts.dropped += 1
                    self._complain(fault)
                    return
                await self._sleep(backoff.next_s(fault))
            else:
                self.counts.written += 1
                self._trouble = False
                return

    async def _send(self, entry: _Entry) -> None:
        """POST a new Event, or PATCH the series of one that the API server has."""
        count = entry.count
        path = f"/apis/events.k8s.io/v1/namespaces/{entry.namespace}/events"
        if entry.told:
            series = {"series": {"count": count, "lastObservedTime": micro_time(entry.last)}}
            try:
                await self._client.request(
                    "PATCH", f"{path}/{entry.name}", msgspec.json.encode(series), content_type=MERGE_PATCH
                )
            except ApiFault as fault:
                if fault.status != NOT_FOUND:  # Events live for an hour; a gone one is not missed
                    raise
        else:
            try:
                await self._client.request("POST", path, msgspec.json.encode(self._body(entry)), content_type=JSON)
            except ApiFault as fault:
                if fault.status != CONFLICT:  # our own, the answer was lost
                    raise
            count = 1
        entry.told, entry.told_s = count, self._now()

    def _body(self, entry: _Entry) -> dict[str, Any]:
        event = entry.event
        about = event.regarding
        regarding = {"apiVersion": about.api_version, "kind": about.kind, "name": about.name, "uid": about.uid}
        if about.namespace:
            regarding["namespace"] = about.namespace
        return {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": entry.name, "namespace": entry.namespace},
            "eventTime": micro_time(entry.first),
            "reportingController": CONTROLLER,
            "reportingInstance": self._instance,
            "action": event.action[:128],
            "reason": event.reason[:128],
            "type": "Warning" if event.warning else "Normal",
            "regarding": regarding,
            "note": cut(event.message),
        }

    def _complain(self, fault: Fault) -> None:
        if not self._trouble:
            self._trouble = True
            self._warn(f"Cannot write Events: {str(fault).rstrip('.')}; they are dropped until it works again.")


def _may_pass(fault: Fault) -> bool:
    return not isinstance(fault, ApiFault) or fault.status >= SERVER_ERROR or fault.status == TOO_MANY_REQUESTS


def micro_time(moment: datetime) -> str:
    """A metav1.MicroTime, UTC."""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def cut(note: str) -> str:
    """A note that fits the API's kilobyte, its end marked where it was longer."""
    raw = note.encode()
    return note if len(raw) <= NOTE_BYTES else raw[: NOTE_BYTES - 3].decode(errors="ignore") + "…"
