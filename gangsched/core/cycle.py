"""The cycle: `plan`, the numbered steps of one look at the queue.

Law: groups are looked at in queue order and a refused group never stops one behind it (semantics Q4); each sees the
room that those before it left. The result depends on nothing but the arguments.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gangsched.core import messages, post_filter, pre_filter, rounds
from gangsched.core.queue_sort import group_key
from gangsched.core.reserve import Ledger
from gangsched.model.gang import Gang, Group, Placement, Refusal
from gangsched.model.gpu_policy import GpuPolicy
from gangsched.model.plan import Need, Plan, PodNote, Round, RoundOutcome, Verdict
from gangsched.model.reasons import Reason
from gangsched.model.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one plan looks at, by count and not by clock, so that the caller's loop never stalls (decision 8)."""

    groups: int = 400
    pods: int = 5_000
    search_steps: int = 6_000


def plan(
    snapshot: Snapshot,
    queue: Sequence[Group],
    *,
    now_s: float,
    limits: Limits | None = None,
    policy: GpuPolicy | None = None,
) -> Plan:
    """Decide every group of `queue` on one ledger, at monotonic second `now_s`.

    Groups beyond `limits` are returned in `Plan.left`; at least one group is always looked at.
    """
    limits = limits or Limits()
    # 1. QueueSort.
    ordered = sorted(queue, key=group_key)
    ledger, totals = Ledger(snapshot, policy=policy), Ledger(snapshot, empty=True, policy=policy)
    verdicts: dict[str, Verdict] = {}
    tried = 0
    for position, group in enumerate(ordered):
        if verdicts and (position >= limits.groups or tried >= limits.pods):
            break
        if ledger.search_steps >= limits.search_steps:
            break  # the rest is looked at in the next plan, so that no group is refused for lack of a search
        # 2.-6. PreFilter, Filter, Score, Reserve, Permit, group by group.
        verdict = decide(group, ledger, totals, now_s=now_s)
        verdicts[group.id] = verdict
        tried += verdict.round.attempted if verdict.round else 1
    # 7. PostFilter: end a deadlock of holds, if there is one and the whole queue was seen.
    if len(verdicts) == len(ordered):
        yields = post_filter.yield_holds(ordered, verdicts, ledger)
        verdicts = yields | {group: verdict for group, verdict in verdicts.items() if group not in yields}
    left = tuple(group.id for group in ordered if group.id not in verdicts)
    return Plan(tuple(verdicts.values()), left, tried)


def decide(group: Group, ledger: Ledger, totals: Ledger, *, now_s: float) -> Verdict:
    """One group's verdict; on refusal `ledger` is left as found, but for holds that ran out."""
    # 2. The clock (T2), and holds that lost their node (R3).
    if group.clock_started_s is not None and now_s >= group.clock_started_s + group.wait_time_s:
        return _expire(group, ledger)
    lost = tuple(held for gang in group.gangs for held in gang.held if not ledger.fits_still(held.pod, held.node))
    if lost:
        return _drop(group, lost, ledger)
    if group.strict and group.holds:
        return _give_back(group, ledger)
    if group.yielded_to:
        return _apart(group, _verdict(group, Reason.YIELDED, messages.yielded(group.yielded_to)), ledger)
    # 3. PreFilter: members (P1, P2).
    refused = pre_filter.refusals(group)
    if refused:
        causes = (refusal for _, refusal in refused if refusal.reason is not Reason.WAITING_FOR_GANG)
        own = next(causes, refused[0][1])
        return _apart(group, _verdict(group, own.reason, own.message, gangs=refused), ledger)
    # 4. Members that no gang rule holds back go alone (P3); the others are tried in a round before them.
    bound_by_rules = [gang for gang in group.gangs if not gang.free_running]
    is_waiting = any(gang.pending or gang.held for gang in bound_by_rules)
    return _apart(group, _round(group, bound_by_rules, ledger, totals) if is_waiting else None, ledger)


