"""The parts of the cluster in which a group is tried, in order.

Invariant: a gang's requirements hold in every scope that is tried: one domain of each required
level, and one GPU product if required. Every domain is checked, by totals and then by exact
packing, with no limit on their number. Preferred scopes are tried first, and given up as soon as
one member does not fit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from msgspec import structs

from gangsched.core.group_rules import rules_key
from gangsched.core.placement_attempt import PlacementAttempt
from gangsched.core.preferences import node_penalty
from gangsched.core.reserve import Ledger
from gangsched.core.scope import EVERYWHERE, Scope
from gangsched.core.search.candidate import ScopeCandidate
from gangsched.core.search.demand import Demand
from gangsched.core.search.facts import is_refuted_somewhere, is_used_somewhere, known, packed
from gangsched.core.search.fixed_domains import indices, left_by_members, member_nodes
from gangsched.core.search.judging import MAX_SHAPES, judge, note_refuted, sums
from gangsched.core.search.lacks import limits_inside
from gangsched.core.search.packing import Packing
from gangsched.core.search.slices import is_sliced, pinned_to
from gangsched.core.search.terms import required_by_terms
from gangsched.core.topology import TopologyLevel, level
from gangsched.model.gang import Gang, Group
from gangsched.model.gpu_policy import NO_CONSTRAINTS, PRODUCT_LABEL
from gangsched.model.objects import Pod, Shape
from gangsched.model.plan import Need
from gangsched.model.snapshot import Bools, Ints, NodeTable
from gangsched.model.verdict_facts import DomainsShort, WhenEmpty

# A gang in racks took 0.7 ms to refuse and was charged 347 units: plans of 72 such gangs took 55
# ms.
UNITS = 150
"""Units of evaluating the domains of one group, beside what sums and searches of them take."""


@dataclass(frozen=True, eq=False)
class Domains:
    """The domains of `level`. Pods without an accelerator must be in the enclosing domain of
    `outer`, or anywhere if `outer` is None.
    """

    level: TopologyLevel
    outer: TopologyLevel | None

    @classmethod
    def required(
        cls,
        group: Group,
        table: NodeTable,
        ledger: Ledger | None = None,
    ) -> Domains | None:
        """The domains of the levels in `required_keys`, one of which must hold the whole group;
        None if no level is required.
        """
        topology, must = required_keys(group, ledger)
        if must:
            return cls(
                level(must, table),
                level(topology, table) if topology else None,
            )

        return None

    @cached_property
    def outer_of(self) -> Ints:
        """For each domain, the domain of `outer` that contains it."""
        assert self.outer is not None
        return self.level.inside(self.outer)

    def scope(self, domain: int) -> Scope:
        """Nodes of one domain."""
        nodes = self.level.mask(domain)
        if not self.level.size:
            text = f"node(s) lack the label {' or '.join(self.level.labels)}"
            return Scope(
                nodes,
                nodes if self.outer is not None else None,
                text,
            )

        name = self.level.name(domain)
        others = None

        if self.outer is not None:
            # Pods without an accelerator need not be on nodes of the required GPU product, only in
            # the topology domain.
            others = (
                nodes if self.outer is self.level else self.outer.mask(int(self.outer_of[domain]))
            )

        return Scope(
            nodes,
            others,
            f"node(s) are outside {name}",
            name=name,
        )

    def judge(self, demand: Demand) -> tuple[Bools, Ints]:
        """For each domain, whether the minimum may fit, and how many of the needed pods totals
        allow.
        """
        if self.outer is self.level:
            return judge(demand, self.level)

        kept = []
        for i, item in enumerate(demand.items):
            if demand.ledger.accelerated(item.shape):
                kept.append(i)

        enough, holds = judge(demand, self.level, kept)

        if self.outer is not None:
            of_all, held = judge(demand, self.outer)
            enough = enough & of_all[self.outer_of]
            holds = np.minimum(holds, held[self.outer_of])

        return enough, holds

    def roomiest(self, left: Bools, shape: Shape, ledger: Ledger) -> int:
        """The one of the domains that are `left` with most room for pods of a shape."""
        room = self.level.sums(ledger.room(shape))
        return int(np.argmax(np.where(left, room, -1)))

    def order(
        self,
        domains: Ints,
        demand: Demand,
        *,
        first: Bools | None = None,
    ) -> list[int]:
        """Sort domains: those with members first, then those in `first`, then by soft preferences,
        room and name.
        """
        ledger = demand.ledger
        size = self.level.size
        room = np.zeros(size, dtype=np.int64)
        penalty = np.zeros(size, dtype=np.int64)

        # With one domain there is nothing to order, and sums cost work.
        for i, item in enumerate(demand.items if len(domains) > 1 else ()):
            if ledger.accelerated(item.shape) or self.outer is self.level:
                room += self.level.sums(demand.room[i])
                of_nodes = node_penalty(item.shape, ledger.table)
                if of_nodes is not None:
                    penalty += self.level.sums(demand.room[i] * of_nodes)

        there = self.level.codes[member_nodes(demand.group, ledger.table)]
        # A domain with running members comes first: the gang would be torn apart elsewhere.
        members = np.bincount(there[there >= 0], minlength=size)
        later = np.zeros(size, dtype=np.bool_) if first is None else ~first

        # Per pod that fits: a large domain would otherwise look worse than a small one.
        mean = penalty / np.maximum(room, 1)
        # lexsort sorts by the last key first.
        keys = (domains, room[domains], mean[domains], later[domains], -members[domains])
        ordered: list[int] = domains[np.lexsort(keys)].tolist()

        return ordered


def required_keys(
    group: Group,
    ledger: Ledger | None = None,
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The node labels of the levels that the group requires, and all labels that must have equal
    values on its nodes.

    With a ledger, this includes labels that the members' affinity terms require. Running pods may
    change these.
    """
    by_terms = required_by_terms(group, ledger) if ledger is not None else ()
    if not (by_terms or group.topology):
        # a loop, because most groups require nothing, and each refused one is asked
        for gang in group.gangs:
            if gang.constraints is not NO_CONSTRAINTS:
                break
        else:
            return (), ()

    of_gangs = (
        () if group.apart else (key for gang in group.gangs for key in gang.constraints.topology)
    )
    topology = tuple(sorted({*by_terms, *group.topology, *of_gangs}))
    product = (PRODUCT_LABEL,) if any(gang.constraints.same_product for gang in group.gangs) else ()

    return topology, (*topology, *(key for key in product if key not in topology))


