"""The domains of a level that could hold a demand, by totals, cached across plans.

Invariant: a cached result is about the current room of the domain's nodes; only domains with a
changed node are evaluated again. Results of searches are cached as well. Losing the cache costs
only work.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from gangsched.core.group_rules import rules_key
from gangsched.core.reserve import Ledger
from gangsched.core.search.demand import Demand
from gangsched.core.topology import TopologyLevel
from gangsched.model.snapshot import Bools, Ints

MAX_SHAPES = 64
"""Items of one group beyond which sums are not made, for each must be summed up by domain."""
UNITS_A_KIND = 6
"""Units of what a kind of pods costs in sums beside its nodes, and a gang in a row."""
MAX_KEPT = 2**20
"""Domains of which judgments are kept, 17 bytes each."""

Row = tuple[Ints, dict[int, int]]


@dataclass(slots=True)
class _Judgment:
    """By domain: how many pods it `holds`, if a search `refuted` it, and of which version of its
    nodes that is true.
    """

    holds: Ints
    refuted: Bools
    as_of: Ints
    version: int = 0
    """All is true of this version; only what `as_of` says where it is older."""


@dataclass(slots=True)
class Contents:
    """Free room of all nodes as of the last plan that evaluated domains; node `n` changed in
    version `changed[n]`.
    """

    free: Ints
    resources: Mapping[str, int]
    changed: Ints
    version: int = 1
    kept: dict[Hashable, _Judgment] = field(default_factory=dict)
    size: int = 0

    @classmethod
    def of(cls, ledger: Ledger, free: Ints) -> Contents:
        """The cache for the nodes of a ledger, updated to the ledger's initial free room."""
        # In the node table: new labels or nodes make a new table, and with it everything is judged
        # again.
        known: Contents | None = ledger.table.judged.get("contents")
        if known is None or known.resources != ledger.resources:
            known = cls(
                free.copy(),
                dict(ledger.resources),
                np.ones(len(ledger.table), dtype=np.int64),
            )
            ledger.table.judged["contents"] = known
        # Comparing 5,000 nodes takes microseconds, and no maker of snapshots has to count versions
        # (decision 0079).
        elif not np.array_equal(free, known.free):
            known.version += 1
            known.changed[np.any(free != known.free, axis=0)] = known.version
            known.free = free.copy()

        return known

    def judgment(self, key: Hashable, size: int) -> _Judgment:
        """The cache entry for `key`; its values may be outdated. The least recently used entries
        are dropped first.
        """
        # pop and insert keep the order of use.
        made = self.kept.pop(key, None)
        if made is None:
            zeros = np.zeros(size, dtype=np.int64)
            made = _Judgment(zeros, zeros.astype(np.bool_), np.full(size, -1, dtype=np.int64))
            self.size += size

        self.kept[key] = made
        while self.size > MAX_KEPT and len(self.kept) > 1:
            self.size -= self.kept.pop(next(iter(self.kept))).as_of.size

        return made


