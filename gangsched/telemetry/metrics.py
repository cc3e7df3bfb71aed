"""Metrics: every number for Prometheus, in a separate registry.

Invariant: label values come from enums or a fixed list, so the number of series is bounded. The
child objects of a metric are created once and kept, since `.labels()` costs four times as much as
`.inc()`. Code that runs often counts in plain integers, which are read at scrape time (`publish`).
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import fields
from functools import partial
from typing import TYPE_CHECKING, Generic, TypeVar

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    ProcessCollector,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from gangsched import __version__
from gangsched.model.fault import FaultPlace
from gangsched.model.plan import RoundOutcome
from gangsched.model.preemption import UnitKind
from gangsched.model.reasons import Reason
from gangsched.state.preemption.journal import NominationCounts
from gangsched.state.preemption.nomination import Result
from gangsched.state.reporting.gang_numbers import (
    REASONS,
    GangCounts,
    GangStart,
    Healed,
    Loss,
    Pending,
)
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
        counter = partial(Counter, registry=registry)
        gauge = partial(Gauge, registry=registry)
        histogram = partial(Histogram, registry=registry)
        self.cycles = counter("gangsched_cycles", "Scheduling cycles that planned.")
        self.cycle_seconds = histogram(
            "gangsched_cycle_seconds",
            "Time of one cycle's plan.",
            buckets=CYCLE_BUCKETS_S,
        )
        self.plan_pods = counter("gangsched_plan_pods", "Pods that plans have tried to place.")
        self.verdicts = Children(
            counter("gangsched_verdicts", "Verdicts on groups, by reason.", ["reason"]),
            Reason,
        )
        rounds = counter(
            "gangsched_rounds",
            "Rounds of groups (attempts to place them), by outcome.",
            ["outcome"],
        )
        self.rounds = Children(rounds, RoundOutcome)
        answered = "Binds answered, by result; gone: the pod was deleted or is bound elsewhere."
        self.binds = Children(counter("gangsched_binds", answered, ["result"]), BIND_RESULTS)
        bind_seconds = "Time from the request of a bind to its answer."
        self.bind_seconds = histogram(
            "gangsched_bind_seconds",
            bind_seconds,
            buckets=BIND_BUCKETS_S,
        )
        parts = gauge("gangsched_queue_groups", "Groups in each part of the queue.", ["part"])
        self.queue_groups = Children(parts, QUEUE_PARTS)
        self.gangs = GangMetrics(registry)
        self.preemption = PreemptionMetrics(registry)
        self.reservations = ReservationMetrics(registry)
        raised = (
            "Exceptions that set a group aside, or paused planning, by the part of the work in"
            " which they were raised."
        )
        self.internal_errors = Children(
            counter("gangsched_internal_errors", raised, ["place"]),
            FaultPlace,
        )
        paused = "1 while planning pauses because of an internal error that is no group's, else 0."
        self.planning_paused = gauge("gangsched_planning_paused", paused)
        self.known_nodes = gauge("gangsched_nodes", "Known nodes.")
        self.known_pods = gauge(
            "gangsched_pods",
            "Known pods of all schedulers that have not ended.",
        )
        self.known_gangs = gauge("gangsched_gangs", "Known gangs.")
        followed = "1 if PodGroups are watched, 0 while an API group of them cannot be read."
        self.pod_groups_followed = gauge("gangsched_podgroups_followed", followed)
        self.paused = gauge("gangsched_paused", "1 while an administrator has paused scheduling.")
        self._watches = _Watches(registry)
        lag = "Lateness of the event loop at its last heartbeat, every 100 ms."
        self.loop_lag_seconds = gauge("gangsched_loop_lag_seconds", lag)
        self.loop_stall_max_seconds = gauge(
            "gangsched_loop_stall_max_seconds",
            "Maximum lateness of the event loop.",
        )
        build_info = gauge("gangsched_build_info", "Always 1.", ["version", "python"])
        build_info.labels(__version__, platform.python_version()).set(1)
        self._published = _Published(registry)

        # Not the global registry, which a second daemon in one process (a test) could not share.
        ProcessCollector(registry=registry)
        GCCollector(registry=registry)

    def leadership(self, lease: str, leads: Callable[[], bool]) -> None:
        """Export whether this instance leads, under client-go's metric name."""
        meaning = (
            "1 if this instance holds the Lease `name` and plans, else 0; only with leader"
            " election."
        )
        gauge = Gauge("leader_election_master_status", meaning, ["name"], registry=self.registry)
        gauge.labels(lease).set_function(lambda: float(leads()))

    def watch(
        self,
        part: str,
        heard_s: Callable[[], float | None],
        *,
        now: Callable[[], float],
    ) -> None:
        """Export the seconds since the API server last sent anything about a resource.

        `heard_s` returns a time of the clock `now`, or None if the resource is not watched; then
        there is no series.
        """
        self._watches.heard[part] = (heard_s, now)

    def publish(self, family: str, part: str, counts: DataclassInstance) -> None:
        """Export each field of a dataclass of monotonic counters as
        gangsched_<family>_<field>_total{part=…}.

        The dataclass is read at scrape time. Several values of `part` can share a family:
        `publish("reflector", "pods", counts)`. Raises KeyError for a field without a meaning
        (`model.counter`).
        """
        self._published.add(
            family,
            part,
            counts,
            {field.name: field.metadata["meaning"] for field in fields(counts)},
        )


