"""When a required domain can hold a head of several shapes: by sums for all domains at once, then by packings (H5).

Invariant: the time is exact as far as only room matters, unless the plan's work is used up. Expected ends are examined
in windows: sums select the domains that may hold the head by the end of a window, and those are packed in the order of
their own pods' ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np

from gangsched.core.reservations.head_sums import HeadSums
from gangsched.core.reservations.heads import Head
from gangsched.core.reservations.timeline import Floats, Timeline
from gangsched.core.reserve import Ledger
from gangsched.core.search.demand import Demand
from gangsched.core.search.domains import Domains, member_nodes
from gangsched.core.search.facts import packed
from gangsched.core.work import OutOfWork
from gangsched.model.snapshot import Bools, Ints

FIRST_ENDS = 16
"""Ends that are looked at first, from the one that sums allow on; four times as many each time after that."""


@dataclass(frozen=True, eq=False)
class HeadDomains:
    """The domains that may hold a head. `open[item][n]`: node `n` may hold pods of an item if it has room."""

    demand: Demand
    domains: Domains
    allowed: Bools
    open: Bools

    @classmethod
    def of(cls, head: Head, ledger: Ledger, empty: Ledger) -> HeadDomains | None:
        """The domains of a head. None if totals suffice to decide, if not all pods require a domain, or if more than
        room matters.
        """
        demand, domains = Demand.of(head.group, head.gangs, ledger), Domains.required(head.group, ledger.table)
        if domains is None or domains.outer is not domains.level or not head.group.strict:
            return None
        # Pods of one shape are decided by sums: what adds up in a domain also fits there.
        if len(demand.items) < 2 or demand.slices is not None or not (demand.is_exact and demand.only_room):
            return None
        # Members that run already tie the others to their domain.
        home, size = domains.level.common(member_nodes(head.group, ledger.table)), domains.level.size
        allowed = np.ones(size, dtype=np.bool_) if home is None else np.arange(size) == home
        return cls(demand, domains, allowed, Demand.of(head.group, head.gangs, empty).room > 0)

    def first(self, sums: HeadSums, ledger: Ledger, timeline: Timeline, ends_s: Floats, low: int) -> int:
        """Index of the first expected end, from index `low` on, at which a domain holds the head; the number of ends if
        there is none.

        If half of the remaining work does not suffice to decide, return the first end that was not refuted.
        """
        number = len(ends_s)
        pods = timeline.ended(float(ends_s[-1]))
        when = np.searchsorted(ends_s, timeline.ends_s[:pods])
        where = self.domains.level.codes[timeline.nodes[:pods]]
        begin, width = low, FIRST_ENDS
        at = begin
        try:
            # The round at the time that is found needs work, too.
            with ledger.work.at_most(ledger.work.left / 2):
                while begin < number:
                    end = min(begin + width, number)
                    ledger.work.charge(50 + (pods + len(self.demand.items) * len(ledger.table)) // 50)
                    # The window's last moment: a domain that sums refuse there holds the head nowhere in the window.
                    free = ledger.free + timeline.freed(np.flatnonzero(when < end), sums.rows)
                    left = np.flatnonzero(sums.by_domain(free) & self.allowed)
                    # By time: the first domain that holds the head has the earliest end of all that may.
                    heap = [(begin, domain) for domain in left.tolist()]
                    while heap:
                        at, domain = heappop(heap)
                        own = np.flatnonzero(where == domain)
                        if self._holds(domain, ledger, timeline, own[when[own] <= at]):
                            return at
                        later = when[own][(when[own] > at) & (when[own] < end)]
                        if later.size:
                            heappush(heap, (int(later.min()), domain))
                    at = begin = end
                    width *= 4
        # Everything before `at` is refuted, so it is a lower bound, as the one that sums gave.
        except OutOfWork:
            pass
        return at

    def _holds(self, domain: int, ledger: Ledger, timeline: Timeline, gone: Ints) -> bool:
        """Whether a domain holds the head once these pods are gone. Raises OutOfWork."""
        nodes = self.domains.level.nodes(domain)
        free = ledger.free[:, nodes] + timeline.freed(gone)[:, nodes]
        return packed(self.demand.problem_on(nodes, free, self.open[:, nodes]), ledger) is not None