def in_domains(needs: Sequence[Need], group: Group, ledger: Ledger) -> tuple[Need, ...]:
    """The needs, each with the node labels that require all of its pods in one domain."""
    topology, must = required_keys(group)
    if not must:
        return tuple(needs)

    return tuple(
        structs.replace(need, within=must if ledger.accelerated(need.shape) else topology)
        for need in needs
    )


def pinned(group: Group, ledger: Ledger) -> Scope | None:
    """The required domain that already has most members of the group, in which the rest must be
    placed; None if members leave a choice.
    """
    domains = Domains.required(group, ledger.table, ledger)
    if domains is not None:
        left = left_by_members(group, group.gangs, domains.level, ledger)
        number = np.count_nonzero(left) if left is not None else 0
        if left is not None and number == 1:
            only = int(np.argmax(left))
            return domains.scope(only)

    around = domains_around(group, ledger.table)
    if not around:
        return None

    inside = np.logical_and.reduce([of.mask(home) for of, home in around])
    name = ", ".join(dict.fromkeys(of.name(home) for of, home in around))
    return Scope(inside, inside, f"node(s) are outside {name}", name=name)


def joined(
    group: Group,
    gang: Gang,
    pods: Sequence[Pod],
    ledger: Ledger,
) -> Scope:
    """Where waiting members of a gang that runs are placed one by one: in the required domain of
    those that run.

    Where changed labels have left these in no domain, it is the one with most room.
    """
    domains = Domains.required(group, ledger.table, ledger) if pods else None
    if domains is None or not any(required_keys(group)):
        return pinned(group, ledger) or EVERYWHERE

    left = left_by_members(group, [gang], domains.level, ledger)
    if left is None:
        left = np.ones(domains.level.size, dtype=np.bool_)

    for around, home in _around_only(group, ledger.table):
        left &= domains.level.inside(around) == home

    if not left.any():
        nowhere = np.zeros_like(ledger.table.everywhere())
        return Scope(nowhere, nowhere, "node(s) are in another domain than the other members")

    roomiest = domains.roomiest(left, pods[0].shape, ledger)
    return domains.scope(roomiest)


