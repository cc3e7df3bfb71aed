"""Preemption as a step of the pipeline: which groups may preempt, and when in a plan.

Invariant: Strict groups preempt in their turn; NonStrict ones after all groups, if none of them
yields its holds (V15).
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from functools import partial

from gangsched.core import post_filter
from gangsched.core.decision import Decider
from gangsched.core.plan_extension import Behind, RoomMaker
from gangsched.core.plan_queue import PlanQueue
from gangsched.core.preemption.columns import PodTableCache
from gangsched.core.preemption.plan_preemptions import PlanPreemptions
from gangsched.core.preemption.verdicts import in_vain, not_done
from gangsched.model.gang import Group
from gangsched.model.plan import Verdict
from gangsched.model.preemption import Obstacle, PreemptionInput


def room_maker_of(
    preempting: PreemptionInput | None,
    decider: Decider,
    holders: Sequence[Group],
    cache: PodTableCache,
) -> RoomMaker:
    """The preemption of one plan; `holders` are its groups that hold room. One that never preempts
    if preemption is off.
    """
    preemptions = PlanPreemptions.of(preempting, decider.ledger, decider.now_s, decider, cache)
    if preemptions is None:
        return RoomMaker()

    return Preempt(preemptions, decider, holders)


class Preempt(RoomMaker):
    """Evicts pods of lower priority, or lets groups of lower priority release their holds."""

    def __init__(
        self,
        preemptions: PlanPreemptions,
        decider: Decider,
        holders: Sequence[Group],
    ) -> None:
        self._preemptions = preemptions
        self._decider = decider
        self._holders = holders

    @property
    def is_full(self) -> bool:
        """Whether this plan has made as many preemptions as it may."""
        return self._preemptions.is_full

    def begin(self, verdicts: Mapping[str, Verdict], behind: Behind) -> None:
        """Remember where to ask for the other groups of the plan."""
        self._verdicts = verdicts
        self._behind = behind

    def make_room(self, group: Group, verdict: Verdict) -> dict[str, Verdict]:
        """Let a Strict group preempt; a NonStrict one may still get the holds of others
        (step 8).
        """
        self.alike = ()
        if not group.strict:
            return {group.id: verdict}

        holding: Sequence[Group] = ()
        if self._holders:
            holding = post_filter.still_holding(
                self._holders, {**self._verdicts, group.id: verdict}
            )

        decided = self._preemptions.turn(group, verdict, holding, self._behind)
        self.alike = self._preemptions.alike
        return decided

    def put_off(
        self,
        group: Group,
        verdict: Verdict,
        obstacle: Obstacle,
    ) -> Verdict:
        """The verdict on a group for which victims were not looked for to the end."""
        if obstacle is Obstacle.LATER:
            later = self._preemptions.later(group.id, begun=True)
            return in_vain(verdict, later, group)

        return not_done(group, verdict, obstacle)

    def take_unpaid(self) -> int:
        """Units beyond the group's share, since the last call."""
        unpaid = self._preemptions.unpaid
        self._preemptions.unpaid = 0
        return unpaid

    def make_room_for_holders(
        self,
        ordered: Sequence[Group],
        verdicts: Mapping[str, Verdict],
        queue: PlanQueue,
        *,
        but: Container[str],
    ) -> tuple[dict[str, Verdict], frozenset[str]]:
        """Let NonStrict groups preempt. Not those in `but`: others may yield to them in the next
        plan.

        The groups to decide again are those for which the work of this plan did not suffice. They
        are fewer than this plan decided, so that plans end.
        """
        made: dict[str, Verdict] = {}
        put_off: list[Group] = []
        ledger = self._decider.ledger

        for group in ordered:
            if group.id not in verdicts or group.strict or group.id in made or group.id in but:
                continue

            ledger.respect_nominations(group.lowest_priority, but=group.id)
            holders = post_filter.still_holding(ordered, {**verdicts, **made})

            decided = queue.beyond(
                partial(self._preemptions.turn, group, verdicts[group.id], holders)
            )
            if decided is None:
                put_off.append(group)
            else:
                made |= decided

        # Without this, the next plan would put off the same groups again, and the pass would never
        # end.
        if put_off and len(put_off) == len(verdicts):
            first = put_off.pop(0)
            made[first.id] = not_done(first, verdicts[first.id], Obstacle.TOO_MUCH_WORK)

        return made, frozenset(group.id for group in put_off)

    def releases(self) -> dict[str, Verdict]:
        """The verdicts of groups that released their holds for others."""
        return self._preemptions.gave
