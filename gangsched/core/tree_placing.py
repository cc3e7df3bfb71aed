"""Placing parts of a tree: units of gangs that are decided like groups, one after the other or
packed together (I9).

Invariant: parts are placed all or none; what does not fit leaves the ledger unchanged. Nothing here
chooses which parts start.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

from msgspec import structs

from gangsched.core.homes import Beside, homes_beside
from gangsched.core.permit import permitted
from gangsched.core.progress import Progress
from gangsched.core.reserve import Ledger
from gangsched.core.search.find import PODS
from gangsched.core.search.part_kinds import kinds_in_packing
from gangsched.core.tree_choices import TreeParts
from gangsched.core.work import OutOfWork
from gangsched.model.gang import Gang, Group
from gangsched.model.objects import Pod
from gangsched.model.plan import Verdict
from gangsched.model.tree import Composite, Part, composites_of, gangs_of, parents_of, part_id

Decide: TypeAlias = Callable[[Group], Verdict]
Made: TypeAlias = tuple[Verdict, Sequence[Gang]]
"""The verdict on some gangs."""
UNITS_A_PART = 100
"""Units of deciding gangs as a group, besides what that charges."""
MOST_KINDS = 64
"""Kinds of pods and children that are packed together: building the problem takes the square of
their number.
"""


@dataclass(eq=False)
class TreePlacing:
    """Places parts of one tree; `decide` decides some of its gangs like a separate group."""

    group: Group
    tree: Composite
    ledger: Ledger
    decide: Decide
    children: TreeParts
    progress: Progress
    #: What this decision has placed so far.
    kept: list[Made] = field(default_factory=list)
    #: The names of the units that were decided for the present choice of children.
    of_choice: list[str] = field(default_factory=list)
    #: The gangs beside which those are placed that a part lost as a whole; none for other parts.
    running: Sequence[Gang] = ()
    #: A refusal is proven: no search was left out.
    is_proven: bool = True
    _packed: dict[object, int | None] = field(default_factory=dict)

    @cached_property
    def _parents(self) -> dict[str, Composite]:
        return parents_of(self.tree)

    def fit(
        self,
        name: str,
        chosen: Sequence[Part],
        beside: Sequence[Made] = (),
    ) -> list[Made] | Verdict:
        """The decisions that place all gangs of these parts, else the refusal of some of them.

        Parts that require domains take them one after the other, and are packed together where one
        finds none beside those before it.
        """
        units = self._apart(chosen)
        checkpoint = self.ledger.checkpoint()
        found: list[Made] = []
        refused: Verdict | None = None

        for unit in units:
            made = self._fit_unit(name, unit, (*beside, *found))
            if isinstance(made, Verdict):
                refused = made
                break

            found += made

        if refused is None:
            return found

        self.ledger.rollback(checkpoint)
        if self._may_be_packed(chosen, units):
            verdict = self.part(
                f"{name} together {part_id(chosen[0])}",
                chosen,
                beside=beside,
                apart=True,
            )
            gangs = self.gangs(chosen)
            if starts(gangs, verdict):
                return [(verdict, gangs)]

            self.ledger.rollback(checkpoint)

        return refused

    def _fit_unit(
        self,
        name: str,
        unit: Sequence[Part],
        beside: Sequence[Made],
    ) -> list[Made] | Verdict:
        """As `_fit`, for parts that are placed at one time."""
        first = unit[0]
        if not isinstance(first, str) and self.requires(*first.children):
            return self.fit(f"{name} {first.id}", first.children, beside)

        gangs = self.gangs(unit)
        verdict = self.part(f"{name} {part_id(first)}", unit, beside=beside)
        if starts(gangs, verdict):
            return [(verdict, gangs)]

        return verdict

    def gangs(self, parts: Sequence[Part]) -> list[Gang]:
        """All gangs of these parts, as the decision sees them now."""
        return [self.children.gangs[gang_id] for gang_id in gangs_of(*parts)]

    def requires(self, *parts: Part) -> bool:
        """Whether one of these parts requires domains of its own."""
        for composite in composites_of(*parts):
            if composite.topology:
                return True

        for gang in self.gangs(parts):
            stated = gang.constraints
            if stated.topology or stated.same_product:
                return True

        return False

    def _apart(self, parts: Sequence[Part]) -> list[Sequence[Part]]:
        """Parts that require domains, each by itself, and all other gangs together."""
        apart: list[Sequence[Part]] = []
        others: list[Part] = []

        open_parts = [*reversed(parts)]
        while open_parts:
            part = open_parts.pop()
            if isinstance(part, str):
                if self.requires(part):
                    apart.append([part])
                else:
                    others.append(part)

            elif not part.topology:
                open_parts += reversed(part.children)
            elif gangs_of(part):
                apart.append([part])

        if others:
            apart.append(others)

        return apart

    def _may_be_packed(self, chosen: Sequence[Part], units: Sequence[Sequence[Part]]) -> bool:
        """Whether one search for all parts, of which identical ones are one kind, may find what
        units did not.
        """
        gangs = self.gangs(chosen)
        if len(gangs) == 1:
            return False

        if not self._are_slices(chosen):
            self.is_proven = self.is_proven and len(units) == 1
            return False

        if len(units) > 1:
            return True

        pods: list[Pod] = []
        for gang in gangs:
            pods += gang.pending

        shapes = {id(pod.shape) for pod in pods}
        return len(shapes) > 1 and len(pods) <= PODS

    def _are_slices(self, parts: Sequence[Part]) -> bool:
        """Whether all of these parts can be packed together, as so few kinds that a plan can
        compare them.
        """
        known = self._packed
        left = MOST_KINDS

        for kind, part in {self._kind(part): part for part in parts}.items():
            if kind not in known:
                self.ledger.work.charge(
                    6 + sum(len(gang.pending) for gang in self.gangs([part])) // 2
                )
                known[kind] = kinds_in_packing(part, self.children.gangs, self.ledger.table)

            number = known[kind]
            if number is None or number > left:  # of 128 different children most need not be read
                return False

            left -= number

        return True

    def _kind(self, part: Part) -> object:
        if isinstance(part, str):
            return self.children.kind(part)

        return part

    def part(
        self,
        name: str,
        parts: Sequence[Part],
        *,
        beside: Sequence[Made] = (),
        apart: bool = False,
    ) -> Verdict:
        """Decide gangs as a group, or do as an earlier plan decided. Out of work, it leaves the
        ledger unchanged.

        Those placed before them, in this plan or earlier, say in which domains of the composites
        around them they start.
        """
        self.of_choice.append(name)
        checkpoint = self.ledger.checkpoint()
        gangs = self.gangs(parts)

        try:
            verdict = self._again(name, gangs)
            if verdict is None:
                self.ledger.work.charge(UNITS_A_PART + len(self.group.gangs) // 5)
                self.progress.begin(name)
                joint = self._joint(parts, beside, apart=apart)
                verdict = self.decide(joint)
        except OutOfWork:
            self.ledger.rollback(checkpoint)
            raise

        self.progress.parts[name] = verdict
        return verdict

    def _joint(
        self,
        parts: Sequence[Part],
        beside: Sequence[Made],
        *,
        apart: bool,
    ) -> Group:
        """The gangs of these parts as a group that starts in one round."""
        around = [*self._around(parts[0])]
        if len(parts) == 1 and not apart and isinstance(parts[0], Composite):
            around += composites_of(parts[0])

        labels: set[str] = set()
        for composite in around:
            labels.update(composite.topology)

        gangs = self.gangs(parts)
        near: tuple[Beside, ...] = ()
        if self.running:
            near = homes_beside(self.running, gangs, self.ledger)

        return structs.replace(
            self.group,
            gangs=tuple(sorted(gangs, key=_id)),
            rest=self.group.rest & {gang.id for gang in gangs},
            tree=None,
            minimum=None,
            topology=tuple(sorted(labels)),
            apart=tuple(parts) if apart else (),
            beside=self._beside(around, gangs, beside),
            near=near,
        )

    def _around(self, part: Part) -> Iterator[Composite]:
        """The composites around a part that require domains, innermost first, as the whole tree has
        them.
        """
        composite = self._parents.get(part_id(part))
        while composite is not None:
            if composite.topology:
                yield composite

            composite = self._parents.get(composite.id)

    def _beside(
        self,
        around: Sequence[Composite],
        gangs: Sequence[Gang],
        found: Sequence[Made],
    ) -> tuple[Beside, ...]:
        """For each composite around these gangs that requires domains, the nodes of its other
        gangs.
        """
        if not around:
            return ()

        placed: dict[str, set[str]] = {}
        own = {gang.id for gang in gangs}

        for verdict, others in (*self.kept, *found):
            gang_of: dict[str, str] = {}
            for gang in others:
                uids = [pod.uid for pod in (*gang.pending, *gang.retry)]
                gang_of |= dict.fromkeys(uids, gang.id)

            for placement in verdict.binds:
                gang_id = gang_of.get(placement.pod.uid, "")
                placed.setdefault(gang_id, set()).add(placement.node)

        homes: list[Beside] = []
        for composite in around:
            if not composite.topology:
                continue

            nodes: set[str] = set()
            for other in gangs_of(self._whole(composite)):
                if other not in own:
                    nodes.update(self.children.gangs[other].nodes)
                    nodes |= placed.get(other, set())

            homes.append((composite.topology, frozenset(nodes)))

        return tuple(homes)

    def _whole(self, composite: Composite) -> Composite:
        """The composite with all of its children, of which a choice has only some."""
        parent = self._parents.get(composite.id)
        siblings = parent.children if parent is not None else (self.tree,)
        return next(
            sibling
            for sibling in siblings
            if isinstance(sibling, Composite) and sibling.id == composite.id
        )

    def _again(self, name: str, gangs: Sequence[Gang]) -> Verdict | None:
        """The verdict of an earlier plan on these gangs, if its nodes still take them; claims are
        looked at anew.
        """
        known: Verdict | None = self.progress.parts.get(name)
        # What is held changes without a verdict, so an earlier answer about it may be void.
        if known is None or known.releases or any(gang.kept or gang.held for gang in gangs):
            return None

        binds = known.binds
        index = self.ledger.table.index
        self.ledger.work.charge(10 + 10 * len(binds))

        for placement in binds:
            if placement.claims or placement.pod.claims:
                return None
            if placement.node not in index:
                return None

        checkpoint = self.ledger.checkpoint()
        if binds:
            self.ledger.reserve_many(
                [placement.pod for placement in binds],
                [index[placement.node] for placement in binds],
            )

        if all(self.ledger.fits_still(placement.pod, placement.node) for placement in binds):
            return known

        self.ledger.rollback(checkpoint)
        return None

    def fit_rest(self, parts: Sequence[Part]) -> list[Made]:
        """The decisions that place all of these parts, [] if some do not fit. First those that
        composites around them leave the fewest nodes.
        """
        units: dict[tuple[str, ...], list[Part]] = {}
        for part in parts:
            around = tuple([composite.id for composite in self._around(part)])
            units.setdefault(around, []).append(part)

        checkpoint = self.ledger.checkpoint()
        placed: list[Made] = []
        for _, unit in sorted(units.items(), key=lambda item: -len(item[0])):
            fitted = self.fit(f"rest {part_id(unit[0])}", unit, placed)
            if isinstance(fitted, Verdict):
                self.ledger.rollback(checkpoint)
                return []

            placed += fitted

        return placed


def _id(gang: Gang) -> str:
    return gang.id


def starts(gangs: Sequence[Gang], verdict: Verdict) -> bool:
    """Whether the verdict gives each of the gangs its minimum."""
    gang_of: dict[str, str] = {}
    for gang in gangs:
        gang_of |= dict.fromkeys([pod.uid for pod in gang.pending], gang.id)

    placed: Counter[str] = Counter()
    for placement in verdict.binds:
        gang_id = gang_of.get(placement.pod.uid)
        if gang_id is not None:
            placed[gang_id] += 1

    return permitted(gangs, placed)
