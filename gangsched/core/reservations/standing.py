"""The reservations of one plan: those that stood before it, those that it makes, and whom they keep off (H8, H12, H17).

Law: what stands binds every group from the first one on, whether the plan looks at its head or not. A plan makes few
reservations anew; all others keep what they had. A reservation goes with its head: when it starts, when it lacks
something else than room, and when others come before it. The ledger is left as found, but for `kept`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

import numpy as np

from gangsched.core.queue_sort import group_key, passing_key
from gangsched.core.reservations.backfill import Backfill, Kept, add
from gangsched.core.reservations.heads import Head, empty_ledger, find_heads, head_of, rank
from gangsched.core.reservations.kept_for import kept_for
from gangsched.core.reservations.reservation import Reservation, make_reservations
from gangsched.core.reservations.timeline import Columns, Timeline
from gangsched.core.reserve import Ledger
from gangsched.model.backfill import BackfillOrder
from gangsched.model.gang import Group, Placement
from gangsched.model.objects import Shape
from gangsched.model.plan import Verdict
from gangsched.model.preemption import Preemption
from gangsched.model.reasons import Reason
from gangsched.model.reservation import Blocker, NotEntitled, NotReserved, Occupant, Reservations, Reserved, Reserving
from gangsched.model.snapshot import Ints, Snapshot

REFUSED_FOR_ROOM: Final = frozenset({Reason.UNSCHEDULABLE, Reason.HOLDING})
BY_NUMBER: Final = frozenset({NotEntitled.LATER, NotEntitled.NAMESPACE})
LOOKS: Final = 8
"""Groups of which one plan finds out whether they could start on the empty cluster."""


T = TypeVar("T")


class Standing:
    """Made once a plan; `turn` is told of every verdict, in order, and `result` is what stands after all of them."""

    def __init__(self, reserving: Reserving, snapshot: Snapshot, ledger: Ledger, ready: Iterable[Group]) -> None:
        """`ready` are the groups whose turn comes in this plan."""
        self._given = reserving
        self._snapshot = snapshot
        self._ledger = ledger
        self._in_turn = {group.id: group for group in ready}
        self._left = reserving.made_at_most
        self._looks = LOOKS
        self._placed: list[tuple[tuple[Placement, ...], float]] = []
        self._before = {each.group: each for each in reserving.standing}
        self._stale = set(reserving.stale)
        self._made: set[str] = set()
        self._not_reserved = {each: why for each, why in reserving.known.items() if each not in self._before}
        self._entitled = set(self._before)
        known = {group.id: group for group in reserving.waiting} | self._in_turn
        heads = ((group_id, head_of(known[group_id])) for group_id in known if self._may_be_head(group_id))
        self._heads: dict[str, Head] = {group_id: head for group_id, head in heads if head is not None}
        self._first = next((each.group for each in reserving.standing if each.first and self._waits_as_long(each)), "")
        self._reservations = [
            self._read(each) for each in reserving.standing if each.group in self._heads and self._place(each)
        ]
        self._lost(each for each in self._before if each not in {one.head.group.id for one in self._reservations})
        self._empty: Ledger | None = None
        self._timeline: Timeline | None = None
        self._backfill = self._bind()

    def _may_be_head(self, group_id: str) -> bool:
        """Groups that are in turn are candidates once they were refused, unless they have a reservation."""
        return group_id in self._before or group_id not in self._in_turn

    def _waits_as_long(self, reserved: Reserved) -> bool:
        """Whether its head did not begin to wait anew, for a minimum that was raised (H4)."""
        head = self._heads.get(reserved.group)
        return head is not None and head.since_s <= reserved.since_s

    # --- the order of groups, and their turns -----------------------------------------------------------------------

    def order(self, group: Group) -> tuple[Any, ...]:
        """Heads first, in their order; then the shorter class among equals that may pass (H9)."""
        if not self._reservations or self._given.limits.order is BackfillOrder.AGE:
            return group_key(group)
        priority, healed, *rest = passing_key(group)
        place = next((n for n, each in enumerate(self._reservations) if each.head.group.id == group.id), None)
        return priority, healed, len(self._reservations) if place is None else place, *rest

    def begin(self) -> None:
        """Make what is stale, or new, of those whose turn does not come in this plan; one is left to it."""
        while self._left > 1 and self._lacking(each for each in self._heads if each not in self._in_turn):
            if not self._make_next(self._chosen(), but=self._in_turn.keys()):
                return

    def turn(self, group: Group, verdict: Verdict) -> Verdict:
        """The verdict with what reservations had to do with it; a head that was refused has its own from here on."""
        placed = _newly_placed(group, verdict)
        if placed or verdict.binds:
            index = self._ledger.table.index
            nodes = {index[each.node] for each in (*verdict.binds, *verdict.holds)}
            verdict = replace(verdict, how=self._backfill.how(nodes, group))
        if placed:
            self._placed.append((placed, self._given.wall_s + group.run_time_s))
            self._backfill.passed(group, placed)
        if not _waits_for_room(verdict):
            self._drop(group.id)
            return verdict
        if placed or verdict.releases:  # what it needs now is for the next plan to see
            self._stale.add(group.id)
            return verdict
        told = kept_for(group, self._backfill, self._ledger, wall_s=self._given.wall_s)
        self._refused(group)
        return replace(verdict, kept_for=told) if told is not None else verdict

    def _refused(self, group: Group) -> None:
        """The group was refused for room: it has its reservation before those behind it are tried (H12)."""
        if (known := self._given.known.get(group.id)) is not None:
            self._not_reserved[group.id] = known
        elif self._left and (head := head_of(group)) is not None:
            if group.id in self._heads:
                self._heads[group.id] = head
            elif self._comes_too_late(head):
                self._not_reserved[group.id] = NotReserved(why=NotEntitled.LATER)
                return
            self._heads[group.id] = head
            if self._lacking((group.id,)):
                self._make_next([each for each in self._chosen() if each.group.id == group.id])
                if not self._stands(group.id):
                    self._heads.pop(group.id, None)

    def _comes_too_late(self, head: Head) -> bool:
        """Whether there are as many reservations as there may be, all of them before it."""
        last = self._reservations[-1] if len(self._reservations) >= self._given.limits.reservations else None
        return last is not None and rank(last.head, self._first) < rank(head, self._first)

    def finish(self) -> None:
        """Make anew what is still stale, as far as this plan may."""
        while self._left and self._lacking(self._heads) and self._make_next(self._chosen()):
            pass

    def _stands(self, group_id: str) -> bool:
        return any(each.head.group.id == group_id for each in self._reservations)

    def _lacking(self, groups: Iterable[str]) -> bool:
        """Whether one of these candidates has no reservation, or a stale one, and it is not known why."""
        have = {each.head.group.id for each in self._reservations} - self._stale
        return any(each not in have and each not in self._not_reserved for each in groups)

    # --- making ----------------------------------------------------------------------------------------------------

    def _chosen(self) -> list[Head]:
        """The heads among the groups that are known to be refused for room."""
        heads, others = find_heads(
            self._heads.values(),
            self._nothing_runs(),
            self._given.limits,
            wall_s=self._given.wall_s,
            entitled=self._entitled,
            first=self._first,
            known=self._not_reserved,
            looks=self._looks,
        )
        new = {head.group.id for head in heads} - self._entitled
        impossible = (each for each, why in others.items() if why.why is NotEntitled.IMPOSSIBLE)
        self._looks -= len(new) + sum(each not in self._not_reserved for each in impossible)
        self._entitled |= new
        for group_id, why in others.items():
            if why.why not in BY_NUMBER or not self._stands(group_id):  # those that stand go when another one has come
                self._not_reserved[group_id] = why
                self._drop(group_id)
        return heads

    def _make_next(self, heads: Sequence[Head], *, but: Container[str] = ()) -> bool:
        """Make the reservation of the first head that has none or a stale one; False if there is no such head."""
        known = {each.head.group.id: each for each in self._reservations}
        lacking = (each for each in heads if each.group.id in self._stale or each.group.id not in known)
        head = next((each for each in lacking if each.group.id not in but), None)
        if head is None:
            return False
        self._left -= 1
        self._stale.discard(head.group.id)
        self._made.add(head.group.id)
        self._ledger.respect_nominations(head.group.lowest_priority, but=head.group.id)
        each_once = {each.head.group.id: each.head for each in self._reservations} | {head.group.id: head}
        order = sorted(each_once.values(), key=lambda each: rank(each, self._first))
        with self._ledger.nothing_kept():
            self._reservations, others = make_reservations(
                order,
                self._ledger,
                self._nothing_runs(),
                self._ends(),
                self._given.limits,
                wall_s=self._given.wall_s,
                standing=known,
                anew={head.group.id},
            )
        self._not_reserved |= others
        self._lost(others)
        self._backfill = self._bind()
        self._give_way()
        return True

    def _give_way(self) -> None:
        """Those that are too many now, all in all or of a namespace, end; the last first."""
        limits, used, number = self._given.limits, Counter[str](), 0
        for head in [each.head for each in self._reservations]:
            full = [namespace for namespace in sorted(head.namespaces) if used[namespace] >= limits.per_namespace]
            if not full and number < limits.reservations:
                used.update(head.namespaces)
                number += 1
                continue
            of_namespace = (
                NotReserved(why=NotEntitled.NAMESPACE, namespace=full[0], offers=used[full[0]]) if full else None
            )
            self._not_reserved[head.group.id] = of_namespace or NotReserved(why=NotEntitled.LATER)
            self._drop(head.group.id)

    def _drop(self, group_id: str) -> None:
        """The group is no head any more; those after it may start earlier."""
        self._heads.pop(group_id, None)
        left = [each for each in self._reservations if each.head.group.id != group_id]
        if len(left) < len(self._reservations):
            self._reservations = left
            self._lost((group_id,))
            self._backfill = self._bind()

    def _lost(self, groups: Iterable[str]) -> None:
        """The reservations of these groups are gone."""
        gone = set(groups) & self._entitled
        if gone:
            self._entitled -= gone
            self._stale.update(each.head.group.id for each in self._reservations)

    def _nothing_runs(self) -> Ledger:
        if self._empty is None:
            self._empty = empty_ledger(self._snapshot, self._ledger.policy)
        return self._empty

    def _ends(self) -> Timeline:
        """When those end that run now and that were placed in this plan."""
        if self._timeline is None:
            columns = self._given.memo.setdefault("columns", Columns())
            self._timeline = columns.timeline(self._given.occupants(), self._ledger)
        timeline = self._timeline
        for placed, ends_s in self._placed:
            timeline = timeline.with_reserved(placed, self._given.wall_s, ends_s)
        return timeline

    # --- binding ---------------------------------------------------------------------------------------------------

    def _bind(self) -> Backfill:
        """Keep others off what is reserved, from here on."""
        kept = [self._kept(number) for number in range(len(self._reservations))]
        backfill = Backfill(kept, self._ledger, wall_s=self._given.wall_s)
        self._ledger.kept = backfill if kept else None
        return backfill

    def _kept(self, number: int) -> Kept:
        """The room of a reservation; it is stale where more is reserved than there will be at its time."""
        each, ledger = self._reservations[number], self._ledger
        change = np.zeros((len(ledger.resources), len(each.nodes)), dtype=np.int64)
        group = each.head.group
        kept = Kept(group.id, group.priority, each.at_s, each.nodes, change, each.is_fence)
        if each.is_fence:
            return kept
        before = [one for one in self._reservations[:number] if one.at_s + one.head.run_time_s > each.at_s]
        facts = self._facts(each), *((one.at_s, one.placements) for one in before)
        change += self._recall("change", each, facts, lambda: self._change(each, before))
        for placed, ends_s in self._placed:
            if ends_s <= each.at_s:
                add(kept, ((ledger.table.index[one.node], one.pod.shape, 1) for one in placed), ledger)
        rows = [ledger.resources[name] for name in _asked(each.placements) if name in ledger.resources]
        if group.id not in self._made and (ledger.free[rows][:, each.nodes] + change[rows] < 0).any():
            self._stale.add(group.id)
        return kept

    def _change(self, each: Reservation, before: Sequence[Reservation]) -> Ints:
        """What is free on its nodes at its time and is not now, beside it and those before it."""
        ledger, index = self._ledger, self._ledger.table.index
        kept = Kept("", 0, each.at_s, each.nodes, np.zeros((len(ledger.resources), len(each.nodes)), dtype=np.int64))
        add(kept, ((index[on.node], on.pod.shape, 1) for on in self._on(each) if on.ends_s <= each.at_s), ledger)
        for one in (*before, each):
            add(kept, ((index[place.node], place.pod.shape, -1) for place in one.placements), ledger)
        return kept.change

    def _facts(self, each: Reservation) -> tuple[Any, ...]:
        """What the room of a reservation rests on; mostly the same objects as before, which are compared quickly."""
        occupants, names = self._given.occupants(), self._ledger.table.names
        there = tuple(occupants.get(names[node]) for node in each.nodes.tolist())
        return self._ledger.table, self._ledger.resources, each.at_s, each.nodes.tolist(), each.placements, there

    def _recall(self, what: str, each: Reservation, facts: tuple[Any, ...], make: Callable[[], T]) -> T:
        """What `make` gives for these facts, remembered from plan to plan for each group."""
        known = self._given.memo.get((what, each.head.group.id))
        if known is None or known[0] != facts:
            known = self._given.memo[what, each.head.group.id] = facts, make()
        made: T = known[1]
        return made

    def _on(self, reservation: Reservation) -> Iterator[Occupant]:
        occupants, names = self._given.occupants(), self._ledger.table.names
        return (each for node in reservation.nodes.tolist() for each in occupants.get(names[node], ()))

    # --- from one plan to the next ----------------------------------------------------------------------------------

    def _place(self, reserved: Reserved) -> bool:
        """Whether any of its nodes are left; it is to be made anew if one is gone."""
        left = [name for name in reserved.nodes if name in self._ledger.table.index]
        if len(left) < len(reserved.nodes):
            self._stale.add(reserved.group)
        return bool(left)

    def _read(self, reserved: Reserved) -> Reservation:
        index = self._ledger.table.index
        nodes = np.array([index[name] for name in reserved.nodes if name in index], dtype=np.int64)
        placements = reserved.placements
        if any(each.node not in index for each in placements):
            placements = tuple(each for each in placements if each.node in index)
        return Reservation(self._heads[reserved.group], reserved.at_s, np.sort(nodes), placements)

    def result(self, verdicts: Mapping[str, Verdict]) -> Reservations:
        """What stands now; `verdicts` are final."""
        for group_id, verdict in verdicts.items():
            if not _waits_for_room(verdict):
                self._drop(group_id)
        self.finish()
        self._forget()
        standing = tuple(self._write(each, first=not number) for number, each in enumerate(self._reservations))
        stays = {each.group for each in standing}
        said = {group_id: why for group_id, why in self._not_reserved.items() if group_id not in stays}
        return Reservations(standing=standing, stale=frozenset(self._stale & stays), not_reserved=said)

    def _forget(self) -> None:
        """Remember nothing of groups that have no reservation any more."""
        memo = self._given.memo
        for key in [key for key in memo if isinstance(key, tuple) and not self._stands(key[1])]:
            del memo[key]

    def _write(self, each: Reservation, *, first: bool) -> Reserved:
        head, names = each.head, self._ledger.table.names
        old = self._before.get(head.group.id)
        promised_s = old.promised_s if old is not None and old.first else each.at_s
        facts = self._facts(each), self._ledger.free[:, each.nodes].tobytes()
        on_nodes = {names[node]: tuple(self._given.occupants().get(names[node], ())) for node in each.nodes.tolist()}
        return Reserved(
            group=head.group.id,
            namespaces=head.namespaces,
            priority=head.group.priority,
            since_s=head.since_s,
            run_time_s=head.run_time_s,
            at_s=each.at_s,
            nodes=tuple(on_nodes),
            placements=each.placements,
            first=first,
            promised_s=promised_s if first else math.inf,
            empty=sum(not there for there in on_nodes.values()) if each.is_fence else 0,
            waits_for=self._recall("waits for", each, facts, lambda: self._waits_for(each, on_nodes)),
        )

    def _waits_for(self, each: Reservation, on_nodes: Mapping[str, Sequence[Occupant]]) -> tuple[Blocker, ...]:
        """Who must end on its nodes before it starts, the last to end first."""
        short = set(on_nodes) if each.is_fence else self._short(each)
        there = [on for node in sorted(short) for on in on_nodes[node] if each.is_fence or on.ends_s <= each.at_s]
        there.sort(key=lambda on: (-on.ends_s, on.group, on.pod.key))
        return tuple(dict.fromkeys(Blocker(on.group or on.pod.key, on.pod.namespace) for on in there))

    def _short(self, each: Reservation) -> set[str]:
        """The nodes that do not have the room for its pods now."""
        ledger, short = self._ledger, set[str]()
        asks: dict[str, dict[str, int]] = {}
        for one in each.placements:
            asked = asks.setdefault(one.node, {})
            for name, amount in one.pod.shape.requests:
                asked[name] = asked.get(name, 0) + amount
        for node, asked in asks.items():
            column = ledger.free[:, ledger.table.index[node]]
            if any(name in ledger.resources and column[ledger.resources[name]] < n for name, n in asked.items()):
                short.add(node)
        return short


def _waits_for_room(verdict: Verdict) -> bool:
    """Whether the group was refused for room, and none is being made for it by preemption (H3)."""
    return verdict.reason in REFUSED_FOR_ROOM and not isinstance(verdict.preemption, Preemption)


def _newly_placed(group: Group, verdict: Verdict) -> tuple[Placement, ...]:
    """What this verdict takes room for that had none before."""
    had = {each.pod.uid for gang in group.gangs for each in (*gang.held, *gang.kept)}
    return tuple(each for each in (*verdict.binds, *verdict.holds) if each.pod.uid not in had)


def _asked(placements: Iterable[Placement]) -> set[str]:
    shapes: set[Shape] = {each.pod.shape for each in placements}
    return {name for shape in shapes for name, _ in shape.requests}
