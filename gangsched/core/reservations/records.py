"""Records: reservations in the form in which one plan receives them and passes them on (semantics
H12).

Invariant: cached values are derived from facts and are recomputed when these change. Nothing is
stored about groups without a reservation. The ledger is only read.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

import numpy as np

from gangsched.core.reservations.heads import Head, at_home_of, head_of
from gangsched.core.reservations.new_reservation import Reservation
from gangsched.core.reservations.passing import Kept, add
from gangsched.core.reservations.timeline import OccupantColumns
from gangsched.core.reserve import Ledger
from gangsched.model.gang import Group, Placement
from gangsched.model.objects import Shape
from gangsched.model.reservation import Blocker, Occupant, Reserved, Reserving
from gangsched.model.snapshot import Ints, NodeTable

T = TypeVar("T")
There: TypeAlias = tuple[Sequence[Occupant], ...]
"""The occupants of each node of a reservation, in the order of its nodes."""


class ReservationCache:
    """Cached results about reservations and candidates, kept across plans, by group and kind of
    result.
    """

    def __init__(self) -> None:
        self.results: dict[tuple[str, str], tuple[Any, ...]] = {}
        self.columns = OccupantColumns()
        self.fitting: tuple[NodeTable | None, Mapping[str, Head]] = (None, {})
        """Candidates that start on the empty cluster of this node table, by group."""

    def __len__(self) -> int:
        return len(self.results)

    def clear(self) -> None:
        """Drop everything, including references to deleted pods."""
        self.results.clear()
        self.columns = OccupantColumns()
        self.fitting = (None, {})


class Records:
    """Converts reservations to and from `Reserved`, the form in which plans pass them on; node
    columns are those of `ledger`.
    """

    def __init__(
        self,
        reserving: Reserving,
        ledger: Ledger,
        cache: ReservationCache,
    ) -> None:
        self._reserving = reserving
        self._results = cache.results
        self._ledger = ledger

    def head(self, group: Group, choice: frozenset[str]) -> Head | None:
        """The group as a candidate for a reservation (`head_of`), cached while the group is
        unchanged, and of a broken one, while the nodes are.
        """
        facts: tuple[Any, ...] = (group, choice)
        if group.broken:
            facts = (*facts, self._ledger.table)

        return self._recall(
            "head",
            group.id,
            facts,
            lambda: at_home_of(head_of(group, choice), self._ledger),
        )

    def read(self, reserved: Reserved, head: Head) -> tuple[Reservation, bool]:
        """The reservation, limited to nodes that still exist, and True if all of its nodes still
        exist.
        """
        return self._recall(
            "read",
            reserved.group,
            (reserved, head, self._ledger.table),
            lambda: self._read(reserved, head),
        )

    def _read(self, reserved: Reserved, head: Head) -> tuple[Reservation, bool]:
        index = self._ledger.table.index
        names = reserved.nodes
        nodes = np.array([index[name] for name in names if name in index], dtype=np.int64)
        placements = reserved.placements

        # A node is gone: what was to run there has to be placed anew, and the rest stays reserved
        # until then.
        is_complete = len(nodes) == len(names)
        if not is_complete:
            placements = tuple(placement for placement in placements if placement.node in index)

        return Reservation(head, reserved.at_s, np.sort(nodes), placements), is_complete

    def kept(self, each: Reservation, before: Iterable[Reservation]) -> tuple[Kept, Ints]:
        """Room of a reservation, given the reservations `before` it, and the rows of the resources
        that it requests.
        """
        group = each.head.group
        if each.is_fence:
            return Kept(
                group.id,
                group.priority,
                each.at_s,
                each.nodes,
                _no_change(each, self._ledger),
                fence=True,
            ), np.zeros(0, dtype=np.int64)

        # Heads before it that will have ended by its start leave it their room.
        beside = tuple(
            reservation
            for reservation in before
            if reservation.at_s + reservation.head.run_time_s > each.at_s
        )
        facts = (*self._facts(each), *beside)
        change, rows, devices = self._recall(
            "change",
            group.id,
            facts,
            lambda: self._change(each, beside),
        )

        # A copy: the plan counts in it what it places, and the cached one is for the next plan.
        change = change.copy()
        kept = Kept(group.id, group.priority, each.at_s, each.nodes, change, devices=devices)
        return kept, rows

    def _change(
        self, reservation: Reservation, beside: Sequence[Reservation]
    ) -> tuple[Ints, Ints, Ints]:
        """Room that becomes free on its nodes until its time, beside it and others; the rows of its
        resources; and the nodes on which claims of it will have devices.
        """
        ledger = self._ledger
        index = self._ledger.table.index
        kept = Kept("", 0, reservation.at_s, reservation.nodes, _no_change(reservation, ledger))
        over_by_then = []
        for occupants in self._on_nodes(reservation):
            for occupant in occupants:
                if occupant.ends_s <= reservation.at_s:
                    over_by_then.append((index[occupant.node], occupant.pod.shape, 1))

        add(kept, over_by_then, ledger)

        for other in (*beside, reservation):
            placed = []
            for place in other.placements:
                placed.append((index[place.node], place.pod.shape, -1))

            add(kept, placed, ledger)

        rows = []
        for name in _asked(reservation.placements):
            if name in ledger.resources:
                rows.append(ledger.resources[name])

        devices = set()
        for placement in reservation.placements:
            if placement.pod.claims_devices:
                devices.add(index[placement.node])

        return (
            kept.change,
            np.array(rows, dtype=np.int64),
            np.array(sorted(devices), dtype=np.int64),
        )

    def write(
        self,
        each: Reservation,
        old: Reserved | None,
        *,
        first: bool,
        stale: bool,
    ) -> Reserved:
        """Convert a reservation into the record for the next plan; the `old` record is reused if
        nothing changed. A `stale` reservation promises no start time.
        """
        promised_s = math.inf
        # A promise stays what it was, also where the start moved: it says whether the head is late
        # (H8).
        if first and old is not None and old.is_promised:
            promised_s = old.promised_s
        elif first and not stale:
            promised_s = each.at_s

        facts = (*self._facts(each), self._ledger.free[:, each.nodes].tobytes(), first, promised_s)
        return self._recall(
            "written",
            each.head.group.id,
            facts,
            lambda: self._write(each, old, first, promised_s),
        )

    def _write(
        self,
        each: Reservation,
        old: Reserved | None,
        first: bool,
        promised_s: float,
    ) -> Reserved:
        head = each.head
        names = self._ledger.table.names
        there = dict(
            zip([names[node] for node in each.nodes.tolist()], self._on_nodes(each), strict=True)
        )
        written = Reserved(
            group=head.group.id,
            namespaces=head.namespaces,
            priority=head.group.priority,
            since_s=head.since_s,
            run_time_s=head.run_time_s,
            choice=head.choice,
            at_s=each.at_s,
            nodes=tuple(there),
            placements=each.placements,
            first=first,
            promised_s=promised_s,
            empty=sum(not on for on in there.values()) if each.is_fence else 0,
            waits_for=_waits_for(each, there, self._ledger),
        )

        # The old object, so that the state, which compares reservations, sees no change.
        return old if old == written else written

    def forget(self, reserved: Container[str]) -> None:
        """Drop the records of groups that are not in `standing`."""
        gone = [key for key in self._results if key[1] not in reserved]
        for key in gone:
            del self._results[key]

    def _facts(self, reservation: Reservation) -> tuple[Any, ...]:
        """Facts on which a reservation's room depends; mostly the same objects as before, so
        comparing is quick.
        """
        return self._ledger.table, self._ledger.resources, reservation, self._on_nodes(reservation)

    def _on_nodes(self, reservation: Reservation) -> There:
        """Read anew only when the occupants of any node are others than before."""
        occupants = self._reserving.occupants()
        table = self._ledger.table
        key = "there", reservation.head.group.id

        known = self._results.get(key)
        # By identity, which is enough: all three are immutable and kept as the same object while
        # nothing changes.
        if known is None or not (
            known[0] is occupants and known[1] is reservation and known[2] is table
        ):
            there = []
            for node in reservation.nodes.tolist():
                there.append(occupants.get(table.names[node], ()))

            known = self._results[key] = occupants, reservation, table, tuple(there)

        on_nodes: There = known[-1]
        return on_nodes

    def _recall(
        self,
        what: str,
        group: str,
        facts: tuple[Any, ...],
        make: Callable[[], T],
    ) -> T:
        """The result of `make` for these facts, cached from plan to plan for each group."""
        known = self._results.get((what, group))
        if known is None or known[0] != facts:
            known = self._results[what, group] = facts, make()

        result: T = known[1]
        return result


def _waits_for(
    reservation: Reservation,
    there: Mapping[str, Sequence[Occupant]],
    ledger: Ledger,
) -> tuple[Blocker, ...]:
    """Who must end on its nodes before it starts, the last to end first."""
    # Nodes with enough room wait for nobody, although pods run on them.
    short = set(there) if reservation.is_fence else _short(reservation, ledger)
    own = reservation.head.group.id
    blockers = []

    for node in sorted(short):
        for occupant in there[node]:
            # A gang that lost a member: the end of its own pods is no room for that one.
            if occupant.group == own:
                continue

            if reservation.is_fence or occupant.ends_s <= reservation.at_s:
                blockers.append(occupant)

    blockers.sort(key=lambda on: (-on.ends_s, on.group, on.pod.key))

    # As an ordered set: a group is named once, however many of its pods are in the way.
    names: dict[Blocker, None] = {}
    for occupant in blockers:
        name = occupant.group or occupant.pod.key
        names[Blocker(name, occupant.pod.namespace)] = None

    return tuple(names)


def _short(reservation: Reservation, ledger: Ledger) -> set[str]:
    """The nodes that do not have the room for its pods now."""
    short = set[str]()
    asks: dict[str, Counter[str]] = {}

    for placement in reservation.placements:
        asked = asks.setdefault(placement.node, Counter())
        for name, amount in placement.pod.shape.requests:
            asked[name] += amount

    for node, asked in asks.items():
        column = ledger.free[:, ledger.table.index[node]]
        for name, amount in asked.items():
            row = ledger.resources.get(name)
            if row is not None and column[row] < amount:
                short.add(node)
                break

    return short


def _no_change(reservation: Reservation, ledger: Ledger) -> Ints:
    return np.zeros((len(ledger.resources), len(reservation.nodes)), dtype=np.int64)


def _asked(placements: Iterable[Placement]) -> set[str]:
    names: set[str] = set()
    shapes: set[Shape] = {placement.pod.shape for placement in placements}
    for shape in shapes:
        names.update(name for name, _ in shape.requests)

    return names
