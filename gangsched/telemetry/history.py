"""The audit trail: what was decided about each gang, as log lines and in a bounded ring that the
gangs API reads.

Invariant: an entry says what has happened: a start once its binds are answered, a refused bind with
the API server's words, an eviction once it is answered. Memory is bounded by `ENTRIES` of at most
`WORDS` characters each, and no gang writes more than its `Allowance`, so that none pushes out the
entries of the others. What repeats is counted in its entry and logged at its 1st, 2nd, 4th, 8th …
time.
"""

from __future__ import annotations

import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import msgspec
import structlog

ENTRIES = 20_000
WORDS = 400
OBJECTS = 5
"""The most objects of an entry that are named; the number of all is told beside them."""
BURST = 40.0
ENTRIES_PER_S = 0.2
GANGS = 4_000
"""Gangs whose allowance is remembered; a forgotten one starts with a whole burst again."""
REPEATS_WITHIN_S = 600.0


class Happening(StrEnum):
    """What an entry is about."""

    STARTED = "Started"
    BIND_REFUSED = "BindRefused"
    WAITS = "Waits"
    TIMED_OUT = "TimedOut"
    YIELDED = "Yielded"
    PREEMPTING = "Preempting"
    PREEMPTED = "Preempted"
    PREEMPTION_DELAYED = "PreemptionDelayed"
    PREEMPTION_ENDED = "PreemptionEnded"
    RESERVED = "Reserved"
    RESERVATION_ENDED = "ReservationEnded"
    ROOM_KEPT = "RoomKept"
    ROOM_RELEASED = "RoomReleased"
    MEMBER_LOST = "MemberLost"
    SET_ASIDE = "SetAside"


REPEATING = frozenset(
    {
        Happening.BIND_REFUSED,
        Happening.WAITS,
        Happening.PREEMPTION_DELAYED,
        Happening.MEMBER_LOST,
        Happening.SET_ASIDE,
    }
)
"""What may come again and again without anything else between; the others are one entry each."""
ONLY_FOR_DEBUG = frozenset({Happening.WAITS})
"""Refusals, of which a waiting gang has one with every change: in the ring, and in the log at level
debug.
"""


class AuditEntry(msgspec.Struct, eq=False, gc=False):
    """One entry; the most recent repetition gives `last_s`, `message` and `objects`."""

    gang: str
    what: Happening
    #: Epoch seconds of the first and of the last time, and how often it happened.
    first_s: float
    last_s: float
    message: str
    reason: str = ""
    #: The uid of the object that declares the gang, else of its oldest pod; "" if it is unknown.
    uid: str = ""
    #: The number of the plan, within this process; 0 for what no plan decided.
    plan: int = 0
    #: Pods or other objects that it is about (name and uid), the first few, and how many there are.
    objects: tuple[tuple[str, str], ...] = ()
    number: int = 0
    times: int = 1


class Allowance(msgspec.Struct, gc=False):
    """The entries that a gang may write: a token bucket; `left_out` were refused since the last
    one.
    """

    left: float = BURST
    at_s: float = 0.0
    left_out: int = 0

    def take(self, now_s: float) -> bool:
        """Take one; False if none is left."""
        self.left = min(BURST, self.left + max(0.0, now_s - self.at_s) * ENTRIES_PER_S)
        self.at_s = now_s
        if self.left < 1:
            self.left_out += 1
            return False

        self.left -= 1
        return True


@dataclass(eq=False)
class History:
    """The ring. `wall_s` are epoch seconds."""

    wall_s: Callable[[], float]
    entries: int = ENTRIES
    #: Since when every entry is kept that was written: the start of this process, or the last one
    #: that was pushed out.
    complete_since_s: float = field(init=False)

    def __post_init__(self) -> None:
        self.complete_since_s = self.wall_s()
        self._ring: deque[AuditEntry] = deque()
        self._repeating: dict[tuple[str, Happening, str], AuditEntry] = {}
        self._allowances: OrderedDict[str, Allowance] = OrderedDict()
        self._log = structlog.get_logger("audit")

    def __len__(self) -> int:
        return len(self._ring)

    def of(self, gangs: Iterable[str]) -> list[AuditEntry]:
        """Entries about these gangs, oldest first."""
        wanted = frozenset(gangs)
        return [entry for entry in self._ring if entry.gang in wanted]

    def note(
        self,
        gang: str,
        what: Happening,
        message: str,
        *,
        reason: str = "",
        uid: str = "",
        plan: int = 0,
        objects: Sequence[tuple[str, str]] = (),
    ) -> None:
        """Record something about a gang, and log it."""
        now_s = self.wall_s()
        message = message if len(message) <= WORDS else f"{message[: WORDS - 1]}…"
        named = tuple(objects[:OBJECTS])

        # Texts of refused binds and lost members name one pod each: they repeat although the text
        # differs.
        sentence = message if what is Happening.WAITS else ""
        known = self._repeating.get((gang, what, sentence)) if what in REPEATING else None
        if known is not None and now_s - known.last_s < REPEATS_WITHIN_S:
            known.times += 1
            known.last_s = now_s
            known.message = message
            known.plan = plan

            known.objects = tuple(dict.fromkeys((*named, *known.objects)))[:OBJECTS]
            # 1, 2, 4, 8, …: a bind that is refused each second has 12 lines an hour.
            if known.times & (known.times - 1) == 0:
                self._write(known)

            return

        if not self._allowance(gang).take(now_s):
            return

        entry = AuditEntry(
            gang,
            what,
            now_s,
            now_s,
            message,
            reason,
            uid,
            plan,
            named,
            len(objects),
        )
        if what in REPEATING:
            self._repeating[gang, what, sentence] = entry

        self._append(entry)
        self._write(entry)

    def _append(self, entry: AuditEntry) -> None:
        self._ring.append(entry)
        if len(self._ring) <= self.entries:
            return

        gone = self._ring.popleft()
        self.complete_since_s = gone.last_s

        key = (gone.gang, gone.what, gone.message if gone.what is Happening.WAITS else "")
        if self._repeating.get(key) is gone:
            del self._repeating[key]

    def _allowance(self, gang: str) -> Allowance:
        allowance = self._allowances.pop(gang, None) or Allowance(at_s=self.wall_s())
        # pop and insert: the dict stays in the order of use.
        self._allowances[gang] = allowance
        if len(self._allowances) > GANGS:
            self._allowances.popitem(last=False)

        return allowance

    def _write(self, entry: AuditEntry) -> None:
        # A plan may refuse thousands of gangs: of these nothing is made up for a log that leaves
        # them out.
        if entry.what in ONLY_FOR_DEBUG and not getattr(
            self._log,
            "is_enabled_for",
            lambda _: True,
        )(logging.DEBUG):
            return

        allowance = self._allowance(entry.gang)
        line: dict[str, Any] = {
            "gang": entry.gang,
            "reason": entry.reason,
            "message": entry.message,
        }
        line |= {"uid": entry.uid} if entry.uid else {}
        line |= {"plan": entry.plan} if entry.plan else {}
        line |= (
            {"objects": [f"{name} {uid}".rstrip() for name, uid in entry.objects]}
            if entry.objects
            else {}
        )
        line |= {"number": entry.number} if entry.number > len(entry.objects) else {}
        line |= {"times": entry.times} if entry.times > 1 else {}
        line |= {"left_out": allowance.left_out} if allowance.left_out else {}
        allowance.left_out = 0
        write = self._log.debug if entry.what in ONLY_FOR_DEBUG else self._log.info
        write(entry.what.value, **line)
