"""Metrics of reservations, of backfill, and of waits (semantics H15).

Invariant: the loop reports every plan here before its commit, and the metrics describe that plan.
Label values come from enums or fixed lists, and never name a group, a node or a custom resource.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Final

import msgspec
import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from gangsched.model.gang import Group
from gangsched.model.gpu_policy import GpuPolicy
from gangsched.model.plan import Plan, RoundOutcome, Verdict
from gangsched.model.reasons import Reason
from gangsched.model.reservation import How, Reserved
from gangsched.model.snapshot import Snapshot

KINDS: Final = ("timed", "fence")
RESULTS: Final = ("started", "lost", "not_needed")
RESOURCES: Final = ("accelerators", "cpu", "memory")
"""CPU in cores, memory in bytes."""
HEADS: Final = ("first", "other")
PART, NODE, NODES = SIZES = ("part", "node", "nodes")
WAIT_BUCKETS_S: Final = (
    1.0,
    10.0,
    60.0,
    600.0,
    3_600.0,
    14_400.0,
    43_200.0,
    86_400.0,
    259_200.0,
    604_800.0,
)
# Negative: started earlier than reported, which is no error for the user.
ERROR_BUCKETS_S: Final = (
    -86_400.0,
    -3_600.0,
    -600.0,
    -60.0,
    0.0,
    5.0,
    60.0,
    600.0,
    3_600.0,
    86_400.0,
)
IDLE_EVERY_S: Final = 1.0
"""How often idle room is summed up at most."""


class _Begun(msgspec.Struct, frozen=True):
    """When a reservation was first seen, and the start that was expected then."""

    wall_s: float
    at_s: float


class ReservationMetrics:
    """Call `planned` with every plan; if reservations are disabled, only waiting times are
    measured.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        counter = partial(Counter, registry=registry)
        gauge = partial(Gauge, registry=registry)
        histogram = partial(Histogram, registry=registry)
        reservations = gauge("gangsched_reservations", "Current reservations.", ["kind"])
        idle = gauge(
            "gangsched_reserved_idle",
            "Reserved but idle room; cpu in cores, memory in bytes.",
            ["resource"],
        )
        idle_seconds = counter(
            "gangsched_reserved_idle_seconds",
            "Integral of reserved but idle room over time.",
            ["resource"],
        )
        stood = histogram(
            "gangsched_reservation_seconds",
            "Duration of reservations, by how they ended.",
            ["kind", "result"],
            buckets=WAIT_BUCKETS_S,
        )
        errors = histogram(
            "gangsched_start_error_seconds",
            "Actual minus reported start, of the first head (promised: should not exceed 0) and of"
            " others (estimated).",
            ["head"],
            buckets=ERROR_BUCKETS_S,
        )
        passed = counter(
            "gangsched_backfilled_groups",
            "Backfilled groups: beside (on other nodes), spare (in the remainder of reserved"
            " nodes), short (end in time).",
            ["how"],
        )
        waits = histogram(
            "gangsched_group_wait_seconds",
            "Time from the creation of a group's youngest pod to its start, by size: part of a"
            " node, a node, several.",
            ["size"],
            buckets=WAIT_BUCKETS_S,
        )
        run_times = counter(
            "gangsched_group_run_times",
            "Groups that started, by their run time.",
            ["run_time"],
        )
        self.overruns = counter(
            "gangsched_overruns",
            "Groups that exceeded their declared run time.",
        )
        self._begun: dict[str, _Begun] = {}
        self._last: dict[str, Reserved] = {}
        self._idle_now: dict[str, float] = {}
        self._idle_at_s = -math.inf

        # Each series is made here, so that it begins at 0; `.labels()` costs more than what it
        # leads to.
        self._standing = {kind: reservations.labels(kind) for kind in KINDS}
        self._idle = {resource: idle.labels(resource) for resource in RESOURCES}
        self._idle_seconds = {resource: idle_seconds.labels(resource) for resource in RESOURCES}
        self._stood = {
            (kind, result): stood.labels(kind, result) for kind in KINDS for result in RESULTS
        }
        self._errors = {head: errors.labels(head) for head in HEADS}
        self._passed = {how: passed.labels(how.value) for how in How}
        self._waits = {size: waits.labels(size) for size in SIZES}
        self._run_times = {
            known: run_times.labels("known" if known else "unknown") for known in (True, False)
        }

    def planned(
        self,
        plan: Plan,
        groups: Sequence[Group],
        snapshot: Snapshot,
        *,
        wall_s: float,
        policy: GpuPolicy | None = None,
    ) -> None:
        """Record a plan of these groups on this snapshot at wall second `wall_s`."""
        policy = policy or GpuPolicy()
        started = {verdict.group: verdict for verdict in plan.verdicts if verdict.binds}
        if started:
            self._started(started, groups, snapshot, wall_s, policy)

        if plan.reservations is not None and (plan.reservations.standing or self._last):
            reserved = {}
            for reservation in plan.reservations.standing:
                reserved[reservation.group] = reservation

            self._changed(reserved, {verdict.group: verdict for verdict in plan.verdicts}, wall_s)
            if wall_s - self._idle_at_s >= IDLE_EVERY_S or not reserved:
                self._sum_idle(reserved.values(), snapshot, wall_s, policy)

    # --- groups that start -----------------------------------------------------------------------

    def _started(
        self,
        verdicts: Mapping[str, Verdict],
        groups: Iterable[Group],
        snapshot: Snapshot,
        wall_s: float,
        policy: GpuPolicy,
    ) -> None:
        for group in groups:
            verdict = verdicts.get(group.id)
            if verdict is None:
                continue

            if verdict.how is not None:
                self._passed[verdict.how].inc()

            if verdict.round is not None and verdict.round.outcome is RoundOutcome.PERMITTED:
                since_s = max(placement.pod.creation_s for placement in verdict.binds)
                self._waits[_size(verdict, snapshot, policy)].observe(max(0.0, wall_s - since_s))
                self._run_times[group.run_time_s < math.inf].inc()

    # --- reservations that begin and end ---------------------------------------------------------

    def _changed(
        self,
        standing: Mapping[str, Reserved],
        verdicts: Mapping[str, Verdict],
        wall_s: float,
    ) -> None:
        for group_id, was in self._last.items():
            if group_id not in standing:
                self._ended(was, verdicts.get(group_id), wall_s)

        for group_id, reserved in standing.items():
            # The first report counts: later ones are corrections that the user has not planned by.
            self._begun.setdefault(group_id, _Begun(wall_s, reserved.at_s))

        fences = sum(reservation.is_fence for reservation in standing.values())
        self._standing["fence"].set(fences)
        self._standing["timed"].set(len(standing) - fences)
        self._last = dict(standing)

    def _ended(self, was: Reserved, verdict: Verdict | None, wall_s: float) -> None:
        begun = self._begun.pop(was.group, _Begun(wall_s, was.at_s))
        reason = verdict.reason if verdict is not None else None

        # A group that still waits has lost its reservation; any other no longer needs one.
        lost = "lost" if reason in {Reason.UNSCHEDULABLE, Reason.HOLDING} else "not_needed"
        result = "started" if verdict is not None and verdict.binds else lost
        self._stood["fence" if was.is_fence else "timed", result].observe(wall_s - begun.wall_s)

        told_s = was.promised_s if was.first else begun.at_s
        if result == "started" and told_s < math.inf:
            self._errors["first" if was.first else "other"].observe(wall_s - told_s)

    def _sum_idle(
        self,
        reserved: Iterable[Reserved],
        snapshot: Snapshot,
        wall_s: float,
        policy: GpuPolicy,
    ) -> None:
        for resource, amount in self._idle_now.items():
            self._idle_seconds[resource].inc(amount * max(0.0, wall_s - self._idle_at_s))

        self._idle_now = idle(reserved, snapshot, policy)
        self._idle_at_s = wall_s
        for resource, amount in self._idle_now.items():
            self._idle[resource].set(amount)


