"""openb's nodes and pod lists as columns, and the sequence of arrivals that one run plays.

Invariant: the same seed gives the same arrivals to every policy. Amounts are milli-CPU, MiB and
thousandths of a GPU; a pod asks for a part of one device (`milli` < 1000) or for whole ones.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from gangsched.model.snapshot import Bools, Ints
from gangsched.simulate.tables import read_table

WHOLE = 1000
INFLATED = 1.3
"""Pods arrive until they have asked for so many times the cluster's GPUs, as the paper's artifact
has it.
"""
POPULAR = 0.95
"""The target workload is the most frequent kinds of pods that make up this part of all pods."""


@dataclass(frozen=True, slots=True)
class Ask:
    """What one kind of pod asks for: `gpus` devices, `milli` of each; `models` are those it may
    use, empty for all.
    """

    cpu: int
    memory: int
    gpus: int = 0
    milli: int = 0
    models: tuple[str, ...] = ()

    @property
    def total(self) -> int:
        """Thousandths of GPUs in all."""
        return self.gpus * self.milli

    @property
    def shares(self) -> bool:
        """Whether it takes a part of a device."""
        return 0 < self.milli < WHOLE


class Cluster:
    """Free `cpu[n]`, `memory[n]` and `left[n][d]` thousandths of each device; a device that is not
    there is -1.
    """

    def __init__(self, nodes: Path) -> None:
        rows = read_table(nodes)[1]
        self.names = [row.text("sn") for row in rows]
        self.models = np.array([row.text("model") for row in rows])
        self.cpu: Ints = np.array([row.whole("cpu_milli") for row in rows], dtype=np.int64)
        self.memory: Ints = np.array([row.whole("memory_mib") for row in rows], dtype=np.int64)
        devices = np.array([row.whole("gpu") for row in rows], dtype=np.int64)
        self.left: Ints = np.where(np.arange(devices.max()) < devices[:, None], WHOLE, -1)
        self.capacity = int(devices.sum()) * WHOLE
        self._accessible: dict[tuple[str, ...], Bools] = {}

    @property
    def allocated(self) -> float:
        """The share of all thousandths of GPUs that pods have."""
        return 1 - float(np.maximum(self.left, 0).sum()) / self.capacity

    def accessible(self, ask: Ask) -> Bools:
        """Which nodes have a GPU model that the pod may use."""
        if ask.models not in self._accessible:
            every = np.ones(len(self.names), dtype=np.bool_)
            self._accessible[ask.models] = np.isin(self.models, ask.models) if ask.models else every
        return self._accessible[ask.models]

    def fits(self, ask: Ask) -> Bools:
        """Which nodes take the pod now."""
        room = (self.cpu >= ask.cpu) & (self.memory >= ask.memory) & self.accessible(ask)
        return room & ((self.left >= ask.milli).sum(axis=1) >= ask.gpus) if ask.gpus else room

    def take(self, ask: Ask, node: int, device: int | None = None) -> None:
        """Place a pod: a part of `device`, or the first wholly free devices."""
        self.cpu[node] -= ask.cpu
        self.memory[node] -= ask.memory
        if device is not None:
            self.left[node, device] -= ask.milli
        elif ask.gpus:
            self.left[node, np.flatnonzero(self.left[node] == WHOLE)[: ask.gpus]] = 0


def read_pods(pods: Path) -> list[Ask]:
    """The pods of a list, equal ones equal."""
    return [
        Ask(
            row.whole("cpu_milli"),
            row.whole("memory_mib"),
            row.whole("num_gpu"),
            row.whole("gpu_milli") if row.whole("num_gpu") else 0,
            tuple(model for model in row.text("gpu_spec").split("|") if model),
        )
        for row in read_table(pods)[1]
    ]


def arrivals(pods: Sequence[Ask], capacity: int, seed: int) -> list[Ask]:
    """The list cut, or filled up from itself, to INFLATED times the capacity, in an order
    by lot.
    """
    dice = random.Random(seed)
    chosen = list(pods)
    asked = sum(ask.total for ask in chosen)
    while asked > INFLATED * capacity:
        asked -= chosen.pop(dice.randrange(len(chosen))).total
    while asked + (more := dice.choice(pods)).total <= INFLATED * capacity:
        chosen.append(more)
        asked += more.total
    dice.shuffle(chosen)
    return chosen


def typical(pods: Sequence[Ask]) -> list[tuple[Ask, float]]:
    """The target workload, memory apart: the most frequent kinds and their frequencies, which add
    up to 1.
    """
    common = Counter(replace(ask, memory=0) for ask in pods).most_common()
    reached, kept = 0, []
    for ask, number in common:
        if reached >= POPULAR * len(pods):
            break
        reached += number
        kept.append((ask, number))
    return [(ask, number / reached) for ask, number in kept]
