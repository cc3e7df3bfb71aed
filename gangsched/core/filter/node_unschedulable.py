"""kube-scheduler's NodeUnschedulable: cordoned nodes take only pods that tolerate the cordon."""

from __future__ import annotations

from gangsched.core.filter.plugin import StaticFilter
from gangsched.core.filter.taint_toleration import tolerates
from gangsched.model.objects import Shape, Taint
from gangsched.model.snapshot import Bools, NodeTable

CORDON = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")


class NodeUnschedulable(StaticFilter):
    """Nodes that are not cordoned."""

    reason = "node(s) were unschedulable"

    def allowed(self, shape: Shape, table: NodeTable) -> Bools:
        if any(tolerates(toleration, CORDON) for toleration in shape.tolerations):
            return table.everywhere()

        return table.schedulable
