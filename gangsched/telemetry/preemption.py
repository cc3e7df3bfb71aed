"""Metrics of preemption (semantics V23).

Invariant: the state keeps the counters, and `add` copies them to Prometheus. Label values are bounded as in `metrics`.
"""

from __future__ import annotations

from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from gangsched.model.preemption import UnitKind
from gangsched.state.preemption.journal import NominationCounts
from gangsched.state.preemption.nomination import Result

RESULTS = ("nominated", "not_helpful", "not_allowed", "pdb")
BUCKETS_S = (0.1, 1.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)


class PreemptionMetrics:
    """The daemon sets `nominations`; all other metrics are updated by `add`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        counter = partial(Counter, registry=registry)
        looked = "Groups for which preemption was evaluated, by result."
        attempts = counter("gangsched_preemption_attempts", looked, ["result"])
        taken_as = (
            "Evicted pods: surplus (members above a minimum), child (of a tree that keeps its minimum of children), "
            "core (members evicted with their group), plain pods."
        )
        victims = counter("gangsched_preemption_victim_pods", taken_as, ["unit"])
        seconds = Histogram(
            "gangsched_preemption_nomination_seconds",
            "Time from the decision to preempt to its end, by result.",
            ["result"],
            buckets=BUCKETS_S,
            registry=registry,
        )
        self._attempts = {result: attempts.labels(result) for result in RESULTS}
        self._victims = {kind: victims.labels(kind.value) for kind in UnitKind}
        self._seconds = {result: seconds.labels(result.value) for result in Result}
        self._stopped = counter("gangsched_preemption_gangs_stopped", "Gangs evicted below their minimum.")
        lost = "Accelerator-seconds of work lost by evictions, estimated when the victims were chosen."
        self._lost = counter("gangsched_preemption_lost_accelerator_seconds", lost)
        in_vain = "Pods evicted for a group that then did not start; alert on an increase."
        self._in_vain = counter("gangsched_preemption_evicted_in_vain", in_vain)
        now = "Groups with a nomination."
        self.nominations = Gauge("gangsched_preemption_nominations", now, registry=registry)

    def add(self, counts: NominationCounts) -> None:
        """Add the counts since the last call."""
        for result, number in counts.attempts.items():
            self._attempts[result].inc(number)
        for kind, number in counts.victims.items():
            self._victims[kind].inc(number)
        for ended, seconds in counts.seconds:
            self._seconds[ended].observe(seconds)
        self._stopped.inc(counts.gangs_stopped)
        self._lost.inc(counts.lost_accelerator_seconds)
        self._in_vain.inc(counts.evicted_in_vain)
