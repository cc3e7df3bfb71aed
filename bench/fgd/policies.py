"""Where a pod goes: best-fit and FGD as the paper describes them, and gangsched's own scoring.

Invariant: a policy only chooses among the nodes (and devices) that `Cluster.fits` leaves; it never
refuses a pod that fits. Ties go to the first node and device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from bench.fgd.trace import WHOLE, Ask, Cluster
from gangsched.core import score
from gangsched.core.reserve import Ledger
from gangsched.model.gpu_policy import PRODUCT_LABEL
from gangsched.model.objects import Node
from gangsched.model.resources import CPU, MEMORY, PODS, from_dict
from gangsched.model.snapshot import Bools, Ints, Snapshot
from gangsched.simulate.traces import MIB, make_shape
from gangsched.simulate.workload import GPU
from tests import builders

Choice = tuple[int, int | None]
"""A node, and the device for a pod that takes a part of one."""


class Policy(Protocol):
    """Chooses for one cluster."""

    def choose(self, ask: Ask, feasible: Bools) -> Choice:
        """A feasible node for the pod."""


def tightest(ask: Ask, left: Ints) -> int:
    """The device with the least left that is enough."""
    return int(np.where(left >= ask.milli, left, 2 * WHOLE).argmin())


class BestFit:
    """The least free CPU and GPU left over, each as a part of the largest node, added up."""

    def __init__(self, cluster: Cluster, _: Sequence[tuple[Ask, float]]) -> None:
        self._cluster = cluster
        self._most_cpu = int(cluster.cpu.max())
        self._most_gpu = cluster.left.shape[1] * WHOLE

    def choose(self, ask: Ask, feasible: Bools) -> Choice:
        """Node by sums, device by its own least left over."""
        cluster = self._cluster
        over = (cluster.cpu - ask.cpu) / self._most_cpu
        over = over + (np.maximum(cluster.left, 0).sum(axis=1) - ask.total) / self._most_gpu
        node = int(np.where(feasible, over, np.inf).argmin())
        return node, tightest(ask, cluster.left[node]) if ask.shares else None


@dataclass(slots=True)
class _Known:
    """Growth of fragmentation by node if a kind of pod came there, the device for it, and what has
    been seen.
    """

    growth: np.ndarray[tuple[int], np.dtype[np.float64]]
    device: Ints
    seen: int


class Fgd:
    """Fragmentation Gradient Descent: the node where the expected fragmentation of the target
    workload grows least.

    The fragmentation of a node for a kind of pod is what is free of its GPUs and of no use to that
    kind: all of it if the kind asks for no GPU, may not use the model or does not fit, else the
    devices with less than it asks for. As in the paper's artifact nodes have whole points from 0 to
    100, sigmoid of the growth, so that small differences are ties; with exact growth instead one
    GPU in a hundred less is allocated.
    """

    def __init__(self, cluster: Cluster, target: Sequence[tuple[Ask, float]]) -> None:
        self._cluster = cluster
        self._target = target
        self._known: dict[Ask, _Known] = {}
        self._changed: list[int] = []

    def choose(self, ask: Ask, feasible: Bools) -> Choice:
        """Growth is remembered by kind of pod and made anew only on nodes that changed."""
        known = self._known.get(ask)
        if known is None:
            size = len(self._cluster.names)
            known = self._known[ask] = _Known(
                np.zeros(size), np.zeros(size, dtype=np.int64), len(self._changed)
            )
            stale = np.arange(size)
        else:
            stale = np.unique(np.array(self._changed[known.seen :], dtype=np.int64))
            known.seen = len(self._changed)
        if stale.size:
            known.growth[stale], known.device[stale] = self._growth(ask, stale)
        points = np.floor(100 / (1 + np.exp(known.growth / WHOLE)))
        node = int(np.where(feasible, points, -1).argmax())
        self._changed.append(node)
        return node, int(known.device[node]) if ask.shares else None

    def _growth(
        self, ask: Ask, nodes: Ints
    ) -> tuple[np.ndarray[tuple[int], np.dtype[np.float64]], Ints]:
        """What the pod would add on each of `nodes`, on the best device there."""
        cluster = self._cluster
        before, cpu, left = (
            self._fragmentation(nodes, cluster.cpu[nodes], cluster.left[nodes]),
            cluster.cpu,
            cluster.left,
        )
        if not ask.shares:
            after = left[nodes].copy()
            free = (after == WHOLE) & (np.cumsum(after == WHOLE, axis=1) <= ask.gpus)
            after[free] = 0
            return self._fragmentation(nodes, cpu[nodes] - ask.cpu, after) - before, np.zeros_like(
                nodes
            )
        growth = np.full((left.shape[1], nodes.size), np.inf)
        for device in range(left.shape[1]):
            after = left[nodes].copy()
            enough = after[:, device] >= ask.milli
            after[:, device] -= ask.milli
            growth[device] = np.where(
                enough, self._fragmentation(nodes, cpu[nodes] - ask.cpu, after) - before, np.inf
            )
        return growth.min(axis=0), growth.argmin(axis=0)

    def _fragmentation(
        self, nodes: Ints, cpu: Ints, left: Ints
    ) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        free = np.maximum(left, 0)
        total = free.sum(axis=1)
        expected = np.zeros(nodes.size)
        for kind, frequency in self._target:
            useless = total
            if kind.gpus:
                enough = left >= kind.milli
                fits = (
                    (enough.sum(axis=1) >= kind.gpus)
                    & (cpu >= kind.cpu)
                    & self._cluster.accessible(kind)[nodes]
                )
                useless = np.where(fits, np.where(enough, 0, free).sum(axis=1), total)
            expected += frequency * useless
        return expected


class Gangsched:
    """`core.score` on a ledger of whole devices: a device is free while nobody has a part of it.

    A part goes to the device in use with the least left that is enough (several such nodes: the
    scoring says which); where there is none it asks for a whole device, and the scoring says where.
    """

    def __init__(self, cluster: Cluster, _: Sequence[tuple[Ask, float]]) -> None:
        self._cluster = cluster
        nodes = [
            Node(
                name=name,
                labels={PRODUCT_LABEL: str(model)},
                allocatable=from_dict(
                    {
                        CPU: int(cpu),
                        MEMORY: int(memory) * MIB,
                        GPU: int((left == WHOLE).sum()),
                        PODS: 1000,
                    }
                ),
            )
            for name, model, cpu, memory, left in zip(
                cluster.names,
                cluster.models,
                cluster.cpu,
                cluster.memory,
                cluster.left,
                strict=True,
            )
        ]
        self._ledger = builders.ledger(nodes)
        self._column = np.array([self._ledger.table.index[name] for name in cluster.names])
        self._node = np.argsort(self._column)

    def choose(self, ask: Ask, feasible: Bools) -> Choice:
        """Reserves on the ledger what it chooses."""
        if not ask.shares:
            return self._best(ask, ask.gpus, feasible), None
        left = self._cluster.left
        in_use = np.where((left >= ask.milli) & (left < WHOLE), left, 2 * WHOLE).min(axis=1)
        joined = np.where(feasible, in_use, 2 * WHOLE)
        joins = joined.min() < WHOLE
        node = self._best(ask, 0 if joins else 1, joined == joined.min() if joins else feasible)
        return node, tightest(ask, left[node])

    def _best(self, ask: Ask, gpus: int, feasible: Bools) -> int:
        """The scoring's node for a pod with so many whole devices; each pod is a plan of its own,
        as in `packing`.
        """
        old = self._ledger
        asked = {CPU: ask.cpu, MEMORY: ask.memory * MIB, GPU: gpus}
        shape = make_shape(from_dict(asked), ask.models)
        ledger = Ledger(Snapshot(old.table, old.resources, old.allocatable, old.free))
        chosen, _ = score.choose(shape, 1, feasible[self._node].astype(np.int64), ledger)
        old.reserve(builders.pods("p", shape, 1), chosen, np.array([1]))
        return int(self._node[chosen[0]])
