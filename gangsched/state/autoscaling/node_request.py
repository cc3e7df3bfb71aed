"""What one group asks an autoscaler for by ProvisioningRequests: the record (semantics E10)."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
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
    wants: Hashable
    shapes: frozenset[Shape]
    #: What is to be created, by key; one for each namespace.
    orders: Mapping[str, RequestNodes]
    step: RequestStep = RequestStep.WAITING
    since_s: float
    until_s: float
    #: How long it waits before it makes the next request that ended.
    retry_s: float
    #: The last answer of the autoscaler, in its words.
    message: str = ""
    #: The uids of requests that are to be deleted: the watch shows them for a while.
    withdrawn: set[str] = field(default_factory=set)
    #: The nodes that were added for it.
    fenced: tuple[str, ...] = ()
