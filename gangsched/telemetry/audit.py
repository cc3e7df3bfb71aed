"""What goes into the audit trail: Events about gangs, ordered evictions, and reservations that
begin and end.

Invariant: it reads the state and changes nothing. Events are written only once their facts are
certain (a start when its binds are answered, an eviction when it is), so they are the source
wherever there is one.
"""

from __future__ import annotations

import logging
import math
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import structlog

from gangsched.model.plan import Plan, Verdict
from gangsched.model.preemption import NotHelpful
from gangsched.model.protocol import Action, ObjectRef, PodRef, PreparePreemption, RecordEvent
from gangsched.model.reasons import EventReason, Reason
from gangsched.model.reservation import Reserved
from gangsched.model.text import counted, named
from gangsched.sentences import say
from gangsched.sentences.times import by
from gangsched.state.reporting.gang_events import gang_ref
from gangsched.state.scheduling import SchedulingState
from gangsched.telemetry.history import OBJECTS, Happening, History

VERDICTS = frozenset(reason.value for reason in Reason) - {Reason.SCHEDULED, Reason.PREEMPTING}
HAPPENINGS: Mapping[str, Happening] = dict.fromkeys(VERDICTS, Happening.WAITS) | {
    EventReason.GANG_SCHEDULED: Happening.STARTED,
    EventReason.FAILED_BINDING: Happening.BIND_REFUSED,
    EventReason.PREEMPTED: Happening.PREEMPTED,
    EventReason.PREEMPTION_DELAYED: Happening.PREEMPTION_DELAYED,
    EventReason.NOMINATION_LOST: Happening.PREEMPTION_ENDED,
    EventReason.DEGRADED: Happening.MEMBER_LOST,
    EventReason.KUBELET_REJECTED: Happening.MEMBER_LOST,
    EventReason.SET_ASIDE: Happening.SET_ASIDE,
    EventReason.ROOM_KEPT: Happening.ROOM_KEPT,
    EventReason.ROOM_RELEASED: Happening.ROOM_RELEASED,
    Reason.INTERNAL_ERROR: Happening.SET_ASIDE,
    Reason.TIMED_OUT: Happening.TIMED_OUT,
    Reason.YIELDED: Happening.YIELDED,
}
"""By the reason of an Event; a verdict's other reasons say that a gang waits."""
MOST_TIMED_OUT = 1_000
"""Gangs of which it is known that their last verdict was that they had timed out."""
PLAIN = "pod:"
"""How ids of plain pods begin, which are no gangs."""


