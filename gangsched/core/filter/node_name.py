"""kube-scheduler's NodeName: a pod whose spec names a node may run only there.

Pending pods never have `spec.nodeName`, but shapes made by a simulation may.
"""

from __future__ import annotations

from gangsched.core.filter.plugin import StaticFilter
from gangsched.model.objects import Shape
from gangsched.model.snapshot import Bools, NodeTable


class NodeName(StaticFilter):
    """The node that the pod names; every node if it names none."""

    reason = "node(s) didn't match the requested node name"

    def allowed(self, shape: Shape, table: NodeTable) -> Bools:
        if shape.node_name:
            return table.having([shape.node_name])

        return table.everywhere()
