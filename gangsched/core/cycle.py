"""The cycle: `plan`, the numbered steps of one look at the queue.

Law: groups are looked at in queue order and a refused group never stops one behind it (semantics Q4); each sees the
room that those before it left. The result depends on nothing but the arguments.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gangsched.core import diagnosis, messages, post_filter, pre_filter, rounds
from gangsched.core.permit import missing
from gangsched.core.queue_sort import group_key
from gangsched.core.reserve import Ledger
from gangsched.model.gang import Gang, Group, Placement, Refusal
from gangsched.model.gpu_policy import GpuPolicy
from gangsched.model.plan import Need, Plan, Round, RoundOutcome, Verdict
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
        return _apart(group, _verdict(group, messages.yielded(group.yielded_to)), ledger, totals)
    # 3. PreFilter: members (P1, P2).
    refused = pre_filter.refusals(group)
    if refused:
        causes = (refusal for _, refusal in refused if refusal.reason is not Reason.WAITING_FOR_GANG)
        own = next(causes, refused[0][1])
        return _apart(group, replace(_verdict(group, own), gangs=refused), ledger, totals)
    # 4. Members that no gang rule holds back go alone (P3); the others are tried in a round before them.
    bound_by_rules = [gang for gang in group.gangs if not gang.free_running]
    is_waiting = any(gang.pending or gang.held for gang in bound_by_rules)
    return _apart(group, _round(group, bound_by_rules, ledger, totals) if is_waiting else None, ledger, totals)


def _round(group: Group, gangs: list[Gang], ledger: Ledger, totals: Ledger) -> Verdict:
    """PreFilter by arithmetic (P4), then a round: Filter, Score, Reserve and Permit (R1-R3, B1)."""
    short = pre_filter.waiting_short(gangs)
    if short:
        refusal = next(refusal for _, refusal in short if refusal.reason is Reason.WAITING_FOR_MEMBERS)
        return replace(_verdict(group, refusal), gangs=short)
    hopeless = pre_filter.arithmetic(group, gangs, ledger, totals)
    if hopeless is not None:
        refusal, needs = hopeless
        return replace(_verdict(group, refusal), needs=needs)
    trial, round_ = rounds.run_round(group, gangs, ledger)
    needs = tuple(Need(shape, 0) for shape in dict.fromkeys(pod.shape for gang in gangs for pod in gang.pending))
    match round_.outcome:
        case RoundOutcome.REFUSED:
            told = _gang_failed(group, gangs, trial, ledger, totals)
            return replace(_verdict(group, told), round=round_, needs=needs)
        case RoundOutcome.PERMITTED:
            held = tuple(placement for gang in gangs for placement in gang.held)
            binds, notes = (*held, *trial.placements), _notes(group, trial, ledger, totals)
            told = notes[0][1] if notes and not binds else messages.permitted(len(binds))
            needs = needs if notes else ()
            return replace(_verdict(group, told), round=round_, binds=binds, notes=notes, needs=needs)
        case RoundOutcome.HOLDING:
            verdict = _hold(group, gangs, trial, _notes(group, trial, ledger, totals))
            return replace(verdict, round=round_, needs=needs)


def _gang_failed(group: Group, gangs: list[Gang], trial: rounds.Trial, ledger: Ledger, totals: Ledger) -> Refusal:
    """What a Strict round that was rolled back says."""
    assert trial.culprit is not None
    gang, pod, refusal = trial.culprit
    short = diagnosis.shortage(pod.shape, group, ledger, totals)
    needed = sum(missing(each, 0) for each in gangs)
    return messages.gang_failed(gang, pod, refusal, short, placed=len(trial.placements), needed=needed)


def _notes(group: Group, trial: rounds.Trial, ledger: Ledger, totals: Ledger) -> tuple[tuple[str, Refusal], ...]:
    """By uid why members found no node that do not hold up the others."""
    shapes = dict.fromkeys(pod.shape for pod, _ in trial.failed)
    short = {shape: diagnosis.shortage(shape, group, ledger, totals) for shape in shapes}
    return tuple((pod.uid, messages.no_node(pod, refusal, short[pod.shape])) for pod, refusal in trial.failed)


def _hold(group: Group, gangs: list[Gang], trial: rounds.Trial, notes: tuple[tuple[str, Refusal], ...]) -> Verdict:
    """A NonStrict group keeps what found a node, until the others do (R3)."""
    held = tuple((gang, p) for gang in gangs for p in (*gang.held, *trial.placed.get(gang.id, ())))
    holding = ((p.pod.uid, messages.holding(p.pod, p.node, gang)) for gang, p in held)
    told = messages.holds_summary(group, len(held), messages.lacking(gangs, trial.counts), trial.failed)
    return replace(_verdict(group, told), holds=trial.placements, notes=(*notes, *holding))


def _apart(group: Group, verdict: Verdict | None, ledger: Ledger, totals: Ledger) -> Verdict:
    """Place members one by one that no gang rule holds back, whatever became of the others (P3, B3).

    Their places are added to `verdict`, that of the group's refusal or round, if it had one.
    """
    gangs = pre_filter.unhindered(group)
    pods = [pod for gang in gangs for pod in (*gang.retry, *(gang.pending if gang.free_running else ()))]
    held = tuple(placement for gang in gangs if gang.free_running for placement in gang.held)
    if verdict is not None and not pods and not any(gang.free_running for gang in gangs):
        return verdict
    trial = rounds.place_alone(pods, group, ledger)
    notes = _notes(group, trial, ledger, totals)
    needs = tuple(Need(shape, 1) for shape in dict.fromkeys(pod.shape for pod, _ in trial.failed))
    needs = _either(verdict.needs if verdict else (), needs)
    binds = (*held, *trial.placements)
    if verdict is None:
        present, placed = len(pods), len(trial.placements)
        outcome = RoundOutcome.PERMITTED if not notes else RoundOutcome.REFUSED
        round_ = Round(group.rounds + 1, present, trial.attempted, placed, outcome) if pods else None
        told = notes[0][1] if notes else messages.permitted(len(binds))
        return replace(_verdict(group, told), round=round_, binds=binds, notes=notes, needs=needs)
    own = _of_each([gang for gang in gangs if gang.free_running], trial, dict(notes))
    return replace(
        verdict,
        binds=(*verdict.binds, *binds),
        notes=(*verdict.notes, *notes),
        needs=needs,
        gangs=(*(each for each in verdict.gangs if each[0] not in own), *own.items()),
    )


def _of_each(gangs: list[Gang], trial: rounds.Trial, failed: dict[str, Refusal]) -> dict[str, Refusal]:
    """By gang id what is true of gangs that do not wait for their group; no text where nothing of them moved."""
    placed = {placement.pod.uid for placement in trial.placements}
    told: dict[str, Refusal] = {}
    for gang in gangs:
        uids = [pod.uid for pod in (*gang.retry, *gang.pending)]
        started = messages.permitted(sum(uid in placed for uid in uids) + len(gang.held))
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
    return replace(_released(group, held, ledger, messages.wait_time_over(group)), expired=True)


def _drop(group: Group, lost: tuple[Placement, ...], ledger: Ledger) -> Verdict:
    """Release holds whose node went away or no longer fits; the group is looked at again in the next plan."""
    return _released(group, lost, ledger, messages.holds_lost(sorted({placement.node for placement in lost})))


def _give_back(group: Group, ledger: Ledger) -> Verdict:
    """Release the holds of a group that has become Strict; it is looked at again in the next plan (I5, T1)."""
    held = tuple(placement for gang in group.gangs for placement in gang.held)
    return _released(group, held, ledger, messages.strict_holds_nothing(len(held)))


def _released(group: Group, held: tuple[Placement, ...], ledger: Ledger, told: Refusal) -> Verdict:
    for placement in held:
        ledger.release(placement.pod, placement.node)
    return replace(_verdict(group, told), releases=tuple(placement.pod.uid for placement in held))


def _verdict(group: Group, told: Refusal) -> Verdict:
    return Verdict(group=group.id, generation=group.generation, told=told)
