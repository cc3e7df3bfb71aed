"""The pods that a nomination waits for, its deadline, and its status message (semantics
V12, V20).
"""

from __future__ import annotations

from gangsched.core import findings
from gangsched.model.gang import Refusal
from gangsched.model.preemption import STUCK_S
from gangsched.state.member_store import MemberStore
from gangsched.state.preemption.nomination import Fate, NominationRecord, Stage

MANY = 100
RECOUNT_S = 1.0
"""How often more than `MANY` victims are counted anew: they go one by one, and each brings a look
at the nomination.
"""


def counted_recently(
    record: NominationRecord,
    now_s: float,
) -> bool:
    """Whether there are many victims, and their last count is recent enough to be used."""
    return len(record.victims) + len(record.awaited) > MANY and now_s < record.counted_s + RECOUNT_S


def ends_s(
    record: NominationRecord,
    members: MemberStore,
    *,
    max_wait_s: float,
    offset_s: float,
) -> float:
    """Monotonic second at which the last victim counts as stuck; add `offset_s` for epoch seconds.

    `max_wait_s` limits the wait, since a grace period may be a year.
    """
    latest_s = record.deadline_s + max_wait_s
    # Where hundreds of groups preempt, an eviction may wait for its turn for longer than a victim
    # has: its time has not begun, and to give up would evict all the others of its group without
    # effect.
    if record.stage is not Stage.EVICTING or Fate.ORDERED in record.fates.values():
        return latest_s

    known = (members.get(uid) for uid in (*record.victims, *record.awaited))
    ends = (
        member.pod.deletion_s for member in known if member is not None and member.pod.deletion_s
    )
    return min(max(record.deadline_s, max(ends, default=0) + STUCK_S - offset_s), latest_s)


def told(
    record: NominationRecord,
    members: MemberStore,
    namespaces: frozenset[str],
    *,
    until_s: int,
) -> Refusal:
    """Status message for a group of these `namespaces`: its nodes, the pods that must end, and the
    epoch second at which it gives up.
    """
    placements = [
        nominee.placement for nominee in record.nominees.values()
    ] or record.decision.placements

    known = (members.get(uid) for uid in (*record.victims, *record.awaited))
    return findings.nominated(
        (placement.node for placement in placements),
        ((member.pod, member.gang) for member in known if member is not None and member.node),
        namespaces,
        until_s=until_s,
    )
