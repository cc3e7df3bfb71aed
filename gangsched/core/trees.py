"""Trees: gangs with the same parent (its children), of which a minimum number starts together, and each further one as
a whole (I9).

Invariant: a child starts whole or not at all. Members above the minimum of a child, and children above the minimum of
the tree, are placed after all minimums. Children are refused only after every choice of different ones was tried, those
that require domains in every arrangement.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from gangsched.core.messages import placing
from gangsched.core.permit import permitted
from gangsched.core.pre_filter import not_ready
from gangsched.core.progress import Progress
from gangsched.core.reserve import Ledger
from gangsched.core.search.find import PODS
from gangsched.core.search.openings import ways
from gangsched.core.search.slices import kinds_in_packing
from gangsched.core.work import OutOfWork
from gangsched.model.gang import Gang, Group, MatchPolicy, Placement, Refusal
from gangsched.model.objects import Pod
from gangsched.model.plan import Need, Verdict

Decide: TypeAlias = Callable[[Group], Verdict]
Made: TypeAlias = tuple[Verdict, Sequence[Gang]]
"""The verdict on some children."""
UNITS_A_CHOICE = 10
"""Units of coming to one choice of children, with a fifth of one for each child of it."""
UNITS_A_PART = 100
"""Units of deciding children as a group, besides what that charges."""
MOST_KINDS = 64
"""Kinds of pods and children that are packed together: building the problem takes the square of their number."""
FIRST = "first choice"
MOST_CHOICES = 2_000
"""Choices of children after which a tree waits for a change: 64 of 128 different ones are more than can be tried."""


def needed(group: Group) -> Group:
    """The children that the minimum of a tree needs: those that have started, then the first ones that are ready.

    Only these preempt and get reservations. A group that is not a tree is returned unchanged.
    """
    if group.min_children is None:
        return group
    if group.minimum is not None:
        return group.minimum
    started, ready = _started(group), [gang for gang in _waiting(group) if not_ready(gang) is None]
    lack = max(group.min_children, 1) - len(started)
    chosen = (*started, *ready[: max(0, lack)]) or group.gangs
    return replace(group, gangs=tuple(sorted(chosen, key=_id)), min_children=None)


@dataclass(eq=False)
class TreeDecision:
    """One decision about a tree; `decide` decides a part of it like a separate group.

    `hopeless` is why sums refute a child even by itself. `above` are gangs with members above their minimum, as they
    are once the minimum is bound.
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
    _kinds: dict[str, object] = field(default_factory=dict)
    _packed: dict[object, int | None] = field(default_factory=dict)
    _of_choice: list[str] = field(default_factory=list)

    def verdict(self) -> Verdict:
        """Decide the tree; if its minimum is refused, the other children are unchanged."""
        group = self.group
        self.ledger.work.charge(5 * len(group.gangs) + sum(len(gang.pending) for gang in group.gangs) // 4)
        started, waiting = _started(group), _waiting(group)
        unready = {gang.id: why for gang in waiting if (why := not_ready(gang)) is not None}
        ready = [gang for gang in waiting if gang.id not in unready]
        lack = max(0, (group.min_children or 0) - len(started))
        self.told |= unready
        refused: Refusal | None = None
        short = [gang for gang in started if gang.bound + gang.succeeded < min(gang.permitted_min, gang.min_member)]
        others = [gang for gang in started if gang not in short]
        try:
            for gang in short:
                self._place(gang)
            if lack > len(ready):
                refused = placing.children_missing(group, len(started) + len(ready), next(iter(unready.items()), None))
                self.told |= {gang.id: refused for gang in ready}
            else:
                refused = self._choose(ready, lack)
            if refused is None:
                for gang in ready:
                    if gang.id not in self.told:
                        self._place(gang)
            for gang in (*others, *self.above):
                self._place(gang)
        except OutOfWork:
            if not any(each.binds for each in self.made):
                raise
            # The next plan decides the rest: the group has changed.
        return self._merged(refused)

    # --- which children start ---------------------------------------------------------------------------------------

    def _choose(self, ready: Sequence[Gang], lack: int) -> Refusal | None:
        """Place the first choice of children that fits; a refusal if none does."""
        if not lack:
            return None
        progress, proven = self.progress, True
        first: Verdict | None = progress.parts.get(FIRST)
        for number, chosen in enumerate(self._choices(ready, lack)):
            self.ledger.work.charge(UNITS_A_CHOICE + lack // 5 if number >= progress.refuted else 1)
            if number < progress.refuted:
                continue
            if number == MOST_CHOICES:
                proven = False
                break
            self._of_choice.clear()
            found = self._fit(f"choice {number}", chosen)
            if not isinstance(found, Verdict):
                for verdict, gangs in found:
                    self._keep(verdict, gangs)
                return None
            if first is None:
                first = found
            elif not found.told.never:
                first = replace(first, told=replace(first.told, never=False))
            for name in self._of_choice:
                progress.parts.pop(name, None)
            progress.parts[FIRST], progress.refuted = first, number + 1
        assert first is not None
        several = lack < len(ready) and len({*map(self._kind, ready)}) > 1
        if several:
            proven = proven and (len(self._apart(ready)) == 1 or self._are_slices(ready))
            told = placing.no_choice(self.group, first.told, lack, len(ready), proven=proven)
            told = replace(told, never=told.never and self._none_ever(ready, lack))
            shapes = dict.fromkeys(pod.shape for gang in ready for pod in gang.pending)
            first = replace(first, told=told, needs=tuple(Need(shape, 0) for shape in shapes), gangs=())
        self.made.append(first)
        self.told |= {gang.id: first.told for gang in ready} | dict(first.gangs)
        return first.told

    def _choices(self, ready: Sequence[Gang], lack: int) -> Iterator[Sequence[Gang]]:
        """Choices that differ in kinds of children, the first in order first; of one kind, the first ones are taken."""
        yield ready[:lack]
        kinds = self._by_kind(ready)
        if lack == len(ready) or len(kinds) == 1:
            return
        fit = [gangs for gangs in kinds if self._hopeless(gangs[0]) is None]
        first = Counter(self._kind(gang) for gang in ready[:lack])
        for counts in ways([len(gangs) for gangs in fit], lack):
            chosen = [gang for gangs, count in zip(fit, counts, strict=True) for gang in gangs[:count]]
            if Counter(map(self._kind, chosen)) != first:
                yield chosen

    def _none_ever(self, ready: Sequence[Gang], lack: int) -> bool:
        """Whether no choice that was not tried, since sums refute a child of it, could fit on empty nodes."""
        found = [(len(gangs), self._hopeless(gangs[0])) for gangs in self._by_kind(ready)]
        return all(why is None or why.never for _, why in found) or lack > sum(
            number for number, why in found if why is None or not why.never
        )

    def _hopeless(self, gang: Gang) -> Refusal | None:
        name = f"sums {gang.id}"
        if name not in self.progress.parts:
            self.progress.parts[name] = self.hopeless(gang)
        found: Refusal | None = self.progress.parts[name]
        return found

    def _by_kind(self, ready: Sequence[Gang]) -> list[list[Gang]]:
        kinds: dict[object, list[Gang]] = {}
        for gang in ready:
            kinds.setdefault(self._kind(gang), []).append(gang)
        return list(kinds.values())

    def _kind(self, gang: Gang) -> object:
        """Equal for children of which one fits where the other does."""
        if gang.id not in self._kinds:
            self.ledger.work.charge(2 + len(gang.pending) // 4)
            shapes = frozenset(Counter(pod.shape for pod in gang.pending).items())
            alike = shapes, gang.min_member, gang.constraints, gang.min_resources, gang.match_policy
            single = gang.bound or gang.held or gang.kept or any(pod.claims for pod in gang.pending)
            self._kinds[gang.id] = gang.id if single else alike
        return self._kinds[gang.id]

    # --- placing children -------------------------------------------------------------------------------------------

    def _fit(self, name: str, chosen: Sequence[Gang]) -> list[Made] | Verdict:
        """The decisions that place all of these children, else the refusal of some of them.

        Those that require domains take them one after the other, and are packed together where one finds none beside
        those before it.
        """
        parts, checkpoint = self._apart(chosen), self.ledger.checkpoint()
        found: list[Made] = []
        refused: Verdict | None = None
        for gangs in parts:
            verdict = self._part(f"{name} {gangs[0].id}", gangs, beside=found)
            if not _starts(gangs, verdict):
                refused = verdict
                break
            found.append((verdict, gangs))
        if refused is None:
            return found
        self.ledger.rollback(checkpoint)
        if len(chosen) > 1 and self._may_be_packed(chosen, parts):
            verdict = self._part(f"{name} together", chosen, apart=True)
            if _starts(chosen, verdict):
                return [(verdict, chosen)]
            self.ledger.rollback(checkpoint)
        return refused

    def _may_be_packed(self, chosen: Sequence[Gang], parts: Sequence[Sequence[Gang]]) -> bool:
        """Whether one search for all children, of which identical ones are one kind, may find what parts did not."""
        if not self._are_slices(chosen):
            return False
        shapes = {id(pod.shape) for gang in chosen for pod in gang.pending}
        return len(parts) > 1 or (len(shapes) > 1 and sum(len(gang.pending) for gang in chosen) <= PODS)

    def _are_slices(self, gangs: Sequence[Gang]) -> bool:
        """Whether all of these children can be packed together, as so few kinds that a plan can compare them."""
        known, kinds = self._packed, {}
        for gang in gangs:
            kind = self._kind(gang)
            if kind not in known:
                self.ledger.work.charge(6 + len(gang.pending) // 2)
                known[kind] = kinds_in_packing(gang, self.ledger.table)
            kinds[kind] = known[kind]
        numbers = [number for number in kinds.values() if number is not None]
        return len(numbers) == len(kinds) and sum(numbers) <= MOST_KINDS

    def _apart(self, gangs: Sequence[Gang]) -> list[Sequence[Gang]]:
        """Children that require domains, each by itself, and all others together."""
        apart = [gang for gang in gangs if gang.constraints.topology or gang.constraints.same_product]
        others = [gang for gang in gangs if gang not in apart] if apart else gangs
        return [*((gang,) for gang in apart), *((others,) if others else ())]

    def _part(self, name: str, gangs: Sequence[Gang], *, beside: Sequence[Made] = (), apart: bool = False) -> Verdict:
        """Decide children as a group, or do as an earlier plan decided. Out of work, it leaves the ledger unchanged.

        Those placed before them, in this plan or earlier, say in which domain of the tree they start.
        """
        self._of_choice.append(name)
        checkpoint = self.ledger.checkpoint()
        try:
            verdict = self._again(name, gangs)
            if verdict is None:
                self.ledger.work.charge(UNITS_A_PART + len(self.group.gangs) // 5)
                self.progress.begin(name)
                part = replace(self.group, gangs=tuple(sorted(gangs, key=_id)), parent="", min_children=None)
                verdict = self.decide(replace(part, apart=apart, beside=self._beside(gangs, beside)))
        except OutOfWork:
            self.ledger.rollback(checkpoint)
            raise
        self.progress.parts[name] = verdict
        return verdict

    def _beside(self, gangs: Sequence[Gang], found: Sequence[Made]) -> frozenset[str]:
        """The nodes of all other children, if the tree requires a domain of them together."""
        if not self.group.topology:
            return frozenset()
        nodes = {node for gang in self.group.gangs if gang not in gangs for node in gang.nodes}
        return frozenset(nodes | {each.node for verdict, _ in (*self.kept, *found) for each in verdict.binds})

    def _again(self, name: str, gangs: Sequence[Gang]) -> Verdict | None:
        """The verdict of an earlier plan on these children, if its nodes still take them; claims are looked at anew."""
        known: Verdict | None = self.progress.parts.get(name)
        if known is None or known.releases or any(gang.kept or gang.held for gang in gangs):
            return None
        binds, index = known.binds, self.ledger.table.index
        self.ledger.work.charge(10 + 10 * len(binds))
        if any(each.claims or each.pod.claims or each.node not in index for each in binds):
            return None
        checkpoint = self.ledger.checkpoint()
        if binds:
            self.ledger.reserve_many([each.pod for each in binds], [index[each.node] for each in binds])
        if all(self.ledger.fits_still(each.pod, each.node) for each in binds):
            return known
        self.ledger.rollback(checkpoint)
        return None

    def _place(self, gang: Gang) -> None:
        """Decide a child by itself, if any of it waits."""
        if gang.waiting:
            self._keep(self._part(f"gang {gang.id} {gang.satisfied}", (gang,)), (gang,))

    def _keep(self, verdict: Verdict, gangs: Sequence[Gang]) -> None:
        """Take a verdict without the members above minimums: their room is free until all minimums are placed."""
        self.ledger.work.charge(len(verdict.binds))
        own = dict(verdict.gangs)
        self.told |= {gang.id: own.get(gang.id, verdict.told) for gang in gangs}
        of_gang: dict[str, list[Placement]] = {gang.id: [] for gang in gangs}
        gang_of = {pod.uid: gang.id for gang in gangs if _has_surplus(gang) for pod in gang.pending}
        for each in verdict.binds if gang_of else ():
            if each.pod.uid in gang_of:
                of_gang[gang_of[each.pod.uid]].append(each)
        later: set[str] = set()
        for gang in gangs:
            placed, need = of_gang[gang.id], max(0, gang.min_member - gang.bound)
            if len(placed) <= need:
                continue
            for each in placed[need:]:
                self.ledger.release(each.pod, each.node)
            kept = {each.pod.uid for each in placed[:need]}
            rest = tuple(pod for pod in gang.pending if pod.uid not in kept)
            later |= {pod.uid for pod in rest}
            self.above.append(_as_started(gang, rest, [each.node for each in placed[:need]]))
        if later:
            binds = tuple(each for each in verdict.binds if each.pod.uid not in later)
            verdict = replace(verdict, binds=binds, notes=tuple(each for each in verdict.notes if each[0] not in later))
        self.made.append(verdict)
        self.kept.append((verdict, gangs))

    def _merged(self, refused: Refusal | None) -> Verdict:
        """One verdict of all parts."""
        made = self.made
        binds = tuple(each for verdict in made for each in verdict.binds)
        needs = tuple(dict.fromkeys(need for verdict in made for need in verdict.needs))
        if len([verdict for verdict in made if verdict.needs]) > 1:
            needs = tuple(Need(shape, 0) for shape in dict.fromkeys(need.shape for need in needs))
        told = refused
        if told is None and not binds:
            told = next((verdict.told for verdict in made if verdict.needs), made[0].told if made else None)
        if told is None:
            told = next(iter(self.told.values())) if not made else placing.permitted(len(binds))
        return Verdict(
            group=self.group.id,
            generation=self.group.generation,
            told=told,
            round=next((verdict.round for verdict in made if verdict.round is not None), None),
            binds=binds,
            releases=tuple(uid for verdict in made for uid in verdict.releases),
            notes=tuple(each for verdict in made for each in verdict.notes),
            needs=needs,
            gangs=tuple((gang.id, self.told.get(gang.id, told)) for gang in self.group.gangs),
        )


def _started(group: Group) -> list[Gang]:
    return [gang for gang in group.gangs if gang.satisfied]


def _waiting(group: Group) -> list[Gang]:
    """Children that have not started, in the order in which they do."""
    return sorted((gang for gang in group.gangs if not gang.satisfied), key=_order)


def _order(gang: Gang) -> tuple[bool, int, int, int, str]:
    """Those with bound members first, then by priority, age and number."""
    priority = max((pod.priority for pod in gang.pending), default=0)
    age = min((pod.creation_s for pod in gang.pending), default=0)
    return not gang.bound, -priority, age, len(gang.id), gang.id


def _id(gang: Gang) -> str:
    return gang.id


def _starts(gangs: Sequence[Gang], verdict: Verdict) -> bool:
    """Whether the verdict gives each of the gangs its minimum."""
    gang_of: dict[str, str] = {pod.uid: gang.id for gang in gangs for pod in gang.pending}
    return permitted(gangs, Counter(gang_of[each.pod.uid] for each in verdict.binds if each.pod.uid in gang_of))


def _has_surplus(gang: Gang) -> bool:
    """Whether members above the gang's minimum can be placed after others: slices are whole, other policies a round."""
    once = gang.match_policy is MatchPolicy.ONCE_SATISFIED
    return once and not gang.satisfied and not gang.constraints.slices


def _as_started(gang: Gang, rest: tuple[Pod, ...], nodes: Sequence[str]) -> Gang:
    """The gang as it is once its minimum is bound to these nodes."""
    bound, there = gang.bound + len(nodes), tuple(sorted({*gang.nodes, *nodes}))
    return replace(gang, pending=rest, satisfied=True, permitted_min=gang.min_member, bound=bound, nodes=there)
