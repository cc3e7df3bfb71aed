"""Whether a group that was refused would fit but for reservations, and until when (semantics H14).

Law: it goes by sums of room, as arithmetic does (P4), and changes nothing.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from gangsched.core.permit import missing
from gangsched.core.reservations.backfill import Backfill
from gangsched.core.reservations.heads import needed
from gangsched.core.reserve import Ledger
from gangsched.core.scopes import usable
from gangsched.model.gang import Gang, Group
from gangsched.model.reservation import KeptFor


def kept_for(group: Group, backfill: Backfill, ledger: Ledger, *, wall_s: float) -> KeptFor | None:
    """None if no reservation is to blame; at wall second `wall_s`."""
    times_s = backfill.times_s(group)
    if not times_s:
        return None
    gangs = needed(group)
    if not gangs or _enough(gangs, group, ledger):
        return None
    with ledger.nothing_kept():
        if not _enough(gangs, group, ledger):
            return None
    for at_s in times_s:
        ends_in_time = tuple(replace(gang, run_time_s=at_s - wall_s) for gang in group.gangs)
        if wall_s < at_s and _enough(gangs, replace(group, gangs=ends_in_time), ledger):
            return KeptFor(until_s=at_s, run_time_s=at_s - wall_s)
    return KeptFor(until_s=times_s[0])


def _enough(gangs: tuple[Gang, ...], group: Group, ledger: Ledger) -> bool:
    for gang in gangs:
        counts = Counter(pod.shape for pod in gang.pending)
        fits = sum(min(count, int(usable(shape, group, ledger).sum())) for shape, count in counts.items())
        if fits < missing(gang, 0):
            return False
    return True
