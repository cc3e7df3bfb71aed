"""ProvisioningRequests: what gangsched asks autoscalers for, and what they answer (semantics E10).

Invariant: values only. Times ending in `_s` are epoch seconds.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

import msgspec

from gangsched.model.objects import InNamespace


class ProvisioningState(StrEnum):
    """What an autoscaler says of a request, from its conditions."""

    NEW = "new"
    ACCEPTED = "accepted"
    NOT_YET = "not yet"  # it has no capacity now, and tries again
    PROVISIONED = "provisioned"
    FAILED = "failed"
    EXPIRED = "expired"  # the capacity was not used in time
    REVOKED = "revoked"


ENDED = frozenset({ProvisioningState.FAILED, ProvisioningState.EXPIRED, ProvisioningState.REVOKED})
"""States in which nothing will happen any more."""


class ProvisioningRequest(InNamespace, frozen=True, gc=False, kw_only=True):
    """A ProvisioningRequest of `autoscaling.x-k8s.io`; `requested_by` is the scheduler that made
    it, "" if that is not known.
    """

    uid: str = ""
    owner_uid: str = ""
    owner_kind: str = ""
    owner_name: str = ""
    requested_by: str = ""
    creation_s: int = 0
    #: When an autoscaler accepted it, 0 if none has.
    accepted_s: int = 0
    #: The detail ResizeRequestName of its class.
    resize_request: str = ""
    deleting: bool = False
    #: Names of the PodTemplates of its pod sets.
    templates: tuple[str, ...] = ()
    state: ProvisioningState = ProvisioningState.NEW
    #: The autoscaler's words about its state.
    message: str = ""


class NodeFence(NamedTuple):
    """Nodes that an autoscaler added for `group`: groups of this priority or lower do not start
    there.
    """

    group: str
    priority: int
    nodes: tuple[str, ...]


class RequestedPods(msgspec.Struct, frozen=True, gc=False):
    """So many pods like this one are asked for."""

    uid: str
    name: str
    count: int