def domains_around(group: Group, table: NodeTable) -> list[tuple[TopologyLevel, int]]:
    """Domains in which a part of a tree must be placed, because other members of enclosing
    composites run there.
    """
    around_group = []
    for keys, nodes in group.beside:
        inside = level(keys, table)
        there = indices(nodes, table)
        home = inside.common(there) if there.size else None
        if home is not None:
            around_group.append((inside, home))

    return around_group


def _around_only(group: Group, table: NodeTable) -> list[tuple[TopologyLevel, int]]:
    """The domains around a part that none of its own members is in a domain of: these would fix it
    themselves, also where changed labels have torn them off the others.
    """
    of_others = domains_around(group, table)
    if not of_others:
        return []

    own = member_nodes(group, table)
    return [(around, home) for around, home in of_others if around.common(own) is None]


def free_domains(group: Group, ledger: Ledger) -> Domains | None:
    """The required domains, if running members leave a choice; None if they do not, or if no domain
    is required.
    """
    if is_sliced(group.gangs) and pinned_to(group, ledger.table) is not None:
        return None

    domains = Domains.required(group, ledger.table, ledger)
    if domains is None or pinned(group, ledger) is not None:
        return None

    return domains


def regions(group: Group, ledger: Ledger) -> list[Scope]:
    """Domains that could hold the group, or only those that have members of it; all nodes if none
    is required.
    """
    domains = free_domains(group, ledger)
    if domains is not None:
        result: list[Scope] = []
        left = left_by_members(group, group.gangs, domains.level, ledger)
        for n in range(domains.level.size):
            if left is None or left[n]:
                result.append(domains.scope(n))

        return result

    slices = None
    if is_sliced(group.gangs):
        slices = pinned_to(group, ledger.table)

    if slices is not None:
        return [Scope(slices, slices, name="their slices")]

    return [pinned(group, ledger) or EVERYWHERE]


