"""kube-scheduler's VolumeZone: zone and region labels of bound volumes against those of the node.

A node without any such label may use every volume. A volume's old (beta) label is also met by the node's new one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from gangsched.core.filter.occupancy import Occupancy
from gangsched.core.filter.plugin import ClaimFilter
from gangsched.model.objects import Pod
from gangsched.model.snapshot import Bools, NodeTable, Refused
from gangsched.model.storage import Volume

REFUSED = "node(s) had no available volume zone"
LABELS = (
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
)
NEW_LABEL = {LABELS[0]: LABELS[2], LABELS[1]: LABELS[3]}


class VolumeZone(ClaimFilter):
    """Nodes in the zones and regions of the pod's bound volumes."""

    def refusals(self, pod: Pod, occupancy: Occupancy) -> Iterator[Refused]:
        zoned = occupancy.storage.needs(pod).zoned if pod.claims else ()
        if zoned:
            yield Refused(REFUSED, ~_allowed(zoned, occupancy.table))


def _allowed(volumes: Iterable[Volume], table: NodeTable) -> Bools:
    """`allowed[node]`: the node is in a zone and region of each volume, or in none at all."""
    mask = table.everywhere()
    for key, values in {zone: None for volume in volumes for zone in volume.zones}:
        column = table.label_column(key)
        known = np.array([value in values for value in column.values] + [False], dtype=np.bool_)[column.codes]
        if key in NEW_LABEL:
            new = table.label_column(NEW_LABEL[key])
            by_new = np.array([value in values for value in new.values] + [False], dtype=np.bool_)[new.codes]
            known = np.where(column.codes < 0, by_new, known)
        mask &= known
    return mask if mask.all() else mask | _nowhere(table)


def _nowhere(table: NodeTable) -> Bools:
    """`nowhere[node]`: the node says nothing of where it is."""
    mask = table.everywhere()
    for key in LABELS:
        mask &= table.label_column(key).codes < 0
    return mask
