"""The pipeline of a plan: its steps, in their order, for every group of the queue.

Invariant: groups are decided in queue order, and a refused group never blocks a group behind it
(semantics Q4); each group can use the room that the groups before it left. Nominations, devices,
reservations, members to come and preemption are extensions (`core.plan_extension`), which this
module does not know.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import partial

import msgspec

from gangsched.core import post_filter
from gangsched.core.decision import Decider
from gangsched.core.plan_extension import PlanExtension, RoomMaker, taking_part
from gangsched.core.plan_queue import PlanQueue
from gangsched.core.queue_sort import in_turns
from gangsched.core.reserve import Ledger
from gangsched.model.gang import Group
from gangsched.model.plan import Plan, Unfinished, Verdict

UNITS_TO_SORT = 3
"""Units of each group that is put in order."""
COMMIT_OF_A_GROUP = 20
"""Units for the commit of a verdict: 241 took 40 ms."""
COMMIT_OF_A_GANG = 10
"""The same of each further gang of the group, of which the view is made anew: 20 trees of 100 gangs
took 25 ms.
"""


class Limits(msgspec.Struct, frozen=True):
    """Limits of one plan. They count work instead of reading a clock, so the event loop never
    stalls and results are reproducible (decisions 8 and 47).

    `work` is in units of `core.work`, each about a microsecond.
    """

    groups: int = 400
    pods: int = 5_000
    work: int = 25_000


@dataclass(eq=False)
class Pipeline:
    """One plan. `run` is called once; it executes the numbered steps of `core.cycle`."""

    #: All groups, in the order of the queue (Q1).
    ordered: Sequence[Group]
    #: Those of them that hold room, in the same order.
    holders: Sequence[Group]
    #: Those to be decided, in the same order; of trees, the gangs that their minimum needs.
    ready: list[Group]
    decider: Decider
    room_maker: RoomMaker
    extensions: Sequence[PlanExtension]
    limits: Limits
    #: Ids of groups that were decided earlier in the pass over the queue, which go last (Q4); None
    #: in its first plan.
    served: Set[str] | None
    unfinished: Unfinished | None
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    #: Placements that were tried.
    tried: int = 0
    #: Deciding all of its groups left too little work to find out who yields.
    is_overflowed: bool = False
    #: What extensions do before and after each group.
    _before: Sequence[Callable[[Group], None]] = field(init=False)
    _reserving: Sequence[Callable[[Group, Verdict], Verdict]] = field(init=False)

    def __post_init__(self) -> None:
        self._before = taking_part(self.extensions, "before")
        self._reserving = taking_part(self.extensions, "reserve")

    @property
    def ledger(self) -> Ledger:
        """The room of this plan."""
        return self.decider.ledger

    def run(self) -> Plan:
        """Decide the groups, at least one; the plan has a verdict for each that was decided."""
        self._sort()
        for extension in self.extensions:
            extension.begin()

        queue = PlanQueue(
            self.ready,
            self.unfinished,
            self.ledger,
            self.limits.work,
            self.decider.declared,
        )
        # Not a method: the pipeline has the room maker, so both would wait for the collector.
        behind = partial(_behind, queue, self.verdicts, self.limits.groups)
        self.room_maker.begin(self.verdicts, behind)

        for group in queue:
            # The next plan decides the rest, so that no group is refused because the work is used
            # up.
            if self._is_full() and queue.end(group):
                continue

            # It may have been decided with one before it, as when it gave up its holds.
            if group.id not in self.verdicts:
                self._decide(group, queue)

        return self._finish(queue)

    def _finish(self, queue: PlanQueue) -> Plan:
        """The plan, with what the extensions add to it."""
        left = tuple(group.id for group in self.ready if group.id not in self.verdicts)
        again = self._break_deadlocks(queue)

        # Also if that was ended by lack of work, in the middle of a group.
        self.decider.at_work.group = ""

        plan = Plan(
            tuple(self.verdicts.values()),
            left,
            pods_tried=self.tried,
            again=again,
            begun=queue.begun & {*left},
            unfinished=queue.unfinished,
            is_overflowed=self.is_overflowed,
        )
        for extension in self.extensions:
            extension.finish(plan)

        plan.work = self.ledger.work.used
        return plan

    # --- step 1: QueueSort -----------------------------------------------------------------------

    def _sort(self) -> None:
        self.ledger.work.charge(UNITS_TO_SORT * len(self.ready))
        for extension in self.extensions:
            extension.sort(self.ready)

        if self.served is not None:
            self.ready = in_turns(self.ready, self.served)

    def _is_full(self) -> bool:
        """Whether the plan has decided as much as it may."""
        limits = self.limits
        return (
            len(self.verdicts) >= limits.groups
            or self.tried >= limits.pods
            or self.room_maker.is_full
        )

    # --- steps 2 to 7: one group -----------------------------------------------------------------

    def _decide(self, group: Group, queue: PlanQueue) -> None:
        """Decide one group, with all that follows before the groups behind it see the room."""
        self.decider.at_work.enter(group.id)
        for prepare in self._before:
            prepare(group)

        maker = self.room_maker
        verdicts = queue.decide(group, self.decider, maker.make_room, maker.put_off)
        if unpaid := maker.take_unpaid():
            queue.shorten(unpaid)

        if verdicts:
            self._reserve(group, verdicts)
            others = len(self.decider.as_whole(group).gangs) - 1
            queue.shorten(COMMIT_OF_A_GROUP + COMMIT_OF_A_GANG * others)

        self.decider.at_work.group = ""

    def _reserve(self, group: Group, verdicts: Mapping[str, Verdict]) -> None:
        """Step 7: what the verdicts keep from the groups behind."""
        self.verdicts |= verdicts
        round_ = self.verdicts[group.id].round
        self.tried += round_.attempted if round_ else 1

        if not self._reserving:
            return

        for decided in (group, *self.room_maker.alike):
            for reserve in self._reserving:
                self.verdicts[decided.id] = reserve(decided, self.verdicts[decided.id])

    # --- step 8: PostFilter ----------------------------------------------------------------------

    def _break_deadlocks(self, queue: PlanQueue) -> frozenset[str]:
        """Let groups yield their holds, whatever the limits; return the groups to decide again.

        If no group yields, room is made for those that hold some.
        """
        again = post_filter.unsettled(self.ordered, self.verdicts, self.ledger.table)
        search = post_filter.YieldSearch(
            self.ordered,
            self.holders,
            self.verdicts,
            self.ledger,
            self.decider,
        )
        yielded = queue.beyond(search.find)
        if yielded is None:
            # Lack of work is no answer: the next plan has fewer to decide.
            again |= search.left()
            self.is_overflowed = search.is_overflowed
            yielded = {}

        self.verdicts |= yielded

        if not yielded:
            verdicts, put_off = self.room_maker.make_room_for_holders(
                self.ordered,
                self.verdicts,
                queue,
                but=again,
            )
            self.verdicts |= verdicts
            again |= put_off

        # What is released comes before what takes its room.
        released = yielded | self.room_maker.releases()
        self.verdicts = released | self.verdicts | released
        return again


def _behind(
    queue: PlanQueue,
    verdicts: Mapping[str, Verdict],
    groups: int,
    most: int,
) -> Sequence[Group]:
    """The groups that the plan would decide next: `most` of them, and no more than are left of its
    `groups`.
    """
    allowed = groups - len(verdicts) - 1
    return [group for group in queue.behind(min(most, allowed)) if group.id not in verdicts]
