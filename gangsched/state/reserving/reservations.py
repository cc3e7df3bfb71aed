"""Reservations between plans: what exists, who may be a head, and when they need a plan (H3, H12).

Invariant: plans make decisions, and this module stores them. It reads no members or groups while no
group waits for room. Reservations are recomputed at most once a second after a change that could
let a head start earlier; each plan detects which reservations can no longer be kept. When a
reservation ends or shrinks, the groups that it kept out wake up (Q3).
"""

from __future__ import annotations

import math
from collections.abc import (
    Callable,
    Collection,
    Container,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
    Set,
)
from typing import Any, Final

from msgspec import structs

from gangsched.core.queue_sort import group_key, passing_key
from gangsched.core.reservations.heads import BY_NUMBER, head_of, rank
from gangsched.core.reservations.records import ReservationCache
from gangsched.model.backfill import BackfillOrder
from gangsched.model.gang import Group
from gangsched.model.objects import Shape
from gangsched.model.plan import Verdict
from gangsched.model.reasons import Reason
from gangsched.model.reservation import (
    NotEntitled,
    NotReserved,
    Occupant,
    Reservations,
    Reserved,
    Reserving,
)
from gangsched.model.snapshot import Ints, NodeTable, Snapshot
from gangsched.state.cluster import Cluster
from gangsched.state.group_record import (
    Entitlement,
    EntitlementCause,
    GroupRecord,
    HeadRank,
    QueueCause,
)
from gangsched.state.groups import Registry
from gangsched.state.queueing.queue import Queue
from gangsched.state.reserving.compared import freed, overtaking, rank_of, rooms
from gangsched.state.reserving.expected_ends import ExpectedEnds
from gangsched.state.reserving.fences import Fences
from gangsched.state.reserving.ineligible import REASONS, Ineligible
from gangsched.state.reserving.news import takes_one
from gangsched.state.reserving.waiting import Waiting
from gangsched.state.rule_set import Rules
from gangsched.state.timers import JUMP_S, Timers

EVERY_S: Final = 1.0
"""How often reservations are made anew for what happened in the cluster."""
RETRIED_AFTER_S: Final = {NotEntitled.SEARCHING: EVERY_S, NotEntitled.TOO_MUCH_WORK: 60.0}
"""When a candidate is examined again whose search did not end: at once where the next plan goes on
from what was found, else seldom, since each attempt costs all the work that a plan has for
reservations."""
FORGET_S: Final = 10.0
"""Where no reservation stands for so long, what was remembered for the next plan that makes one is
forgotten.
"""
MADE_AT_MOST: Final = 2
LOOKED_AT_A_TIME: Final = 5_000
"""Pods whose ends one turn looks at, 2 to 3 µs each: where more are on nodes that changed, or whose
end has passed, turns without a plan come first. A gang that came, ended or outlasted its time on
5,000 nodes took one turn 0.2 s.
"""
ORDERED: Final = NotReserved(why=NotEntitled.ORDERED)
REFUSED_FOR_ROOM: Final = frozenset({Reason.UNSCHEDULABLE, Reason.HOLDING})


