"""Devices of the cluster by node, cached across plans: pools, devices held by claims, and the
number of pods that each node has devices for.

Invariant: a cached result about a node is valid while its pools, and the claims that hold its
devices, are unchanged. State changes only by `apply`, `drop`, `rule` and `hold`. Results about
joint pools, which several nodes can use, are dropped when any of these pools changes
(`_forget_joint`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Final, TypeAlias

import numpy as np

from gangsched.core.devices.device_faults import DeviceFault, DevicesUnsupported
from gangsched.core.devices.device_room import DeviceRooms
from gangsched.core.devices.extended import served_by
from gangsched.core.devices.held import Use
from gangsched.core.devices.holders import Holders
from gangsched.core.devices.located import (
    EVERY_NODE,
    DeviceKind,
    KindColumn,
    Located,
    NodeRoom,
    home,
    matcher,
    may_use,
    questions_about,
)
from gangsched.core.devices.pools import Pool, PoolId, SliceIndex, in_order
from gangsched.core.devices.questions import Questions
from gangsched.core.devices.search import MOST_STEPS, DeviceSearch, SearchEnded
from gangsched.core.devices.states import States
from gangsched.core.devices.views import ClaimPlace, Matching, Views, cut, reachable_from
from gangsched.model.devices import (
    DeviceClaim,
    DeviceClass,
    DeviceResult,
    DeviceTaintRule,
    ResourceSlice,
)
from gangsched.model.objects import NodeSelectorTerm
from gangsched.model.snapshot import Bools, Ints, NodeTable
from kubernetes_cel.selectors import SelectorAnswers

UNKNOWN: Final = -1
"""In a column: the node has not been searched."""
MOST_PODS: Final = 110
"""Pods of one kind that a node is asked for: as many as kubelets run unless they are told
otherwise.
"""
_MOST_KINDS: Final = 1_000
_MOST_ROOMS: Final = 500_000
_MOST_CHANGES: Final = 100_000
_MOST_BESIDE: Final = 20_000

Beside: TypeAlias = "tuple[tuple[Located, ...], Located, frozenset[str], int]"
"""What was searched: placed items, the item, the claims that are freed, and for how many pods."""
Solution: TypeAlias = tuple[tuple[tuple[DeviceResult, ...], ...], ...]
"""By pod and claim, the devices."""


class DeviceIndex:
    """Devices by node. `searches` counts the searched nodes. Methods that change it return the
    affected nodes.
    """

    def __init__(self) -> None:
        self.classes: dict[str, DeviceClass] = {}
        #: Names of the classes that serve extended resources, by resource.
        self.extended: Mapping[str, str] = {}
        self.searches = 0
        self.slices = SliceIndex()
        self._rules: dict[str, DeviceTaintRule] = {}
        self._answers = SelectorAnswers()
        self._rooms = DeviceRooms()
        self._pools: dict[str, tuple[Pool, ...]] = {}
        self.holders = Holders()
        self._kinds: dict[tuple[DeviceClaim, ...], DeviceKind] = {}
        self._columns: dict[DeviceKind, KindColumn] = {}
        self._solutions: dict[
            str, dict[tuple[tuple[Located, ...], frozenset[str]], Solution | None]
        ] = {}
        self.beside: dict[str, dict[Beside, NodeRoom]] = {}  # by node, as `_solutions`
        self.lasting = Holders()  # claims of pods that end with their node
        self.emptied: DeviceIndex | None = None  # see `core.devices.emptied`

        # A log instead of a set per column: each column remembers how far it has read
        # (`KindColumn.changes`).
        self._changes: list[str] = []  # nodes, one by one
        self._had_joint: frozenset[PoolId] = frozenset()
        self._views: Views | None = None
        self._viewed: NodeTable | None = None
        self._entire: dict[PoolId, Pool] = {}
        self.invalid: set[str] = set()  # nodes, of those whose pools were asked for

    # --- what changes ----------------------------------------------------------------------------

    def apply(self, item: ResourceSlice | DeviceClass | DeviceTaintRule) -> set[str]:
        """Add or replace an object."""
        if isinstance(item, ResourceSlice):
            return self._sliced(self.slices.apply(item), (item.driver, item.pool))

        if isinstance(item, DeviceClass):
            self.classes[item.name] = item
            return self._reclassified()

        self._rules[item.name] = item
        return self._rule()

    def drop(self, kind: type, name: str) -> set[str]:
        """Remove a deleted object."""
        if kind is ResourceSlice:
            pool = self.slices.pool_of(name)
            return self._sliced(self.slices.drop(name), pool)

        if kind is DeviceClass:
            self.classes.pop(name, None)
            return self._reclassified()

        self._rules.pop(name, None)
        return self._rule()

    def replace(
        self,
        kind: type,
        items: Iterable[ResourceSlice | DeviceClass | DeviceTaintRule],
    ) -> set[str]:
        """Replace all objects of a kind."""
        listed = {item.name: item for item in items}
        changed = set()
        for name in self._names(kind) - listed.keys():
            changed |= self.drop(kind, name)

        for item in listed.values():
            changed |= self.apply(item)

        return changed

    def _names(self, kind: type) -> set[str]:
        """The names of the known objects of a kind."""
        if kind is ResourceSlice:
            return {*self.slices.names()}
        if kind is DeviceClass:
            return {*self.classes}

        return {*self._rules}

    def hold(
        self,
        claim: str,
        results: tuple[DeviceResult, ...],
        *,
        is_lasting: bool = False,
    ) -> tuple[set[str], bool]:
        """Record the devices that a claim holds, () for none. Return the affected nodes, and True
        if the claim released a device. `is_lasting`: the claim holds them as long as its node
        exists.
        """
        lasting = results if is_lasting else ()
        if self.lasting.hold(claim, lasting) != lasting:
            self.emptied = None

        before = self.holders.hold(claim, results)
        if results == before:
            return set(), False

        pools = set()
        for result in (*before, *results):
            pools.add(result.id[:2])

        # A pool without a home is reached by several nodes; EVERY_NODE below stands for all of
        # them.
        homes = {self.slices.home(pool) for pool in pools} - {""}

        if not self.slices.joint.isdisjoint(pools):
            homes.add(EVERY_NODE)
            self._forget_joint(slices=False)

        # The slices are unchanged, so the pools stay cached; only rooms and solutions depend on who
        # holds what.
        return self._changed(homes, pools=False), not set(results).issuperset(before)

    def rival(self, claim: str, results: Iterable[DeviceResult]) -> str:
        """Describe the first of these devices of a claim that another claim holds as well; "" if
        there is none.
        """
        results = [result for result in results if not result.admin]
        pool_ids = sorted({result.id[:2] for result in results})
        pools = [self._whole(pool_id) for pool_id in pool_ids]
        return self.holders.rival(claim, results, pools)

    def required(
        self,
        results: Iterable[DeviceResult],
        node: str,
    ) -> tuple[NodeSelectorTerm, ...] | None:
        """Selector terms of the nodes that can use these devices, chosen on `node`; None for all
        nodes.
        """
        devices = {}
        for pool_id in {result.id[:2] for result in results}:
            for device in self._whole(pool_id).devices:
                devices[device.id] = device

        chosen = [devices[result.id] for result in results if result.id in devices]
        return reachable_from(chosen, node)

    def _whole(self, pool: PoolId) -> Pool:
        if pool not in self._entire:
            self._entire[pool] = self.slices.entire(pool)

        return self._entire[pool]

    def _sliced(
        self,
        nodes: set[str],
        pool: PoolId,
    ) -> set[str]:
        """A slice of the pool changed, and perhaps the pools that these nodes have
        for themselves.
        """
        self._entire.pop(pool, None)
        # Both sides of the change: the slice may have made the pool joint, or ended that.
        was_joint = self._had_joint
        self._had_joint = frozenset(self.slices.joint)
        changed = self._other(nodes)

        if pool in was_joint | self._had_joint:
            self._forget_joint()
            changed |= {EVERY_NODE}

        return self._changed(changed)

    def _forget_joint(self, *, slices: bool = True) -> None:
        if slices:
            # Views depend on the slices alone. A claim that comes or goes changes what is free, not
            # what nodes see.
            self._views = self._viewed = self.emptied = None

        self._solutions.pop(EVERY_NODE, None)
        self.beside.pop(EVERY_NODE, None)

        for column in self._columns.values():
            column.joint.clear()
            if slices:
                column.uses.clear()

    def _other(self, nodes: set[str]) -> set[str]:
        """Those of the nodes whose pools differ from what is known: drivers rewrite slices that did
        not change.
        """
        other: set[str] = set()
        for node in nodes:
            if node not in self._pools:
                other.add(node)
                continue

            # Comparing content costs less than waking every group that waits for devices: 20
            # rewrites took 3.6 s of CPU with 500 waiting gangs, and take 0.08 s now.
            before = [pool.content for pool in self._pools[node]]
            after = [pool.content for pool in self.slices.local_pools(node)]
            if before != after:
                other.add(node)

        return other

    def _rule(self) -> set[str]:
        self.slices.rules = tuple(self._rules.values())
        self._entire.clear()
        self._forget_joint()

        return self._changed({*self.slices.nodes(), EVERY_NODE})

    def _reclassified(self) -> set[str]:
        self.extended = served_by(self.classes.values())
        self.emptied = None
        self._columns.clear()
        self._solutions.clear()
        self.beside.clear()

        return {*self.slices.nodes(), EVERY_NODE}

    def _changed(
        self,
        nodes: set[str],
        *,
        pools: bool = True,
    ) -> set[str]:
        for node in (*nodes, EVERY_NODE):  # what is of several nodes may be of these, too
            self._solutions.pop(node, None)
            self.beside.pop(node, None)

        if pools:
            if self.emptied is not None:
                self.emptied._changed(nodes)

            for node in nodes:
                self._pools.pop(node, None)

        # Dropping all columns costs less than removing a hundred thousand entries one by one.
        are_many = len(nodes) * len(self._columns) >= _MOST_CHANGES
        if not are_many:
            for column in self._columns.values():
                _forget(column, nodes, uses=pools)

        self._changes += nodes
        if are_many or len(self._changes) > _MOST_CHANGES:
            self._columns.clear()
            self._changes.clear()

        return nodes

    # --- what is asked ---------------------------------------------------------------------------

    def kind(self, claims: Iterable[DeviceClaim]) -> DeviceKind:
        """The `DeviceKind` of these claims; equal kinds are the same object."""
        nameless = []
        for number, claim in enumerate(claims):
            # Without names, equal requests of different pods share one column; `DeviceKind.named`
            # puts the names back.
            asked = DeviceClaim(
                name=f"#{number}",
                requests=claim.requests,
                constraints=claim.constraints,
                unknown=claim.unknown,
            )
            nameless.append(asked)

        if len(self._kinds) > _MOST_KINDS:
            self._kinds.clear()
            self._columns.clear()

        key = tuple(nameless)
        return self._kinds.setdefault(key, DeviceKind(key))

    def column(self, kind: DeviceKind, table: NodeTable) -> Ints:
        """`room[node]`: number of pods of this kind for which the node has free devices; `UNKNOWN`
        for nodes not yet searched. Read-only.
        """
        column = self._column(kind)
        with_devices = self.slices.nodes()
        if column.table is not table:
            column.table = table
            column.array = np.zeros(len(table), dtype=np.int64)

            for node in with_devices:
                if node in table.index:
                    known = column.rooms.get(node)
                    column.array[table.index[node]] = UNKNOWN if known is None else known.pods
        else:
            for node in self._changes[column.changes :]:
                if node in table.index and node not in column.rooms:
                    column.array[table.index[node]] = UNKNOWN if node in with_devices else 0

        column.changes = len(self._changes)
        return column.array

    def known(self, kind: DeviceKind, place: ClaimPlace) -> NodeRoom | None:
        """The cached room of a place; None if it was not searched."""
        column = self._columns.get(kind)
        if column is None:
            return None
        if place.views:
            return column.joint.get(place.node, {}).get(place)

        return column.rooms.get(place.node)

    def faults(self, kind: DeviceKind) -> list[tuple[str, NodeRoom]]:
        """Nodes, by name, on which an error of the kind itself prevents allocation, each with its
        `NodeRoom`.
        """
        column = self._columns.get(kind)
        if column is None or not column.faults:
            return []

        faults: list[tuple[str, NodeRoom]] = []
        for node in sorted(column.faults):
            room = column.rooms.get(node)
            if room is not None and room.fault:
                faults.append((node, room))

        column.faults = {node for node, _ in faults}
        return faults

    def search(self, kind: DeviceKind, place: ClaimPlace) -> tuple[NodeRoom, int]:
        """Search the room of a place. Also return the number of steps."""
        self.searches += 1
        column = self._column(kind)
        questions, _ = self._about(((kind, place),))
        use = Use(questions.pools, self.holders.held(questions.pools))

        try:
            result = self._rooms.room(questions, use, kind.claims, MOST_PODS)
            room = _room(result.pods, result.ended)
            steps = result.steps
        except DeviceFault as fault:
            unsupported = isinstance(fault, DevicesUnsupported)
            room = NodeRoom(0, fault=str(fault), unsupported=unsupported)
            steps = len(questions.devices)

        node = place.node
        # Rooms of joint places are not in `array`: one search answers for all nodes with the same
        # view.
        if place.views:
            rooms = column.joint.setdefault(node, {})
            rooms[place] = room
            return room, steps

        column.rooms[node] = room
        if room.fault:
            column.faults.add(node)

        if column.table is not None and node in column.table.index:
            column.array[column.table.index[node]] = room.pods

        return room, steps

    def known_beside(
        self,
        placed: tuple[Located, ...],
        item: Located,
        without: frozenset[str],
        most: int,
    ) -> NodeRoom | None:
        """The cached result of `search_beside`; None if anything has changed since then."""
        rooms = self.beside.get(home((*placed, item)), {})
        return rooms.get((placed, item, without, most))

    def search_beside(
        self,
        placed: tuple[Located, ...],
        item: Located,
        without: frozenset[str],
        most: int,
    ) -> tuple[NodeRoom, int]:
        """Search the room for at most `most` pods of `item` in addition to `placed`, whose devices
        are not chosen yet, as if the claims `without` held none. Cached for `known_beside`. Also
        return the number of steps.
        """
        self.searches += 1
        room, steps = self._beside(placed, item, without, most)

        rooms = self.beside.setdefault(home((*placed, item)), {})
        if len(rooms) > _MOST_BESIDE:
            rooms.clear()

        rooms[placed, item, without, most] = room
        return room, steps

    def _beside(
        self,
        placed: tuple[Located, ...],
        item: Located,
        without: frozenset[str],
        most: int,
    ) -> tuple[NodeRoom, int]:
        questions, claims = self._about((*placed, item))
        try:
            states = self._states(questions, claims, without)
            # An upper bound first: to search for 110 pods on a node with 8 free devices would waste
            # steps.
            *of_placed, of_item = claims
            most = states.at_most(of_item, most)
            search = DeviceSearch(states, of_placed + [of_item] * most)
        except DeviceFault:
            return NodeRoom(0), len(questions.devices)

        ended = False
        try:
            search.found()
        except SearchEnded:
            ended = True
        except DeviceFault:
            return NodeRoom(0), MOST_STEPS - search.left

        pods = max(0, search.deepest - len(placed))
        steps = MOST_STEPS - search.left + states.steps
        return _room(pods, ended), steps

    def is_solved(
        self,
        placed: tuple[Located, ...],
        without: frozenset[str],
    ) -> bool:
        """Whether `solve` was called for these pods since the last change, even if it found no
        solution.
        """
        solutions = self._solutions.get(home(placed), {})
        return (placed, without) in solutions

    def solution(
        self,
        placed: tuple[Located, ...],
        without: frozenset[str],
    ) -> Solution | None:
        """The first solution for these pods; None if `solve` was not called or found none."""
        solutions = self._solutions.get(home(placed), {})
        return solutions.get((placed, without))

    def solve(
        self,
        placed: tuple[Located, ...],
        without: frozenset[str],
    ) -> int:
        """Choose devices for all these pods together; return the number of steps."""
        self.searches += 1
        solution, steps = self._solved(placed, without)
        solutions = self._solutions.setdefault(home(placed), {})
        solutions[placed, without] = solution

        return steps

    def _solved(
        self,
        placed: tuple[Located, ...],
        without: frozenset[str],
    ) -> tuple[Solution | None, int]:
        questions, claims = self._about(placed)
        try:
            states = self._states(questions, claims, without)
            search = DeviceSearch(states, claims)
        except DeviceFault:
            return None, len(questions.devices)

        try:
            is_found = search.found()
        except (DeviceFault, SearchEnded):
            # A search in vain is remembered, too: seed 3903 made the same search in 400 plans
            # (decision 0101).
            is_found = False

        steps = MOST_STEPS - search.left + states.steps
        if not is_found:
            return None, steps

        # One after the other, in the order of pods and of their claims.
        results = iter(search.results())
        solution = []
        for kind, _ in placed:
            of_pod = tuple(next(results) for _ in kind.claims)
            solution.append(of_pod)

        return tuple(solution), steps

    def _about(self, items: Sequence[Located]) -> tuple[Questions, list[tuple[DeviceClaim, ...]]]:
        return questions_about(items, self._pools_for, self.classes, self._answers)

    def _states(
        self,
        questions: Questions,
        claims: Iterable[Sequence[DeviceClaim]],
        without: frozenset[str],
    ) -> States:
        use = Use(questions.pools, self.holders.held(questions.pools, without))
        distinct = {}
        for own in claims:
            for claim in own:
                distinct[id(claim)] = claim

        return States(questions, use, distinct.values(), {})

    # --- pools -----------------------------------------------------------------------------------

    def is_viewed(self, table: NodeTable) -> bool:
        """Whether `views` of this table are cached or not needed."""
        if not self.slices.joint:
            return True

        return self._viewed is table and self._views is not None

    def views(self, table: NodeTable, matching: Matching) -> Views | None:
        """The nodes' views of pools that several nodes can use; None if there are no such pools."""
        if not self.slices.joint:
            return None

        if self._viewed is not table or self._views is None:
            before = self._views
            self._views = Views(self.slices, table, matching)
            if before is None or before.scopes_of != self._views.scopes_of:
                self._forget_joint(slices=False)
                for column in self._columns.values():
                    column.uses.clear()

            self._viewed = table

        return self._views

    def uses(self, kind: DeviceKind, place: ClaimPlace) -> bool:
        """Whether pods of the kind may use devices of the place: a request matches one, or an error
        occurs there.
        """
        known = self._column(kind).uses.setdefault(place.node, {})
        if place not in known:
            self.searches += 1
            questions = Questions(self.pools_at(place), self.classes, self._answers)
            known[place] = any(may_use(questions, claim) for claim in kind.claims)

        return known[place]

    def is_known(self, kind: DeviceKind, place: ClaimPlace) -> bool:
        """Whether `uses` has a cached result for this place."""
        return place in self._column(kind).uses.get(place.node, {})

    def pools_at(self, place: ClaimPlace) -> tuple[Pool, ...]:
        """All pools that are visible at a place."""
        own = self.pools(place.node) if place.node else ()
        if not place.views or self._views is None:
            return own

        return in_order((*own, *self._views.pools(place.views)))

    def _pools_for(
        self,
        place: ClaimPlace,
        kinds: Iterable[DeviceKind],
    ) -> tuple[Pool, ...]:
        """The pools that pods of these kinds are asked about there."""
        if not place.views or self._views is None:
            return self.pools_at(place)

        matches = matcher(kinds, self.classes, self._answers)
        # A search takes at most 150 devices of joint pools; a network pool may have thousands
        # (decision 0096).
        joint = cut(self._views.pools(place.views), self.holders.has, matches)
        return in_order((*self.pools_at(ClaimPlace(place.node)), *joint))

    def pure_on(self, kind: DeviceKind, table: NodeTable) -> Bools:
        """`pure[node]`: pods of the kind are known not to use devices that belong to this node
        alone.
        """
        uses = self._column(kind).uses
        pure = []
        for name in table.names:
            of_node = uses.get(name, {})
            pure.append(of_node.get(ClaimPlace(name)) is False)

        return np.array(pure, dtype=np.bool_)

    def pools(self, node: str) -> tuple[Pool, ...]:
        """The pools that belong to one node alone."""
        pools = self._pools.get(node)
        if pools is None:
            pools = self.slices.local_pools(node)
            self._pools[node] = pools
            if any(pool.invalid for pool in pools):
                self.invalid.add(node)
            else:
                self.invalid.discard(node)

        return pools

    def unread(self, nodes: Iterable[str]) -> list[str]:
        """The nodes whose pools have not been read yet."""
        return [node for node in nodes if node not in self._pools]

    def _column(self, kind: DeviceKind) -> KindColumn:
        """The column of a kind; those used last are kept."""
        # pop and insert make the dict an LRU list: its first key is the column that was not used
        # for longest.
        column = self._columns.pop(kind, None) or KindColumn()
        self._columns[kind] = column

        most = max(8, _MOST_ROOMS // max(1, len(self.slices.nodes())))
        while len(self._columns) > most:
            del self._columns[next(iter(self._columns))]

        return column


def _forget(column: KindColumn, nodes: Iterable[str], *, uses: bool) -> None:
    """Drop what a column knows of these nodes; with `uses`, their pools have changed as well."""
    for node in nodes:
        column.rooms.pop(node, None)
        column.joint.pop(node, None)
        if uses:
            column.uses.pop(node, None)


@cache
def _room(pods: int, ended: bool) -> NodeRoom:
    """Equal rooms are one object: columns have half a million of them, which the garbage collector
    looks through.
    """
    return NodeRoom(pods, ended)
