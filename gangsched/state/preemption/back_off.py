"""Back-off between the nominations of a group (semantics V12).

Invariant: 30 s after a failed nomination that evicted pods, 1 s after one that did not, doubling up
to 10 min; a start of the group resets it.
"""

from __future__ import annotations

from gangsched.state.group_record import GroupRecord

FIRST_S = 30.0
FIRST_HARMLESS_S = 1.0
LONGEST_S = 600.0


def failed(group: GroupRecord, now_s: float, *, harmed: bool) -> float:
    """Record a nomination without a start; return the time of the next attempt. `harmed`: it
    evicted pods.
    """
    first_s = FIRST_S if harmed else FIRST_HARMLESS_S
    group.nomination_back_off_s = min(max(group.nomination_back_off_s * 2, first_s), LONGEST_S)
    group.nominates_at_s = now_s + group.nomination_back_off_s

    return group.nominates_at_s


def reset(group: GroupRecord) -> None:
    """Reset the back-off of a group that has started."""
    group.nomination_back_off_s = 0.0
    group.nominates_at_s = None
