"""Metrics: every number for Prometheus, in a separate registry.

Invariant: label values come from enums or a fixed list, so the number of series is bounded. The child objects of a
metric are created once and kept, since `.labels()` costs four times as much as `.inc()`. Code that runs often counts in
plain integers, which are read at scrape time (`publish`).
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, GCCollector, Histogram, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from gangsched import __version__
from gangsched.model.plan import RoundOutcome
from gangsched.model.reasons import Reason
from gangsched.telemetry.counted import MEANINGS
from gangsched.telemetry.gangs import GangMetrics
from gangsched.telemetry.preemption import PreemptionMetrics
from gangsched.telemetry.reservations import ReservationMetrics

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

C = TypeVar("C", Counter, Gauge)

CYCLE_BUCKETS_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
BIND_BUCKETS_S = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
BIND_RESULTS = ("bound", "gone", "failed")
QUEUE_PARTS = ("active", "backoff", "parked")


class Metrics:
    """The daemon's metrics; one instance per daemon. /metrics shows its `registry`.

    `verdicts`, `rounds`, `binds` and `queue_groups` map a label value to the child object:
    `metrics.verdicts[Reason.SCHEDULED].inc()`.
    """

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        counter, gauge = partial(Counter, registry=registry), partial(Gauge, registry=registry)
        histogram = partial(Histogram, registry=registry)
        self.cycles = counter("gangsched_cycles", "Scheduling cycles that planned.")
        self.cycle_seconds = histogram("gangsched_cycle_seconds", "Time of one cycle's plan.", buckets=CYCLE_BUCKETS_S)
        self.plan_pods = counter("gangsched_plan_pods", "Pods that plans have tried to place.")
        self.verdicts = Children(counter("gangsched_verdicts", "Verdicts on groups, by reason.", ["reason"]), Reason)
        rounds = counter("gangsched_rounds", "Rounds of groups (attempts to place them), by outcome.", ["outcome"])
        self.rounds = Children(rounds, RoundOutcome)
        answered = "Binds answered, by result; gone: the pod was deleted or is bound elsewhere."
        self.binds = Children(counter("gangsched_binds", answered, ["result"]), BIND_RESULTS)
        bind_seconds = "Time from the request of a bind to its answer."
        self.bind_seconds = histogram("gangsched_bind_seconds", bind_seconds, buckets=BIND_BUCKETS_S)
        parts = gauge("gangsched_queue_groups", "Groups in each part of the queue.", ["part"])
        self.queue_groups = Children(parts, QUEUE_PARTS)
        self.gangs = GangMetrics(registry)
        self.preemption = PreemptionMetrics(registry)
        self.reservations = ReservationMetrics(registry)
        self.known_nodes = gauge("gangsched_nodes", "Known nodes.")
        self.known_pods = gauge("gangsched_pods", "Known pods of all schedulers that have not ended.")
        self.known_gangs = gauge("gangsched_gangs", "Known gangs.")
        followed = "1 if PodGroups are watched, 0 while an API group of them cannot be read."
        self.pod_groups_followed = gauge("gangsched_podgroups_followed", followed)
        self._watches = _Watches(registry)
        lag = "Lateness of the event loop at its last heartbeat, every 100 ms."
        self.loop_lag_seconds = gauge("gangsched_loop_lag_seconds", lag)
        self.loop_stall_max_seconds = gauge("gangsched_loop_stall_max_seconds", "Maximum lateness of the event loop.")
        build_info = gauge("gangsched_build_info", "Always 1.", ["version", "python"])
        build_info.labels(__version__, platform.python_version()).set(1)
        self._published = _Published(registry)
        # Not the global registry, which a second daemon in one process (a test) could not share.
        ProcessCollector(registry=registry)
        GCCollector(registry=registry)

    def leadership(self, lease: str, leads: Callable[[], bool]) -> None:
        """Export whether this instance leads, under client-go's metric name."""
        meaning = "1 if this instance holds the Lease `name` and plans, else 0; only with leader election."
        gauge = Gauge("leader_election_master_status", meaning, ["name"], registry=self.registry)
        gauge.labels(lease).set_function(lambda: float(leads()))

    def watch(self, part: str, heard_s: Callable[[], float | None], *, now: Callable[[], float]) -> None:
        """Export the seconds since the API server last sent anything about a resource.

        `heard_s` returns a time of the clock `now`, or None if the resource is not watched; then there is no series.
        """
        self._watches.heard[part] = (heard_s, now)

    def publish(self, family: str, part: str, counts: DataclassInstance) -> None:
        """Export each field of a dataclass of monotonic counters as gangsched_<family>_<field>_total{part=…}.

        The dataclass is read at scrape time. Several parts can share a family: `publish("reflector", "pods", counts)`.
        The module `counted` documents each field.
        """
        self._published.add(
            family, part, counts, {field.name: MEANINGS[family][field.name] for field in fields(counts)}
        )


class Children(Generic[C]):
    """A metric's child objects by label value, all created at the start so that each series begins at 0."""

    def __init__(self, metric: C, values: Iterable[str]) -> None:
        """`metric` has one label; `values` are all its values."""
        # From the start, so that rate() sees the first increment.
        self._children: dict[str, C] = {str(value): metric.labels(str(value)) for value in values}

    def __getitem__(self, value: str) -> C:
        """The kept child; KeyError for an unknown value."""
        return self._children[value]


class _Watches(Collector):
    """For how long nothing was heard of each resource."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.heard: dict[str, tuple[Callable[[], float | None], Callable[[], float]]] = {}
        registry.register(self)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        silent = "Time since the last list, event or bookmark of the API server, by resource."
        metric = GaugeMetricFamily("gangsched_watch_staleness_seconds", silent, labels=["part"])
        for part, (read, now) in self.heard.items():
            if (heard_s := read()) is not None:
                metric.add_metric([part], max(0.0, now() - heard_s))
        yield metric


class _Published(Collector):
    """Reads counters from their owners."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._families: dict[str, dict[str, DataclassInstance]] = {}
        self._meanings: dict[str, dict[str, str]] = {}
        registry.register(self)

    def add(self, family: str, part: str, counts: DataclassInstance, meanings: Mapping[str, str]) -> None:
        self._families.setdefault(family, {})[part] = counts
        self._meanings.setdefault(family, {}).update(meanings)

    def collect(self) -> Iterator[CounterMetricFamily]:
        for family, parts in self._families.items():
            for name, meaning in self._meanings[family].items():
                text = f"{meaning[0].upper()}{meaning[1:]}."
                metric = CounterMetricFamily(f"gangsched_{family}_{name}", text, labels=["part"])
                for part, counts in parts.items():
                    metric.add_metric([part], getattr(counts, name, 0))
                yield metric
