"""Sums: whether the total room suffices for a head; a round can permit the head only if it does.

Invariant: if the sums do not suffice, no round permits the head. They are exact for identical pods
and for pods whose sizes divide one another, within one topology domain if one is required. A round
checks inter-pod and volume constraints.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np

from gangsched.core.filter import static_fit
from gangsched.core.filter.node_resources_fit import room
from gangsched.core.permit import missing
from gangsched.core.placement_attempt import PlacementAttempt
from gangsched.core.reservations.heads import Head
from gangsched.core.reservations.timeline import Floats, Timeline
from gangsched.core.reserve import Ledger
from gangsched.core.scopes import usable
from gangsched.core.search.demand import Demand
from gangsched.core.search.domains import Domains
from gangsched.core.search.facts import packed
from gangsched.core.search.fixed_domains import left_by_members
from gangsched.core.work import OutOfWork
from gangsched.model.gang import Gang
from gangsched.model.objects import Shape
from gangsched.model.snapshot import Bools, Ints


@dataclass(frozen=True, slots=True)
class _Ask:
    """Pods of one shape: `counts[gang]` of them wait, the nodes `open[n]` may take them, in one
    domain if `kept`.

    Of the accelerator in row `row`, all pods of all shapes together take at least `least[a]` times
    the amount `a`.
    """

    shape: Shape
    counts: Ints
    open: Bools
    kept: bool
    row: int
    least: tuple[tuple[int, int], ...]


class HeadSums:
    """Requests of one head, in a form that is quickly compared with the room at many times."""

    def __init__(self, head: Head, empty: Ledger) -> None:
        """`empty` is a ledger without pods."""
        self._resources = empty.resources
        self._lacks = [missing(gang, 0) for gang in head.gangs]
        self._domains = Domains.required(head.group, empty.table)
        self._asks = _asks(head, empty)

        self._least: list[tuple[int, int, Bools]] = []
        for gang in head.gangs:
            self._least += _min_resources(gang, empty)

    @property
    def rows(self) -> list[int]:
        """The resources that are compared, as row indexes."""
        asked = {row for row, _, _ in self._least}
        for ask in self._asks:
            for name, _ in ask.shape.requests:
                if name in self._resources:
                    asked.add(self._resources[name])

        return sorted(asked)

    def enough(self, free: Ints) -> bool:
        """Whether the totals of `free[r][n]` suffice in at least one domain. Resources that are not
        in `rows` may have any value.
        """
        return bool(self.by_domain(free).any())

    def by_domain(self, free: Ints) -> Bools:
        """For each required domain, whether the totals of `free[r][n]` suffice. If no domain is
        required, one entry for all nodes.
        """
        for row, amount, nodes in self._least:
            # Without the debts of overcommitted nodes, which take nothing from the others.
            have = np.maximum(free[row][nodes], 0)
            if int(have.sum()) < amount:
                return np.zeros(1, dtype=np.bool_)

        fits = []
        for ask in self._asks:
            pods_on_node = room(ask.shape, free, self._resources)
            fits.append(self._per_domain(ask, pods_on_node))

        suffices = np.ones(1, dtype=np.bool_)
        for gang, lack in enumerate(self._lacks):
            most: Ints = np.zeros(1, dtype=np.int64)
            for ask, fit in zip(self._asks, fits, strict=True):
                most = most + np.minimum(ask.counts[gang], fit)

            suffices = suffices & (most >= lack)

        for ask in self._asks:
            have = np.maximum(free[ask.row], 0)
            for amount, least in ask.least:
                units = self._per_domain(ask, have // amount)
                suffices = suffices & (units >= least)

        return suffices

    def _per_domain(self, ask: _Ask, fits: Ints) -> Ints:
        """The sum of `fits[n]` by domain; one entry for all nodes where the pods may be in
        different domains.
        """
        fits = fits * ask.open
        if self._domains is None or not ask.kept:
            return np.array([fits.sum()])

        return self._domains.level.sums(fits)


def _asks(head: Head, empty: Ledger) -> list[_Ask]:
    """The pods of the head by shape."""
    counts = []
    total: Counter[Shape] = Counter()
    for gang in head.gangs:
        of_gang = Counter(pod.shape for pod in gang.pending)
        counts.append(of_gang)
        total += of_gang

    attempt = PlacementAttempt(head.group, empty)
    nodes = {}
    for shape in total:
        nodes[shape] = usable(shape, attempt) > 0

    by_topology = any(gang.constraints.topology for gang in head.group.gangs)
    all_needed = all(missing(gang, 0) == len(gang.pending) for gang in head.gangs)
    asks = []

    for shape in total:
        name, amount = empty.packed_by(shape)
        least: tuple[tuple[int, int], ...] = ()

        # Only if all pods must be placed: with members to spare, the smaller shapes may be the ones
        # that start.
        if name and all_needed and len(total) > 1:
            # Shapes whose nodes are all among these: what they take, they take here.
            inside = {}
            for other, count in total.items():
                is_elsewhere = (nodes[other] & ~nodes[shape]).any()
                if not is_elsewhere:
                    inside[other] = count

            least = _least_units(inside, name, amount)

        ask = _Ask(
            shape,
            counts=np.array([of_gang[shape] for of_gang in counts], dtype=np.int64),
            open=nodes[shape],
            # A required GPU product restricts only pods with accelerators (`Domains.required`).
            kept=by_topology or bool(name),
            row=empty.resources.get(name, 0),
            least=least,
        )
        asks.append(ask)

    return asks


def _least_units(
    counts: Mapping[Shape, int],
    resource: str,
    amount: int,
) -> tuple[tuple[int, int], ...]:
    """`_Ask.least` of these pods, for single accelerators and for `amount` of them."""
    least = []
    for unit in sorted({1, amount}):
        units = 0
        for shape, count in counts.items():
            asked = dict(shape.requests).get(resource, 0)
            units += count * (asked // unit)

        least.append((unit, units))

    return tuple(least)


def _min_resources(
    gang: Gang,
    empty: Ledger,
) -> list[tuple[int, int, Bools]]:
    """Requirements of `minResources` (P4): the resource, how much of it must be free in sum, and on
    which nodes.
    """
    if not gang.min_resources or not gang.pending:
        return []

    nodes = ~empty.table.everywhere()
    for shape in {pod.shape for pod in gang.pending}:
        nodes |= static_fit(shape, empty.table).mask

    held = Counter[str]()
    for placement in gang.held:
        held.update(dict(placement.pod.shape.requests))

    resources: list[tuple[int, int, Bools]] = []
    for name, amount in gang.min_resources:
        row = empty.resources.get(name)
        if row is not None:
            lacking = amount - held[name]
            resources.append((row, lacking, nodes))

    return resources


FIRST_ENDS = 16
"""Ends that are looked at first, from the one that sums allow on; four times as many each time
after that.
"""


@dataclass(frozen=True, eq=False)
class HeadDomains:
    """The domains that may hold a head of several shapes, found by sums for all domains at once,
    then by packings (H5).

    `open[item][n]`: node `n` may hold pods of an item if it has room. The start time is exact if
    only room matters and the plan's work is not used up. Expected ends are examined in windows:
    sums select the domains that may hold the head by the end of a window, and the selected domains
    are packed in the order of their own pods' ends.
    """

    demand: Demand
    domains: Domains
    allowed: Bools
    open: Bools

    @classmethod
    def of(
        cls,
        head: Head,
        ledger: Ledger,
        empty: Ledger,
    ) -> HeadDomains | None:
        """The domains of a head. None if totals decide, not all pods require a domain, or more than
        room matters.
        """
        demand = Demand.of(head.gangs, PlacementAttempt(head.group, ledger))
        domains = Domains.required(head.group, ledger.table)
        if domains is None or domains.outer is not domains.level or not head.group.strict:
            return None

        # Pods of one shape are decided by sums: what adds up in a domain also fits there.
        if len(demand.items) < 2 or demand.slices is not None:
            return None
        if not demand.is_exact or not demand.only_room:
            return None

        # Members that run already tie the others to their domain.
        allowed = left_by_members(head.group, head.gangs, domains.level, ledger)
        if allowed is None:
            allowed = np.ones(domains.level.size, dtype=np.bool_)

        of_empty = Demand.of(head.gangs, PlacementAttempt(head.group, empty))
        return cls(demand, domains, allowed, of_empty.room > 0)

    def first(
        self,
        sums: HeadSums,
        ledger: Ledger,
        timeline: Timeline,
        ends_s: Floats,
        low: int,
    ) -> int:
        """Index of the first expected end, from index `low` on, at which a domain holds the head;
        the number of ends if there is no such end.

        If half of the remaining work does not suffice to decide, return the first end that was not
        refuted.
        """
        number = len(ends_s)
        pods = timeline.ended(float(ends_s[-1]))
        # By pod: the index of its end, and its domain.
        ends = np.searchsorted(ends_s, timeline.ends_s[:pods])
        pod_domains = self.domains.level.codes[timeline.nodes[:pods]]
        cells = pods + len(self.demand.items) * len(ledger.table)

        begin = low
        width = FIRST_ENDS
        at = begin

        try:
            # The round at the time that is found needs work, too.
            with ledger.work.at_most(ledger.work.left / 2):
                while begin < number:
                    end = min(begin + width, number)
                    ledger.work.charge(50 + cells // 50)

                    # The window's last moment: a domain that sums refuse there holds the head
                    # nowhere in the window.
                    ended = np.flatnonzero(ends < end)
                    free = ledger.free + timeline.freed(ended, sums.rows)
                    possible = np.flatnonzero(sums.by_domain(free) & self.allowed)

                    # By time: the first domain that holds the head has the earliest end of all that
                    # may.
                    heap = [(begin, domain) for domain in possible.tolist()]
                    while heap:
                        at, domain = heappop(heap)
                        in_domain = np.flatnonzero(pod_domains == domain)
                        own_ends = ends[in_domain]
                        if self._holds(domain, ledger, timeline, in_domain[own_ends <= at]):
                            return at

                        later = own_ends[(own_ends > at) & (own_ends < end)]
                        if later.size:
                            next_end = int(later.min())
                            heappush(heap, (next_end, domain))

                    begin = end
                    at = begin
                    width *= 4
        # Everything before `at` is refuted, so it is a lower bound, as the one that sums gave.
        except OutOfWork:
            pass

        return at

    def _holds(
        self,
        domain: int,
        ledger: Ledger,
        timeline: Timeline,
        gone: Ints,
    ) -> bool:
        """Whether a domain holds the head once these pods are gone. Raises OutOfWork."""
        nodes = self.domains.level.nodes(domain)
        freed = timeline.freed(gone)
        free = ledger.free[:, nodes] + freed[:, nodes]

        problem = self.demand.problem_on(nodes, free, self.open[:, nodes])
        return packed(problem, ledger) is not None
