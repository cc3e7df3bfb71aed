"""Units of eviction: each is evicted as a whole or not at all (V5, V6).

Invariant: members of a gang above its minimum (its surplus) are evicted one by one; at the minimum the whole group is
evicted, in every namespace. A child above the minimum of its tree is evicted whole, by itself. Members of a gang with
disruption mode Pod are always evicted one by one. A unit's priority is that of its highest member, and is below the
preemptor's.

A unit is a number (`numbers.UnitNumbers`): a pod by itself, or a core, which is a whole group or child.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from gangsched.core.preemption.columns import RunningColumns
from gangsched.core.preemption.numbers import NONE, UnitNumbers, bools, by_gang, ints, lookup, padded, present
from gangsched.core.preemption.preemptor import Preemptor
from gangsched.model.snapshot import Bools, Ints
from gangsched.model.tree import Composite, Part, composites_of, gangs_of, has_minimum, part_id


@dataclass(frozen=True, slots=True, eq=False)
class Cores:
    """Cores (groups, or children of trees, that are evicted as a whole), sorted by id. `open[c]`: core `c` may be
    evicted; `priority[c]` is its priority, and `stops[c]` the gangs that its eviction stops.

    A child above the minimum of its tree is a core of its own in addition to its tree: `group_of[g]` is the core of the
    group of gang `g`, and `unit_of[g]` the core of the gang itself. Evicting core `within[c]` also evicts core `c`; it
    is NONE for none, and `within` is padded. `of[i]` is the smallest core that pod `i` belongs to, NONE for none.
    `pods[first[c]:first[c + 1]]` are the pods of core `c`.
    """

    groups: Sequence[str]
    group_of: Ints
    unit_of: Ints
    within: Ints
    open: Bools
    priority: Ints
    stops: Ints
    of: Ints
    pods: Ints
    first: Ints

    def among(self, pods: Bools) -> Ints:
        """Cores of these pods, each once, ascending."""
        return present(self.of[pods], len(self.groups))

    def members(self, core: int) -> Ints:
        """Pods of a core (a group that is evicted as a whole)."""
        found: Ints = self.pods[self.first[core] : self.first[core + 1]]
        return found


@dataclass(frozen=True, slots=True, eq=False)
class Units:
    """Units that one preemptor may evict.

    `single[i]`: pod `i` may be evicted by itself, as a plain pod or as surplus of its gang. `running[g]` members of
    gang `g` count towards its minimum; `surplus[g]` are above it. `by_age` orders the single pods as they are evicted
    within a gang: lower priority first, then the latest created, then the highest ordinal.
    """

    columns: RunningColumns
    numbers: UnitNumbers
    single: Bools
    running: Ints
    surplus: Ints
    by_age: Ints
    cores: Cores

    @classmethod
    def of(cls, preemptor: Preemptor, columns: RunningColumns, allowed: Bools) -> Units:
        """Units of lower priority among the pods that `allowed` selects, without the preemptor's own group."""
        gangs, gang = columns.gangs, columns.gang
        eligible = allowed & ~columns.spared & (columns.priority < preemptor.right) & columns.on_node
        staying = columns.in_gang & ~columns.going
        running = np.bincount(gang[staying], minlength=len(gangs)) + ints([each.succeeded for each in gangs])
        least = ints([each.min_member for each in gangs])
        theirs = bools([each.group != preemptor.group.id for each in gangs])
        divisible = bools([not each.indivisible for each in gangs])
        singly = bools([each.disrupted_singly for each in gangs])
        surplus = np.where(theirs & divisible, np.maximum(running - np.where(singly, 0, least), 0), 0)
        single = eligible & by_gang(surplus > 0, gang, plain=True)
        together = staying & ~by_gang(singly, gang)
        spare = _spare(columns, together, theirs & (running >= np.maximum(least, 1)))
        # A gang with a minimum of 1 is never stopped: its last pod goes as a single pod does.
        cores = _cores(columns, eligible, together, theirs, (least >= 2) & (running >= least) & ~singly, spare)
        by_age = _by_age(columns, np.flatnonzero(single & columns.in_gang))
        return cls(columns, UnitNumbers(len(columns)), single, running, surplus, by_age, cores)

    def upto(self, level: int, region: Bools, order: Ints | None = None) -> tuple[Ints, Ints]:
        """Single pods and cores of at most priority `level` with a pod on a node of `region`.

        Of each gang at most its surplus, in the order of `by_age`, or with `order[i]` the lowest values first.
        """
        columns, inside = self.columns, self.columns.inside(region)
        may_go = self.single & inside & (columns.priority <= level)
        members = self.by_age[may_go[self.by_age]]
        if members.size:
            if order is not None:
                members = members[np.lexsort((order[members], columns.gang[members]))]
            gangs = columns.gang[members]
            # `members` are sorted by gang, so a member's place in its gang is its index less that of the gang's first.
            place = np.arange(members.size) - np.searchsorted(gangs, gangs, side="left")
            members = members[place < self.surplus[gangs]]
        plain = np.flatnonzero(may_go & columns.plain)
        there = self.cores.among(inside)
        return np.concatenate((plain, members)), there[self.cores.priority[there] <= level]

    def could_go(self, level: int) -> Bools:
        """`could_go[i]`: pod `i` alone, or its group, could be evicted at `level`."""
        low = lookup(self.cores.priority <= level, self.cores.of, none=False)
        return (self.single & (self.columns.priority <= level)) | low

    def levels(self, region: Bools) -> list[int]:
        """Priorities of units with a pod in `region`, ascending."""
        inside = self.columns.inside(region)
        there = self.cores.among(inside)
        return sorted({*self.columns.priority[self.single & inside].tolist(), *self.cores.priority[there].tolist()})

    def pods_of(self, units: Iterable[int]) -> list[int]:
        """Pods of these units, each once."""
        chosen = tuple(units)
        with_core = (self.cores.members(core).tolist() for core in self.numbers.cores(chosen))
        return sorted({*self.numbers.singles(chosen), *chain.from_iterable(with_core)})

    def pods(self, unit: int) -> list[int]:
        """Pods of one unit."""
        return self.cores.members(self.numbers.core(unit)).tolist() if self.numbers.is_core(unit) else [unit]

    def stopped(self, units: Iterable[int]) -> list[str]:
        """Gangs that fall below their minimum if these units are evicted."""
        gone, singly = set(self.numbers.cores(units)), self.stopped_singly(units)
        of_gangs = zip(self.cores.group_of.tolist(), self.cores.unit_of.tolist(), strict=True)
        gangs = zip(self.columns.gangs, of_gangs, self.running.tolist(), strict=True)
        return sorted(
            gang.id
            for gang, own, number in gangs
            if gang.id in singly
            or (gone & {*own} and not gang.disrupted_singly and gang.min_member >= 2 and number >= gang.min_member)
        )

    def stopped_singly(self, units: Iterable[int]) -> set[str]:
        """Stopped gangs whose pods are evicted one by one."""
        taken = Counter(self.columns.gang[self.numbers.singles(units)].tolist())
        gangs = ((self.columns.gangs[g], int(self.running[g]), number) for g, number in taken.items() if g >= 0)
        return {
            gang.id
            for gang, running, number in gangs
            if gang.disrupted_singly and gang.min_member >= 2 and running - number < gang.min_member <= running
        }

    def name(self, unit: int) -> str:
        """A name of a unit that is stable across plans."""
        if self.numbers.is_core(unit):
            return f"group {self.cores.groups[self.numbers.core(unit)]}"
        return self.columns.pod(unit).uid


