"""The bulkhead around each group: what is raised while one group is worked on sets that group aside
(semantics I10).

Invariant: an exception never passes from one group to another. A group that is set aside holds no
room, promises none and is in no plan, until it changes or its back-off is over; a plan that decides
it ends that. What is nobody's fault pauses planning, with a back-off. `hears` receives each fault
once, for the log, the metric and the file.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Final, TypeVar

from gangsched.model.fault import (
    UNKNOWN_REFERENCE,
    AtWork,
    FaultPlace,
    InternalFault,
    UnverifiedError,
    fault_of,
    not_planned,
)
from gangsched.model.gang import Gang, Group, Refusal
from gangsched.model.objects import Pod
from gangsched.model.plan import Verdict
from gangsched.model.protocol import Action
from gangsched.model.reasons import Reason
from gangsched.model.reservation import Reserved
from gangsched.state.gangs import GangRecord
from gangsched.state.group_record import Aside, GroupRecord
from gangsched.state.groups import Registry
from gangsched.state.holds import Holds
from gangsched.state.member_store import MemberStore
from gangsched.state.members import Member, State
from gangsched.state.preemption.nomination import NominationRecord
from gangsched.state.preemption.preemptions import Preemptions
from gangsched.state.queueing.queue import Queue
from gangsched.state.reporting.gang_numbers import PendingCount
from gangsched.state.reporting.reports import Reports
from gangsched.state.reserving.reservations import StandingReservations
from gangsched.state.timers import Timers

FIRST_RETRY_S: Final = 1.0
LONGEST_RETRY_S: Final = 3_600.0
SOONEST_RETRY_S: Final = 1.0
"""However often a group changes: each attempt costs a plan."""
LONGEST_PAUSE_S: Final = 60.0
"""Shorter than for a group: nobody is scheduled meanwhile."""
WAKE_ALL_EVERY_S: Final = 1.0
FORGET_AFTER_S: Final = 60.0
MOST_DELAYS: Final = 10_000
MOST_SUSPECTS: Final = 1_000
"""Groups of earlier processes; whoever writes the Lease could list any number."""
GROUP_NAMES: Final = frozenset({"group_id", "gang_id"})
"""Variables that have the id of a group or gang."""

T = TypeVar("T")


def _raise(fault: InternalFault, error: BaseException) -> None:
    raise error


@dataclass(slots=True)
class PlanningPause:
    """Planning pauses after a fault that is nobody's: a busy loop would only repeat it."""

    fault: InternalFault | None = None
    #: When it began; the pauses in between are not counted as success.
    since_s: float = 0.0
    failures: int = 0
    until_s: float = 0.0


