"""Topology: levels, their domains, and which of two levels is finer.

A level is a set of node labels; a domain is one combination of values of these labels. A node that
lacks one of the labels is in no domain of the level. Racks are often named alike in every zone:
where a label has the same value in several domains of a coarser known level, that level is part of
the domain as well. Terms of pods mean their label alone, as in kube-scheduler (`exactly`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, cmp_to_key
from typing import Final, NamedTuple

import numpy as np

from gangsched.model.snapshot import LABEL_COLUMNS_LIMIT, Bools, Codes, Ints, LabelColumn, NodeTable

_EXACT: Final = "="


@dataclass(frozen=True, eq=False)
class TopologyLevel:
    """The domains of a level that was asked for by `keys`: `codes[n]` is the domain of node `n`, -1
    for none. `labels` are those of the `columns`.
    """

    keys: tuple[str, ...]
    codes: Codes
    size: int
    columns: tuple[LabelColumn, ...]
    labels: tuple[str, ...] = ()

    @cached_property
    def _sorted(self) -> tuple[Ints, Ints]:
        """Nodes by domain, and where each domain begins."""
        order = np.argsort(self.codes, kind="stable")
        return order, np.searchsorted(self.codes[order], np.arange(self.size + 1))

    def nodes(self, domain: int) -> Ints:
        """Indices of the nodes in a domain, ascending."""
        order, starts = self._sorted
        found: Ints = order[starts[domain] : starts[domain + 1]]
        return found

    def mask(self, domain: int) -> Bools:
        """`mask[n]`: node `n` is in the domain."""
        return np.asarray(self.codes == domain)

    def sums(self, values: Ints, nodes: Ints | None = None) -> Ints:
        """`sums[domain]`: sum of `values[n]` over its nodes, exact below 2**53. With `nodes`,
        `values[i]` belongs to node `nodes[i]`.
        """
        codes = self.codes if nodes is None else self.codes[nodes]
        inside = codes >= 0
        if not inside.all():
            codes = codes[inside]
            values = values[inside]

        return np.bincount(codes, weights=values, minlength=self.size).astype(np.int64)

    def of(self, nodes: Ints) -> Ints:
        """Domains of these nodes, ascending."""
        found: Ints = np.unique(self.codes[nodes]).astype(np.int64)
        return found[found >= 0]

    def inside(self, coarser: TopologyLevel) -> Ints:
        """For each domain, the domain of `coarser` that contains it."""
        order, starts = self._sorted
        # One node decides, since levels are built with the labels of the coarser one among their
        # keys.
        found: Ints = coarser.codes[order[starts[:-1]]].astype(np.int64)
        return found

    def name(self, domain: int) -> str:
        """Name of a domain: `zone=a, rack=r1`."""
        node = int(self.nodes(domain)[0])
        named = []
        for label, column in zip(self.labels, self.columns, strict=True):
            code = column.codes[node]
            if code >= 0:
                named.append(f"{label}={column.values[code]}")

        return ", ".join(named)

    def value(self, domain: int) -> str:
        """Name of a domain without its labels: `r1`, of several labels `a/r1`."""
        node = int(self.nodes(domain)[0])
        values = []
        for column in self.columns:
            code = column.codes[node]
            if code >= 0:
                values.append(column.values[code])

        return "/".join(values)

    def common(self, nodes: Ints) -> int | None:
        """The domain that contains most of these nodes; of several, the first by name. None if no
        node is in one.
        """
        there = self.codes[nodes]
        counts = np.bincount(there[there >= 0], minlength=self.size)
        if not counts.any():
            return None

        return min(np.flatnonzero(counts == counts.max()).tolist(), key=self.name)


def exactly(key: str, table: NodeTable) -> str:
    """A key for `level` of which one value is one domain, whatever is known of coarser levels."""
    # No label begins like that; elsewhere the label itself will do, and is what is shown.
    is_alone = told_apart(key, table.topology_keys, table) == (key,)
    return key if is_alone else f"{_EXACT}{key}"


def shown_label(key: str) -> str:
    """The label of a key for `level`."""
    return key.removeprefix(_EXACT)


def level(keys: Iterable[str], table: NodeTable) -> TopologyLevel:
    """The level of these node labels, cached with the table."""
    wanted = tuple(dict.fromkeys(keys))
    known = table.levels.get(wanted)
    if isinstance(known, TopologyLevel):
        return known

    codes = np.zeros(len(table), dtype=np.int64)
    lacking = np.zeros(len(table), dtype=np.bool_)

    stated = tuple(dict.fromkeys(map(shown_label, wanted)))
    labels = tuple(dict.fromkeys((*stated, *_telling_apart(wanted, table))))
    columns = tuple(table.label_column(key) for key in labels)
    for label, column in zip(labels, columns, strict=True):
        # Mixed radix: each combination of values gets its own number, which np.unique then makes
        # dense. A coarser level only tells domains apart: without it a node is in one, too.
        codes = codes * (len(column.values) + 1) + column.codes + 1
        if label in stated:
            lacking |= column.codes < 0

    _, dense = np.unique(codes[~lacking], return_inverse=True)
    domains = np.full(len(table), -1, dtype=np.int32)
    domains[~lacking] = dense.reshape(-1)

    if len(table.levels) >= LABEL_COLUMNS_LIMIT:
        table.levels.clear()  # keys may be any text of a user

    size = int(domains.max(initial=-1)) + 1
    made = TopologyLevel(wanted, domains, size, columns, labels)
    table.levels[wanted] = made
    return made


def _telling_apart(keys: Iterable[str], table: NodeTable) -> list[str]:
    """The coarser labels without which domains of these keys would be mixed up."""
    found: list[str] = []
    for key in keys:
        found += told_apart(key, table.topology_keys, table)[1:]

    return found


def is_finer(one: str, other: str, table: NodeTable) -> bool:
    """Whether each domain of `one` is inside one domain of `other`, and some domain of `other`
    contains at least two domains of `one`.
    """
    pairs, domains, others = _overlaps(one, other, table)
    return domains == pairs > others


def crosses(one: str, other: str, table: NodeTable) -> bool:
    """Whether domains of each of the two labels have nodes in several domains of the other."""
    pairs, domains, others = _overlaps(one, other, table)
    return pairs > domains and pairs > others


def _overlaps(one: str, other: str, table: NodeTable) -> tuple[int, int, int]:
    """Number of pairs of domains with a node in common, and of the domains of each label, among
    nodes with both.
    """
    fine = table.label_column(shown_label(one))
    coarse = table.label_column(shown_label(other))
    both = (fine.codes >= 0) & (coarse.codes >= 0)

    domains = fine.codes[both].astype(np.int64)
    others = coarse.codes[both]
    pairs = np.unique(domains * (len(coarse.values) + 1) + others)

    return pairs.size, np.unique(domains).size, np.unique(others).size


def lies_within(one: str, other: str, table: NodeTable) -> bool:
    """Whether the nodes of each domain of `one` are either all in the same domain of `other`, or
    all in none.
    """
    fine = level((one,), table)
    coarse = level((other,), table)
    inside = fine.codes >= 0
    pairs = fine.codes[inside].astype(np.int64) * (coarse.size + 1) + coarse.codes[inside]

    return bool(np.unique(pairs).size == np.unique(fine.codes[inside]).size)


def by_refinement(keys: Sequence[str], table: NodeTable) -> tuple[str, ...]:
    """The labels that at least one node has, finer levels first; unrelated or equal levels stay in
    the given order.
    """
    held = []
    for key in dict.fromkeys(keys):
        if table.label_column(shown_label(key)).values:
            held.append(key)

    def compare(one: str, other: str) -> int:
        if is_finer(one, other, table):
            return -1
        if is_finer(other, one, table):
            return 1

        return held.index(one) - held.index(other)

    return tuple(sorted(held, key=cmp_to_key(compare)))


def climb(key: str, known: Sequence[str], table: NodeTable) -> tuple[str, ...]:
    """`key` and the coarser labels among `known`, finest first; empty if no node has the label."""
    memo = ("climb", key, *known)
    found: tuple[str, ...] | None = table.levels.get(memo)
    if found is None:
        ordered = by_refinement((key, *known), table)
        crossed = _crossed(key, known, table)
        coarser = (
            each for each in ordered if each == key or each in crossed or is_finer(key, each, table)
        )
        found = table.levels[memo] = tuple(coarser) if key in ordered else ()

    return found


def told_apart(key: str, known: Sequence[str], table: NodeTable) -> tuple[str, ...]:
    """`key`, with the coarser labels among `known` without which its domains would be mixed up.

    Racks are often named alike in every zone: a rack is then its name together with its zone.
    """
    memo = ("told apart", key, *known)
    found: tuple[str, ...] | None = table.levels.get(memo)
    if found is None:
        found = table.levels[memo] = (key, *_crossed(key, known, table))

    return found


def _crossed(key: str, known: Sequence[str], table: NodeTable) -> tuple[str, ...]:
    """The labels listed in `known` after `key`, so coarser, of which one of its values is in
    several domains.
    """
    if key not in known:
        return ()  # nothing says which of the two would be coarser

    later = known[known.index(key) + 1 :]
    result = []
    for each in later:
        if crosses(key, each, table):
            result.append(each)

    return tuple(result)


class LevelSummary(NamedTuple):
    """A level: its number of domains, the number of nodes without its label, and the coarser levels
    that contain it.
    """

    label: str
    domains: int
    outside: int
    within: tuple[str, ...]


def level_summaries(keys: Sequence[str], table: NodeTable) -> list[LevelSummary]:
    """The levels of the labels in `keys` that any node has, finest first."""
    found = []
    for key in by_refinement(keys, table):
        inside = level(told_apart(key, keys, table), table)
        within = tuple(other for other in climb(key, keys, table) if other != key)
        found.append(LevelSummary(key, inside.size, int((inside.codes < 0).sum()), within))

    return found
