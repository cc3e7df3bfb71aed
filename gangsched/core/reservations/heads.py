"""Heads: which groups that were refused for room are entitled to a reservation (H3 and H4 of the backfill design).

Law: a head could be permitted on the empty cluster, so a reservation is never made for a group that cannot start. What
a head needs is put as gangs that a round can permit: a plain pod, or a further member of a running gang, is a gang of
one. Ledgers are left as found.

Not yet called by `core.cycle.plan`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gangsched.core.permit import missing
from gangsched.core.queue_sort import group_key
from gangsched.core.reserve import Ledger
from gangsched.core.rounds import run_round
from gangsched.core.scopes import usable
from gangsched.model.gang import Gang, Group, MatchPolicy, Mode
from gangsched.model.gpu_policy import GpuPolicy
from gangsched.model.objects import Pod
from gangsched.model.plan import RoundOutcome
from gangsched.model.pods_by_node import PodsByNode
from gangsched.model.reservation import NotEntitled, ReservationLimits
from gangsched.model.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Head:
    """A group with a claim to a reservation; `gangs` is what a round over it must permit.

    It waits since `since_s`, and is expected to run for `run_time_s`, `math.inf` for unknown.
    """

    group: Group
    gangs: tuple[Gang, ...]
    since_s: int
    run_time_s: float = math.inf

    @property
    def namespaces(self) -> frozenset[str]:
        """Those of the pods it needs."""
        return frozenset(pod.namespace for gang in self.gangs for pod in gang.pending)


def empty_ledger(snapshot: Snapshot, policy: GpuPolicy | None = None) -> Ledger:
    """A ledger of the nodes with nothing on them, to reserve on; `Ledger(empty=True)` is for reading only."""
    size = len(snapshot.table)
    nobody = PodsByNode(({},) * size, np.zeros(size, dtype=np.int64), (), snapshot.pods_by_node.namespaces)
    return Ledger(replace(snapshot, free=snapshot.allocatable, pods_by_node=nobody), policy=policy)


def find_heads(
    refused: Sequence[Group],
    empty: Ledger,
    limits: ReservationLimits,
    *,
    wall_s: float,
    run_times_s: Mapping[str, float] | None = None,
) -> tuple[list[Head], dict[str, NotEntitled]]:
    """The heads among the groups refused for room, first the first to be served, and why each other one is none.

    `run_times_s` are expected, by group id. Order is Q1's with the age of H4. Groups that have yielded are not
    mentioned: they wait for another group (D1).
    """
    known = run_times_s or {}
    waiting = (
        Head(group, gangs, waiting_since_s(gangs), known.get(group.id, math.inf))
        for group in refused
        if (gangs := needed(group))
    )
    heads: list[Head] = []
    others: dict[str, NotEntitled] = {}
    used: Counter[str] = Counter()
    for head in sorted(waiting, key=lambda each: group_key(replace(each.group, creation_s=each.since_s))):
        if head.group.yielded_to:
            continue
        why = NotEntitled.LATER if len(heads) >= limits.reservations else None
        if why is None and any(used[namespace] >= limits.per_namespace for namespace in head.namespaces):
            why = NotEntitled.NAMESPACE
        why = why or _not_by_size(head, empty, limits, wall_s)
        if why is None:
            heads.append(head)
            used.update(head.namespaces)
        else:
            others[head.group.id] = why
    return heads, others


def needed(group: Group) -> tuple[Gang, ...]:
    """What of the group waits for room, as gangs: those below their minimum, else its oldest pod that goes alone."""
    below = tuple(gang for gang in group.gangs if missing(gang, 0))
    if below:
        return below
    alone = min((pod for gang in group.gangs for pod in (*gang.retry, *gang.pending)), key=_age, default=None)
    if alone is None:
        return ()
    gang = next(gang for gang in group.gangs if alone in (*gang.retry, *gang.pending))
    return (
        replace(
            gang,
            plain=False,
            satisfied=False,
            mode=Mode.STRICT,
            match_policy=MatchPolicy.ONLY_WAITING,
            min_member=1,
            total=1,
            pending=(alone,),
            retry=(),
            held=(),
        ),
    )


def waiting_since_s(gangs: Sequence[Gang]) -> int:
    """The creation of the youngest pod that a minimum needs, the latest over the gangs (H4), in epoch seconds.

    An old PodGroup without pods, or a minimum that was raised, earns nothing.
    """
    return max(max(pod.creation_s for pod in sorted(gang.pending, key=_age)[: missing(gang, 0)]) for gang in gangs)


def _age(pod: Pod) -> tuple[int, str, str]:
    return pod.creation_s, pod.name, pod.uid


def _not_by_size(head: Head, empty: Ledger, limits: ReservationLimits, wall_s: float) -> NotEntitled | None:
    if wall_s - head.since_s < limits.small_head_after_s and not needs_whole_node(head, empty):
        return NotEntitled.TOO_YOUNG
    return None if _fits(head, empty) else NotEntitled.IMPOSSIBLE


def _fits(head: Head, empty: Ledger) -> bool:
    checkpoint = empty.checkpoint()
    _, round_ = run_round(head.group, head.gangs, empty)
    empty.rollback(checkpoint)
    return round_.outcome is RoundOutcome.PERMITTED


def needs_whole_node(head: Head, empty: Ledger) -> bool:
    """Whether it needs a node's worth: a pod with as many accelerators as a node has, or more than one node takes."""
    total: Counter[str] = Counter()
    largest: dict[str, int] = {}
    for pod in _needed_pods(head):
        name, amount = empty.packed_by(pod.shape)
        takes = usable(pod.shape, head.group, empty)
        offered = empty.allocatable[empty.resources[name]] if name in empty.resources else takes
        largest[name] = max(largest.get(name, 0), int(offered[takes > 0].max(initial=0)))
        total[name] += amount
        if name and amount >= largest[name]:
            return True
    return any(total[name] > largest[name] for name in total)


def _needed_pods(head: Head) -> Iterator[Pod]:
    """The pods that the minimums need, larger ones first (Q5)."""
    for gang in head.gangs:
        yield from gang.pending[: missing(gang, 0)]
