"""Room for members to come: promised with a Permit, taken by the members as they arrive, or
released (semantics B8).

Invariant: promises are derived from the views of gangs (`members_to_come`); in addition, this
module only stores which promises have ended. A promise ends when the last member has come, when all
pods of its Permit are gone, when it expires, when its node is gone, or when pods of higher priority
use the room.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Set
from itertools import islice
from math import inf

from gangsched.core.stand_ins import taken
from gangsched.model.gang import Gang, Placement, gang_to_come, namespace_of, room_key
from gangsched.model.nominated_room import Nomination
from gangsched.model.objects import PromisedRoom
from gangsched.model.plan import Verdict
from gangsched.model.protocol import RecordEvent
from gangsched.model.reasons import EventReason
from gangsched.sentences import promising
from gangsched.state.cluster import Cluster
from gangsched.state.gangs import GangRecord
from gangsched.state.groups import Registry
from gangsched.state.member_store import MemberStore
from gangsched.state.members import STARTED
from gangsched.state.members_to_come import promised_room
from gangsched.state.reporting.gang_events import gang_ref
from gangsched.state.timers import DUE_AT_ONCE, JUMP_S, Timers


class RoomToCome:
    """Keeps the promises in `cluster` equal to the room that gangs of `registry` are still
    promised.
    """

    def __init__(self, cluster: Cluster, registry: Registry, members: MemberStore) -> None:
        self._cluster = cluster
        self._members = members
        self._registry = registry
        self._offset_s = 0.0  # what to add to monotonic seconds for those since the epoch
        self._wall_s = 0
        self._now_s = 0.0
        self._shown: dict[str, tuple[Placement, ...]] = {}  # by gang, what `cluster` was told
        self._of_node: dict[str, set[str]] = {}  # gangs by node
        self._ends = Timers()
        #: Gangs whose ends were converted with the clock before it was set.
        self._by_old_clock: dict[str, None] = {}
        self._since_s: dict[str, tuple[PromisedRoom, float]] = {}  # by gang
        self._told: set[str] = set()  # gangs whose promise was told
        self._events: list[RecordEvent] = []

    def due(self, now_s: float, wall_s: float) -> None:
        """End the promises whose time is over; to be called before the gangs are refreshed."""
        before = self._offset_s
        self._offset_s = wall_s - now_s

        self._wall_s = int(wall_s)
        self._now_s = now_s
        # Ends are epoch seconds in the stamp and monotonic ones in the timers; smaller shifts move
        # nothing.
        if abs(self._offset_s - before) >= JUMP_S:  # the first call, or the clock was set
            self._registry.clock_set(self._wall_s)
            self._by_old_clock.update(dict.fromkeys(self._shown))

        self._follow_clock()
        for gang_id in self._ends.take_due(now_s):
            if gang_id in self._by_old_clock:
                # By the clock as it is now it may not be over.
                self._set_by_clock(gang_id)
                continue

            record, room = self._of(gang_id)
            if record is not None and room is not None:
                record.room_over = room
                self._registry.touch(gang_id)
                self._registry.room_unused(record.namespace, self._wall_s)
                self._tell_end(record, promising.time_over())

    def _follow_clock(self) -> None:
        """Convert some ends anew after the clock was set: thousands may have room to come."""
        for gang_id in [*islice(self._by_old_clock, DUE_AT_ONCE)]:
            self._set_by_clock(gang_id)

    def _set_by_clock(self, gang_id: str) -> None:
        del self._by_old_clock[gang_id]
        if gang_id in self._shown:
            self._set_end(gang_id)

    def changed(self, gang_ids: Iterable[str]) -> None:
        """Follow changes of these gangs, which may be gone."""
        for gang_id in gang_ids:
            record = self._registry.gangs.get(gang_id)
            places = self._registry.view(gang_id).promised if record is not None else ()
            if places or gang_id in self._told:
                self._show(gang_id, record, places)

    def look(self, nodes: Set[str]) -> None:
        """End promises on these nodes that can no longer be kept, because the nodes'
        pods changed.
        """
        for node in sorted(nodes & self._of_node.keys()):
            groups = []
            for gang_id in self._of_node[node]:
                groups.append(self._registry.group_of.get(gang_id, ""))

            if any(map(self._registry.is_touched, filter(None, groups))):
                # a member may have arrived, for which less is promised after the next refresh
                continue

            places = [
                placement
                for gang_id in self._of_node[node]
                for placement in self._shown[gang_id]
                if placement.node == node
            ]
            # The last in this order lose first: the lowest priority, and among equals always the
            # same.
            places.sort(key=lambda each: (each.pod.priority, each.pod.uid), reverse=True)

            while places and not self._has_room(node, places):
                self._lose(gang_to_come(places.pop().pod.uid), node)

    def promise(self, verdict: Verdict, now_s: float) -> dict[str, PromisedRoom]:
        """The room promised to a permitted group for its members to come, by gang."""
        found: dict[str, PromisedRoom] = {}
        for gang_id in dict.fromkeys(
            gang_to_come(placement.pod.uid) for placement in verdict.rooms
        ):
            record = self._registry.gangs[gang_id]
            record.room_over = None
            record.room_lost = frozenset()
            rooms = [
                placement
                for placement in verdict.rooms
                if gang_to_come(placement.pod.uid) == gang_id
            ]
            nodes = {placement.node for placement in rooms}
            on = Counter(placement.node for placement in rooms)

            # The stamp counts members on each node, so that after a restart those that are there
            # are subtracted again.
            on.update(
                placement.node
                for placement in verdict.binds
                if placement.pod.uid in record.members and placement.node in nodes
            )
            on.update(member.node for member in record.of(*STARTED) if member.node in nodes)
            wait_s = self._registry.view(gang_id).wait_time_s

            # In epoch seconds, because the stamp outlives this process and its monotonic clock.
            until_s = int(now_s + self._offset_s + wait_s)
            found[gang_id] = PromisedRoom(
                until_s,
                rooms[0].pod.shape.requests,
                tuple(sorted(on.items())),
            )

        return found

    def took(self, verdict: Verdict, gangs: Iterable[Gang]) -> None:
        """Drop the promises to members that this verdict places, before their binds are checked
        against promises.
        """
        for gang in gangs:
            if gang.promised and (uids := taken(gang, verdict)):
                for uid in uids:
                    # The member itself takes this room now, so nobody is to be woken for it.
                    self._cluster.nominate(uid, None, grows=False)

                self._set(
                    gang.id,
                    tuple(
                        placement
                        for placement in self._shown[gang.id]
                        if placement.pod.uid not in uids
                    ),
                )

    def shown(self) -> Mapping[str, tuple[Placement, ...]]:
        """The promised places by gang, a live view."""
        return self._shown

    def take_events(self) -> list[RecordEvent]:
        """Events about promises that began or ended since the last call."""
        events = self._events
        self._events = []
        return events

    def next_deadline_s(self) -> float:
        """Time at which `due` must be called even without a message."""
        return self._now_s if self._by_old_clock else self._ends.next_s()

    # --- its parts -------------------------------------------------------------------------------

    def _has_room(self, node: str, places: Iterable[Placement]) -> bool:
        """Whether what runs on the node leaves this room."""
        snapshot = self._cluster.snapshot()
        index = snapshot.table.index.get(node)
        if index is None:
            return False

        asked = Counter[str]()
        for place in places:
            asked.update(dict(place.pod.shape.requests))

        rows = {name: snapshot.resources.get(name) for name in asked}
        return all(
            row is not None and snapshot.free[row, index] >= asked[name]
            for name, row in rows.items()
        )

    def _of(self, gang_id: str) -> tuple[GangRecord | None, PromisedRoom | None]:
        record = self._registry.gangs.get(gang_id)
        if record is None:
            return None, None

        started = record.of(*STARTED)
        return record, promised_room(started, is_trusted=record.trusts_stamps)

    def _show(self, gang_id: str, record: GangRecord | None, places: tuple[Placement, ...]) -> None:
        before = self._shown.get(gang_id, ())
        # All pods of the start are gone: the room was kept for nothing, as if its time had passed.
        has_started = record is not None and bool(record.of(*STARTED))
        if before and not places and not has_started:
            self._registry.room_unused(namespace_of(gang_id), self._wall_s)

        kept = {placement.pod.uid for placement in places}
        for uid in {placement.pod.uid for placement in before} - kept:
            self._cluster.nominate(uid, None)

        self._set(gang_id, places if record is not None else ())
        if record is None or not places:
            self._ends.drop(gang_id)
            self._since_s.pop(gang_id, None)
            self._told.discard(gang_id)
            return

        for placement in places:
            self._cluster.nominate(
                placement.pod.uid,
                Nomination(placement.node, placement.pod, room_key(gang_id)),
            )

        self._open_to_higher(before, places)
        room = self._set_end(gang_id)
        is_new = gang_id not in self._told
        self._told.add(gang_id)

        # Once per promise, not for each member that takes a place of it.
        if room is not None and is_new:
            nodes = list(dict.fromkeys(placement.node for placement in places))
            text = promising.reserved(len(places), nodes, until_s=room.until_s)
            self._tell(record, EventReason.ROOM_KEPT, text)

    def _open_to_higher(
        self,
        before: Iterable[Placement],
        places: Iterable[Placement],
    ) -> None:
        """Open the room that is newly kept to groups of a higher priority that wait: the plan that
        started the gang, which came before them by another of its members, had it in use.
        """
        shown = {placement.pod.uid for placement in before}
        highest = self._members.highest_waiting
        if highest is None:
            return

        self._cluster.open(
            placement.node
            for placement in places
            if placement.pod.uid not in shown and placement.pod.priority < highest
        )

    def _set(self, gang_id: str, places: tuple[Placement, ...]) -> None:
        before = self._shown.pop(gang_id, ())
        for node in {placement.node for placement in before}:
            self._of_node[node].discard(gang_id)
            if not self._of_node[node]:
                del self._of_node[node]

        if places:
            self._shown[gang_id] = places

        for node in {placement.node for placement in places}:
            self._of_node.setdefault(node, set()).add(gang_id)

    def _set_end(self, gang_id: str) -> PromisedRoom | None:
        _, room = self._of(gang_id)
        end_s = inf
        if room is not None:
            known, since_s = self._since_s.get(gang_id, (None, self._now_s))
            if known != room:
                since_s = self._now_s
                self._since_s[gang_id] = (room, since_s)

            # The clock may have been ahead when the promise was made.
            latest_s = since_s + self._registry.defaults.hold_max_s
            end_s = min(room.until_s - self._offset_s, latest_s)

        self._ends.set(gang_id, end_s)
        return room

    def _lose(self, gang_id: str, node: str) -> None:
        """The promise on one node cannot be kept."""
        record = self._registry.gangs[gang_id]
        if node in record.room_lost:
            return

        record.room_lost |= {node}
        self._registry.touch(gang_id)
        is_there = node in self._cluster.nodes
        self._tell_end(
            record,
            promising.used_by_others(node) if is_there else promising.node_gone(node),
            node,
        )

    def _tell_end(self, record: GangRecord, why: str, node: str = "") -> None:
        left = [
            placement
            for placement in self._shown.get(record.id, ())
            if node in {"", placement.node}
        ]
        if left:
            nodes = list(dict.fromkeys(placement.node for placement in left))
            self._tell(
                record,
                EventReason.ROOM_RELEASED,
                promising.released(len(left), nodes, why),
                warning=True,
            )

    def _tell(
        self,
        record: GangRecord,
        reason: EventReason,
        text: str,
        *,
        warning: bool = False,
    ) -> None:
        ref = gang_ref(record)
        if ref is not None and record.ours:
            self._events.append(RecordEvent(ref, reason.value, text, warning=warning))
