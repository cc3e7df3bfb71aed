"""Waits for nodes that an autoscaler adds, and what waiting members say meanwhile (semantics E9,
E10).

Invariant: as in `model.verdict_facts`. Times are epoch seconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import msgspec
from msgspec import structs

from gangsched.model.reasons import Reason

if TYPE_CHECKING:
    from gangsched.model.gang import Refusal


class NodesInsufficient(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """So many `nodes` were added since `since_s` without room for the gang, 0 if an earlier process
    counted them. It asks for nodes again at `until_s`.
    """

    nodes: int
    since_s: int
    until_s: int


class NodesAskedFor(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """An autoscaler is asked for nodes by this ProvisioningRequest, soon if it is not made yet;
    `message` is what the autoscaler says. `request` is "" if there are several.
    """

    request: str
    is_made: bool = False
    is_accepted: bool = False
    lacks_capacity: bool = False
    message: str = ""


class Provided(msgspec.Struct, frozen=True, gc=False):
    """An autoscaler adds nodes for the request; so many are reserved until `until_s`."""

    request: str
    nodes: int
    until_s: int


class NotProvided(msgspec.Struct, frozen=True, gc=False):
    """The request brought no nodes, for this reason; `until_s` is the time of the next one, 0 if
    none is made. `request` is "" if none was made, or several.
    """

    request: str
    why: str
    until_s: int = 0
    #: Until then the members ask for nodes as plain pods do.
    asks_singly: bool = False


CapacityFact: TypeAlias = NodesInsufficient | NodesAskedFor | Provided | NotProvided


class NotAsking(msgspec.Struct, frozen=True, gc=False):
    """A group that lacks room does not ask autoscalers for nodes: its members have `reason` instead
    of Unschedulable, and their message ends with `fact`.
    """

    reason: Reason
    fact: CapacityFact

    def instead_of(self, refusal: Refusal) -> Refusal:
        """The refusal as users read it; one that asks for no nodes stays as it is."""
        if refusal.reason is not Reason.UNSCHEDULABLE:
            return refusal

        return structs.replace(refusal, reason=self.reason, details=(*refusal.details, self.fact))