def judge(
    demand: Demand,
    level: TopologyLevel,
    items: Sequence[int] | None = None,
) -> tuple[Bools, Ints]:
    """For each domain, whether the minimum may fit, and how many of the needed pods totals allow.

    The minimum does not fit if totals allow fewer pods, or if a search refuted it (`note_refuted`).
    With `items`, given by index, only pods of these items must be in the domain; all others may be
    anywhere.
    """
    kept = tuple(range(len(demand.items)) if items is None else items)
    needed = sum(demand.needs)

    # Nothing is refuted then: every domain may be enough.
    if len(demand.items) > MAX_SHAPES:
        return np.ones(level.size, dtype=np.bool_), np.full(level.size, needed, dtype=np.int64)

    ledger = demand.ledger
    inside = level.codes >= 0

    found = _kept(demand, level, kept)
    if found is None:
        holds = sums(demand, level, kept)
        return holds >= needed, holds

    contents, known = found
    ledger.work.charge(20 + len(ledger.table) // 300)
    moved = np.zeros(level.size, dtype=np.bool_)
    touched = np.zeros(level.size, dtype=np.bool_)

    if known.version < contents.version:
        # Outside of every domain the code is -1, which would mark the last one.
        moved[level.codes[inside & (contents.changed > known.as_of[level.codes])]] = True

    if ledger.version:  # what this plan took and gave is not what the next one finds
        codes = level.codes[np.concatenate(ledger.touched_since(0))]
        touched[codes[codes >= 0]] = True

    again = moved | touched
    holds = known.holds.copy()

    if again.any():
        nodes = None
        if not again.all():
            nodes = np.flatnonzero(inside & again[level.codes])

        holds[again] = sums(demand, level, kept, nodes)[again]

        # Nodes that this plan touched have other room in the next one, so their domains are judged
        # again.
        lasting = moved & ~touched
        # A refutation was about the room before the change.
        known.holds[lasting], known.refuted[lasting], known.as_of[lasting] = (
            holds[lasting],
            False,
            contents.version,
        )

    if not touched.any():
        known.version = contents.version

    return (holds >= needed) & ~(known.refuted & ~again), holds


def is_hopeless(demand: Demand) -> bool:
    """Whether the whole cluster has too little room, by totals."""
    whole = TopologyLevel((), np.zeros(len(demand.ledger.table), dtype=np.int32), 1, ())
    return not judge(demand, whole)[0].all()


def note_refuted(demand: Demand, level: TopologyLevel, domain: int) -> None:
    """Record that a search refuted the minimum in a domain; ignored if its nodes changed since the
    plan began.
    """
    ledger = demand.ledger
    nodes = level.nodes(domain)

    found = _kept(demand, level, tuple(range(len(demand.items))))
    # Only on untouched nodes: what this plan reserved is not part of what is kept.
    if found is not None and np.array_equal(ledger.free[:, nodes], found[0].free[:, nodes]):
        found[1].refuted[domain] = True


def _kept(
    demand: Demand,
    level: TopologyLevel,
    kept: Sequence[int],
) -> tuple[Contents, _Judgment] | None:
    """Where the judgment is kept; None for demands of which none is."""
    ledger = demand.ledger
    key = _key(demand, level, kept)

    free = demand.ledger.begun_with
    if key is None or free is None:
        return None

    contents: Contents = ledger.recall(Contents, lambda: Contents.of(ledger, free), lasting=True)
    return contents, contents.judgment(key, level.size)


def _key(demand: Demand, level: TopologyLevel, kept: Sequence[int]) -> Hashable:
    """Equal for demands that are judged alike on equal room; None where more than what runs on the
    nodes matters.
    """
    group = demand.group
    ledger = demand.ledger
    scope = ledger.scope

    # Promises and scopes differ from plan to plan, and are not part of the key.
    is_more = bool(ledger.promises) or scope.accelerated is not None or scope.others is not None
    is_more = is_more or any(item.devices is not None for item in demand.items)
    if is_more or not level.size or demand.by_terms:
        return None

    items = ((item.gang, item.shape, len(item.pods), item.pins, item.home) for item in demand.items)
    closed = (rules_key(group, item.shape, ledger) for item in demand.items)
    sliced = demand.slices
    parts = None if sliced is None else (sliced.layers, sliced.pieces, demand.pieces, demand.wanted)

    return level.keys, kept, tuple(demand.needs), tuple(items), parts, tuple(closed)


def sums(
    demand: Demand,
    level: TopologyLevel,
    kept: Sequence[int],
    nodes: Ints | None = None,
) -> Ints:
    """By domain how many of the needed pods sums allow, for the domains of these nodes; None for
    all.
    """
    ledger = demand.ledger
    work = demand.ledger.work
    needed = sum(demand.needs)
    number = len(ledger.table) if nodes is None else nodes.size
    work.charge(20 + len(demand.items) * number // 60 + UNITS_A_KIND * len(kept))
    rooms = {
        i: level.sums(demand.room[i] if nodes is None else demand.room[i][nodes], nodes)
        for i in kept
    }
    needs = list(demand.needs)

    for i in (i for i in range(len(demand.items)) if i not in rooms):
        needs[demand.items[i].gang] = max(
            0,
            needs[demand.items[i].gang] - len(demand.items[i].pods),
        )

    total = np.zeros(level.size, dtype=np.int64)
    of_gangs: dict[int, list[int]] = {}

    for i in kept:
        of_gangs.setdefault(demand.items[i].gang, []).append(i)

    for gang, own in of_gangs.items():
        # An item cannot contribute more pods than it has, however much room there is.
        most = []
        for i in own:
            most.append(np.minimum(len(demand.items[i].pods), rooms[i]))

        total += np.minimum(sum(most[1:], most[0]), needs[gang])

    elsewhere = needed - sum(needs)
    holds: Ints = total + elsewhere

    for row, asked in (
        (demand.rows if nodes is None else demand.rows_on(nodes)) if len(kept) > 1 else ()
    ):
        work.charge(20 + 2 * len(kept) + number // 200 + UNITS_A_KIND * len(of_gangs))
        have = level.sums(row, nodes)
        cheapest = _cheapest(demand, asked, needs, of_gangs)

        # As many of the cheapest pods as the row has room for: no choice of members can do better.
        holds = np.minimum(holds, np.searchsorted(cheapest, have, "right") + elsewhere)

    return holds


def _cheapest(
    demand: Demand,
    asked: dict[int, int],
    needs: Sequence[int],
    of_gangs: Mapping[int, Sequence[int]],
) -> Ints:
    """The least that 1, 2, … of the needed pods take of a row, each gang with those that take
    least.
    """
    taken = [np.zeros(0, dtype=np.int64)]
    for gang, items in of_gangs.items():
        own = sorted((asked.get(i, 0), len(demand.items[i].pods)) for i in items)
        if needs[gang]:
            taken.append(np.repeat(*np.array(own).T)[: needs[gang]])

    found: Ints = np.cumsum(np.sort(np.concatenate(taken)))
    return found
