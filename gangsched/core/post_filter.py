"""PostFilter: end a deadlock of holds by letting lower-ranked groups yield (semantics D1).

Law: the order of `queue_sort.group_key` is total and a group yields only to one before it, so the first holding group
never yields and every deadlock ends with some group permitted. Nothing is released unless a group is permitted by it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gangsched.core import messages, pre_filter, rounds
from gangsched.core.reserve import Ledger
from gangsched.model.gang import Group, Placement
from gangsched.model.plan import RoundOutcome, Verdict
from gangsched.model.reasons import Reason

WAITING_FOR_ROOM = frozenset({Reason.HOLDING, Reason.UNSCHEDULABLE})


def yield_holds(ordered: Sequence[Group], verdicts: Mapping[str, Verdict], ledger: Ledger) -> dict[str, Verdict]:
    """Verdicts that replace those of one deadlock's groups, those that yield first; empty when there is none.

    A deadlock is: two or more groups hold, and no group progressed (placed, bound or released anything) in this plan.
    """
    holders = [group for group in ordered if group.holds]
    if len(holders) < 2 or any(v.binds or v.holds or v.releases for v in verdicts.values()):
        return {}
    for rank, beneficiary in enumerate(holders[:-1]):
        if verdicts[beneficiary.id].reason not in WAITING_FOR_ROOM:
            continue
        lower = holders[rank + 1 :]
        if _permitted_without(beneficiary, lower, ledger) is None:
            continue  # not even all of them together would help: one try a holder, not one a set
        for candidate in _candidates(lower):
            if _permitted_without(beneficiary, candidate, ledger) is not None:
                yielding = _fewest(beneficiary, candidate, ledger)
                permitted = _permitted_without(beneficiary, yielding, ledger)
                assert permitted is not None
                return {group.id: _yields(group, beneficiary) for group in yielding} | {permitted.group: permitted}
    return {}


def _candidates(lower: Sequence[Group]) -> list[list[Group]]:
    """Sets of groups to try, the fewest and the lowest-ranked first: each alone, then ever more from the end."""
    from_the_end = list(reversed(lower))
    return [[group] for group in from_the_end] + [from_the_end[:n] for n in range(2, len(lower) + 1)]


def _fewest(beneficiary: Group, yielding: list[Group], ledger: Ledger) -> list[Group]:
    """Leave out, highest rank first, every group whose holds are not needed after all."""
    needed = list(yielding)
    for group in reversed(yielding):
        without = [each for each in needed if each is not group]
        if without and _permitted_without(beneficiary, without, ledger) is not None:
            needed = without
    return needed


def _permitted_without(beneficiary: Group, yielding: Sequence[Group], ledger: Ledger) -> Verdict | None:
    """The beneficiary's verdict if it reaches Permit once `yielding` gave up their holds; changes nothing."""
    checkpoint = ledger.checkpoint()
    for group in yielding:
        for placement in _holds(group):
            ledger.release(placement.pod, placement.node)
    gangs = [gang for gang in beneficiary.gangs if not gang.free_running]
    is_short = any(pre_filter.min_resources_short(gang, ledger) for gang in gangs)
    trial, round_ = rounds.run_round(beneficiary, gangs, ledger)
    ledger.rollback(checkpoint)
    if is_short or round_.outcome is not RoundOutcome.PERMITTED:
        return None
    binds = (*_holds(beneficiary), *trial.placements)
    return Verdict(
        group=beneficiary.id,
        generation=beneficiary.generation,
        told=messages.permitted(len(binds)),
        round=round_,
        binds=binds,
    )


def _yields(group: Group, beneficiary: Group) -> Verdict:
    return Verdict(
        group=group.id,
        generation=group.generation,
        told=messages.yielded(beneficiary.id),
        releases=tuple(placement.pod.uid for placement in _holds(group)),
        yields_to=beneficiary.id,
    )


def _holds(group: Group) -> tuple[Placement, ...]:
    return tuple(placement for gang in group.gangs for placement in gang.held)