def _by_age(columns: RunningColumns, members: Ints) -> Ints:
    """Members in the order in which they go within a gang."""
    table = columns.table
    created, ordinals = table.field("created")[members], table.ordinals(members)
    keys = [table.field("key")[members], -ordinals, -created, columns.priority[members], columns.gang[members]]
    return members[np.lexsort(keys)]


def _spare(columns: RunningColumns, staying: Bools, whole: Bools) -> list[str]:
    """By gang, the child above the minimum of its composite that it is part of, "" for none; those of low priority and
    the latest go first.
    """
    gangs, spare = columns.gangs, [""] * len(columns.gangs)
    trees = {gang.group: gang.tree for g, gang in enumerate(gangs) if gang.tree is not None and whole[g]}
    if not trees:
        return spare
    pods, created = np.flatnonzero(staying), columns.table.field("created")
    priority, since = (np.full(len(gangs), np.iinfo(np.int64).min) for _ in range(2))
    np.maximum.at(priority, columns.gang[pods], columns.priority[pods])
    np.maximum.at(since, columns.gang[pods], created[pods])
    number = {gang.id: g for g, gang in enumerate(gangs)}
    running = {part: [number[each] for each in gangs_of(part) if each in number] for part in _parts(trees.values())}

    def is_whole(gang: str) -> bool:
        return gang in number and bool(whole[number[gang]])

    # From the root down: below a child that goes as a whole, nothing goes by itself.
    open_parts = [*trees.values()]
    while open_parts:
        composite = open_parts.pop()
        if composite.indivisible:
            continue
        has = [each for each in composite.children if running[each] and has_minimum(each, is_whole)]
        has.sort(key=lambda part: (len(part_id(part)), part_id(part)), reverse=True)
        has.sort(key=lambda part: (max(priority[running[part]]), -max(since[running[part]])))
        above = max(0, len(has) - composite.min_children)
        for part in has[:above]:
            for g in running[part]:
                spare[g] = part_id(part)
        open_parts += [each for each in has[above:] if isinstance(each, Composite)]
    return spare


