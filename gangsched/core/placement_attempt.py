"""An attempt to place members of one group on the ledger of a plan.

Invariant: the ledger keeps room, and knows nothing of the group that is being placed, of the part
of the cluster in which it is tried, or of the plans before.
"""

from __future__ import annotations

import msgspec
from msgspec import structs

from gangsched.core.progress import Progress
from gangsched.core.reserve import Ledger
from gangsched.core.scope import EVERYWHERE, Scope
from gangsched.model.gang import Group


class PlacementAttempt(msgspec.Struct, frozen=True, eq=False):
    """Whose members are placed, and where."""

    group: Group
    ledger: Ledger
    #: What earlier plans found out, and where this one records it; None if there is no next plan
    #: that could go on.
    progress: Progress | None = None
    #: The only nodes that are tried.
    scope: Scope = EVERYWHERE

    def within(self, scope: Scope) -> PlacementAttempt:
        """The same in this scope instead."""
        return structs.replace(self, scope=scope)

    def unrecorded(self) -> PlacementAttempt:
        """The same without progress, as for what a search places."""
        return structs.replace(self, progress=None) if self.progress is not None else self

    def of(self, group: Group) -> PlacementAttempt:
        """The same for a group that differs from this one."""
        return structs.replace(self, group=group)
