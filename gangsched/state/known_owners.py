"""The owners that were read, by kind and uid (semantics O7, O8).

Invariant: what was read of a kind stays known when its objects can no longer be read.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias, TypeVar

from gangsched.model.owners import OwnerObject

OwnerType: TypeAlias = type[OwnerObject]
T = TypeVar("T", bound=OwnerObject)


class KnownOwners:
    """All owners that exist, as far as they were read."""

    def __init__(self) -> None:
        #: By uid, of each kind that was read.
        self._owners: dict[OwnerType, dict[str, OwnerObject]] = {}
        #: Whether objects of a kind can be read; kinds that were not read yet are missing.
        self._is_read: dict[OwnerType, bool] = {}

    def __len__(self) -> int:
        """Number of stored owners."""
        number = 0
        for owners in self._owners.values():
            number += len(owners)

        return number

    def is_read(self, kind: OwnerType) -> bool | None:
        """Whether objects of a kind can be read; None while that is not known."""
        return self._is_read.get(kind)

    def find(self, kind: type[T], namespace: str, uid: str) -> T | None:
        """An owner that was read, in the namespace of the objects that name it."""
        owner = self._of_kind(kind).get(uid)
        if not isinstance(owner, kind):
            return None

        # An owner reference is written by a user, who may name any uid.
        if owner.namespace != namespace:
            return None

        return owner

    def apply(self, owner: OwnerObject) -> None:
        """An owner exists or has changed."""
        owners = self._of_kind(type(owner))
        owners[owner.uid] = owner

    def drop(self, kind: OwnerType, uid: str) -> None:
        """An owner is gone."""
        owners = self._of_kind(kind)
        owners.pop(uid, None)

    def replace(
        self,
        kind: OwnerType,
        owners: Iterable[OwnerObject],
    ) -> None:
        """All owners of a kind."""
        by_uid = {}
        for owner in owners:
            by_uid[owner.uid] = owner

        self._owners[kind] = by_uid
        self._is_read[kind] = True

    def miss(self, kind: OwnerType) -> bool:
        """Owners of a kind cannot be read, or no longer; return whether that is new."""
        before = self.is_read(kind)
        self._is_read[kind] = False
        return before is not False

    def _of_kind(self, kind: OwnerType) -> dict[str, OwnerObject]:
        return self._owners.setdefault(kind, {})
