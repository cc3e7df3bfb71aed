"""kube-scheduler's VolumeZone: zone and region labels of bound volumes against those of the node.

A node without any such label may use every volume. A volume's old (beta) label is also met by the node's new one.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from gangsched.core.filter.node_affinity import label_column
from gangsched.model.snapshot import Bools, NodeTable
from gangsched.model.storage import Volume

REFUSED = "node(s) had no available volume zone"
LABELS = (
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
)
NEW_LABEL = {LABELS[0]: LABELS[2], LABELS[1]: LABELS[3]}


def allowed(volumes: Iterable[Volume], table: NodeTable) -> Bools:
    """`allowed[node]`: the node is in a zone and region of each volume, or in none at all."""
    mask = np.ones(len(table), dtype=np.bool_)
    for key, values in {zone: None for volume in volumes for zone in volume.zones}:
        column = label_column(key, table)
        known = np.array([value in values for value in column.values] + [False], dtype=np.bool_)[column.codes]
        if key in NEW_LABEL:
            new = label_column(NEW_LABEL[key], table)
            by_new = np.array([value in values for value in new.values] + [False], dtype=np.bool_)[new.codes]
            known = np.where(column.codes < 0, by_new, known)
        mask &= known
    return mask if mask.all() else mask | _nowhere(table)


def _nowhere(table: NodeTable) -> Bools:
    """`nowhere[node]`: the node says nothing of where it is."""
    mask = np.ones(len(table), dtype=np.bool_)
    for key in LABELS:
        mask &= label_column(key, table).codes < 0
    return mask
