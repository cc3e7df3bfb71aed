"""Children of composites: the children that have started or are ready, their start order, and the
choices among them that differ (I9).

Invariant: everything is derived from one view of the tree, and from the gangs that one decision has
`placed` so far.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations_with_replacement, islice

from gangsched.core import findings
from gangsched.core.pre_filter import cannot_start
from gangsched.core.search.openings import ways
from gangsched.core.work import OutOfWork, Work
from gangsched.model.gang import Gang, Group, Refusal
from gangsched.model.tree import Composite, Part, composites_of, gangs_of, limited, part_id

MAX_INNER_CHOICES = 64
"""Choices of the children of one composite that are combined with choices of its siblings."""
UNITS_AN_INNER_CHOICE = 5
"""Units of making one of them."""
UNITS_A_GANG = 10
"""Units of reading one gang of a tree."""
UNITS_A_NEEDED_CHOICE = 20
"""Units of making a group of the gangs of one choice, with a fifth of one for each gang of the
tree.
"""
UNITS_A_SKIPPED_CHOICE = 3
"""Units of passing over a choice that an earlier plan refuted."""


@dataclass(eq=False)
class TreeParts:
    """The parts of one tree. `hopeless` returns the refusal of a gang that sums refute even by
    itself; if it is None, no gang counts as refuted.

    `is_cut`: a composite had more choices than were combined, so not every choice was tried.

    A part whose minimum is 0 needs nothing: it counts towards the minimum around it from the
    beginning, is in no choice, and its children start by themselves once the whole tree has its
    minimum (`model.parts`).
    """

    group: Group
    work: Work
    hopeless: Callable[[Gang], Refusal | None] | None = None
    gangs: dict[str, Gang] = field(default_factory=dict)
    declared: dict[str, Gang] = field(default_factory=dict)
    placed: set[str] = field(default_factory=set)
    is_cut: bool = False
    _unready: dict[str, Refusal | None] = field(default_factory=dict)
    _kinds: dict[str, int] = field(default_factory=dict)
    _numbers: dict[Hashable, int] = field(default_factory=dict)
    _made: dict[str, list[Part]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Index the gangs by id: as they are, and as a decision changes them."""
        self.declared.update((gang.id, gang) for gang in self.group.gangs)
        self.gangs.update(self.declared)

    # --- which have started, and which may start -------------------------------------------------

    def has_started(self, part: Part) -> bool:
        """Whether a gang of the part has started, or was placed by this decision."""
        return any(
            gang_id in self.placed or self.gangs[gang_id].satisfied for gang_id in gangs_of(part)
        )

    @cached_property
    def _needing_nothing(self) -> frozenset[str]:
        """The ids of parts that have their minimum without any member."""
        # Most trees have none, which is then known without asking each child again and again.
        names = set()
        for gang in self.group.gangs:
            if gang.least == 0:
                names.add(gang.id)

        assert self.group.tree is not None

        for composite in reversed([*composites_of(self.group.tree)]):
            if (
                sum(part_id(child) in names for child in composite.children)
                >= composite.min_children
            ):
                names.add(composite.id)

        return frozenset(names)

    def counted(self, composite: Composite) -> list[Part]:
        """Children that count towards the minimum of the composite: they have started, or need
        nothing.
        """
        nothing = self._needing_nothing
        if not nothing:
            result: list[Part] = []
            for child in composite.children:
                if self.has_started(child):
                    result.append(child)

            return result

        return [
            child
            for child in composite.children
            if part_id(child) in nothing or self.has_started(child)
        ]

    def waiting(self, composite: Composite) -> list[Part]:
        """Children that have not started, in start order."""
        return sorted(
            (child for child in composite.children if not self.has_started(child)), key=self._order
        )

    def ready(self, composite: Composite) -> list[Part]:
        """Waiting children that are ready."""
        result: list[Part] = []
        for child in self.waiting(composite):
            if self.unready(child) is None:
                result.append(child)

        return result

    def candidates(self, composite: Composite) -> list[Part]:
        """Ready children that would bring the composite nearer to its minimum."""
        ready = self.ready(composite)
        if not self._needing_nothing:
            return ready

        candidates: list[Part] = []
        for child in ready:
            if part_id(child) not in self._needing_nothing:
                candidates.append(child)

        return candidates

    def lack(self, composite: Composite) -> int:
        """Number of further children that the composite needs to reach its minimum."""
        return max(0, composite.min_children - len(self.counted(composite)))

    def unready(self, part: Part) -> Refusal | None:
        """Why a part that has not started is not ready; None if it is ready."""
        name = part_id(part)
        if name not in self._unready:
            self._unready[name] = (
                cannot_start(self.gangs[part]) if isinstance(part, str) else self.missing(part)
            )

        return self._unready[name]

    def missing(self, composite: Composite) -> Refusal | None:
        """Why too few children of a composite are ready; None if enough are."""
        candidates = self.candidates(composite)
        if len(candidates) >= self.lack(composite):
            return None

        unready = ((child, self.unready(child)) for child in self.waiting(composite))
        first = next(((child, why) for child, why in unready if why is not None), None)
        return findings.children_missing(
            composite,
            len(self.counted(composite)) + len(candidates),
            first,
        )

    def _order(self, part: Part) -> tuple[bool, bool, int, int, int, str]:
        """The rest of a start first, then those with bound members, then by priority, age and
        number.
        """
        gangs = [self.declared[gang_id] for gang_id in gangs_of(part)]
        name = part_id(part)
        priority = max((pod.priority for gang in gangs for pod in gang.pending), default=0)
        age = min((pod.creation_s for gang in gangs for pod in gang.pending), default=0)
        is_rest = any(gang.id in self.group.rest for gang in gangs)

        return not is_rest, not any(gang.bound for gang in gangs), -priority, age, len(name), name

    def needed(self, composite: Composite) -> list[str]:
        """The gangs that the minimum of a composite needs: first the gangs of children that have
        started, then of the first ready ones. If it needs none, those of the first child that would
        start by itself.
        """
        started = []
        for child in composite.children:
            if self.has_started(child):
                started.append(child)

        chosen = [*started, *self.candidates(composite)[: self.lack(composite)]]
        if not chosen:
            chosen = self.ready(composite)[:1]

        gangs: list[str] = []
        for child in chosen:
            gangs += [child] if isinstance(child, str) else self.needed(child)

        return gangs

    def is_needed(self, composite: Composite, gangs: Set[str]) -> bool:
        """Whether these gangs are exactly the minimum of a composite, given which of its children
        are ready.
        """
        chosen = []
        for child in composite.children:
            if not gangs.isdisjoint(gangs_of(child)):
                chosen.append(child)

        started = []
        for child in composite.children:
            if self.has_started(child):
                started.append(child)

        candidates = self.candidates(composite)
        further = [child for child in chosen if child not in started]

        if any(child not in chosen for child in started):
            return False

        if started or self.lack(composite):
            if len(further) != min(self.lack(composite), len(candidates)):
                return False
            if any(child not in candidates for child in further):
                return False
        elif len(further) != 1 or self.unready(further[0]) is not None:
            return False  # it needs none: one that starts by itself

        return all(isinstance(child, str) or self.is_needed(child, gangs) for child in chosen)

    def needed_ways(self, composite: Composite) -> Iterator[list[str]]:
        """Yield choices of the gangs that the minimum of a composite needs; each has different
        kinds of gangs.

        If it needs none, yield each kind of a child that would start by itself.
        """
        started = []
        for child in composite.children:
            if self.has_started(child):
                started.append(child)

        candidates = self.candidates(composite)

        lack = min(self.lack(composite), len(candidates))
        if not started and not lack:
            yield from self._ways_by_themselves(composite)
            return

        begun = []
        for part in started:
            if not isinstance(part, str):
                begun.append(part)

        own = []
        for part in started:
            if isinstance(part, str):
                own.append(part)

        for parts in (each for _, each in self.choices(candidates, lack)) if lack else [()]:
            for others in self._needed_within(begun):
                yield [*own, *gangs_of(*parts), *others]

    def _ways_by_themselves(self, composite: Composite) -> Iterator[list[str]]:
        """Yield for each kind of ready children what one of them needs to start."""
        for alike in self.by_kind(self.ready(composite)):
            first = alike[0]
            if self.refuted(first) is not None:
                continue

            if isinstance(first, str):
                yield [first]
            else:
                yield from self.needed_ways(first)

    def _needed_within(self, begun: Sequence[Composite]) -> Iterator[list[str]]:
        """Every choice within one composite, with every one within the others."""
        if not begun:
            yield []
            return

        for gangs in self.needed_ways(begun[0]):
            for others in self._needed_within(begun[1:]):
                yield [*gangs, *others]

    # --- which choices differ --------------------------------------------------------------------

    def choices(
        self,
        ready: Sequence[Part],
        lack: int,
        begin: int = 0,
    ) -> Iterator[tuple[int, tuple[Part, ...]]]:
        """Yield choices of `lack` parts, in order, each with its number, from number `begin` on. No
        two choices have the same kinds of gangs. Composites are reduced to the chosen children.
        """
        first = tuple([self._first(part) for part in ready[:lack]])
        if not begin:
            yield 0, first

        is_flat = all(isinstance(part, str) for part in ready)
        if is_flat and (lack == len(ready) or len(self.by_kind(ready)) == 1):
            return

        known = self._signature(first)
        skipped = max(0, begin - 1)
        self.work.charge(skipped * (UNITS_A_SKIPPED_CHOICE + len(self.gangs) // 16))

        # others are made anew, since what they combine depends on those before
        passed = skipped if is_flat else 0
        for number, each in enumerate(self._ways(ready, lack, passed), 1 + passed):
            if number >= begin and self._signature(each) != known:
                yield number, each

    def _first(self, part: Part) -> Part:
        if isinstance(part, str):
            return part

        children = tuple([self._first(child) for child in self.candidates(part)[: self.lack(part)]])
        return replace(part, children=children, min_children=len(children))

    def _ways(
        self,
        ready: Sequence[Part],
        number: int,
        begin: int = 0,
    ) -> Iterator[tuple[Part, ...]]:
        """Choices of this many parts, without those that sums refute by themselves; of gangs only,
        from one on.
        """
        kinds = []
        for parts in self.by_kind(ready):
            if self.refuted(parts[0]) is None:
                kinds.append(parts)

        for counts in islice(ways([len(parts) for parts in kinds], number), begin, None):
            yield from self._combined(
                [parts[:count] for parts, count in zip(kinds, counts, strict=True) if count]
            )

    def _combined(self, kinds: Sequence[Sequence[Part]]) -> Iterator[tuple[Part, ...]]:
        """Every choice within the parts of each kind, with every one within the parts of the
        others.
        """
        plain = tuple([part for parts in kinds if isinstance(parts[0], str) for part in parts])
        nested = []
        for parts in kinds:
            nested.append([part for part in parts if not isinstance(part, str)])

        nested = [parts for parts in nested if parts]

        def rest(index: int) -> Iterator[tuple[Part, ...]]:
            if index == len(nested):
                yield plain
                return

            for chosen in self._within(nested[index]):
                for others in rest(index + 1):
                    yield (*chosen, *others)

        return rest(0)

    def _within(self, alike: Sequence[Composite]) -> Iterator[tuple[Part, ...]]:
        """Choices within composites of one kind: which of them makes which choice does
        not matter.
        """
        made = [self._inner(part) for part in alike]
        most = min(map(len, made))
        for picks in combinations_with_replacement(range(most), len(alike)):
            yield tuple([choices[pick] for choices, pick in zip(made, picks, strict=True)])

    def _inner(self, part: Composite) -> list[Part]:
        """The choices within one composite, computed once."""
        found = self._made.get(part.id)
        if found is None:
            ways_of = list(
                islice(self._ways(self.candidates(part), self.lack(part)), MAX_INNER_CHOICES + 1)
            )
            self.work.charge(UNITS_AN_INNER_CHOICE * len(ways_of))
            self.is_cut = self.is_cut or len(ways_of) > MAX_INNER_CHOICES
            found = []

            for each in ways_of[:MAX_INNER_CHOICES]:
                found.append(replace(part, children=each, min_children=len(each)))

            self._made[part.id] = found

        return found

    def refuted(self, part: Part) -> Refusal | None:
        """Why sums refute a part even by itself, because of a gang or of too many children; None if
        it may fit.
        """
        if isinstance(part, str):
            if self.hopeless is not None:
                return self.hopeless(self.gangs[part])

            return None

        whys = [self.refuted(child) for child in self.candidates(part)]
        refuted = [why for why in whys if why is not None]

        spare = len(whys) - self.lack(part)
        if len(refuted) <= spare:
            return None

        never = sum(why.never for why in refuted) > spare
        return replace(refuted[0], never=never)

    def none_ever(self, ready: Sequence[Part], lack: int) -> bool:
        """Whether none of the choices skipped because sums refute a part would fit even on empty
        nodes.
        """
        found = []
        for parts in self.by_kind(ready):
            found.append((len(parts), self.refuted(parts[0])))

        return all(why is None or why.never for _, why in found) or lack > sum(
            number for number, why in found if why is None or not why.never
        )

    def by_kind(self, parts: Sequence[Part]) -> list[list[Part]]:
        """Parts grouped by `kind`, in order."""
        kinds: dict[int, list[Part]] = {}
        for part in parts:
            kinds.setdefault(self.kind(part), []).append(part)

        return list(kinds.values())

    def kind(self, part: Part) -> int:
        """A number that is equal for interchangeable parts: if one of them fits somewhere, so does
        the other.
        """
        name = part_id(part)
        if name not in self._kinds:
            # Numbers, since a choice of a hundred gangs is compared by them, thousands of times.
            self._kinds[name] = self._numbers.setdefault(self._described(part), len(self._numbers))

        return self._kinds[name]

    def _described(self, part: Part) -> Hashable:
        if not isinstance(part, str):
            return (
                part.min_children,
                part.topology,
                frozenset(Counter(map(self.kind, self.ready(part))).items()),
            )

        gang = self.gangs[part]
        self.work.charge(2 + len(gang.pending) // 4)

        if gang.bound or gang.held or gang.kept or any(pod.claims for pod in gang.pending):
            return part

        shapes = frozenset(Counter(pod.shape for pod in gang.pending).items())
        return shapes, gang.min_member, gang.constraints, gang.min_resources, gang.match_policy

    def _signature(self, chosen: Sequence[Part]) -> Hashable:
        """Equal for choices that differ only in which of several identical parts they take."""
        self.work.charge(2 + len(chosen) // 2)
        return frozenset(Counter(map(self._chosen_kind, chosen)).items())

    def _chosen_kind(self, part: Part) -> Hashable:
        if isinstance(part, str):
            return self.kind(part)

        return (part.topology, self._signature(part.children))


def needed(group: Group, choice: Set[str] = frozenset()) -> Group:
    """The gangs that the minimum of a tree needs, as a group that starts as a whole.

    Only these gangs preempt and get reservations. They belong to the children that come first or,
    if given, to `choice`. A group that is not a tree is returned unchanged.
    """
    tree = group.tree
    if tree is None:
        return group
    if choice:
        return _only(group, tree, choice)
    if group.minimum is not None:
        return group.minimum

    return _only(group, tree, {*TreeParts(group, Work()).needed(tree)} or {*gangs_of(tree)})


def is_choice(group: Group, choice: Set[str]) -> bool:
    """Whether these gangs are exactly the minimum of a tree, given which of its children
    are ready.
    """
    known = {gang.id for gang in group.gangs}
    return (
        group.tree is not None
        and choice <= known
        and TreeParts(group, Work()).is_needed(group.tree, choice)
    )


def has_choices(group: Group) -> bool:
    """Whether a tree may start with different children."""
    composites = composites_of(group.tree) if group.tree is not None else ()
    return any(composite.min_children < len(composite.children) for composite in composites)


def needed_choices(
    group: Group,
    work: Work,
    hopeless: Callable[[Gang], Refusal | None],
) -> Iterator[Group]:
    """Yield `needed` for each choice of different children, without the choices that sums refute.

    If a composite has more choices than are combined, OutOfWork is raised after the last one.
    """
    tree = group.tree
    if tree is None:
        return

    work.charge(UNITS_A_GANG * len(group.gangs))
    parts = TreeParts(group, work, hopeless)
    for chosen in parts.needed_ways(tree):
        work.charge(UNITS_A_NEEDED_CHOICE + len(group.gangs) // 5)
        if chosen:
            yield _only(group, tree, {*chosen})

    if parts.is_cut:
        raise OutOfWork


def _only(group: Group, tree: Composite, chosen: Set[str]) -> Group:
    """The group of only these gangs of its tree, in the domains that the parts around
    them require.
    """
    of_parts = (
        key for part in composites_of(limited(tree, chosen) or tree) for key in part.topology
    )
    gangs = tuple(gang for gang in group.gangs if gang.id in chosen)
    return replace(
        group,
        gangs=gangs,
        tree=None,
        minimum=None,
        topology=tuple(sorted({*group.topology, *of_parts})),
    )
