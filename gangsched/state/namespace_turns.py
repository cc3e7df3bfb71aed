"""Work that is done a bounded amount at a time, one namespace after the other.

Invariant: no namespace waits for more than one key of each other namespace, however many keys these
have. A key waits once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator


class NamespaceTurns:
    """Keys of namespaces; within a namespace the first one added comes first."""

    def __init__(self) -> None:
        #: By namespace; both in the order of their turns.
        self._keys: dict[str, dict[str, None]] = {}
        self._number = 0

    def __len__(self) -> int:
        return self._number

    def __iter__(self) -> Iterator[str]:
        """The keys, in no order of turns."""
        for of_namespace in self._keys.values():
            yield from of_namespace

    def has(self, namespace: str, key: str) -> bool:
        """Whether the key waits."""
        return key in self._keys.get(namespace, ())

    def add(self, namespace: str, key: str) -> None:
        """Let the key wait for its turn, if it does not yet."""
        of_namespace = self._keys.setdefault(namespace, {})
        if key not in of_namespace:
            of_namespace[key] = None
            self._number += 1

    def add_first(self, namespace: str, key: str) -> None:
        """Let the key wait before the others of its namespace, whose turn does not change."""
        self.discard(namespace, key)
        self._keys[namespace] = {key: None, **self._keys.get(namespace, {})}
        self._number += 1

    def add_all(self, namespace: str, keys: Iterable[str]) -> None:
        """Let keys of one namespace wait for their turns."""
        for key in keys:
            self.add(namespace, key)

    def discard(self, namespace: str, key: str) -> None:
        """Let the key wait no longer, if it does."""
        of_namespace = self._keys.get(namespace, {})
        if key not in of_namespace:
            return

        del of_namespace[key]
        self._number -= 1
        if not of_namespace:
            del self._keys[namespace]

    def first(self) -> str | None:
        """The key whose turn is next; None if none waits."""
        for of_namespace in self._keys.values():
            return next(iter(of_namespace))

        return None

    def take(self, most: int = 1) -> list[str]:
        """Remove and return the keys whose turns are next, at most so many."""
        taken: list[str] = []
        while self._keys and len(taken) < most:
            namespace = next(iter(self._keys))
            of_namespace = self._keys.pop(namespace)
            key = next(iter(of_namespace))

            del of_namespace[key]
            self._number -= 1
            if of_namespace:  # after the other namespaces
                self._keys[namespace] = of_namespace

            taken.append(key)

        return taken
