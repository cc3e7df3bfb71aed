"""Trees: gangs and composites of gangs. The minimum number of children of a composite starts
together, and each further child starts as a whole (I9).

Invariant: a part starts whole or not at all. Members above the minimum of a gang, and children
above the minimum of their composite, are placed after the minimum of the whole tree. Children are
refused only after every choice of different children was tried; children that require domains are
tried in every arrangement.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TypeVar

from msgspec import structs

from gangsched.core import findings
from gangsched.core.permit import needs_its_rest
from gangsched.core.placement_attempt import PlacementAttempt
from gangsched.core.progress import Progress
from gangsched.core.reserve import Ledger
from gangsched.core.rounds import fewest_nodes_first
from gangsched.core.search.fixed_domains import with_accelerators
from gangsched.core.tree_choices import TreeParts
from gangsched.core.tree_placing import Decide, Made, TreePlacing, starts
from gangsched.core.work import OutOfWork
from gangsched.model.gang import Gang, Group, MatchPolicy, Placement, Refusal
from gangsched.model.objects import Pod, Shape
from gangsched.model.plan import Need, Round, Verdict
from gangsched.model.reasons import Reason
from gangsched.model.tree import Composite, Part, composites_of, gangs_of
from gangsched.model.verdict_facts import subject

T = TypeVar("T")
UNITS_A_CHOICE = 10
"""Units of coming to one choice of children, with a fifth of one for each gang of it."""
MOST_CHOICES = 2_000
"""Choices of children after which a tree waits for a change: 64 of 128 different ones are more than
can be tried.
"""


@dataclass(eq=False)
class TreeDecision:
    """One decision about a group that starts in parts: `tree` is its root, and `decide` decides
    some of its gangs like a separate group.

    `hopeless` returns the refusal of a gang that sums refute even by itself. `above` are gangs with
    members above their minimum, in the state after the minimum is bound.
    """

    group: Group
    tree: Composite
    ledger: Ledger
    decide: Decide
    hopeless: Callable[[Gang], Refusal | None]
    progress: Progress
    made: list[Verdict] = field(default_factory=list)
    told: dict[str, Refusal] = field(default_factory=dict)
    above: list[Gang] = field(default_factory=list)

    @cached_property
    def children(self) -> TreeParts:
        """The tree's children: those that have started, those that are ready, and the different
        choices among them.
        """
        parts = TreeParts(self.group, self.ledger.work, self._hopeless)
        for gang in self.group.gangs:
            needed = self._enough(gang)
            if len(needed) < len(gang.pending):
                parts.gangs[gang.id] = structs.replace(gang, pending=needed)

        return parts

    @cached_property
    def placing(self) -> TreePlacing:
        """Places parts of the tree for this decision."""
        return TreePlacing(
            group=self.group,
            tree=self.tree,
            ledger=self.ledger,
            decide=self.decide,
            children=self.children,
            progress=self.progress,
        )

    def _enough(self, gang: Gang) -> Sequence[Pod]:
        """Pending members among which a start may choose: of those that are alike, no more than are
        needed.

        With hundreds of others, a plan would spend its work on members that are placed after the
        minimum anyway.
        """
        need = _need(gang)
        if not _has_surplus(gang) or len(gang.pending) <= need:
            return gang.pending
        if any(pod.claims for pod in gang.pending):
            return gang.pending

        alike = self.ledger.occupancy.equivalence(gang.pending)
        counts: Counter[object] = Counter()
        chosen = []

        for pod in gang.pending:
            key = alike(pod)
            counts[key] += 1
            if counts[key] <= need:
                chosen.append(pod)

        return tuple(chosen)

    def verdict(self) -> Verdict:
        """Decide the tree. If its minimum is refused, only children that have started may get
        nodes.
        """
        group = self.group
        pending = sum(len(gang.pending) for gang in group.gangs)
        self.ledger.work.charge(5 * len(group.gangs) + pending // 4)
        self._tell_unready()

        started = []
        for gang in group.gangs:
            if gang.satisfied:
                started.append(gang)

        short = [gang for gang in started if gang.lacks]
        refused: Refusal | None = None

        try:
            if self._whole_or_not(partial(self._complete, short)) and self._serves_start():
                return self._merged(None)

            self._place_lost(short)

            # Before members above minimums, which could take the room that another child needs to
            # start.
            refused = self._whole_or_not(partial(self._start, self.tree))
            if refused is not None:
                self._tell_others(refused)

            # It goes before older groups only for what its start needs; the next plan places the
            # others. Without such a one it has only lost members, and is decided like any other
            # tree.
            if group.rest and self._serves_start():
                return self._merged(refused)

            self._place_surplus(
                [gang for gang in started if gang not in short],
                starts=refused is None,
            )
        except OutOfWork:
            # Nothing was placed: the caller keeps the progress and goes on in the next plan.
            if not any(verdict.binds for verdict in self.made):
                raise
            # The next plan decides the rest: the group has changed.

        return self._merged(refused)

    def _serves_start(self) -> bool:
        """Whether this decision places, or has no room for, what the tree needs to start. Parts of
        which all members wait for their claims need nothing more.
        """
        for verdict in self.made:
            if verdict.binds or verdict.told.reason is not Reason.SCHEDULED:
                return True

        return False

    def _place_lost(self, short: Sequence[Gang]) -> None:
        """Place first what parts lack that have started: they hold room that is of no use without
        it.
        """
        attempt = PlacementAttempt(self.group, self.ledger)
        for gang in fewest_nodes_first(short, attempt):
            self._whole_or_not(partial(self._place, gang))

        for composite in [*composites_of(self.tree)][1:]:
            if self.children.has_started(composite):
                self._whole_or_not(partial(self._start, composite))

    def _place_surplus(self, started: Sequence[Gang], *, starts: bool) -> None:
        """Place children and members above the minimums, those of gangs that have `started`
        first; of children only if the tree `starts` or has started.
        """
        served = set()
        for verdict in self.made:
            for placement in (*verdict.binds, *verdict.holds):
                served.add(placement.pod.uid)

        for gang in started:
            served.update(pod.uid for pod in gang.pending)

        # Others are evicted for members that are needed, so what is nominated for those is not used
        # for these.
        with self.ledger.keeping(self.group.id, but=served):
            if starts:
                self._start_others(self.tree)

            for gang in (*started, *self.above):
                self._whole_or_not(partial(self._place, gang, is_surplus=True))

    def _tell_unready(self) -> None:
        """Tell gangs that have not started why they, or the parts around them, are not ready."""
        children = self.children
        for gang in self.group.gangs:
            why = None if gang.satisfied else children.unready(gang.id)
            if why is not None:
                self.told[gang.id] = why

        # the innermost says most about its gangs
        for composite in [*composites_of(self.tree)][:0:-1]:
            if children.has_started(composite):
                continue

            why = children.unready(composite)
            if why is not None:
                self.told = dict.fromkeys(gangs_of(composite), why) | self.told

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

        parts = self._unstarted()
        if parts is None:
            return False

        lacking: dict[str, Gang] = {}
        for gang in short:
            starting = needs_its_rest(gang)
            if starting is None:
                return False

            lacking[gang.id] = starting

        parts += lacking
        if not parts:
            return False

        before = dict(self.children.gangs)
        self.children.gangs.update(lacking)
        fitted = self.placing.fit_rest(parts)
        if not fitted:
            self.children.gangs.update(before)
            return False

        self._keep_all(fitted)
        return True

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
            lack = children.lack(composite)
            if lack:
                _, first = next(children.choices(children.candidates(composite), lack))
                parts += first

        return parts

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
        for gang in gangs_of(*ready):
            self.told.setdefault(gang, refused)

        return refused

    def _tell_others(self, refused: Refusal) -> None:
        """Tell gangs that the refused minimum does not need, but that start only after it, for whom
        they wait.
        """
        refused_gangs = []
        for gang in self.group.gangs:
            if gang.id in self.told and not gang.satisfied:
                refused_gangs.append(gang.id)

        # Siblings that start together have the same refusal, which is about one of them.
        first = subject(refused.fact)
        if first not in refused_gangs:
            first = next(
                (name for name in refused_gangs if self.told[name] == refused), self.tree.id
            )

        for gang in self.group.gangs:
            if gang.satisfied or gang.id in self.told:
                continue
            if gang.waiting:
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

    def _choose(
        self,
        composite: Composite,
        ready: Sequence[Part],
        lack: int,
    ) -> Refusal | None:
        """Place the first choice of children that fits; a refusal if none does."""
        if not lack:
            return None

        progress = self.progress
        self.placing.is_proven = True
        of_first = f"first choice of {composite.id}"
        begun = progress.refuted.get(composite.id, 0)
        first: Verdict | None = progress.parts.get(of_first)

        for number, chosen in self.children.choices(ready, lack, begun):
            self.ledger.work.charge(UNITS_A_CHOICE + len(gangs_of(*chosen)) // 5)
            if number >= MOST_CHOICES:
                self.placing.is_proven = False
                break

            self.placing.of_choice.clear()
            self.placing.running = self._running(composite)
            fitted = self.placing.fit(f"{composite.id} choice {number}", chosen)
            if not isinstance(fitted, Verdict):
                self._keep_all(fitted)
                return None

            if first is None:
                first = fitted
            # The tree can never fit only if none of its choices can.
            elif not fitted.told.never:
                first = structs.replace(first, told=structs.replace(first.told, never=False))

            for name in self.placing.of_choice:
                progress.parts.pop(name, None)

            progress.parts[of_first], progress.refuted[composite.id] = first, number + 1

        assert first is not None
        # Of one choice the refusal itself says what is missing; of several it would name children
        # that were chosen by order.
        if progress.refuted[composite.id] > 1 or (
            lack < len(ready) and len(self.children.by_kind(ready)) > 1
        ):
            proven = self.placing.is_proven and not self.children.is_cut
            refusal = findings.no_choice(composite, first.told, lack, len(ready), proven=proven)
            refusal = structs.replace(
                refusal, never=refusal.never and self.children.none_ever(ready, lack)
            )
            first = structs.replace(first, told=refusal, needs=self._any_room(ready), gangs=())
        elif self._may_use_other_room(ready[:lack]):
            first = structs.replace(first, needs=self._any_room(ready))

        self.made.append(first)
        for gang in gangs_of(*ready):
            if self.children.unready(gang) is None:
                self.told[gang] = first.told

        self.told.update(first.gangs)
        return first.told

    def _may_use_other_room(self, parts: Sequence[Part]) -> bool:
        """Whether room for a member that the refusal of these parts does not name may help."""
        # Parts before the refused one may leave their nodes to it, once there is room for them
        # elsewhere.
        if self.placing.requires(*parts) and len(gangs_of(*parts)) > 1:
            return True

        # Of the choices inside, sums may have left one, which names its first child.
        children = self.children
        for composite in composites_of(*parts):
            if children.lack(composite) < len(children.candidates(composite)):
                return True

        return False

    def _running(self, composite: Composite) -> list[Gang]:
        """The gangs that run in a composite that lost some of its parts; none if it has not started
        in an earlier plan (L3).
        """
        if self.group.rest:
            return []

        running: list[Gang] = []
        for gang_id in gangs_of(composite):
            gang = self.children.declared[gang_id]
            if gang.satisfied:
                running.append(gang)

        return running

    def _any_room(self, parts: Sequence[Part]) -> tuple[Need, ...]:
        """The needs of all gangs of these parts, of which room for any one may help."""
        shapes: dict[Shape, None] = {}
        for gang in self.placing.gangs(parts):
            shapes |= dict.fromkeys(pod.shape for pod in gang.pending)

        return tuple(Need(shape, 0) for shape in shapes)

    def _hopeless(self, gang: Gang) -> Refusal | None:
        name = f"sums {gang.id}"
        if name not in self.progress.parts:
            self.progress.parts[name] = self.hopeless(gang)

        known: Refusal | None = self.progress.parts[name]
        return known

    def _place(self, gang: Gang, *, is_surplus: bool = False) -> None:
        """Decide a gang by itself, if any of it waits; `is_surplus` if all minimums are placed."""
        if not self.children.declared[gang.id].waiting:
            return

        verdict = self.placing.part(f"gang {gang.id} {gang.satisfied} {is_surplus}", (gang.id,))
        self.ledger.work.charge(len(verdict.binds))

        if starts((gang,), verdict):
            self.children.placed.add(gang.id)

        if is_surplus:
            self._take(verdict, (gang,))
        else:
            self._keep(verdict, (gang,))

    def _keep_all(self, found: Sequence[Made]) -> None:
        """Take verdicts on gangs that start together."""
        # For all at once: out of work between two of them would start one without the other.
        self.ledger.work.charge(sum(len(verdict.binds) for verdict, _ in found))
        for verdict, gangs in found:
            self._keep(verdict, gangs)
            self.children.placed.update(gang.id for gang in gangs)

    def _keep(self, verdict: Verdict, gangs: Sequence[Gang]) -> None:
        """Take a verdict without the members above minimums: they wait until all minimums are
        placed.
        """
        later: set[str] = set()
        placed = _by_gang(verdict, gangs)
        for gang in filter(_has_surplus, gangs):
            own = placed[gang.id]
            needed = own[: _need(gang)]

            for placement in own[len(needed) :]:
                self.ledger.release(placement.pod, placement.node)
                later.add(placement.pod.uid)

            if len(needed) < len(self.children.declared[gang.id].pending):
                self._begin(gang, needed)

        if later:
            verdict = _without(verdict, later)

        self._take(verdict, gangs)

    def _take(self, verdict: Verdict, gangs: Sequence[Gang]) -> None:
        own = dict(verdict.gangs)
        for gang in gangs:
            self.told[gang.id] = own.get(gang.id, verdict.told)

        self.made.append(verdict)
        self.placing.kept.append((verdict, gangs))

    def _begin(self, gang: Gang, needed: Sequence[Placement]) -> None:
        """Have the members of a gang that are not `needed` placed after all minimums."""
        placed = {placement.pod.uid for placement in needed}
        rest = tuple(
            pod for pod in self.children.declared[gang.id].pending if pod.uid not in placed
        )
        begun = structs.replace(gang, pending=rest)
        if needed:
            begun = _as_started(gang, rest, needed, self.ledger)

        self.above.append(begun)
        self.children.gangs[gang.id] = begun

    def _merged(self, refused: Refusal | None) -> Verdict:
        """One verdict of all parts."""
        binds: list[Placement] = []
        releases: list[str] = []
        notes: list[tuple[str, Refusal]] = []
        rounds: list[Round] = []

        for verdict in self.made:
            binds += verdict.binds
            releases += verdict.releases
            notes += verdict.notes
            if verdict.round is not None:
                rounds.append(verdict.round)

        refusal = refused or self._told_of_all(len(binds))
        return Verdict(
            group=self.group.id,
            generation=self.group.generation,
            told=refusal,
            round=rounds[0] if rounds else None,
            binds=tuple(binds),
            releases=tuple(releases),
            notes=tuple(notes),
            needs=self._needs(),
            gangs=tuple((gang.id, self.told.get(gang.id, refusal)) for gang in self.group.gangs),
        )

    def _told_of_all(self, bound: int) -> Refusal:
        """What is told of a tree whose minimum was not refused."""
        if not self.made:
            return next(iter(self.told.values()))
        if bound:
            return findings.permitted(bound)

        for verdict in self.made:
            if verdict.needs:
                return verdict.told

        return self.made[0].told

    def _needs(self) -> tuple[Need, ...]:
        wanting = []
        for verdict in self.made:
            if verdict.needs:
                wanting.append(verdict)

        needs: dict[Need, None] = {}
        for verdict in wanting:
            needs |= dict.fromkeys(verdict.needs)

        if len(wanting) < 2:
            return tuple(needs)

        # Needs of several parts are alternatives, while the queue takes them for room that all is
        # required: any room wakes it.
        shapes = dict.fromkeys(need.shape for need in needs)
        return tuple(Need(shape, 0) for shape in shapes)


def _by_gang(
    verdict: Verdict,
    gangs: Sequence[Gang],
) -> dict[str, list[Placement]]:
    """What a verdict places of each of these gangs."""
    placed: dict[str, list[Placement]] = {}
    gang_of: dict[str, str] = {}
    for gang in gangs:
        placed[gang.id] = []
        gang_of |= dict.fromkeys([pod.uid for pod in gang.pending], gang.id)

    for placement in verdict.binds:
        gang_id = gang_of.get(placement.pod.uid)
        if gang_id is not None:
            placed[gang_id].append(placement)

    return placed


def _without(verdict: Verdict, uids: set[str]) -> Verdict:
    """The verdict without what it says of these members."""
    binds = []
    for placement in verdict.binds:
        if placement.pod.uid not in uids:
            binds.append(placement)

    notes = []
    for note in verdict.notes:
        if note[0] not in uids:
            notes.append(note)

    return structs.replace(verdict, binds=tuple(binds), notes=tuple(notes))


def _has_surplus(gang: Gang) -> bool:
    """Whether members above the gang's minimum can be placed after others: slices are whole, other
    policies a round.
    """
    once = gang.match_policy is MatchPolicy.ONCE_SATISFIED
    return once and not gang.satisfied and not gang.constraints.slices


def _need(gang: Gang) -> int:
    """Number of its pending members that a gang needs to start."""
    return max(0, gang.min_member - gang.bound)


def _as_started(
    gang: Gang,
    rest: tuple[Pod, ...],
    needed: Sequence[Placement],
    ledger: Ledger,
) -> Gang:
    """The gang as it is once its minimum is bound."""
    bound = gang.bound + len(needed)
    nodes = [placement.node for placement in needed]
    there = tuple(sorted({*gang.nodes, *nodes}))
    accelerated: tuple[str, ...] = ()
    if gang.constraints.same_product:
        accelerated = tuple(sorted({*gang.accelerated_nodes, *with_accelerators(needed, ledger)}))

    return structs.replace(
        gang,
        pending=rest,
        satisfied=True,
        permitted_min=gang.min_member,
        bound=bound,
        nodes=there,
        accelerated_nodes=accelerated,
    )
