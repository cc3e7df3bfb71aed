"""Promises of nominations by node: reserved places, and the pods that must leave first (semantics
V10).

Invariant: plans see a reserved place together with the room that the nomination's victims still use
of it, which becomes free for that nomination alone. For every node it is known which nominations
must be checked after a change.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from itertools import compress, groupby
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from gangsched.core import tree_choices
from gangsched.core.filter import static_fit
from gangsched.core.filter.node_resources_fit import room
from gangsched.core.permit import missing
from gangsched.model.gang import Group, Placement
from gangsched.model.nominated_room import ColumnLayout, Nomination, used_up
from gangsched.model.objects import Pod, Shape
from gangsched.model.preemption import STUCK_S
from gangsched.model.resources import from_dict
from gangsched.model.snapshot import Ints, Snapshot
from gangsched.state.cluster import Cluster
from gangsched.state.member_store import MemberStore
from gangsched.state.members import State
from gangsched.state.preemption.nomination import Fate, NominationRecord, Nominee
from gangsched.state.preemption.room import Placed, Room, RoomClaim

NOTHING: Mapping[str, Nomination] = {}
UNITS_A_CHECK = 250
UNITS_A_PLACE = 12
"""Units of work of checking a nomination, and of sharing out one of its places."""


class _Leaving(NamedTuple):
    """A pod that leaves its node, for a group or anyway (""), and what of its room stands in for no
    place yet. `is_going`: nobody can call it back.
    """

    uid: str
    group: str
    is_going: bool
    left: dict[str, int]


class Promised:
    """Updates the promises in `cluster`; `wall_s` is in epoch seconds. `work` counts units of a
    turn.
    """

    def __init__(
        self,
        members: MemberStore,
        cluster: Cluster,
    ) -> None:
        self.wall_s = 0.0
        self.work = 0
        self._members = members
        self._cluster = cluster

        # By id, by node and id, and by the uid of a victim.
        self._records: dict[str, NominationRecord] = {}
        self._resting: defaultdict[str, dict[str, NominationRecord]] = defaultdict(dict)
        self._victims: dict[str, NominationRecord] = {}

        # Ids of those to which other nodes than their own may matter.
        self._around: set[str] = set()
        # Nodes with other promises than at the last `stale`, and the snapshot of then.
        self._moved: set[str] = set()
        self._last: Snapshot | None = None

        # Nodes whose places were changed since they were shared out, and the snapshot on which they
        # were.
        self._unshared: set[str] = set()
        self._shared: Snapshot | None = None
        #: By key, the nodes of places whose pods have room, until these nominations are settled.
        self._used_up: dict[str, str] = {}

        # Cache: the room on this snapshot, dropped by `changed`.
        self._room: tuple[Snapshot | None, Room | None] = (None, None)

    # --- what is kept ----------------------------------------------------------------------------

    def keep(self, record: NominationRecord) -> None:
        """Promise the room of the record's nominees, and drop its other promises."""
        self._records[record.id] = record
        for uid in record.kept - record.nominees.keys():
            self._show(f"{record.group} {uid}", None)

        record.kept = set(record.nominees)
        on: defaultdict[str, list[Nominee]] = defaultdict(list)
        nodes = {victim.node for victim in record.victims.values()}
        for nominee in record.nominees.values():
            on[nominee.node].append(nominee)
            nodes.add(nominee.node)

        record.nominees_on = on
        for uid in record.awaited:
            node = self._members.node_of(uid)
            if node:
                nodes.add(node)

        before = record.nodes
        self._rest(record, nodes)
        for uid in record.victims:
            self._victims[uid] = record
        if record.looks_around:
            self._around.add(record.id)
        else:
            self._around.discard(record.id)

        self._unshared |= before | nodes

    def drop(self, record: NominationRecord) -> None:
        """Remove the promises of a nomination that has ended."""
        self._records.pop(record.id, None)
        for uid in record.kept:
            key = f"{record.group} {uid}"
            nominee = record.nominees.get(uid)
            taken = nominee is not None and self._members.node_of(uid) == nominee.node
            self._show(key, None, grows=not taken)
            self._used_up.pop(key, None)

        nodes = record.nodes
        self._rest(record, set())

        for uid in record.victims:
            if self._victims.get(uid) is record:
                del self._victims[uid]

        self._around.discard(record.id)
        record.kept = set()
        record.nominees_on = {}
        self._unshared |= nodes
        self.changed()

    def use_up(self, record: NominationRecord, placements: Iterable[Placement]) -> None:
        """Pods of the group were placed: the places that they use up are kept from nobody, as in
        the plan that placed them, until the nomination is settled.
        """
        placed = {placement.pod.uid: placement.node for placement in placements}
        promises = [record.promise(nominee) for nominee in record.nominees.values()]
        for uid in used_up(promises, placed):
            key = f"{record.group} {uid}"
            self._cluster.use_up(key)
            # What leaves for it does so for other places now.
            self._used_up[key] = record.nominees[uid].node
            self._unshared.add(record.nominees[uid].node)

    def forget_used_up(self) -> None:
        """All places that are used up were given up; others are kept again."""
        self._cluster.forget_used_up()
        self._unshared.update(self._used_up.values())
        self._used_up = {}

    def stays(self, uid: str) -> None:
        """Record that a pod is no longer a victim, including in the room that is
        being evaluated.
        """
        self._victims.pop(uid, None)
        self._unshared.add(self._members.node_of(uid))

    def changed(self) -> None:
        """Record that promises or leaving pods have changed."""
        self._room = (None, None)

    def look_at(self, nodes: Set[str]) -> None:
        """Check the nominations that rest on these nodes again."""
        self._moved |= nodes

    def victims(self) -> Set[str]:
        """Uids of all victims, a live view."""
        return self._victims.keys()

    def _rest(
        self,
        record: NominationRecord,
        nodes: set[str],
    ) -> None:
        before = record.nodes
        record.nodes = nodes

        for node in before - nodes:
            del self._resting[node][record.id]
            if not self._resting[node]:
                del self._resting[node]

        for node in nodes:
            self._resting[node][record.id] = record

        if before != nodes:
            self._moved |= before | nodes

    def has_room(
        self,
        record: NominationRecord,
        group: Group,
    ) -> bool:
        """Whether by totals a plan could place the minimum, or a surplus member, at least partly on
        the nominated nodes (V11).

        Members other than the nominated ones may use the promised places. While the nominated nodes
        cannot be used, the group is woken for room elsewhere, like all waiting groups.
        """
        self.follow()
        self.work += UNITS_A_CHECK
        snapshot = self._cluster.snapshot()
        nodes = [node for node in record.nominees_on if node in snapshot.table.index]
        index = [snapshot.table.index[node] for node in nodes]

        surplus: set[Shape] = set()
        lacking: dict[str, tuple[int, Counter[Shape]]] = {}
        for gang in group.gangs:
            surplus.update(pod.shape for pod in gang.unhindered)
            lack = missing(gang, 0)
            if lack:
                counts = Counter(pod.shape for pod in gang.pending)
                lacking[gang.id] = (lack, counts)

        shapes = set(surplus)
        for _, counts in lacking.values():
            shapes.update(counts)

        free = snapshot.free[:, index]
        if not any(_rooms(shape, free, snapshot, index) for shape in shapes):
            # Of the dozen nominations on a node nearly all wait for the first victim to go, and end
            # here.
            return False

        priority = group.lowest_priority
        own = _seen_by(record.group, priority, nodes, snapshot)
        rooms = {shape: _rooms(shape, own, snapshot, index) for shape in shapes}
        if any(rooms[shape] for shape in surplus):
            return True
        if not any(rooms.values()):
            return False

        free = self._cluster.without_promised(priority).free
        for shape in shapes:
            anywhere = _rooms(shape, free, snapshot)
            on_nominated = _rooms(shape, free[:, index], snapshot, index)
            rooms[shape] += anywhere - on_nominated

        fitting = set()
        for gang_id, (lack, counts) in lacking.items():
            members = 0
            for shape, count in counts.items():
                members += min(count, rooms[shape])

            if members >= lack:
                fitting.add(gang_id)

        minimum = tree_choices.needed(group)
        needed = {gang.id for gang in minimum.gangs} & lacking.keys()
        # Of a tree, others than the children that room is made for may start first.
        return needed <= fitting or not fitting <= needed

    def _share_out(self, nodes: Set[str]) -> None:
        """Show the places there with what of each is still in use by pods that leave for it.

        A victim stands in for the places of its own nomination, and what it takes beyond these for
        those of others who wait for it. No room is counted twice: it would be open to everybody as
        soon as part of it comes free.
        """
        for node in nodes & self._resting.keys():
            leaving = [*self._leaving_in_use(node)]
            # The oldest first, so that the place for which a victim stands in stays the same while
            # others begin.
            resting = self._resting[node].values()
            records = sorted(resting, key=lambda record: (-record.priority, record.serial))

            # A plan promises room to a higher priority as if lower ones had been promised none.
            for _, of_priority in groupby(records, key=attrgetter("priority")):
                self._share_among(of_priority, node, leaving)

    def _share_among(
        self,
        records: Iterable[NominationRecord],
        node: str,
        leaving: Sequence[_Leaving],
    ) -> None:
        """Share what leaves, of which less is left by it, among the places on a node of one
        priority.
        """
        victims: defaultdict[str, list[_Leaving]] = defaultdict(list)
        for pod in leaving:
            victims[pod.group].append(pod)

        places = []
        for record in records:
            for nominee in record.nominees_on.get(node, ()):
                key = f"{record.group} {nominee.pod.uid}"
                if key in self._used_up:
                    continue

                # Where no victim leaves, nothing is in use of any place.
                part: dict[str, int] = {}
                _take_from(victims[record.group], part, nominee.pod.shape.requests)
                places.append((key, record, nominee, part))

        self.work += UNITS_A_PLACE * len(places)

        rest = [pod for pod in leaving if any(pod.left.values())]
        for key, record, nominee, part in places:
            if rest and record.awaited:
                # Another nomination may end, and with it the orders for those of its victims whom
                # nobody else waits for.
                sure = [pod for pod in rest if pod.is_going or pod.uid in record.awaited]
                _take_from(sure, part, nominee.pod.shape.requests)

            promise = record.promise(nominee, from_dict(part))
            self._show(key, promise)

    def _leaving_in_use(self, node: str) -> Iterator[_Leaving]:
        """The pods that leave the node, and what they use of it."""
        for uid in self._cluster.residents(node):
            member = self._members.get(uid)
            owner = self._victims.get(uid)
            if member is None or self.is_stuck(member.pod):
                continue

            is_going = member.state is State.TERMINATING
            if owner is None and not is_going:
                continue

            group = owner.group if owner is not None else ""
            amounts: dict[str, int] = {}
            for name, amount in member.pod.shape.requests:
                amounts[name] = amounts.get(name, 0) + amount

            yield _Leaving(uid, group, is_going, amounts)

    def _show(
        self,
        key: str,
        promise: Nomination | None,
        *,
        grows: bool = True,
    ) -> None:
        self._cluster.nominate(key, promise, grows=grows)

    # --- what must be checked --------------------------------------------------------------------

    def follow(self) -> None:
        """Distribute the free room again among the places on nodes whose pods or promises changed
        since the last call.

        All changes are handled in one call, because one plan may begin and end hundreds of
        nominations on the same nodes.
        """
        if not self._resting:
            self._shared = None
            self._unshared.clear()
            return

        nodes = self._unshared
        self._unshared = set()
        snapshot = self._cluster.snapshot()
        before = self._shared
        self._shared = snapshot

        if before is not None and before.table is not snapshot.table:
            nodes.update(self._resting)
        elif before is not None and before.pods_by_node is not snapshot.pods_by_node:
            nodes.update(_with_other_pods(before, snapshot))

        self._share_out(nodes)

    def stale(self) -> dict[str, set[str]]:
        """By the id of a nomination, the nodes that it depends on and that changed since the last
        call.

        An empty set means that any node may matter. A nomination that no change affects is left
        out.
        """
        if not self._records:  # a snapshot that nobody else needs costs a copy of all columns
            self._moved = set()
            self._last = None
            return {}

        snapshot = self._cluster.snapshot()
        last = self._last
        moved = self._moved
        self._moved = set()
        self._last = snapshot

        if last is snapshot and not moved:
            return {}
        # A new table has other nodes or labels, and terms of pods may reject a member anywhere in
        # their domain.
        if last is None or last.table is not snapshot.table or snapshot.pods_by_node.terms.owners:
            return {record: set() for record in self._records}

        moved.update(_with_other_pods(last, snapshot))
        moved |= _resized(self._resting, last, snapshot)

        before = _of_others(last)
        after = _of_others(snapshot)
        if before is not after:
            differing = {*_by_node(before)} ^ {*_by_node(after)}
            moved.update(node for node, _, _ in differing)

        stale: defaultdict[str, set[str]] = defaultdict(set)
        for node in moved & self._resting.keys():
            for record_id in self._resting[node]:
                stale[record_id].add(node)

        for record_id in self._around:
            stale[record_id] = set()

        return dict(stale)

    def room(self) -> Room:
        """The room when all promises are fulfilled, on the current snapshot."""
        snapshot = self._cluster.snapshot()
        known, room = self._room
        if room is None or known is not snapshot:
            room = Room(snapshot, self, self._cluster.counts)
            self._room = snapshot, room

        return room

    def unplaced(
        self,
        record: NominationRecord,
        nodes: Set[str] = frozenset(),
    ) -> list[Placement]:
        """Nominated members that have no room of their own yet; if `nodes` are given, only members
        nominated to them.
        """
        placements: Iterable[Placement] = record.placements
        if nodes:
            placements = []
            for node in nodes:
                for nominee in record.nominees_on.get(node, ()):
                    if nominee.vacant_s is None:
                        placements.append(nominee.placement)

        return [
            placement for placement in placements if not self._members.node_of(placement.pod.uid)
        ]

    def is_stuck(self, pod: Pod) -> bool:
        """Whether a pod should have terminated long ago."""
        return bool(pod.deletion_s) and self.wall_s >= pod.deletion_s + STUCK_S

    def was_evicted(
        self,
        record: NominationRecord,
        uid: str,
    ) -> bool:
        """Whether gangsched evicted the victim; the watch may show the eviction before the API
        server answers it.
        """
        fate = record.fates[uid]
        if fate is Fate.EVICTED:
            return True
        if fate is not Fate.ORDERED:
            return False

        member = self._members.get(uid)
        return member is not None and member.pod.deleting

    def goes(
        self,
        record: NominationRecord,
        uid: str,
    ) -> bool:
        """Whether the victim goes though the nomination is lost."""
        return self.was_evicted(record, uid) or record.may_go(uid)

    def heir(
        self,
        record: NominationRecord,
        uid: str,
    ) -> NominationRecord | None:
        """Another nomination that needs this victim of `record` and may evict it itself."""
        victim = record.victims[uid]
        others = self._resting.get(victim.node, {})
        for other in others.values():
            if other is record or other.lost:
                continue
            if uid not in other.awaited:
                continue

            if victim.priority < other.lowest_priority + victim.overdue:
                return other

        return None

    # --- what `Room` asks ------------------------------------------------------------------------

    def nodes(self) -> Iterable[str]:
        """All nodes that a nomination depends on."""
        return list(self._resting)

    def places_on(self, node: str) -> Iterator[tuple[RoomClaim, Placement]]:
        """Members that are nominated to the node."""
        for record in self._resting.get(node, {}).values():
            if record.lost:
                continue

            for nominee in record.nominees_on.get(node, ()):
                if nominee.vacant_s is None and not self._members.node_of(nominee.pod.uid):
                    yield record, nominee.placement

    def leaving(self, node: str) -> Iterator[Placed]:
        """Pods on the node that terminate or will be evicted."""
        for uid in self._cluster.residents(node):
            member = self._members.get(uid)
            if member is None or self.is_stuck(member.pod):
                continue

            record = self._victims.get(uid)

            # What a lost nomination has not evicted stays, unless it goes with others, or another
            # nomination waits for it and evicts it in its place.
            if member.state is State.TERMINATING:
                yield member.pod, node
                continue
            if record is None:
                continue

            is_spared = record.lost and not self.goes(record, uid)
            if not is_spared or self.heir(record, uid):
                yield member.pod, node

    def returning(self, claim: RoomClaim) -> Iterator[Placed]:
        """Victims of the claim that were not evicted and that no other nomination needs."""
        assert isinstance(claim, NominationRecord)
        for uid in claim.victims:
            member = self._members.get(uid)
            if member is None or not member.node:
                continue
            if member.state is State.TERMINATING or self.goes(claim, uid):
                continue

            if self.heir(claim, uid) is None:
                yield member.pod, member.node


