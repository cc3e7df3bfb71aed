"""Results that a plan passes on to the next plans.

Invariant: every entry is the result of a pure function, stored with its inputs, so decisions do not
depend on the cache, whether full or empty. The state owns the caches and passes them to
`core.cycle.plan` in addition to its input.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from gangsched.core.filter.count_cache import CountCache
from gangsched.core.preemption.columns import PodTableCache
from gangsched.core.reservations.records import ReservationCache


@dataclass(frozen=True, slots=True)
class PlanCache:
    """Counts of pods by node, the columns of running pods, and the records of reservations."""

    counts: CountCache = field(default_factory=CountCache)
    running: PodTableCache = field(default_factory=PodTableCache)
    reservations: ReservationCache = field(default_factory=ReservationCache)
