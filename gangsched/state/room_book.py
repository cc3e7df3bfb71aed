"""Room nominated to pods that do not run there yet, updated for snapshots (semantics F1, V10).

Invariant: each nomination has a unique key, chosen by the caller. The cost of an update depends on
what changed since the last snapshot; all nominations are read again if nodes were added or removed,
or their resources changed.
"""

from __future__ import annotations

from collections.abc import Collection

from msgspec import structs

from gangsched.model.nominated_room import ColumnLayout, NominatedRoom, Nomination
from gangsched.model.snapshot import Snapshot


class RoomBook:
    """Capacity reserved for nominated pods, by unique key."""

    def __init__(self) -> None:
        self._by_key: dict[str, Nomination] = {}
        self._by_node: dict[str, dict[str, Nomination]] = {}
        self._changed: dict[str, Nomination | None] = {}
        self._shown = NominatedRoom()
        self._layout: ColumnLayout | None = None
        self._taken_from: tuple[Snapshot, int, Snapshot] | None = None

    def get(self, key: str) -> Nomination | None:
        """The nomination with this key."""
        return self._by_key.get(key)

    def set(
        self,
        key: str,
        nomination: Nomination | None,
    ) -> None:
        """Add or replace a nomination; None removes it."""
        old = self._by_key.pop(key, None)
        if old is not None:
            on_node = self._by_node[old.node]
            del on_node[key]
            if not on_node:
                del self._by_node[old.node]

        # A new nomination may be on another node, so the old one is taken out in any case.
        if nomination is not None:
            self._by_key[key] = nomination
            on_node = self._by_node.setdefault(nomination.node, {})
            on_node[key] = nomination

        self._changed[key] = nomination

    def on(self, node: str) -> Collection[Nomination]:
        """Nominations to one node."""
        return self._by_node.get(node, {}).values()

    def current(self, layout: ColumnLayout) -> NominatedRoom:
        """All nominations; the same object until a nomination or the `layout` changes."""
        before = self._layout
        self._layout = layout

        is_same = before is not None and layout.nodes is before.nodes
        # rows are only ever added to resources
        if before is None or not is_same or layout.shape != before.shape:
            nothing = NominatedRoom()
            self._shown = nothing.changed(self._by_key, layout)
        elif self._changed:
            self._shown = self._shown.changed(self._changed, layout)

        self._changed = {}
        return self._shown

    def taken_from(
        self,
        snapshot: Snapshot,
        priority: int,
    ) -> Snapshot:
        """The snapshot without the room that is nominated to pods of at least that priority; the
        last result is cached.
        """
        levels = snapshot.nominated.levels
        respected = [level for level in levels if level.priority >= priority]
        if not respected:
            return snapshot

        # Several callers of one turn ask the same; a snapshot is the same object until something
        # changes.
        if self._taken_from is not None:
            asked_of, asked_priority, answer = self._taken_from
            if asked_of == snapshot and asked_priority == priority:
                return answer

        free = snapshot.free.copy()
        for level in respected:
            free -= level.asked - level.in_use

        answer = structs.replace(snapshot, free=free)
        self._taken_from = (snapshot, priority, answer)
        return answer
