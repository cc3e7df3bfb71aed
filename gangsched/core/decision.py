"""The decision about one group: steps 2 to 5 of a plan.

Invariant: pure functions of a group and a ledger. A refusal leaves the ledger unchanged, except for
holds that it releases. What a plan does beside that (nominations, devices, reservations,
preemption) is unknown here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from msgspec import structs

from gangsched.core import diagnosis, findings, pre_filter, rounds, trees
from gangsched.core.homes import (
    Beside,
    home_full,
    homes_beside,
    marked_outside,
    nearer,
    required_home,
    slice_homes,
)
from gangsched.core.permit import missing, needs_its_rest
from gangsched.core.placement_attempt import PlacementAttempt
from gangsched.core.progress import Progress
from gangsched.core.reserve import Ledger
from gangsched.core.scope import Scope
from gangsched.core.search.domains import in_domains, pinned, required_keys, takes_at_best
from gangsched.core.search.fixed_domains import outside
from gangsched.core.search.lacks import slice_when_empty
from gangsched.core.search.slices import is_sliced
from gangsched.core.work import OutOfWork
from gangsched.model.fault import AtWork
from gangsched.model.gang import Gang, Group, Placement, Refusal
from gangsched.model.objects import Pod, Shape
from gangsched.model.plan import Need, Round, RoundOutcome, Verdict
from gangsched.model.reasons import Reason
from gangsched.model.tree import starts_in_parts
from gangsched.model.verdict_facts import HomeFull, NoNode

NEAR_WORK = 5_000
"""Units for one attempt near the rest of a group, which may not take the work of the last one."""

Notes: TypeAlias = tuple[tuple[str, Refusal], ...]
"""Refusals of single pods, by uid."""


@dataclass(frozen=True, slots=True)
class Decider:
    """Decides groups on the ledger of one plan, each as often as it is asked.

    `declared` has the trees, of which a plan sorts only the gangs that their minimum needs. `after`
    is run within the group's share of work, by those who choose something for the whole plan.
    """

    ledger: Ledger
    #: As if nothing ran, for what can never fit.
    totals: Ledger
    declared: Mapping[str, Group]
    now_s: float
    at_work: AtWork
    after: Sequence[Callable[[], None]] = ()

    def __call__(self, group: Group, progress: Progress | None = None) -> Verdict:
        """The verdict on a group; whatever is raised meanwhile is the fault of this group (I10)."""
        # It may be another than the one in turn, which makes room or yields.
        outer = self.at_work.group
        self.at_work.group = group.id

        declared = self.as_whole(group) if self.declared else group
        verdict = self._decide(declared, progress)
        if group.struck:
            verdict = self._without_memory(declared, verdict)

        for choose in self.after:
            choose()

        self.at_work.group = outer
        return verdict

    def _decide(self, group: Group, progress: Progress | None = None) -> Verdict:
        return decide(
            group,
            self.ledger,
            self.totals,
            now_s=self.now_s,
            progress=progress,
        )

    def _without_memory(self, group: Group, verdict: Verdict) -> Verdict:
        """The verdict; of a group without room, one on as few as possible of the nodes that it
        avoids because members died there, if that places members (L8).
        """
        if verdict.reason is not Reason.UNSCHEDULABLE or verdict.moves:
            return verdict

        # All of them first: mostly that is in vain as well.
        most = len(group.struck)
        if not self._places(_opened(group, most)):
            return verdict

        opened = group
        for number in range(1, most + 1):
            opened = _opened(group, number)
            if number == most or self._places(opened):
                break

        # Without progress: what earlier plans found out is about the other nodes.
        return self._decide(opened)

    def _places(self, group: Group) -> bool:
        """Whether a decision would place members of the group."""
        with self.ledger.tentative():
            verdict = self._decide(group)

        return bool(verdict.binds or verdict.holds)

    def as_whole(self, group: Group) -> Group:
        """The tree of which the group is the part that its minimum needs; any other
        group itself.
        """
        return self.declared.get(
            group.id,
            group,
        )


def _opened(group: Group, number: int) -> Group:
    """The group with that many of its struck nodes open, those with the oldest strikes."""
    opened = group.struck[:number]
    return structs.replace(
        group,
        avoid=group.avoid.difference(opened),
        struck=group.struck[number:],
    )


def decide(
    group: Group,
    ledger: Ledger,
    totals: Ledger,
    *,
    now_s: float,
    progress: Progress | None = None,
) -> Verdict:
    """Run steps 2 to 5 for one group. A refusal leaves `ledger` unchanged, except for holds that it
    releases. `progress` has what earlier plans found out, and records what this one does.

    What starts in parts is decided part by part, each like a group.
    """

    def in_one_round(part: Group) -> Verdict:
        attempt = PlacementAttempt(part, ledger, progress)
        return decide_together(attempt, totals, now_s=now_s)

    if not group.starts_in_parts or group.refusal is not None:
        return in_one_round(group)

    root = group.root
    assert starts_in_parts(root)

    return trees.TreeDecision(
        group,
        root,
        ledger,
        in_one_round,
        partial(_hopeless, PlacementAttempt(group, ledger, progress), totals),
        progress or Progress(),
    ).verdict()


def decide_together(attempt: PlacementAttempt, totals: Ledger, *, now_s: float) -> Verdict:
    """The same for gangs that need their minimums in one round."""
    group = attempt.group
    ledger = attempt.ledger

    # 2. End what cannot go on.
    ended = _end_holds(group, ledger, now_s=now_s)
    if ended is not None:
        return ended

    # First what gangs that have started lack, since their room is of no use without it. For a
    # single gang, all others come after it in member order anyway, unless they wait for older
    # groups.
    unhindered = pre_filter.unhindered(group)
    free_running = [gang for gang in unhindered if gang.free_running]
    short: list[Gang] = []
    if len(group.gangs) > 1 or group.rest:
        short = [gang for gang in free_running if gang.lacks]

    # 3. PreFilter and 4. the round, for the gangs that need a minimum.
    needing = [_with_first(gang, group) for gang in group.gangs if not gang.free_running]
    verdict = _refuse(group)
    of_rest = None
    if verdict is None and group.rest:
        of_rest = _all_of_rest(attempt, needing, short, totals)

    trial = None
    if short and of_rest is None:
        trial = rounds.place_needed(short, attempt)

    if of_rest is not None:
        verdict = of_rest
        free_running = [gang for gang in free_running if not gang.lacks]
    elif verdict is None and any(gang.pending or gang.held for gang in needing):
        verdict = _near_round(attempt, needing, totals)

    # Most groups that wait have no member that may start alone.
    if verdict is not None and not any(
        gang.free_running or gang.retry or gang.kept for gang in unhindered
    ):
        return verdict

    # 5. Members that no gang rule holds back, whatever became of the others.
    trial = trial or rounds.Trial()
    started = _placed(verdict)
    unfixed = _not_together_with(group, unhindered, started)
    pods = _others(group, unfixed, (*trial.tried, *_placed(of_rest)))
    ready = _held(free_running)
    for gang in unhindered:
        ready += gang.kept

    if verdict is not None and not pods and not ready and not free_running:
        return verdict

    trial.add(rounds.place_alone(pods, attempt))
    notes = _notes(attempt, trial, totals)

    if verdict is None:
        own = _of_each(free_running, trial, dict(notes)) if len(group.gangs) > 1 else {}
        return _alone(group, ready, trial, notes, own)

    return _with_alone(verdict, ready, free_running, trial, notes)


def _all_of_rest(
    attempt: PlacementAttempt,
    needing: Sequence[Gang],
    short: Sequence[Gang],
    totals: Ledger,
) -> Verdict | None:
    """One round for all that an interrupted start lacks; None if they have no room together.

    One after the other, the first could take the only nodes of the next.
    """
    lacking = [needs_its_rest(gang) for gang in short]
    if not lacking or not attempt.group.strict:
        return None

    gangs = [*needing]
    for gang in lacking:
        if gang is None:
            return None

        gangs.append(gang)

    verdict = _round(attempt, gangs, totals)
    return verdict if verdict.binds else None


def _others(group: Group, alone: Iterable[Gang], tried: Iterable[Pod]) -> list[Pod]:
    """Members that may start alone and were not tried yet.

    The rest of a start goes before older groups only for what it needs; the next plan places the
    others.
    """
    uids = {pod.uid for pod in tried}
    others: list[Pod] = []
    for gang in alone:
        may_start = gang.retry if group.rest else gang.unhindered
        others += [pod for pod in may_start if pod.uid not in uids]

    return others


def _not_together_with(
    group: Group,
    gangs: Sequence[Gang],
    started: Sequence[Pod],
) -> Sequence[Gang]:
    """The gangs without those of which members start in this plan and fix where the others may go:
    the next plan places these.
    """
    if not started or not (is_sliced(group.gangs) or any(required_keys(group))):
        return gangs

    starting = {pod.uid for pod in started}
    others: list[Gang] = []
    for gang in gangs:
        if starting.isdisjoint([pod.uid for pod in gang.pending]):
            others.append(gang)

    return others


def _placed(verdict: Verdict | None) -> list[Pod]:
    return [placement.pod for placement in verdict.binds] if verdict is not None else []


def _with_first(gang: Gang, group: Group) -> Gang:
    """The gang; without a minimum and siblings, it needs its first member if that decides the
    domain of the others.
    """
    if gang.min_member or len(group.gangs) > 1 or not any(required_keys(group)):
        return gang

    return structs.replace(gang, min_member=1)


def _end_holds(group: Group, ledger: Ledger, *, now_s: float) -> Verdict | None:
    """Release holds that timed out (T2), lost their node (R3) or its domain, or are a Strict
    group's (I5, T1); None without any.

    The state marks the pods of a group that timed out; any other group is looked at again in the
    next plan.
    """
    held = _held(group.gangs)
    # Before anything else: a group that timed out must not be permitted in the same plan.
    if group.clock_started_s is not None and now_s >= group.clock_started_s + group.wait_time_s:
        return structs.replace(
            _released(group, held, ledger, findings.wait_time_over(group)), expired=True
        )

    room = [*held]
    for gang in group.gangs:
        room += gang.kept

    lost = []
    for placement in room:
        if not ledger.fits_still(placement.pod, placement.node):
            lost.append(placement)

    lost += [placement for placement in outside(group, ledger) if placement not in lost]
    if lost:
        nodes = sorted({placement.node for placement in lost})
        return _released(group, tuple(lost), ledger, findings.holds_lost(nodes))
    if group.strict and held:
        return _released(group, held, ledger, findings.strict_holds_nothing(len(held)))

    return None


def _refuse(group: Group) -> Verdict | None:
    """A group that gave its holds up (D1), or whose members are not there (P1, P2); None if it may
    have a round.
    """
    if group.yielded_to:
        return _verdict(group, findings.yielded(group, group.yielded_to))

    refused = pre_filter.refusals(group)
    if not refused:
        return None

    # The group is told the cause, not that one of its gangs waits for another.
    causes = (refusal for _, refusal in refused if refusal.reason is not Reason.WAITING_FOR_GANG)
    cause = next(causes, refused[0][1])
    return _verdict(group, cause, gangs=refused)


def _near_round(attempt: PlacementAttempt, gangs: list[Gang], totals: Ledger) -> Verdict:
    """A round for gangs that need their minimum: of those that lost all of their members where the
    rest of their group is, then wider and wider (L3).
    """
    group = attempt.group
    ledger = attempt.ledger
    near = group.near
    if not near and len(gangs) < len(group.gangs) and not group.rest:
        running = [gang for gang in group.gangs if gang.satisfied]
        near = homes_beside(running, gangs, ledger)

    if not near or not group.strict:
        return _round(attempt, gangs, totals)

    for home in near:
        checkpoint = ledger.checkpoint()
        try:
            # Without progress: what earlier plans found out is about all nodes. The last round must
            # have its work.
            with ledger.work.at_most(min(NEAR_WORK, ledger.work.left / 2)):
                closer = PlacementAttempt(nearer(group, home), ledger)
                verdict = _round(closer, gangs, totals)
        except OutOfWork:
            ledger.rollback(checkpoint)
            continue

        if verdict.binds:
            return _outside(verdict, near[0], ledger)

    return _outside(_round(attempt, gangs, totals), near[0], ledger)


def _outside(verdict: Verdict, home: Beside, ledger: Ledger) -> Verdict:
    binds = marked_outside(verdict.binds, home, ledger)
    return structs.replace(verdict, binds=tuple(binds))


def _round(attempt: PlacementAttempt, gangs: list[Gang], totals: Ledger) -> Verdict:
    """Refuse by arithmetic (P4), or hold a round."""
    group = attempt.group
    ledger = attempt.ledger
    short = pre_filter.waiting_short(gangs)
    if short:
        refusal = next(
            refusal for _, refusal in short if refusal.reason is Reason.WAITING_FOR_MEMBERS
        )
        return _verdict(group, refusal, gangs=short)

    hopeless = pre_filter.arithmetic(group, gangs, ledger, totals, attempt.progress)
    if hopeless is not None:
        refusal, needs = hopeless
        return _verdict(
            group,
            refusal,
            needs=in_domains(needs, group, ledger) if group.strict else needs,
        )

    trial, round_ = rounds.run_round(group, gangs, ledger, attempt.progress)

    if round_.outcome is RoundOutcome.REFUSED:
        needs = _any_node(gangs)
        refused = _gang_failed(attempt, gangs, trial, totals)
        assert trial.culprit is not None

        # One shape anywhere needs no number: any node that takes it is worth another look.
        if group.strict and (len(needs) > 1 or any(required_keys(group))):
            least = pre_filter.least_needs(gangs, trial.culprit[1].shape)
            needs = in_domains(least, group, ledger)

        return _verdict(group, refused, round=round_, needs=needs)

    notes = _notes(attempt, trial, totals)
    if round_.outcome is RoundOutcome.HOLDING:
        hold = _hold(group, gangs, trial, notes)
        return structs.replace(hold, round=round_, needs=_any_node(gangs))

    binds = (*_held(gangs), *trial.placements)
    summary = notes[0][1] if notes and not binds else findings.permitted(len(binds))
    return _verdict(
        group,
        summary,
        round=round_,
        binds=binds,
        notes=notes,
        needs=_any_node(gangs) if notes else (),
    )


def _any_node(gangs: Sequence[Gang]) -> tuple[Need, ...]:
    """Any node at all for each shape that is pending."""
    shapes = dict.fromkeys(pod.shape for gang in gangs for pod in gang.pending)
    return tuple(Need(shape, 0) for shape in shapes)


def _hopeless(attempt: PlacementAttempt, totals: Ledger, gang: Gang) -> Refusal | None:
    """The refusal of a gang that does not fit even without the rest of its group, by sums (P4);
    None if it may fit.
    """
    found = pre_filter.arithmetic(
        structs.replace(attempt.group, gangs=(gang,)),
        [gang],
        attempt.ledger,
        totals,
        attempt.progress,
    )
    return found[0] if found is not None else None


def _gang_failed(
    attempt: PlacementAttempt,
    gangs: list[Gang],
    trial: rounds.Trial,
    totals: Ledger,
) -> Refusal:
    """The refusal after a Strict round that was rolled back."""
    group = attempt.group
    assert trial.culprit is not None
    gang, pod, refusal = trial.culprit

    if trial.lacks is not None:
        empty = slice_when_empty(gang, structs.replace(group, avoid=frozenset()), totals)
        return findings.slices_failed(
            gang,
            trial.lacks,
            needed=missing(gang, 0),
            domains=trial.domains,
            when_empty=empty,
        )

    short = diagnosis.shortage(pod.shape, attempt, totals)
    needed = sum(missing(gang, 0) for gang in gangs)
    placed = len(trial.placements)

    domains = trial.domains
    if domains is not None and not domains.home:
        empty = takes_at_best(structs.replace(group, avoid=frozenset()), gangs, totals)
        domains = structs.replace(domains, when_empty=empty)

    return findings.gang_failed(
        gang,
        pod,
        refusal,
        short,
        placed=placed,
        needed=needed,
        beside=findings.beside_none(pod, refusal, gangs, attempt),
        domains=domains,
    )


def _notes(attempt: PlacementAttempt, trial: rounds.Trial, totals: Ledger) -> Notes:
    """By uid why members found no node that do not hold up the others."""
    shapes = dict.fromkeys(pod.shape for pod, _ in trial.failed)
    short = {shape: diagnosis.shortage(shape, attempt, totals) for shape in shapes}

    at_home = _full_homes(attempt, trial)
    notes: list[tuple[str, Refusal]] = []

    for pod, refused in trial.failed:
        refusal = findings.no_node(pod, refused, short[pod.shape])
        full = at_home.get(pod.uid)
        if full is not None and isinstance(refusal.fact, NoNode) and not refusal.never:
            refusal = structs.replace(refusal, fact=full)

        notes.append((pod.uid, refusal))

    return tuple(notes)


def _full_homes(attempt: PlacementAttempt, trial: rounds.Trial) -> dict[str, HomeFull]:
    """By uid of members without a node, what is the matter at the home that their gang must not
    leave (L6).
    """
    group = attempt.group
    ledger = attempt.ledger
    failed = {pod.uid for pod, _ in trial.failed}
    by_uid: dict[str, HomeFull] = {}

    if not failed or not any(gang.nodes for gang in group.gangs):
        return by_uid

    required = pinned(group, ledger)
    for gang in group.gangs:
        of_slices: dict[str, Scope] = {}
        if gang.constraints.slices:
            of_slices = slice_homes(gang, required, ledger)

        # One for each shape and slice, since hundreds of members may wait.
        known: dict[tuple[Shape, str], HomeFull | None] = {}
        for pod in (*gang.retry, *gang.pending):
            if pod.uid not in failed:
                continue

            home = of_slices.get(pod.uid)
            key = (pod.shape, home.name if home is not None else "")
            if key not in known:
                home = home or required_home(gang, pod, required, ledger)
                known[key] = home_full(gang, pod, home, ledger) if home is not None else None

            full = known[key]
            if full is not None:
                by_uid[pod.uid] = structs.replace(full, pod=pod.key)

    return by_uid


def _hold(
    group: Group,
    gangs: list[Gang],
    trial: rounds.Trial,
    notes: Notes,
) -> Verdict:
    """A NonStrict group keeps what found a node, until the others do (R3)."""
    held: list[tuple[Gang, Placement]] = []
    for gang in gangs:
        for placement in (*gang.held, *trial.placed.get(gang.id, ())):
            held.append((gang, placement))

    holding = []
    for gang, placement in held:
        pod = placement.pod
        holding.append((pod.uid, findings.holding(pod, placement.node, gang)))

    summary = findings.holds_summary(
        group,
        len(held),
        findings.lacking(gangs, trial.counts),
        trial.failed,
    )

    return _verdict(group, summary, holds=trial.placements, notes=(*notes, *holding))


def _alone(
    group: Group,
    ready: tuple[Placement, ...],
    trial: rounds.Trial,
    notes: Notes,
    own: Mapping[str, Refusal],
) -> Verdict:
    """The verdict of a group of which no gang needed a round: what became of its single members."""
    binds = (*ready, *trial.placements)
    outcome = RoundOutcome.REFUSED if notes else RoundOutcome.PERMITTED
    tried = trial.attempted
    placed = len(trial.placements)
    round_ = Round(group.rounds + 1, tried, tried, placed, outcome) if tried else None
    refusal = notes[0][1] if notes else findings.permitted(len(binds))

    return _verdict(
        group,
        refusal,
        round=round_,
        binds=binds,
        notes=notes,
        needs=_needs((), trial),
        gangs=tuple(own.items()),
    )


def _with_alone(
    verdict: Verdict,
    ready: tuple[Placement, ...],
    free_running: list[Gang],
    trial: rounds.Trial,
    notes: Notes,
) -> Verdict:
    """A group's refusal or round, with what became of its single members added."""
    own = _of_each(free_running, trial, dict(notes))
    return structs.replace(
        verdict,
        binds=(*verdict.binds, *ready, *trial.placements),
        notes=(*verdict.notes, *notes),
        needs=_needs(verdict.needs, trial),
        gangs=(*(gang for gang in verdict.gangs if gang[0] not in own), *own.items()),
    )


