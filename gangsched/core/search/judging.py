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
        judged = ledger.table.judged
        known: Contents | None = judged.get("contents")
        if known is None or known.resources != ledger.resources:
            changed = np.ones(len(ledger.table), dtype=np.int64)
            new = cls(free.copy(), dict(ledger.resources), changed)
            judged["contents"] = new
            return new

        # Comparing 5,000 nodes takes microseconds, and no maker of snapshots has to count versions
        # (decision 0079).
        if not np.array_equal(free, known.free):
            is_changed = np.any(free != known.free, axis=0)
            known.version += 1
            known.changed[is_changed] = known.version
            known.free = free.copy()

        return known

    def judgment(self, key: Hashable, size: int) -> _Judgment:
        """The cache entry for `key`; its values may be outdated. The least recently used entries
        are dropped first.
        """
        # pop and insert keep the order of use.
        judgment = self.kept.pop(key, None)
        if judgment is None:
            judgment = _Judgment(
                holds=np.zeros(size, dtype=np.int64),
                refuted=np.zeros(size, dtype=np.bool_),
                # Older than every version.
                as_of=np.full(size, -1, dtype=np.int64),
            )
            self.size += size

        self.kept[key] = judgment
        while self.size > MAX_KEPT and len(self.kept) > 1:
            oldest = next(iter(self.kept))
            dropped = self.kept.pop(oldest)
            self.size -= dropped.as_of.size

        return judgment


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
        may_fit = np.ones(level.size, dtype=np.bool_)
        return may_fit, np.full(level.size, needed, dtype=np.int64)

    cached = _kept(demand, level, kept)
    if cached is None:
        holds = sums(demand, level, kept)
        return holds >= needed, holds

    contents, known = cached
    ledger = demand.ledger
    ledger.work.charge(20 + len(ledger.table) // 300)

    changed = _changed(level, contents, known)
    touched = _touched(level, ledger)
    outdated = changed | touched
    holds = known.holds.copy()

    if outdated.any():
        nodes = None
        if not outdated.all():
            inside = level.codes >= 0
            nodes = np.flatnonzero(inside & outdated[level.codes])

        current = sums(demand, level, kept, nodes)
        holds[outdated] = current[outdated]

        # Nodes that this plan touched have other room in the next one, so their domains are judged
        # again.
        lasting = changed & ~touched
        known.holds[lasting] = holds[lasting]
        # A refutation was about the room before the change.
        known.refuted[lasting] = False
        known.as_of[lasting] = contents.version

    if not touched.any():
        known.version = contents.version

    is_refuted = known.refuted & ~outdated
    return (holds >= needed) & ~is_refuted, holds


def _changed(
    level: TopologyLevel,
    contents: Contents,
    known: _Judgment,
) -> Bools:
    """The domains with a node that changed since they were judged."""
    changed = np.zeros(level.size, dtype=np.bool_)
    if known.version < contents.version:
        # Outside of every domain the code is -1, which would mark the last one.
        inside = level.codes >= 0
        is_newer = contents.changed > known.as_of[level.codes]
        changed[level.codes[inside & is_newer]] = True

    return changed


def _touched(level: TopologyLevel, ledger: Ledger) -> Bools:
    """The domains with a node that this plan touched: what it took and gave is not what the next
    one finds.
    """
    touched = np.zeros(level.size, dtype=np.bool_)
    if ledger.version:
        nodes = np.concatenate(ledger.touched_since(0))
        codes = level.codes[nodes]
        touched[codes[codes >= 0]] = True

    return touched


def is_hopeless(demand: Demand) -> bool:
    """Whether the whole cluster has too little room, by totals."""
    one_domain = np.zeros(len(demand.ledger.table), dtype=np.int32)
    cluster = TopologyLevel((), one_domain, 1, ())
    may_fit, _ = judge(demand, cluster)
    return not may_fit[0]


def note_refuted(
    demand: Demand,
    level: TopologyLevel,
    domain: int,
) -> None:
    """Record that a search refuted the minimum in a domain; ignored if its nodes changed since the
    plan began.
    """
    ledger = demand.ledger
    all_items = tuple(range(len(demand.items)))
    cached = _kept(demand, level, all_items)
    if cached is None:
        return

    contents, judgment = cached
    nodes = level.nodes(domain)
    # Only on untouched nodes: what this plan reserved is not part of what is kept.
    if np.array_equal(ledger.free[:, nodes], contents.free[:, nodes]):
        judgment.refuted[domain] = True


def _kept(
    demand: Demand,
    level: TopologyLevel,
    kept: Sequence[int],
) -> tuple[Contents, _Judgment] | None:
    """Where the judgment is kept; None for demands of which none is."""
    ledger = demand.ledger
    free = ledger.begun_with
    key = _key(demand, level, kept)
    if key is None or free is None:
        return None

    contents: Contents = ledger.recall(Contents, lambda: Contents.of(ledger, free), lasting=True)
    return contents, contents.judgment(key, level.size)


def _key(
    demand: Demand,
    level: TopologyLevel,
    kept: Sequence[int],
) -> Hashable:
    """Equal for demands that are judged alike on equal room; None where more than what runs on the
    nodes matters.
    """
    if not level.size or demand.by_terms or _is_of_one_plan(demand):
        return None

    items = []
    closed = []
    for item in demand.items:
        items.append((item.gang, item.shape, len(item.pods), item.pins, item.home))
        closed.append(rules_key(item.shape, demand.attempt))

    parts = None
    if demand.slices is not None:
        sliced = demand.slices
        parts = (sliced.layers, sliced.pieces, demand.pieces, demand.wanted)

    return level.keys, kept, tuple(demand.needs), tuple(items), parts, tuple(closed)


def _is_of_one_plan(demand: Demand) -> bool:
    """Whether the demand depends on what differs from plan to plan and is not part of the key:
    promises, scopes and devices.
    """
    if demand.ledger.promises or demand.attempt.scope.is_limited:
        return True

    return any(item.devices is not None for item in demand.items)


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
    work = ledger.work
    items = demand.items
    number = len(ledger.table) if nodes is None else nodes.size
    work.charge(20 + len(items) * number // 60 + UNITS_A_KIND * len(kept))

    rooms = {}
    for i in kept:
        room = demand.room[i]
        if nodes is not None:
            room = room[nodes]

        rooms[i] = level.sums(room, nodes)

    # Pods of the other items may be anywhere: a domain need not hold them.
    needs = list(demand.needs)
    for i, item in enumerate(items):
        if i not in rooms:
            needs[item.gang] = max(0, needs[item.gang] - len(item.pods))

    of_gangs: dict[int, list[int]] = {}
    for i in kept:
        own = of_gangs.setdefault(items[i].gang, [])
        own.append(i)

    total = np.zeros(level.size, dtype=np.int64)
    for gang, own in of_gangs.items():
        of_gang = np.zeros(level.size, dtype=np.int64)
        for i in own:
            # An item cannot contribute more pods than it has, however much room there is.
            of_gang += np.minimum(len(items[i].pods), rooms[i])

        total += np.minimum(of_gang, needs[gang])

    elsewhere = sum(demand.needs) - sum(needs)
    holds: Ints = total + elsewhere
    if len(kept) <= 1:
        return holds

    rows = demand.rows if nodes is None else demand.rows_on(nodes)
    for row in rows:
        work.charge(20 + 2 * len(kept) + number // 200 + UNITS_A_KIND * len(of_gangs))
        free = level.sums(row.free, nodes)
        cheapest = _cheapest(demand, row.asked, needs, of_gangs)

        # As many of the cheapest pods as the row has room for: no choice of members can do better.
        most = np.searchsorted(cheapest, free, "right")
        holds = np.minimum(holds, most + elsewhere)

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
    amounts = [np.zeros(0, dtype=np.int64)]
    for gang, items in of_gangs.items():
        own = []
        for i in items:
            amount = asked.get(i, 0)
            own.append((amount, len(demand.items[i].pods)))

        if needs[gang]:
            of_item, pods = np.array(sorted(own)).T
            of_pods = np.repeat(of_item, pods)
            amounts.append(of_pods[: needs[gang]])

    in_order = np.sort(np.concatenate(amounts))
    least: Ints = np.cumsum(in_order)
    return least
