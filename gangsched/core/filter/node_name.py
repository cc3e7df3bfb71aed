"""kube-scheduler's NodeName: a pod that names a node in its spec runs there or nowhere.

Pods of ours are unbound and so never carry `spec.nodeName`; shapes made by a simulation may.
"""

from __future__ import annotations

import numpy as np

from gangsched.model.objects import Shape
from gangsched.model.snapshot import Bools, NodeTable

REFUSED = "node(s) didn't match the requested node name"


def allowed(shape: Shape, table: NodeTable) -> Bools:
    """`allowed[node]`: no node is named, or it is this one."""
    if not shape.node_name:
        return np.ones(len(table), dtype=np.bool_)
    mask = np.zeros(len(table), dtype=np.bool_)
    index = table.index.get(shape.node_name)
    if index is not None:
        mask[index] = True
    return mask
