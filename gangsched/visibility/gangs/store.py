"""Gangs as API objects: rendered on demand, at most once a second, with resource versions and
changes.

Invariant: a version is the millisecond of a change with this replica's number in the low bits, so
it increases across restarts and differs between replicas, each of which counts its own changes. A
new queue position, or the passing of time, does not count as a change.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from secrets import randbelow
from typing import TypeAlias

import msgspec

from gangsched.api.timestamps import format_timestamp
from gangsched.core.diagnosis import shortage
from gangsched.core.placement_attempt import PlacementAttempt
from gangsched.core.reserve import Ledger
from gangsched.model.gang import Rank, Refusal
from gangsched.model.resources import format_quantity
from gangsched.model.snapshot import Snapshot
from gangsched.sentences import say
from gangsched.state.scheduling import SchedulingState
from gangsched.state.visibility import (
    Moment,
    bound_and_pending,
    describe,
    lacking_shapes,
    queue_rank,
    visible_gangs,
)
from gangsched.state.visible_gang import reserved_nodes
from gangsched.telemetry.history import AuditEntry, History
from gangsched.visibility.ports import API_VERSION, Clocks, Json

Key: TypeAlias = tuple[str, str]
Step: TypeAlias = Callable[[], Awaitable[None]]
FRESH_S = 1.0
# A version of another replica is recognised (410) and never mistaken for one of ours.
REPLICA_BITS = 10
MOST_CHANGES = 8_192
SHAPES = 4
"""Kinds of pods of one gang that are looked at for what it lacks."""
_encode = msgspec.json.Encoder(order="deterministic").encode


@dataclass(slots=True, eq=False)
class Entry:
    """One gang: `body` is the whole object, `metadata` a part of it, both JSON; `cells` are its
    table row.
    """

    key: Key
    version: int
    seen_s: float
    digest: int
    body: bytes
    metadata: bytes
    cells: tuple[object, ...]


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """ADDED, MODIFIED or DELETED, at a version."""

    version: int
    kind: str
    entry: Entry


class GangStore:
    """`entry` returns one gang, `entries` many; `changes_after` the changes for a watch.

    Keep the context `reading` open while reading many gangs; afterwards `version` covers everything
    that was read.
    """

    def __init__(
        self,
        state: SchedulingState,
        clocks: Clocks,
        *,
        served_by: Callable[[], Json],
        history: History,
    ) -> None:
        self._history = history
        self._state = state
        self._clocks = clocks
        self.served_by = served_by

        # Random, since replicas do not know each other; two of a thousand with one number would
        # only miss an event.
        self._replica = randbelow(1 << REPLICA_BITS)
        self._version = 0
        self._version = self.first_version = self._next_version()
        #: The version that watches have been woken for.
        self._told_version = self._version
        self._entries: dict[Key, Entry] = {}
        self._changes: deque[WatchEvent] = deque()
        self._floor = self.first_version
        self._positions: dict[str, int] = {}
        self._positions_s = float("-inf")
        self._ledgers: tuple[Snapshot, Ledger, Ledger] | None = None
        self.changed = asyncio.Condition()
        self.reading = asyncio.Lock()

    @property
    def version(self) -> int:
        """Version of the latest change."""
        return self._version

    def knows(self, version: int) -> bool:
        """Whether all changes after this version are still stored."""
        is_ours = version & ((1 << REPLICA_BITS) - 1) == self._replica
        return is_ours and self._floor <= version <= self._version

    # --- reading ---------------------------------------------------------------------------------

    async def entry(self, key: Key, step: Step) -> Entry | None:
        """One gang, None if it does not exist. The result is not recorded, so that a later list
        still reports the gang as changed.
        """
        await self._count_positions(step)
        found = self._describe(key)
        if found is None:
            return None

        return self._made(key, self._entries.get(key), found)

    def history(self, key: Key) -> Json | None:
        """The GangHistory of a gang, also of one that is gone; None if nothing is known of it."""
        namespace, name = key
        gang = f"{namespace}/{name}"
        record = self._state.registry.gangs.get(gang)

        # Of a gang that is one of several of an object, Events are about the object.
        declared = (
            record.pod_group.object_name
            if record is not None and record.pod_group is not None
            else name
        )
        entries = self._history.of((gang, f"{namespace}/{declared}"))
        if record is None and not entries:
            return None

        served_by = self.served_by()
        # A standby has decided nothing, and does not know what the leader has.
        is_standby = served_by.get("role") == "standby"
        since_s = self._clocks.wall_s() if is_standby else self._history.complete_since_s

        return {
            "apiVersion": API_VERSION,
            "kind": "GangHistory",
            "metadata": {"namespace": namespace, "name": name},
            "completeSince": format_timestamp(int(since_s)),
            "servedBy": served_by,
            "entries": [_told(entry) for entry in entries],
        }

    def reserved_nodes(self, gang: str) -> list[str]:
        """The nodes that are reserved for a gang, for users who may list nodes."""
        group = self._state.registry.group_of.get(gang, "")
        return reserved_nodes(self._state.registry.groups.get(group))

    async def keys(self, namespace: str, step: Step) -> list[Key]:
        """Gangs of a namespace, "" for all, by namespace and name."""
        found = visible_gangs(self._state)
        await step()

        if namespace:
            low = bisect_right(found, (namespace, ""))
            high = bisect_right(found, (namespace, "\U0010ffff"))
            found = found[low:high]

        there = set(found)
        for key in [key for key in self._entries if key not in there and namespace in {"", key[0]}]:
            self._remove(key)

        return found

    async def entries(self, keys: list[Key], step: Step) -> AsyncIterator[Entry]:
        """Yield these gangs; those that no longer exist are left out."""
        await self._count_positions(step)
        for key in keys:
            entry = self._look(key)
            if entry is not None:
                yield entry

            await step()

    async def queue(self, namespace: str, step: Step) -> list[Json]:
        """The gangs of a namespace, "" for all, that wait, in the order of the queue; without what
        has to be rendered.
        """
        await self._count_positions(step)
        registry = self._state.registry
        rows: list[tuple[int, Key]] = []

        for number, key in enumerate(await self.keys(namespace, step)):
            position = self._positions.get(registry.group_of.get(f"{key[0]}/{key[1]}", ""))
            if position is not None:
                rows.append((position, key))

            if number % 50 == 0:
                await step()

        rows.sort()
        return [
            {"namespace": namespace_of, "name": name, "position": position}
            for position, (namespace_of, name) in rows
        ]

    async def observe(self, step: Step) -> None:
        """Check all gangs for changes, and wake up watches."""
        async with self.reading:
            async for _ in self.entries(await self.keys("", step), step):
                pass

        # Lists and the queue note changes, too, and wake nobody.
        if self._version != self._told_version:
            self._told_version = self._version
            async with self.changed:
                self.changed.notify_all()

    def changes_after(self, version: int, namespace: str) -> list[WatchEvent] | None:
        """Changes in a namespace ("" for all) after a version, in order; None if some of them are
        no longer stored.
        """
        if version < self._floor:
            return None

        found: list[WatchEvent] = []
        for change in reversed(self._changes):
            if change.version <= version:
                break

            if namespace in {"", change.entry.key[0]}:
                found.append(change)

        return found[::-1]

    # --- rendering -------------------------------------------------------------------------------

    def _look(self, key: Key) -> Entry | None:
        known = self._entries.get(key)
        # Rendering is the cost of a list: a hundred readers in a second share one.
        if known is not None and self._clocks.now_s() < known.seen_s + FRESH_S:
            return known

        found = self._describe(key)
        if found is None:
            self._remove(key)
            return None

        entry = self._made(key, known, found)
        if known is None or known.digest != entry.digest:
            entry = self._made(key, known, found, self._next_version())
            self._note(WatchEvent(entry.version, "ADDED" if known is None else "MODIFIED", entry))

        self._entries[key] = entry
        return entry

    def _describe(self, key: Key) -> Json | None:
        gang_id = f"{key[0]}/{key[1]}"
        group_id = self._state.registry.group_of.get(gang_id, "")

        try:
            return describe(
                self._state,
                *key,
                Moment(self._clocks.now_s(), self._clocks.wall_s()),
                position=self._positions.get(group_id),
                lacks=self._lacks(gang_id),
            )
        except Exception as error:  # one gang must not keep the list of all from being read (I10)
            return self._indescribable(key, self._state.bulkhead.serving_failed(group_id, error))

    def _indescribable(self, key: Key, told: Refusal) -> Json:
        """A gang of which nothing else can be shown."""
        status: Json = {
            "reason": told.reason.value,
            "message": say(told).text,
            "members": {"byState": {}},
        }
        return {"metadata": {"namespace": key[0], "name": key[1]}, "spec": {}, "status": status}

    def _made(self, key: Key, known: Entry | None, found: Json, version: int = 0) -> Entry:
        """The object, at the version of the one that is `known` unless it is another one now."""
        status = {**found["status"], "servedBy": self.served_by()}
        # Ages and positions change all the time; a watch would send every gang each second.
        steady = {name: value for name, value in status.items() if name not in _RESTLESS}

        # Deterministic encoding, so equal objects have equal hashes; only within this process.
        digest = hash(_encode((found["metadata"], found["spec"], steady)))
        version = version or (
            known.version if known is not None and known.digest == digest else self._version
        )
        metadata = {**found["metadata"], "resourceVersion": str(version)}
        body = {
            "apiVersion": API_VERSION,
            "kind": "Gang",
            "metadata": metadata,
            "spec": found["spec"],
            "status": status,
        }
        bound, pending = bound_and_pending(status)
        cells = (
            key[1],
            found["spec"].get("min"),
            bound,
            pending,
            status.get("position"),
            status["reason"],
            metadata.get("creationTimestamp"),
            status["message"],
        )

        return Entry(
            key,
            version,
            self._clocks.now_s(),
            digest,
            _encode(body),
            _encode(metadata),
            cells,
        )

    def _remove(self, key: Key) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            # A DELETED event carries the version of the deletion, as in the API server.
            entry.version = self._next_version()
            body = msgspec.json.decode(entry.body)
            body["metadata"]["resourceVersion"] = str(entry.version)
            entry.body = _encode(body)
            entry.metadata = _encode(body["metadata"])
            self._note(WatchEvent(entry.version, "DELETED", entry))

    def _note(self, change: WatchEvent) -> None:
        self._changes.append(change)
        if len(self._changes) > MOST_CHANGES:
            # Watches below the floor get 410 and list again.
            self._floor = self._changes.popleft().version

    def _next_version(self) -> int:
        # At least one more than the last: the wall clock may be set back.
        at = max(int(self._clocks.wall_s() * 1_000), (self._version >> REPLICA_BITS) + 1)
        self._version = at << REPLICA_BITS | self._replica
        return self._version

    async def _count_positions(self, step: Step) -> None:
        """Where each group that waits stands in the queue, from 1."""
        now_s = self._clocks.now_s()
        if now_s < self._positions_s + FRESH_S:
            return

        self._positions_s = now_s
        moment = Moment(now_s, self._clocks.wall_s())
        ranks = []

        for number, group_id in enumerate(list(self._state.registry.groups)):
            rank = self._rank(group_id, moment)
            if rank is not None:
                ranks.append(rank)

            # Not after each group: a step reads the clock.
            if number % 50 == 0:
                await step()

        ranks.sort()
        self._positions = {rank[-1]: position for position, rank in enumerate(ranks, 1)}

    def _rank(self, group_id: str, moment: Moment) -> Rank | None:
        try:
            return queue_rank(self._state, group_id, moment)
        except Exception as error:
            self._state.bulkhead.serving_failed(group_id, error)
            return None

    def _lacks(self, gang_id: str) -> Json | None:
        """The resource that stops its pods first: what is missing of it, and the most that is free
        on one node.
        """
        shapes = lacking_shapes(self._state, gang_id)
        if not shapes:
            return None

        moment_s = self._clocks.now_s()
        group = self._state.registry.group(self._state.registry.group_of[gang_id], moment_s)
        ledger, totals = self._ledger()

        attempt = PlacementAttempt(group, ledger)
        for shape, waiting in list(shapes.items())[:SHAPES]:
            scarcest = shortage(shape, attempt, totals).scarcest
            if scarcest.takes < waiting:
                name = scarcest.resource
                missing = (waiting - scarcest.takes) * scarcest.asked
                free_on_one = format_quantity(name, scarcest.free_on_one)
                return {
                    "resource": name,
                    "amount": format_quantity(name, missing),
                    "freeOnOneNode": free_on_one,
                    # Its name in 0.1, which `kubectl gangsched` of that release reads.
                    "largestHole": free_on_one,
                }

        return None

    def _ledger(self) -> tuple[Ledger, Ledger]:
        snapshot = self._state.snapshot()
        policy = self._state.registry.policy

        if self._ledgers is None or self._ledgers[0] is not snapshot:
            made = Ledger(snapshot, policy=policy, counts=self._state.cluster.counts)
            totals = Ledger(snapshot, empty=True, policy=policy)
            self._ledgers = snapshot, made, totals

        return self._ledgers[1:]


def _named(entry: AuditEntry) -> Iterator[Json]:
    """Its objects as users of its namespace may see them: no nodes, and no names of other
    namespaces' pods.
    """
    own = entry.gang.partition("/")[0]
    for name, uid in entry.objects:
        namespace, slash, _ = name.partition("/")
        if uid:
            yield {"name": "" if slash and namespace != own else name, "uid": uid}


def _told(entry: AuditEntry) -> Json:
    return {
        "what": entry.what.value,
        "firstTime": format_timestamp(int(entry.first_s)),
        "lastTime": format_timestamp(int(entry.last_s)),
        "times": entry.times,
        "reason": entry.reason,
        "message": entry.message,
        "uid": entry.uid,
        "plan": entry.plan,
        "objects": list(_named(entry)),
        "objectCount": entry.number,
    }


_RESTLESS = frozenset({"lastDecisionAgeSeconds", "position", "before"})
"""Fields whose change alone is no change of the gang."""
