"""Search: find nodes for a Strict group of several shapes for which the usual order of placing
found none (semantics R2).

Invariant: a result is reserved and suffices for every gang; without a result the ledger is
unchanged. Arithmetic rejects hopeless cases; then a few other orders are tried, then an exact
search. The work is limited by counts, never by a clock. Inside a required domain, the exact search
continues in the next plan until it has found places or refuted all of them. Elsewhere it makes at
most `STEPS` choices, for groups that need at most `PODS` members. It finds *any* placement, not the
best. For shapes whose members affect each other, only the other orders are tried, unless their
terms are topology constraints.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from math import inf
from operator import itemgetter
from typing import TypeAlias

import numpy as np

from gangsched.core.filter import narrow
from gangsched.core.permit import missing
from gangsched.core.placement_attempt import PlacementAttempt
from gangsched.core.reserve import Ledger
from gangsched.core.scopes import usable
from gangsched.core.search.demand import Demand
from gangsched.core.search.domains import required_keys
from gangsched.core.search.facts import is_refuted_somewhere, known, packed
from gangsched.core.search.judging import is_hopeless
from gangsched.core.search.kinds import Item
from gangsched.core.search.packing import Packing
from gangsched.core.search.slices import Slice
from gangsched.core.topology import level
from gangsched.core.work import OutOfWork
from gangsched.model.gang import Gang, Placement
from gangsched.model.objects import Pod, Shape

# Less than half of a plan's work: the groups behind this one are planned as well.
WORK = 11_000
"""Units that one search may do, the other orders included (`core.work`); where less is left, the
next plan searches.
"""
# Less than half of what a head may take to be looked at: most of the rest is for the round before
# the search.
WORK_OF_OTHERS = 4_000
"""Units of a search that no later plan continues: of reservations, and of rounds without evicted
pods.
"""
FEW_STEPS = 200
"""Choices beyond two for each node that the exact search looks at in few domains before it looks at
all of them.
"""
STEPS = 1_000
"""Choices that the exact search looks at before it gives up, outside required domains."""
# The usual orders missed 3 of 600 random gangs with devices; 8,600 tried this way agree with all
# choices.
TRIED = 8
TRIALS = 200
"""Pods with devices of which all nodes are tried, and choices of nodes that are tried at most."""
PODS = 256
"""Members needed, beyond which only other orders are tried."""

PlaceRun: TypeAlias = Callable[[Sequence[Pod], PlacementAttempt], list[Placement]]
Found: TypeAlias = dict[str, list[Placement]]


def find(
    gangs: Sequence[Gang],
    attempt: PlacementAttempt,
    place_run: PlaceRun,
    *,
    whole: bool = False,
) -> Found | None:
    """Placements by gang id, reserved on `ledger`, at least as many as each gang lacks; None if
    there are none.

    `place_run` places a run of identical pods as a round does. Any sufficient subset of a gang's
    members may be placed; identical members are placed in order. A search that ends at its own
    limit finds nothing in any plan. Raises OutOfWork if the plan has less work left than that
    limit, and it does not suffice.
    """
    ledger = attempt.ledger
    demand = Demand.of(gangs, attempt)
    kinds = {(item.shape, item.pinned, item.devices) for item in demand.items}
    if (
        demand.slices is None
        and len(kinds) < 2
        and not (_is_tried(demand) and demand.shares_devices)
    ):
        return None  # the usual order is exact for one shape

    # Inside a required domain the search is exhaustive: its end is a proof, which may take several
    # plans.
    if (
        whole
        and demand.is_exact
        and (demand.slices is not None or any(required_keys(attempt.group, ledger)))
    ):
        packing = _packing(demand, inf)
        if packing is not None:
            # No order had succeeded, so the next gang of this kind takes the packing at once
            # (decision 0079).
            packing.is_used = True

        return reserved(demand, packing)

    if whole:
        # Raises OutOfWork now: with too little work left, the search would end without a result and
        # be made again.
        ledger.work.reserved(WORK)

    checkpoint = ledger.checkpoint()
    most = WORK if whole else WORK_OF_OTHERS
    left = ledger.work.left

    try:
        with ledger.work.at_most(most):
            # The room of a node for claims that may use its own devices or those of pools is not
            # the most it could be.
            if is_hopeless(demand) and not demand.shares_devices:
                return None
            if _is_refuted(demand):
                return None

            found = _by_order(demand, place_run)
            if found is None and demand.is_exact and sum(demand.needs) <= PODS:
                found = reserved(demand, _packing(demand, STEPS))

            # Nodes that have devices for each kind of member may not have them for all together
            # (decision 0101).
            if found is not None and _is_tried(demand) and not _have_devices(ledger):
                ledger.rollback(checkpoint)
                found = None
    except OutOfWork:
        ledger.rollback(checkpoint)
        # How much work others have left must not decide who fits: this plan does not know, and a
        # later one will.
        if left < most:
            raise

        found = None

    if found is not None or not _is_tried(demand):
        return found

    return _by_trial(demand)


def _is_refuted(demand: Demand) -> bool:
    """Whether an exact search has shown that a required domain, or another with equal nodes, has no
    place for it.
    """
    if not any(required_keys(demand.group, demand.ledger)) or not demand.is_exact:
        return False  # elsewhere a search gives up before it has looked at everything
    if not is_refuted_somewhere(demand.pieces, demand.wanted, demand.ledger):
        return False

    return known(demand.problem(), demand.ledger) is False


# --- other orders -------------------------------------------------------------------------------


def _by_order(demand: Demand, place_run: PlaceRun) -> Found | None:
    ledger = demand.ledger
    for order in _orders(demand):
        checkpoint = ledger.checkpoint()
        placements: Found = {gang.id: [] for gang in demand.gangs}

        for item in order:
            gang = demand.gangs[item.gang]
            own = placements[gang.id]
            # Of those that are alike, who has no room speaks for the others; pinned ones have nodes
            # of their own.
            at_once = 1 if item.pinned else len(item.pods)
            for first in range(0, len(item.pods), at_once):
                lack = demand.needs[item.gang] - len(own)
                if lack <= 0:
                    break

                own += place_run(item.pods[first : first + min(lack, at_once)], demand.attempt)

        if all(
            len(placements[gang.id]) >= need
            for gang, need in zip(demand.gangs, demand.needs, strict=True)
        ):
            return placements

        ledger.rollback(checkpoint)

    return None


def _orders(demand: Demand) -> Iterator[list[Item]]:
    """Orders worth trying: largest first over all gangs, pinned, fewest nodes, scarcest room,
    smallest first.
    """
    # Different keys often give the same order.
    tried: set[tuple[int, ...]] = set()
    items = demand.items
    rooms = demand.room

    keys: list[list[float]] = [
        list(range(len(items))),
        [not item.pinned for item in items],
        [float(np.count_nonzero(room)) for room in rooms],
        [float(room.sum()) / len(item.pods) for item, room in zip(items, rooms, strict=True)],
        list(range(len(items), 0, -1)),
    ]
    for key in keys:
        order = tuple(sorted(range(len(items)), key=key.__getitem__))
        if order not in tried:
            tried.add(order)
            yield [items[index] for index in order]


def _is_tried(demand: Demand) -> bool:
    """Whether the members are few enough, and have devices."""
    number = sum(len(item.pods) for item in demand.items)
    # All members must be needed: with a choice of members, the trials would multiply.
    if number > min(TRIED, sum(demand.needs)):
        return False

    return any(item.devices is not None for item in demand.items)


def _by_trial(demand: Demand) -> Found | None:
    """All nodes for each of a few pods with devices: what a node has for one depends on which
    others are there.

    Raises OutOfWork; what was found of devices is kept, so that the next plan goes on behind it.
    """
    pods = [(item, pod) for item in demand.items for pod in item.pods]
    ledger = demand.ledger
    found = list[Placement]()
    trials = TRIALS

    def place(number: int, first: int) -> bool:
        nonlocal trials
        if number == len(pods):
            return _have_devices(ledger)

        item, pod = pods[number]
        room = narrow(pod, usable(pod.shape, demand.attempt), ledger.occupancy)

        # Equal pods take their nodes in order.
        following = pods[number + 1 : number + 2]
        alike = following and following[0][0] is item and _is_alike(pod, following[0][1], ledger)
        for node in np.flatnonzero(room[first:]).tolist():
            trials -= 1
            if trials < 0:
                return False

            checkpoint = ledger.checkpoint()
            ledger.reserve((pod,), np.array([first + node]), np.array([1]))
            found.append(
                Placement(
                    pod,
                    ledger.table.names[first + node],
                    ledger.occupancy.storage.selected(pod),
                )
            )

            if place(number + 1, first + node if alike else 0):
                return True

            found.pop()
            ledger.rollback(checkpoint)

        return False

    checkpoint = ledger.checkpoint()
    try:
        if not place(0, 0):
            return None
    except OutOfWork:
        ledger.rollback(checkpoint)
        raise

    of_gang = {pod.uid: demand.gangs[item.gang].id for item, pod in pods}
    return {
        gang.id: [placement for placement in found if of_gang[placement.pod.uid] == gang.id]
        for gang in demand.gangs
    }


def _is_alike(pod: Pod, other: Pod, ledger: Ledger) -> bool:
    """Whether two pods of one item may change places: they have the same claims, or claims that no
    third one uses.
    """
    if pod.claims == other.claims:
        return True

    storage = ledger.occupancy.storage
    return not (storage.shares(pod) or storage.shares(other))


def _have_devices(ledger: Ledger) -> bool:
    """Whether the pods that were placed, each where it has devices, have some together. Raises
    OutOfWork.
    """
    devices = ledger.occupancy.storage.devices
    return devices is None or devices.solve()


# --- exact search -------------------------------------------------------------------------------


def _packing(demand: Demand, most: float) -> Packing | None:
    return packed(demand.problem(), demand.ledger, most, most_in_all=demand.most_steps)


def reserved(demand: Demand, packing: Packing | None) -> Found | None:
    """Reserve the placements of a packing and return them; None if there is no packing."""
    if packing is None:
        return None

    ledger = demand.ledger
    slices = demand.slices
    placements: Found = {gang.id: [] for gang in demand.gangs}
    pods = [deque(item.pods if item.home < 0 else ()) for item in demand.items]
    at_hand = [deque(alike) for alike in slices.at_hand] if slices is not None else []
    places: defaultdict[tuple[int, Shape], list[tuple[Pod, int]]] = defaultdict(list)

    # Of identical children one stands for all, so that pods say whose they are.
    whose = (
        {pod.uid: gang.id for gang in demand.gangs for pod in gang.pending}
        if demand.group.apart
        else {}
    )
    for step, pattern in packing.chosen:
        if step.layer >= 0:
            assert slices is not None
            # Opening a slice puts its parts and pods on the table; the following steps place them.
            for kind, count in zip(packing.problem.opening[step.layer], pattern, strict=True):
                for _ in range(count):
                    opened = at_hand[kind - len(pods)].popleft()
                    for part in opened.parts:
                        part_kind = slices.kind_of[id(part)]
                        at_hand[part_kind - len(pods)].append(part)

                    for pod in opened.own:
                        pods[slices.item_of[pod.uid]].append(pod)

            continue

        name = ledger.table.names[step.node]
        for index, count in enumerate(pattern):
            if count:
                # In placing order: identical members are bound oldest first.
                taken = [pods[index].popleft() for _ in range(count)]
                item = demand.items[index]
                first = demand.gangs[item.gang].id

                for pod in taken:  # of parts, shapes that differ by terms alone
                    places[index, pod.shape].append((pod, step.node))
                    gang_id = whose.get(pod.uid, first)
                    placements[gang_id].append(Placement(pod, name))

    # at once: a reservation for each node took a third of the time of 64 slices
    for own in places.values():
        own.sort(key=itemgetter(1))
        nodes, counts = np.unique([node for _, node in own], return_counts=True)
        ledger.reserve([pod for pod, _ in own], nodes, counts)

    return placements


# --- slices -------------------------------------------------------------------------------------


def find_slices(
    gangs: Sequence[Gang],
    attempt: PlacementAttempt,
    place_run: PlaceRun,
    *,
    everything: bool = False,
    most: float = STEPS,
) -> Found | None:
    """Like `find`, for gangs whose slices are placed as a whole: all slices with `everything`,
    otherwise as many as are needed.

    An exact search makes at most `most` choices. Raises OutOfWork; the next plan then continues.
    """
    ledger = attempt.ledger
    demand = (Demand.of_all if everything else Demand.of)(gangs, attempt)
    if not any(demand.needs):  # the minimum is there, or 0: members come by themselves
        return {gang.id: [] for gang in gangs}
    if is_hopeless(demand):
        return None

    if demand.is_exact:
        packing = None
        few = demand.slice_room.few() if demand.slice_room is not None else None
        if few is not None:
            problem = demand.problem(few)
            # A few domains that mostly do: 64 slices on 15,000 nodes are found without building a
            # problem of all.
            packing = packed(problem, ledger, FEW_STEPS + 2 * len(problem.steps))

        return reserved(demand, packing or _packing(demand, most))

    checkpoint = ledger.checkpoint()
    placements = _one_by_one(demand, place_run)
    if placements is None:
        ledger.rollback(checkpoint)

    return placements


def _one_by_one(demand: Demand, place_run: PlaceRun) -> Found | None:
    """Each slice in the tightest domain that takes it, one after the other; None if too few find a
    place.
    """
    assert demand.slices is not None
    ledger = demand.ledger
    attempt = demand.attempt
    placements: Found = {gang.id: [] for gang in demand.gangs}
    whose = {pod.uid: gang.id for gang in demand.gangs for pod in gang.pending}

    needs = [missing(gang, 0) for gang in demand.gangs] if demand.group.apart else demand.needs
    for gang, own, need in zip(demand.gangs, demand.slices.units, needs, strict=True):
        if own is None:
            placed = place_run(gang.pending, attempt)
            # A member above the minimum must not cost a sibling its minimum (decision 0080).
            for surplus in placed[need:]:
                ledger.release(surplus.pod, surplus.node)

            placements[gang.id] = placed[:need]
            continue

        placed = []
        number = 0

        for unit, count in own.fixed:
            in_unit = attempt.within(unit.within(attempt.scope, ledger.table))
            of_unit = (
                place_run(unit.alone[:count], in_unit)
                if unit.whole is None
                else _whole(unit.whole, in_unit, place_run)
            )

            placed += of_unit
            if len(of_unit) < count:
                return None

        for slice_ in own.of:
            if number == own.number:
                break

            of_slice = _whole(slice_, attempt, place_run)
            if of_slice:
                placed += of_slice
                number += 1

        if number < own.number:
            return None

        for placement in placed:
            placements[whose[placement.pod.uid]].append(placement)

    return placements


def _whole(
    slice_: Slice,
    attempt: PlacementAttempt,
    place_run: PlaceRun,
) -> list[Placement]:
    """The places of all members of a slice, reserved; none if no domain takes them."""
    ledger = attempt.ledger
    scope = attempt.scope
    inside = level((slice_.key,), ledger.table)
    counts = Counter(pod.shape for pod in slice_.pods)
    rooms = {shape: inside.sums(usable(shape, attempt)) for shape in counts}
    enough = [rooms[shape] >= count for shape, count in counts.items()]
    domains = np.flatnonzero(np.logical_and.reduce(enough))

    least = sum(rooms.values(), np.zeros(inside.size, dtype=np.int64))
    # Tightest first, so that larger domains stay whole for larger slices.
    tightest = np.argsort(least[domains], kind="stable")
    for domain in domains[tightest].tolist():
        checkpoint = ledger.checkpoint()
        narrowed = scope.narrowed(inside.mask(domain), inside.name(domain))
        in_domain = attempt.within(narrowed)
        placed = place_run(slice_.own, in_domain) if slice_.own else []
        for part in slice_.parts:
            placed += _whole(part, in_domain, place_run)

        if len(placed) == len(slice_.pods):
            return placed

        ledger.rollback(checkpoint)

    return []
