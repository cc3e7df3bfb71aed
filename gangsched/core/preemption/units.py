"""What may be taken from whom: units, each whole or not at all (V5, V6).

Law: a gang above its minimum has a surplus, whose members go one by one; below it, its whole group goes, in every
namespace. A unit's priority is its highest, and is below the right of the group that it makes room for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gangsched.core.preemption.columns import Columns
from gangsched.core.preemption.preemptor import Preemptor
from gangsched.model.preemption import RunningGang
from gangsched.model.snapshot import Bools, Ints


@dataclass(frozen=True, slots=True)
class Core:
    """All bound `pods` of all gangs of a group; `stopped` are those gangs that run now and cannot after it (V8)."""

    group: str
    pods: tuple[int, ...]
    priority: int
    stopped: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Units:
    """What one preemptor may take.

    `single[i]`: pod `i` may go by itself, as a plain pod or while its gang has a surplus. `surplus[g]` is how many
    members gang `g` has above its minimum. `by_age` are the members that may go by themselves in the order in which
    they do within a gang: lower priority first, then the latest created. `core_of[i]` is the core that has pod `i`, -1
    for none.
    """

    columns: Columns
    single: Bools
    surplus: Ints
    by_age: Ints
    cores: Sequence[Core]
    core_of: Ints

    @classmethod
    def of(cls, preemptor: Preemptor, columns: Columns, allowed: Bools) -> Units:
        """The units of lower priority, of pods that `allowed` leaves; not those of the preemptor's own group."""
        eligible = allowed & ~columns.spared & (columns.priority < preemptor.right) & (columns.node >= 0)
        staying = [columns.staying(gang) for gang in columns.gangs]
        surplus = np.zeros(len(columns.gangs), dtype=np.int64)
        by_group: dict[str, list[int]] = {}
        for g, gang in enumerate(columns.gangs):
            if gang.group == preemptor.group.id:
                continue
            by_group.setdefault(gang.group, []).append(g)
            surplus[g] = 0 if gang.indivisible else max(0, _running(gang, staying[g]) - gang.min_member)
        cores = _cores(by_group, staying, eligible, columns)
        core_of = np.full(len(columns.pods), -1, dtype=np.int64)
        for c, core in enumerate(cores):
            core_of[list(core.pods)] = c
        member = columns.gang >= 0
        elastic = surplus[columns.gang] > 0 if len(surplus) else member
        single = eligible & ((columns.gang == -1) | (member & elastic))
        return cls(columns, single, surplus, _by_age(columns, np.flatnonzero(single & member)), cores, core_of)

    def upto(self, level: int, region: Bools, order: Ints | None = None) -> tuple[Ints, list[Core]]:
        """Pods that may go by themselves, and cores, of priority `level` at most and with a pod on a node of `region`.

        Of a gang as many pods as it has above its minimum, the first by age; with `order[i]`, the lowest of that first.
        """
        columns, inside = self.columns, self.inside(region)
        may_go = self.single & inside & (columns.priority <= level)
        members = self.by_age[may_go[self.by_age]]
        if members.size:
            if order is not None:
                members = members[np.lexsort((order[members], columns.gang[members]))]
            gangs = columns.gang[members]
            place = np.arange(members.size) - np.searchsorted(gangs, gangs, side="left")
            members = members[place < self.surplus[gangs]]
        plain = np.flatnonzero(may_go & (columns.gang == -1))
        there = np.unique(self.core_of[inside & (self.core_of >= 0)]).tolist()
        return np.concatenate((plain, members)), [self.cores[c] for c in there if self.cores[c].priority <= level]

    def inside(self, region: Bools) -> Bools:
        """`inside[i]`: pod `i` is on a node of `region`."""
        return (self.columns.node >= 0) & region[self.columns.node]

    def could_go(self, level: int) -> Bools:
        """`could_go[i]`: pod `i` could be taken by itself or with its group at `level`, whatever else is."""
        cores = np.array([core.priority <= level for core in self.cores], dtype=np.bool_)
        with_core = (self.core_of >= 0) & cores[self.core_of] if self.cores else np.zeros_like(self.single)
        return (self.single & (self.columns.priority <= level)) | with_core

    def levels(self, region: Bools) -> list[int]:
        """The priorities of units with a pod in `region`, ascending."""
        inside = self.inside(region)
        there = np.unique(self.core_of[inside & (self.core_of >= 0)]).tolist()
        return sorted({*self.columns.priority[self.single & inside].tolist(), *(self.cores[c].priority for c in there)})


def _running(gang: RunningGang, staying: Sequence[int] | None) -> int:
    """Members that count towards the minimum now."""
    return len(gang.uids if staying is None else staying) + gang.succeeded


def _by_age(columns: Columns, members: Ints) -> Ints:
    """Members in the order in which they go within a gang; of those created at once the highest ordinal first."""
    pods, gang = columns.pods, columns.gang.tolist()
    by_name = sorted(members.tolist(), key=lambda i: (len(pods[i].name), pods[i].name, pods[i].uid), reverse=True)
    by_name.sort(key=lambda i: (gang[i], pods[i].priority, -pods[i].creation_s))
    return np.array(by_name, dtype=np.int64)


def _cores(
    by_group: Mapping[str, Sequence[int]], staying: Sequence[Sequence[int] | None], eligible: Bools, columns: Columns
) -> list[Core]:
    """The groups that may be taken as a whole, by id."""
    may_go, priority = eligible.tolist(), columns.priority.tolist()
    cores = []
    for group, numbers in sorted(by_group.items()):
        gangs = [columns.gangs[g] for g in numbers]
        known = [members for g in numbers if (members := staying[g]) is not None]
        pods = [i for members in known for i in members]
        unknown = len(known) < len(gangs) or any(gang.binding for gang in gangs)
        if unknown or not pods or not all(may_go[i] for i in pods):
            continue
        stopped = [
            gang.id
            for gang, members in zip(gangs, known, strict=True)
            if gang.min_member >= 2 and _running(gang, members) >= gang.min_member
        ]
        cores.append(Core(group, tuple(sorted(pods)), max(priority[i] for i in pods), tuple(sorted(stopped))))
    return cores