def _seen_by(
    group: str,
    priority: int,
    nodes: Sequence[str],
    snapshot: Snapshot,
) -> Ints:
    """`free[r][n]` on these nodes as a plan has it for the group, whose own promises do not
    restrict it.
    """
    promises = snapshot.nominated
    index = [snapshot.table.index[node] for node in nodes]
    free = snapshot.free[:, index]

    for level in promises.levels:
        if level.priority >= priority:
            free -= level.asked[:, index] - level.in_use[:, index]

    asked = []
    freed = []
    for nomination in promises.by_group.get(group, NOTHING).values():
        if nomination.pod.priority >= priority:
            asked.append((nomination.node, nomination.pod.shape.requests))
            freed.append((nomination.node, nomination.freed))

    columns = {node: number for number, node in enumerate(nodes)}
    layout = ColumnLayout(snapshot.resources, columns)
    free += layout.sums(asked)
    free -= layout.sums(freed)

    return free


def _with_other_pods(
    before: Snapshot,
    snapshot: Snapshot,
) -> list[str]:
    """The nodes whose pods have changed; the node table is the same."""
    differs = before.pods_by_node.versions != snapshot.pods_by_node.versions
    names = snapshot.table.names
    changed = np.flatnonzero(differs)
    return [names[node] for node in changed.tolist()]


