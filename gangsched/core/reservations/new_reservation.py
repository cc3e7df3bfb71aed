"""Making reservations: room that is reserved for heads from a start time on, or without a start
time (semantics H5 to H7).

Invariant: a reservation only restricts other groups; its own group starts wherever it fits. The
result depends on the arguments alone, so a restart computes the same one. A reservation is never
moved to a later time while its current time can be kept. Ledgers are left unchanged. `passing`
decides which room other groups may use; `heads` decides which groups are heads.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import numpy as np
from msgspec import structs

from gangsched.core.permit import missing
from gangsched.core.placement_attempt import PlacementAttempt
from gangsched.core.reservations.head_sums import HeadDomains, HeadSums
from gangsched.core.reservations.heads import Head, startable
from gangsched.core.reservations.timeline import Floats, Timeline
from gangsched.core.reserve import Ledger
from gangsched.core.rounds import run_round
from gangsched.core.scopes import usable
from gangsched.core.search.domains import Domains, fits
from gangsched.core.work import OutOfWork, Work
from gangsched.model.gang import Placement
from gangsched.model.objects import Shape
from gangsched.model.plan import RoundOutcome
from gangsched.model.reservation import NotEntitled, NotReserved, ReservationLimits
from gangsched.model.snapshot import Bools, Ints

ROUNDS = 3
"""Rounds that look for the time of one head."""
CLAIM_ROUNDS = 12
"""The same for a head whose pods claim devices, if a time is found: they halve the ends
11 times.
"""
TIME_WORK = 6_000
"""Units with which a search for a time has had its chance."""
FENCE_WORK = 3_000
"""Units that the search for a time leaves for a fence, which mostly suffice."""


class StartUnknownError(OutOfWork):
    """The search for a head's time found none, and left too little work to say whether the head can
    start at all.
    """


@dataclass(frozen=True, slots=True, eq=False)
class Reservation:
    """Room on `nodes` that is reserved for a group from `at_s` on. A fence has no start time
    (`math.inf`) and reserves whole nodes.
    """

    head: Head
    at_s: float
    nodes: Ints
    placements: tuple[Placement, ...] = ()

    @property
    def is_fence(self) -> bool:
        """Whether the reservation is a fence, which has no start time."""
        return self.at_s == math.inf

    def is_as(self, other: Reservation) -> bool:
        """Whether both reserve the same room from the same time on."""
        if not np.array_equal(self.nodes, other.nodes):
            return False

        return self.at_s == other.at_s and self.placements == other.placements


@dataclass(slots=True)
class _Standing:
    """The reservations made so far, while later heads are examined."""

    reservations: list[Reservation] = field(default_factory=list)
    fenced: set[str] = field(default_factory=set)
    share: Counter[str] = field(default_factory=Counter)


def make_reservations(
    heads: Sequence[Head],
    ledger: Ledger,
    empty: Ledger,
    timeline: Timeline,
    limits: ReservationLimits,
    *,
    wall_s: float,
    standing: Mapping[str, Reservation] | None = None,
    anew: Container[str] | None = None,
    fitting: Container[str] = frozenset(),
    placed: Container[str] = frozenset(),
) -> tuple[list[Reservation], dict[str, NotReserved]]:
    """Reserve room for these heads in order, each after the heads before it. Also return the
    reasons of heads without a reservation.

    `ledger` has the current room, `empty` the room of empty nodes. `standing` are the existing
    reservations by group id. Only reservations of the groups in `anew` are recomputed; None means
    all. Those that are `fitting` have been found able to start on these very nodes. Pods with the
    uids `placed` have room on the ledger since, wherever it was reserved. Raises StartUnknownError.
    """
    made = _Standing()
    others = dict[str, NotReserved]()
    known = standing or {}

    with ledger.tentative():
        for each in heads:
            head = each
            found = old = known.get(head.group.id)

            if anew is None or head.group.id in anew:
                found = _anew(head, old, made, ledger, empty, timeline, limits, wall_s=wall_s)
                if found is None:
                    can = head if head.group.id in fitting else _can_still(head, empty)
                    if isinstance(can, Head) and can is not head:  # other children of its tree
                        head = can
                        found = _anew(
                            head,
                            None,
                            made,
                            ledger,
                            empty,
                            timeline,
                            limits,
                            wall_s=wall_s,
                        )

                    if found is None:
                        why = _without_time(head, limits, wall_s) if isinstance(can, Head) else can
                        others[head.group.id] = why

                # The same object, by which caches of later plans recognise it (`records`).
                if found is not None and old is not None and found.is_as(old):
                    found = old

            if found is not None and not _within_share(found, made, ledger, limits):
                found = None
                others[head.group.id] = NotReserved(why=NotEntitled.SHARE)

            if found is None:
                continue

            made.reservations.append(found if found.head is head else replace(found, head=head))
            if found.is_fence:
                made.fenced |= {ledger.table.names[node] for node in found.nodes}

            # Later heads see its room in use from its start to its own expected end, and free after
            # that.
            awaited = [place for place in found.placements if place.pod.uid not in placed]
            if awaited:
                _reserve(awaited, ledger)
                timeline = timeline.with_reserved(
                    awaited,
                    found.at_s,
                    found.at_s + head.run_time_s,
                )

    return made.reservations, others


def _can_still(head: Head, empty: Ledger) -> Head | NotReserved:
    """Whether a head can start, as when it became one; nodes may have gone since."""
    try:
        return startable(head, empty)
    except OutOfWork:
        raise StartUnknownError from None


def _without_time(head: Head, limits: ReservationLimits, wall_s: float) -> NotReserved:
    """Waiting alone entitles it to a fence once; where none is found then, something else must
    change.
    """
    fence_s = head.since_s + limits.fence_after_s
    until_s = fence_s if fence_s > wall_s else math.inf
    return NotReserved(why=NotEntitled.NO_TIME, until_s=until_s)


def _anew(
    head: Head,
    old: Reservation | None,
    made: _Standing,
    ledger: Ledger,
    empty: Ledger,
    timeline: Timeline,
    limits: ReservationLimits,
    *,
    wall_s: float,
) -> Reservation | None:
    """One beside those `made` before it: an earlier one than the `old` one, that one, a later one,
    or else a fence.
    """
    # A fence has its nodes as a whole, for as long as it stands.
    apart = replace(head, group=structs.replace(head.group, avoid=head.group.avoid | made.fenced))
    until_s = wall_s + limits.horizon_s
    same = None
    others = timeline
    if any(gang.bound for gang in head.group.gangs):
        others = timeline.of_others(head.group.id)

    if old is not None and wall_s <= old.at_s < math.inf:
        # The bounded search below may miss the time that the head has: it would then be told a
        # later one for no reason.
        same = _at_time(apart, ledger, others, old.at_s)
        # Strictly before: at the same time other nodes would be as good, and places would jump
        # about.
        until_s = until_s if same is None else math.nextafter(old.at_s, 0)

    may_fence = _may_fence(head, limits, wall_s)
    has_share = may_fence and _has_share(head, ledger.work)
    found = _in_time(apart, ledger, empty, others, until_s=until_s, has_share=has_share) or same

    if found is None and may_fence:
        # A fence closes nodes to everybody behind it, and earlier heads were promised theirs.
        reserved = {
            ledger.table.names[node]
            for reservation in made.reservations
            for node in reservation.nodes
        }
        # A node on which members of the group run never becomes empty for the others.
        reserved |= head.own_nodes
        apart = replace(head, group=structs.replace(head.group, avoid=head.group.avoid | reserved))
        kept = frozenset(
            ledger.table.names[node]
            for node in (old.nodes if old is not None and old.is_fence else ())
        )
        found = find_fence(apart, ledger, empty, timeline, kept=kept, has_share=has_share)

    return found


def _has_share(head: Head, work: Work) -> bool:
    """Whether there is so much work for the head that the next plan would come no further.

    Of devices, that plan goes on with what was found.
    """
    return work.left >= TIME_WORK + FENCE_WORK and not head.claims_devices


def _in_time(
    head: Head,
    ledger: Ledger,
    empty: Ledger,
    timeline: Timeline,
    *,
    until_s: float,
    has_share: bool,
) -> Reservation | None:
    """As `find_time`, but None also for a head that had its share of the work and whose time is not
    found with it.

    Otherwise all plans would run out of work in the same place, and never get to its fence.
    """
    work = ledger.work
    if not has_share:
        return find_time(head, ledger, empty, timeline, until_s=until_s)

    with suppress(OutOfWork), work.at_most(work.left - FENCE_WORK):
        return find_time(head, ledger, empty, timeline, until_s=until_s)

    return None


def _may_fence(head: Head, limits: ReservationLimits, wall_s: float) -> bool:
    """Whether the head waits for long enough for a fence, or heals (L5)."""
    if head.heals:
        return True

    waits_s = wall_s - head.since_s
    return waits_s >= limits.fence_after_s


def _within_share(
    reservation: Reservation,
    earlier: _Standing,
    ledger: Ledger,
    limits: ReservationLimits,
) -> bool:
    """Count what is reserved of each kind of accelerator; all but the first together may have a
    share of it (H7).
    """
    asked: Counter[str] = Counter()
    if reservation.is_fence:
        for name, row in ledger.resources.items():
            asked[name] = int(ledger.allocatable[row, reservation.nodes].sum())
    else:
        shapes = Counter(placement.pod.shape for placement in reservation.placements)
        for shape, count in shapes.items():
            for name, amount in shape.requests:
                asked[name] += amount * count

    kinds = {name: amount for name, amount in asked.items() if ledger.policy.is_accelerator(name)}
    # The first head may have any share: a gang of more than half of the cluster would else never
    # get its room.
    if earlier.reservations:
        for name, amount in kinds.items():
            total = int(ledger.allocatable[ledger.resources[name]].sum())
            if earlier.share[name] + amount > limits.share * total:
                return False

        earlier.share.update(kinds)

    return True


def find_time(
    head: Head,
    ledger: Ledger,
    empty: Ledger,
    timeline: Timeline,
    *,
    until_s: float,
) -> Reservation | None:
    """The earliest expected end at which a round permits the head, with the placements of that
    round (H5). None if there is no such end before `until_s`.

    Sums give a lower bound of the time; for a head that requires one domain, the search gives the
    exact time. If a round fails at that time (fragmentation, other filters), later ends up to
    `until_s` are bisected in at most `ROUNDS` trials, so the result may not be the earliest. Sums
    do not count devices; for a head with claims up to `CLAIM_ROUNDS` trials are made, as far as the
    plan's work suffices.
    """
    ends_s = timeline.distinct_ends_s(until_s)
    sums = HeadSums(head, empty)

    low = _first_enough(sums, ledger.free, timeline, ends_s)
    if low < len(ends_s) and (domains := HeadDomains.of(head, ledger, empty)) is not None:
        low = domains.first(sums, ledger, timeline, ends_s, low)

    best: Reservation | None = None
    at = low
    first = low
    last = len(ends_s) - 1

    claims = head.claims_devices
    for _ in range(CLAIM_ROUNDS if claims else ROUNDS):
        if first > last:
            break

        try:
            # Once there is a time, an earlier one is worth only part of what other heads need.
            with ledger.work.at_most(ledger.work.left / 2 if best and claims else math.inf):
                placements = _at_time(head, ledger, timeline, float(ends_s[at]))
        except OutOfWork:
            if best is None:
                raise

            break

        best = placements or best
        first, last = (first, at - 1) if placements else (at + 1, last)

        # After the first refusal the last end is tried: if even that fails, no bisection is needed.
        at = (first + last) // 2 if best else last

    return best


def _first_fitting(
    low: int,
    number: int,
    fits_at: Callable[[int], bool | None],
    work: Work,
) -> int:
    """The first of `number` indices from `low` on that fits; `low` where that cannot be told,
    `number` if none does.

    What fits once fits at all later indices. The first is near: sums are seldom wrong. Where half
    of the work that is left does not do, the result is the first known to fit, or the first not
    known not to.
    """
    at = low
    step = 1
    is_known = False

    try:
        with work.at_most(work.left / 2):
            while at < number and not is_known:
                fits = fits_at(at)
                if fits is None:
                    return low

                if fits:
                    is_known = True
                else:
                    # Steps grow fourfold: near in most cases, and far in a few steps.
                    low = at + 1
                    at = number if at == number - 1 else min(at + step, number - 1)
                    step = 4 * step

            while low < at:
                middle = (low + at) // 2
                low, at = (low, middle) if fits_at(middle) else (middle + 1, at)
    except OutOfWork:
        return at if is_known else low

    return low


def _first_enough(
    sums: HeadSums,
    now: Ints,
    timeline: Timeline,
    ends_s: Floats,
) -> int:
    """The first of these ends after which room adds up; their number if none is. Sums each occupant
    about twice.
    """
    free = now.copy()
    counted = 0
    low = 0

    high = len(ends_s)
    while low < high:
        middle = (low + high) // 2
        ended = timeline.ended(float(ends_s[middle]))

        then = free + timeline.freed(slice(counted, ended), sums.rows)
        if sums.enough(then):
            high = middle
        else:
            low = middle + 1
            free = then
            counted = ended

    return low


def _reserve(placements: Sequence[Placement], ledger: Ledger) -> None:
    """Take room for these placements."""
    by_shape: defaultdict[Shape, list[Placement]] = defaultdict(list)
    for placement in placements:
        by_shape[placement.pod.shape].append(placement)

    index = ledger.table.index
    for alike in by_shape.values():
        alike.sort(key=lambda placement: index[placement.node])
        on_nodes = [index[placement.node] for placement in alike]
        nodes, counts = np.unique(on_nodes, return_counts=True)
        ledger.reserve([placement.pod for placement in alike], nodes, counts)


def _at_time(
    head: Head,
    ledger: Ledger,
    timeline: Timeline,
    at_s: float,
) -> Reservation | None:
    """The reservation if all that are expected to end by `at_s` are gone then; None if a round does
    not permit it.
    """
    with ledger.tentative():
        timeline.release(timeline.ended(at_s), ledger)
        trial, round_ = run_round(head.group, head.gangs, ledger)

    if round_.outcome is not RoundOutcome.PERMITTED:
        return None

    nodes = _nodes_of(trial.placements, ledger)
    return Reservation(head, at_s, nodes, trial.placements)


def find_fence(
    head: Head,
    ledger: Ledger,
    empty: Ledger,
    timeline: Timeline,
    *,
    kept: frozenset[str],
    has_share: bool = False,
) -> Reservation | None:
    """Reserve as many whole nodes as a round on empty nodes would need, and prefer nodes that are
    expected to become empty first (H6).

    Order: empty nodes of `kept`, other empty nodes, the other nodes of `kept`, then nodes whose
    longest-running pod started last, then nodes with the fewest accelerators in use. So an occupied
    node of `kept` is only replaced by a node that has become empty. With `has_share`, where these
    nodes take too much work to find, they are those on which the head starts if all are empty.
    """
    started_s = timeline.longest_started_s()
    # A node without pods has no start, so its longest-running pod started at infinity.
    is_empty = np.isinf(started_s)
    was_kept = ledger.table.having(kept)
    # Kept nodes come first, among empty ones and among those in use.
    rank = np.where(is_empty, 0, 2) + np.where(was_kept, 0, 1)
    in_use = np.zeros(len(ledger.table), dtype=np.int64)

    for name, row in ledger.resources.items():
        if ledger.policy.is_accelerator(name):
            in_use += ledger.allocatable[row] - ledger.free[row]

    # Of nodes that are in use and were not kept, the longest-running come first.
    by_start = np.where(rank == 3, -started_s, 0)
    # lexsort takes the last key first.
    order = np.lexsort((in_use, by_start, rank))
    suitable = _suitable(head, empty)
    order = order[suitable[order]]
    names = empty.table.names

    def fits_on(length: int) -> bool | None:
        avoid = head.group.avoid | {names[node] for node in order[length:].tolist()}
        return fits(structs.replace(head.group, avoid=avoid), head.gangs, empty)

    high = len(order)
    least = _least_prefix(head, order, empty)

    with suppress(OutOfWork), empty.work.at_most(empty.work.left / 4):
        # The sums are seldom wrong, and a round begins with what `fits_on` asks.
        if (fence := _fenced(head, empty, order[:least])) is not None or least >= high:
            return fence

    # All nodes: does any fence of the head exist at all? Only then is a shorter one worth rounds.
    fence = _fenced(head, empty, order)
    if fence is None:
        return None

    try:
        low = min(high, _first_fitting(least + 1, high + 1, fits_on, empty.work))
        return _shorter(head, empty, order, low) or fence
    except OutOfWork:
        if not has_share:
            raise

    return fence


def _shorter(head: Head, empty: Ledger, order: Ints, low: int) -> Reservation | None:
    """A fence on the first `low` nodes in this order, or on some more; None if few rounds find none
    on less than all of them.
    """
    high = len(order)
    if low == high:
        return None

    fence = _fenced(head, empty, order[:low])
    if fence is not None:
        return fence

    # It is known that all nodes do.
    for _ in range(ROUNDS - 2):
        middle = (low + high) // 2
        fewer = _fenced(head, empty, order[:middle])
        if fewer is None:
            low = middle + 1
        else:
            high = middle
            fence = fewer

    return fence


def _least_prefix(head: Head, order: Ints, empty: Ledger) -> int:
    """Minimum number of empty nodes, in this order, whose room adds up for the head, in one domain
    if it needs that.
    """
    required = Domains.required(head.group, empty.table)
    codes = np.zeros(len(order), dtype=np.int64)
    if required is not None:
        codes = required.level.codes[order].astype(np.int64)

    by_domain = np.argsort(codes, kind="stable")

    # -1 stands for nodes without the label, so the value before the first must be another one.
    starts = np.flatnonzero(np.diff(codes[by_domain], prepend=-2))
    sizes = np.diff(starts, append=len(order))
    enough = codes[by_domain] >= 0

    attempt = PlacementAttempt(head.group, empty)
    for gang in head.gangs:
        fits = np.zeros(len(order), dtype=np.int64)
        for shape, count in Counter(pod.shape for pod in gang.pending).items():
            room = usable(shape, attempt)[order]
            if required is None or required.outer is not None or empty.accelerated(shape):
                sums = np.cumsum(room[by_domain])
                before_each = np.concatenate(([0], sums))[starts]
                room = sums - np.repeat(before_each, sizes)
            else:  # a GPU product is required: pods without an accelerator are kept nowhere
                room = np.cumsum(room)[by_domain]

            fits += np.minimum(count, room)

        enough &= fits >= missing(gang, 0)

    return int(by_domain[enough].min(initial=len(order) - 1)) + 1


def _suitable(head: Head, empty: Ledger) -> Bools:
    """Nodes that take a pod of the head when nothing else runs on them."""
    attempt = PlacementAttempt(head.group, empty)
    suitable = ~empty.table.everywhere()
    for shape in dict.fromkeys(pod.shape for gang in head.gangs for pod in gang.pending):
        suitable |= usable(shape, attempt) > 0

    return suitable


def _fenced(head: Head, empty: Ledger, nodes: Ints) -> Reservation | None:
    """The fence of the head on some of `nodes`; None if a round on them does not permit it."""
    names = empty.table.names
    others = frozenset(names) - {names[node] for node in nodes.tolist()}

    with empty.tentative():
        trial, round_ = run_round(
            structs.replace(head.group, avoid=head.group.avoid | others),
            head.gangs,
            empty,
        )

    if round_.outcome is not RoundOutcome.PERMITTED:
        return None

    chosen = _nodes_of(trial.placements, empty)
    return Reservation(head, math.inf, chosen)


def _nodes_of(placements: Iterable[Placement], ledger: Ledger) -> Ints:
    """The nodes of these placements, each once."""
    return np.unique(
        np.array([ledger.table.index[placement.node] for placement in placements], dtype=np.int64)
    )
