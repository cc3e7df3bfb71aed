"""Metrics of gangs: numbers and reasons of waiting gangs, waits, and incidents.

Invariant: as in `metrics`. Waiting gangs are counted once per scrape, and only by the leader, so that sums over
replicas are correct.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from gangsched.state.reporting.gang_numbers import REASONS, GangCounts, GangStart, Pending

SIZES = ((1, "1"), (8, "2-8"), (64, "9-64"), (512, "65-512"))
LARGEST = "513+"
WAIT_BUCKETS_S = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3_600, 14_400, 86_400, 259_200, 604_800)
ROUND_BUCKETS = (1, 2, 3, 5, 10, 30, 100, 300, 1_000)


class GangMetrics(Collector):
    """`count` and `counts` return the current numbers at scrape time; the daemon sets both functions."""

    def __init__(self, registry: CollectorRegistry) -> None:
        # An empty Pending until the daemon sets it: a scrape may come before the first plan.
        self.count: Callable[[], Pending] = Pending
        self.counts = GangCounts()
        waits = Histogram(
            "gangsched_gang_wait_seconds",
            "Time from a gang's quorum to the last answered bind of its minimum, by minimum.",
            ["members"],
            buckets=WAIT_BUCKETS_S,
            registry=registry,
        )
        self._waits = {size: waits.labels(size) for size in (*(size for _, size in SIZES), LARGEST)}
        self._rounds = Histogram(
            "gangsched_gang_rounds", "Rounds that gangs needed to start.", buckets=ROUND_BUCKETS, registry=registry
        )
        registry.register(self)

    def started(self, start: GangStart) -> None:
        """Record the start of a gang."""
        size = next((size for most, size in SIZES if start.min_member <= most), LARGEST)
        self._waits[size].observe(start.wait_s)
        self._rounds.observe(start.rounds)

    def collect(self) -> Iterator[Metric]:
        """Yield current waits and counts."""
        pending, counts = self.count(), self.counts
        gangs = GaugeMetricFamily("gangsched_pending_gangs", "Waiting gangs, by reason.", labels=["reason"])
        pods = GaugeMetricFamily(
            "gangsched_pending_pods", "Waiting managed pods, of gangs and plain ones, by reason.", labels=["reason"]
        )
        # All reasons, also those with 0: a series that disappears looks like missing data.
        for reason in REASONS:
            gangs.add_metric([reason], pending.gangs[reason])
            pods.add_metric([reason], pending.pods[reason])
        yield gangs
        yield pods
        broken = "Gangs that started, are below their minimum and have waiting members."
        yield GaugeMetricFamily("gangsched_broken_gangs", broken, pending.broken)
        holds = "Pods that hold room and wait for their gang."
        yield GaugeMetricFamily("gangsched_holds", holds, pending.held)
        yielded = "Groups that released their holds so that a higher-ranked group could start."
        yield CounterMetricFamily("gangsched_yields", yielded, counts.yielded)
        timed_out = "Groups whose wait time expired while they held room."
        yield CounterMetricFamily("gangsched_timeouts", timed_out, counts.timed_out)
        rejected = "Bound members that a kubelet rejected."
        yield CounterMetricFamily("gangsched_kubelet_rejections", rejected, counts.kubelet_rejected)
        set_aside = "Objects that could not be applied and were set aside; the log and an Event name them."
        yield CounterMetricFamily("gangsched_objects_set_aside", set_aside, counts.set_aside)
