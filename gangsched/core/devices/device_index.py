"""Devices of the cluster by node, kept from plan to plan: pools, devices held by claims, and how many pods each node
has devices for.

Invariant: a cached result about a node is used while its pools, and the claims that hold their devices, are unchanged.
State changes only by `apply`, `drop`, `rule` and `hold`. Only pools that belong to a single node are used.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from gangsched.core.devices.cel.selectors import SelectorAnswers
from gangsched.core.devices.device_faults import DeviceFault, DevicesUnsupported
from gangsched.core.devices.device_room import DeviceRooms
from gangsched.core.devices.extended import served_by
from gangsched.core.devices.held import Held, Use
from gangsched.core.devices.pools import Pool, PoolDevice, SliceIndex
from gangsched.core.devices.questions import Questions
from gangsched.core.devices.search import MOST_STEPS, DeviceSearch, SearchEnded
from gangsched.core.devices.states import States
from gangsched.model.devices import (
    ALL,
    DeviceClaim,
    DeviceClass,
    DeviceId,
    DeviceResult,
    DeviceTaintRule,
    ResourceSlice,
)
from gangsched.model.snapshot import Ints, NodeTable

UNKNOWN: Final = -1
"""In a column: the node has not been searched."""
MOST_PODS: Final = 110
"""Pods of one kind that a node is asked for: as many as kubelets run unless they are told otherwise."""
_MOST_KINDS: Final = 1_000
_MOST_ROOMS: Final = 500_000
_MOST_CHANGES: Final = 100_000
_MOST_JOINT: Final = 1_000
"""Devices of shared pools of which it is found out whether a request for all devices means them."""


Solution: TypeAlias = tuple[tuple[tuple[DeviceResult, ...], ...], ...]
"""By pod and claim, the devices."""


@dataclass(frozen=True, slots=True, eq=False)
class DeviceKind:
    """Requests of a pod's claims, without names: claim number n is named `#n`. Equal kinds are the same object."""

    claims: tuple[DeviceClaim, ...]

    def named(self, text: str, claims: Sequence[str]) -> str:
        """Replace the placeholders `#n` in a message with the names of a pod's claims."""
        for number, name in enumerate(claims):
            text = text.replace(f"claim /#{number}", f"claim {name}")
        return text


class NodeRoom(NamedTuple):
    """There are devices for `pods` pods together. `ended`: the search ended early. `fault`: why such a pod cannot get
    devices.
    """

    pods: int
    ended: bool = False
    fault: str = ""
    unsupported: bool = False


@dataclass(slots=True, eq=False)
class _KindColumn:
    """Rooms of one kind by node, of which `array` has those of the nodes of a table, as of so many `changes`.

    `faults` are the nodes with one, some of them perhaps no more.
    """

    rooms: dict[str, NodeRoom] = field(default_factory=dict)
    faults: set[str] = field(default_factory=set)
    table: NodeTable | None = None
    array: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    changes: int = 0


