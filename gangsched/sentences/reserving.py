"""Messages about reservations: the condition `Reserved`, and the last part of a refusal (semantics
H13, H14).

Invariant: groups of other namespaces are counted, never named. Promised times are rounded up, never
down.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import assert_never

from gangsched.api import keys
from gangsched.model.gang import shown
from gangsched.model.plan import Verdict
from gangsched.model.reasons import Reason
from gangsched.model.reservation import Blocker, KeptFor, NotEntitled, NotReserved, Reserved
from gangsched.model.text import are_of, counted
from gangsched.sentences.times import by
from gangsched.sentences.words import EQUAL

STARTED = "Started"
LOST = "Lost"
NOT_NEEDED = "NotNeeded"
NODES_NAMED = 2
STEPS_S = ((600, 60), (3_600, 300), (10_800, 900), (43_200, 3_600), (604_800, 21_600))
"""Suggested run times below the first number are rounded down to a multiple of the second: texts
rarely change.
"""


def reserved(reservation: Reserved, namespace: str) -> str:
    """Message with the reserved nodes, the start time, and the groups that must end first; only
    groups of `namespace` are named.
    """
    count = len(reservation.nodes)
    if reservation.is_fence:
        left = count - reservation.empty
        are = are_of(reservation.empty, count)
        kept = f"{reservation.empty} of {counted(count, 'node')} {are} free and reserved"
        more = "it" if count == 1 else "one more" if left == 1 else f"{left} more"

        if left:
            return (
                f"{kept}; {more} must become empty, but {'its' if left == 1 else 'their'} pods"
                " declare no run time"
            )

        return kept

    at = by(reservation.at_s)
    start = (
        f"starts at {at} at the latest" if reservation.is_promised else f"expected at about {at}"
    )
    when = _when(reservation.waits_for, namespace)

    return (
        f"room on {counted(count, 'node')} ({_some(reservation.nodes)}) is reserved; {start}{when}"
    )


def kept_for(kept: KeptFor) -> str:
    """Message that a group would fit without reservations, and with which run time it could start
    now (H14).
    """
    sentence = "it fits only into room that is reserved for gangs ahead of it"
    if kept.until_s == math.inf:
        return sentence

    sentence += f" until {by(kept.until_s)}"
    advised_s = _step(kept.run_time_s)
    if not advised_s:
        return sentence

    return (
        f"{sentence}; declare an expected run time of {duration(advised_s)} or less"
        f" ({keys.EXPECTED_RUNTIME}) to start now"
    )


@lru_cache(maxsize=EQUAL)
def not_reserved(why: NotReserved, namespace: str) -> str:
    """Why a group that waits for room has no reservation (H14), as it is told in a namespace."""
    from_then_on = "" if why.until_s == math.inf else f" before {by(why.until_s)}"
    match why.why:
        case NotEntitled.IMPOSSIBLE:
            if why.needs > why.offers:
                return (
                    f"not reserved: it needs {counted(why.needs, 'node')}, but the cluster has"
                    f" {why.offers}"
                )

            return f"not reserved: {why.why}"
        case NotEntitled.NAMESPACE:
            have = f"{counted(why.offers, 'reservation')}, the maximum (reservations_per_namespace)"
            # A group may have gangs in several namespaces, which do not learn each other's names
            # (I4).
            whose = (
                f"namespace {why.namespace}"
                if why.namespace == namespace
                else "another namespace of the group"
            )
            return f"not reserved: {whose} already has {have}"
        case NotEntitled.TOO_YOUNG:
            return f"not reserved{from_then_on}: {why.why}"
        case NotEntitled.NO_TIME:
            return (
                f"not reserved{from_then_on}: running pods declare no run times, so no start time"
                " can be computed"
            )
        case NotEntitled.FENCE_OVER:
            return f"not reserved{from_then_on}: {why.why}"
        case NotEntitled.REFUSED:
            return f"not reserved until a node changes: {why.why}"
        case (
            NotEntitled.LATER
            | NotEntitled.SHARE
            | NotEntitled.SEARCHING
            | NotEntitled.TOO_MUCH_WORK
            | NotEntitled.ORDERED
        ):
            return f"not reserved: {why.why}"
        case _:
            assert_never(why.why)


def ended(
    verdict: Verdict | None,
    why: NotReserved | None,
    namespace: str,
) -> tuple[bool, str, str]:
    """Status, reason and message of the condition `Reserved` after the reservation ended."""
    reason = verdict.reason if verdict is not None else None
    if reason is Reason.SCHEDULED:
        return False, STARTED, "the gang has started"
    if reason is not Reason.UNSCHEDULABLE:
        return False, NOT_NEEDED, "the gang no longer waits for room"

    cause = (
        not_reserved(why, namespace)
        if why is not None
        else "the reserved room was lost, and no other room is available"
    )
    return False, LOST, cause


def duration(seconds: int) -> str:
    """`35m`, `1h30m`, `48h`: whole minutes as a Go duration."""
    hours, minutes = divmod(seconds // 60, 60)
    return f"{hours}h" * bool(hours) + f"{minutes}m" * bool(minutes or not hours)


def _step(most_s: float) -> int:
    """The longest run time to advise where it may be so long; 0 for less than a minute."""
    size = next((size for most, size in STEPS_S if most_s < most), STEPS_S[-1][1])
    return int(most_s // size) * size


def _when(waits_for: Sequence[Blocker], namespace: str) -> str:
    """`, when ml/a and 2 more have ended`."""
    number = len(waits_for)
    own = next((blocker.id for blocker in waits_for if blocker.namespace == namespace), "")

    if not number:
        return ""

    if not own:
        if number == 1:
            return ", when another group has ended"

        return f", when {number} other groups have ended"

    name = shown(own)
    if number > 1:
        return f", when {name} and {number - 1} more have ended"

    return f", when {name} has ended"


def _some(names: Sequence[str]) -> str:
    first = sorted(names)[:NODES_NAMED]
    return ", ".join(
        first if len(names) <= NODES_NAMED else [*first, f"{len(names) - NODES_NAMED} more"]
    )
