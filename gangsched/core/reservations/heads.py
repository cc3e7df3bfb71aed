"""Heads: groups refused for room that are entitled to a reservation (semantics H3, H4, H7).

Invariant: a head could be permitted on the empty cluster, so no reservation is made for a group
that can never start. A head consists of gangs that a round can permit: a plain pod, or an
additional member of a running gang, is a gang of one. Ledgers are left unchanged.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from msgspec import structs

from gangsched.core.devices.emptied import emptied
from gangsched.core.group_rules import rules_key
from gangsched.core.homes import healed_at_home
from gangsched.core.permit import missing
from gangsched.core.placement_attempt import PlacementAttempt
from gangsched.core.reserve import Ledger
from gangsched.core.rounds import run_round
from gangsched.core.scopes import usable
from gangsched.core.tree_choices import has_choices, is_choice, needed_choices
from gangsched.core.tree_choices import needed as needed_first
from gangsched.core.work import OutOfWork, Work
from gangsched.model.gang import Gang, Group, MatchPolicy, Mode, Refusal
from gangsched.model.gpu_policy import GpuPolicy
from gangsched.model.objects import Pod, Shape
from gangsched.model.parts import least_of
from gangsched.model.plan import RoundOutcome
from gangsched.model.pods_by_node import PodsByNode
from gangsched.model.reasons import Reason
from gangsched.model.reservation import NotEntitled, NotReserved, ReservationLimits
from gangsched.model.snapshot import Snapshot
from gangsched.model.tree import composites_of
from gangsched.model.verdict_facts import Worded

LATER: Final = NotReserved(why=NotEntitled.LATER)
SEARCHING: Final = NotReserved(why=NotEntitled.SEARCHING)
TOO_MUCH_WORK: Final = NotReserved(why=NotEntitled.TOO_MUCH_WORK)
BY_NUMBER: Final = frozenset({NotEntitled.LATER, NotEntitled.NAMESPACE})
"""Reasons that are counted, which takes no round."""
NEVER: Final = Refusal(Reason.UNSCHEDULABLE, Worded(), never=True)
WORK: Final = 9_000
"""Units for the round on the empty cluster; a group that takes more is no head for now."""


@dataclass(frozen=True, slots=True)
class Head:
    """A group entitled to a reservation; a round must permit all `gangs`.

    It has waited since `since_s`, and is expected to run for `run_time_s`, `math.inf` if unknown.
    Of the `declared` group, `group` has only the gangs that its minimum needs (I9): those in
    `choice`, or those of the first children if `choice` is empty.
    """

    group: Group
    declared: Group
    gangs: tuple[Gang, ...]
    since_s: int
    run_time_s: float = math.inf
    choice: frozenset[str] = frozenset()
    #: The levels that its group requires, without that of its home.
    beyond_home: tuple[str, ...] = ()
    #: Nodes of its group, also of gangs that lost nobody and say nothing about its home.
    around: frozenset[str] = frozenset()

    @property
    def heals(self) -> bool:
        """Whether it has started and lost members: it is entitled at once (L5)."""
        return self.group.broken

    @property
    def own_nodes(self) -> frozenset[str]:
        """Nodes on which members of the group run."""
        return self.around.union(*(gang.nodes for gang in self.group.gangs))

    @property
    def namespaces(self) -> frozenset[str]:
        """Namespaces of the head's pods."""
        return frozenset({pod.namespace for gang in self.gangs for pod in gang.pending})

    @property
    def claims_devices(self) -> bool:
        """Whether its pods have claims for devices."""
        return any(pod.claims_devices for gang in self.gangs for pod in gang.pending)

    @property
    def too_much_work(self) -> NotReserved:
        """The reason for no reservation if a plan has too little work to decide.

        Results about the devices of a node are cached, so the next plan continues with these. For a
        head without claims nothing is cached, so the next attempt waits for a change or a minute.
        """
        return SEARCHING if self.claims_devices else TOO_MUCH_WORK


def empty_ledger(
    snapshot: Snapshot,
    policy: GpuPolicy | None = None,
    work: Work | None = None,
) -> Ledger:
    """Ledger of the nodes with only the pods that never leave them (DaemonSets).
    `Ledger(empty=True)` is read-only.

    A gang that needs room used by DaemonSet pods can never start, so no room is reserved for it.
    """
    nobody = PodsByNode(namespaces=snapshot.pods_by_node.namespaces)
    storage = snapshot.storage
    # Without holders: claims of running pods would make devices in use look like devices that do
    # not exist (decision 99).
    if storage.allocator is not None:
        storage = replace(storage, allocator=emptied(storage.allocator))

    made = structs.replace(snapshot, free=snapshot.emptied(), pods_by_node=nobody, storage=storage)
    return Ledger(made, policy=policy, work=work)


