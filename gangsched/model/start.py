"""One start of a gang, as the status of its PodGroup remembers it (semantics I6)."""

from __future__ import annotations

import msgspec


class GoneMembers(msgspec.Struct, frozen=True):
    """Members of a start whose pods no longer exist, by how they ended; `deleted` ones left before
    they ended and were not replaced.
    """

    succeeded: int = 0
    failed: int = 0
    deleted: int = 0


class StoredStart(msgspec.Struct, frozen=True):
    """A start: its number, the minimum of its Permit, the uids of the controllers that had members
    in it, and the members that are gone.
    """

    epoch: int = 0
    min_member: int = 0
    controllers: tuple[str, ...] = ()
    gone: GoneMembers = GoneMembers()
    #: All members that had succeeded or failed when the status was written.
    succeeded: int = 0
    failed: int = 0