@dataclass(frozen=True, eq=False)
class Required:
    """The domains that a group requires, evaluated: `enough` says which may hold the minimum, and
    `holds` how many pods fit into each by totals.

    `present` is the demand of all members. Only `home`, the domain with members, can be enough;
    None if no member has a node. For domains outside the domain of the tree, `holds` is -1.
    """

    domains: Domains
    demand: Demand
    present: Demand
    enough: Bools
    holds: Ints
    home: int | None

    @classmethod
    def of(cls, group: Group, present: Demand) -> Required | None:
        """The required domains, evaluated; None if no domain is required."""
        table = present.ledger.table
        domains = Domains.required(group, table, present.ledger)
        if domains is None:
            return None

        present.ledger.work.charge(UNITS)
        demand = present.minimum()
        enough, holds = domains.judge(demand)

        left = left_by_members(group, demand.gangs, domains.level, present.ledger)
        home = None
        if left is not None:
            # Running members do not move, so no other domain is possible.
            enough = enough & left
            if np.count_nonzero(left) == 1:
                home = int(np.argmax(left))
            else:
                holds = np.where(left, holds, -1)

        for around, around_home in _around_only(group, table):
            inside = domains.level.inside(around) == around_home
            enough = enough & inside
            holds = np.where(inside, holds, -1)

        return cls(domains, demand, present, enough, holds, home)

    def fits(self) -> bool | None:
        """Whether some domain holds the minimum; None if only a round can tell.
        Raises OutOfWork.
        """
        demand = self.demand
        if not self.enough.any():
            return False
        if not demand.is_exact or not demand.group.strict:
            return None
        if not demand.is_searched:
            return True

        # the roomiest, which mostly do, first
        enough = np.flatnonzero(self.enough)
        left = self.domains.order(enough, demand)[::-1]
        return not all(self._packed(n, self.domains.scope(n), search=True) is False for n in left)

    def refuted_by(self, domain: int) -> str:
        """What proved that the minimum does not fit into a domain: "sums", an earlier "search", or
        "" for nothing.
        """
        if not self.enough[domain]:
            # Sums would have allowed it, so only a remembered search can have refuted it.
            is_search = self.home is None and self.holds[domain] >= sum(self.demand.needs)
            return "search" if is_search else "sums"

        if not self.demand.is_searched or not self.demand.is_exact:
            return ""
        if self._packed(domain, self.domains.scope(domain), search=False) is False:
            return "search"

        return ""

    def candidates(self) -> Iterator[ScopeCandidate]:
        """Yield the required domains with enough room, best first, without regard to preferred
        domains; then the best domains with too little room, for the refusal's message.
        """
        domains = self.domains
        demand = self.demand
        roomy = np.flatnonzero(self.enough)
        holds_all = None

        # Among domains that hold the minimum, those that hold all members come first.
        if len(roomy) > 1 and demand is not self.present:
            holds_all, _ = domains.judge(self.present)

        ordered = domains.order(roomy, demand, first=holds_all)
        is_strict = demand.group.strict
        is_searched = is_strict and demand.is_searched and demand.is_exact

        for number, n in enumerate(ordered):
            scope = domains.scope(n)
            candidate = ScopeCandidate(scope)
            # The first one is not searched before the usual order was tried there, which mostly
            # does.
            if is_searched and (number or self._is_looked_up()):
                before = self._packed(n, scope, search=number > 0)
                if before is False:
                    continue

                if isinstance(before, Packing):
                    candidate = ScopeCandidate(scope, packed=(demand, before))

            yield candidate
            # for the next plan: the round has searched there, in vain
            if is_searched and not number:
                self._packed(n, scope, search=False)

        # The domain that lacks least is the one that the refusal names.
        best = (
            self.home
            if self.home is not None
            else int(np.argmax(self.holds))
            if domains.level.size
            else 0
        )
        lack = _lack(domains, best, self.holds, demand, is_home=self.home is not None)
        scope = domains.scope(best)
        lacking = None
        # Nothing is pending where all members hold room.
        if is_strict and demand.is_exact and demand.items:
            lacking = _lacking(demand, scope)

        if domains.level.size and self.holds[best] < 0:  # none is where the tree is
            nowhere = np.zeros_like(domains.level.mask(best))
            scope = structs.replace(scope, accelerated=nowhere, others=nowhere)

        yield ScopeCandidate(scope, last=True, lack=lack, refuted=is_strict, lacking=lacking)

    def _is_looked_up(self) -> bool:
        """Whether it is worth while to look up what is known of a domain before the usual order is
        tried there.

        Members that only need room are placed faster than that, other members are not.
        """
        demand = self.demand
        sought = demand.pieces, demand.wanted, demand.ledger
        return is_used_somewhere(*sought) or (
            not demand.only_room and is_refuted_somewhere(*sought)
        )

    def _packed(
        self,
        domain: int,
        scope: Scope,
        *,
        search: bool,
    ) -> Packing | bool | None:
        """False if the minimum cannot be packed into a domain, as a `search` says or an earlier one
        did.

        Else the packing that was used on equal nodes, if there is one. Raises OutOfWork; the next
        plan goes on.
        """
        demand = self.demand
        domains = self.domains
        nodes = (
            domains.outer.nodes(int(domains.outer_of[domain]))
            if domains.outer is not None
            else None
        )

        # Nodes of the outer domain are included for pods without accelerators.
        problem = demand.problem(nodes, scope)
        is_in_vain = (
            search and packed(problem, demand.ledger, most_in_all=demand.most_steps) is None
        )

        packing = known(problem, demand.ledger)
        # Kept by domain only if nothing outside of it matters.
        if packing is False and domains.outer is domains.level:
            note_refuted(demand, domains.level, domain)

        return False if is_in_vain else packing


def fits(group: Group, gangs: Sequence[Gang], ledger: Ledger) -> bool | None:
    """Whether a required domain holds the pods that the gangs need (see `Required.fits`). None if
    unknown, or if no domain is required.
    """
    attempt = PlacementAttempt(group, ledger)
    required = Required.of(group, Demand.of_all(gangs, attempt))
    if required is None:
        return None

    return required.fits()