class StandingReservations:
    """Reservations of the last plan, in order, as `standing`. `wall_s` is in epoch seconds."""

    def __init__(
        self,
        ends: ExpectedEnds,
        cluster: Cluster,
        registry: Registry,
        queue: Queue,
        rules: Rules,
    ) -> None:
        self._limits = rules.reservations
        self._ends = ends
        self._cluster = cluster
        self._registry = registry
        self._queue = queue
        self.standing: tuple[Reserved, ...] = ()
        #: The groups that these are for.
        self.heads: frozenset[str] = frozenset()
        self.waiting = Waiting()
        self._ineligible = Ineligible(cluster, registry.groups)
        self._fences = Fences(cluster, rules)
        self._examined: set[GroupRecord] = set()
        self._over = Timers()  # epoch seconds at which the results of the examined end, by group
        self._found: list[GroupRecord] = []
        self._found_for = -1
        self._found_beside: tuple[Reserved, ...] | None = None
        self._table: NodeTable | None = None
        self._overhead: Ints | None = None
        self._later: set[str] = set()  # stale, to be recomputed when that is allowed next
        self._now: set[str] = set()  # stale, and being recomputed, a few in each plan
        self._made_s = -math.inf
        #: Nodes on which they leave others more room, until `take_opened`.
        self._opened = set[str]()
        self._gone = False
        self._moved = False
        self._is_first_plan = True
        self._is_outdated = False  # what stands names pods that are gone
        self.cache = ReservationCache()
        self._forget_s = math.inf  # when what is remembered is of no use any more
        self._unreserved: frozenset[str] = frozenset()  # gangs that an administrator named
        self._behind_s = 0.0  # the epoch's second at monotonic second 0

    # --- what happens between plans --------------------------------------------------------------

    def on(self) -> bool:
        """Whether reservations are enabled."""
        return self._limits.reservations > 0

    @property
    def has_lost_a_head(self) -> bool:
        """Whether room is reserved for a group that is gone or has no waiting pods; the next plan
        ends that reservation.
        """
        return self._gone

    def is_stale(self, group_id: str) -> bool:
        """Whether a plan within a second computes the group's reservation again, or ends it."""
        return group_id in self._later or group_id in self._now

    def forbid(self, gang_ids: frozenset[str], now_s: float) -> None:
        """Reserve nothing for the groups of these gangs; the next plan ends what is reserved for
        them.
        """
        changed = self._unreserved ^ gang_ids
        self._unreserved = gang_ids
        group_of = self._registry.group_of
        ids = set()
        for gang_id in changed:
            if gang_id in group_of:
                ids.add(group_of[gang_id])

        groups = [self._registry.groups[group_id] for group_id in sorted(ids)]
        allowed = [
            record
            for record in groups
            if not self._is_forbidden(record) and _why_not(record) == ORDERED
        ]
        excluded = [record for record in allowed if record.ineligible is not None]
        self._make_eligible(excluded, now_s)

        for group in groups:
            self._forget(group)
            self._queue.activate(group.id, QueueCause.ORDERED)

    def _is_forbidden(self, group: GroupRecord) -> bool:
        if not self._unreserved:
            return False

        return not self._unreserved.isdisjoint(group.gangs)

    def changed(self, groups: Mapping[str, GroupRecord]) -> None:
        """Drop results about groups that changed and are queued again."""
        for group in groups.values():
            self.waiting.remove(group)
            self._ineligible.changed(group)
            self._forget(group)

        self._later |= self.heads & groups.keys()

    def gone(self, groups: Mapping[str, GroupRecord]) -> None:
        """Remove groups that are gone."""
        self.changed(groups)
        for group in groups.values():
            self._ineligible.remove(group)

        # No plan decides a group that is gone, so nothing else would make one that gives back its
        # room.
        self._gone = self._gone or not self.heads.isdisjoint(groups)

    def left(self, group_id: str) -> None:
        """Remove a group without waiting pods, which plans do not decide."""
        # Its PodGroup stays, so the group is known; its room was kept for a second longer than
        # needed.
        self._gone = self._gone or group_id in self.heads

    def cluster_changed(
        self,
        freed: Set[str],
        snapshot: Snapshot,
        now_s: float,
        *,
        evicting: Container[str] = (),
    ) -> None:
        """Record that pods or nodes changed; a head that the `freed` nodes may help is tried before
        other groups.

        `snapshot` is without room that may be yielded; heads that are `evicting` may have more room
        than it shows (H11).
        """
        self._moved = True
        for reservation in self.standing if freed else ():
            nodes = freed & set(reservation.nodes)
            if (
                nodes
                and self._awaits_room(reservation.group)
                and (
                    reservation.group in evicting
                    or self._may_use(reservation, nodes, snapshot, now_s)
                )
            ):
                self._queue.activate(reservation.group, QueueCause.RESERVED_ROOM_FREED)

    def _may_use(
        self,
        head: Reserved,
        nodes: Set[str],
        snapshot: Snapshot,
        now_s: float,
    ) -> bool:
        """Whether one of these nodes has the room for a pod of the head, with what it may take by
        preemption.
        """
        if head.group not in self._registry.groups:
            return False

        there = {}
        for name in nodes:
            there[name] = self._cluster.residents(name).values()

        lower = {
            name: [pod for pod in pods if pod.priority < head.priority]
            for name, pods in there.items()
        }
        return takes_one(self._shapes(head.group, now_s), snapshot, lower)

    def rank(self, group: Group) -> tuple[Any, ...]:
        """Sort key of the order in which groups that wait for room are woken up (Q1, H9)."""
        if self._shortest_first(self.standing):
            return passing_key(group)

        return group_key(group)

    def _shortest_first(self, standing: Collection[Reserved]) -> bool:
        return bool(standing) and self._limits.order is BackfillOrder.SHORTEST

    def settled(self, verdict: Verdict, now_s: float) -> None:
        """Apply a committed verdict; if the group gained or lost a reservation, it is examined
        again.
        """
        moved = verdict.binds or verdict.holds or verdict.releases
        group = self._registry.groups[verdict.group]
        head = None

        # A head waits for room and nothing else: other refusals end without anybody making room
        # (H3).
        if not moved and verdict.reason in REFUSED_FOR_ROOM:
            head = head_of(self._registry.group(verdict.group, now_s))

        if moved:
            self._ineligible.remove(group)

        if head is None:
            self.waiting.remove(group)
            self._ineligible.changed(group)
        elif group.ineligible is None:
            self.waiting.put(group, min(head.namespaces), rank(head, ""), EntitlementCause.REFUSED)

    def _awaits_room(self, group_id: str) -> bool:
        group = self._registry.groups.get(group_id)
        return group is not None and group.awaits_room

    # --- what a plan is given, and what it answers -----------------------------------------------

    def given(
        self,
        ready: Collection[Group],
        now_s: float,
        wall_s: float,
    ) -> Reserving | None:
        """Reservation input of a plan of these groups; None if no group is ready and no reservation
        is due.
        """
        self._forget_unused(now_s)
        if not self.on() or not (ready or self.standing or self.waiting or self._ineligible):
            return None

        behind_s = wall_s - now_s
        if behind_s <= self._behind_s - JUMP_S:
            # The clock was ahead when these times were set.
            self._over.all_at_once(self._over.keys())

        self._behind_s = behind_s
        # A pod that outlasts its expected end moves every reservation that counted on it.
        passed = bool(self.standing) and self._ends.passes_s <= wall_s
        self._look_again(now_s, wall_s)
        self._fences.look(self.standing, now_s)
        ended = {**self._fences.over(wall_s), **dict.fromkeys(self._forbidden(), ORDERED)}

        # Those of the last second first: a few are made in each plan, and new causes must not
        # starve the rest.
        if self._later and not self._now and now_s >= self._made_s + EVERY_S:
            self._now = self._later
            self._later = set()
            self._made_s = now_s

        # no plan decides about the others
        in_turn = set()
        for group in ready:
            if not group.unchanged:
                in_turn.add(group.id)

        heads = set(filter(self._awaits_room, self.heads))
        new = [record.id for record in self._candidates() if record.not_reserved is None]

        if not (ready or self._gone or self._now or new or passed or ended or self._is_outdated):
            return None

        ids = (heads | set(new)) - in_turn
        about = []
        for group_id in (*ids, *in_turn):
            about.append(self._registry.groups[group_id])

        return Reserving(
            limits=self._limits,
            wall_s=wall_s,
            occupants=lambda: self._ends.occupants(wall_s),
            last_ends=lambda table: self._ends.last_ends(table, wall_s),
            standing=self.standing,
            stale=frozenset(self._now),
            waiting=tuple(self._registry.group(group_id, now_s) for group_id in sorted(ids)),
            known={
                record.id: why for record in about if (why := self._why_not(record)) is not None
            },
            # After a restart all at once: until they stand, others would start on what was promised
            # by the process before (H16).
            made_at_most=max(MADE_AT_MOST, self._limits.reservations if self._is_first_plan else 0),
            ended=ended,
        )

    def _forbidden(self) -> list[str]:
        """Groups with a reservation that an administrator forbade."""
        if not self._unreserved:
            return []

        groups = (self._registry.groups.get(reservation.group) for reservation in self.standing)
        result: list[str] = []
        for group in groups:
            if group is not None and self._is_forbidden(group):
                result.append(group.id)

        return result

    def _why_not(self, group: GroupRecord) -> NotReserved | None:
        if self._is_forbidden(group):
            return ORDERED

        return _why_not(group)

    def glance(
        self,
        now_s: float,
        wall_s: float,
        in_turn: Set[str],
    ) -> Reserving | None:
        """Reservation input of a hypothetical plan of groups `in_turn`: existing
        reservations only.
        """
        if not self.on():
            return None

        heads = set(filter(self._awaits_room, self.heads - in_turn))
        return Reserving(
            limits=self._limits,
            wall_s=wall_s,
            occupants=lambda: self._ends.glance(wall_s),
            last_ends=lambda table: self._ends.last_ends_at_a_glance(table, wall_s),
            standing=self.standing,
            waiting=tuple(self._registry.group(group_id, now_s) for group_id in sorted(heads)),
            made_at_most=0,
        )

    def is_behind(self, wall_s: float) -> bool:
        """Whether the ends of so many pods are to be looked at that a plan should not do it."""
        return self.on() and self._ends.exceeds(LOOKED_AT_A_TIME, wall_s)

    def catch_up(self, wall_s: float) -> None:
        """Look at the ends of some of the pods on nodes that changed."""
        self._ends.catch_up(LOOKED_AT_A_TIME, wall_s)
        self._moved = True  # what was found is news for the next plan

    def read_ends(self, wall_s: float) -> None:
        """Look at the ends of pods on nodes that changed, which the next plan will ask for."""
        are_asked_for = self.standing or self._examined or self.waiting
        if self.on() and are_asked_for and self._cluster.touched:
            self._ends.occupants(wall_s)
            self._moved = True

    def _forget_unused(self, now_s: float) -> None:
        """Keep no pods that are gone where nothing rests on when they were to end."""
        if self.standing or self._examined or self._forget_s == math.inf:
            self._forget_s = now_s + FORGET_S
        elif now_s >= self._forget_s:
            self._forget_s = now_s + FORGET_S
            # Occupants hold pods, and through them shapes; without a reservation nobody asks for
            # their changes.
            self._ends.forget_gone()
            self.cache.clear()

    def _look_again(self, now_s: float, wall_s: float) -> None:
        """See what has changed since the last plan that a reservation rests on."""
        snapshot = self._cluster.snapshot()
        # Another table is other nodes or labels; another overhead, less room on a node that is
        # otherwise empty.
        if snapshot.table is not self._table or snapshot.overhead is not self._overhead:
            self._table = snapshot.table
            self._overhead = snapshot.overhead
            self._later |= self.heads

        self._make_eligible(self._ineligible.over(snapshot, now_s, wall_s), now_s)
        for group_id in self._over.take_due(wall_s):
            self._forget(self._registry.groups[group_id])

        # Also where no room was freed: a pod that runs may say only now how long it takes (H1).
        has_news = self._moved or bool(self._cluster.touched) or self._ends.passes_s <= wall_s
        if (self.standing or self._examined) and has_news:
            self._moved = False
            self._take_news(self._ends.occupants(wall_s), now_s)

    def _take_news(
        self,
        on: Mapping[str, Sequence[Occupant]],
        now_s: float,
    ) -> None:
        """See whom it helps that pods go earlier than was expected, or leave nodes empty."""
        news = self._ends.take_news()
        self._open_beside(news.sooner)
        tried = []
        for record in self._candidates():
            if record.not_reserved is not None:
                tried.append(record)

        standing = self.heads & self._registry.groups.keys()
        heads = [*standing, *(record.id for record in tried)]
        shapes = [self._shapes(head, now_s) for head in heads]
        self._is_outdated |= any(
            blocker.id in news.left
            for reservation in self.standing
            for blocker in reservation.waits_for
        )
        asked = set().union(*shapes)

        ends_known = self._ends.passes_s < math.inf
        if news.may_help(asked, self._cluster.snapshot(), on, ends_known=ends_known):
            # Which of the examined it helps would take as long to find as examining them.
            self._forget_if(lambda _: True)
            self._later |= self.heads
            return

        if news.earlier:
            for group in self._examined.difference(tried):
                self._forget(group)

        if news.emptied:
            self._later.update(
                reservation.group for reservation in self.standing if reservation.is_fence
            )

    def _open_beside(self, nodes: Set[str]) -> None:
        """Open the room that reservations leave on these nodes: pods there are now expected to end
        before a reservation begins, though nothing is freed and it stays as it is.
        """
        reserved: set[str] = set()
        for reservation in self.standing:
            reserved |= nodes & set(reservation.nodes)

        self._opened |= reserved

    def _shapes(self, group_id: str, now_s: float) -> set[Shape]:
        """Those of the pods that wait."""
        gangs = self._registry.group(group_id, now_s).gangs
        shapes: set[Shape] = set()
        for gang in gangs:
            for pod in (*gang.pending, *gang.retry):
                shapes.add(pod.shape)

        return shapes

    def _forget(self, group: GroupRecord) -> None:
        """Drop why nothing was reserved for the group."""
        self._examined.discard(group)
        self._over.drop(group.id)
        group.not_reserved = None

    def _forget_if(self, is_over: Callable[[NotReserved], bool]) -> None:
        for group in [
            record
            for record in self._examined
            if record.not_reserved is None or is_over(record.not_reserved)
        ]:
            self._forget(group)

    def _make_eligible(self, groups: Iterable[GroupRecord], now_s: float) -> None:
        """Let these groups be heads again, because the cause that excluded them is over."""
        for group in groups:
            # No plan decides about a group of which nothing waits, nor finds a head in it: one that
            # was entitled would call for plans without end.
            if not self._registry.group(group.id, now_s).waits:
                self._ineligible.remove(group)
                continue

            assert group.head is not None
            self._ineligible.end(group)
            self.waiting.put(group, *group.head, EntitlementCause.ALLOWED)

    def _candidates(self) -> list[GroupRecord]:
        """Groups that may be heads and have no reservation; found anew only when others wait or
        stand than before.
        """
        # With 2,000 waiting groups each plan looked for eight among them; now only a plan after a
        # change does.
        if self._found_for != self.waiting.version or self._found_beside is not self.standing:
            for group in self._found:
                if group.entitlement is Entitlement.CANDIDATE:
                    group.entitle(EntitlementCause.PASSED)

            self._found = [self._registry.groups[group_id] for group_id in self._find()]
            for group in self._found:
                group.entitle(EntitlementCause.FIRST)

            self._found_for = self.waiting.version
            self._found_beside = self.standing

        return self._found

    def _find(self) -> list[str]:
        full = len(self.standing) >= self._limits.reservations
        last = rank_of(self.standing[-1]) if full else None
        ends: dict[str, list[HeadRank]] = {}

        for reservation in self.standing:
            for namespace in reservation.namespaces:
                ends.setdefault(namespace, []).append(rank_of(reservation))

        of_full = {}
        for space, ranks in ends.items():
            if len(ranks) >= self._limits.per_namespace:
                of_full[space] = max(ranks)

        def before(namespace: str) -> HeadRank | None:
            of_namespace = of_full.get(namespace, last)
            if of_namespace is not None and last is not None:
                return min(of_namespace, last)

            return of_namespace

        return self.waiting.first(
            self._limits.reservations,
            of_each=self._limits.reservations,
            before=before,
            skip=self.heads.__contains__,
        )

    def take_opened(self) -> set[str]:
        """The nodes on which reservations leave others more room since the last call."""
        opened = self._opened
        self._opened = set()
        return opened

    def take(self, answer: Reservations, now_s: float) -> None:
        """Record the reservations of a plan."""
        before = self.standing
        former = self.heads
        # The same tuple if nothing changed, as in most plans: what was found beside it stays valid.
        is_same = answer.standing == before
        if not is_same:
            self.stand(answer.standing)

        self._fences.look(self.standing, now_s)

        # While any reservation stands, groups are woken in another order (H9).
        if self._shortest_first(before) != self._shortest_first(self.standing):
            self._queue.rerank(lambda group_id: self._rank_of(group_id, now_s))

        stays = self.heads
        # Who was too far behind may have moved up.
        if former != stays:
            self._forget_if(lambda why: why.why in BY_NUMBER or why.why is NotEntitled.SHARE)

        # What the plan found outdated and was not asked about waits for its second, as any other.
        self._later = (self._later | (answer.stale - self._now)) & stays
        self._now &= answer.stale & stays
        self._gone = self._is_first_plan = self._is_outdated = False

        for group_id, why in answer.not_reserved.items():
            self._take_why_not(group_id, why, now_s)

        if not is_same and rooms(before) != rooms(self.standing):
            # The other reservations changed, so a group may now get a start time, or a share of its
            # accelerators.
            self._forget_if(lambda why: why.why in _BESIDE_OTHERS)

        self._opened |= freed((*before, *answer.replaced), self.standing)
        if not is_same:
            self._look_behind(before)

    def stand(self, reservations: tuple[Reserved, ...]) -> None:
        """Only these stand from now on."""
        self.standing = reservations
        self.heads = frozenset([reservation.group for reservation in reservations])

    def _take_why_not(self, group_id: str, why: NotReserved, now_s: float) -> None:
        """Record why a plan reserved nothing for a group."""
        group = self._registry.groups.get(group_id)
        if group is None or not group.awaits_room:
            return

        if why.why in REASONS:
            self.waiting.remove(group, EntitlementCause.EXCLUDED)
            self._ineligible.put(group, why, frozenset(self._shapes(group_id, now_s)))
            return

        if why.why in BY_NUMBER and group.entitlement is not Entitlement.CANDIDATE:
            # counted anew in no time, while thousands of such facts were forgotten at each event
            return

        self._examined.add(group)
        # A search goes on over several plans; without this nothing would call for the next one
        # (H5).
        again_s = min(
            why.until_s,
            self.wall_s(now_s) + RETRIED_AFTER_S.get(why.why, math.inf),
        )
        self._over.set(group_id, again_s)
        group.not_reserved = structs.replace(why, until_s=again_s)

    def _look_behind(self, before: Sequence[Reserved]) -> None:
        """Plan groups again that were refused for room which a reservation before them does not
        give back.
        """
        for group_id in overtaking(before, self.standing):
            group = self._registry.groups.get(group_id)
            if group is None or group.verdict is None:
                continue

            # Of who is nominated a verdict says where, and not what keeps it off meanwhile.
            if group.verdict.kept_for is not None or group.nomination is not None:
                self._queue.activate(group_id, QueueCause.RESERVATIONS_CHANGED)

    def _rank_of(self, group_id: str, now_s: float) -> tuple[Any, ...]:
        if group_id in self._registry.groups:
            return self.rank(self._registry.group(group_id, now_s))

        return ()

    def indexes(self) -> Iterator[tuple[str, Set[str], Callable[[GroupRecord], bool]]]:
        """For validation: each index with its groups, and a predicate for the groups that should be
        in it.
        """
        yield "waiting for room", self.waiting.ids(), lambda group: group.awaits_room
        yield (
            "ineligible",
            self._ineligible.ids(),
            lambda group: group.entitlement is Entitlement.INELIGIBLE,
        )
        yield (
            "examined",
            {group.id for group in self._examined},
            lambda group: group.not_reserved is not None,
        )
        candidates = {
            group.id for group in self._found if group.entitlement is Entitlement.CANDIDATE
        }
        yield "candidates", candidates, lambda group: group.entitlement is Entitlement.CANDIDATE

    def wall_s(self, now_s: float) -> float:
        """Epoch second at a monotonic second, as of the last plan."""
        return self._behind_s + now_s

    def next_deadline_s(self) -> float:
        """Monotonic time at which reservations need a plan without an event."""
        if not (self.standing or self._ineligible or self._examined or self._later):
            return math.inf

        return min(
            self._made_s + EVERY_S if self._later else math.inf,
            self._ineligible.next_s(self._behind_s),
            min(self._fences.next_s(), default=math.inf),
            self._over.next_s() - self._behind_s,
            self._ends.passes_s - self._behind_s if self.standing else math.inf,
        )


def _why_not(group: GroupRecord) -> NotReserved | None:
    """Why nothing is reserved for the group, as far as that is known already."""
    if group.ineligible is not None:
        return group.ineligible.why

    return group.not_reserved


_BESIDE_OTHERS: Final = frozenset({NotEntitled.NO_TIME, NotEntitled.SHARE})
