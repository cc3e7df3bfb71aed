"""Units of eviction, each evicted as a whole or not at all (V5, V6), and candidates, which are sets
of units with a cost (V8).

Invariant: members of a gang above its minimum (its surplus) are evicted one by one; at the minimum,
the whole group is evicted, in every namespace. A child above the minimum of its tree is evicted
whole, without the rest of the tree. Members of a gang with disruption mode Pod are always evicted
one by one. The priority of a unit is the highest priority of its members, and is below the
preemptor's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass

import numpy as np

from gangsched.core.preemption.columns import RunningColumns
from gangsched.core.preemption.numbers import NONE, bools, by_gang, ints, lookup, padded
from gangsched.core.preemption.preemptor import Preemptor
from gangsched.model.parts import Root, whole_children
from gangsched.model.preemption import Harm, UnitKind, Victim
from gangsched.model.snapshot import Bools, Ints
from gangsched.model.tree import Part, composites_of, gangs_of, part_id, spares_children


@dataclass(frozen=True, slots=True, eq=False)
class Cores:
    """Cores: groups, or children of trees, that are evicted as a whole, sorted by id.

    A child above the minimum of its tree is a core of its own, in addition to the core of the tree.
    """

    groups: Sequence[str]
    #: By gang: the core of its group, the core of the gang itself, and the spare child that it is
    #: part of, "" for none.
    group_of: Ints
    unit_of: Ints
    parts: Sequence[str]
    #: By core: the core whose eviction evicts this one as well, NONE for none; padded.
    within: Ints
    #: By core: whether it may be evicted, its priority, and the number of gangs that its eviction
    #: stops.
    open: Bools
    priority: Ints
    stops: Ints
    #: By pod: the smallest core that it belongs to, NONE for none.
    of: Ints
    #: `pods[first[c]:first[c + 1]]` are the pods of core `c`.
    pods: Ints
    first: Ints

    def among(self, pods: Bools) -> Ints:
        """The cores of these pods, without duplicates, ascending."""
        # Counted from NONE on, whose count is dropped; np.unique would sort 20,000 pods for each
        # region.
        return np.flatnonzero(np.bincount(self.of[pods] + 1, minlength=len(self.groups) + 1)[1:])

    def totals(self, values: Ints) -> Ints:
        """By core, the sum of `values[i]` over its pods."""
        number = np.diff(self.first)
        of = np.repeat(np.arange(number.size), number)

        totals = np.bincount(
            of,
            weights=values[self.pods],
            minlength=number.size,
        )
        return totals.astype(np.int64)

    def members(self, core: int) -> list[int]:
        """Pods of a core."""
        members: list[int] = self.pods[self.first[core] : self.first[core + 1]].tolist()
        return members


@dataclass(frozen=True, slots=True, eq=False)
class PreemptionCandidate:
    """`units` whose eviction may make room, the most expensive last; their `pods`, and the `cores`
    among the units.

    `harm` is their preemption cost. A kube-scheduler candidate is one node with its victims; here
    the victims may be on several nodes. `singly` are gangs that fall below their minimum because of
    pods that are evicted one by one.
    """

    of: Units
    units: tuple[int, ...]
    pods: tuple[int, ...]
    cores: tuple[int, ...]
    singly: frozenset[str]
    harm: Harm

    @property
    def stopped(self) -> list[str]:
        """Gangs that fall below their minimum."""
        cores = self.of.cores
        chosen = set(self.cores)
        stops = np.flatnonzero(self.of.stops).tolist()
        gangs = set(self.singly)
        for g in stops:
            own = {int(cores.group_of[g]), int(cores.unit_of[g])}
            if chosen & own:
                gangs.add(self.of.columns.gangs[g].id)

        return sorted(gangs)

    def victims(self, overdue: Set[str]) -> dict[int, Victim]:
        """The victims by pod number, each with its kind of unit (V6). `overdue` are uids of pods
        that exceeded their run time (H11).
        """
        columns = self.of.columns
        cores = self.of.cores
        chosen = set(self.cores)
        with_core = set()
        for core in chosen:
            with_core.update(cores.members(core))

        victims = {}

        for i in self.pods:
            pod, node, *_ = columns.running[i]
            g = int(columns.gang[i])
            part = ""

            gang = None
            if columns.in_gang[i]:
                gang = columns.gangs[g]

            if gang is None or gang.disrupted_singly:
                kind = UnitKind.POD
            elif i not in with_core:
                kind = UnitKind.SURPLUS
            elif cores.parts[g] and int(cores.unit_of[g]) in chosen:
                kind = UnitKind.CHILD
                part = cores.parts[g]
            else:
                kind = UnitKind.CORE

            of, group = (gang.id, gang.group) if gang else ("", "")
            victims[i] = Victim(
                pod.uid,
                pod.namespace,
                pod.name,
                node,
                of,
                group,
                kind,
                pod.priority,
                pod.uid in overdue,
                part,
            )

        return victims


@dataclass(frozen=True, slots=True, eq=False)
class Units:
    """Units that one preemptor may evict.

    A unit is a number, so that candidates are sorted and compared by column: unit `i` below
    `first_core` is the single pod `i`, and unit `first_core + c` is core `c`.
    """

    columns: RunningColumns
    first_core: int
    #: `single[i]`: pod `i` may be evicted by itself, as a plain pod or as surplus of its gang.
    single: Bools
    #: By gang: members that count towards its minimum, how many of them are above it, and whether
    #: the gang stops if its core is evicted.
    running: Ints
    surplus: Ints
    stops: Bools
    #: The single pods of gangs in the order in which they are evicted within their gang: lower
    #: priority first, then the latest created, then the highest ordinal.
    by_age: Ints
    cores: Cores

    @classmethod
    def of(
        cls,
        preemptor: Preemptor,
        columns: RunningColumns,
        allowed: Bools,
    ) -> Units:
        """The units of lower priority among the pods that `allowed` selects, without the
        preemptor's own group.
        """
        gangs = columns.gangs
        gang = columns.gang
        eligible = (
            allowed & ~columns.spared & (columns.priority < preemptor.right) & columns.on_node
        )
        staying = columns.in_gang & ~columns.going
        running = np.bincount(gang[staying], minlength=len(gangs)) + ints(
            [running_gang.succeeded for running_gang in gangs]
        )
        least = ints([running_gang.min_member for running_gang in gangs])
        theirs = bools([running_gang.group != preemptor.group.id for running_gang in gangs])
        divisible = bools([not running_gang.indivisible for running_gang in gangs])
        singly = bools([running_gang.disrupted_singly for running_gang in gangs])
        surplus = np.where(
            theirs & divisible,
            np.maximum(running - np.where(singly, 0, least), 0),
            0,
        )
        single = eligible & by_gang(surplus > 0, gang, plain=True)
        together = staying & ~by_gang(singly, gang)
        spare = _spare(columns, together, np.where(theirs, running, 0), np.maximum(least, 1))

        # A gang with a minimum of 1 is never stopped: its last pod goes as a single pod does.
        stops = (least >= 2) & (running >= least) & ~singly
        cores = _cores(columns, eligible, together, theirs, stops, spare)
        members = np.flatnonzero(single & columns.in_gang)
        rows = columns.table.rows
        ordinals = columns.table.ordinals(members)
        keys = [
            rows.key[members],
            -ordinals,
            -rows.created[members],
            columns.priority[members],
            gang[members],
        ]

        return cls(
            columns,
            len(columns.running),
            single,
            running,
            surplus,
            stops,
            members[np.lexsort(keys)],
            cores,
        )

    def upto(
        self,
        level: int,
        region: Bools,
        order: Ints | None = None,
    ) -> tuple[Ints, Ints]:
        """Single pods and cores of at most priority `level` with a pod on a node of `region`.

        Each gang contributes at most its surplus, in the order of `by_age` or, if given, by
        ascending `order[i]`.
        """
        columns = self.columns
        singles, cores = self.all_upto(level, region)
        in_gang = columns.in_gang[singles]
        plain = singles[~in_gang]
        members = singles[in_gang]
        if members.size:
            if order is not None:
                members = members[np.lexsort((order[members], columns.gang[members]))]

            gangs = columns.gang[members]
            # `members` are sorted by gang, so a member's place in its gang is its index less that
            # of the gang's first.
            place = np.arange(members.size) - np.searchsorted(gangs, gangs, side="left")
            members = members[place < self.surplus[gangs]]

        return np.concatenate((plain, members)), cores

    def all_upto(self, level: int, region: Bools) -> tuple[Ints, Ints]:
        """The same with all single pods of each gang, of which only its surplus may go together."""
        columns = self.columns
        inside = columns.inside(region)
        may_go = self.single & inside & (columns.priority <= level)
        members = self.by_age[may_go[self.by_age]]
        plain = np.flatnonzero(may_go & columns.plain)

        there = self.cores.among(inside)
        cores = there[self.cores.priority[there] <= level]
        return np.concatenate((plain, members)), cores

    def could_go(self, level: int) -> Bools:
        """`could_go[i]`: pod `i` could be evicted at `level`, alone or with its group."""
        low = lookup(self.cores.priority <= level, self.cores.of, none=False)
        return (self.single & (self.columns.priority <= level)) | low

    def levels(self, region: Bools) -> list[int]:
        """Priorities of units with a pod in `region`, ascending."""
        inside = self.columns.inside(region)
        there = self.cores.among(inside)
        return sorted(
            {
                *self.columns.priority[self.single & inside].tolist(),
                *self.cores.priority[there].tolist(),
            }
        )

    def split(self, units: Iterable[int]) -> tuple[list[int], list[int]]:
        """The single pods and the cores among the units, each in the given order."""
        chosen = tuple(units)
        first = self.first_core
        single = [unit for unit in chosen if unit < first]
        cores = [unit - first for unit in chosen if unit >= first]
        return single, cores

    def pods_of(self, units: Iterable[int]) -> list[int]:
        """Pods of these units, without duplicates."""
        single, cores = self.split(units)
        pods = set(single)
        for core in cores:
            pods.update(self.cores.members(core))

        return sorted(pods)

    def candidate(self, units: Iterable[int]) -> PreemptionCandidate:
        """The candidate of these units. Pods and children that are evicted with a core of the
        candidate are not listed as units.
        """
        columns = self.columns
        chosen = tuple(units)
        with_core = set(self.split(chosen)[1])
        covered = set()
        for core in with_core:
            covered.update(self.cores.members(core))

        covered |= {
            self.first_core + core
            for core in with_core
            if int(self.cores.within[core]) in with_core
        }
        kept = tuple(unit for unit in chosen if unit not in covered)
        single, cores = self.split(kept)
        pods = self.pods_of(kept)
        singly = self._stopped_singly(single)
        harm = Harm(
            budgets_broken=len(columns.budgets.broken(pods)) if columns.budgets.covering else 0,
            highest_priority=int(columns.priority[pods].max()) if pods else 0,
            gangs_stopped=int(self.cores.stops[cores].sum()) + len(singly),
            work_lost=int(columns.work[pods].sum()),
            victims=len(pods),
            wait_steps=int(columns.wait[pods].max()) if pods else 0,
            started_s=-int(columns.start[pods].sum()),
        )

        return PreemptionCandidate(self, kept, tuple(pods), tuple(cores), singly, harm)

    def _stopped_singly(self, pods: Sequence[int]) -> frozenset[str]:
        """Gangs that stop because these pods, which are evicted one by one, are too many
        of them.
        """
        taken = Counter(self.columns.gang[pods].tolist())
        gangs = (
            (self.columns.gangs[g], int(self.running[g]), number)
            for g, number in taken.items()
            if g >= 0
        )
        return frozenset(
            gang.id
            for gang, running, number in gangs
            if gang.disrupted_singly
            and gang.min_member >= 2
            and running - number < gang.min_member <= running
        )

    def name(self, unit: int) -> str:
        """A name of a unit that is stable across plans."""
        if unit < self.first_core:
            return self.columns.running[unit].pod.uid

        return f"group {self.cores.groups[unit - self.first_core]}"


def _spare(
    columns: RunningColumns,
    staying: Bools,
    counts: Ints,
    least: Ints,
) -> list[str]:
    """By gang, the child above the minimum of its composite that it is part of, "" for none; those
    of low priority and the latest go first.
    """
    gangs = columns.gangs
    spare = [""] * len(columns.gangs)
    has_minimum = counts >= least

    trees: dict[str, Part] = {}
    for g, gang in enumerate(gangs):
        if has_minimum[g] and spares_children(gang.root):
            trees[gang.group] = gang.root

    if not trees:
        return spare

    pods = np.flatnonzero(staying)
    created = columns.table.rows.created
    priority = np.full(len(gangs), np.iinfo(np.int64).min)
    since = priority.copy()
    np.maximum.at(priority, columns.gang[pods], columns.priority[pods])
    np.maximum.at(since, columns.gang[pods], created[pods])
    number = {gang.id: g for g, gang in enumerate(gangs)}
    children = {
        child for composite in composites_of(*trees.values()) for child in composite.children
    }
    running = {
        part: [number[gang_id] for gang_id in gangs_of(part) if gang_id in number]
        for part in children
    }

    has_members = {}
    needs = dict.fromkeys(gangs_of(*trees.values()), 1)
    for gang_id, g in number.items():
        has_members[gang_id] = int(counts[g])
        needs[gang_id] = int(least[g])

    # From the root down: below a child that goes as a whole, nothing goes by itself.
    open_parts = [*trees.values()]
    while open_parts:
        composite = open_parts.pop()
        if isinstance(composite, str) or composite.indivisible:
            continue

        has = [
            child
            for child in whole_children(Root(composite, needs), composite, has_members)
            if running[child]
        ]
        has.sort(key=_by_name, reverse=True)

        ranks: dict[Part, tuple[int, int]] = {}
        for part in has:
            members = running[part]
            # Python's integers: a part whose members have all succeeded has the least of int64,
            # which has no negative.
            latest = int(max(since[members]))
            highest = int(max(priority[members]))
            ranks[part] = (highest, -latest)

        has.sort(key=ranks.__getitem__)
        above = max(0, len(has) - composite.min_children)
        for part in has[:above]:
            for g in running[part]:
                spare[g] = part_id(part)

        open_parts += has[above:]

    return spare


def _by_name(part: Part) -> tuple[int, str]:
    name = part_id(part)
    return len(name), name


def _cores(
    columns: RunningColumns,
    eligible: Bools,
    staying: Bools,
    theirs: Bools,
    stops: Bools,
    parts: Sequence[str],
) -> Cores:
    """The groups as units, and children of trees that can be spared, by gang in `parts`; one of
    whose pods may not be taken, or is not known or being bound, is not open.

    A spare child is a unit besides its tree, which is evicted with all its children.
    """
    spare = bools([bool(part) for part in parts])
    names = [
        f"{gang.group} {part}" if part else gang.group
        for gang, part in zip(columns.gangs, parts, strict=True)
    ]
    groups = sorted({*(gang.group for gang in columns.gangs), *names})
    number = {group: c for c, group in enumerate(groups)}
    group_of = ints([number[gang.group] for gang in columns.gangs])
    unit_of = ints([number[name] for name in names])

    # The pods of a spare child count twice: for the child's core and for that of its tree.
    own = np.flatnonzero(staying)
    of_spare = own[spare[columns.gang[own]]] if spare.any() else own[:0]
    pods = np.concatenate((own, of_spare))
    core = np.concatenate((group_of[columns.gang[own]], unit_of[columns.gang[of_spare]]))
    size = len(groups)

    def units(gangs: Bools) -> Ints:
        return np.concatenate((group_of[gangs], unit_of[gangs & spare]))

    closed = ~theirs | ~columns.whole | bools([gang.binding for gang in columns.gangs])
    shut = np.bincount(units(closed), minlength=size) + np.bincount(
        core[~eligible[pods]],
        minlength=size,
    )
    count = np.bincount(core, minlength=size)
    is_open = (shut == 0) & (count > 0)
    priority = np.full(size, np.iinfo(np.int64).min)
    np.maximum.at(priority, core, columns.priority[pods])
    of = np.full(len(columns.running), NONE, dtype=np.int64)
    units_of_pods = unit_of[columns.gang[own]]
    of[own] = np.where(is_open[units_of_pods], units_of_pods, NONE)

    # Pods sorted by core: those of core c begin where all cores before it have had theirs.
    order = pods[np.argsort(core, kind="stable")]
    first = np.concatenate(([0], np.cumsum(count)))
    stopped = np.bincount(units(stops), minlength=size)
    within = padded(size, NONE)
    within[unit_of[spare]] = group_of[spare]

    return Cores(
        groups,
        group_of,
        unit_of,
        parts,
        within,
        is_open,
        priority,
        stopped,
        of,
        order,
        first,
    )