class Children(Generic[C]):
    """A metric's child objects by label value, all created at the start so that each series begins
    at 0.
    """

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

    def add(
        self,
        family: str,
        part: str,
        counts: DataclassInstance,
        meanings: Mapping[str, str],
    ) -> None:
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


ATTEMPT_RESULTS = ("nominated", "not_helpful", "not_allowed", "pdb")
NOMINATION_BUCKETS_S = (0.1, 1.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)


class PreemptionMetrics:
    """Metrics of preemption (semantics V23). The daemon sets `nominations`; all other metrics are
    updated by `add`.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        counter = partial(Counter, registry=registry)
        looked = "Groups for which preemption was evaluated, by result."
        attempts = counter("gangsched_preemption_attempts", looked, ["result"])
        taken_as = (
            "Evicted pods: surplus (members above a minimum), child (of a tree that keeps its"
            " minimum of children), core (members evicted with their group), plain pods."
        )
        victims = counter("gangsched_preemption_victim_pods", taken_as, ["unit"])
        seconds = Histogram(
            "gangsched_preemption_nomination_seconds",
            "Time from the decision to preempt to its end, by result.",
            ["result"],
            buckets=NOMINATION_BUCKETS_S,
            registry=registry,
        )
        self._attempts = {result: attempts.labels(result) for result in ATTEMPT_RESULTS}
        self._victims = {kind: victims.labels(kind.value) for kind in UnitKind}
        self._seconds = {result: seconds.labels(result.value) for result in Result}
        self._stopped = counter(
            "gangsched_preemption_gangs_stopped",
            "Gangs evicted below their minimum.",
        )
        lost = (
            "Accelerator-seconds of work lost by evictions, estimated when the victims were chosen."
        )
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


GANG_SIZES = ((1, "1"), (8, "2-8"), (64, "9-64"), (512, "65-512"))
LARGEST_GANG = "513+"
MOST_NAMESPACES = 50
OTHERS = "(others)"
"""Series of waiting pods by namespace, and what the rest is called: no namespace can have this
name.
"""
WAIT_BUCKETS_S = (
    0.05,
    0.1,
    0.25,
    0.5,
    1,
    2.5,
    5,
    10,
    30,
    60,
    300,
    900,
    3_600,
    14_400,
    86_400,
    259_200,
    604_800,
)
ROUND_BUCKETS = (1, 2, 3, 5, 10, 30, 100, 300, 1_000)


def _by_namespace(pods: Mapping[str, int]) -> Metric:
    """Waiting pods of the namespaces that have most of them; the others are one, or tenants could
    make any number of series.
    """
    family = GaugeMetricFamily(
        "gangsched_namespace_pending_pods",
        f"Waiting managed pods of the {MOST_NAMESPACES} namespaces with most of them; others are"
        f" `{OTHERS}`.",
        labels=["namespace"],
    )
    # By name among equals, so that the same ones are shown at each scrape.
    ranked = sorted(pods.items(), key=lambda item: (-item[1], item[0]))
    for namespace, number in ranked[:MOST_NAMESPACES]:
        family.add_metric([namespace], number)

    family.add_metric([OTHERS], sum(number for _, number in ranked[MOST_NAMESPACES:]))
    return family


class GangMetrics(Collector):
    """Metrics of gangs: numbers and reasons of waiting gangs, waits, and incidents.

    `count` and `counts` return the current numbers at scrape time; the daemon sets both functions.
    Waiting gangs are counted once per scrape, and only by the leader, so that sums over replicas
    are correct.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        # An empty Pending until the daemon sets it: a scrape may come before the first plan.
        self.count: Callable[[], Pending] = Pending
        self.counts = GangCounts()
        self.avoided: Callable[[], Collection[str]] = tuple
        waits = Histogram(
            "gangsched_gang_wait_seconds",
            "Time from a gang's quorum to the last answered bind of its minimum, by minimum.",
            ["members"],
            buckets=WAIT_BUCKETS_S,
            registry=registry,
        )
        self._waits = {
            size: waits.labels(size) for size in (*(size for _, size in GANG_SIZES), LARGEST_GANG)
        }
        heals = Histogram(
            "gangsched_heal_seconds",
            "Time from the creation of a lost member's replacement to its bind, by where it is.",
            ["where"],
            buckets=WAIT_BUCKETS_S,
            registry=registry,
        )
        self._heals = {where: heals.labels(where) for where in ("home", "wider")}
        self._rounds = Histogram(
            "gangsched_gang_rounds",
            "Rounds that gangs needed to start.",
            buckets=ROUND_BUCKETS,
            registry=registry,
        )
        registry.register(self)

    def started(self, start: GangStart) -> None:
        """Record the start of a gang."""
        size = next((size for most, size in GANG_SIZES if start.min_member <= most), LARGEST_GANG)
        self._waits[size].observe(start.wait_s)
        self._rounds.observe(start.rounds)

    def healed(self, heal: Healed, wall_s: float) -> None:
        """Record that a lost member is replaced, at `wall_s`."""
        where = "wider" if heal.is_outside else "home"
        took_s = max(0.0, wall_s - heal.created_s)
        self._heals[where].observe(took_s)

    def collect(self) -> Iterator[Metric]:
        """Yield current waits and counts."""
        pending = self.count()
        counts = self.counts
        gangs = GaugeMetricFamily(
            "gangsched_pending_gangs",
            "Waiting gangs, by reason.",
            labels=["reason"],
        )
        pods = GaugeMetricFamily(
            "gangsched_pending_pods",
            "Waiting managed pods, of gangs and plain ones, by reason.",
            labels=["reason"],
        )

        # All reasons, also those with 0: a series that disappears looks like missing data.
        for reason in REASONS:
            gangs.add_metric([reason], pending.gangs[reason])
            pods.add_metric([reason], pending.pods[reason])

        yield gangs
        yield pods
        yield _by_namespace(pending.namespaces)
        never = "Waiting gangs that would not fit even if the nodes were empty."
        yield GaugeMetricFamily("gangsched_impossible_gangs", never, pending.never)
        broken = "Gangs that started, are below their minimum and have waiting members."
        yield GaugeMetricFamily("gangsched_broken_gangs", broken, pending.broken)
        yield _losses(counts.losses)
        avoided = "Nodes that a gang avoids because its members died there."
        yield GaugeMetricFamily("gangsched_avoided_nodes", avoided, len(self.avoided()))
        holds = "Pods that hold room and wait for their gang."
        yield GaugeMetricFamily("gangsched_holds", holds, pending.held)
        yielded = "Groups that released their holds so that a higher-ranked group could start."
        yield CounterMetricFamily("gangsched_yields", yielded, counts.yielded)
        timed_out = "Groups whose wait time expired while they held room."
        yield CounterMetricFamily("gangsched_timeouts", timed_out, counts.timed_out)
        rejected = "Bound members that a kubelet rejected."
        yield CounterMetricFamily("gangsched_kubelet_rejections", rejected, counts.kubelet_rejected)
        set_aside = (
            "Objects that could not be applied and were set aside; the log and an Event name them."
        )
        yield CounterMetricFamily("gangsched_objects_set_aside", set_aside, counts.set_aside)


def _losses(losses: Mapping[Loss, int]) -> Metric:
    """Lost members by cause, also those with 0."""
    family = CounterMetricFamily(
        "gangsched_losses",
        "Bound members of gangs that were lost, by cause. Deleted: by anybody, also with the whole"
        " gang at its ordinary end.",
        labels=["cause"],
    )
    for cause in Loss:
        family.add_metric([cause.value], losses.get(cause, 0))

    return family