def _resized(
    nodes: Iterable[str],
    last: Snapshot,
    snapshot: Snapshot,
) -> set[str]:
    """Of these nodes, those that offer other amounts than before; the node table is the same."""
    index = snapshot.table.index
    names = [node for node in nodes if node in index]
    if last.resources != snapshot.resources:
        return set(names)

    columns = [index[node] for node in names]
    before = last.allocatable[:, columns]
    after = snapshot.allocatable[:, columns]
    differs = (before != after).any(axis=0)

    return set(compress(names, differs))


def _of_others(snapshot: Snapshot) -> Mapping[str, Nomination]:
    return snapshot.nominated.by_group.get("", NOTHING)


def _by_node(nominations: Mapping[str, Nomination]) -> Iterator[tuple[str, str, int]]:
    for nomination in nominations.values():
        yield nomination.node, nomination.pod.uid, nomination.pod.priority


def _take(
    available: dict[str, int],
    asked: Iterable[tuple[str, int]],
) -> dict[str, int]:
    """As much of what is asked as is available, which is less by it."""
    part = {}
    for name, amount in asked:
        least = min(amount, available.get(name, 0))
        if least > 0:
            part[name] = least

    for name, amount in part.items():
        available[name] -= amount

    return part


def _take_from(
    leaving: list[_Leaving],
    part: dict[str, int],
    asked: Sequence[tuple[str, int]],
) -> None:
    """Add to `part` of what is asked as much as it lacks and these pods leave; those of which
    nothing is left are dropped.
    """
    for pod in [*leaving]:
        lacks = []
        for name, amount in asked:
            if amount > part.get(name, 0):
                lacks.append((name, amount - part.get(name, 0)))

        if not lacks:
            break

        for name, amount in _take(pod.left, lacks).items():
            part[name] = part.get(name, 0) + amount

        if not any(pod.left.values()):
            leaving.remove(pod)


def _rooms(
    shape: Shape,
    free: Ints,
    snapshot: Snapshot,
    index: Sequence[int] | slice = slice(None),
) -> int:
    """How many pods of the shape those nodes take that it may use; `free` has the columns of
    `index` only.
    """
    mask = static_fit(shape, snapshot.table).mask[index]
    pods = room(shape, free, snapshot.resources)
    return int(pods[mask].sum())
