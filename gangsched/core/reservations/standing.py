"""The reservations of one plan, existing and new, and the groups that they restrict (H8, H12).

Invariant: existing reservations restrict every group of the plan, whether or not the plan decides
their heads. A plan recomputes only a few reservations; the others stay unchanged. A reservation
ends when its head starts, lacks something other than room, or is no longer among the first heads.
The ledger is unchanged, except for its `promises` until `result`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence, Set
from math import inf
from typing import Any, Final, TypeVar

import numpy as np
from msgspec import structs

from gangsched.core.queue_sort import passing_key
from gangsched.core.reservations.heads import (
    BY_NUMBER,
    LATER,
    Head,
    at_home_of,
    empty_ledger,
    find_heads,
    head_of,
    rank,
    too_young,
)
from gangsched.core.reservations.kept_for import kept_for
from gangsched.core.reservations.new_reservation import (
    Reservation,
    StartUnknownError,
    make_reservations,
)
from gangsched.core.reservations.passing import Backfill, Kept, add
from gangsched.core.reservations.records import Records, ReservationCache
from gangsched.core.reservations.timeline import Timeline
from gangsched.core.reserve import Ledger
from gangsched.core.work import OutOfWork
from gangsched.model.backfill import BackfillOrder
from gangsched.model.gang import Group, Placement
from gangsched.model.plan import Verdict
from gangsched.model.preemption import Preemption
from gangsched.model.reasons import Reason
from gangsched.model.reservation import NotEntitled, NotReserved, Reservations, Reserved, Reserving
from gangsched.model.snapshot import Snapshot

T = TypeVar("T")
LOOKS: Final = 8
"""Groups of which one plan finds out whether they could start on the empty cluster."""
WORK: Final = 12_000
"""Units of each plan for reservations (`core.work`)."""
MISSED_S: Final = 5.0
"""How long ago a promised start is missed: pods take time to go."""


class Standing:
    """Built once per plan. `turn` receives every verdict in order; after the last verdict, `result`
    returns the reservations.
    """

    def __init__(
        self,
        reserving: Reserving,
        snapshot: Snapshot,
        ledger: Ledger,
        ready: Iterable[Group],
        *,
        most: float = inf,
        nominated: Container[str] = (),
        cache: ReservationCache | None = None,
    ) -> None:
        """`ready` are the groups that this plan decides, `most` the upper limit of units of work
        for them.

        No room is reserved for groups in `nominated`, because preemption makes room for them (H3).
        """
        self._nominated = nominated
        self._reserving = reserving
        self._snapshot = snapshot
        self._ledger = ledger
        self._in_turn = {group.id: group for group in ready}
        self._cache = ReservationCache() if cache is None else cache
        self._records = Records(reserving, ledger, self._cache)
        self._left = reserving.made_at_most
        self._looks = LOOKS
        self._units = WORK

        # Beyond the plan's own bound, or a plan that is busy with groups would never make a
        # reservation.
        self._most = most + WORK / 2
        self._placed: list[tuple[tuple[Placement, ...], float]] = []
        # Heads of which this plan has placed or released members.
        self._moved: set[str] = set()

        # The order matters below: heads are read before their reservations, and these before what
        # they restrict.
        stands = [
            reservation
            for reservation in reserving.standing
            if reservation.group not in reserving.ended
        ]
        self._before = {reservation.group: reservation for reservation in stands}

        # Where one ends, those after it may start earlier.
        self._stale = set(self._before if reserving.ended else reserving.stale)
        self._made: set[str] = set()
        self._kept_off: dict[Reservation, None] = {}  # those beside which groups had their turn
        known_why = {**reserving.known, **reserving.ended}
        self._not_reserved = {
            each: why for each, why in known_why.items() if each not in self._before
        }
        self._entitled = set(self._before)
        #: Those of which this plan, or the last one on the same nodes, found that they can start.
        self._fitting: set[str] = set()
        known = {group.id: group for group in reserving.waiting} | self._in_turn
        heads = (
            (group_id, self._head_of(known[group_id]))
            for group_id in known
            if self._may_be_head(group_id)
        )
        self._heads: dict[str, Head] = {
            group_id: head for group_id, head in heads if head is not None
        }
        self._heads |= self._that_fit()

        # An older group may have become entitled since; the one that was promised its start stays
        # first (H4).
        self._first = next(
            (
                reservation.group
                for reservation in stands
                if reservation.first and self._waits_as_long(reservation)
            ),
            "",
        )
        self._reservations = list(self._read(stands))
        self._lost(
            each
            for each in self._before
            if each not in {reservation.head.group.id for reservation in self._reservations}
        )
        self._empty: Ledger | None = None
        self._timeline: Timeline | None = None
        self._places = {
            each.head.group.id: number for number, each in enumerate(self._reservations)
        }
        self._backfill = self._bind()

    def _may_be_head(self, group_id: str) -> bool:
        """Groups that are in turn are candidates once they were refused, unless they have a
        reservation.
        """
        return group_id in self._before or group_id not in self._in_turn

    def _head_of(self, group: Group) -> Head | None:
        # Nothing is kept of groups without a reservation (`records`).
        before = self._before.get(group.id)
        if before is not None:
            return self._records.head(group, before.choice)

        return at_home_of(head_of(group), self._ledger)

    def _waits_as_long(self, reserved: Reserved) -> bool:
        """Whether its head did not begin to wait anew, for a minimum that was raised (H4)."""
        head = self._heads.get(reserved.group)
        return head is not None and head.since_s <= reserved.since_s

    # --- the order of groups, and their turns ----------------------------------------------------

    @property
    def keeps_order(self) -> bool:
        """Whether groups are ordered by Q1 alone: there are no reservations, or the setting is to
        order by age.
        """
        return not self._reservations or self._reserving.limits.order is BackfillOrder.AGE

    def order(self, group: Group) -> tuple[Any, ...]:
        """Sort key of groups: heads first, in their order; then groups that Q1 ranks equally, by
        run-time class, shortest first (H9).
        """
        priority, turn, since_s, run_class, age, name = passing_key(group)
        place = self._places.get(name, len(self._places))
        return priority, turn, since_s, place, run_class, age, name

    def begin(self) -> None:
        """Recompute stale or missing reservations of heads that this plan does not decide, but
        leave enough work for one head that it decides.
        """
        while self._left > 1 and self._lacking(
            head for head in self._heads if head not in self._in_turn
        ):
            if not self._bounded(lambda: self._make_next(self._chosen(), but=self._in_turn.keys())):
                return

    def turn(self, group: Group, verdict: Verdict) -> Verdict:
        """Adapt the verdict to the reservations; a refused head gets its reservation here."""
        # Reservations that come and go within one plan also kept this group out: the state wakes it
        # for their nodes.
        self._kept_off |= dict.fromkeys(self._reservations)
        placed = _newly_placed(group, verdict) if verdict.binds or verdict.holds else ()
        if placed or verdict.binds:
            index = self._ledger.table.index
            nodes = {index[placement.node] for placement in (*verdict.binds, *verdict.holds)}
            verdict = structs.replace(verdict, how=self._backfill.how(nodes, group))

        if placed:
            self._placed.append((placed, self._reserving.wall_s + group.run_time_s))
            self._backfill.passed(group, placed)

        # It starts, waits for something else, or gets its room by preemption: reserved room would
        # lie idle.
        if not _waits_for_room(verdict) or group.id in self._nominated:
            self._drop(group.id)
            return verdict

        if placed or verdict.releases:  # what it needs now is for the next plan to see
            self._stale.add(group.id)
            self._moved.add(group.id)
            return verdict

        told = self._bounded(
            lambda: kept_for(
                group,
                verdict.needs,
                self._backfill,
                self._ledger,
                wall_s=self._reserving.wall_s,
            )
        )
        self._bounded(lambda: self._refused(group))

        # It got none for its own reasons: in this plan it is no candidate any more.
        if not self._stands(group.id):
            self._heads.pop(group.id, None)

        if told is not None:
            return structs.replace(verdict, kept_for=told)

        return verdict

    def _refused(self, group: Group) -> None:
        """The group was refused for room: it has its reservation before those behind it are tried
        (H12).
        """
        # a tree as a whole, of which other children may have to start
        group = self._in_turn.get(group.id, group)
        if (
            group.id not in self._not_reserved
            and self._left
            and (head := self._head_of(group)) is not None
        ):
            why = self._cannot_be_head(head)
            if why is not None:
                self._not_reserved[group.id] = why
                self._drop(group.id)
                return

            self._heads[group.id] = head
            while self._left and self._lacking((group.id,)):
                if not self._make_next(
                    self._before_and(head), but=self._in_turn.keys() - {group.id}
                ):
                    return

    def _before_and(self, head: Head) -> list[Head]:
        """The head behind those that come before it.

        They go first, also those that do not ask in this plan (H3): what was promised to a younger
        one would be kept from them. The next plan makes what this one has no work left for.
        """
        last = rank(head, self._first)
        return [other for other in self._chosen() if rank(other, self._first) <= last]

    def _cannot_be_head(self, head: Head) -> NotReserved | None:
        """Why the group cannot be a head, if that is known without a round; None if it may be one,
        or is one.
        """
        if head.group.id in self._heads:
            return None

        young = too_young(
            head, self._nothing_runs(), self._reserving.limits, wall_s=self._reserving.wall_s
        )
        return young or (LATER if self._comes_too_late(head) else None)

    def _comes_too_late(self, head: Head) -> bool:
        """Whether there are as many reservations as there may be, all of them before it."""
        last = (
            self._reservations[-1]
            if len(self._reservations) >= self._reserving.limits.reservations
            else None
        )
        # It would be dropped at once by `_give_way`, after rounds that others need.
        return last is not None and rank(last.head, self._first) < rank(head, self._first)

    def finish(self) -> None:
        """Recompute the remaining stale reservations, up to the plan's limit."""
        while self._left and self._lacking(self._heads.keys() - self._moved):
            if not self._bounded(lambda: self._make_next(self._chosen(), but=self._moved)):
                return

    def _bounded(self, act: Callable[[], T]) -> T | None:
        """The result of `act`; None if the plan has no work left for it, and then not for others
        either.
        """
        work = self._ledger.work
        before = self._ledger.work.used
        may = work.most
        work.most = min(work.most, before + self._units, max(before, self._most))

        try:
            return act()
        except OutOfWork:
            # Nothing more in this plan: each attempt would run out of work again.
            self._left = 0
            new = {each: head for each, head in self._heads.items() if each in self._entitled}
            self._cache.fitting = self._snapshot.table, new

            return None
        finally:
            work.most = may
            self._units -= work.used - before

    def _that_fit(self) -> dict[str, Head]:
        """Heads that the last plan found able to start on the empty cluster before it ran out of
        work: to look at them again would take the work that their reservations need, in every plan.
        They are entitled from here on.
        """
        (table, fitting), self._cache.fitting = self._cache.fitting, (None, {})
        if table is not self._snapshot.table:
            return {}

        generations = {each: head.group.generation for each, head in self._heads.items()}
        same = {
            each: head
            for each, head in fitting.items()
            if generations.get(each) == head.group.generation
        }
        self._entitled |= same.keys()
        self._fitting |= same.keys()

        return same

    def _stands(self, group_id: str) -> bool:
        return any(reservation.head.group.id == group_id for reservation in self._reservations)

    def _lacking(self, groups: Iterable[str]) -> bool:
        """Whether one of these candidates has no reservation, or a stale one, and it is not known
        why.
        """
        have = {reservation.head.group.id for reservation in self._reservations} - self._stale
        return any(group not in have and group not in self._not_reserved for group in groups)

    # --- making ----------------------------------------------------------------------------------

    def _chosen(self) -> list[Head]:
        """The heads among the groups that are known to be refused for room."""
        heads, others = find_heads(
            self._heads.values(),
            self._nothing_runs(),
            self._reserving.limits,
            wall_s=self._reserving.wall_s,
            entitled=self._entitled,
            first=self._first,
            known=self._not_reserved,
            looks=self._looks,
        )
        new = {head.group.id for head in heads} - self._entitled
        impossible = (each for each, why in others.items() if why.why is NotEntitled.IMPOSSIBLE)
        self._fitting |= new
        self._looks -= len(new) + sum(each not in self._not_reserved for each in impossible)
        self._entitled |= new

        # of a tree, maybe another choice of its children
        self._heads |= {head.group.id: head for head in heads}
        for group_id, why in others.items():
            # those that stand go when another one has come
            if why.why not in BY_NUMBER or not self._stands(group_id):
                self._not_reserved[group_id] = why
                self._drop(group_id)

        return heads

    def _make_next(self, heads: Sequence[Head], *, but: Container[str] = ()) -> bool:
        """Make the reservation of the first head that has none or a stale one; False if there is no
        such head.
        """
        known = {reservation.head.group.id: reservation for reservation in self._reservations}
        lacking = (
            head for head in heads if head.group.id in self._stale or head.group.id not in known
        )

        head = next((head for head in lacking if head.group.id not in but), None)
        if head is None:
            return False

        self._left -= 1
        self._stale.discard(head.group.id)
        self._made.add(head.group.id)
        self._ledger.respect_nominations(head.group.lowest_priority, but=head.group.id)

        # All in order, although one is made: those before it are in the way, and those after it may
        # have to give way.
        each_once = {
            reservation.head.group.id: reservation.head for reservation in self._reservations
        } | {head.group.id: head}
        order = sorted(each_once.values(), key=lambda each: rank(each, self._first))

        # Began with most of a plan's work and did not end: the next plan would fail in the same
        # way.
        has_share = self._ledger.work.left > WORK // 2
        checkpoint = self._ledger.checkpoint()

        try:
            # the timeline has their ends, and what they free is promised
            self._ledger.leave_for_promises()
            with self._ledger.promises.none():
                self._reservations, others = make_reservations(
                    order,
                    self._ledger,
                    self._nothing_runs(),
                    self._ends(),
                    self._reserving.limits,
                    wall_s=self._reserving.wall_s,
                    standing=known,
                    anew={head.group.id},
                    fitting=self._fitting,
                    placed=self._placed_uids(),
                )
        except StartUnknownError:
            # The next plan asks that with all of its work, as of any group that is no head yet.
            self._drop(head.group.id)
            self._entitled.discard(head.group.id)
            return True
        except OutOfWork:
            if not has_share:
                self._stale.add(head.group.id)
                raise

            self._not_reserved[head.group.id] = head.too_much_work
            self._drop(head.group.id)
            return True
        finally:
            self._ledger.rollback(checkpoint)

        self._not_reserved |= others
        self._lost(others.keys() & known.keys())
        self._entitled -= others.keys()
        self._backfill = self._bind()
        self._give_way()

        return True

    def _placed_uids(self) -> Set[str]:
        """Those of the pods that this plan has placed."""
        return {placement.pod.uid for placed, _ in self._placed for placement in placed}

    def _give_way(self) -> None:
        """Those that are too many now, all in all or of a namespace, end; the last first."""
        limits = self._reserving.limits
        used = Counter[str]()
        number = 0

        for head in [reservation.head for reservation in self._reservations]:
            full = []
            for namespace in () if head.heals else sorted(head.namespaces):
                if used[namespace] >= limits.per_namespace:
                    full.append(namespace)

            if not full and number < limits.reservations:
                number += 1
                if not head.heals:
                    used.update(head.namespaces)

                continue

            of_namespace = (
                NotReserved(why=NotEntitled.NAMESPACE, namespace=full[0], offers=used[full[0]])
                if full
                else None
            )
            self._drop(head.group.id)
            self._not_reserved[head.group.id] = of_namespace or LATER

    def _drop(self, group_id: str) -> None:
        """The group is no head any more; those after it may start earlier."""
        self._heads.pop(group_id, None)
        left = []

        for reservation in self._reservations:
            if reservation.head.group.id != group_id:
                left.append(reservation)

        if len(left) < len(self._reservations):
            self._reservations = left
            self._lost((group_id,))
            self._backfill = self._bind()

    def _lost(self, groups: Iterable[str]) -> None:
        """The reservations of these groups are gone, so that their places are for the next ones."""
        gone = set(groups) & self._entitled
        if gone:
            self._entitled -= gone
            self._not_reserved = {
                each: why for each, why in self._not_reserved.items() if why.why not in BY_NUMBER
            }
            self._stale.update(reservation.head.group.id for reservation in self._reservations)

    def _nothing_runs(self) -> Ledger:
        if self._empty is None:
            self._empty = empty_ledger(self._snapshot, self._ledger.policy, self._ledger.work)
            # What is derived from slices and classes is the same on the empty cluster, and costly.
            self._empty.occupancy.storage.derives_with(self._ledger.occupancy.storage)

        return self._empty

    def _ends(self) -> Timeline:
        """When those end that run now and that were placed in this plan."""
        if self._timeline is None:
            self._timeline = self._cache.columns.timeline(self._reserving.occupants(), self._ledger)

        timeline = self._timeline
        for placed, ends_s in self._placed:
            timeline = timeline.with_reserved(placed, self._reserving.wall_s, ends_s)

        return timeline

    # --- binding ---------------------------------------------------------------------------------

    def _bind(self) -> Backfill:
        """Keep others off what is reserved, from here on."""
        kept = [self._kept(number) for number in range(len(self._reservations))]
        backfill = Backfill(kept, self._ledger, wall_s=self._reserving.wall_s)
        self._ledger.promises.reserved = backfill if kept else None

        return backfill

    def _kept(self, number: int) -> Kept:
        """The room of a reservation; it is stale where more is reserved than there will be at its
        time.

        A fence is stale where one before it was made anew on its nodes.
        """
        each = self._reservations[number]
        ledger = self._ledger

        if each.is_fence and any(
            np.isin(each.nodes, reservation.nodes).any()
            for reservation in self._reservations[:number]
        ):
            self._stale.add(each.head.group.id)

        kept, rows = self._records.kept(each, self._reservations[:number])
        before = self._before.get(each.head.group.id)
        kept.missed = before is not None and before.promised_s + MISSED_S <= self._reserving.wall_s

        for placed, ends_s in self._placed:
            if not kept.outlived_by(ends_s):
                add(
                    kept,
                    (
                        (ledger.table.index[placement.node], placement.pod.shape, 1)
                        for placement in placed
                    ),
                    ledger,
                )

        # Somebody took what was reserved (a node shrank, another scheduler, a higher priority), or
        # a pod outlasts its end.
        short = ledger.free[rows[:, None], each.nodes] + kept.change[rows] < 0
        if short.any() and each.head.group.id not in self._made:
            self._stale.add(each.head.group.id)

        return kept

    # --- from one plan to the next ---------------------------------------------------------------

    def _read(self, standing: Iterable[Reserved]) -> Iterator[Reservation]:
        """The last plan's reservations that still stand; one whose nodes are partly gone is to be
        made again.
        """
        for each in standing:
            if each.group in self._heads:
                reservation, whole = self._records.read(each, self._heads[each.group])
                if not whole or self._heads[each.group].choice != each.choice:
                    self._stale.add(each.group)

                if len(reservation.nodes):
                    yield reservation

    def result(self, verdicts: Mapping[str, Verdict]) -> Reservations:
        """The reservations after this plan. `verdicts` are final; from here on no group is
        restricted.
        """
        # Verdicts may have changed after their turn, as by preemption.
        for group_id in list(self._heads):
            if group_id in verdicts and not _waits_for_room(verdicts[group_id]):
                self._drop(group_id)

        self.finish()
        gone = (
            reservation
            for reservation in self._kept_off
            if reservation not in self._reservations and reservation.head.group.id in self._made
        )
        replaced = tuple([self._write(reservation, first=False) for reservation in gone])
        standing = tuple(
            self._write(each, first=not number) for number, each in enumerate(self._reservations)
        )
        stays = {reservation.group for reservation in standing}
        self._records.forget(stays)
        said = {
            group_id: why for group_id, why in self._not_reserved.items() if group_id not in stays
        }

        # what keeps room looks at the ledger: each would keep the other
        self._ledger.promises.reserved = None
        return Reservations(
            standing=standing,
            stale=frozenset(self._stale & stays),
            not_reserved=said,
            replaced=replaced,
        )

    def _write(self, each: Reservation, *, first: bool) -> Reserved:
        group_id = each.head.group.id
        return self._records.write(
            each,
            self._before.get(group_id),
            first=first,
            stale=group_id in self._stale,
        )


def _waits_for_room(verdict: Verdict) -> bool:
    """Whether the group was refused for room, and none is being made for it by preemption (H3)."""
    reason = verdict.told.reason
    for_room = reason is Reason.UNSCHEDULABLE or reason is Reason.HOLDING
    return for_room and not isinstance(verdict.preemption, Preemption)


def _newly_placed(group: Group, verdict: Verdict) -> tuple[Placement, ...]:
    """Placements of the verdict for members that had no room before."""
    had = {placement.pod.uid for gang in group.gangs for placement in (*gang.held, *gang.kept)}
    placed = *verdict.binds, *verdict.holds

    if had:
        return tuple(placement for placement in placed if placement.pod.uid not in had)

    return placed
