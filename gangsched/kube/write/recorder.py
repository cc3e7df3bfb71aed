"""Recorder: writes Events (events.k8s.io/v1), after all other writes (semantics E2).

Invariant: recording never blocks, and delays neither a bind nor an eviction. If the queue is full,
Normal Events about pods are dropped first, oldest first, and counted. The same text about the same
object within ten minutes is one Event with a series, whose count is written at most once a minute;
a bind of the pod, or its deletion, ends the series. Events about one object are limited as by
client-go's spam filter. An Event is tried a few times and then dropped.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import uuid4

import msgspec

from gangsched.kube.http.client import JSON, MERGE_PATCH
from gangsched.kube.http.faults import (
    BAD_REQUEST,
    CONFLICT,
    FORBIDDEN,
    NOT_FOUND,
    UNPROCESSABLE,
    ApiFault,
)
from gangsched.kube.ports import RestClient, Runtime
from gangsched.kube.write.outbox import Outbox
from gangsched.kube.write.pause import InFlight
from gangsched.kube.write.rate_limits import TokenBuckets, WriteBudget, WriteLimits
from gangsched.kube.write.recent import Recent
from gangsched.kube.write.spelling import micro_time
from gangsched.kube.write.writer import IsDue, Kind, Level, OutboxCounts
from gangsched.model.counter import counter
from gangsched.model.protocol import RecordEvent
from gangsched.model.reasons import EventReason
from gangsched.model.text import cut

CONTROLLER = "gangsched"
SAME_FOR_S = 600.0
SERIES_EVERY_S = 60.0
TEXTS_OF_AN_OBJECT = 4
"""So many are remembered, the last ones."""
CLUSTER_NAMESPACE = "default"
GANGS, WARNINGS, PODS = range(3)
OF_BINDS = frozenset({EventReason.SCHEDULED, EventReason.GANG_SCHEDULED})
LEVELS = (
    Level(patience_s=5.0, workers=1),
    Level(patience_s=5.0, workers=2),
    Level(pause_s=0.2, patience_s=5.0, workers=2),
)
"""Events about gangs do not wait behind those of their many members. Of Normal Events about pods
there is one for each bind and each victim, and to the API server it is as much work as the bind."""
EVENTS = Kind(
    noun="Events",
    levels=LEVELS,
    tries=4,
    final=frozenset({BAD_REQUEST, FORBIDDEN, UNPROCESSABLE}),
)


@dataclass(slots=True)
class RecorderCounts(OutboxCounts):
    """Counters for metrics. `filtered` counts Events that exceeded the rate."""

    ordered: int = counter("Events and series to be written")
    written: int = counter("Events written")
    skipped: int = counter("Events no longer worth writing")
    dropped: int = counter("Events dropped")
    faults: int = counter("writes of Events that failed")
    recorded: int = counter("Events requested")
    repeated: int = counter("Events counted in an existing Event of the last ten minutes")
    filtered: int = counter("Events not written because there were too many about one object")


@dataclass(slots=True, eq=False)
class _Entry:
    """An Event of the last ten minutes. `count` is how often it was said, `told` how often the API
    server knows.

    `text` is a hash of what it says. `body` is what is to be posted, as bytes, since thousands may
    wait; empty once it was.
    """

    namespace: str
    name: str
    about: str
    text: int
    level: int
    body: bytes
    last: datetime
    last_s: float
    told_s: float = 0.0
    count: int = 1
    told: int = 0


class Recorder:
    """`record` never blocks; `run` never returns."""

    def __init__(
        self,
        client: RestClient,
        urgent: Sequence[InFlight],
        *,
        instance: str | None = None,
        capacity: int = 10_000,
        limits: WriteLimits = WriteLimits(),  # noqa: B008  (frozen)
        runtime: Runtime = Runtime(),  # noqa: B008  (frozen)
    ) -> None:
        """`urgent` requests are sent first. `instance` is the reporting instance of Events, by
        default one per process.

        `capacity` bounds the Events that are not yet written, and the objects whose Events are
        remembered; client-go remembers 4,096 Events.
        """
        self.counts = RecorderCounts()
        self._client = client

        # Of a long name the end is kept, which tells two daemons on one host apart.
        self._instance = (instance or f"{socket.gethostname()[:80]}_{uuid4()}")[-128:]
        self._runtime = runtime
        self._known: Recent[str, tuple[_Entry, ...]] = Recent(
            runtime.now,
            for_s=SAME_FOR_S,
            limit=capacity,
        )
        self._of_object: TokenBuckets[str] = TokenBuckets(limits.event, runtime.now)
        self.budget = WriteBudget(limits, runtime.now)
        self._outbox: Outbox[_Entry] = Outbox(
            self,
            replace(EVENTS, capacity=capacity),
            urgent=urgent,
            budget=self.budget,
            level=lambda entry: entry.level,
            counts=self.counts,
            runtime=runtime,
        )
        self.run = self._outbox.run
        self.drain = self._outbox.drain

    def record(self, event: RecordEvent) -> None:
        """Record an Event, or count it if it repeats one of the last ten minutes."""
        self.counts.recorded += 1
        # A hash instead of the text: thousands of Events are remembered for ten minutes.
        about = event.regarding.uid or event.regarding.name
        text = hash((event.reason, event.message))
        remembered = self._known.get(about) or ()
        known = next((entry for entry in remembered if entry.text == text), None)

        # The last three others; with the current one these are `TEXTS_OF_AN_OBJECT`.
        others = tuple(entry for entry in remembered if entry is not known)[
            1 - TEXTS_OF_AN_OBJECT :
        ]
        now_s = self._runtime.now()
        moment = self._runtime.wall()

        # not dropped, or given up
        is_said = known is not None and (known.told > 0 or known.name in self._outbox)
        if known is not None and is_said and now_s - known.last_s < SAME_FOR_S:
            self.counts.repeated += 1
            known.count += 1
            known.last = moment
            known.last_s = now_s
            self._known[about] = (*others, known)

            if known.told:
                # At most one PATCH a minute, however often the Event repeats.
                self._outbox.put(known.name, known, after_s=known.told_s + SERIES_EVERY_S - now_s)

            return

        # Names of objects have at most 253 characters and end with a letter or digit; 17 are for
        # the suffix.
        name = f"{event.regarding.name[:230].rstrip('.-')}.{self._runtime.rng.getrandbits(64):016x}"
        namespace = event.regarding.namespace or CLUSTER_NAMESPACE
        body = self._body(event, name, namespace, micro_time(moment))
        entry = _Entry(namespace, name, about, text, _level(event), body, moment, now_s)

        # A bind happens once: remembering it would only keep memory.
        if event.reason in OF_BINDS:
            self._known.forget(about)
        else:
            self._known[about] = (*others, entry)

        self._outbox.put(name, entry)

    def forget(self, uid: str) -> None:
        """End the series of a deleted object; queued Events are still written."""
        self._known.forget(uid)
        self._of_object.forget(uid)

    def due(self, entry: _Entry) -> IsDue:
        """Never if the object had too many Events recently, otherwise now."""
        if self._of_object.wait_s(entry.about):
            self.counts.filtered += 1
            return IsDue.NEVER

        self._of_object.take(entry.about)
        return IsDue.NOW

    async def write(self, entry: _Entry) -> None:
        """POST a new Event, or PATCH the series of an existing one."""
        path = f"/apis/events.k8s.io/v1/namespaces/{entry.namespace}/events"
        count = entry.count if entry.told else 1

        try:
            if entry.told:
                series = {"series": {"count": count, "lastObservedTime": micro_time(entry.last)}}
                body = msgspec.json.encode(series)
                await self._client.request(
                    "PATCH",
                    f"{path}/{entry.name}",
                    body,
                    content_type=MERGE_PATCH,
                )
            else:
                await self._client.request("POST", path, entry.body, content_type=JSON)
        except ApiFault as fault:
            # Events live for an hour, and a gone one is not missed; one that exists is ours, the
            # answer was lost.
            if fault.status != (NOT_FOUND if entry.told else CONFLICT):
                raise

        entry.told = count
        entry.told_s = self._runtime.now()
        entry.body = b""

    def _body(self, event: RecordEvent, name: str, namespace: str, moment: str) -> bytes:
        about = event.regarding
        regarding = {
            "apiVersion": about.api_version,
            "kind": about.kind,
            "name": about.name,
            "uid": about.uid,
        }

        if about.namespace:
            regarding["namespace"] = about.namespace

        body = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
            "eventTime": moment,
            "reportingController": CONTROLLER,
            "reportingInstance": self._instance,
            # Limits of events.k8s.io/v1 validation: 128 characters for action and reason, 1 KiB for
            # the note.
            "action": event.action[:128],
            "reason": event.reason[:128],
            "type": "Warning" if event.warning else "Normal",
            "regarding": regarding,
            "note": cut(event.message),
        }
        return msgspec.json.encode(body)


def _level(event: RecordEvent) -> int:
    if event.regarding.kind == "PodGroup":
        return GANGS
    if event.regarding.kind == "Pod" and not event.warning:
        return PODS

    return WARNINGS