def _size(verdict: Verdict, snapshot: Snapshot, policy: GpuPolicy) -> str:
    """Whether a group takes less than a node's accelerators, as many, or more; without any, by the
    nodes it is on.
    """
    asked: dict[str, int] = {}
    for placement in verdict.binds:
        for name, amount in placement.pod.shape.requests:
            if amount and policy.is_accelerator(name):
                asked[name] = asked.get(name, 0) + amount

    nodes = {placement.node for placement in verdict.binds}
    if not asked:
        return PART if len(nodes) == 1 else NODES

    size = PART
    for name, amount in asked.items():
        offered = max(_offered(snapshot, name, node) for node in nodes)
        if amount > offered:
            return NODES

        size = NODE if amount == offered else size

    return size


def _offered(snapshot: Snapshot, name: str, node: str) -> int:
    row = snapshot.resources.get(name)
    column = snapshot.table.index.get(node)
    if row is None or column is None:
        return 0

    return int(snapshot.allocatable.item(row, column))


def idle(reserved: Iterable[Reserved], snapshot: Snapshot, policy: GpuPolicy) -> dict[str, float]:
    """The free part of the room that reservations keep, by kind of resource."""
    kept = np.zeros_like(snapshot.free)
    index = snapshot.table.index

    for reservation in reserved:
        fenced = (
            [index[node] for node in reservation.nodes if node in index]
            if reservation.is_fence
            else []
        )
        kept[:, fenced] = snapshot.allocatable[:, fenced]

        for placement in reservation.placements:
            for name, amount in placement.pod.shape.requests if placement.node in index else ():
                if name in snapshot.resources:
                    kept[snapshot.resources[name], index[placement.node]] += amount

    # Free room is negative on an overcommitted node.
    free = np.minimum(kept, snapshot.free.clip(min=0)).sum(axis=1)
    idle_s = dict.fromkeys(RESOURCES, 0.0)

    for name, row in snapshot.resources.items():
        if policy.is_accelerator(name):
            idle_s["accelerators"] += int(free[row])
        elif name in {"cpu", "memory"}:
            # CPU is counted in milli-units.
            idle_s[name] += int(free[row]) / 1_000 if name == "cpu" else int(free[row])

    return idle_s
