"""The cycle: `plan` decides the groups of the queue on one snapshot.

Invariant: groups are decided in queue order, and a refused group never blocks a group behind it (semantics Q4); each
group can use the room that the groups before it left. The result depends on the arguments only. The steps are numbered
as in the code:

1. QueueSort: order the groups. 2. Release holds that timed out, lost their node or are no longer allowed. 3. PreFilter:
members (P1, P2), then arithmetic (P4). 4. One round for the gangs below their minimum: Filter, Score, Reserve and
Permit (R1-R3, B1). 5. Members that may start alone, one by one (P3, B3). 6. Preemption (V15). 7. A reservation
for each group that is entitled to one (H12). 8. PostFilter: break a deadlock of holds (D1).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import numpy.ma  # noqa: F401  # else `np.unique` imports it in the middle of a plan, which takes 30 ms

from gangsched.core import diagnosis, post_filter, pre_filter, rounds, stand_ins, tree_choices, trees
from gangsched.core.chosen_devices import with_devices
from gangsched.core.last_ends import LastEnds
from gangsched.core.messages import placing
from gangsched.core.permit import missing
from gangsched.core.plan_cache import PlanCache
from gangsched.core.plan_queue import PlanQueue
from gangsched.core.preemption.plan_preemptions import Behind, PlanPreemptions, not_done
from gangsched.core.progress import Progress
from gangsched.core.queue_sort import group_key, in_turns
from gangsched.core.reservations.standing import Standing
from gangsched.core.reserve import Ledger
from gangsched.core.search.domains import in_domains, required_keys
from gangsched.core.search.lacks import takes_when_empty
from gangsched.core.work import Work
from gangsched.model.fault import AtWork
from gangsched.model.gang import Gang, Group, Placement, Refusal
from gangsched.model.gpu_policy import GpuPolicy
from gangsched.model.plan import Need, Plan, Round, RoundOutcome, Unfinished, Verdict
from gangsched.model.preemption import Obstacle, PreemptionInput
from gangsched.model.reasons import Reason
from gangsched.model.reservation import Reserving
from gangsched.model.snapshot import Snapshot

Notes: TypeAlias = tuple[tuple[str, Refusal], ...]
"""Refusals of single pods, by uid."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one plan. They count work instead of reading a clock, so the event loop never stalls and results are
    reproducible (decisions 8 and 47).

    `work` is in units of `core.work`, each about a microsecond.
    """

    groups: int = 400
    pods: int = 5_000
    work: int = 25_000


def plan(
    snapshot: Snapshot,
    queue: Sequence[Group],
    *,
    now_s: float,
    limits: Limits | None = None,
    policy: GpuPolicy | None = None,
    reserving: Reserving | None = None,
    preempting: PreemptionInput | None = None,
    looked_at: Set[str] = frozenset(),
    unfinished: Unfinished | None = None,
    cache: PlanCache | None = None,
    at_work: AtWork | None = None,
) -> Plan:
    """Decide, on one ledger at monotonic second `now_s`, every group of `queue` that is not `unchanged`.

    At least one group is decided; groups beyond `limits` are returned in `Plan.left`. `looked_at` are the ids of the
    groups already decided in the current pass over the queue; a pass takes several plans if `limits` cut them short.
    These groups are decided last, so n ready groups are decided within n / `limits.groups` plans (decision 8).
    Namespaces alternate (Q4). A group that needs more work than one plan may do is returned as `unfinished`. The next
    plan receives it and continues with it, but spends half of its work on other groups. Without `reserving` no
    reservations are made, and without `preempting` no pod is preempted. `cache` comes from earlier plans on the same
    cluster; it saves work and does not affect decisions. `at_work` says at any time which group is being decided, ""
    between groups: whatever is raised then is its fault, and the plan is void (I10).
    """
    limits, cache = limits or Limits(), cache or PlanCache()
    at_work = at_work or AtWork()
    work, counts = Work(), cache.counts
    ledger, totals = (Ledger(snapshot, empty=empty, policy=policy, work=work, counts=counts) for empty in (False, True))
    # The same object: any change of a claim, a volume or a class makes a new one.
    if unfinished is not None and unfinished.storage is snapshot.storage:
        ledger.occupancy.storage.needs.known.update(unfinished.claim_needs)
    # Requirements of claims do not depend on what runs, so both ledgers share them.
    totals.occupancy.storage.derives_with(ledger.occupancy.storage)
    if reserving is not None and reserving.limits.reservations and reserving.last_ends is not None:
        ledger.last_ends = LastEnds(reserving.last_ends, snapshot.table, reserving.wall_s)
    # 1. QueueSort
    ordered = sorted(queue, key=group_key)
    whole = {group.id: group for group in ordered if group.tree is not None}
    ready = [tree_choices.needed(group) if group.id in whole else group for group in ordered if not group.unchanged]
    standing = None
    if reserving is not None and reserving.limits.reservations:
        nominated = preempting.nominated if preempting is not None else {}
        given = [whole.get(group.id, group) for group in ready]
        standing = Standing(
            reserving, snapshot, ledger, given, most=limits.work, nominated=nominated, cache=cache.reservations
        )
        # With a head, shorter groups of equal priority come first, since they are likelier to be backfilled (H9).
        if not standing.keeps_order:
            ready.sort(key=standing.order)
    # What is promised to a group is kept from all others until it is looked at, so that it is not put off.
    served = looked_at - preempting.nominated.keys() if preempting is not None else looked_at
    ready = in_turns(ready, served) if looked_at else ready
    if standing is not None and not (unfinished is not None and unfinished.goes_first):
        standing.begin()
    verdicts: dict[str, Verdict] = {}
    tried = 0

    devices = ledger.occupancy.storage.devices

    def decided(group: Group) -> Verdict:
        # It may be another than the one in turn, which makes room or yields.
        outer, at_work.group = at_work.group, group.id
        verdict = decide(whole.get(group.id, group), ledger, totals, now_s=now_s)
        # Within the group's work: a plan whose last group used up its work could not choose devices at the end.
        if devices is not None:
            devices.solve()
        at_work.group = outer
        return verdict

    preemptions = PlanPreemptions.of(preempting, ledger, now_s, decided, cache.running)
    # Whatever their turn: a group that is decided early may take the room that a later one holds.
    holders = [group for group in ordered if group.holds]
    turns = PlanQueue(ready, unfinished, ledger, limits.work)
    for group in turns:
        # The next plan decides the rest, so that no group is refused because the work is used up.
        is_full = len(verdicts) >= limits.groups or tried >= limits.pods
        if (is_full or (preemptions is not None and preemptions.is_full)) and turns.end(group):
            continue
        if group.id in verdicts:
            continue  # it gave up its holds for one before it
        # 2.-5. group by group, and 6. preemption, before those behind it see the room
        at_work.group = group.id
        if snapshot.nominated:
            # By the lowest priority of its members: nominations above it must be respected by all of them.
            ledger.respect_nominations(whole.get(group.id, group).lowest_priority, but=group.id)
        behind = partial(_behind, turns, verdicts, limits.groups)
        make_room = partial(_make_room, preemptions, group, holders, verdicts, behind)
        made = turns.decide(group, decided, make_room, not_done)
        if preemptions is not None:
            turns.shorten(preemptions.unpaid)
            preemptions.unpaid = 0
        if not made:
            at_work.group = ""
            continue
        verdicts |= made
        verdict = verdicts[group.id]
        tried += verdict.round.attempted if verdict.round else 1
        if snapshot.nominated:
            ledger.fulfill(group.id, {each.pod.uid for each in (*verdict.binds, *verdict.holds)})
            stand_ins.fulfill(whole.get(group.id, group).gangs, verdict, ledger)
        if ledger.last_ends is not None:
            ledger.last_ends.take(verdict.binds, group)
        # 7. Its reservation, before those behind it are tried
        if standing is not None:
            for each in (group, *(preemptions.alike if preemptions is not None else ())):
                verdicts[each.id] = standing.turn(each, verdicts[each.id])
        at_work.group = ""
    left = tuple(group.id for group in ready if group.id not in verdicts)
    # 8. PostFilter, with all holders whatever the limits; groups with holds preempt if no group yields
    again = post_filter.unsettled(ordered, verdicts, ledger.table)
    gave = turns.beyond(partial(post_filter.yield_holds, ordered, holders, verdicts, ledger, decided)) or {}
    verdicts |= gave
    if preemptions is not None:
        if not gave:
            made, put_off = _of_those_that_hold(ordered, verdicts, ledger, preemptions, turns, but=again)
            verdicts |= made
            again |= put_off
        gave |= preemptions.gave
    first = gave | verdicts | gave  # what is released comes before what takes its room
    claims = ledger.occupancy.storage.claim_devices
    if claims is not None and claims.is_used:
        first = {name: with_devices(verdict, ledger) for name, verdict in first.items()}
    reservations = standing.result(first) if standing is not None else None
    # Of a thousand binds each would be looked at, for a few gangs that have members to come.
    coming = {group.id for group in ordered for gang in group.gangs if gang.to_come}
    return Plan(
        tuple([stand_ins.split(each) if each.group in coming else each for each in first.values()]),
        left,
        pods_tried=tried,
        reservations=reservations,
        again=again,
        begun=turns.begun & {*left},
        unfinished=turns.unfinished,
        work=work.used,
    )


def _make_room(
    preemptions: PlanPreemptions | None,
    group: Group,
    holders: Sequence[Group],
    verdicts: Mapping[str, Verdict],
    behind: Behind,
    verdict: Verdict,
) -> dict[str, Verdict]:
    """The verdicts on a Strict group and on those that release holds for it or are nominated with it (V15)."""
    if preemptions is None or not group.strict:
        return {group.id: verdict}
    holding = post_filter.still_holding(holders, {**verdicts, group.id: verdict}) if holders else []
    return preemptions.turn(group, verdict, holding, behind)


def _behind(turns: PlanQueue, verdicts: Mapping[str, Verdict], groups: int, most: int) -> Sequence[Group]:
    """The groups that the plan would look at next, `most` of them and no more than are left of its `groups`."""
    found = turns.behind(min(most, groups - len(verdicts) - 1))
    return [group for group in found if group.id not in verdicts]


def _of_those_that_hold(
    ordered: Sequence[Group],
    verdicts: Mapping[str, Verdict],
    ledger: Ledger,
    preemptions: PlanPreemptions,
    turns: PlanQueue,
    *,
    but: Container[str],
) -> tuple[dict[str, Verdict], frozenset[str]]:
    """The verdicts of NonStrict groups that preempt, and of those that release holds for them (V15).

    Not of those `but`: others may yield to them, which is found out in the next plan. Second, the groups that the next
    plan decides again, since the work of this one was done. They are fewer than this plan decided, so that plans end.
    """
    made: dict[str, Verdict] = {}
    put_off: list[Group] = []
    for group in ordered:
        if group.id not in verdicts or group.strict or group.id in made or group.id in but:
            continue
        ledger.respect_nominations(group.lowest_priority, but=group.id)
        holders = post_filter.still_holding(ordered, {**verdicts, **made})
        found = turns.beyond(partial(preemptions.turn, group, verdicts[group.id], holders))
        if found is None:
            put_off.append(group)
        else:
            made |= found
    # Without this, the next plan would put off the same groups again, and the pass would never end.
    if put_off and len(put_off) == len(verdicts):
        first = put_off.pop(0)
        made[first.id] = not_done(first, verdicts[first.id], Obstacle.TOO_MUCH_WORK)
    return made, frozenset(group.id for group in put_off)


def decide(group: Group, ledger: Ledger, totals: Ledger, *, now_s: float) -> Verdict:
    """Run steps 2 to 5 for one group. A refusal leaves `ledger` unchanged, except for holds that it releases.

    The parts of a tree are decided one by one, each like a group.
    """
    if group.tree is not None and group.refusal is None:
        part = partial(decide, ledger=ledger, totals=totals, now_s=now_s)
        sums = partial(_hopeless, group, ledger, totals)
        return trees.TreeDecision(group, ledger, part, sums, ledger.progress or Progress()).verdict()
    # 2. End what cannot go on.
    ended = _end_holds(group, ledger, now_s=now_s)
    if ended is not None:
        return ended
    # 3. PreFilter and 4. the round, for the gangs that need a minimum.
    needing = [_with_first(gang, group) for gang in group.gangs if not gang.free_running]
    verdict = _refuse(group)
    if verdict is None and any(gang.pending or gang.held for gang in needing):
        verdict = _round(group, needing, ledger, totals)
    # 5. Members that no gang rule holds back, whatever became of the others.
    alone = pre_filter.unhindered(group)
    free_running = [gang for gang in alone if gang.free_running]
    pods = [pod for gang in alone for pod in gang.unhindered]
    ready = (*_held(free_running), *(placement for gang in alone for placement in gang.kept))
    if verdict is not None and not pods and not ready and not free_running:
        return verdict
    trial = rounds.place_alone(pods, group, ledger)
    notes = _notes(group, trial, ledger, totals)
    if verdict is None:
        return _alone(group, ready, trial, notes)
    return _with_alone(verdict, ready, free_running, trial, notes)


def _with_first(gang: Gang, group: Group) -> Gang:
    """The gang; without a minimum and siblings, it needs its first member if that decides the domain of the others."""
    if gang.min_member or len(group.gangs) > 1 or not any(required_keys(group)):
        return gang
    return replace(gang, min_member=1)


def _end_holds(group: Group, ledger: Ledger, *, now_s: float) -> Verdict | None:
    """Release holds that timed out (T2), lost their node (R3) or are a Strict group's (I5, T1); None without any.

    The state marks the pods of a group that timed out; any other group is looked at again in the next plan.
    """
    held = _held(group.gangs)
    # Before anything else: a group that timed out must not be permitted in the same plan.
    if group.clock_started_s is not None and now_s >= group.clock_started_s + group.wait_time_s:
        return replace(_released(group, held, ledger, placing.wait_time_over(group)), expired=True)
    kept = (placement for gang in group.gangs for placement in gang.kept)
    lost = tuple(each for each in (*held, *kept) if not ledger.fits_still(each.pod, each.node))
    if lost:
        return _released(group, lost, ledger, placing.holds_lost(sorted({placement.node for placement in lost})))
    if group.strict and held:
        return _released(group, held, ledger, placing.strict_holds_nothing(len(held)))
    return None


def _refuse(group: Group) -> Verdict | None:
    """A group that gave its holds up (D1), or whose members are not there (P1, P2); None if it may have a round."""
    if group.yielded_to:
        return _verdict(group, placing.yielded(group, group.yielded_to))
    refused = pre_filter.refusals(group)
    if not refused:
        return None
    # The group is told the cause, not that one of its gangs waits for another.
    causes = (refusal for _, refusal in refused if refusal.reason is not Reason.WAITING_FOR_GANG)
    return _verdict(group, next(causes, refused[0][1]), gangs=refused)


def _round(group: Group, gangs: list[Gang], ledger: Ledger, totals: Ledger) -> Verdict:
    """Refuse by arithmetic (P4), or hold a round."""
    short = pre_filter.waiting_short(gangs)
    if short:
        refusal = next(refusal for _, refusal in short if refusal.reason is Reason.WAITING_FOR_MEMBERS)
        return _verdict(group, refusal, gangs=short)
    hopeless = pre_filter.arithmetic(group, gangs, ledger, totals)
    if hopeless is not None:
        refusal, needs = hopeless
        return _verdict(group, refusal, needs=in_domains(needs, group, ledger) if group.strict else needs)
    trial, round_ = rounds.run_round(group, gangs, ledger)
    needs = tuple(Need(shape, 0) for shape in dict.fromkeys(pod.shape for gang in gangs for pod in gang.pending))
    if round_.outcome is RoundOutcome.REFUSED:
        told = _gang_failed(group, gangs, trial, ledger, totals)
        assert trial.culprit is not None
        # One shape anywhere needs no number: any node that takes it is worth another look.
        if group.strict and (len(needs) > 1 or any(required_keys(group))):
            needs = in_domains(pre_filter.least_needs(gangs, trial.culprit[1].shape), group, ledger)
        return _verdict(group, told, round=round_, needs=needs)
    notes = _notes(group, trial, ledger, totals)
    if round_.outcome is RoundOutcome.HOLDING:
        return replace(_hold(group, gangs, trial, notes), round=round_, needs=needs)
    binds = (*_held(gangs), *trial.placements)
    told = notes[0][1] if notes and not binds else placing.permitted(len(binds))
    return _verdict(group, told, round=round_, binds=binds, notes=notes, needs=needs if notes else ())


def _hopeless(group: Group, ledger: Ledger, totals: Ledger, gang: Gang) -> Refusal | None:
    """The refusal of a gang that does not fit even without the rest of its group, by sums (P4); None if it may fit."""
    found = pre_filter.arithmetic(replace(group, gangs=(gang,)), [gang], ledger, totals)
    return found[0] if found is not None else None


def _gang_failed(group: Group, gangs: list[Gang], trial: rounds.Trial, ledger: Ledger, totals: Ledger) -> Refusal:
    """The refusal after a Strict round that was rolled back."""
    assert trial.culprit is not None
    gang, pod, refusal = trial.culprit
    if trial.lacks:
        takes = takes_when_empty(gang, replace(group, avoid=frozenset()), totals)
        return placing.slices_failed(gang, trial.lacks, needed=missing(gang, 0), note=trial.note, takes=takes)
    short = diagnosis.shortage(pod.shape, group, ledger, totals)
    needed = sum(missing(each, 0) for each in gangs)
    placed = len(trial.placements)
    return placing.gang_failed(gang, pod, refusal, short, placed=placed, needed=needed, note=trial.note)


def _notes(group: Group, trial: rounds.Trial, ledger: Ledger, totals: Ledger) -> Notes:
    """By uid why members found no node that do not hold up the others."""
    shapes = dict.fromkeys(pod.shape for pod, _ in trial.failed)
    short = {shape: diagnosis.shortage(shape, group, ledger, totals) for shape in shapes}
    return tuple((pod.uid, placing.no_node(pod, refusal, short[pod.shape])) for pod, refusal in trial.failed)


def _hold(group: Group, gangs: list[Gang], trial: rounds.Trial, notes: Notes) -> Verdict:
    """A NonStrict group keeps what found a node, until the others do (R3)."""
    held = tuple((gang, p) for gang in gangs for p in (*gang.held, *trial.placed.get(gang.id, ())))
    holding = ((p.pod.uid, placing.holding(p.pod, p.node, gang)) for gang, p in held)
    told = placing.holds_summary(group, len(held), placing.lacking(gangs, trial.counts), trial.failed)
    return _verdict(group, told, holds=trial.placements, notes=(*notes, *holding))


def _alone(group: Group, ready: tuple[Placement, ...], trial: rounds.Trial, notes: Notes) -> Verdict:
    """The verdict of a group of which no gang needed a round: what became of its single members."""
    binds = (*ready, *trial.placements)
    outcome = RoundOutcome.REFUSED if notes else RoundOutcome.PERMITTED
    tried, placed = trial.attempted, len(trial.placements)
    round_ = Round(group.rounds + 1, tried, tried, placed, outcome) if tried else None
    told = notes[0][1] if notes else placing.permitted(len(binds))
    return _verdict(group, told, round=round_, binds=binds, notes=notes, needs=_needs((), trial))


def _with_alone(
    verdict: Verdict, ready: tuple[Placement, ...], free_running: list[Gang], trial: rounds.Trial, notes: Notes
) -> Verdict:
    """A group's refusal or round, with what became of its single members added."""
    own = _of_each(free_running, trial, dict(notes))
    return replace(
        verdict,
        binds=(*verdict.binds, *ready, *trial.placements),
        notes=(*verdict.notes, *notes),
        needs=_needs(verdict.needs, trial),
        gangs=(*(each for each in verdict.gangs if each[0] not in own), *own.items()),
    )


