"""Nodes on which lower-priority groups are held back for a group that may preempt there (V27).

Invariant: a lower-priority pod that started there now would be evicted as soon as the group can preempt. No group is
held back for a group that the nodes could not hold even if they were empty, or that may not preempt.
"""

from __future__ import annotations

import numpy as np

from gangsched.core.preemption.preemptor import Preemptor
from gangsched.core.preemption.sums import DomainSums, NeededSums
from gangsched.core.reserve import Ledger
from gangsched.model.preemption import HeldBack, NotHelpful, Obstacle

SOON = frozenset({Obstacle.TOO_LITTLE, Obstacle.TOO_YOUNG, Obstacle.BACK_OFF, Obstacle.DELAYED, Obstacle.NOTHING_LOWER})
"""Why a group does not preempt now that does so later, when others end or its time has come."""


def preempts_soon(group_id: str, found: NotHelpful, before: HeldBack | None) -> bool:
    """Whether other groups are held back for the group; while a search for victims goes on, as they were `before`.

    A search alone does not hold groups back: if its result opened the nodes again, this would wake the group up, which
    would start another search, and so on.
    """
    if found.why is Obstacle.LATER:
        return before is not None and before.group == group_id
    return found.why in SOON


def wanted(preemptor: Preemptor, ledger: Ledger) -> tuple[str, ...]:
    """Nodes that could hold members if they were empty; empty if all these nodes together could not hold the group."""
    sums = NeededSums.of(preemptor, ledger)
    if sums is None:
        return ()
    offered = ledger.allocatable[[ledger.resources[name] for name in sums.names]]
    domains = DomainSums.of(preemptor.group, sums, ledger)
    nodes = domains.usable(domains.enough(offered), offered)
    return tuple(ledger.table.names[n] for n in np.flatnonzero(nodes).tolist())