def _round(group: Group, gangs: list[Gang], ledger: Ledger, totals: Ledger) -> Verdict:
    """PreFilter by arithmetic (P4), then a round: Filter, Score, Reserve and Permit (R1-R3, B1)."""
    short = pre_filter.waiting_short(gangs)
    if short:
        refusal = next(refusal for _, refusal in short if refusal.reason is Reason.WAITING_FOR_MEMBERS)
        return _verdict(group, refusal.reason, refusal.message, gangs=short)
    hopeless = pre_filter.arithmetic(group, gangs, ledger, totals)
    if hopeless is not None:
        refusal, needs = hopeless
        return _verdict(group, refusal.reason, refusal.message, needs=needs)
    trial, round_ = rounds.run_round(group, gangs, ledger)
    needs = tuple(Need(shape, 0) for shape in dict.fromkeys(pod.shape for gang in gangs for pod in gang.pending))
    notes = tuple(PodNote(pod.uid, refusal.reason, refusal.message) for pod, refusal in trial.failed)
    match round_.outcome:
        case RoundOutcome.REFUSED:
            assert trial.refusal is not None
            return _verdict(group, trial.refusal.reason, trial.refusal.message, round_=round_, needs=needs)
        case RoundOutcome.PERMITTED:
            held = tuple(placement for gang in gangs for placement in gang.held)
            binds = (*held, *trial.placements)
            reason, message = Reason.SCHEDULED, messages.permitted(len(binds))
            if notes and not binds:
                reason, message = notes[0].reason, notes[0].message
            return _verdict(
                group, reason, message, round_=round_, binds=binds, notes=notes, needs=needs if notes else ()
            )
        case RoundOutcome.HOLDING:
            return _hold(group, gangs, trial, round_, needs, notes)


def _hold(
    group: Group,
    gangs: list[Gang],
    trial: rounds.Trial,
    round_: Round,
    needs: tuple[Need, ...],
    notes: tuple[PodNote, ...],
) -> Verdict:
    lack = messages.lacking(gangs, trial.counts)
    held = (*(placement for gang in gangs for placement in gang.held), *trial.placements)
    holding = (PodNote(p.pod.uid, Reason.HOLDING, messages.holding(p.pod, p.node, lack)) for p in held)
    message = messages.holds_summary(len(held), lack)
    reason = Reason.HOLDING if held else Reason.UNSCHEDULABLE
    return _verdict(
        group, reason, message, round_=round_, holds=trial.placements, needs=needs, notes=(*notes, *holding)
    )


def _apart(group: Group, verdict: Verdict | None, ledger: Ledger) -> Verdict:
    """Place members one by one that no gang rule holds back, whatever became of the others (P3, B3).

    Their places are added to `verdict`, that of the group's refusal or round, if it had one.
    """
    gangs = pre_filter.unhindered(group)
    pods = [pod for gang in gangs for pod in (*gang.retry, *(gang.pending if gang.free_running else ()))]
    held = tuple(placement for gang in gangs if gang.free_running for placement in gang.held)
    if verdict is not None and not pods and not any(gang.free_running for gang in gangs):
        return verdict
    trial = rounds.place_alone(pods, group, ledger)
    notes = tuple(PodNote(pod.uid, refusal.reason, refusal.message) for pod, refusal in trial.failed)
    needs = tuple(Need(shape, 1) for shape in dict.fromkeys(pod.shape for pod, _ in trial.failed))
    needs = _either(verdict.needs if verdict else (), needs)
    binds = (*held, *trial.placements)
    if verdict is None:
        present, placed = len(pods), len(trial.placements)
        outcome = RoundOutcome.PERMITTED if not trial.failed else RoundOutcome.REFUSED
        round_ = Round(group.rounds + 1, present, trial.attempted, placed, outcome) if pods else None
        reason, message = Reason.SCHEDULED, messages.permitted(len(binds))
        if trial.failed:
            reason, message = trial.failed[0][1].reason, trial.failed[0][1].message
        return _verdict(group, reason, message, round_=round_, binds=binds, notes=notes, needs=needs)
    own = _of_each([gang for gang in gangs if gang.free_running], trial)
    return _verdict(
        group,
        verdict.reason,
        verdict.message,
        round_=verdict.round,
        binds=(*verdict.binds, *binds),
        holds=verdict.holds,
        notes=(*verdict.notes, *notes),
        needs=needs,
        gangs=(*(each for each in verdict.gangs if each[0] not in own), *own.items()),
    )


