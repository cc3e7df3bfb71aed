"""Metrics: every number that Prometheus may ask for, in a registry of our own.

Law: label values come from enums or a fixed list, so the number of series is bounded. Children are made once and kept,
since `.labels()` costs four times as much as `.inc()`. Hot code counts in plain integers, which are read when scraped
(`publish`).
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, GCCollector, Histogram, ProcessCollector
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from gangsched import __version__
from gangsched.model.plan import RoundOutcome
from gangsched.model.reasons import Reason
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
    """The daemon's metrics; one instance per daemon, its `registry` is what /metrics shows.

    `verdicts`, `rounds`, `binds` and `queue_groups` map the label's value to its kept child:
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
        rounds = counter("gangsched_rounds", "Rounds of groups, by outcome.", ["outcome"])
        self.rounds = Children(rounds, RoundOutcome)
        self.binds = Children(counter("gangsched_binds", "Binds answered, by result.", ["result"]), BIND_RESULTS)
        bind_seconds = "Time from a bind's order to its answer."
        self.bind_seconds = histogram("gangsched_bind_seconds", bind_seconds, buckets=BIND_BUCKETS_S)
        parts = gauge("gangsched_queue_groups", "Groups in each part of the queue.", ["part"])
        self.queue_groups = Children(parts, QUEUE_PARTS)
        self.holds = gauge("gangsched_holds", "Pods that hold room and wait for their gang.")
        self.preemption = PreemptionMetrics(registry)
        self.nodes = gauge("gangsched_nodes", "Nodes known.")
        self.pods = gauge("gangsched_pods", "Pods known that have not ended, of all schedulers.")
        self.gangs = gauge("gangsched_gangs", "Gangs known.")
        lag, stall = "How late the event loop was at its last heartbeat.", "The latest that the event loop ever was."
        self.loop_lag_seconds = gauge("gangsched_loop_lag_seconds", lag)
        self.loop_stall_max_seconds = gauge("gangsched_loop_stall_max_seconds", stall)
        build_info = gauge("gangsched_build_info", "Always 1.", ["version", "python"])
        build_info.labels(__version__, platform.python_version()).set(1)
        self.reservations = ReservationMetrics(registry)
        self._published = _Published(registry)
        ProcessCollector(registry=registry)
        GCCollector(registry=registry)

    def leadership(self, lease: str, leads: Callable[[], bool]) -> None:
        """Show whether this instance leads, under the name that client-go gives that."""
        meaning = "Whether this instance holds the lease `name` and plans."
        gauge = Gauge("leader_election_master_status", meaning, ["name"], registry=self.registry)
        gauge.labels(lease).set_function(lambda: float(leads()))

    def publish(self, family: str, part: str, counts: DataclassInstance) -> None:
        """Show each field of a dataclass of ever-growing integers as gangsched_<family>_<field>_total{part=…}.

        The dataclass is read at scrape time. Several parts share a family: `publish("reflector", "pods", counts)`.
        """
        self._published.add(family, part, counts)


class Children(Generic[C]):
    """A metric's children by label value, all made at the start so that each series begins at 0."""

    def __init__(self, metric: C, values: Iterable[str]) -> None:
        """`metric` has one label; `values` are all its values."""
        self._children: dict[str, C] = {str(value): metric.labels(str(value)) for value in values}

    def __getitem__(self, value: str) -> C:
        """The kept child; KeyError for an unknown value."""
        return self._children[value]


class _Published(Collector):
    """Reads counters from their owners."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._families: dict[str, dict[str, DataclassInstance]] = {}
        registry.register(self)

    def add(self, family: str, part: str, counts: DataclassInstance) -> None:
        self._families.setdefault(family, {})[part] = counts

    def collect(self) -> Iterator[CounterMetricFamily]:
        for family, parts in self._families.items():
            for name in dict.fromkeys(field.name for counts in parts.values() for field in fields(counts)):
                metric = CounterMetricFamily(
                    f"gangsched_{family}_{name}", f"{family}: {name.replace('_', ' ')} since start.", labels=["part"]
                )
                for part, counts in parts.items():
                    metric.add_metric([part], getattr(counts, name, 0))
                yield metric
