"""Totals of room in all required domains at once: which of the domains could hold the needed members.

Invariant: each domain is evaluated as `NeededSums` evaluates it alone. If no domain is required, the whole cluster
counts as one domain; if members run in a domain, it is the only one. Each evaluation is charged once, not once per
domain.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from gangsched.core.preemption.needed_sums import NeededSums
from gangsched.core.preemption.numbers import NONE, lookup
from gangsched.core.preemption.slice_sums import SliceSum
from gangsched.core.reserve import Ledger
from gangsched.core.scope import Scope
from gangsched.core.search.domains import free_domains, regions
from gangsched.core.topology import TopologyLevel
from gangsched.model.gang import Group
from gangsched.model.snapshot import Bools, Ints


@dataclass(frozen=True, eq=False)
class DomainSums:
    """`sums` in each domain of `level`; members without an accelerator must be in domain `others_of[d]` of `others`.

    `scopes(d)` is a domain as a scope.
    """

    sums: NeededSums
    level: TopologyLevel
    others: TopologyLevel
    others_of: Ints
    names: partial[Scope]

    @classmethod
    def of(cls, group: Group, sums: NeededSums, ledger: Ledger) -> DomainSums:
        """The sums in the domains that could hold the group."""
        domains = free_domains(group, ledger)
        if domains is None:
            (scope,) = regions(group, ledger)
            number = len(ledger.table)
            level, others = (_one(mask, number) for mask in (scope.accelerated, scope.others))
            return cls(sums, level, others, np.zeros(1, dtype=np.int64), partial(_same, scope))
        others = _one(None, len(ledger.table)) if domains.outer is None else domains.outer
        of = np.zeros(domains.level.size, dtype=np.int64) if domains.outer is None else domains.outer_of
        return cls(sums, domains.level, others, of, partial(domains.scope))

    @property
    def size(self) -> int:
        """Number of domains."""
        return self.level.size

    def scope(self, domain: int) -> Scope:
        """The domain as a scope."""
        return self.names(domain)

    @cached_property
    def mask(self) -> Bools:
        """Nodes that any of the members may use in any domain."""
        kept, free = self._masks
        found: Bools = (kept & (self.level.codes != NONE)) | (free & (self.others.codes != NONE))
        return found

    def enough(self, free: Ints) -> Bools:
        """For each domain, whether `free[r][n]` could hold all members. Raises OutOfWork."""
        self.sums.charge(free)
        found = np.ones(self.size, dtype=np.bool_)
        for total in self.sums.totals:
            have = self.free(free, total.row) if total.kept else np.array(total.free(free))
            found &= have >= total.amount
        for ask in self.sums.asks:
            found &= self._sum(ask.rooms(free), accelerated=ask.accelerated) >= ask.count
        rooms = [ask.rooms(free) for ask in self.sums.asks] if self._slices else []
        for each, inner, outer_of in self._slices:
            copies = self.sums.copies(each, free, rooms, inner)
            most = np.bincount(outer_of, weights=copies, minlength=self._outer.size)
            found &= (most if self._outer is self.level else most[self.others_of]) >= each.number
        return found

    def room(self, free: Ints) -> Ints:
        """Number of members that fit in each domain, each shape by itself. Raises OutOfWork."""
        self.sums.charge(free)
        found = np.zeros(self.size, dtype=np.int64)
        for ask in self.sums.asks:
            found += np.minimum(ask.count, self._sum(ask.rooms(free), accelerated=ask.accelerated))
        return found

    def free(self, free: Ints, row: int) -> Ints:
        """For each domain, the total of `free[row][n]` on nodes that any of the members may use."""
        # A node on which members without accelerators may run, too, counts once: in the wider domain.
        kept, anywhere = self._masks
        have = np.maximum(free[row], 0)
        return self._sum(have * (kept & ~anywhere), accelerated=True) + self._sum(have * anywhere, accelerated=False)

    def largest(self, amounts: Ints, nodes: Ints) -> Ints:
        """For each domain, the largest of `amounts[i]`, of pods on nodes `nodes[i]` that any of the members may use; 0
        if there is none.
        """
        kept, anywhere = self._masks
        found = []
        for level, mask in ((self.level, kept & ~anywhere), (self.others, anywhere)):
            there = np.flatnonzero((nodes != NONE) & mask[nodes] & (level.codes[nodes] != NONE))
            most = np.zeros(level.size, dtype=np.int64)
            np.maximum.at(most, level.codes[nodes[there]], amounts[there])
            found.append(most)
        return np.maximum(found[0], found[1][self.others_of])

    def usable(self, enough: Bools, free: Ints) -> Bools:
        """Nodes, in the domains in `enough`, whose `free[r][n]` suffices for a member."""
        found: Bools = np.zeros(free.shape[1], dtype=np.bool_)
        others = np.zeros(self.others.size, dtype=np.bool_)
        others[self.others_of[enough]] = True
        for ask in self.sums.asks:
            level, chosen = (self.level, enough) if ask.accelerated else (self.others, others)
            found |= (ask.rooms(free) > 0) & lookup(chosen, level.codes, none=False)
        return found

    @cached_property
    def _outer(self) -> TopologyLevel:
        """The domains that the members of slices are kept in."""
        return self.level if any(ask.accelerated for ask in self.sums.asks) else self.others

    @cached_property
    def _slices(self) -> list[tuple[SliceSum, TopologyLevel, Ints]]:
        """Each layer of slices, its domains inside the outer ones, and in which of these each is.

        None where some members may go further than others: sums of a domain do not refute those.
        """
        is_mixed = len({ask.accelerated for ask in self.sums.asks}) > 1
        if is_mixed and not np.array_equal(self.level.codes, self.others.codes):
            return []
        inner = [(each, each.within(self._outer)) for each in self.sums.slices]
        return [(each, level, level.inside(self._outer)) for each, level in inner]

    @cached_property
    def _masks(self) -> tuple[Bools, Bools]:
        """Nodes that members with an accelerator may use, and nodes for the others."""
        masks = []
        for accelerated in (True, False):
            own = [ask.mask for ask in self.sums.asks if ask.accelerated is accelerated]
            masks.append(np.logical_or.reduce([np.zeros(len(self.level.codes), dtype=np.bool_), *own]))
        return masks[0], masks[1]

    def _sum(self, values: Ints, *, accelerated: bool) -> Ints:
        return self.level.sums(values) if accelerated else self.others.sums(values)[self.others_of]


def _one(mask: Bools | None, nodes: int) -> TopologyLevel:
    """A level of one domain: the nodes of the mask, None for all."""
    codes = np.zeros(nodes, dtype=np.int32) if mask is None else np.where(mask, 0, NONE).astype(np.int32)
    return TopologyLevel((), codes, 1, ())


def _same(scope: Scope, domain: int) -> Scope:
    assert domain == 0
    return scope
