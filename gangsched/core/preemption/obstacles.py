"""Why preemption cannot help a group, derived from sums (V21)."""

from __future__ import annotations

import numpy as np

from gangsched.core.preemption.regions import Regions
from gangsched.model.preemption import NotHelpful, Obstacle, PreemptionSettings

BISECTIONS = 4
"""Looks for the moment at which young pods are old enough; what is found is never too late, and seldom too early."""


def obstacle(regions: Regions, settings: PreemptionSettings) -> NotHelpful:
    """Return what prevents a helpful preemption: young pods, then other schedulers, else too little room."""
    columns, sums = regions.columns, regions.everywhere.sums
    if (columns.young & ~columns.foreign & ~columns.spared).any() and regions.among(~columns.foreign).levels():
        return _young(regions, settings)
    if columns.foreign.any() and regions.among(np.ones_like(columns.foreign)).levels():
        return _foreign(regions)
    lower = regions.among(~columns.young & ~columns.foreign)
    could_go = lower.units.could_go(regions.preemptor.right - 1) & columns.inside(sums.mask)
    if not could_go.any():
        return NotHelpful(why=Obstacle.NOTHING_LOWER)
    needed = len(regions.preemptor.pods)
    room = int(lower.domains.room(lower.everywhere.without(could_go)).max(initial=0))
    # There may be room for all by totals, in which they cannot be placed.
    room = min(room, needed - 1)
    return NotHelpful(why=Obstacle.TOO_LITTLE, pods=int(np.count_nonzero(could_go)), room=room, needed=needed)


def _young(regions: Regions, settings: PreemptionSettings) -> NotHelpful:
    """Counts gangs once, and plain pods; finds out when enough of them have run for long enough, by bisection."""
    columns = regions.columns
    young = columns.young & ~columns.spared
    there = young & columns.inside(regions.everywhere.sums.mask)
    number = np.unique(columns.gang[there & columns.in_gang]).size + int(np.count_nonzero(there & columns.plain))
    starts = np.unique(columns.start[young & ~columns.foreign])
    low, high = 0, len(starts) - 1  # that all but the last may go is not known to be enough
    for _ in range(BISECTIONS):
        if low == high:
            break
        middle = (low + high) // 2
        if regions.among((columns.start <= starts[middle]) & ~columns.foreign).levels():
            high = middle
        else:
            low = middle + 1
    until_s = int(starts[low]) + settings.min_run_s if len(starts) else 0
    return NotHelpful(why=Obstacle.TOO_YOUNG, pods=number, seconds=settings.min_run_s, until_s=until_s)


def _foreign(regions: Regions) -> NotHelpful:
    """How much of what the members need most of is in use by pods of other schedulers."""
    columns, sums = regions.columns, regions.everywhere.sums
    lower = (columns.priority < regions.preemptor.right) & ~columns.spared
    theirs = np.flatnonzero(columns.foreign & lower & columns.inside(sums.mask))
    rows = columns.requests(sums.names, theirs).sum(axis=1).tolist()
    asked = sums.asks[0].amounts
    used = [
        (bool(sums.asks[0].accelerated and "/" in name), rows[r] // max(1, asked[r]), name)
        for r, name in enumerate(sums.names)
        if asked[r]
    ]
    name = max(used)[2]
    return NotHelpful(why=Obstacle.OTHER_SCHEDULERS, amount=rows[sums.names.index(name)], name=name)
