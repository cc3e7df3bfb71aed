"""Why preemption cannot help a group, derived from sums (V21)."""

from __future__ import annotations

import numpy as np

from gangsched.core.preemption.regions import Case
from gangsched.model.preemption import NotHelpful, Obstacle, PreemptionSettings
from gangsched.model.snapshot import Bools

BISECTIONS = 4
"""Looks for the moment at which young pods are old enough; what is found is never too late, and seldom too early."""


def obstacle(case: Case, settings: PreemptionSettings) -> NotHelpful:
    """Return what prevents a helpful preemption: young pods, then other schedulers, else too little room."""
    preemptor, sums, columns = case.preemptor, case.sums, case.columns
    if (columns.young & ~columns.foreign & ~columns.spared).any() and case.could(~columns.foreign):
        return _young(case, settings)
    if columns.foreign.any() and case.could(np.ones_like(columns.foreign)):
        return _foreign(case)
    regions = case.regions(~columns.young & ~columns.foreign)
    units = regions.units
    could_go = units.could_go(preemptor.right - 1) & columns.inside(sums.mask)
    if not could_go.any():
        return NotHelpful(why=Obstacle.NOTHING_LOWER)
    room, needed = regions.most_room(could_go), sums.needed
    return NotHelpful(
        why=Obstacle.TOO_LITTLE, pods=int(np.count_nonzero(could_go)), room=min(room, needed - 1), needed=needed
    )


def _young(case: Case, settings: PreemptionSettings) -> NotHelpful:
    """Counts gangs once, and plain pods; finds out when enough of them have run for long enough, by bisection."""
    columns = case.columns
    number = _gangs(case, columns.young)
    starts = np.unique(columns.start[columns.young & ~columns.foreign & ~columns.spared])
    low, high = 0, len(starts) - 1  # that all but the last may go is not known to be enough
    for _ in range(BISECTIONS):
        if low == high:
            break
        middle = (low + high) // 2
        if case.could((columns.start <= starts[middle]) & ~columns.foreign):
            high = middle
        else:
            low = middle + 1
    until_s = int(starts[low]) + settings.min_run_s if len(starts) else 0
    return NotHelpful(why=Obstacle.TOO_YOUNG, pods=number, seconds=settings.min_run_s, until_s=until_s)


def _gangs(case: Case, pods: Bools) -> int:
    columns = case.columns
    may_go = pods & ~columns.spared & columns.inside(case.sums.mask)
    return np.unique(columns.gang[may_go & columns.in_gang]).size + int(np.count_nonzero(may_go & columns.plain))


def _foreign(case: Case) -> NotHelpful:
    """How much of what the members need most of is in use by pods of other schedulers."""
    columns, sums = case.columns, case.sums
    lower = (columns.priority < case.preemptor.right) & ~columns.spared
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
