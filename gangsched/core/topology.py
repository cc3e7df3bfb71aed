"""Topology: levels, their domains, and which of two levels is finer.

A level is a set of node labels; a domain is one combination of values of these labels. A node that
lacks one of the labels is in no domain of the level. Racks are often named alike in every zone:
where a label has the same value in several domains of a coarser known level, that level is part of
the domain as well. Terms of pods mean their label alone, as in kube-scheduler (`exactly`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
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
        in_order = self.codes[order]
        domains = np.arange(self.size + 1)
        starts = np.searchsorted(in_order, domains)

        return order, starts

    def nodes(self, domain: int) -> Ints:
        """Indices of the nodes in a domain, ascending."""
        order, starts = self._sorted
        begin = starts[domain]
        end = starts[domain + 1]

        nodes: Ints = order[begin:end]
        return nodes

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
        codes = self.codes[nodes].astype(np.int64)
        domains: Ints = np.unique(codes)

        return domains[domains >= 0]

    def inside(self, coarser: TopologyLevel) -> Ints:
        """For each domain, the domain of `coarser` that contains it."""
        order, starts = self._sorted
        # One node decides, since levels are built with the labels of the coarser one among their
        # keys.
        first_nodes = order[starts[:-1]]
        outer: Ints = coarser.codes[first_nodes].astype(np.int64)

        return outer

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
        codes = self.codes[nodes]
        inside = codes[codes >= 0]
        counts = np.bincount(inside, minlength=self.size)
        if not counts.any():
            return None

        fullest = np.flatnonzero(counts == counts.max())
        return min(fullest.tolist(), key=self.name)


def exactly(key: str, table: NodeTable) -> str:
    """A key for `level` of which one value is one domain, whatever is known of coarser levels."""
    # No label begins like that; elsewhere the label itself will do, and is what is shown.
    labels = told_apart(key, table.topology_keys, table)
    if labels == (key,):
        return key

    return f"{_EXACT}{key}"


def shown_label(key: str) -> str:
    """The label of a key for `level`."""
    return key.removeprefix(_EXACT)


def level(keys: Iterable[str], table: NodeTable) -> TopologyLevel:
    """The level of these node labels, cached with the table."""
    wanted = tuple(dict.fromkeys(keys))
    known = table.levels.get(wanted)
    if isinstance(known, TopologyLevel):
        return known

    stated = tuple(dict.fromkeys(map(shown_label, wanted)))
    coarser = _telling_apart(wanted, table)
    labels = tuple(dict.fromkeys((*stated, *coarser)))
    columns = tuple(table.label_column(label) for label in labels)

    codes = np.zeros(len(table), dtype=np.int64)
    lacking = np.zeros(len(table), dtype=np.bool_)

    for label, column in zip(labels, columns, strict=True):
        # Mixed radix: each combination of values gets its own number, which np.unique then makes
        # dense.
        digits = len(column.values) + 1
        codes = codes * digits + column.codes + 1

        # A coarser level only tells domains apart: without it a node is in one, too.
        if label in stated:
            lacking |= column.codes < 0

    inside = ~lacking
    _, dense = np.unique(codes[inside], return_inverse=True)
    domains = np.full(len(table), -1, dtype=np.int32)
    domains[inside] = dense.reshape(-1)
    size = int(domains.max(initial=-1)) + 1

    if len(table.levels) >= LABEL_COLUMNS_LIMIT:
        table.levels.clear()  # keys may be any text of a user

    new = TopologyLevel(wanted, domains, size, columns, labels)
    table.levels[wanted] = new
    return new


def _telling_apart(keys: Iterable[str], table: NodeTable) -> list[str]:
    """The coarser labels without which domains of these keys would be mixed up."""
    labels: list[str] = []
    for key in keys:
        _, *coarser = told_apart(key, table.topology_keys, table)
        labels += coarser

    return labels


def is_finer(
    one: str,
    other: str,
    table: NodeTable,
) -> bool:
    """Whether each domain of `one` is inside one domain of `other`, and some domain of `other`
    contains at least two domains of `one`.
    """
    overlaps = _overlaps(one, other, table)
    # As many pairs as domains: none of `one` is in two of `other`.
    return overlaps.domains == overlaps.pairs > overlaps.others


def crosses(
    one: str,
    other: str,
    table: NodeTable,
) -> bool:
    """Whether domains of each of the two labels have nodes in several domains of the other."""
    overlaps = _overlaps(one, other, table)
    in_several = overlaps.pairs > overlaps.domains
    return in_several and overlaps.pairs > overlaps.others


class _Overlaps(NamedTuple):
    """Numbers of domains: `pairs` of domains of two labels that have a node in common, and the
    domains of each label.
    """

    pairs: int
    domains: int
    others: int


def _overlaps(
    one: str,
    other: str,
    table: NodeTable,
) -> _Overlaps:
    """How the domains of two labels overlap, among the nodes that have both."""
    fine = table.label_column(shown_label(one))
    coarse = table.label_column(shown_label(other))
    both = (fine.codes >= 0) & (coarse.codes >= 0)

    domains = fine.codes[both].astype(np.int64)
    others = coarse.codes[both]
    # One number for each pair of values.
    pairs = domains * (len(coarse.values) + 1) + others

    return _Overlaps(
        pairs=np.unique(pairs).size,
        domains=np.unique(domains).size,
        others=np.unique(others).size,
    )


def lies_within(
    one: str,
    other: str,
    table: NodeTable,
) -> bool:
    """Whether the nodes of each domain of `one` are either all in the same domain of `other`, or
    all in none.
    """
    fine = level((one,), table)
    coarse = level((other,), table)
    inside = fine.codes >= 0

    domains = fine.codes[inside].astype(np.int64)
    others = coarse.codes[inside]
    # One number for each pair of domains; -1, no domain, counts as one.
    pairs = domains * (coarse.size + 1) + others

    return bool(np.unique(pairs).size == np.unique(domains).size)


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


def climb(
    key: str,
    known: Sequence[str],
    table: NodeTable,
) -> tuple[str, ...]:
    """`key` and the coarser labels among `known`, finest first; empty if no node has the label."""
    return _once(_climb, key, known, table)


def _climb(
    key: str,
    known: Sequence[str],
    table: NodeTable,
) -> tuple[str, ...]:
    ordered = by_refinement((key, *known), table)
    if key not in ordered:
        return ()

    crossed = _crossed(key, known, table)
    labels = []
    for label in ordered:
        if label == key or label in crossed or is_finer(key, label, table):
            labels.append(label)

    return tuple(labels)


def told_apart(
    key: str,
    known: Sequence[str],
    table: NodeTable,
) -> tuple[str, ...]:
    """`key`, with the coarser labels among `known` without which its domains would be mixed up.

    Racks are often named alike in every zone: a rack is then its name together with its zone.
    """
    return _once(_told_apart, key, known, table)


def _told_apart(
    key: str,
    known: Sequence[str],
    table: NodeTable,
) -> tuple[str, ...]:
    return key, *_crossed(key, known, table)


def _once(
    find: Callable[[str, Sequence[str], NodeTable], tuple[str, ...]],
    key: str,
    known: Sequence[str],
    table: NodeTable,
) -> tuple[str, ...]:
    """What `find` returns for these labels, found once for a table."""
    memo = (find.__name__, key, *known)
    labels: tuple[str, ...] | None = table.levels.get(memo)
    if labels is None:
        labels = find(key, known, table)
        table.levels[memo] = labels

    return labels


def _crossed(
    key: str,
    known: Sequence[str],
    table: NodeTable,
) -> tuple[str, ...]:
    """The labels listed in `known` after `key`, so coarser, of which one of its values is in
    several domains. Not those whose domains have one value each, which are the finer ones then.
    """
    if key not in known:
        return ()  # nothing says which of the two would be coarser

    later = known[known.index(key) + 1 :]
    crossed = []
    for label in later:
        if crosses(key, label, table):
            crossed.append(label)

    return tuple(crossed)


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
    summaries = []
    for key in by_refinement(keys, table):
        labels = told_apart(key, keys, table)
        domains = level(labels, table)
        outside = int((domains.codes < 0).sum())
        within = tuple(label for label in climb(key, keys, table) if label != key)

        summary = LevelSummary(key, domains.size, outside, within)
        summaries.append(summary)

    return summaries
