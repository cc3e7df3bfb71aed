"""PostFilter: break a deadlock of holds by letting lower-ranked groups yield (semantics D1).

Invariant: the order of `queue_sort.group_key` is total and a group yields only to a group before
it, so the first holding group never yields. Holds are released only if a group can then be
permitted.

Every deadlock ends. While nothing changes from outside, let h1 … hn be the holds of the groups in
queue order. A plan without a Permit only adds holds, or moves them from a lower-ranked group to a
higher-ranked one, so the vector (h1 … hn) grows lexicographically. It is bounded, so after finitely
many plans a group is permitted or nothing changes. In the latter case the first group does not fit
even into all room that is not used by bound pods. It times out (T2), and the argument is repeated
with one group less. Each Permit is final.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from gangsched.core import findings
from gangsched.core.filter import static_fit
from gangsched.core.queue_sort import group_key
from gangsched.core.reserve import Ledger
from gangsched.model.gang import Group, Placement
from gangsched.model.objects import Shape
from gangsched.model.plan import RoundOutcome, Verdict
from gangsched.model.reasons import Reason
from gangsched.model.snapshot import NodeTable
from gangsched.model.storage import ResourceClaim

WAITING_FOR_ROOM = frozenset({Reason.HOLDING, Reason.UNSCHEDULABLE})

Decide: TypeAlias = Callable[[Group], Verdict]
"""Decides one group on the ledger as it is."""


@dataclass(eq=False)
class YieldSearch:
    """The search for a group that would be permitted if lower-ranked groups released their holds.

    Only groups with a verdict are considered; any group among `holders` may yield.
    """

    ordered: Sequence[Group]
    holders: Sequence[Group]
    verdicts: Mapping[str, Verdict]
    ledger: Ledger
    decide: Decide
    #: Ids of the groups that nobody's holds would help.
    in_vain: set[str] = field(default_factory=set)

    def find(self) -> dict[str, Verdict]:
        """Return the new verdicts that break a deadlock, those of yielding groups first; empty if
        there is no deadlock: no group that may yield made progress in this plan (placed, bound or
        released anything), and a group that was refused for room would be permitted.
        """
        if not self.holders or progressed(self.ordered, self.verdicts):
            return {}

        for beneficiary in self._beneficiaries():
            verdicts = self._yields_to(beneficiary)
            if verdicts:
                return verdicts

            self.in_vain.add(beneficiary.id)

        return {}

    def left(self) -> frozenset[str]:
        """After a search that ran out of work: the groups for which the next plan goes on.

        None is left if the only group of a plan takes more work than there is.
        """
        if len(self.verdicts) == 1:
            return frozenset()

        ids = {group.id for group in self._beneficiaries()}
        return frozenset(ids - self.in_vain)

    @property
    def is_overflowed(self) -> bool:
        """Whether a plan of the groups that are `left` would come no further, because deciding all
        of them takes the work.
        """
        return len(self.left()) == len(self.verdicts)

    def _beneficiaries(self) -> Iterator[Group]:
        """The groups that were refused for room, in order."""
        for group in self.ordered:
            verdict = self.verdicts.get(group.id)
            if verdict is not None and not has_moved(verdict) and _waits_for_room(verdict):
                yield group

    def _yields_to(self, beneficiary: Group) -> dict[str, Verdict]:
        """The verdicts by which the fewest yield to this group; empty if it would not help."""
        lower = [holder for holder in self.holders if _may_yield(holder, beneficiary)]
        # Not even all of them together would help: one try a group, not one a set.
        if not lower or self._permitted_without(beneficiary, lower) is None:
            return {}

        # Each alone, then suffixes: all subsets would be exponential, and the lowest-ranked should
        # yield first.
        for candidate in _candidates(lower):
            if self._permitted_without(beneficiary, candidate) is not None:
                yielding = self._fewest(beneficiary, candidate)
                permitted = self._permitted_without(beneficiary, yielding)
                assert permitted is not None

                verdicts = {group.id: _yields(group, beneficiary) for group in yielding}
                if not awaits_devices(permitted, yielding, self.ledger):
                    verdicts[permitted.group] = permitted

                return verdicts

        return {}

    def _fewest(self, beneficiary: Group, yielding: list[Group]) -> list[Group]:
        """Leave out, highest rank first, every group whose holds are not needed after all."""
        needed = list(yielding)
        for group in reversed(yielding):
            without = [other for other in needed if other is not group]
            # A suffix may contain groups whose holds do not help.
            if without and self._permitted_without(beneficiary, without) is not None:
                needed = without

        return needed

    def _permitted_without(
        self,
        beneficiary: Group,
        yielding: Sequence[Group],
    ) -> Verdict | None:
        """The beneficiary's verdict if it reaches Permit once `yielding` gave up their holds;
        changes nothing.
        """
        ledger = self.ledger
        # The last group that was decided may have had another priority.
        ledger.respect_nominations(beneficiary.lowest_priority, but=beneficiary.id)
        with ledger.tentative():
            for group in yielding:
                for placement in group.yieldable:
                    ledger.release(placement.pod, placement.node)

            verdict = self.decide(beneficiary)

        permitted = verdict.round is not None and verdict.round.outcome is RoundOutcome.PERMITTED
        return verdict if permitted and verdict.binds else None


def awaits_devices(permitted: Verdict, yielding: Sequence[Group], ledger: Ledger) -> bool:
    """Whether a group that would be permitted wants devices, and those who yield to it have some
    in the API: they are free once that is written, which wakes the group.
    """
    asked = _device_claims(permitted.binds, ledger)
    if all(claim.allocated for claim in asked):
        return False

    room: list[Placement] = []
    for group in yielding:
        room += group.yieldable

    return any(claim.allocated for claim in _device_claims(room, ledger))


def _device_claims(placements: Sequence[Placement], ledger: Ledger) -> Iterator[ResourceClaim]:
    """The claims for devices that these pods name, as they are in the API."""
    claims = ledger.occupancy.storage.storage.devices
    for placement in placements:
        pod = placement.pod
        for use in pod.claims:
            claim = claims.get(use.key(pod.namespace))
            if claim is not None:
                yield claim


def progressed(ordered: Sequence[Group], verdicts: Mapping[str, Verdict]) -> bool:
    """Whether a group that may yield made progress in this plan, or a group took its first holds.
    If so, the next plan must look for a deadlock.

    What it gave up for another one is free in the ledger already, and would count twice.
    """
    for group in ordered:
        verdict = verdicts.get(group.id)
        if verdict is None:
            continue

        if has_moved(verdict) and group.yieldable:
            return True

    return any(verdict.holds for verdict in verdicts.values())


def unsettled(
    ordered: Sequence[Group],
    verdicts: Mapping[str, Verdict],
    table: NodeTable,
) -> frozenset[str]:
    """Groups to decide again, because a group that may yield made progress, so that this plan did
    not look for a deadlock.

    These are groups that took holds and were refused for room, and groups for which another group
    with room on one of their eligible nodes could yield. No other group could gain from a yield.
    """
    if not progressed(ordered, verdicts):
        return frozenset()

    holders = [
        (group, nodes) for group in ordered if (nodes := _held_after(group, verdicts.get(group.id)))
    ]
    refused = (
        group for group in ordered if group.id in verdicts and _waits_for_room(verdicts[group.id])
    )
    return frozenset(
        group.id
        for group in refused
        if verdicts[group.id].holds or _may_profit(group, holders, table)
    )


def _waits_for_room(verdict: Verdict) -> bool:
    return verdict.reason in WAITING_FOR_ROOM


def _held_after(group: Group, verdict: Verdict | None) -> frozenset[str]:
    """The nodes on which the group has room that it may yield, once its verdict is carried out."""
    room = group.yieldable
    if verdict is None:
        return frozenset(placement.node for placement in room)

    moved = {placement.pod.uid for placement in verdict.binds}
    moved.update(verdict.releases)
    left = [placement for placement in room if placement.pod.uid not in moved]

    # Who waits for claims may still yield.
    waiting = [placement for placement in verdict.binds if placement.claims]
    left += waiting

    return frozenset(placement.node for placement in (*left, *verdict.holds))


def _may_profit(
    group: Group,
    holders: Sequence[tuple[Group, frozenset[str]]],
    table: NodeTable,
) -> bool:
    """Whether one that may yield to the group holds on a node that a pod of it may use."""
    nodes = frozenset[str]().union(
        *(nodes for holder, nodes in holders if _may_yield(holder, group))
    )
    where = [table.index[name] for name in nodes if name in table.index]
    if not where:
        return False

    shapes: set[Shape] = set()
    for gang in group.gangs:
        for pod in (*gang.pending, *gang.retry):
            shapes.add(pod.shape)

    fits = (static_fit(shape, table).mask[where] for shape in shapes)
    return any(mask.any() for mask in fits)


def still_holding(ordered: Sequence[Group], verdicts: Mapping[str, Verdict]) -> list[Group]:
    """Groups with room that they may yield, and that made no progress in this plan."""
    result: list[Group] = []
    for group in ordered:
        verdict = verdicts.get(group.id)
        moved = verdict is not None and has_moved(verdict)
        if group.yieldable and not moved:
            result.append(group)

    return result


def has_moved(verdict: Verdict) -> bool:
    """Whether the verdict binds pods, or takes or releases holds."""
    return bool(verdict.binds or verdict.holds or verdict.releases)


def _may_yield(holder: Group, beneficiary: Group) -> bool:
    """Whether the holder is ranked lower; by priority if the beneficiary holds nothing itself, or
    the holder does not wait for room but for its claims.
    """
    is_deadlock = holder.holds and beneficiary.holds
    return group_key(holder) > group_key(beneficiary) and (
        is_deadlock or holder.priority < beneficiary.priority
    )


def _candidates(lower: Sequence[Group]) -> list[list[Group]]:
    """Sets of groups to try, the fewest and the lowest-ranked first: each alone, then ever more
    from the end.
    """
    from_the_end = list(reversed(lower))
    return [[group] for group in from_the_end] + [
        from_the_end[:n] for n in range(2, len(lower) + 1)
    ]


def _yields(group: Group, beneficiary: Group) -> Verdict:
    return Verdict(
        group=group.id,
        generation=group.generation,
        told=findings.yielded(group, beneficiary.id),
        releases=tuple(placement.pod.uid for placement in group.yieldable),
        yields_to=beneficiary.id,
    )
