"""Filter: on which nodes a shape may run, room aside, and why not on the others.

Law: the first plugin that refuses a node ends it, in kube-scheduler's order, so that refusals count as kube-scheduler
counts them. Everything static per (shape, node table) is computed once and remembered on the table.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gangsched.core.filter import node_affinity, node_name, node_unschedulable, taint_toleration
from gangsched.model.objects import Shape
from gangsched.model.snapshot import Bools, NodeTable, StaticFit

Plugin = Callable[[Shape, NodeTable], Bools]

PLUGINS: tuple[tuple[str, Plugin], ...] = (
    (node_affinity.NOT_NAMED, node_affinity.named),
    (node_unschedulable.REFUSED, node_unschedulable.allowed),
    (node_name.REFUSED, node_name.allowed),
    (taint_toleration.REFUSED, taint_toleration.allowed),
    (node_affinity.REFUSED, node_affinity.allowed),
)


def static_fit(shape: Shape, table: NodeTable) -> StaticFit:
    """Run every plugin for `shape` over all nodes; a shape with unsupported features fits nowhere."""
    fit = table.static_fits.get(shape)
    if fit is None:
        refused_by = np.zeros(len(table), dtype=np.int32)
        for code, (_, allowed) in enumerate(PLUGINS, start=1):
            refused_by[(refused_by == 0) & ~allowed(shape, table)] = code
        mask = (refused_by == 0) & (not shape.unsupported)
        penalty = taint_toleration.penalty(shape, table) - node_affinity.preference(shape, table)
        fit = table.static_fits[shape] = StaticFit(mask, refused_by, penalty)
    return fit
