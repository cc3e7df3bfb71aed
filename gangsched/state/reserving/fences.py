"""Fences: how long whole nodes are reserved without a start time, and how long their accelerators
are idle (semantics H6).

Invariant: every fence ends. If the nodes of a fence were empty and its head did not start, the head
gets no other fence until a node changes. If a fence became too old, or kept too many accelerators
idle, its head gets no other fence for `fence_after_s`. Times are counted from when this process
first saw the fence, so a restart begins to count again. Times are monotonic seconds.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from gangsched.model.reservation import NotEntitled, NotReserved, Reserved
from gangsched.model.snapshot import Snapshot
from gangsched.state.cluster import Cluster
from gangsched.state.rule_set import Rules

EMPTY_S: Final = 120.0
"""How long a head may take to start on its empty fence. What keeps it off for a moment (a
hold-back, a node that it avoids, another scheduler's nomination) is over by then."""

ROUNDING_S: Final = 0.001
"""Rounding error of a sum of idle times when its time has come."""


@dataclass(slots=True)
class _Fence:
    """When it was `seen_s`, `idle` of the `accelerators` of its nodes were free.

    `idle_s` adds up accelerator-seconds; no node is in use since `empty_s`.
    """

    since_s: float
    seen_s: float
    idle: int = 0
    accelerators: int = 0
    idle_s: float = 0.0
    empty_s: float = math.inf


class Fences:
    """The current fences, evaluated on the cluster."""

    def __init__(self, cluster: Cluster, rules: Rules) -> None:
        self._cluster = cluster
        self._limits = rules.reservations
        self._policy = rules.policy
        self._fences: dict[str, _Fence] = {}
        self._counted_on: tuple[Collection[Reserved], Snapshot] | None = None
        # The layout of the last count, and which of its rows are accelerators.
        self._resources: Mapping[str, int] = {}
        self._rows: list[int] = []

    def look(self, standing: Collection[Reserved], now_s: float) -> None:
        """Add up the idle time of the fences' accelerators until now, and record which ones are
        idle.
        """
        before = self._fences
        self._fences = {}

        if not any(reservation.is_fence for reservation in standing):
            return

        # Several times a turn, while at most one of them finds other pods or nodes.
        counted_on = (standing, self._cluster.snapshot())
        is_counted = self._counted_on is not None and all(
            map(operator.is_, counted_on, self._counted_on)
        )
        self._counted_on = counted_on

        for reservation in standing:
            if reservation.is_fence:
                # By group: a fence that exchanges nodes is the same fence, and its age goes on
                # (H6).
                fence = self._fences[reservation.group] = before.get(reservation.group) or _Fence(
                    now_s,
                    now_s,
                )
                # With what was idle until now; only then is it counted again.
                fence.idle_s += fence.idle * (now_s - fence.seen_s)
                fence.seen_s = now_s

                if not is_counted:
                    fence.idle, fence.accelerators = self._accelerators(reservation.nodes)
                    fence.empty_s = (
                        min(fence.empty_s, now_s) if self._is_empty(reservation.nodes) else math.inf
                    )

    def over(self, wall_s: float) -> Mapping[str, NotReserved]:
        """Groups whose fence must end as of the last `look`, with the reason."""
        return {
            group: why
            for group, fence in self._fences.items()
            if (why := self._why(fence, wall_s)) is not None
        }

    def next_s(self) -> Iterator[float]:
        """Yield the time at which each fence ends if no event occurs before."""
        for fence in self._fences.values():
            idle_s = fence.seen_s + max(self._may_idle_s(fence), 0.0)
            yield min(fence.empty_s + EMPTY_S, fence.since_s + self._limits.fence_age_s, idle_s)

    def _why(self, fence: _Fence, wall_s: float) -> NotReserved | None:
        # All nodes empty and not started: something else than room keeps the head off, and waiting
        # longer does not change it.
        if fence.seen_s >= fence.empty_s + EMPTY_S:
            return NotReserved(why=NotEntitled.REFUSED)

        aged = fence.seen_s >= fence.since_s + self._limits.fence_age_s
        if aged or self._may_idle_s(fence) < ROUNDING_S:
            return NotReserved(
                why=NotEntitled.FENCE_OVER,
                until_s=wall_s + self._limits.fence_after_s,
            )

        return None

    def _may_idle_s(self, fence: _Fence) -> float:
        """For how long as many may be idle as are now."""
        left = self._limits.fence_idle_s * fence.accelerators - fence.idle_s
        return left / fence.idle if fence.idle else math.inf

    def _accelerators(self, nodes: Collection[str]) -> tuple[int, int]:
        """How many accelerators of these nodes are free, and how many they offer."""
        snapshot = self._cluster.snapshot()
        self._find_rows(snapshot.resources)

        index = snapshot.table.index
        there = [index[name] for name in nodes if name in index]
        free = snapshot.free[self._rows][:, there]
        offered = snapshot.allocatable[self._rows][:, there]

        return int(np.maximum(free, 0).sum()), int(offered.sum())

    def _find_rows(self, resources: Mapping[str, int]) -> None:
        """Look for the rows of accelerators, unless the layout is the same as last time: it
        changes only when a node offers something new.
        """
        if self._resources is resources:
            return

        self._resources = resources
        self._rows = []
        for name, row in resources.items():
            if self._policy.is_accelerator(name):
                self._rows.append(row)

    def _is_empty(self, nodes: Collection[str]) -> bool:
        return all(
            pod.ends_with_node for name in nodes for pod in self._cluster.residents(name).values()
        )
