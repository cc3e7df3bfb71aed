"""Which further labels tell the domains of a required level apart, for the verifier (semantics B2).

Invariant: it shares no code with the search (`core.topology`), and reads the labels of nodes alone.
"""

from __future__ import annotations

from gangsched.model.snapshot import NodeTable


class ToldApart:
    """Labels by the label of a level, for the last node table that was asked about."""

    def __init__(self) -> None:
        self._table: NodeTable | None = None
        self._labels: dict[str, tuple[str, ...]] = {}

    def by(self, key: str, table: NodeTable) -> tuple[str, ...]:
        """The coarser known levels without which domains of `key` that have the same name would be
        mixed up.
        """
        if self._table is not table:
            self._table = table
            self._labels = {}

        if key not in self._labels:
            found = _mixed_up(key, table)
            self._labels[key] = tuple(found)

        return self._labels[key]


def _mixed_up(key: str, table: NodeTable) -> list[str]:
    found: list[str] = []
    is_coarser = False
    for label in table.topology_keys:
        if label == key:
            is_coarser = True
        elif is_coarser and _cross(key, label, table):
            found.append(label)

    return found


def _cross(key: str, coarser: str, table: NodeTable) -> bool:
    """Whether values of each of the two labels are beside several values of the other."""
    pairs: set[tuple[str, str]] = set()
    for node in table.nodes:
        name = node.labels.get(key)
        around = node.labels.get(coarser)
        if name is not None and around is not None:
            pairs.add((name, around))

    names: set[str] = set()
    arounds: set[str] = set()
    for name, around in pairs:
        names.add(name)
        arounds.add(around)

    if len(pairs) == len(names):
        return False

    return len(pairs) > len(arounds)
