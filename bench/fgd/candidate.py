"""gangsched's scoring with two rules before it that it does not have yet: a candidate, to see what
they are worth.

1. Scarce models: a pod with GPUs goes to nodes whose model is asked for least, by name, by the pods
   seen so far.
2. Stranding: of those, to the nodes where the fewest GPUs lose the CPU that is usual beside one;
   for pods of GPUs to a quarter of a GPU, for others to a tenth. A part of a GPU stays on nodes
   with a device in use that takes it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from bench.fgd.policies import Choice, Gangsched
from bench.fgd.trace import WHOLE, Ask, Cluster
from gangsched.model.snapshot import Bools

Numbers = np.ndarray[tuple[int], np.dtype[np.float64]]


class Candidate(Gangsched):
    """Narrows what is feasible, and lets the scoring choose among the rest."""

    def __init__(self, cluster: Cluster, target: Sequence[tuple[Ask, float]]) -> None:
        super().__init__(cluster, target)
        self._all_cpu = int(cluster.cpu.sum())
        self._devices = (cluster.left >= 0).sum(axis=1)
        self._asked: Counter[tuple[str, ...]] = Counter()

    def choose(self, ask: Ask, feasible: Bools) -> Choice:
        """As the rules say."""
        left = self._cluster.left
        self._asked[ask.models] += ask.total
        if ask.gpus:
            feasible = _least(feasible, np.round(self._scarcity(), 3))
        in_use = feasible & ((left >= ask.milli) & (left < WHOLE)).any(axis=1)
        if ask.shares and in_use.any():
            feasible = in_use
        if not ask.shares or in_use.any():
            feasible = _least(
                feasible,
                np.round(self._stranded(ask) / (WHOLE / 4 if ask.gpus and not ask.shares else 100)),
            )
        return super().choose(ask, feasible)

    def _scarcity(self) -> Numbers:
        """`scarcity[n]`: GPUs asked for by model where node `n` is one of those, as a share of all
        that have it.
        """
        total = np.zeros(len(self._devices))
        for models, asked in self._asked.items():
            if models:
                there = np.isin(self._cluster.models, models)
                total += np.where(there, asked / max(1, WHOLE * int(self._devices[there].sum())), 0)
        return total

    def _stranded(self, ask: Ask) -> Numbers:
        """Thousandths of GPUs of each node that the pod leaves without their usual CPU, more than
        are so already.
        """
        free = np.maximum(self._cluster.left, 0).sum(axis=1)
        used = self._cluster.capacity - int(free.sum())
        usual = max(1.0, (self._all_cpu - int(self._cluster.cpu.sum())) / max(1, used))
        before = np.maximum(0, free - self._cluster.cpu / usual)
        after = np.maximum(0, free - ask.total - (self._cluster.cpu - ask.cpu) / usual)
        more: Numbers = after - before
        return more


def _least(feasible: Bools, value: Numbers) -> Bools:
    """The feasible nodes of least value."""
    kept = np.where(feasible, value, np.inf)
    least: Bools = feasible & (kept == kept.min())
    return least