class DeviceIndex:
    """Devices by node. `searches` counts the searched nodes. Methods that change something return the nodes
    concerned.
    """

    def __init__(self) -> None:
        self.classes: dict[str, DeviceClass] = {}
        #: Names of the classes that serve extended resources, by resource.
        self.extended: Mapping[str, str] = {}
        self.searches = 0
        self._slices = SliceIndex()
        self._rules: dict[str, DeviceTaintRule] = {}
        self._answers = SelectorAnswers()
        self._rooms = DeviceRooms()
        self._pools: dict[str, tuple[Pool, ...]] = {}
        self._results: dict[str, tuple[DeviceResult, ...]] = {}  # by claim
        self._holders: dict[DeviceId, dict[str, tuple[DeviceResult, ...]]] = defaultdict(dict)
        self._kinds: dict[tuple[DeviceClaim, ...], DeviceKind] = {}
        self._columns: dict[DeviceKind, _KindColumn] = {}
        self._solutions: dict[str, dict[tuple[tuple[DeviceKind, ...], frozenset[str]], Solution | None]] = {}
        self._changes: list[str] = []  # nodes, one by one
        self._joint: tuple[PoolDevice, ...] | None = None
        self.invalid: set[str] = set()  # nodes, of those whose pools were asked for

    # --- what changes -----------------------------------------------------------------------------------------------

    def apply(self, item: ResourceSlice | DeviceClass | DeviceTaintRule) -> set[str]:
        """Add or replace an object."""
        if isinstance(item, ResourceSlice):
            return self._changed(self._other(self._slices.apply(item)))
        if isinstance(item, DeviceClass):
            self.classes[item.name] = item
            return self._reclassified()
        self._rules[item.name] = item
        return self._rule()

    def drop(self, kind: type, name: str) -> set[str]:
        """Remove a deleted object."""
        if kind is ResourceSlice:
            return self._changed(self._other(self._slices.drop(name)))
        if kind is DeviceClass:
            self.classes.pop(name, None)
            return self._reclassified()
        self._rules.pop(name, None)
        return self._rule()

    def replace(self, kind: type, items: Iterable[ResourceSlice | DeviceClass | DeviceTaintRule]) -> set[str]:
        """Replace all objects of a kind."""
        listed = {item.name: item for item in items}
        known = {*(self._slices.names() if kind is ResourceSlice else ())}
        known |= self.classes.keys() if kind is DeviceClass else set()
        known |= self._rules.keys() if kind is DeviceTaintRule else set()
        changed = {node for name in known - listed.keys() for node in self.drop(kind, name)}
        return changed.union(*(self.apply(item) for item in listed.values()))

    def hold(self, claim: str, results: tuple[DeviceResult, ...]) -> tuple[set[str], bool]:
        """Record the devices that a claim holds, () for none. Also return whether it no longer holds a device that it
        held before.
        """
        before = self._results.get(claim, ())
        if results == before:
            return set(), False
        for each in before:
            self._holders[each.id].pop(claim, None)
            if not self._holders[each.id]:
                del self._holders[each.id]
        self._results.pop(claim, None)
        if results:
            self._results[claim] = results
        for each in results:
            self._holders[each.id][claim] = tuple(other for other in results if other.id == each.id)
        homes = {self._slices.home(each.id[:2]) for each in (*before, *results)} - {""}
        return self._changed(homes, pools=False), not set(results).issuperset(before)

    def rival(self, claim: str, results: Iterable[DeviceResult], node: str) -> str:
        """The claim that holds devices of a node which another claim holds as well, "" for none."""
        use = Use(self.pools(node), self.held(self.pools(node)))
        index = {each.id: at for at, each in enumerate(use.devices)}
        for each in results:
            if each.admin:
                continue
            name, at = "/".join(each.id), index.get(each.id)
            holders = self._holders.get(each.id, {})
            others = [key for key, had in holders.items() if key != claim and not all(one.admin for one in had)]
            if others and not each.share:
                return f"device {name} is also allocated to {min(others)}"
            if at is None:
                continue
            nothing = dict.fromkeys(use.devices[at].device.capacity, 0)
            if use.devices[at].pool in use.overdrawn or not use.has_amounts(at, nothing):
                return f"device {name} is allocated beyond its capacity"
        return ""

    def _other(self, nodes: set[str]) -> set[str]:
        """Those of the nodes whose pools differ from what is known: drivers rewrite slices that did not change."""
        self._joint = None
        return {
            node
            for node in nodes
            if node not in self._pools
            or list(map(_content, self._pools[node])) != list(map(_content, self._slices.local_pools(node)))
        }

    def _rule(self) -> set[str]:
        self._slices.rules = tuple(self._rules.values())
        return self._changed(set(self._slices.nodes()))

    def _reclassified(self) -> set[str]:
        self.extended = served_by(self.classes.values())
        self._columns.clear()
        self._solutions.clear()
        return set(self._slices.nodes())

    def _changed(self, nodes: set[str], *, pools: bool = True) -> set[str]:
        for node in nodes:
            self._solutions.pop(node, None)
        if pools:
            self._joint = None
            for node in nodes:
                self._pools.pop(node, None)
        for column in self._columns.values() if len(nodes) * len(self._columns) < _MOST_CHANGES else ():
            for node in nodes:
                column.rooms.pop(node, None)
        self._changes += nodes
        if len(nodes) * len(self._columns) >= _MOST_CHANGES or len(self._changes) > _MOST_CHANGES:
            self._columns.clear()
            self._changes.clear()
        return nodes

    # --- what is asked ----------------------------------------------------------------------------------------------

    def kind(self, claims: Iterable[DeviceClaim]) -> DeviceKind:
        """The kind of what the claims request, without names; equal kinds are the same object."""
        made = tuple(
            DeviceClaim(name=f"#{number}", requests=each.requests, constraints=each.constraints, unknown=each.unknown)
            for number, each in enumerate(claims)
        )
        if len(self._kinds) > _MOST_KINDS:
            self._kinds.clear()
            self._columns.clear()
        return self._kinds.setdefault(made, DeviceKind(made))

    def column(self, kind: DeviceKind, table: NodeTable) -> Ints:
        """`room[node]`: number of pods of this kind that the free devices suffice for; `UNKNOWN` for nodes not
        searched. Read-only.
        """
        column = self._column(kind)
        if column.table is not table:
            column.table = table
            column.array = np.zeros(len(table), dtype=np.int64)
            named = [(table.index[node], node) for node in self._slices.nodes() if node in table.index]
            for index, node in named:
                known = column.rooms.get(node)
                column.array[index] = UNKNOWN if known is None else known.pods
        else:
            for node in self._changes[column.changes :]:
                if (index := table.index.get(node, -1)) >= 0 and node not in column.rooms:
                    column.array[index] = UNKNOWN if node in self._slices.nodes() else 0
        column.changes = len(self._changes)
        return column.array

    def known(self, kind: DeviceKind, node: str) -> NodeRoom | None:
        """The room of a node; None if it was not searched."""
        column = self._columns.get(kind)
        return None if column is None else column.rooms.get(node)

    def faults(self, kind: DeviceKind) -> list[tuple[str, NodeRoom]]:
        """By name, nodes on which pods of the kind cannot get devices because of an error in the kind itself."""
        column = self._columns.get(kind)
        if column is None or not column.faults:
            return []
        column.faults &= {node for node in column.faults if node in column.rooms and column.rooms[node].fault}
        return [(node, column.rooms[node]) for node in sorted(column.faults)]

    def search(self, kind: DeviceKind, node: str) -> tuple[NodeRoom, int]:
        """Search the room of a node; also return the number of steps."""
        self.searches += 1
        column = self._column(kind)
        questions = Questions(self.pools(node), self.classes, self._answers)
        try:
            self._check(kind)
            found = self._rooms.room(
                questions, Use(questions.pools, self.held(questions.pools)), kind.claims, MOST_PODS
            )
            room, steps = NodeRoom(found.pods, found.ended), found.steps
        except DeviceFault as fault:
            unsupported = isinstance(fault, DevicesUnsupported)
            room, steps = NodeRoom(0, fault=str(fault), unsupported=unsupported), len(questions.devices)
        column.rooms[node] = room
        column.faults |= {node} if room.fault else set()
        if column.table is not None and node in column.table.index:
            column.array[column.table.index[node]] = room.pods
        return room, steps

    def search_beside(
        self, node: str, placed: Sequence[DeviceKind], kind: DeviceKind, without: frozenset[str]
    ) -> tuple[NodeRoom, int]:
        """Search the room in addition to pods whose devices are not chosen yet, as if some claims held no devices; also
        return the number of steps.
        """
        pools = self.pools(node)
        questions = Questions(pools, self.classes, self._answers)
        try:
            states = States(questions, Use(pools, self.held(pools, without)), self._claims(placed, kind), {})
            most = states.at_most(kind.claims, MOST_PODS)
            search = DeviceSearch(states, [*(each.claims for each in placed), *([kind.claims] * most)])
        except DeviceFault:
            return NodeRoom(0), len(questions.devices)
        ended = False
        try:
            search.found()
        except SearchEnded:
            ended = True
        except DeviceFault:
            return NodeRoom(0), MOST_STEPS - search.left
        return NodeRoom(max(0, search.deepest - len(placed)), ended), MOST_STEPS - search.left + states.steps

    def solution(self, node: str, placed: tuple[DeviceKind, ...], without: frozenset[str]) -> Solution | None:
        """The first solution for these pods, if `solve` was called for them and found one."""
        return self._solutions.get(node, {}).get((placed, without))

    def solve(self, node: str, placed: tuple[DeviceKind, ...], without: frozenset[str]) -> int:
        """Choose devices for all these pods together; return the number of steps."""
        self.searches += 1
        solution, steps = self._solved(node, placed, without)
        self._solutions.setdefault(node, {})[placed, without] = solution
        return steps

    def _solved(
        self, node: str, placed: tuple[DeviceKind, ...], without: frozenset[str]
    ) -> tuple[Solution | None, int]:
        pools = self.pools(node)
        questions = Questions(pools, self.classes, self._answers)
        try:
            states = States(questions, Use(pools, self.held(pools, without)), self._claims(placed), {})
            search = DeviceSearch(states, [each.claims for each in placed])
            if not search.found():
                return None, MOST_STEPS
        except (DeviceFault, SearchEnded):
            return None, MOST_STEPS
        results = iter(search.results())
        solution = tuple(tuple(next(results) for _ in kind.claims) for kind in placed)
        return solution, MOST_STEPS - search.left + states.steps

    def offered(self, node: str) -> int:
        """An upper limit of the devices of an extended resource that a node has for all its pods together."""
        return self._slices.offered(node)

    def pools(self, node: str) -> tuple[Pool, ...]:
        """The pools of a node."""
        found = self._pools.get(node)
        if found is None:
            found = self._pools[node] = self._slices.local_pools(node)
            (self.invalid.add if any(pool.invalid for pool in found) else self.invalid.discard)(node)
        return found

    def held(self, pools: Sequence[Pool], without: frozenset[str] = frozenset()) -> Held:
        """The devices of these pools that claims hold."""
        holders = self._holders
        return Held(
            result
            for pool in pools
            for each in (*pool.devices, *pool.elsewhere)
            if each.id in holders
            for claim, results in holders[each.id].items()
            if claim not in without
            for result in results
        )

    def offers(self) -> bool:
        """Whether any node has its own devices."""
        return bool(self._slices.nodes())

    def has_joint(self) -> bool:
        """Whether some pool belongs to several nodes."""
        return next(self._slices.joint(), None) is not None

    def _column(self, kind: DeviceKind) -> _KindColumn:
        """The column of a kind; those used last are kept."""
        found = self._columns.pop(kind, None) or _KindColumn()
        self._columns[kind] = found
        most = max(8, _MOST_ROOMS // max(1, len(self._slices.nodes())))
        while len(self._columns) > most:
            del self._columns[next(iter(self._columns))]
        return found

    @staticmethod
    def _claims(placed: Sequence[DeviceKind], *more: DeviceKind) -> list[DeviceClaim]:
        return [claim for kind in dict.fromkeys((*placed, *more)) for claim in kind.claims]

    def _check(self, kind: DeviceKind) -> None:
        """Raises DevicesUnsupported if a request for all devices may mean one of a pool that several nodes share."""
        every = [
            (claim, each) for claim in kind.claims for group in claim.requests for each in group if each.mode == ALL
        ]
        if not every:
            return
        if self._joint is None:
            shared = ((part, device) for part in self._slices.joint() for device in part.devices)
            self._joint = tuple(
                PoolDevice((part.driver, part.pool, device.name), device, True, device.taints)
                for (part, device), _ in zip(shared, range(_MOST_JOINT + 1), strict=False)
            )
        if not self._joint:
            return
        pool = Pool(("", ""), devices=self._joint)
        questions = Questions((pool,), self.classes, self._answers)
        for claim, request in every:
            (found,) = questions.asked(DeviceClaim(name=claim.name, requests=((request,),)))[0]
            if found.every or len(self._joint) > _MOST_JOINT:
                raise DevicesUnsupported(
                    f"request {request.name} asks for all devices, but some are shared by several nodes,"
                    " and gangsched cannot allocate those"
                )


def _content(pool: Pool) -> tuple[object, ...]:
    """The facts about a pool of one node that the search depends on."""
    devices = [(each.device, each.taints) for each in pool.devices]
    return (pool.id, pool.incomplete, pool.invalid, devices, pool.counters)
