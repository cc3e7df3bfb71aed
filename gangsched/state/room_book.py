"""Room nominated to pods that do not run there yet, updated for snapshots (semantics F1, V10).

Invariant: each nomination has a unique key, chosen by the caller. The cost of an update depends on
what changed since the last snapshot; all nominations are read again if nodes were added or removed,
or their resources changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Set

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

        #: By key, those whose room was there until somebody of higher priority took it.
        self._overtaken: set[str] = set()
        #: By key, those whose pods have room since, until the nomination is seen to end.
        self._used_up: set[str] = set()

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

        before = old[:2] if old is not None else None
        now = nomination[:2] if nomination is not None else None
        if now != before:
            self._overtaken.discard(key)
            self._used_up.discard(key)

        # A new nomination may be on another node, so the old one is taken out in any case.
        if nomination is not None:
            self._by_key[key] = nomination
            on_node = self._by_node.setdefault(nomination.node, {})
            on_node[key] = nomination

        self._changed[key] = nomination

    def on(self, node: str) -> Collection[Nomination]:
        """Nominations to one node."""
        return self._by_node.get(node, {}).values()

    def use_up(self, key: str) -> None:
        """A pod was placed that uses up this nomination."""
        if key in self._by_key:
            self._used_up.add(key)

    def forget_used_up(self) -> None:
        """Keep all nominations that there are."""
        self._used_up.clear()

    def kept_on(self, node: str) -> list[Nomination]:
        """Nominations to one node that are kept from pods which were placed there already: not
        those whose room was overtaken. Plans keep these as well, from all whom they place.
        """
        # Asked of each bind, right before it is sent.
        if node not in self._by_node:
            return []

        kept = []
        for key, nomination in self._not_used_up(node).items():
            if key not in self._overtaken:
                kept.append(nomination)

        return kept

    def _not_used_up(self, node: str) -> Mapping[str, Nomination]:
        on_node = self._by_node.get(node, {})
        if self._used_up.isdisjoint(on_node):
            return on_node

        return {key: on_node[key] for key in on_node.keys() - self._used_up}

    def used(
        self,
        node: str,
        before: Mapping[str, int],
        after: Mapping[str, int],
        priority: int,
    ) -> None:
        """A pod of this priority came to a node or left it, whose free amounts were `before` and
        are `after`.
        """
        promised = self._not_used_up(node)
        lacking = self._lacking(promised, after)
        self._overtaken -= promised.keys() - lacking
        if not lacking:
            return

        lacked = self._lacking(promised, before)
        for key in lacking - lacked:
            if priority > promised[key].pod.priority:
                self._overtaken.add(key)

    def _lacking(
        self,
        on_node: Mapping[str, Nomination],
        free: Mapping[str, int],
    ) -> Set[str]:
        """Keys of the nominations to one node with these free amounts that lack room, beside all
        of their priority or a higher one.
        """
        by_priority: dict[int, list[str]] = {}
        for key, nomination in on_node.items():
            of_priority = by_priority.setdefault(nomination.pod.priority, [])
            of_priority.append(key)

        lacking = set()
        promised: Counter[str] = Counter()
        for priority in sorted(by_priority, reverse=True):
            keys = by_priority[priority]
            for key in keys:
                nomination = on_node[key]
                promised.update(dict(nomination.pod.shape.requests))
                promised.subtract(dict(nomination.freed))

            for key in keys:
                asked = dict(on_node[key].pod.shape.requests)
                if any(free.get(name, 0) < promised[name] for name in asked):
                    lacking.add(key)

        return lacking

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