def at_home_of(head: Head | None, ledger: Ledger) -> Head | None:
    """The head; of a broken group, room is reserved at its home (L5)."""
    if head is None or not head.heals:
        return head

    return replace(
        head,
        group=healed_at_home(head.group, ledger),
        beyond_home=head.group.topology,
        around=head.own_nodes,
    )


def head_of(group: Group, choice: frozenset[str] = frozenset()) -> Head | None:
    """The group as a candidate for a reservation; None if it does not lack room, or waits for
    another group (D1).

    Only gangs that its minimum needs count (I9), whether or not the plan decides it: those in
    `choice` while it is valid, otherwise those of the children that come first.
    """
    choice = choice if choice and is_choice(group, choice) else frozenset()
    return _head_of(needed_first(group, choice), group, choice)


def _head_of(one: Group, group: Group, choice: frozenset[str]) -> Head | None:
    # What it yielded to has its turn first; a reservation would take back what it gave.
    gangs = () if one.yielded_to else needed(one)
    if gangs:
        return Head(one, group, gangs, waiting_since_s(gangs), one.run_time_s, choice)

    return None


def find_heads(
    waiting: Iterable[Head],
    empty: Ledger,
    limits: ReservationLimits,
    *,
    wall_s: float,
    entitled: Set[str] = frozenset(),
    first: str = "",
    known: Mapping[str, NotReserved] | None = None,
    looks: int | None = None,
) -> tuple[list[Head], dict[str, NotReserved]]:
    """Return the heads among the groups that were refused for room, in serving order, and for every
    other such group the reason why it is no head.

    Heads are ordered as in Q1, but with the age of H4. Among equals, the group whose id is `first`
    stays first, because its start was promised. A tree has the age of the children with which it
    may start. `entitled` groups, and groups with a `known` reason, are not examined again. At most
    `looks` other groups are examined. Groups that are not examined get no reason, and neither do
    groups that are left when the plan's work is used up.
    """
    heads: list[Head] = []
    others: dict[str, NotReserved] = {}
    used: Counter[str] = Counter()
    is_found = False
    can_start = set(entitled)
    in_order = [(rank(head, first), head) for head in waiting]
    heapq.heapify(in_order)  # ids are different, so that no heads are compared

    while in_order:
        _, head = heapq.heappop(in_order)
        group_id = head.group.id

        why = (known or {}).get(group_id)
        if why is None and group_id not in entitled:
            # Before the numbers: it stays true for an hour or more, whatever becomes of the other
            # reservations (decision 21).
            why = too_young(head, empty, limits, wall_s=wall_s)

        why = why or _not_by_number(head, heads, used, limits)
        if why is None and group_id not in can_start:
            if looks is not None:
                if looks <= 0:
                    continue

                looks -= 1

            try:
                empty.work.reserved(WORK)
                one = startable(head, empty)
            except OutOfWork:
                # Nothing was found in this plan, whose work went to others: the next one begins
                # with all of it.
                if not is_found:
                    raise

                looks = 0  # the next plan goes on from what was found
                continue

            is_found = True
            if isinstance(one, Head) and one is not head:
                # Its pods may be younger: a child that can never start must not make its tree
                # older.
                can_start.add(group_id)
                heapq.heappush(in_order, (rank(one, first), one))
                continue

            why = None if isinstance(one, Head) else one

        if why is None:
            heads.append(head)
            # The namespace has no part in it that its gang lost members (L5).
            if not head.heals:
                used.update(head.namespaces)
        else:
            others[group_id] = why

    return heads, others


def rank(head: Head, first: str) -> tuple[int, int, int, bool, int, str]:
    """Serving order of heads, smaller first; `first` is the id of the group whose start was
    promised (H4).
    """
    group = head.group
    return (
        *group.order,
        group.id != first,
        head.since_s,
        group.id,
    )


def _not_by_number(
    head: Head,
    heads: Sequence[Head],
    used: Mapping[str, int],
    limits: ReservationLimits,
) -> NotReserved | None:
    if len(heads) >= limits.reservations:
        return LATER

    for namespace in () if head.heals else sorted(head.namespaces):
        if used[namespace] >= limits.per_namespace:
            return NotReserved(
                why=NotEntitled.NAMESPACE,
                namespace=namespace,
                offers=used[namespace],
            )

    return None


