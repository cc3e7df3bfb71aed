"""Nodes on which lower-priority groups are held back for a group that may preempt there (V27).

Invariant: a pod that started there now would be evicted as soon as the group can start. Nothing is held back for a
group that the nodes could not hold even if empty, or that may not preempt.
"""

from __future__ import annotations

import numpy as np

from gangsched.core.preemption.domain_sums import DomainSums
from gangsched.core.preemption.needed_sums import NeededSums
from gangsched.core.preemption.preemptor import Preemptor
from gangsched.core.reserve import Ledger
from gangsched.model.preemption import Obstacle

SOON = frozenset(
    {
        Obstacle.TOO_LITTLE,
        Obstacle.TOO_YOUNG,
        Obstacle.BACK_OFF,
        Obstacle.DELAYED,
        Obstacle.NOTHING_LOWER,
        Obstacle.LATER,
    }
)
"""Why a group does not preempt now that does so later, when others end, its time has come or its search is done."""


def wanted(preemptor: Preemptor, ledger: Ledger) -> tuple[str, ...]:
    """Nodes that could hold members if they were empty; none if all of them together could not hold the group."""
    sums = NeededSums.of(preemptor, ledger)
    if sums is None:
        return ()
    offered = ledger.allocatable[[ledger.resources[name] for name in sums.names]]
    domains = DomainSums.of(preemptor.group, sums, ledger)
    nodes = domains.usable(domains.enough(offered), offered)
    return tuple(ledger.table.names[n] for n in np.flatnonzero(nodes).tolist())