@dataclass(eq=False)
class Bulkhead:
    """Sets groups aside, and tries them again. It belongs to the state."""

    registry: Registry
    queue: Queue
    members: MemberStore
    holds: Holds
    preemptions: Preemptions
    reservations: StandingReservations
    reports: Reports
    pending: PendingCount
    #: The group that is worked on at this moment.
    at_work: AtWork = field(default_factory=AtWork)
    #: Receives each fault. Unless somebody hears it, such as in a simulation, it is raised.
    hears: Callable[[InternalFault, BaseException], None] = _raise
    pause: PlanningPause = field(default_factory=PlanningPause)
    #: This turn is within a pause, and does nothing.
    is_skipped: bool = False
    #: The next turn is due at once, because this one left groups undecided.
    is_behind: bool = False
    _has_failed: bool = False
    #: Some of what a step was to note is lost, such as room that was freed: whoever waits is to be
    #: planned again.
    _wakes_all: bool = False
    _woke_s: float = -math.inf
    #: By group: the next back-off, and when the last one ends. They outlast the group, which may be
    #: created again.
    _delays: OrderedDict[str, tuple[float, float]] = field(default_factory=OrderedDict)
    _retries: Timers = field(default_factory=Timers)
    _actions: list[Action] = field(default_factory=list)
    #: Groups at which earlier processes ended, which are set aside once they are known.
    _suspects: OrderedDict[str, None] = field(default_factory=OrderedDict)

    # --- a group ---------------------------------------------------------------------------------

    def set_aside(
        self,
        group_id: str,
        fault: BaseException | str,
        place: FaultPlace,
        now_s: float,
        *,
        failed_s: float | None = None,
    ) -> None:
        """Set a group aside because of an exception, or of a text that says what is wrong with its
        verdict.

        Its verdict must not be committed, or must have been rolled back. Never raises, unless
        `hears` does. `now_s` is the time of the turn; the back-off begins at `failed_s`, if it
        failed much later.
        """
        error = fault if isinstance(fault, BaseException) else UnverifiedError(fault)
        found = fault_of(error, place, group_id)
        self.hears(found, error)

        group = self.registry.groups.get(group_id)
        if group is None:
            return

        # A process ended at a suspect, and the next attempt may end this one.
        is_suspect = place is FaultPlace.SUSPECT
        if failed_s is None:
            failed_s = now_s

        delay_s = LONGEST_RETRY_S if is_suspect else self._next_delay_s(group_id, failed_s)
        group.aside = Aside(found.reference, failed_s, failed_s + delay_s, is_suspect=is_suspect)
        self._retries.set(group_id, failed_s + delay_s)

        # One after the other: a step that raises must not keep the group in the plans.
        for step in (self._leave_queue, self._give_up, self._tell):
            self._try(step, group, now_s)

    def serving_failed(self, group_id: str, error: Exception) -> Refusal:
        """A gang cannot be shown, which is no reason to set it aside either; return what is shown
        instead.
        """
        found = fault_of(error, FaultPlace.SERVE, group_id)
        self.hears(found, error)
        return not_planned(found.reference)

    def count_failed(self, group_id: str, error: Exception) -> None:
        """A group is missing in the metrics, which is no reason to set it aside."""
        self.hears(fault_of(error, FaultPlace.REPORT, group_id), error)

    def _next_delay_s(self, group_id: str, now_s: float) -> float:
        """The back-off of a group that failed: it doubles, and is forgotten a while after the last
        failure.
        """
        delay_s, until_s = self._delays.pop(group_id, (FIRST_RETRY_S, now_s))
        if now_s > until_s + max(delay_s, FORGET_AFTER_S):
            delay_s = FIRST_RETRY_S

        self._delays[group_id] = (min(2 * delay_s, LONGEST_RETRY_S), now_s + delay_s)
        if len(self._delays) > MOST_DELAYS:
            self._delays.popitem(last=False)

        return delay_s

    def report_failed(self, group_id: str, error: Exception, now_s: float) -> None:
        """A report on a group failed. Of one that is set aside it is only counted: its next report
        would fail, too.
        """
        group = self.registry.groups.get(group_id)
        if group is not None and group.aside is None:
            self.set_aside(group_id, error, FaultPlace.REPORT, now_s)
        else:
            self.hears(fault_of(error, FaultPlace.REPORT, group_id), error)

    def _leave_queue(self, group: GroupRecord, now_s: float) -> None:
        assert group.aside is not None
        self.queue.set_aside(group.id, group.aside.retry_s)

    def _give_up(self, group: GroupRecord, now_s: float) -> None:
        """Give up what the group has beside its place in the queue: holds, a nomination, a
        reservation.
        """
        assert group.aside is not None
        held = [member for gang in self._gangs(group) for member in gang.of(State.HELD)]
        told = not_planned(group.aside.reference)
        uids = tuple(member.pod.uid for member in held)
        verdict = Verdict(group=group.id, generation=group.generation, told=told, releases=uids)
        self.members.release(held)
        group.verdict = verdict.carried_out()
        group.decided_s = now_s
        self.holds.end_yields({group.id})
        self._actions += self.preemptions.set_aside(group, verdict, now_s)
        self.reservations.changed({group.id: group})
        self.registry.changed(group.id)

        # Its own changes are read before the next plan, and are no reason to try it again.
        for gang in group.gangs:
            self.registry.touch(gang)

    def _tell(self, group: GroupRecord, now_s: float) -> None:
        self.pending.changed((group,))
        self.reports.note(group.id, now_s, at_once=True)

    def _try(
        self,
        step: Callable[[GroupRecord, float], None],
        group: GroupRecord,
        now_s: float,
    ) -> None:
        try:
            step(group, now_s)
        except Exception as error:  # the group is set aside whatever becomes of this step
            self.hears(fault_of(error, FaultPlace.TURN, group.id), error)

    def _gangs(self, group: GroupRecord) -> list[GangRecord]:
        found = (self.registry.gangs.get(gang) for gang in group.gangs)
        return [gang for gang in found if gang is not None]

    def take_actions(self) -> list[Action]:
        """What is to be carried out for groups that were set aside, such as the end of a
        nomination.
        """
        actions = self._actions
        self._actions = []
        return actions

    # --- another attempt -------------------------------------------------------------------------

    def look(self, now_s: float) -> None:
        """Read groups again whose back-off is over; call it before a refresh."""
        if self._wakes_all and now_s >= self._woke_s + WAKE_ALL_EVERY_S:
            self._wakes_all = False
            self._woke_s = now_s
            self.queue.wake_all()

        # All at once: gangs that were one group are tried as one.
        for group_id in self._retries.take_due(now_s, most=None):
            group = self.registry.groups.get(group_id)
            if group is None or group.aside is None:
                continue

            group.aside.is_trying = True
            for gang in group.gangs:
                self.registry.read_again(gang)

    def changed(self, group: GroupRecord, now_s: float) -> bool:
        """Whether a changed group is to be planned: one that is set aside only if it is not as it
        was then.
        """
        aside = group.aside
        if aside is None:
            return True

        seen = tuple(map(self.registry.view, group.gangs))
        if aside.seen is None and not aside.is_trying:
            aside.seen = seen
        elif aside.seen != seen:
            self._retries.set_sooner(group.id, max(now_s, aside.failed_s + SOONEST_RETRY_S))
            # At once where that may be: the change may be what mends it.
            aside.is_trying = aside.is_trying or now_s >= aside.failed_s + SOONEST_RETRY_S

        if not aside.is_trying:
            return False

        aside.is_trying = False
        # Should it be refused for another reason now, nothing else would try it again.
        self._retries.set(group.id, max(aside.retry_s, now_s + SOONEST_RETRY_S))
        self.queue.forgive(group.id)

        return True

    def decided(self, group: GroupRecord, verdict: Verdict | None, now_s: float) -> None:
        """A plan decided the group, or nothing of it waits: it is like any other again, unless it
        could not be read.
        """
        if verdict is not None and verdict.reason is Reason.INTERNAL_ERROR:
            group.aside = group.aside or Aside(UNKNOWN_REFERENCE, now_s, now_s + FIRST_RETRY_S)
            self._retries.set(group.id, max(group.aside.retry_s, now_s + FIRST_RETRY_S))
        elif group.aside is not None:
            group.aside = None
            self._retries.drop(group.id)

    def gone(self, group: GroupRecord) -> None:
        """Forget a group that no longer exists."""
        self._retries.drop(group.id)

    def next_deadline_s(self) -> float:
        """Time at which `look` must be called, or at which planning goes on."""
        return min(
            self._retries.next_s(),
            self._woke_s + WAKE_ALL_EVERY_S if self._wakes_all else math.inf,
            self.pause.until_s if self.pause.fault is not None else math.inf,
        )

    # --- suspects of earlier processes -----------------------------------------------------------

    def suspect(self, group_id: str) -> None:
        """An earlier process ended while it worked on this group: set it aside before it is
        planned.
        """
        self._suspects[group_id] = None
        if len(self._suspects) > MOST_SUSPECTS:
            self._suspects.popitem(last=False)

    def is_suspect(self, group_id: str) -> bool:
        """Whether the next process must know of this group, too."""
        group = self.registry.groups.get(group_id)
        aside = group.aside if group is not None else None
        return group_id in self._suspects or (aside is not None and aside.is_suspect)

    def take_suspects(self, now_s: float) -> None:
        """Set aside the suspects that are known by now."""
        for group_id in [suspect for suspect in self._suspects if suspect in self.registry.groups]:
            del self._suspects[group_id]
            self.set_aside(
                group_id,
                "an earlier process ended while it planned this group",
                FaultPlace.SUSPECT,
                now_s,
            )

    # --- what is nobody's, or not yet known to be somebody's -------------------------------------

    def run(self, place: FaultPlace, act: Callable[[], T], default: T, now_s: float) -> T:
        """Run a step that concerns many groups; what it raises is the fault of the group that it
        was working on.
        """
        try:
            return act()
        except Exception as error:
            self.blame(error, place, now_s)
            return default

    def blame(self, error: Exception, place: FaultPlace, now_s: float) -> None:
        """Find whose fault an exception is and set that group aside; pause planning if it is
        nobody's.
        """
        group_id = self.at_work.group or self.culprit(error)
        self.at_work.group = ""

        if group_id:
            self.set_aside(group_id, error, place, now_s)
            self.is_behind = True
        else:
            self.shared(error, place, now_s)

        self._wakes_all = True

    def message_failed(self, error: Exception, group_id: str, now_s: float) -> None:
        """A message could not be applied. It does not come again, so that nothing pauses if it is
        nobody's fault.
        """
        group_id = group_id or self.culprit(error)
        if group_id:
            self.set_aside(group_id, error, FaultPlace.APPLY, now_s)
        else:
            self.hears(fault_of(error, FaultPlace.APPLY), error)

        self._wakes_all = True

    def shared(self, error: BaseException, place: FaultPlace, now_s: float) -> None:
        """PlanningPause planning because of a fault that is nobody's."""
        before = self.pause
        found = fault_of(error, place)
        self._has_failed = True
        self.hears(found, error)
        delay_s = min(FIRST_RETRY_S * 2 ** min(before.failures, 20), LONGEST_PAUSE_S)
        since_s = before.since_s if before.fault is not None else now_s
        self.pause = PlanningPause(found, since_s, before.failures + 1, now_s + delay_s)

    def begin_turn(self, now_s: float) -> None:
        """A turn begins: see whether planning pauses."""
        self.is_skipped = self.is_paused(now_s)
        self.is_behind = self._has_failed = False

    def is_paused(self, now_s: float) -> bool:
        """Whether planning pauses."""
        return self.pause.fault is not None and now_s < self.pause.until_s

    def went_well(self) -> None:
        """A plan was made and committed, or none was due: end the pauses, or keep them short if
        another step failed.
        """
        if self._has_failed:
            self.pause.failures = 0
        elif self.pause.fault is not None:
            self.pause = PlanningPause()

    def culprit(self, error: BaseException) -> str:
        """The group that the innermost frame worked on that worked on any, "" if there is none.

        A group that is set aside already is not the cause.
        """
        for frame in _frames(error):
            for name, value in frame.f_locals.items():
                group = self.registry.groups.get(self._group_of(name, value))
                if group is not None and group.aside is None:
                    return group.id

        return ""

    def _group_of(self, name: str, value: Any) -> str:
        """The id of the group that a variable is about."""
        group_of = self.registry.group_of
        match value:
            case GroupRecord() | Group():
                return value.id
            case GangRecord() | Gang():
                return group_of.get(value.id, "")
            case Verdict() | NominationRecord() | Reserved():
                return value.group
            case Member():
                return group_of.get(value.gang, "")
            case Pod():
                member = self.members.get(value.uid)
                if member is not None:
                    return group_of.get(member.gang, "")

                return ""
            case str() if name in GROUP_NAMES:
                return group_of.get(value, value)

        return ""


def _frames(error: BaseException) -> Iterator[FrameType]:
    """The frames of a traceback, the innermost first."""
    frames: list[FrameType] = []
    at = error.__traceback__
    while at is not None:
        frames.append(at.tb_frame)
        at = at.tb_next

    return reversed(frames)