def needed(group: Group) -> tuple[Gang, ...]:
    """The gangs of the group that wait for room: the gangs below their minimum, or if there are
    none, its oldest pod that starts alone, as a gang; of a broken group, what it has lost.

    Pods whose bind failed start alone (B3), so a gang in which only such pods wait is not below its
    minimum.
    """
    # While a gang lacks its minimum, single members are of no use to it.
    below = tuple(
        _its_minimum(gang, lack)
        for gang in group.gangs
        if gang.pending and (lack := missing(gang, 0))
    )
    if below:
        return below

    lost = _lost_members(group)
    if lost:
        return lost

    alone = min(
        (pod for gang in group.gangs for pod in (*gang.retry, *gang.pending)),
        key=_age,
        default=None,
    )
    if alone is None:
        return ()

    gang = next(gang for gang in group.gangs if alone in (*gang.retry, *gang.pending))
    return (_of_exactly(gang, (alone,)),)


def _lost_members(group: Group) -> tuple[Gang, ...]:
    """The gangs of a broken group that lost members, each of as many of its waiting ones."""
    if not group.broken:
        return ()

    gangs: list[Gang] = []
    for gang in group.gangs:
        lack = _lack_of_started(gang)
        waiting = (*gang.retry, *gang.pending)
        if lack > 0 and waiting:
            gangs.append(_of_exactly(gang, _oldest(waiting, lack)))

    return tuple(gangs)


def _lack_of_started(gang: Gang) -> int:
    """Number of members without room that a gang which has started is below its minimum."""
    if not gang.satisfied:
        return 0

    with_room = gang.bound + gang.succeeded + len(gang.kept) + len(gang.held)
    return least_of(gang) - with_room


def _of_exactly(gang: Gang, pods: Sequence[Pod]) -> Gang:
    """The gang of which a round needs exactly these waiting members, whatever of it runs."""
    return structs.replace(
        gang,
        plain=False,
        satisfied=False,
        mode=Mode.STRICT,
        match_policy=MatchPolicy.ONLY_WAITING,
        min_member=len(pods),
        total=len(pods),
        pending=tuple(pods),
        retry=(),
        held=(),
    )


def _its_minimum(gang: Gang, lack: int) -> Gang:
    """The gang without identical members above its minimum, the youngest: for these nothing is
    reserved.
    """
    if lack == len(gang.pending) or len({pod.shape for pod in gang.pending}) > 1:
        return gang

    oldest = {pod.uid for pod in _oldest(gang.pending, lack)}
    return structs.replace(gang, pending=tuple(pod for pod in gang.pending if pod.uid in oldest))


def waiting_since_s(gangs: Sequence[Gang]) -> int:
    """Epoch second since which the group waits: when the youngest pod needed for a minimum was
    created; the latest such time over its gangs (H4).

    So neither the age of a PodGroup without pods counts, nor the time before a raised minimum had
    its pods.
    """
    # By creation and not by arrival here, so that a restart finds the same order (H16).
    return max(
        max(pod.creation_s for pod in _oldest(gang.pending, missing(gang, 0))) for gang in gangs
    )


def _oldest(pods: Sequence[Pod], number: int) -> Sequence[Pod]:
    if number < len(pods):
        return sorted(pods, key=_age)[:number]

    return pods


def _age(pod: Pod) -> tuple[int, str, str]:
    return pod.creation_s, pod.name, pod.uid


def too_young(
    head: Head,
    empty: Ledger,
    limits: ReservationLimits,
    *,
    wall_s: float,
) -> NotReserved | None:
    """Why a head that needs less than a node is not entitled yet, and when it will be; None if it
    is entitled.
    """
    if head.heals:
        return None

    entitled_s = head.since_s + max(
        limits.small_head_after_s,
        min(head.run_time_s, limits.small_head_latest_s),
    )
    if wall_s < entitled_s and not needs_whole_node(head, empty):
        return NotReserved(why=NotEntitled.TOO_YOUNG, until_s=entitled_s)

    return None


def startable(head: Head, empty: Ledger) -> Head | NotReserved:
    """The head if it could be permitted on the empty cluster; otherwise, for a tree, the head with
    the first other choice of children that could (I9); otherwise the reason why there is none.

    If the check takes more than `WORK`, the result is `too_much_work`. Raises OutOfWork if the plan
    had less than that left, and it did not suffice.
    """
    left = empty.work.left
    is_first = True

    try:
        with empty.work.at_most(WORK):
            for one in _choices(head, empty):
                is_first = one is head
                if _fits(one, empty):
                    return one
    except OutOfWork:
        if left < WORK:
            raise

        # Choices are begun anew, so that the next plan would come no further.
        return head.too_much_work if is_first else TOO_MUCH_WORK

    needs, offers = _in_nodes(head, empty) if _is_only_choice(head) else (0, 0)
    return NotReserved(why=NotEntitled.IMPOSSIBLE, needs=needs, offers=offers)


