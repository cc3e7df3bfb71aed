"""Domains: in which part of the cluster a group is tried, and in which order (L4, L5, L9, L10).

Invariant: what a gang requires holds for every scope that its group is tried in: one domain of each required level, and
one GPU product where that is required. Every domain is judged, by sums and then by an exact packing; none is skipped
for lack of tries. What is only preferred is tried first and given up as soon as it would leave a member out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from gangsched.core.preferences import node_penalty
from gangsched.core.reserve import Ledger
from gangsched.core.scope import EVERYWHERE, Scope
from gangsched.core.search.demand import Demand
from gangsched.core.search.facts import packed
from gangsched.core.topology import TopologyLevel, level
from gangsched.model.gang import Gang, Group
from gangsched.model.gpu_policy import PRODUCT_LABEL
from gangsched.model.snapshot import Bools, Ints, NodeTable


@dataclass(frozen=True, eq=False)
class Domains:
    """The domains of `level`; pods without an accelerator are kept in the domain of `outer`, None for anywhere."""

    level: TopologyLevel
    outer: TopologyLevel | None

    @classmethod
    def required(cls, group: Group, table: NodeTable) -> Domains | None:
        """The domains one of which must hold the group; None if nothing is required."""
        topology, must = required_keys(group)
        return cls(level(must, table), level(topology, table) if topology else None) if must else None

    @cached_property
    def outer_of(self) -> Ints:
        """By domain the domain of `outer` that it lies in."""
        assert self.outer is not None
        first = np.zeros(self.level.size, dtype=np.int64)
        inside = np.flatnonzero(self.level.codes >= 0)[::-1]
        first[self.level.codes[inside]] = inside
        found: Ints = self.outer.codes[first].astype(np.int64)
        return found

    def scope(self, domain: int) -> Scope:
        """The nodes of one domain."""
        nodes = self.level.mask(domain)
        if not self.level.size:
            text = f"node(s) lack the label {' or '.join(self.level.keys)}"
            return Scope(nodes, nodes if self.outer is not None else None, text)
        name = self.level.name(domain)
        others = None
        if self.outer is not None:
            others = nodes if self.outer is self.level else self.outer.mask(int(self.outer_of[domain]))
        return Scope(nodes, others, f"node(s) are outside {name}", name=name)

    def judge(self, demand: Demand) -> tuple[Bools, Ints]:
        """By domain whether sums leave room for the minimum, and for how many of the needed pods."""
        if self.outer is self.level:
            return demand.judge(self.level)
        kept = [i for i, item in enumerate(demand.items) if demand.ledger.accelerated(item.shape)]
        enough, holds = demand.judge(self.level, kept)
        if self.outer is not None:
            of_all, held = demand.judge(self.outer)
            enough, holds = enough & of_all[self.outer_of], np.minimum(holds, held[self.outer_of])
        return enough, holds

    def order(self, domains: Ints, demand: Demand, *, first: Bools | None = None) -> list[int]:
        """Those with members first, then the `first`, then by soft preferences, the least room, and name (L10)."""
        ledger, size = demand.ledger, self.level.size
        room, penalty = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64)
        for i, item in enumerate(demand.items if len(domains) > 1 else ()):
            if ledger.accelerated(item.shape) or self.outer is self.level:
                room += self.level.sums(demand.room[i])
                penalty += self.level.sums(demand.room[i] * node_penalty(item.shape, ledger.table))
        there = self.level.codes[member_nodes(demand.group, ledger.table)]
        members = np.bincount(there[there >= 0], minlength=size)
        later = np.zeros(size, dtype=np.bool_) if first is None else ~first
        mean = penalty / np.maximum(room, 1)
        keys = (domains, room[domains], mean[domains], later[domains], -members[domains])
        found: list[int] = domains[np.lexsort(keys)].tolist()
        return found


def required_keys(group: Group) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The node labels whose domains must hold the whole group, and all labels that its nodes must share."""
    topology = tuple(sorted({key for gang in group.gangs for key in gang.constraints.topology}))
    product = (PRODUCT_LABEL,) if any(gang.constraints.same_product for gang in group.gangs) else ()
    return topology, (*topology, *(key for key in product if key not in topology))


