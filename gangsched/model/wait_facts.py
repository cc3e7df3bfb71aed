"""Facts about waits that no plan can end: for claims, for the API server, for an administrator
(semantics E5).

Invariant: as in `model.verdict_facts`. None of them is a reason to add nodes.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec


class UnboundClaim(msgspec.Struct, frozen=True, gc=False):
    """A PersistentVolumeClaim without its volume, or a ResourceClaim without its `devices`;
    `storage_class` is "" if it has none.
    """

    name: str
    storage_class: str = ""
    devices: bool = False


class AwaitsClaims(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A pod with a `node` waits for these claims since epoch second `since_s`; for those of pods
    that start with it if `claims` is empty.
    """

    claims: tuple[UnboundClaim, ...]
    node: str
    since_s: int


class GangAwaitsClaims(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """So many `pods` of a gang wait for these claims since epoch second `since_s`; for those of
    gangs that start with it if `claims` is empty.
    """

    gang: str
    claims: tuple[UnboundClaim, ...]
    pods: int
    since_s: int


class GangAwaitsBinds(msgspec.Struct, frozen=True, gc=False):
    """So many binds of a gang are sent and not answered."""

    gang: str
    binds: int


class SchedulingPaused(msgspec.Struct, frozen=True, gc=False):
    """An administrator paused scheduling, and gave this reason."""

    reason: str


WaitFact: TypeAlias = AwaitsClaims | GangAwaitsClaims | GangAwaitsBinds | SchedulingPaused