def _parts(trees: Iterable[Composite]) -> set[Part]:
    return {child for each in composites_of(*trees) for child in each.children}


def _cores(
    columns: RunningColumns, eligible: Bools, staying: Bools, theirs: Bools, stops: Bools, parts: Sequence[str]
) -> Cores:
    """The groups as units, and children of trees that can be spared, by gang in `parts`; one of whose pods may not be
    taken, or is not known or being bound, is not open.

    A spare child is a unit besides its tree, which is evicted with all its children.
    """
    spare = bools([bool(part) for part in parts])
    names = [f"{gang.group} {part}" if part else gang.group for gang, part in zip(columns.gangs, parts, strict=True)]
    groups = sorted({*(gang.group for gang in columns.gangs), *names})
    number = {group: c for c, group in enumerate(groups)}
    group_of, unit_of = ints([number[gang.group] for gang in columns.gangs]), ints([number[name] for name in names])
    # The pods of a spare child count twice: for the child's core and for that of its tree.
    own = np.flatnonzero(staying)
    again = own[spare[columns.gang[own]]] if spare.any() else own[:0]
    pods = np.concatenate((own, again))
    core = np.concatenate((group_of[columns.gang[own]], unit_of[columns.gang[again]]))
    size = len(groups)

    def units(gangs: Bools) -> Ints:
        return np.concatenate((group_of[gangs], unit_of[gangs & spare]))

    closed = ~theirs | ~columns.whole | bools([gang.binding for gang in columns.gangs])
    shut = np.bincount(units(closed), minlength=size) + np.bincount(core[~eligible[pods]], minlength=size)
    count = np.bincount(core, minlength=size)
    is_open = (shut == 0) & (count > 0)
    priority = np.full(size, np.iinfo(np.int64).min)
    np.maximum.at(priority, core, columns.priority[pods])
    of = np.full(len(columns), NONE, dtype=np.int64)
    units_of_pods = unit_of[columns.gang[own]]
    of[own] = np.where(is_open[units_of_pods], units_of_pods, NONE)
    # Pods sorted by core: those of core c begin where all cores before it have had theirs.
    order = pods[np.argsort(core, kind="stable")]
    first = np.concatenate(([0], np.cumsum(count)))
    stopped = np.bincount(units(stops), minlength=size)
    within = padded(size, NONE)
    within[unit_of[spare]] = group_of[spare]
    return Cores(groups, group_of, unit_of, within, is_open, priority, stopped, of, order, first)
