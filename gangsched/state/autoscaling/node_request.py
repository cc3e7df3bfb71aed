"""What one group asks an autoscaler for by ProvisioningRequests: the record (semantics E10)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from gangsched.model.objects import Shape
from gangsched.model.protocol import RequestNodes


class RequestStep(StrEnum):
    """Where a group is on its way to new nodes."""

    WAITING = "waiting"  # room may become free before anything is asked for
    ASKED = "asked"  # no autoscaler has accepted the request yet
    ACCEPTED = "accepted"
    PROVISIONED = "provisioned"
    RETRYING = "retrying"  # the request ended without nodes; it is made again
    RESTING = "resting"  # nobody answers, so that the group asks as any other pod


@dataclass(slots=True, kw_only=True)
class NodeRequest:
    """The request of a group. Times are monotonic seconds."""

    #: What it asks for; anything else is a change of the gang.
    wants: object
    shapes: frozenset[Shape]
    #: What is to be created, by key; one for each namespace.
    orders: Mapping[str, RequestNodes]
    step: RequestStep = RequestStep.WAITING
    since_s: float
    until_s: float
    #: Whether all orders of its present step were carried out.
    is_made: bool = False
    #: When an autoscaler accepted it, for the first time.
    accepted_s: float | None = None
    #: Why the last request ended.
    why: str = ""
    #: The last answer of the autoscaler or the API server, in its words: about one namespace.
    message: str = ""
    #: The autoscaler says that there is no capacity now.
    lacks_capacity: bool = False
    #: The uids of requests that are to be deleted: the watch shows them for a while.
    withdrawn: set[str] = field(default_factory=set)
    #: The nodes that were added for it.
    fenced: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name of its only request; "" of several, which namespaces do not learn of each
        other.
        """
        names = [order.name for order in self.orders.values()]
        return names[0] if len(names) == 1 else ""

    @property
    def told_message(self) -> str:
        """What is told of `message`: a group of several namespaces tells all of them the same."""
        return self.message if self.name else ""

    @property
    def namespaces(self) -> frozenset[str]:
        """Where it has requests."""
        return frozenset(order.namespace for order in self.orders.values())
