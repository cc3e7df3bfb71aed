"""Children of composites: the children that have started or are ready, their start order, and the
choices among them that differ (I9).

Invariant: everything is derived from one view of the tree, and from the gangs that one decision has
`placed` so far.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations_with_replacement, islice
from typing import TypeAlias

from msgspec import structs

from gangsched.core import findings
from gangsched.core.pre_filter import cannot_start
from gangsched.core.search.openings import ways
from gangsched.core.work import OutOfWork, Work
from gangsched.model.gang import Gang, Group, Refusal
from gangsched.model.objects import Pod
from gangsched.model.tree import (
    Composite,
    Part,
    composites_of,
    gangs_of,
    limited,
    part_id,
    spares_children,
    starts_in_parts,
)

Order: TypeAlias = tuple[bool, bool, int, int, int, str]
"""Where a child stands among those that may start; smaller goes first."""

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
    _choices_of: dict[str, list[Part]] = field(default_factory=dict)
    #: Asked for each child again and again.
    _orders: dict[Part, Order] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Index the gangs by id: as they are, and as a decision changes them."""
        for gang in self.group.gangs:
            self.declared[gang.id] = gang
            self.gangs[gang.id] = gang

    # --- which have started, and which may start -------------------------------------------------

    def has_started(self, part: Part) -> bool:
        """Whether a gang of the part has started, or was placed by this decision."""
        if isinstance(part, str):
            return part in self.placed or self.gangs[part].satisfied

        return any(map(self.has_started, part.children))

    @cached_property
    def _needing_nothing(self) -> frozenset[str]:
        """The ids of parts that have their minimum without any member."""
        # Most trees have none, which is then known without asking each child again and again.
        names = set()
        for gang in self.group.gangs:
            if gang.least == 0:
                names.add(gang.id)

        composites = [*composites_of(self.group.root)]
        # The inner ones first.
        for composite in reversed(composites):
            idle = sum(part_id(child) in names for child in composite.children)
            if idle >= composite.min_children:
                names.add(composite.id)

        return frozenset(names)

    def counted(self, composite: Composite) -> list[Part]:
        """Children that count towards the minimum of the composite: they have started, or need
        nothing.
        """
        nothing = self._needing_nothing
        if not nothing:
            return self.started(composite)

        return [
            child
            for child in composite.children
            if part_id(child) in nothing or self.has_started(child)
        ]

    def started(self, composite: Composite) -> list[Part]:
        """Children that have started."""
        return [child for child in composite.children if self.has_started(child)]

    def waiting(self, composite: Composite) -> list[Part]:
        """Children that have not started, in start order."""
        waiting = [child for child in composite.children if not self.has_started(child)]
        return sorted(waiting, key=self._order)

    def ready(self, composite: Composite) -> list[Part]:
        """Waiting children that are ready."""
        return [child for child in self.waiting(composite) if self.unready(child) is None]

    def candidates(self, composite: Composite) -> list[Part]:
        """Ready children that would bring the composite nearer to its minimum."""
        ready = self.ready(composite)
        nothing = self._needing_nothing
        if not nothing:
            return ready

        return [child for child in ready if part_id(child) not in nothing]

    def lack(self, composite: Composite) -> int:
        """Number of further children that the composite needs to reach its minimum."""
        counted = len(self.counted(composite))
        return max(0, composite.min_children - counted)

    def unready(self, part: Part) -> Refusal | None:
        """Why a part that has not started is not ready; None if it is ready."""
        name = part_id(part)
        if name not in self._unready:
            if isinstance(part, str):
                self._unready[name] = cannot_start(self.gangs[part])
            else:
                self._unready[name] = self.missing(part)

        return self._unready[name]

    def missing(self, composite: Composite) -> Refusal | None:
        """Why too few children of a composite are ready; None if enough are."""
        candidates = self.candidates(composite)
        if len(candidates) >= self.lack(composite):
            return None

        first = None
        for child in self.waiting(composite):
            why = self.unready(child)
            if why is not None:
                first = (child, why)
                break

        ready = len(self.counted(composite)) + len(candidates)
        return findings.children_missing(composite, ready, first)

    def _order(self, part: Part) -> Order:
        """The rest of a start first, then those with bound members, then by priority, age and
        number.
        """
        known = self._orders.get(part)
        if known is not None:
            return known

        gangs = [self.declared[gang_id] for gang_id in gangs_of(part)]
        is_rest = any(gang.id in self.group.rest for gang in gangs)
        any_bound = any(gang.bound for gang in gangs)

        pods: list[Pod] = []
        for gang in gangs:
            pods += gang.pending

        priority = max((pod.priority for pod in pods), default=0)
        age = min((pod.creation_s for pod in pods), default=0)

        name = part_id(part)
        order = (not is_rest, not any_bound, -priority, age, len(name), name)
        self._orders[part] = order

        return order

    def needed(self, composite: Composite) -> list[str]:
        """The gangs that the minimum of a composite needs: first the gangs of children that have
        started, then of the first ready ones. If it needs none, those of the first child that would
        start by itself.
        """
        lack = self.lack(composite)
        chosen = self.started(composite) + self.candidates(composite)[:lack]
        if not chosen:
            chosen = self.ready(composite)[:1]

        gangs: list[str] = []
        for child in chosen:
            if isinstance(child, str):
                gangs.append(child)
            else:
                gangs += self.needed(child)

        return gangs

    def is_needed(self, composite: Composite, gangs: Set[str]) -> bool:
        """Whether these gangs are exactly the minimum of a composite, given which of its children
        are ready.
        """
        chosen = []
        for child in composite.children:
            if not gangs.isdisjoint(gangs_of(child)):
                chosen.append(child)

        started = self.started(composite)
        if any(child not in chosen for child in started):
            return False

        candidates = self.candidates(composite)
        lack = self.lack(composite)
        further = [child for child in chosen if child not in started]

        if started or lack:
            if len(further) != min(lack, len(candidates)):
                return False
            if any(child not in candidates for child in further):
                return False
        elif len(further) != 1 or self.unready(further[0]) is not None:
            return False  # it needs none: one that starts by itself

        inner = [child for child in chosen if not isinstance(child, str)]
        return all(self.is_needed(child, gangs) for child in inner)

    def needed_ways(self, composite: Composite) -> Iterator[list[str]]:
        """Yield choices of the gangs that the minimum of a composite needs; each has different
        kinds of gangs.

        If it needs none, yield each kind of a child that would start by itself.
        """
        started = self.started(composite)
        candidates = self.candidates(composite)
        lack = min(self.lack(composite), len(candidates))
        if not started and not lack:
            yield from self._ways_by_themselves(composite)
            return

        own = []
        inner = []
        for part in started:
            if isinstance(part, str):
                own.append(part)
            else:
                inner.append(part)

        for further in self._further(candidates, lack):
            for within in self._needed_within(inner):
                yield [*own, *gangs_of(*further), *within]

    def _further(
        self,
        candidates: Sequence[Part],
        lack: int,
    ) -> Iterator[tuple[Part, ...]]:
        """The choices of `lack` parts; one of no part if none is lacking."""
        if not lack:
            yield ()
            return

        for _, chosen in self.choices(candidates, lack):
            yield chosen

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

    def _needed_within(self, composites: Sequence[Composite]) -> Iterator[list[str]]:
        """Every choice within one composite, with every one within the others."""
        if not composites:
            yield []
            return

        for gangs in self.needed_ways(composites[0]):
            for others in self._needed_within(composites[1:]):
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
        if is_flat:
            takes_all = lack == len(ready)
            if takes_all or len(self.by_kind(ready)) == 1:
                return

        first_signature = self._signature(first)
        skipped = max(0, begin - 1)
        units = UNITS_A_SKIPPED_CHOICE + len(self.gangs) // 16
        self.work.charge(skipped * units)

        # Choices within composites are made again, since what they combine depends on those before.
        passed = skipped if is_flat else 0
        for number, choice in enumerate(self._ways(ready, lack, passed), 1 + passed):
            if number >= begin and self._signature(choice) != first_signature:
                yield number, choice

    def _first(self, part: Part) -> Part:
        if isinstance(part, str):
            return part

        lack = self.lack(part)
        first = self.candidates(part)[:lack]
        children = tuple([self._first(child) for child in first])
        return structs.replace(part, children=children, min_children=len(children))

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

        sizes = [len(parts) for parts in kinds]
        for counts in islice(ways(sizes, number), begin, None):
            chosen = []
            for parts, count in zip(kinds, counts, strict=True):
                if count:
                    chosen.append(parts[:count])

            yield from self._combined(chosen)

    def _combined(self, kinds: Sequence[Sequence[Part]]) -> Iterator[tuple[Part, ...]]:
        """Every choice within the parts of each kind, with every one within the parts of the
        others.
        """
        plain: list[Part] = []
        nested = []
        for parts in kinds:
            composites = [part for part in parts if not isinstance(part, str)]
            # The parts of a kind are all gangs or all composites.
            if composites:
                nested.append(composites)
            else:
                plain += parts

        def rest(index: int) -> Iterator[tuple[Part, ...]]:
            if index == len(nested):
                yield tuple(plain)
                return

            for chosen in self._within(nested[index]):
                for others in rest(index + 1):
                    yield (*chosen, *others)

        return rest(0)

    def _within(self, alike: Sequence[Composite]) -> Iterator[tuple[Part, ...]]:
        """Choices within composites of one kind: which of them makes which choice does
        not matter.
        """
        by_part = [self._inner(part) for part in alike]
        most = min(map(len, by_part))
        for picks in combinations_with_replacement(range(most), len(alike)):
            yield tuple([choices[pick] for choices, pick in zip(by_part, picks, strict=True)])

    def _inner(self, part: Composite) -> list[Part]:
        """The choices within one composite, computed once."""
        if part.id in self._choices_of:
            return self._choices_of[part.id]

        candidates = self.candidates(part)
        every_way = self._ways(candidates, self.lack(part))
        some = list(islice(every_way, MAX_INNER_CHOICES + 1))
        self.work.charge(UNITS_AN_INNER_CHOICE * len(some))
        self.is_cut = self.is_cut or len(some) > MAX_INNER_CHOICES

        choices: list[Part] = []
        for children in some[:MAX_INNER_CHOICES]:
            choice = structs.replace(part, children=children, min_children=len(children))
            choices.append(choice)

        self._choices_of[part.id] = choices
        return choices

    def refuted(self, part: Part) -> Refusal | None:
        """Why sums refute a part even by itself, because of a gang or of too many children; None if
        it may fit.
        """
        if isinstance(part, str):
            if self.hopeless is None:
                return None

            return self.hopeless(self.gangs[part])

        candidates = self.candidates(part)
        refuted = []
        for child in candidates:
            why = self.refuted(child)
            if why is not None:
                refuted.append(why)

        spare = len(candidates) - self.lack(part)
        if len(refuted) <= spare:
            return None

        refuted_forever = sum(why.never for why in refuted)
        return structs.replace(refuted[0], never=refuted_forever > spare)

    def none_ever(self, ready: Sequence[Part], lack: int) -> bool:
        """Whether none of the choices skipped because sums refute a part would fit even on empty
        nodes.
        """
        all_refuted_forever = True
        may_ever_fit = 0
        for parts in self.by_kind(ready):
            why = self.refuted(parts[0])
            if why is None:
                may_ever_fit += len(parts)
            elif not why.never:
                may_ever_fit += len(parts)
                all_refuted_forever = False

        return all_refuted_forever or lack > may_ever_fit

    def by_kind(self, parts: Sequence[Part]) -> list[list[Part]]:
        """Parts grouped by `kind`, in order."""
        kinds: dict[int, list[Part]] = {}
        for part in parts:
            alike = kinds.setdefault(self.kind(part), [])
            alike.append(part)

        return list(kinds.values())

    def kind(self, part: Part) -> int:
        """A number that is equal for interchangeable parts: if one of them fits somewhere, so does
        the other.
        """
        name = part_id(part)
        if name not in self._kinds:
            # Numbers, since a choice of a hundred gangs is compared by them, thousands of times.
            described = self._described(part)
            self._kinds[name] = self._numbers.setdefault(described, len(self._numbers))

        return self._kinds[name]

    def _described(self, part: Part) -> Hashable:
        if not isinstance(part, str):
            kinds = Counter(map(self.kind, self.ready(part)))
            return part.min_children, part.topology, frozenset(kinds.items())

        gang = self.gangs[part]
        self.work.charge(2 + len(gang.pending) // 4)

        any_claims = any(pod.claims for pod in gang.pending)
        if gang.bound or gang.held or gang.kept or any_claims:
            return part

        counts = Counter(pod.shape for pod in gang.pending)
        return (
            frozenset(counts.items()),
            gang.min_member,
            gang.constraints,
            gang.min_resources,
            gang.match_policy,
        )

    def _signature(self, chosen: Sequence[Part]) -> Hashable:
        """Equal for choices that differ only in which of several identical parts they take."""
        self.work.charge(2 + len(chosen) // 2)
        counts = Counter(map(self._chosen_kind, chosen))
        return frozenset(counts.items())

    def _chosen_kind(self, part: Part) -> Hashable:
        if isinstance(part, str):
            return self.kind(part)

        return (part.topology, self._signature(part.children))


def needed(group: Group, choice: Set[str] = frozenset()) -> Group:
    """The gangs that the minimum of a group needs, as a group that starts in one round; the group
    itself if it is one.

    Only these gangs preempt and get reservations. They belong to the children that come first or,
    if given, to `choice`.
    """
    # Each plan asks all groups that wait.
    if not group.starts_in_parts:
        return group
    if group.minimum is not None and not choice:
        return group.minimum

    root = group.root
    assert starts_in_parts(root)
    if choice:
        return _only(group, root, choice)

    gangs = TreeParts(group, Work()).needed(root)
    return _only(group, root, {*gangs} or {*gangs_of(root)})


def is_choice(group: Group, choice: Set[str]) -> bool:
    """Whether these gangs are exactly the minimum of a group, given which of its children
    are ready.
    """
    root = group.root
    if not starts_in_parts(root) or not choice <= {*gangs_of(root)}:
        return False

    return TreeParts(group, Work()).is_needed(root, choice)


def has_choices(group: Group) -> bool:
    """Whether a group may start with different children."""
    return spares_children(group.root)


def needed_choices(
    group: Group,
    work: Work,
    hopeless: Callable[[Gang], Refusal | None],
) -> Iterator[Group]:
    """Yield `needed` for each choice of different children, without the choices that sums refute.

    If a composite has more choices than are combined, OutOfWork is raised after the last one.
    """
    root = group.root
    if not starts_in_parts(root):
        yield group
        return

    work.charge(UNITS_A_GANG * len(group.gangs))
    parts = TreeParts(group, work, hopeless)
    for chosen in parts.needed_ways(root):
        work.charge(UNITS_A_NEEDED_CHOICE + len(group.gangs) // 5)
        if chosen:
            yield _only(group, root, {*chosen})

    if parts.is_cut:
        raise OutOfWork


def _only(
    group: Group,
    tree: Composite,
    chosen: Set[str],
) -> Group:
    """The group of only these gangs of its tree, in the domains that the parts around
    them require.
    """
    topology = {*group.topology}
    for part in composites_of(limited(tree, chosen) or tree):
        topology.update(part.topology)

    return structs.replace(
        group,
        gangs=tuple(gang for gang in group.gangs if gang.id in chosen),
        tree=None,
        minimum=None,
        topology=tuple(sorted(topology)),
    )
