"""A large mapping that changes little: what changed lies over what was there.

Invariant: a `Layers` never changes. The next one shares its base until the changes are many, so
that one change of a hundred thousand entries copies none of the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")

FEW = 64
"""Changes over any base."""
BASE_A_CHANGE = 16
"""Entries of the base to each change; with more changes there is a new base."""


class Layers(Mapping[K, V], Generic[K, V]):
    """The base with the changes over it, of which None is an entry that is gone."""

    __slots__ = ("_base", "_changes", "_size")

    def __init__(
        self,
        base: Mapping[K, V] | None = None,
        changes: Mapping[K, V | None] | None = None,
    ) -> None:
        self._base: Mapping[K, V] = base or {}
        self._changes: Mapping[K, V | None] = changes or {}
        self._size = len(self._base)
        for key, value in self._changes.items():
            if key in self._base:
                self._size -= 1
            if value is not None:
                self._size += 1

    def __getitem__(self, key: K) -> V:
        value: V | None = self.get(key)
        if value is None:
            raise KeyError(key)

        return value

    def get(self, key: K, default: Any = None) -> Any:
        """The entry of a key."""
        layer = self._changes if key in self._changes else self._base
        value = layer.get(key)
        return default if value is None else value

    def __contains__(self, key: object) -> bool:
        if key in self._changes:
            return self._changes[key] is not None  # type: ignore[index]

        return key in self._base

    def __iter__(self) -> Iterator[K]:
        for key in self._base:
            if key not in self._changes:
                yield key

        for key, value in self._changes.items():
            if value is not None:
                yield key

    def __len__(self) -> int:
        return self._size

    def changed(self, changes: Iterable[tuple[K, V | None]]) -> Layers[K, V]:
        """The mapping with these changes, too; None takes an entry away."""
        together = dict(self._changes)
        together.update(changes)
        most = max(FEW, len(self._base) // BASE_A_CHANGE)
        if len(together) <= most:
            return Layers(self._base, together)

        base = dict(self._base)
        for key, value in together.items():
            if value is None:
                base.pop(key, None)
            else:
                base[key] = value

        return Layers(base)