def _of_each(
    gangs: list[Gang],
    trial: rounds.Trial,
    failed: dict[str, Refusal],
) -> dict[str, Refusal]:
    """By gang id what is true of gangs that do not wait for their group; no text where nothing of
    them moved.
    """
    placed = {placement.pod.uid for placement in trial.placements}
    by_gang: dict[str, Refusal] = {}

    for gang in gangs:
        uids = [pod.uid for pod in (*gang.retry, *gang.pending)]
        number = sum(uid in placed for uid in uids)
        started = findings.permitted(number + len(gang.held) + len(gang.kept))

        refused = (failed[uid] for uid in uids if uid in failed)
        by_gang[gang.id] = next(refused, started)

    return by_gang


def _needs(of_round: tuple[Need, ...], trial: rounds.Trial) -> tuple[Need, ...]:
    """The needs of a group whose parts may go on by themselves: with several, room of any size is
    worth a look.
    """
    failed = dict.fromkeys(pod.shape for pod, _ in trial.failed)
    of_failed = tuple(Need(shape, 1) for shape in failed)
    needs = (*of_round, *of_failed)
    if len(needs) < 2 or not of_failed:
        return needs

    wanted = dict.fromkeys(need.shape for need in needs)
    return tuple(Need(shape, 0) for shape in wanted)


def _held(gangs: Iterable[Gang]) -> tuple[Placement, ...]:
    return tuple(placement for gang in gangs for placement in gang.held)


def _released(
    group: Group,
    held: tuple[Placement, ...],
    ledger: Ledger,
    refusal: Refusal,
) -> Verdict:
    for placement in held:
        ledger.release(placement.pod, placement.node)

    return _verdict(group, refusal, releases=tuple(placement.pod.uid for placement in held))


def _verdict(group: Group, refusal: Refusal, **fields: Any) -> Verdict:
    return Verdict(group=group.id, generation=group.generation, told=refusal, **fields)
