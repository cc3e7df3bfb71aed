"""Trees: gangs and composites of gangs. The minimum number of children of a composite starts
together, and each further child starts as a whole (I9).

Invariant: a part starts whole or not at all. Members above the minimum of a gang, and children
above the minimum of their composite, are placed after the minimum of the whole tree. Children are
refused only after every choice of different children was tried; children that require domains are
tried in every arrangement.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TypeAlias, TypeVar

from gangsched.core import findings
from gangsched.core.permit import needs_its_rest, permitted
from gangsched.core.progress import Progress
from gangsched.core.reserve import Ledger
from gangsched.core.search.find import PODS
from gangsched.core.search.part_kinds import kinds_in_packing
from gangsched.core.tree_choices import TreeParts
from gangsched.core.work import OutOfWork
from gangsched.model.gang import Gang, Group, MatchPolicy, Placement, Refusal
from gangsched.model.objects import Pod
from gangsched.model.plan import Need, Verdict
from gangsched.model.tree import Composite, Part, composites_of, gangs_of, parents_of, part_id

T = TypeVar("T")
Decide: TypeAlias = Callable[[Group], Verdict]
Made: TypeAlias = tuple[Verdict, Sequence[Gang]]
"""The verdict on some gangs."""
UNITS_A_CHOICE = 10
"""Units of coming to one choice of children, with a fifth of one for each gang of it."""
UNITS_A_PART = 100
"""Units of deciding gangs as a group, besides what that charges."""
MOST_KINDS = 64
"""Kinds of pods and children that are packed together: building the problem takes the square of
their number.
"""
MOST_CHOICES = 2_000
"""Choices of children after which a tree waits for a change: 64 of 128 different ones are more than
can be tried.
"""


@dataclass(eq=False)
class TreeDecision:
    """One decision about a tree; `decide` decides some of its gangs like a separate group.

    `hopeless` returns the refusal of a gang that sums refute even by itself. `above` are gangs with
    members above their minimum, in the state after the minimum is bound.
    """

    group: Group
    ledger: Ledger
    decide: Decide
    hopeless: Callable[[Gang], Refusal | None]
    progress: Progress
    made: list[Verdict] = field(default_factory=list)
    told: dict[str, Refusal] = field(default_factory=dict)
    above: list[Gang] = field(default_factory=list)
    kept: list[Made] = field(default_factory=list)
    _packed: dict[object, int | None] = field(default_factory=dict)
    _of_choice: list[str] = field(default_factory=list)
    _is_proven: bool = True

    @cached_property
    def tree(self) -> Composite:
        """The root of the tree."""
        assert self.group.tree is not None
        return self.group.tree

    @cached_property
    def children(self) -> TreeParts:
        """The tree's children: those that have started, those that are ready, and the different
        choices among them.
        """
        parts = TreeParts(self.group, self.ledger.work, self._hopeless)
        for gang in self.group.gangs:
            needed = self._enough(gang)
            if len(needed) < len(gang.pending):
                parts.gangs[gang.id] = replace(gang, pending=needed)

        return parts

    def _enough(self, gang: Gang) -> Sequence[Pod]:
        """Pending members among which a start may choose: of those that are alike, no more than are
        needed.

        With hundreds of others, a plan would spend its work on members that are placed after the
        minimum anyway.
        """
        need = _need(gang)
        if (
            not _has_surplus(gang)
            or len(gang.pending) <= need
            or any(pod.claims for pod in gang.pending)
        ):
            return gang.pending

        alike = self.ledger.occupancy.equivalence(gang.pending)
        found: Counter[object] = Counter()
        chosen = []

        for pod in gang.pending:
            key = alike(pod)
            found[key] += 1
            if found[key] <= need:
                chosen.append(pod)

        return tuple(chosen)

    @cached_property
    def _parents(self) -> dict[str, Composite]:
        return parents_of(self.tree)

    def verdict(self) -> Verdict:
        """Decide the tree. If its minimum is refused, only children that have started may get
        nodes.
        """
        group = self.group
        children = self.children
        self.ledger.work.charge(
            5 * len(group.gangs) + sum(len(gang.pending) for gang in group.gangs) // 4
        )
        waiting = [gang for gang in group.gangs if not gang.satisfied]

        self.told |= {
            gang.id: why for gang in waiting if (why := children.unready(gang.id)) is not None
        }
        # the innermost says most about its gangs
        for composite in [*composites_of(self.tree)][:0:-1]:
            if (
                not children.has_started(composite)
                and (why := children.unready(composite)) is not None
            ):
                self.told = dict.fromkeys(gangs_of(composite), why) | self.told

        started = [gang for gang in group.gangs if gang.satisfied]
        short = [gang for gang in started if gang.lacks]
        refused: Refusal | None = None

        try:
            if self._whole_or_not(partial(self._complete, short)):
                return self._merged(None)

            # First what has started and lost members: it holds room that is of no use without them.
            for gang in short:
                self._whole_or_not(partial(self._place, gang))

            for composite in [*composites_of(self.tree)][1:]:
                if children.has_started(composite):
                    self._whole_or_not(partial(self._start, composite))

            # Before members above minimums, which could take the room that another child needs to
            # start.
            refused = self._whole_or_not(partial(self._start, self.tree))
            if refused is not None:
                self._tell_others(refused)

            # It goes before older groups only for what its start needs; the next plan places the
            # others. Without such a one it has only lost members, and is decided like any other
            # tree.
            if group.rest and self.made:
                return self._merged(refused)

            whole = [gang for gang in started if gang not in short]
            served = set()

            for made in self.made:
                for placement in (*made.binds, *made.holds):
                    served.add(placement.pod.uid)

            # Others are evicted for members that are needed, so what is nominated for those is not
            # used for these.
            with self.ledger.keeping(
                group.id,
                but=served.union(pod.uid for gang in whole for pod in gang.pending),
            ):
                if refused is None:
                    self._start_others(self.tree)

                for gang in (*whole, *self.above):
                    self._whole_or_not(partial(self._place, gang, is_surplus=True))
        except OutOfWork:
            # Nothing was placed: the caller keeps the progress and goes on in the next plan.
            if not any(verdict.binds for verdict in self.made):
                raise
            # The next plan decides the rest: the group has changed.

        return self._merged(refused)

    def _whole_or_not(self, act: Callable[[], T]) -> T:
        """Run `act`, which places some parts that start together. Out of work, none of them is
        placed.
        """
        checkpoint = self.ledger.checkpoint()
        try:
            return act()
        except OutOfWork:
            self.ledger.rollback(checkpoint)
            raise

    def _complete(self, short: Sequence[Gang]) -> bool:
        """Place all that an interrupted start lacks together, whether or not its gangs have
        started; False if they have no room together, or somebody is missing.

        One after the other, the first could take the only nodes of the next.
        """
        if not self.group.rest:
            return False

        lacking = [needs_its_rest(gang) for gang in short]
        parts = self._unstarted()
        if parts is None:
            return False

        before = dict(self.children.gangs)
        for gang in lacking:
            if gang is None:
                return False

            self.children.gangs[gang.id] = gang
            parts.append(gang.id)

        found = self._fit_rest(parts)
        for verdict, gangs in found:
            self._keep(verdict, gangs)
            self.children.placed.update(gang.id for gang in gangs)

        if not found:
            self.children.gangs.update(before)

        return any(verdict.binds for verdict, _ in found)

    def _unstarted(self) -> list[Part] | None:
        """The first choice of the children that the root and the composites that have started lack;
        None if too few are ready.
        """
        children = self.children
        parts: list[Part] = []
        for composite in composites_of(self.tree):
            if composite is not self.tree and not children.has_started(composite):
                continue
            if children.missing(composite) is not None:
                return None
            if lack := children.lack(composite):
                _, first = next(children.choices(children.candidates(composite), lack))
                parts += first

        return parts

    def _fit_rest(self, parts: Sequence[Part]) -> list[Made]:
        """The decisions that place all of these parts, [] if some do not fit. First those that
        composites around them leave the fewest nodes.
        """
        units: dict[tuple[str, ...], list[Part]] = {}
        for part in parts:
            around = tuple([composite.id for composite in self._around(part)])
            units.setdefault(around, []).append(part)

        checkpoint = self.ledger.checkpoint()
        found: list[Made] = []
        for _, unit in sorted(units.items(), key=lambda item: -len(item[0])):
            made = self._fit(f"rest {part_id(unit[0])}", unit, found)
            if isinstance(made, Verdict):
                self.ledger.rollback(checkpoint)
                return []

            found += made

        return found

    # --- which children start --------------------------------------------------------------------

    def _start(self, composite: Composite) -> Refusal | None:
        """Place the children that a composite lacks, all together; a refusal if they do not fit or
        are not ready.
        """
        refused = self.children.missing(composite)
        if refused is None:
            return self._choose(
                composite,
                self.children.candidates(composite),
                self.children.lack(composite),
            )

        ready = self.children.ready(composite)
        self.told |= {gang: refused for gang in gangs_of(*ready) if gang not in self.told}
        return refused

    def _tell_others(self, refused: Refusal) -> None:
        """Tell gangs that the refused minimum does not need, but that start only after it, for whom
        they wait.
        """
        told = [gang.id for gang in self.group.gangs if gang.id in self.told and not gang.satisfied]
        first = next((name for name in told if self.told[name] == refused), self.tree.id)

        for gang in self.group.gangs:
            if gang.waiting and not gang.satisfied and gang.id not in self.told:
                self.told[gang.id] = findings.waiting_for_sibling(first, refused)

    def _start_others(self, composite: Composite) -> None:
        """Place the children above a composite's minimum, each as a whole and in order, then those
        inside them.
        """
        for child in self.children.ready(composite):
            if not isinstance(child, str):
                self._whole_or_not(partial(self._start, child))
            elif child not in self.told:
                self._whole_or_not(partial(self._place, self.children.gangs[child]))

        for child in composite.children:
            if isinstance(child, Composite) and not self.children.lack(child):
                self._start_others(child)

    def _choose(self, composite: Composite, ready: Sequence[Part], lack: int) -> Refusal | None:
        """Place the first choice of children that fits; a refusal if none does."""
        if not lack:
            return None

        progress = self.progress
        self._is_proven = True
        of_first = f"first choice of {composite.id}"
        begun = progress.refuted.get(composite.id, 0)
        first: Verdict | None = progress.parts.get(of_first)

        for number, chosen in self.children.choices(ready, lack, begun):
            self.ledger.work.charge(UNITS_A_CHOICE + len(gangs_of(*chosen)) // 5)
            if number >= MOST_CHOICES:
                self._is_proven = False
                break

            self._of_choice.clear()
            found = self._fit(f"{composite.id} choice {number}", chosen)
            if not isinstance(found, Verdict):
                # For all at once: out of work between two of them would start one without the
                # other.
                self.ledger.work.charge(sum(len(verdict.binds) for verdict, _ in found))
                for verdict, gangs in found:
                    self._keep(verdict, gangs)
                    self.children.placed.update(gang.id for gang in gangs)

                return None

            if first is None:
                first = found
            # The tree can never fit only if none of its choices can.
            elif not found.told.never:
                first = replace(first, told=replace(first.told, never=False))

            for name in self._of_choice:
                progress.parts.pop(name, None)

            progress.parts[of_first], progress.refuted[composite.id] = first, number + 1

        assert first is not None
        # Of one choice the refusal itself says what is missing; of several it would name children
        # that were chosen by order.
        if progress.refuted[composite.id] > 1 or (
            lack < len(ready) and len(self.children.by_kind(ready)) > 1
        ):
            proven = self._is_proven and not self.children.is_cut
            told = findings.no_choice(composite, first.told, lack, len(ready), proven=proven)
            told = replace(told, never=told.never and self.children.none_ever(ready, lack))
            first = replace(first, told=told, needs=self._any_room(ready), gangs=())
        elif self._requires(*ready[:lack]) and len(gangs_of(*ready[:lack])) > 1:
            # Parts before the refused one may leave their nodes to it, once there is room for them
            # elsewhere.
            first = replace(first, needs=self._any_room(ready))

        self.made.append(first)
        may_start = (gang for gang in gangs_of(*ready) if self.children.unready(gang) is None)
        self.told |= dict.fromkeys(may_start, first.told) | dict(first.gangs)

        return first.told

    def _any_room(self, parts: Sequence[Part]) -> tuple[Need, ...]:
        """The needs of all gangs of these parts, of which room for any one may help."""
        shapes = dict.fromkeys(pod.shape for gang in self._gangs(parts) for pod in gang.pending)
        return tuple(Need(shape, 0) for shape in shapes)

    def _hopeless(self, gang: Gang) -> Refusal | None:
        name = f"sums {gang.id}"
        if name not in self.progress.parts:
            self.progress.parts[name] = self.hopeless(gang)

        found: Refusal | None = self.progress.parts[name]
        return found

    # --- placing children ------------------------------------------------------------------------

    def _fit(
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
            verdict = self._part(
                f"{name} together {part_id(chosen[0])}",
                chosen,
                beside=beside,
                apart=True,
            )
            gangs = self._gangs(chosen)
            if _starts(gangs, verdict):
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
        if not isinstance(first, str) and self._requires(*first.children):
            return self._fit(f"{name} {first.id}", first.children, beside)

        gangs = self._gangs(unit)
        verdict = self._part(f"{name} {part_id(first)}", unit, beside=beside)
        if _starts(gangs, verdict):
            return [(verdict, gangs)]

        return verdict

    def _gangs(self, parts: Sequence[Part]) -> list[Gang]:
        return [self.children.gangs[gang_id] for gang_id in gangs_of(*parts)]

    def _requires(self, *parts: Part) -> bool:
        """Whether one of these parts requires domains of its own."""
        gangs = (gang.constraints for gang in self._gangs(parts))
        return any(composite.topology for composite in composites_of(*parts)) or any(
            stated.topology or stated.same_product for stated in gangs
        )

    def _apart(self, parts: Sequence[Part]) -> list[Sequence[Part]]:
        """Parts that require domains, each by itself, and all other gangs together."""
        apart: list[Sequence[Part]] = []
        others: list[Part] = []

        open_parts = [*reversed(parts)]
        while open_parts:
            part = open_parts.pop()
            if isinstance(part, str):
                (apart.append([part]) if self._requires(part) else others.append(part))
            elif part.topology:
                apart += [[part]] if gangs_of(part) else []
            else:
                open_parts += reversed(part.children)

        return [*apart, *([others] if others else ())]

    def _may_be_packed(self, chosen: Sequence[Part], units: Sequence[Sequence[Part]]) -> bool:
        """Whether one search for all parts, of which identical ones are one kind, may find what
        units did not.
        """
        gangs = self._gangs(chosen)
        if len(gangs) == 1:
            return False

        if not self._are_slices(chosen):
            self._is_proven = self._is_proven and len(units) == 1
            return False

        shapes = {id(pod.shape) for gang in gangs for pod in gang.pending}
        return len(units) > 1 or (
            len(shapes) > 1 and sum(len(gang.pending) for gang in gangs) <= PODS
        )

    def _are_slices(self, parts: Sequence[Part]) -> bool:
        """Whether all of these parts can be packed together, as so few kinds that a plan can
        compare them.
        """
        known = self._packed
        left = MOST_KINDS

        for kind, part in {self._kind(part): part for part in parts}.items():
            if kind not in known:
                self.ledger.work.charge(
                    6 + sum(len(gang.pending) for gang in self._gangs([part])) // 2
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

    def _part(
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
        self._of_choice.append(name)
        checkpoint = self.ledger.checkpoint()
        gangs = self._gangs(parts)

        try:
            verdict = self._again(name, gangs)
            if verdict is None:
                self.ledger.work.charge(UNITS_A_PART + len(self.group.gangs) // 5)
                self.progress.begin(name)
                around = [*self._around(parts[0])]

                if len(parts) == 1 and not apart and isinstance(parts[0], Composite):
                    around += composites_of(parts[0])

                own = {gang.id for gang in gangs}
                rest = self.group.rest & own
                verdict = self.decide(
                    replace(
                        self.group,
                        gangs=tuple(sorted(gangs, key=_id)),
                        rest=rest,
                        tree=None,
                        topology=tuple(
                            sorted({key for composite in around for key in composite.topology})
                        ),
                        apart=tuple(parts) if apart else (),
                        beside=self._beside(around, gangs, beside),
                    )
                )
        except OutOfWork:
            self.ledger.rollback(checkpoint)
            raise

        self.progress.parts[name] = verdict
        return verdict

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
    ) -> tuple[tuple[tuple[str, ...], frozenset[str]], ...]:
        """For each composite around these gangs that requires domains, the nodes of its other
        gangs.
        """
        if not around:
            return ()

        placed: dict[str, set[str]] = {}
        own = {gang.id for gang in gangs}

        for verdict, others in (*self.kept, *found):
            gang_of = {pod.uid: gang.id for gang in others for pod in (*gang.pending, *gang.retry)}
            for placement in verdict.binds:
                placed.setdefault(gang_of.get(placement.pod.uid, ""), set()).add(placement.node)

        made = []
        for composite in (composite for composite in around if composite.topology):
            nodes: set[str] = set()
            for other in gangs_of(self._whole(composite)):
                if other not in own:
                    nodes |= {*self.children.gangs[other].nodes} | placed.get(other, set())

            made.append((composite.topology, frozenset(nodes)))

        return tuple(made)

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

        if any(
            placement.claims or placement.pod.claims or placement.node not in index
            for placement in binds
        ):
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

    def _place(self, gang: Gang, *, is_surplus: bool = False) -> None:
        """Decide a gang by itself, if any of it waits; `is_surplus` if all minimums are placed."""
        if not self.children.declared[gang.id].waiting:
            return

        verdict = self._part(f"gang {gang.id} {gang.satisfied} {is_surplus}", (gang.id,))
        self.ledger.work.charge(len(verdict.binds))

        if _starts((gang,), verdict):
            self.children.placed.add(gang.id)

        if is_surplus:
            self._take(verdict, (gang,))
        else:
            self._keep(verdict, (gang,))

    def _keep(self, verdict: Verdict, gangs: Sequence[Gang]) -> None:
        """Take a verdict without the members above minimums: they wait until all minimums are
        placed.
        """
        placed: dict[str, list[Placement]] = {gang.id: [] for gang in gangs}
        gang_of = {pod.uid: gang.id for gang in gangs if _has_surplus(gang) for pod in gang.pending}
        for placement in verdict.binds if gang_of else ():
            if placement.pod.uid in gang_of:
                placed[gang_of[placement.pod.uid]].append(placement)

        later: set[str] = set()
        for gang in filter(_has_surplus, gangs):
            need = _need(gang)
            own = placed[gang.id]
            later |= {placement.pod.uid for placement in own[need:]}

            for each in own[need:]:
                self.ledger.release(each.pod, each.node)

            if len(own[:need]) < len(self.children.declared[gang.id].pending):
                self._begin(gang, own[:need])

        if later:
            binds = tuple(
                placement for placement in verdict.binds if placement.pod.uid not in later
            )
            verdict = replace(
                verdict,
                binds=binds,
                notes=tuple(note for note in verdict.notes if note[0] not in later),
            )

        self._take(verdict, gangs)

    def _take(self, verdict: Verdict, gangs: Sequence[Gang]) -> None:
        own = dict(verdict.gangs)
        self.told |= {gang.id: own.get(gang.id, verdict.told) for gang in gangs}
        self.made.append(verdict)
        self.kept.append((verdict, gangs))

    def _begin(self, gang: Gang, needed: Sequence[Placement]) -> None:
        """Have the members of a gang that are not `needed` placed after all minimums."""
        placed = {placement.pod.uid for placement in needed}
        rest = tuple(
            pod for pod in self.children.declared[gang.id].pending if pod.uid not in placed
        )
        begun = (
            _as_started(gang, rest, [placement.node for placement in needed])
            if needed
            else replace(gang, pending=rest)
        )
        self.above.append(begun)
        self.children.gangs[gang.id] = begun

    def _merged(self, refused: Refusal | None) -> Verdict:
        """One verdict of all parts."""
        made = self.made
        binds = tuple(placement for verdict in made for placement in verdict.binds)
        needs = tuple(dict.fromkeys(need for verdict in made for need in verdict.needs))

        if len([verdict for verdict in made if verdict.needs]) > 1:
            # Needs of several parts are alternatives, while the queue takes them for room that all
            # is required: any room wakes it.
            needs = tuple(Need(shape, 0) for shape in dict.fromkeys(need.shape for need in needs))

        told = refused
        if told is None and not binds:
            told = next(
                (verdict.told for verdict in made if verdict.needs), made[0].told if made else None
            )

        if told is None:
            told = next(iter(self.told.values())) if not made else findings.permitted(len(binds))

        return Verdict(
            group=self.group.id,
            generation=self.group.generation,
            told=told,
            round=next((verdict.round for verdict in made if verdict.round is not None), None),
            binds=binds,
            releases=tuple(uid for verdict in made for uid in verdict.releases),
            notes=tuple(note for verdict in made for note in verdict.notes),
            needs=needs,
            gangs=tuple((gang.id, self.told.get(gang.id, told)) for gang in self.group.gangs),
        )


def _id(gang: Gang) -> str:
    return gang.id


def _starts(gangs: Sequence[Gang], verdict: Verdict) -> bool:
    """Whether the verdict gives each of the gangs its minimum."""
    gang_of: dict[str, str] = {pod.uid: gang.id for gang in gangs for pod in gang.pending}
    return permitted(
        gangs,
        Counter(
            gang_of[placement.pod.uid]
            for placement in verdict.binds
            if placement.pod.uid in gang_of
        ),
    )


def _has_surplus(gang: Gang) -> bool:
    """Whether members above the gang's minimum can be placed after others: slices are whole, other
    policies a round.
    """
    once = gang.match_policy is MatchPolicy.ONCE_SATISFIED
    return once and not gang.satisfied and not gang.constraints.slices


def _need(gang: Gang) -> int:
    """Number of its pending members that a gang needs to start."""
    return max(0, gang.min_member - gang.bound)


def _as_started(gang: Gang, rest: tuple[Pod, ...], nodes: Sequence[str]) -> Gang:
    """The gang as it is once its minimum is bound to these nodes."""
    bound = gang.bound + len(nodes)
    there = tuple(sorted({*gang.nodes, *nodes}))
    return replace(
        gang,
        pending=rest,
        satisfied=True,
        permitted_min=gang.min_member,
        bound=bound,
        nodes=there,
    )