def member_nodes(group: Group, table: NodeTable) -> Ints:
    """Node indices of the members that are bound or held already."""
    names = [name for gang in group.gangs for name in (*gang.nodes, *(placement.node for placement in gang.held))]
    return np.array([table.index[name] for name in names if name in table.index], dtype=np.int64)


def pinned(group: Group, ledger: Ledger) -> Scope | None:
    """The required domain where most members of the group are, which others join (L8); None without any."""
    domains = Domains.required(group, ledger.table)
    common = domains.level.common(member_nodes(group, ledger.table)) if domains is not None else None
    return domains.scope(common) if domains is not None and common is not None else None


def regions(group: Group, ledger: Ledger) -> list[Scope]:
    """Each domain that could hold the group, all nodes if none is required; where its members are, if it has any."""
    domains = Domains.required(group, ledger.table)
    if domains is None:
        return [EVERYWHERE]
    home = pinned(group, ledger)
    return [home] if home is not None else [domains.scope(n) for n in range(domains.level.size)]


def required(group: Group, gangs: Sequence[Gang], ledger: Ledger) -> Iterator[Scope]:
    """The scopes that nothing preferred narrows, best first; the last one is the best that does not do."""
    domains = Domains.required(group, ledger.table)
    if domains is None:
        yield EVERYWHERE
        return
    demand = Demand.of(group, gangs, ledger)
    enough, holds = domains.judge(demand)
    home = domains.level.common(member_nodes(group, ledger.table))
    if home is not None:
        enough &= np.arange(domains.level.size) == home
    candidates = np.flatnonzero(enough)
    present = None
    if len(candidates) > 1 and any(need < len(gang.pending) for need, gang in zip(demand.needs, gangs, strict=True)):
        every = replace(demand, needs=tuple(len(gang.pending) for gang in gangs))
        present, _ = domains.judge(every)
    ordered = domains.order(candidates, demand, first=present)
    is_searched = group.strict and len(demand.items) > 1 and demand.is_exact
    for number, n in enumerate(ordered):
        scope = domains.scope(n)
        if number and is_searched and not _could(demand, domains, n, scope):
            continue
        yield scope
    if home is None:
        home = int(np.argmax(holds)) if domains.level.size else 0
    best = domains.scope(home)
    told = _told(domains, home, holds, len(ordered), demand)
    yield replace(best, name=f"{best.name} at last", last=True, note=told, refuted=group.strict)


def _could(demand: Demand, domains: Domains, domain: int, scope: Scope) -> bool:
    """Whether the minimum can be packed into a domain, or nobody knows: without a next plan the search is cut short."""
    nodes = domains.outer.nodes(int(domains.outer_of[domain])) if domains.outer is not None else None
    return packed(demand.problem(nodes, scope), demand.ledger) is not None


def _told(domains: Domains, best: int, holds: Ints, left: int, demand: Demand) -> str:
    """What the best domain lacks, and why the others are refuted (M1)."""
    size, needed = domains.level.size, sum(demand.needs)
    if not size:
        return ""
    lack = max(1, needed - int(holds[best]))
    few = size - left
    torn = "too fragmented" if demand.is_exact else "without a place that was found"
    causes = [f"{n} {'has' if n == 1 else 'have'} too few free in sum" for n in (few,) if n]
    causes += [f"{n} {'is' if n == 1 else 'are'} {torn}" for n in (left,) if n]
    of_all = f"of {size} {'domain' if size == 1 else 'domains'} {', '.join(causes)}"
    return f"no domain has room: the best, {domains.level.name(best)}, lacks {lack} of {needed}; {of_all}"