def _of_each(gangs: list[Gang], trial: rounds.Trial) -> dict[str, Refusal]:
    """By gang id what is true of gangs that do not wait for their group; no text where nothing of them moved."""
    failed = {pod.uid: refusal for pod, refusal in trial.failed}
    placed = {placement.pod.uid for placement in trial.placements}
    told: dict[str, Refusal] = {}
    for gang in gangs:
        uids = [pod.uid for pod in (*gang.retry, *gang.pending)]
        number = sum(uid in placed for uid in uids) + len(gang.held)
        started = Refusal(Reason.SCHEDULED, messages.permitted(number) if number else "")
        told[gang.id] = next((failed[uid] for uid in uids if uid in failed), started)
    return told


def _either(of_round: tuple[Need, ...], of_alone: tuple[Need, ...]) -> tuple[Need, ...]:
    """The needs of a group whose parts may go on by themselves: with several, room of any size is worth a look."""
    needs = (*of_round, *of_alone)
    if len(needs) < 2 or not of_alone:
        return needs
    return tuple(Need(shape, 0) for shape in dict.fromkeys(need.shape for need in needs))


def _expire(group: Group, ledger: Ledger) -> Verdict:
    """Release every hold of the group and say so; the state marks the pods (T2)."""
    held = tuple(placement for gang in group.gangs for placement in gang.held)
    return _released(group, held, ledger, Reason.TIMED_OUT, messages.wait_time_over(group), expired=True)


def _drop(group: Group, lost: tuple[Placement, ...], ledger: Ledger) -> Verdict:
    """Release holds whose node went away or no longer fits; the group is looked at again in the next plan."""
    message = messages.holds_lost(sorted({placement.node for placement in lost}))
    return _released(group, lost, ledger, Reason.UNSCHEDULABLE, message, expired=False)


def _give_back(group: Group, ledger: Ledger) -> Verdict:
    """Release the holds of a group that has become Strict; it is looked at again in the next plan (I5, T1)."""
    held = tuple(placement for gang in group.gangs for placement in gang.held)
    message = messages.strict_holds_nothing(len(held))
    return _released(group, held, ledger, Reason.UNSCHEDULABLE, message, expired=False)


def _released(
    group: Group, held: tuple[Placement, ...], ledger: Ledger, reason: Reason, message: str, *, expired: bool
) -> Verdict:
    for placement in held:
        ledger.release(placement.pod, placement.node)
    uids = tuple(placement.pod.uid for placement in held)
    return Verdict(
        group=group.id, generation=group.generation, reason=reason, message=message, releases=uids, expired=expired
    )


def _verdict(
    group: Group,
    reason: Reason,
    message: str,
    *,
    round_: Round | None = None,
    binds: tuple[Placement, ...] = (),
    holds: tuple[Placement, ...] = (),
    notes: tuple[PodNote, ...] = (),
    needs: tuple[Need, ...] = (),
    gangs: tuple[tuple[str, Refusal], ...] = (),
) -> Verdict:
    return Verdict(
        group=group.id,
        generation=group.generation,
        reason=reason,
        message=message,
        round=round_,
        binds=binds,
        holds=holds,
        notes=notes,
        needs=needs,
        gangs=gangs,
    )
