"""Room promised to pods that do not run there yet, updated for snapshots (semantics F1, V10).

Invariant: each promise has a unique name, chosen by the caller. The cost of an update depends on what changed since the
last snapshot; all promises are read again if nodes were added or removed, or their resources changed.
"""

from __future__ import annotations

from collections.abc import Collection

from gangsched.model.nominated_room import ColumnLayout, NominatedRoom, Nomination


class RoomBook:
    """Capacity nominated to pods, by unique name; `set` adds, replaces or removes one entry, `current` returns all."""

    def __init__(self) -> None:
        self._by_key: dict[str, Nomination] = {}
        self._by_node: dict[str, dict[str, Nomination]] = {}
        self._changed: dict[str, Nomination | None] = {}
        self._shown = NominatedRoom()
        self._layout: ColumnLayout | None = None

    def get(self, key: str) -> Nomination | None:
        """The promise with this name."""
        return self._by_key.get(key)

    def set(self, key: str, promise: Nomination | None) -> None:
        """Make or replace a promise; None removes it."""
        old = self._by_key.pop(key, None)
        if old is not None:
            del self._by_node[old.node][key]
            if not self._by_node[old.node]:
                del self._by_node[old.node]
        if promise is not None:
            self._by_key[key] = self._by_node.setdefault(promise.node, {})[key] = promise
        self._changed[key] = promise

    def on(self, node: str) -> Collection[Nomination]:
        """Promises on one node."""
        return self._by_node.get(node, {}).values()

    def current(self, layout: ColumnLayout) -> NominatedRoom:
        """All promises; the same object until a promise or the `layout` changes."""
        before, self._layout = self._layout, layout
        if before is None or layout.nodes is not before.nodes or layout.shape != before.shape:
            self._shown = NominatedRoom().changed(self._by_key, layout)  # rows are only ever added to resources
        elif self._changed:
            self._shown = self._shown.changed(self._changed, layout)
        self._changed = {}
        return self._shown