def _lack(
    domains: Domains,
    best: int,
    holds: Ints,
    demand: Demand,
    *,
    is_home: bool,
) -> DomainsShort:
    """What the best domain lacks, and how many others totals refute."""
    level_ = domains.level
    needed = sum(demand.needs)
    if not level_.size:
        return DomainsShort(keys=level_.labels, number=0, best="", takes=0, needed=needed)

    is_alike = len(demand.items) == 1
    return DomainsShort(
        keys=level_.labels,
        number=level_.size,
        best=level_.value(best),
        takes=max(0, int(holds[best])),
        needed=needed,
        # Sums of several kinds of pods count each kind as if it were alone.
        at_most=not (is_alike and demand.only_room),
        home=is_home,
        few=int(np.count_nonzero(holds < needed)),
        exact=demand.is_exact,
    )


def takes_at_best(
    group: Group,
    gangs: Sequence[Gang],
    totals: Ledger,
) -> WhenEmpty | None:
    """The required domain that takes most of the pods that the gangs need, by totals, if its nodes
    are empty; None if that is all of them, or no proof.
    """
    if group.apart or any(gang.bound or gang.held for gang in group.gangs):
        return None

    demand = Demand.of_all(gangs, PlacementAttempt(group, totals)).minimum()
    domains = Domains.required(group, totals.table, totals)
    if domains is None or not domains.level.size or len(demand.items) > MAX_SHAPES:
        return None

    kept = [
        number
        for number, item in enumerate(demand.items)
        if domains.outer is domains.level or totals.accelerated(item.shape)
    ]
    key = (
        takes_at_best,
        domains.level.keys,
        demand.needs,
        tuple((item.shape, len(item.pods)) for item in demand.items),
        tuple(rules_key(item.shape, demand.attempt) for item in demand.items),
    )

    def best() -> WhenEmpty | None:
        totals.work.charge(UNITS)
        holds = sums(demand, domains.level, kept)
        most = int(holds.argmax())
        number = int(holds[most])
        if number >= sum(demand.needs):
            return None

        names = limits_inside(demand, kept, domains.level.mask(most))
        return WhenEmpty(domains.level.value(most), number, names)

    return totals.recall(key, best, lasting=True)


def _lacking(demand: Demand, scope: Scope) -> tuple[Gang, Pod]:
    """The first member for whose kind a scope is too small, with its gang; the first one if for no
    kind by itself.
    """
    ledger = demand.ledger
    found = demand.items[0]

    for item, room in zip(demand.items, demand.room, strict=True):
        inside = scope.of(accelerated=ledger.accelerated(item.shape))
        if (room.sum() if inside is None else room[inside].sum()) < len(item.pods):
            found = item
            break

    return demand.gangs[found.gang], found.pods[0]


class DomainRoom(NamedTuple):
    """A domain of the required levels. By totals of free room it `holds` this many of the `needed`
    pods.

    `refuted` is "sums" or "search", depending on which proved that the minimum does not fit, ""
    without proof.
    """

    name: str
    holds: int
    needed: int
    refuted: str


def best_domains(group: Group, ledger: Ledger, number: int = 10) -> list[DomainRoom]:
    """The required domains with room for most of the members that a group still needs, at most
    `number`; empty if it requires no domain.
    """
    gangs = []
    for gang in group.gangs:
        if gang.pending and not gang.free_running:
            gangs.append(gang)

    required = None
    if gangs:
        required = Required.of(group, Demand.of_all(gangs, PlacementAttempt(group, ledger)))

    if required is None:
        return []

    domains = required.domains
    demand = required.demand
    best = []

    # Possible domains first, then by room, then by name.
    for n in np.lexsort((np.arange(domains.level.size), -required.holds, ~required.enough))[
        :number
    ].tolist():
        name = domains.level.name(n)
        holds = max(0, int(required.holds[n]))
        best.append(DomainRoom(name, holds, sum(demand.needs), required.refuted_by(n)))

    return best
