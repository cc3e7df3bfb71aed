"""Backfill: the room that groups which come after a reservation may use (semantics H8).

Invariant: a group whose priority is not above that of a head may use (1) nodes without a
reservation, (2) room of a reserved node that is free both now and after the reservation starts, and
(3) reserved room if the group is expected to end before that. No other group may use nodes of a
fence. Broken groups and groups of higher priority are not restricted. A reservation never restricts
its own group, and a head is restricted by the reservations of the heads before it.

The room at the start of a reservation is the ledger's room, changed by the pods that end and the
room that is reserved until then. So pods that are placed on reserved nodes count at the
reservation's start as well, and rollbacks need no special case.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from gangsched.core.filter.node_resources_fit import room
from gangsched.core.reserve import Ledger
from gangsched.model.gang import Group, Placement
from gangsched.model.objects import Shape
from gangsched.model.reservation import How
from gangsched.model.snapshot import Bools, Ints

PLENTY = np.iinfo(np.int64).max


@dataclass(slots=True)
class Kept:
    """Room on `nodes` that is reserved for `group`, a head with this `priority`, from `at_s` on."""

    group: str
    priority: int
    at_s: float
    nodes: Ints
    #: `change[r][i]`: how much more room `nodes[i]` has at that time than now, for groups other
    #: than this head and the heads before it.
    change: Ints
    #: Whole nodes are reserved, without a start time.
    fence: bool = False
    #: The start time has passed, so declared run times may have been false.
    missed: bool = False
    #: Nodes where claims of the head will have devices.
    devices: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    def outlived_by(self, ends_s: float) -> bool:
        """Whether a pod that ends at `ends_s` would still occupy reserved room when the head needs
        it.
        """
        return self.fence or self.missed or ends_s > self.at_s


@dataclass(slots=True)
class _Cap:
    """`most[n]` pods of one shape may be on node `n`, as of the ledger's `version`."""

    most: Ints
    version: int


@dataclass(frozen=True, slots=True, eq=False)
class _Binding:
    """The `numbers` of the reservations that keep a group off; one object until their room changes.

    `nodes` and `change` are those of all of them, one after the other, but for the nodes of fences,
    which are `closed`. So are nodes where a head will have devices to groups that claim devices,
    since the head's are not chosen yet.
    """

    numbers: tuple[int, ...]
    nodes: Ints
    change: Ints
    closed: Ints
    claims: bool = False

    @classmethod
    def of(
        cls,
        kept: Sequence[Kept],
        numbers: tuple[int, ...],
        resources: int,
        *,
        claims: bool = False,
    ) -> _Binding:
        """The combined limits of a subset of reservations, `kept`, for a group that `claims`
        devices or not.
        """
        nothing: Ints = np.zeros((resources, 0), dtype=np.int64)
        timed = []
        for number in numbers:
            if not kept[number].fence:
                timed.append(kept[number])

        return cls(
            numbers,
            np.concatenate([nothing[0], *(each.nodes for each in timed)]),
            np.concatenate([nothing, *(each.change for each in timed)], axis=1),
            np.concatenate(
                [
                    nothing[0],
                    *(kept[number].nodes for number in numbers if kept[number].fence),
                    *(kept[number].devices for number in numbers if claims),
                ]
            ),
            claims,
        )


NOT_BOUND = _Binding.of((), (), 1)
"""That of groups which no reservation restricts."""


