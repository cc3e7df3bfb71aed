"""PreFilter: refusals before any node is evaluated.

Invariant: nothing is reserved and no round is counted. `refusals` checks the members (P1, P2, I4),
`arithmetic` checks whether the cluster can hold enough of them (P4); both leave the ledger
unchanged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import structs

from gangsched.core import diagnosis, findings
from gangsched.core.filter import restricts, static_fit
from gangsched.core.filter.volumes.claim_needs import RESERVATIONS_MAX
from gangsched.core.filter.volumes.storage_use import shared_claims
from gangsched.core.group_rules import rules_key
from gangsched.core.limits import limits
from gangsched.core.permit import missing
from gangsched.core.placement_attempt import PlacementAttempt
from gangsched.core.progress import Progress
from gangsched.core.reserve import Ledger
from gangsched.core.scopes import usable
from gangsched.model.gang import Gang, Group, Placement, Refusal, namespace_of
from gangsched.model.objects import Pod, Shape
from gangsched.model.plan import Need
from gangsched.model.reasons import Reason
from gangsched.model.resources import ResourceVector

SHAPES_SUMMED = 64
"""Shapes of a gang whose room is counted all; of more it is enough to know that one refuses the
gang.
"""


def refusals(group: Group) -> tuple[tuple[str, Refusal], ...]:
    """Refusals of all gangs of the group if one gang is not ready; empty if all are ready (P1, P2,
    I4).

    The other gangs wait for the gang that is not ready, and their refusals name the first such
    gang.
    """
    if group.refusal is not None:
        return tuple((gang.id, group.refusal) for gang in group.gangs)

    own = {}
    for gang in group.gangs:
        refusal = not_ready(gang)
        if refusal is not None:
            own[gang.id] = refusal

    return _of_each(group.gangs, own)


def unhindered(group: Group) -> list[Gang]:
    """Gangs whose members above the minimum may start alone, even if other gangs of the group are
    not ready (P3, B3).

    Empty if the group's declaration is invalid (I4) or one of its gangs timed out (P2, T3).
    """
    refusal = group.refusal
    if refusal is not None and refusal.reason is not Reason.WAITING_FOR_GANG:
        return []
    if any(gang.timed_out for gang in group.gangs):
        return []

    return [gang for gang in group.gangs if gang.uninitialised is None]


def not_ready(gang: Gang) -> Refusal | None:
    """Why a gang gets no round: it is uninitialised, has timed out, or lacks members (P1, P2). None
    if it is ready.
    """
    if gang.uninitialised is not None:
        return structs.replace(gang.uninitialised, of=namespace_of(gang.id))
    if gang.timed_out:
        return findings.timed_out(gang)
    if not gang.free_running and gang.quorum < gang.min_member:
        return findings.waiting_for_members(gang)

    return None


def cannot_start(gang: Gang) -> Refusal | None:
    """Why a gang cannot start, whatever room there is; None if it can.

    The quorum of P1 counts bound members, but Permit may not count them (B1). In that case members
    are missing, and more room would not help (E1).
    """
    if (why := not_ready(gang)) is not None:
        return why

    lack = missing(gang, len(gang.pending))
    return findings.waiting_for_more(gang, lack) if lack else None


def waiting_short(gangs: Sequence[Gang]) -> tuple[tuple[str, Refusal], ...]:
    """Refusals of all `gangs`, which are ready, if one of them cannot start."""
    own = {}
    for gang in gangs:
        lack = missing(gang, len(gang.pending))
        if lack:
            own[gang.id] = findings.waiting_for_more(gang, lack)

    return _of_each(gangs, own)


def _of_each(
    gangs: Sequence[Gang],
    own: Mapping[str, Refusal],
) -> tuple[tuple[str, Refusal], ...]:
    """The refusal of each gang by id: its `own`, or that it waits for the first gang that has one;
    () without any.
    """
    if not own:
        return ()

    first, cause = next(iter(own.items()))
    waiting = findings.waiting_for_sibling(first, cause)
    refused = []
    for gang in gangs:
        refusal = own.get(gang.id, waiting)
        refused.append((gang.id, refusal))

    return tuple(refused)


def arithmetic(
    group: Group,
    gangs: Sequence[Gang],
    ledger: Ledger,
    totals: Ledger,
    progress: Progress | None = None,
) -> tuple[Refusal, tuple[Need, ...]] | None:
    """Refuse a group that cannot fit by totals (P4), and return the room that it needs before it is
    tried again. None if it may fit.

    `gangs` are the gangs below their minimum. A Strict group is compared with the free room of
    `ledger`. A NonStrict group collects room over time, so it is compared only with `totals`, the
    empty cluster. `progress` has what earlier plans found out.
    """
    if (full := _claims_full(group, gangs, ledger)) is not None:
        return full, _any_room(gangs)

    asked_ledger = ledger if group.strict else totals
    attempt = PlacementAttempt(group, asked_ledger, progress)

    for gang in gangs:
        # The declared sum first: it is cheap, and its message names what the user wrote.
        short = min_resources_short(
            gang,
            ledger,
        )
        if short:
            when_empty = min_resources_short(structs.replace(gang, held=()), totals)
            return findings.min_resources_short(gang, short, when_empty), _any_room(
                (gang,) if group.strict else gangs
            )

        short_of = _room_short(gang, attempt, totals)
        if short_of is not None:
            refusal, needs = short_of
            # A full node may help a NonStrict group: what is too small is the empty cluster. Then
            # members of its other gangs may be held, for which there may be room already.
            return refusal, needs if group.strict or not needs else _any_room(gangs)

    return None


def _claims_full(
    group: Group,
    gangs: Sequence[Gang],
    ledger: Ledger,
) -> Refusal | None:
    """Why the gangs cannot start: more of their members must share a ResourceClaim than it can have
    consumers.
    """
    storage = ledger.occupancy.storage
    known = storage.storage
    # Without a claim that several pods use no member is looked at.
    if not known.devices and not known.shared:
        return None

    # By key and whether only one pod may use it: a PersistentVolumeClaim may have the name of a
    # ResourceClaim.
    users: dict[tuple[str, bool], dict[str, Pod]] = {}
    for gang in gangs:
        for pod in gang.pending:
            if not pod.claims:
                continue

            for use in shared_claims(pod):
                key = use.key(pod.namespace)
                users.setdefault((key, False), {})[pod.uid] = pod

            for claim in storage.needs(pod).exclusive if known.shared else ():
                users.setdefault((claim, True), {})[pod.uid] = pod

    for (key, is_of_one), pods in users.items():
        # Whichever members are placed, so many of those that use the claim are among them.
        must = 0
        for gang in gangs:
            others = sum(pod.uid not in pods for pod in gang.pending)
            must += max(0, missing(gang, 0) - others)

        name = key.rpartition("/")[2] if len(group.namespaces) == 1 else ""
        if is_of_one and must > 1:
            return findings.claim_of_one_pod(gangs[0], name, must)
        if is_of_one:
            continue

        first = next(iter(pods.values()))
        left = storage.places_left(first, pods.keys()).get(key)
        # Of a single member, its node refusals say the same.
        if left is not None and must > max(left, 1):
            return findings.claim_full(name, must, left, most=RESERVATIONS_MAX)

    return None


def _any_room(gangs: Sequence[Gang]) -> tuple[Need, ...]:
    """Any room at all for a member of one of these gangs."""
    shapes: dict[Shape, None] = {}
    for gang in gangs:
        for pod in gang.pending:
            shapes[pod.shape] = None

        for placement in gang.held:
            shapes[placement.pod.shape] = None

    return tuple(Need(shape, 0) for shape in shapes)


def _room_short(
    gang: Gang,
    attempt: PlacementAttempt,
    totals: Ledger,
) -> tuple[Refusal, tuple[Need, ...]] | None:
    """Against the empty cluster held members ask for room like pending ones: what they hold is part
    of it.
    """
    group = attempt.group
    held = () if group.strict else gang.held
    needed = missing(gang, 0) + len(held)
    pods = gang.pending
    if held:
        own = [placement.pod for placement in held]
        pods = (*pods, *own)

    counts = _by_shape(pods)

    rooms, room = _rooms(gang, counts, needed, held, attempt)
    if room >= needed:
        return None

    # What not even the empty cluster takes is the cause; other shapes may be shorter of room only
    # for now. Of too many shapes it is not summed, and not said that they never fit.
    is_summed = len(counts) <= SHAPES_SUMMED
    empty_rooms: dict[Shape, int] = {}
    empty_room = needed
    if is_summed:
        empty_rooms = {shape: diagnosis.empty_room(shape, group, totals) for shape in counts}
        empty_room = 0
        for shape, number in empty_rooms.items():
            empty_room += min(counts[shape], number)

    short_of = empty_rooms if empty_room < needed else rooms

    # The shape that lacks most pods is named.
    lacking = min(short_of, key=lambda shape: short_of[shape] - counts[shape])
    first = next(pod for pod in pods if pod.shape is lacking)

    if lacking.unsupported:
        return findings.unsupported(first), ()

    named: tuple[str, ...] = ()
    if empty_room < needed:
        named = _limits(lacking, group, empty_rooms[lacking], totals)

    # What earlier plans found out is about free room, not about the empty cluster.
    for_shortage = attempt if group.strict else attempt.unrecorded()
    refusal = findings.no_room_for_all(
        gang,
        first,
        diagnosis.shortage(lacking, for_shortage, totals),
        room=room,
        needed=needed,
        empty_room=empty_room,
        exact=len(counts) == 1 and not restricts(first, attempt.ledger.occupancy),
        nodes=findings.why_no_node(first, attempt, filled=True),
        limits=named,
    )
    if len(counts) == 1:
        return refusal, (Need(lacking, needed),)

    return refusal, least_needs((gang,), lacking)


def _limits(
    lacking: Shape,
    group: Group,
    room: int,
    totals: Ledger,
) -> tuple[str, ...]:
    """The resources that keep more pods of the `lacking` shape off the empty nodes."""
    # Nodes that are avoided for a while are counted as the room there is.
    unavoiding = group
    if group.avoid:
        unavoiding = structs.replace(group, avoid=frozenset())

    attempt = PlacementAttempt(unavoiding, totals)
    key = (limits, lacking, rules_key(lacking, attempt))

    def named() -> tuple[str, ...]:
        return limits(lacking, attempt, room)

    return totals.recall(key, named, lasting=True)


def least_needs(gangs: Sequence[Gang], lacking: Shape) -> tuple[Need, ...]:
    """For each shape, the number of pods that need room whichever other members are placed; the
    `lacking` shape comes first.

    The number may be 0.
    """
    least: Counter[Shape] = Counter({lacking: 0})
    for gang in gangs:
        needed = missing(gang, 0)
        for shape, count in _by_shape(gang.pending).items():
            # Whichever other members are placed, this many of the shape remain necessary.
            others = len(gang.pending) - count
            least[shape] += max(0, needed - others)

    return tuple(Need(shape, count) for shape, count in least.items())


def _by_shape(pods: Sequence[Pod]) -> dict[Shape, int]:
    """The number of pods of each shape; a Counter takes five times as long for a single pod."""
    shapes = [pod.shape for pod in pods]
    # Mostly all are alike, which is found in a tenth of the time.
    if shapes and shapes.count(shapes[0]) == len(shapes):
        return {shapes[0]: len(shapes)}

    counts: dict[Shape, int] = {}
    for shape in shapes:
        counts[shape] = counts.get(shape, 0) + 1

    return counts


def _rooms(
    gang: Gang,
    counts: Mapping[Shape, int],
    needed: int,
    held: Sequence[Placement],
    attempt: PlacementAttempt,
) -> tuple[Mapping[Shape, int], int]:
    """By shape how many pods fit, and for how many of all there is room; many shapes only until
    that is too few.
    """
    progress = attempt.progress
    rooms: dict[Shape, int] = {}
    room = sum(counts.values())

    for shape, count in counts.items():
        # Not counted again where an earlier plan found room for all.
        known = progress.room(gang.id, shape, count) if progress is not None else None
        if known is None:
            known = _room(shape, held, attempt)
            if progress is not None:
                progress.has_room(gang.id, shape, known)

        rooms[shape] = known
        room -= max(0, count - known)
        # Enough to refuse; the rest would only make the message more precise.
        if room < needed and len(counts) > SHAPES_SUMMED:
            break

    return rooms, room


def _room(
    shape: Shape,
    held: Sequence[Placement],
    attempt: PlacementAttempt,
) -> int:
    """How many pods of `shape` fit; one that is held stays where it is, though no other member may
    go there.
    """
    fitting = diagnosis.room(shape, attempt)
    own = [placement.node for placement in held if placement.pod.shape is shape]
    if not own:
        return fitting

    open_to_more = usable(shape, attempt)
    index = attempt.ledger.table.index
    full = sum(not open_to_more[index[node]] for node in own)
    return fitting + full


def min_resources_short(gang: Gang, ledger: Ledger) -> ResourceVector:
    """Amounts of `minResources` that are missing on the nodes eligible for any member. Room that
    the gang itself holds counts as free.
    """
    if not gang.min_resources or not gang.pending:
        return ()

    usable = np.zeros(len(ledger.table), dtype=np.bool_)
    for shape in {pod.shape for pod in gang.pending}:
        ledger.room(shape)  # charges what the filters look at
        usable |= static_fit(shape, ledger.table).mask

    held: Counter[str] = Counter()
    for placement in gang.held:
        held.update(dict(placement.pod.shape.requests))

    short = []
    for name, amount in gang.min_resources:
        row = ledger.resources.get(name)
        lack = amount - held[name]
        if row is not None:
            free = np.maximum(ledger.free[row][usable], 0)
            lack -= int(free.sum())

        if lack > 0:
            short.append((name, lack))

    return tuple(short)
