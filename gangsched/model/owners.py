"""Owners: controllers whose pods may be one gang, reduced to the numbers that a gang needs.

Invariant: values only. An owner is identified by its uid, so one that is created again under the
same name is another owner, with another gang.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec


class OwnerGangs(StrEnum):
    """Whose pods become gangs of their owners."""

    ASKED = "asked"  # those that ask for it, or whose namespace does
    ALL = "all"  # all but those that opt out
    OFF = "off"  # nobody's


class OwnerObject(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One controller of pods; each kind that is read has a class of its own."""

    uid: str
    namespace: str
    name: str
    #: Pods that it has at the same time now, which start together.
    minimum: int
    #: Pods that have succeeded, which `minimum` leaves out.
    succeeded: int = 0
    #: It creates each pod when the one before is ready.
    one_by_one: bool = False
    #: It has no pods until a user resumes it.
    suspended: bool = False
    #: Its annotations that declare values of a gang (I3), as sorted (key, value) pairs.
    gang_metadata: tuple[tuple[str, str], ...] = ()


class JobOwner(OwnerObject, frozen=True, gc=False, kw_only=True):
    """A Job of `batch`."""


class StatefulSetOwner(OwnerObject, frozen=True, gc=False, kw_only=True):
    """A StatefulSet of `apps`."""


OWNER_KINDS: Final[Mapping[str, type[OwnerObject]]] = {
    "Job": JobOwner,
    "StatefulSet": StatefulSetOwner,
}
"""The kinds that are read, by the name that pods have of them."""
OWNER_VERSIONS: Final[Mapping[str, str]] = {
    "Job": "batch/v1",
    "ReplicaSet": "apps/v1",
    "StatefulSet": "apps/v1",
}
"""The apiVersion of kinds on which Events are written."""
