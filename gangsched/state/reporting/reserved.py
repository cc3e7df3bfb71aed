"""The condition `Reserved` and the end of refusals, as last reported (semantics H13, H14).

Invariant: a start time that changes only a little is not written again.
"""

from __future__ import annotations

from dataclasses import dataclass

from msgspec import structs

from gangsched.model.gang import Refusal
from gangsched.model.plan import Verdict
from gangsched.model.reasons import Reason
from gangsched.model.reservation import Reserved
from gangsched.model.verdict_facts import Worded
from gangsched.sentences import reserving

RESERVED = "Reserved"
TIMED = "Timed"
FENCED = "Fenced"
MOVED_S = 300.0
MOVED_SHARE = 0.1
"""A time is reported again once it moves by more than both this and this share of the time that is
left.
"""


@dataclass(frozen=True, slots=True)
class Told:
    """A reservation as last reported; its text stays the same until the reservation
    changes enough.
    """

    reserved: Reserved

    def is_out_of_date(self, now: Reserved, *, wall_s: float) -> bool:
        """Whether `now` differs so much from the last report that it must be reported
        again (H13).
        """
        if _what(self.reserved) != _what(now):
            return True
        if now.is_fence:
            return False

        # Expected ends move a little with each pod that starts late: each of these would be a
        # write.
        moved_s = abs(now.at_s - self.reserved.at_s)
        return moved_s > MOVED_S and moved_s > MOVED_SHARE * (self.reserved.at_s - wall_s)

    @property
    def reason(self) -> str:
        """The reason of the condition while the condition is true."""
        return FENCED if self.reserved.is_fence else TIMED

    def text(self, namespace: str) -> str:
        """The sentence as reported; it names groups of this namespace only."""
        return reserving.reserved(self.reserved, namespace)


def _what(reserved: Reserved) -> tuple[object, ...]:
    return reserved.is_fence, reserved.is_promised, frozenset(reserved.nodes), reserved.empty


def with_tail(verdict: Verdict, tail: str) -> Verdict:
    """Append `said` to each refusal in the verdict whose cause is lack of room; reason and stable
    message do not change (E1).
    """
    return structs.replace(
        verdict,
        told=_longer(verdict.told, tail),
        gangs=tuple((gang, _longer(refusal, tail)) for gang, refusal in verdict.gangs),
        notes=tuple((uid, _longer(refusal, tail)) for uid, refusal in verdict.notes),
    )


def _longer(refusal: Refusal, tail: str) -> Refusal:
    if refusal.reason is not Reason.UNSCHEDULABLE:
        return refusal

    return structs.replace(refusal, details=(*refusal.details, Worded(tail)))
