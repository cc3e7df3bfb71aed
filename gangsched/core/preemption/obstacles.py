"""Why preemption cannot help a group, derived from sums (V21)."""

from __future__ import annotations

import numpy as np

from gangsched.core.preemption.columns import RunningColumns
from gangsched.core.preemption.needed_sums import NeededSums
from gangsched.core.preemption.preemptor import Preemptor
from gangsched.core.preemption.regions import Regions
from gangsched.core.preemption.units import Units
from gangsched.core.reserve import Ledger
from gangsched.model.preemption import NotHelpful, Obstacle, PreemptionSettings
from gangsched.model.snapshot import Bools

BISECTIONS = 4
"""Looks for the moment at which young pods are old enough; what is found is never too late, and seldom too early."""


def obstacle(
    preemptor: Preemptor, sums: NeededSums, columns: RunningColumns, ledger: Ledger, settings: PreemptionSettings
) -> NotHelpful:
    """Return what prevents a helpful preemption: young pods, then other schedulers, else too little room.

    `ledger` is without the pods that terminate anyway.
    """
    if columns.young.any():
        units = Units.of(preemptor, columns, ~columns.foreign)
        young = columns.young & ~columns.foreign & ~columns.spared
        if young.any() and Regions.of(preemptor, sums, units, ledger).lowest_level() is not None:
            return _young(preemptor, units, sums, ledger, settings)
    if columns.foreign.any():
        units = Units.of(preemptor, columns, np.ones_like(columns.foreign))
        if Regions.of(preemptor, sums, units, ledger).lowest_level() is not None:
            return _foreign(preemptor, units, sums)
    units = Units.of(preemptor, columns, ~columns.young & ~columns.foreign)
    regions = Regions.of(preemptor, sums, units, ledger)
    could_go = units.could_go(preemptor.right - 1) & units.inside(sums.mask)
    if not could_go.any():
        return NotHelpful(why=Obstacle.NOTHING_LOWER)
    room, needed = regions.most_room(could_go), sums.needed
    return NotHelpful(
        why=Obstacle.TOO_LITTLE, pods=int(np.count_nonzero(could_go)), room=min(room, needed - 1), needed=needed
    )


def _young(
    preemptor: Preemptor, units: Units, sums: NeededSums, ledger: Ledger, settings: PreemptionSettings
) -> NotHelpful:
    """Counts gangs once, and plain pods; finds out when enough of them have run for long enough, by bisection."""
    columns = units.columns
    number = _gangs(units, columns.young & units.inside(sums.mask))
    starts = np.unique(columns.start[columns.young & ~columns.foreign & ~columns.spared])
    low, high = 0, len(starts) - 1  # that all but the last may go is not known to be enough
    for _ in range(BISECTIONS):
        if low == high:
            break
        middle = (low + high) // 2
        old = Units.of(preemptor, columns, (columns.start <= starts[middle]) & ~columns.foreign)
        if Regions.of(preemptor, sums, old, ledger).lowest_level() is not None:
            high = middle
        else:
            low = middle + 1
    until_s = int(starts[low]) + settings.min_run_s if len(starts) else 0
    return NotHelpful(why=Obstacle.TOO_YOUNG, pods=number, seconds=settings.min_run_s, until_s=until_s)


def _gangs(units: Units, pods: Bools) -> int:
    columns = units.columns
    may_go = pods & ~columns.spared
    return np.unique(columns.gang[may_go & columns.in_gang]).size + int(np.count_nonzero(may_go & columns.plain))


def _foreign(preemptor: Preemptor, units: Units, sums: NeededSums) -> NotHelpful:
    """How much of what the members need most of is in use by pods of other schedulers."""
    columns = units.columns
    theirs = np.flatnonzero(
        columns.foreign & units.inside(sums.mask) & (columns.priority < preemptor.right) & ~columns.spared
    )
    rows = columns.requests(sums.names, theirs).sum(axis=1).tolist()
    asked = sums.asks[0].amounts
    used = [
        (bool(sums.asks[0].accelerated and "/" in name), rows[r] // max(1, asked[r]), name)
        for r, name in enumerate(sums.names)
        if asked[r]
    ]
    name = max(used)[2]
    return NotHelpful(why=Obstacle.OTHER_SCHEDULERS, amount=rows[sums.names.index(name)], name=name)
