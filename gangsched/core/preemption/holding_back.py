"""Nodes on which lower-priority groups are held back, because a group may preempt there (V27).

Invariant: a lower-priority pod that starts on such a node now would be evicted as soon as the group
can preempt. Lower-priority groups are not held back for a group that may not preempt, or that would
not fit even if the nodes were empty.
"""

from __future__ import annotations

import numpy as np

from gangsched.core.preemption.preemptor import Preemptor
from gangsched.core.preemption.sums import DomainSums, NeededSums
from gangsched.core.reserve import Ledger
from gangsched.model.preemption import HeldBack, NotHelpful, Obstacle

SOON = frozenset(
    {
        Obstacle.TOO_LITTLE,
        Obstacle.TOO_YOUNG,
        Obstacle.BACK_OFF,
        Obstacle.DELAYED,
        Obstacle.NOTHING_LOWER,
    }
)
"""Why a group does not preempt now that does so later, when others end or its time has come."""


def preempts_soon(group_id: str, found: NotHelpful, before: HeldBack | None) -> bool:
    """Whether lower-priority groups are held back for the group. While a search for victims is
    unfinished, this stays as it was `before`.

    A new search does not hold groups back. Otherwise, if its result opened the nodes again, this
    would wake up the group, which would start another search, and so on.
    """
    if found.why is Obstacle.LATER:
        return before is not None and before.group == group_id

    return found.why in SOON


def wanted(preemptor: Preemptor, ledger: Ledger) -> tuple[str, ...]:
    """Nodes that could hold members if they were empty; none if all these nodes together could not
    hold the group.
    """
    sums = NeededSums.of(preemptor, ledger)
    if sums is None:
        return ()

    offered = ledger.allocatable[[ledger.resources[name] for name in sums.names]]
    domains = DomainSums.of(preemptor.group, sums, ledger)
    nodes = domains.usable(domains.enough(offered), offered)

    return tuple(ledger.table.names[n] for n in np.flatnonzero(nodes).tolist())
