"""Whether a nomination's members fit on their nodes once what leaves is gone, and which victims that needs.

Law: a ledger of the newest snapshot is asked; nothing outside it changes. Victims and terminating pods count as gone,
unless they are stuck (semantics V4, V13).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from gangsched.core.filter import static_fit
from gangsched.core.reserve import Ledger
from gangsched.model.gang import Placement
from gangsched.model.objects import Pod
from gangsched.model.snapshot import Snapshot


class Room:
    """The cluster as it will be for one group: `leaving` pods, by uid with their nodes, are gone, its members there."""

    def __init__(
        self, snapshot: Snapshot, group: str, placements: Sequence[Placement], leaving: Mapping[str, tuple[Pod, str]]
    ) -> None:
        lowest = min((placement.pod.priority for placement in placements), default=0)
        self._placements = placements
        self._ledger = ledger = Ledger(snapshot)
        ledger.respect_nominations(lowest, but=group)
        for pod, node in leaving.values():
            ledger.release(pod, node)
        for placement in placements:
            _reserve(ledger, placement.pod, placement.node)

    def obstacle(self) -> str:
        """Why a member does not fit on its node, "" if all do."""
        for placement in self._placements:
            if not self._ledger.fits_still(placement.pod, placement.node):
                return self._why(placement)
        return ""

    def spares(self, pods: Iterable[tuple[Pod, str]]) -> bool:
        """Whether all members fit even if these pods stay; if so, they do from now on."""
        there = list(pods)
        checkpoint = self._ledger.checkpoint()
        for pod, node in there:
            _reserve(self._ledger, pod, node)
        nodes = {node for _, node in there}
        if all(self._ledger.fits_still(each.pod, each.node) for each in self._placements if each.node in nodes):
            return True
        self._ledger.rollback(checkpoint)
        return False

    def _why(self, placement: Placement) -> str:
        table, name = self._ledger.table, placement.node
        index = table.index.get(name)
        if index is None:
            return f"node {name} is gone"
        if table.nodes[index].unschedulable:
            return f"node {name} was cordoned"
        if not static_fit(placement.pod.shape, table).mask[index]:
            return f"node {name} does not take pod {placement.pod.key} any more"
        return f"the room on node {name} was taken"


def _reserve(ledger: Ledger, pod: Pod, node: str) -> None:
    index = ledger.table.index.get(node)
    if index is not None:
        ledger.reserve((pod,), np.array([index]), np.array([1]))
