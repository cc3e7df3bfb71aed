"""The volumes that an unbound claim can be bound to, and on which nodes, by the rules of the
PersistentVolume controller.

Invariant: nothing is reserved here. CSIStorageCapacity is ignored, and in-tree volumes are not
translated to CSI.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gangsched.core.filter.node_selector import any_term
from gangsched.model.inter_pod import selects
from gangsched.model.objects import NodeSelectorTerm
from gangsched.model.snapshot import Bools, NodeTable
from gangsched.model.storage import NO_PROVISIONER, Claim, StorageClass, Volume


def reachable(required: tuple[NodeSelectorTerm, ...] | None, table: NodeTable) -> Bools:
    """`reachable[node]`: the volume's node affinity matches the labels of the node; the node's name
    is not compared.
    """
    if required is None:
        return table.everywhere()

    # kube-scheduler compares volumes with the labels of a node object that has no name.
    by_label = []
    for term in required:
        if any(field.operator != "NotIn" for field in term.fields):
            continue
        if term.fields and not term.labels:
            return table.everywhere()

        by_label.append(NodeSelectorTerm(labels=term.labels))

    return any_term(by_label, table)


class ReachableNodes:
    """`reachable` of one table, remembered by requirement for as long as a plan."""

    __slots__ = ("_known", "_table")

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self._known: dict[tuple[NodeSelectorTerm, ...] | None, Bools] = {}

    def __call__(self, required: tuple[NodeSelectorTerm, ...] | None) -> Bools:
        """The nodes that match, by `reachable`; callers do not change the mask."""
        nodes = self._known.get(required)
        if nodes is None:
            nodes = self._known[required] = reachable(required, self._table)

        return nodes


def provisionable(known: StorageClass | None, table: NodeTable) -> Bools:
    """`provisionable[node]`: the class provisions volumes for this node."""
    if known is None or known.provisioner in {"", NO_PROVISIONER}:
        # A class without a provisioner only offers volumes that exist.
        return table.having(())
    if not known.topologies:
        return table.everywhere()

    allowed = [NodeSelectorTerm(labels=topology) for topology in known.topologies]
    return any_term(allowed, table)


def candidates(claim: Claim, volumes: Iterable[Volume], taken: Mapping[str, str]) -> list[Volume]:
    """Volumes that the claim can be bound to, smallest first. If a volume is reserved for the
    claim, it is the only candidate.

    `volumes` are the volumes of the claim's class; `taken` maps each volume picked in this plan to
    its claim's key.
    """
    free = []
    for volume in volumes:
        user = taken.get(volume.name, claim.key)
        if user != claim.key:
            continue
        if not _suits(claim, volume):
            continue

        # A volume with a claimRef to this claim was bound by hand or by a bind that is under way.
        if volume.claim is not None and volume.claim.means(claim):
            return [volume]

        if volume.claim is None and _may_be_given(claim, volume):
            free.append(volume)

    # The name breaks ties, so that a plan is deterministic.
    return sorted(free, key=lambda volume: (volume.capacity_bytes, volume.name))


def _suits(claim: Claim, volume: Volume) -> bool:
    """Whether the volume is large enough and of the right kind."""
    return (
        volume.capacity_bytes >= claim.request_bytes
        and volume.volume_mode == claim.volume_mode
        and volume.attributes_class == claim.attributes_class
        and not volume.deleting
    )


def _may_be_given(claim: Claim, volume: Volume) -> bool:
    """Whether a volume that nobody claims may be bound to the claim."""
    return (
        volume.available
        and volume.storage_class == claim.storage_class
        and selects(claim.selector, volume.labels)
        and set(claim.access_modes) <= set(volume.access_modes)
    )