def _of_each(gangs: list[Gang], trial: rounds.Trial, failed: dict[str, Refusal]) -> dict[str, Refusal]:
    """By gang id what is true of gangs that do not wait for their group; no text where nothing of them moved."""
    placed = {placement.pod.uid for placement in trial.placements}
    told: dict[str, Refusal] = {}
    for gang in gangs:
        uids = [pod.uid for pod in (*gang.retry, *gang.pending)]
        started = placing.permitted(sum(uid in placed for uid in uids) + len(gang.held) + len(gang.kept))
        told[gang.id] = next((failed[uid] for uid in uids if uid in failed), started)
    return told


def _needs(of_round: tuple[Need, ...], trial: rounds.Trial) -> tuple[Need, ...]:
    """The needs of a group whose parts may go on by themselves: with several, room of any size is worth a look."""
    alone = tuple(Need(shape, 1) for shape in dict.fromkeys(pod.shape for pod, _ in trial.failed))
    needs = (*of_round, *alone)
    if len(needs) < 2 or not alone:
        return needs
    return tuple(Need(shape, 0) for shape in dict.fromkeys(need.shape for need in needs))


def _held(gangs: Iterable[Gang]) -> tuple[Placement, ...]:
    return tuple(placement for gang in gangs for placement in gang.held)


def _released(group: Group, held: tuple[Placement, ...], ledger: Ledger, told: Refusal) -> Verdict:
    for placement in held:
        ledger.release(placement.pod, placement.node)
    return _verdict(group, told, releases=tuple(placement.pod.uid for placement in held))


def _verdict(group: Group, told: Refusal, **fields: Any) -> Verdict:
    return Verdict(group=group.id, generation=group.generation, told=told, **fields)