class Backfill:
    """The reservations of one plan, in order, at epoch second `wall_s`; columns are those of
    `ledger`.
    """

    def __init__(
        self,
        kept: Sequence[Kept],
        ledger: Ledger,
        *,
        wall_s: float,
    ) -> None:
        self._kept = kept
        self._ledger = ledger
        self._wall_s = wall_s
        self._place: dict[str, int] = {}
        self._has_devices = any(reservation.devices.size for reservation in kept)
        self._reserved: Bools = np.zeros(len(ledger.table), dtype=np.bool_)

        for number, reservation in enumerate(kept):
            self._place[reservation.group] = number
            self._reserved[reservation.nodes] = True

        self._caps: dict[tuple[_Binding, Shape], _Cap] = {}
        self._binds: dict[Hashable, _Binding] = {}

        # The last group that was asked about: a round asks for each shape and node choice of the
        # same group.
        self._asked: tuple[Group | None, _Binding] = (None, NOT_BOUND)

    def narrow(
        self,
        shape: Shape,
        free: Ints,
        group: Group,
    ) -> Ints:
        """`room[n]`: how many of the `free[n]` places for pods of `shape` on node `n` the `group`
        may use. `free` is unchanged.
        """
        binding = self._binding(group)
        if binding.numbers:
            return np.minimum(free, self._cap(binding, shape))

        return free

    def standing(self, group: Group) -> Hashable:
        """A key that is equal for groups with the same restrictions, until the ledger changes."""
        binding = self._binding(group)
        return binding if binding.numbers else None

    def binds(self, group: Group) -> bool:
        """Whether any reservation restricts the group."""
        return bool(self._binding(group).numbers)

    def times_s(self, group: Group) -> list[float]:
        """Start times of the reservations that restrict the group, latest first; `math.inf` for
        fences.
        """
        return sorted(
            {self._kept[number].at_s for number in self._binding(group).numbers},
            reverse=True,
        )

    def how(self, nodes: Iterable[int], group: Group) -> How | None:
        """The backfill rule (H8) that allows the group to use these nodes; None if no reservation
        restricts it.
        """
        before = [self._kept[number] for number in self._before(group)]
        if not before:
            return None

        placed = np.array(list(nodes), dtype=np.int64)
        # Beside all reservations: the cheap answer, which most groups get.
        if not self._reserved[placed].any():
            return How.BESIDE

        there = []
        for kept in before:
            if np.isin(kept.nodes, placed).any():
                there.append(kept)

        if not there:
            return How.BESIDE
        # SHORT has consequences: such a group may be evicted if it overruns (H11).
        if any(kept.outlived_by(self._ends_s(group)) for kept in there):
            return How.SPARE

        return How.SHORT

    def passed(self, group: Group, placements: Iterable[Placement]) -> None:
        """Record a final placement. Reservations that start after the pods' expected end count its
        room as free.
        """
        ends_s = self._ends_s(group)
        over_by_then = []
        for kept in self._kept:
            if not kept.outlived_by(ends_s):
                over_by_then.append(kept)

        if not over_by_then:
            return

        # `add` changes the arrays that bindings were built from.
        self._binds.clear()
        self._asked = (None, NOT_BOUND)
        self._caps.clear()
        where = []

        for placement in placements:
            where.append((self._ledger.table.index[placement.node], placement.pod.shape))

        for kept in over_by_then:
            add(kept, ((node, shape, 1) for node, shape in where), self._ledger)

    def _ends_s(self, group: Group) -> float:
        return self._wall_s + group.run_time_s

    def _before(self, group: Group) -> list[int]:
        """Numbers of the reservations that the group comes after."""
        # A gang that lost members holds what it has for nothing until they are replaced (Q2).
        if group.broken:
            return []

        first = self._place.get(group.id, len(self._kept))
        # A head is bound by those before it only, or two heads could block each other.
        result: list[int] = []
        for number in range(first):
            if self._kept[number].priority >= group.priority:
                result.append(number)

        return result

    def _binding(self, group: Group) -> _Binding:
        """The reservations that keep the group off; asked many times a turn, and the same for many
        groups.
        """
        asked, binding = self._asked
        if asked is not group:
            claims = self._claims(group)
            key = group.broken, group.priority, group.run_time_s, self._place.get(group.id), claims
            binding = self._binds.get(key) or self._find(group, key, claims=claims)
            self._asked = group, binding

        return binding

    def _claims(self, group: Group) -> bool:
        """Whether the group claims devices while a head will have some; else nobody looks at its
        members.
        """
        return self._has_devices and any(
            pod.claims_devices for gang in group.gangs for pod in gang.pending
        )

    def _find(
        self,
        group: Group,
        key: Hashable,
        *,
        claims: bool,
    ) -> _Binding:
        ends_s = self._ends_s(group)
        numbers = tuple(
            number for number in self._before(group) if self._kept[number].outlived_by(ends_s)
        )
        if not numbers:
            self._binds[key] = NOT_BOUND
            return NOT_BOUND

        # One object for equal restrictions: caps, and what the ledger recalls, are keyed by it.
        known = (
            binding
            for binding in self._binds.values()
            if (binding.numbers, binding.claims) == (numbers, claims)
        )
        found = self._binds[key] = next(known, None) or _Binding.of(
            self._kept,
            numbers,
            len(self._ledger.resources),
            claims=claims,
        )
        return found

    def _cap(self, binding: _Binding, shape: Shape) -> Ints:
        """`most[n]`: pods of `shape` that these reservations leave on node `n`, `PLENTY` where none
        of them is.
        """
        known = self._caps.get((binding, shape))
        if known is not None:
            touched = self._ledger.touched_since(known.version)
            known.version = self._ledger.version

            # Placements elsewhere change no reserved room, and a plan makes thousands of them.
            if not any(self._reserved[nodes].any() for nodes in touched):
                return known.most

        most = np.full(len(self._reserved), PLENTY)
        free = self._ledger.free[:, binding.nodes] + binding.change

        # A node may be in several reservations: `at` applies the limit of each, plain indexing
        # would keep the last.
        np.minimum.at(most, binding.nodes, room(shape, free, self._ledger.resources))
        most[binding.closed] = 0
        self._caps[binding, shape] = _Cap(most, self._ledger.version)

        return most


def add(kept: Kept, pods: Iterable[tuple[int, Shape, int]], ledger: Ledger) -> None:
    """Add pods to the changes of `kept`, given as (node, shape, sign): +1 for a pod that runs now
    and is gone when the reservation starts, -1 for the opposite.
    """
    place = {node: number for number, node in enumerate(kept.nodes.tolist())}
    for node, shape, sign in pods:
        number = place.get(node)
        if number is None:
            continue

        for name, amount in shape.requests:
            row = ledger.resources.get(name)
            if row is not None:
                kept.change[row, number] += sign * amount
