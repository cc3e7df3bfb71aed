"""A queue in which namespaces alternate, so that no tenant waits for the backlog of another.

Invariant: first in, first out within a namespace; round robin among the namespaces that need not wait. The queue
neither inspects items nor sleeps.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class FairQueue(Generic[T]):
    """Items by namespace."""

    def __init__(self) -> None:
        self._queues: OrderedDict[str, deque[T]] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._queues)

    def append(self, namespace: str, item: T) -> None:
        """Add an item at the end of its namespace's queue."""
        self._queues.setdefault(namespace, deque()).append(item)

    def pop(self, wait_s: Callable[[str], float]) -> T | None:
        """Next item of the next namespace that need not wait; None if all namespaces must wait."""
        # Each namespace is asked at most once per call, or this would spin while all have to wait.
        for _ in range(len(self._queues)):
            namespace, items = next(iter(self._queues.items()))
            if wait_s(namespace) <= 0:
                return self._pop_from(namespace, items)
            self._queues.move_to_end(namespace)
        return None

    def shortest(self, wait_s: Callable[[str], float]) -> float:
        """Shortest wait of any namespace, in seconds."""
        return min(map(wait_s, self._queues))

    def drop(self) -> T:
        """Remove the oldest item of the longest queue. Raises ValueError if all are empty."""
        # Whoever queued most loses first, so that a flood of one namespace drops no Event of another.
        namespace, items = max(self._queues.items(), key=lambda entry: len(entry[1]))
        return self._pop_from(namespace, items)

    def heads(self) -> list[T]:
        """The oldest item of every namespace."""
        return [items[0] for items in self._queues.values()]

    def _pop_from(self, namespace: str, items: deque[T]) -> T:
        item = items.popleft()
        if items:
            self._queues.move_to_end(namespace)
        else:
            del self._queues[namespace]
        return item
