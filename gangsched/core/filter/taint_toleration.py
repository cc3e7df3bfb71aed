"""kube-scheduler's TaintToleration: NoSchedule and NoExecute taints must be tolerated;
PreferNoSchedule taints are avoided.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gangsched.core.filter.plugin import StaticFilter
from gangsched.model.objects import Shape, Taint, Toleration
from gangsched.model.snapshot import Bools, Ints, NodeTable

HARD = frozenset({"NoSchedule", "NoExecute"})
SOFT = frozenset({"PreferNoSchedule"})
PENALTY_PER_TAINT = 100


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Whether the toleration covers the taint, as `v1.Toleration.ToleratesTaint` decides it."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True

    return toleration.operator in {"Equal", ""} and toleration.value == taint.value


class TaintToleration(StaticFilter):
    """Nodes whose taints the pod tolerates."""

    reason = "node(s) had untolerated taint(s)"

    def allowed(self, shape: Shape, table: NodeTable) -> Bools:
        mask: Bools = _untolerated(shape, table, HARD) == 0
        return mask


def penalty(shape: Shape, table: NodeTable) -> Ints:
    """`penalty[node]`: 100 for each PreferNoSchedule taint that is not tolerated."""
    return _untolerated(shape, table, SOFT) * PENALTY_PER_TAINT


def untolerated(shape: Shape, taints: tuple[Taint, ...]) -> list[Taint]:
    """The `taints` that exclude pods of the shape."""
    kept_off = []
    keeps_off = _counter(shape.tolerations, HARD)
    for taint in taints:
        if keeps_off(taint):
            kept_off.append(taint)

    return kept_off


def _untolerated(shape: Shape, table: NodeTable, effects: frozenset[str]) -> Ints:
    """Count untolerated taints with one of `effects` per node."""
    counts = np.zeros(len(table), dtype=np.int64)
    count = _counter(shape.tolerations, effects)

    # By distinct list of taints, of which large clusters have few.
    for taints, nodes in table.tainted.items():
        counts[nodes] = sum(map(count, taints))

    return counts


def _counter(
    tolerations: tuple[Toleration, ...],
    effects: frozenset[str],
) -> Callable[[Taint], bool]:
    return lambda taint: (
        taint.effect in effects
        and not any(tolerates(toleration, taint) for toleration in tolerations)
    )