def _choices(head: Head, empty: Ledger) -> Iterator[Head]:
    """The head, then its group with each other choice of children; of several choices, none that
    sums refute.
    """
    group = head.declared
    if not has_choices(group):
        yield head
        if head.heals:
            yield from _smaller(head)

        return

    known: dict[str, Refusal | None] = {}

    def hopeless(gang: Gang) -> Refusal | None:
        if gang.id not in known:
            known[gang.id] = (
                NEVER if _is_too_large(gang, structs.replace(group, gangs=(gang,)), empty) else None
            )

        return known[gang.id]

    # Before its round, whose search for other nodes takes most of the work.
    if not any(map(hopeless, head.gangs)):
        yield head

    tried = {gang.id for gang in head.group.gangs}
    first = {gang.id for gang in needed_first(group).gangs}

    for needed_group in needed_choices(group, empty.work, hopeless):
        chosen = frozenset(gang.id for gang in needed_group.gangs)
        other = _head_of(needed_group, group, chosen if chosen != first else frozenset())
        if chosen != tried and other is not None:
            yield other


def _smaller(head: Head) -> Iterator[Head]:
    """Where a broken group has no room for all that it lost: its oldest lost member alone (L4), and
    then the same beyond its home.
    """
    first, *others = head.gangs
    oldest = replace(
        head,
        gangs=(_of_exactly(first, _oldest(first.pending, 1)),),
    )
    if others or len(first.pending) > 1:
        yield oldest

    anywhere = structs.replace(head.group, topology=head.beyond_home)
    if anywhere.topology != head.group.topology:
        yield replace(head, group=anywhere)
        yield replace(oldest, group=anywhere)


def _is_too_large(gang: Gang, group: Group, empty: Ledger) -> bool:
    """Whether room on empty nodes does not add up for a gang by itself."""
    attempt = PlacementAttempt(group, empty)
    counts = Counter(pod.shape for pod in gang.pending)
    takes = (min(count, int(usable(shape, attempt).sum())) for shape, count in counts.items())
    return sum(takes) < missing(gang, 0)


def _is_only_choice(head: Head) -> bool:
    """Whether any choice of children needs as many nodes as this one."""
    group = head.declared
    if not has_choices(group):
        return True

    of_gangs = set()
    for gang in group.gangs:
        of_gangs.add(
            (gang.min_member, frozenset(Counter(pod.shape for pod in gang.pending).items()))
        )

    is_flat = len([*composites_of(group.root)]) == 1
    return is_flat and len(of_gangs) == 1


def _in_nodes(head: Head, empty: Ledger) -> tuple[int, int]:
    """How many nodes its pods need if each takes as many as the largest one does, and how many
    there are; or (0, 0).
    """
    counts = Counter(pod.shape for pod in _needed_pods(head))
    shape, count = next(iter(counts.items()))
    takes = usable(shape, PlacementAttempt(head.group, empty))

    most = int(takes.max(initial=0))
    if len(counts) == 1 and most:
        return (-(-count // most), int(np.count_nonzero(takes)))

    return (0, 0)


def _fits(head: Head, empty: Ledger) -> bool:
    with empty.tentative():
        _, round_ = run_round(head.group, head.gangs, empty)

    return round_.outcome is RoundOutcome.PERMITTED


def needs_whole_node(head: Head, empty: Ledger) -> bool:
    """Whether the head needs at least one whole node: a pod requests all accelerators of a node, or
    the pods do not fit on one node.
    """
    counts = Counter([pod.shape for pod in _needed_pods(head)])
    attempt = PlacementAttempt(head.group, empty)
    alike = *counts.items(), *(rules_key(shape, attempt) for shape in counts)
    return empty.recall(
        (needs_whole_node, alike),
        lambda: _needs_whole_node(counts, attempt),
    )


def _needs_whole_node(counts: Mapping[Shape, int], attempt: PlacementAttempt) -> bool:
    empty = attempt.ledger
    total: Counter[str] = Counter()
    largest: dict[str, int] = {}

    for shape, count in counts.items():
        name, amount = empty.packed_by(shape)
        takes = usable(shape, attempt)
        offered = empty.allocatable[empty.resources[name]] if name in empty.resources else takes

        # Of nodes that it may use: a pool of larger nodes that is closed to it makes no pod small.
        largest[name] = max(largest.get(name, 0), int(offered[takes > 0].max(initial=0)))
        total[name] += amount * count
        if name and amount >= largest[name]:
            return True

    return any(total[name] > largest[name] for name in total)


def _needed_pods(head: Head) -> Iterator[Pod]:
    """The pods that the minimums need, larger ones first (Q5)."""
    for gang in head.gangs:
        yield from gang.pending[: missing(gang, 0)]
