"""kube-scheduler's VolumeZone: the zone and region labels of bound volumes must match the node's
labels.

A node without zone and region labels may use every volume. A volume's beta label also matches the
GA label of the node.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gangsched.core.filter.node_selector import requirement_met, term_met
from gangsched.core.filter.plugin import ClaimFilter, Occupancy
from gangsched.model.inter_pod import Requirement
from gangsched.model.objects import NodeSelectorTerm, Pod
from gangsched.model.snapshot import Bools, NodeTable, RefusedNodes
from gangsched.model.storage import Volume

REFUSED = "node(s) had no available volume zone"
LABELS = (
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
)
NOWHERE = NodeSelectorTerm(labels=tuple(Requirement(key, "DoesNotExist") for key in LABELS))
NEW_LABEL = {LABELS[0]: LABELS[2], LABELS[1]: LABELS[3]}


class VolumeZone(ClaimFilter):
    """Nodes in the zones and regions of the pod's bound volumes."""

    def refusals(self, pod: Pod, occupancy: Occupancy) -> Iterator[RefusedNodes]:
        if not pod.claims:
            return

        zoned = occupancy.storage.needs(pod).zoned
        if zoned:
            allowed = _allowed(zoned, occupancy.table)
            yield RefusedNodes(REFUSED, ~allowed)


def _allowed(volumes: Iterable[Volume], table: NodeTable) -> Bools:
    """`allowed[node]`: the node is in a zone and region of each volume, or in none at all."""
    zones: dict[tuple[str, tuple[str, ...]], None] = {}
    for volume in volumes:
        zones.update(dict.fromkeys(volume.zones))

    mask = table.everywhere()
    for key, values in zones:
        inside = requirement_met(Requirement(key, "In", values), table)
        if key in NEW_LABEL:
            new = Requirement(NEW_LABEL[key], "In", values)
            lacks_old = Requirement(key, "DoesNotExist")
            # The new label counts only where the node lacks the old one.
            inside |= requirement_met(new, table) & requirement_met(lacks_old, table)

        mask &= inside

    # Single-zone clusters have no such labels at all.
    return mask | term_met(NOWHERE, table)