class Audit:
    """Writes entries; `plan` counts plans of this process."""

    def __init__(self, state: SchedulingState, history: History) -> None:
        self._state = state
        self.history = history
        self.plan = 0
        self._reserved: dict[str, tuple[Reserved, tuple[str, ...]]] = {}

        # Bounded: evictions of a few nominations are under way, of `OBJECTS` pods that are named of
        # each gang.
        self._evicted: defaultdict[str, deque[tuple[str, str]]] = defaultdict(
            partial(deque, maxlen=OBJECTS)
        )
        self._timed_out: dict[str, None] = {}
        self._log = structlog.get_logger("audit")

    # --- sources ---------------------------------------------------------------------------------

    def reported(self, event: RecordEvent) -> None:
        """An Event that is about to be written."""
        what = HAPPENINGS.get(event.reason)
        if what is None:
            return

        about = event.regarding
        gang = self._gang_of(about)
        if not gang:
            return

        is_verdict = event.reason in VERDICTS
        if is_verdict and self._goes_on(gang, event.reason):
            what = Happening.WAITS

        pods = [(about.name, about.uid)] if about.kind == "Pod" else []
        if what is Happening.PREEMPTED:
            if pods and self._is_declared(gang):
                self._evicted[gang].extend(pods)  # its gang's Event follows the last of them
                return

            pods = [*self._evicted.pop(gang, ()), *pods]

        self.history.note(
            gang,
            what,
            event.message,
            reason=event.reason,
            # A verdict's Event is on the object that stands for the gang.
            uid=about.uid if is_verdict else self._uid(gang) or about.uid,
            plan=self.plan if what is Happening.WAITS else 0,
            objects=pods,
        )

    def _goes_on(self, gang: str, reason: str) -> bool:
        """Whether the gang waits since it timed out, now with another text: it happened once."""
        timed_out = reason == Reason.TIMED_OUT
        before = gang in self._timed_out
        if timed_out:
            self._timed_out[gang] = None
            while len(self._timed_out) > MOST_TIMED_OUT:
                self._timed_out.pop(next(iter(self._timed_out)))
        else:
            self._timed_out.pop(gang, None)

        return timed_out and before

    def ordered(self, actions: Sequence[Action]) -> None:
        """Evictions that a plan asks for, with the victims, of which the Event of each follows its
        answer.
        """
        for action in actions:
            if not isinstance(action, PreparePreemption):
                continue

            gangs = dict.fromkeys(self._gang_of_pod(member.uid) for member in action.members)
            victims = []

            for pod_ref in action.victims:
                victims.append((f"{pod_ref.namespace}/{pod_ref.name}", pod_ref.uid))

            for gang in filter(None, gangs):
                self._preempting(gang, victims, action.members)

    def _preempting(
        self,
        gang: str,
        victims: list[tuple[str, str]],
        members: Sequence[PodRef],
    ) -> None:
        # Without names: the victims may be another namespace's, and users of the gang's read this.
        text = (
            f"{counted(len(members), 'pod')} nominated; {counted(len(victims), 'pod')} to be"
            " evicted"
        )
        self.history.note(
            gang,
            Happening.PREEMPTING,
            text,
            reason=Reason.PREEMPTING,
            uid=self._uid(gang),
            plan=self.plan,
            objects=victims,
        )

    def planned(self, plan: Plan) -> None:
        """A plan was committed: what it reserves, and at level debug each of its verdicts."""
        self._compare_reservations()
        # Older versions of structlog do not say; then it is computed and dropped.
        if getattr(self._log, "is_enabled_for", lambda _: True)(logging.DEBUG):
            for verdict in plan.verdicts:
                self._log.debug("verdict", plan=self.plan, **explained(verdict))

    # --- reservations ----------------------------------------------------------------------------

    def _compare_reservations(self) -> None:
        """Reservations that are new, and those that are gone since the last plan."""
        current = {}
        for reservation in self._state.reports.reservations.standing:
            current[reservation.group] = reservation

        for group, (before, gangs) in list(self._reserved.items()):
            if group not in current:
                del self._reserved[group]
                text = f"the reservation of {_described(before)} has ended"
                self._note_all(gangs, Happening.RESERVATION_ENDED, text)

        for group, reserved in current.items():
            if group in self._reserved:
                continue

            record = self._state.registry.groups.get(group)
            gangs = (
                tuple(gang for gang in record.gangs if not gang.startswith(PLAIN))
                if record is not None
                else ()
            )
            self._reserved[group] = reserved, gangs
            self._note_all(
                gangs,
                Happening.RESERVED,
                f"{_described(reserved)} reserved",
                reserved.nodes,
            )

    def _note_all(
        self,
        gangs: Sequence[str],
        what: Happening,
        text: str,
        nodes: Sequence[str] = (),
    ) -> None:
        for gang in gangs:
            objects = [(node, "") for node in nodes]
            self.history.note(
                gang,
                what,
                text,
                uid=self._uid(gang),
                plan=self.plan,
                objects=objects,
            )

    # --- whose it is -----------------------------------------------------------------------------

    def _gang_of(self, about: ObjectRef) -> str:
        """The gang of an object that an Event is about; "" for a plain pod and for
        other objects.
        """
        if about.kind == "Pod":
            return self._gang_of_pod(about.uid)

        gang = f"{about.namespace}/{about.name}"
        return gang if about.namespace else ""

    def _gang_of_pod(self, uid: str) -> str:
        member = self._state.members.get(uid)
        if member is not None and not member.gang.startswith(PLAIN):
            return member.gang

        return ""

    def _is_declared(self, gang: str) -> bool:
        """Whether an object declares the gang, on which its Events are."""
        record = self._state.registry.gangs.get(gang)
        return record is not None and record.pod_group is not None

    def _uid(self, gang: str) -> str:
        record = self._state.registry.gangs.get(gang)
        ref = gang_ref(record) if record is not None else None
        return ref.uid if ref is not None else ""


def explained(verdict: Verdict) -> dict[str, Any]:
    """What a verdict was made of, for a log line."""
    return dict(_parts(verdict))


def _parts(verdict: Verdict) -> Iterator[tuple[str, Any]]:
    yield "group", verdict.group
    yield "reason", verdict.reason.value
    yield "message", say(verdict.told).text

    for name in ("binds", "holds", "releases"):
        if number := len(getattr(verdict, name)):
            yield name, number

    if verdict.binds:
        yield "nodes", named(sorted({placement.node for placement in verdict.binds}))

    if (round_made := verdict.round) is not None:
        yield "round", f"{round_made.number}: {round_made.placed} of {round_made.present} placed"

    if verdict.needs:
        yield "needs", sum(need.count for need in verdict.needs)

    if verdict.yields_to:
        yield "yields_to", verdict.yields_to

    if verdict.kept_for is not None:
        yield "kept_for", str(verdict.kept_for)

    if isinstance(verdict.preemption, NotHelpful):
        yield "preemption", str(verdict.preemption)


def _described(reserved: Reserved) -> str:
    nodes = counted(len(reserved.nodes), "node")
    if reserved.at_s < math.inf:
        return f"{nodes} from {by(reserved.at_s)}"

    return nodes
