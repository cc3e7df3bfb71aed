"""An attempt to place members of one group on the ledger of a plan.

Invariant: the ledger keeps room, and knows nothing of the group that is being placed or of the
plans before.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from gangsched.core.progress import Progress
from gangsched.core.reserve import Ledger
from gangsched.model.gang import Group


@dataclass(frozen=True, slots=True)
class PlacementAttempt:
    """Whose members are placed, and where."""

    group: Group
    ledger: Ledger
    #: What earlier plans found out, and where this one records it; None if there is no next plan
    #: that could go on.
    progress: Progress | None = None

    def unrecorded(self) -> PlacementAttempt:
        """The same without progress, as for what a search places."""
        return replace(self, progress=None) if self.progress is not None else self
