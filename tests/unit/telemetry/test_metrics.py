"""Metrics: every series from the start, under the promised names."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import partial

import pytest
from prometheus_client import generate_latest

from gangsched.model.counter import counter
from gangsched.model.plan import RoundOutcome
from gangsched.model.protocol import Applied
from gangsched.model.reasons import Reason
from gangsched.state.reporting.gang_numbers import (
    REASONS,
    GangCounts,
    GangStart,
    Healed,
    Loss,
    Pending,
)
from gangsched.telemetry.metrics import GANG_SIZES, LARGEST_GANG, MOST_NAMESPACES, Metrics
from tests.builders import members, node, pod, pod_group, shape
from tests.unit.telemetry.seen import samples
from tests.unit.test_loop import Bench


def test_series_exist_before_anything_happened() -> None:
    """A dashboard sees zeros, not gaps, for everything that has not happened yet."""
    shown = samples(Metrics())
    assert shown["gangsched_cycles_total"] == 0
    assert all(shown[f"gangsched_verdicts_total{{reason={reason}}}"] == 0 for reason in Reason)
    assert all(
        shown[f"gangsched_rounds_total{{outcome={outcome}}}"] == 0 for outcome in RoundOutcome
    )
    assert all(
        shown[f"gangsched_binds_total{{result={result}}}"] == 0
        for result in ("bound", "gone", "failed")
    )
    assert all(
        shown[f"gangsched_queue_groups{{part={part}}}"] == 0
        for part in ("active", "backoff", "parked")
    )


def test_counting_is_shown_under_the_promised_names() -> None:
    """What is counted appears with our prefix, its unit and its label."""
    metrics = Metrics()
    metrics.cycles.inc()
    metrics.cycle_seconds.observe(0.004)
    metrics.verdicts[Reason.UNSCHEDULABLE].inc()
    metrics.binds["bound"].inc(5)
    metrics.queue_groups["parked"].set(2)
    shown = samples(metrics)
    assert shown["gangsched_cycles_total"] == 1
    assert shown["gangsched_cycle_seconds_bucket{le=0.005}"] == 1
    assert shown["gangsched_cycle_seconds_bucket{le=0.002}"] == 0
    assert shown["gangsched_verdicts_total{reason=Unschedulable}"] == 1
    assert shown["gangsched_binds_total{result=bound}"] == 5
    assert shown["gangsched_queue_groups{part=parked}"] == 2


def test_every_metric_of_ours_has_the_prefix() -> None:
    """Nothing of ours collides with another program's metrics; the rest is Python's own."""
    names = {name.split("{")[0] for name in samples(Metrics())}
    assert {
        name for name in names if not name.startswith(("gangsched_", "process_", "python_"))
    } == set()


def test_two_daemons_in_one_process_do_not_share_numbers() -> None:
    """The registry is private, so that a simulator may run several daemons."""
    first, second = Metrics(), Metrics()
    first.cycles.inc()
    assert samples(second)["gangsched_cycles_total"] == 0


@dataclass
class Counts:
    """Plain counters as their owners keep them."""

    lists: int = counter("lists")
    faults: int = counter("faults")


@dataclass
class Unexplained:
    """A counter without a HELP text."""

    unexplained: int = 0


def test_published_counters_are_read_when_scraped() -> None:
    """A dataclass of integers becomes metrics by part, and later increments are seen."""
    metrics, pods, nodes = Metrics(), Counts(), Counts(lists=2)
    metrics.publish("reflector", "pods", pods)
    metrics.publish("reflector", "nodes", nodes)
    pods.faults += 3
    shown = samples(metrics)
    assert shown["gangsched_reflector_faults_total{part=pods}"] == 3
    assert shown["gangsched_reflector_lists_total{part=nodes}"] == 2
    assert shown["gangsched_reflector_lists_total{part=pods}"] == 0


def test_how_long_a_watch_was_silent_is_read_when_asked() -> None:
    """Seconds since its resource was last heard of; no series while nobody waits to hear of it."""
    metrics = Metrics()
    heard: dict[str, float | None] = {"pods": 30.0, "poddisruptionbudgets": None}
    for part in heard:
        metrics.watch(part, partial(heard.get, part), now=lambda: 100.0)
    shown = {name: value for name, value in samples(metrics).items() if "staleness" in name}
    assert shown == {"gangsched_watch_staleness_seconds{part=pods}": 70.0}
    heard["pods"] = 99.5
    assert samples(metrics)["gangsched_watch_staleness_seconds{part=pods}"] == 0.5


def test_a_counter_without_a_meaning_is_a_bug() -> None:
    """What is published is explained in HELP and in the manual, or it is not shown."""
    with pytest.raises(KeyError, match="meaning"):
        Metrics().publish("binder", "binds", Unexplained())


def test_no_name_is_in_a_metric() -> None:
    """Names of pods, gangs, namespaces, nodes, classes, resources and reasons of others are in no
    series.
    """
    bench = Bench()
    hostile = 'evil"}\nforged_total{a="b'
    chips = replace(shape(0), requests=((f"{hostile}/chips", 1), *shape(0).requests))
    created = [
        *members(f"{hostile}-a", 2, namespace=hostile),
        *members(f"{hostile}-b", 9, mode="NonStrict", policy=hostile, wait=hostile),
        *members(f"{hostile}-group", 1, pod_group=True, namespace=hostile),
        *members(f"{hostile}-c", 1, groups=[f"{hostile}/c"], mode=hostile),
        pod(hostile, scheduler_name=hostile),
        pod(f"{hostile}-chips", of=chips),
    ]
    bench.loop.inbox(Applied(node(f"node-{hostile}", 2, labels={hostile: hostile})))
    bench.loop.inbox(Applied(pod_group(f"{hostile}-group", 3, namespace=hostile)))
    for each in created:
        bench.loop.inbox(Applied(each))
    for _ in range(5):
        bench.loop.turn()
        bench.now += 1.0
    assert bench.binds
    shown = generate_latest(bench.metrics.registry).decode()
    assert "gangsched_verdicts_total" in shown
    assert "evil" not in shown
    assert "forged_total" not in shown


def test_series_exist_before_anything_waits() -> None:
    """Zeros, not gaps, for every reason and every size."""
    shown = samples(Metrics())
    for reason in REASONS:
        assert shown[f"gangsched_pending_gangs{{reason={reason}}}"] == 0
        assert shown[f"gangsched_pending_pods{{reason={reason}}}"] == 0
    for size in (*(size for _, size in GANG_SIZES), LARGEST_GANG):
        assert shown[f"gangsched_gang_wait_seconds_count{{members={size}}}"] == 0
    names = (
        "broken_gangs",
        "holds",
        "yields_total",
        "timeouts_total",
        "kubelet_rejections_total",
        "gang_rounds_count",
    )
    assert {name: shown[f"gangsched_{name}"] for name in names} == dict.fromkeys(names, 0.0)


def test_what_waits_is_asked_for_when_it_is_shown() -> None:
    """The numbers are those of the moment of the scrape, by reason."""
    metrics, now = Metrics(), Pending()
    metrics.gangs.count = lambda: now
    metrics.gangs.counts = GangCounts(yielded=1, timed_out=2, kubelet_rejected=3)
    metrics.gangs.counts.losses[Loss.NODE] = 4
    metrics.gangs.avoided = lambda: {"a", "b"}
    metrics.gangs.healed(Healed(is_outside=True, created_s=98), 100.0)
    now = Pending(Counter(Unschedulable=2), Counter(Unschedulable=9, New=1), broken=4, held=5)
    shown = samples(metrics)
    assert shown["gangsched_pending_gangs{reason=Unschedulable}"] == 2
    assert shown["gangsched_pending_pods{reason=Unschedulable}"] == 9
    assert shown["gangsched_pending_pods{reason=New}"] == 1
    assert [shown[f"gangsched_{name}"] for name in ("broken_gangs", "holds")] == [4, 5]
    counts = [
        shown[f"gangsched_{name}_total"] for name in ("yields", "timeouts", "kubelet_rejections")
    ]
    assert counts == [1, 2, 3]
    assert shown["gangsched_losses_total{cause=node}"] == 4
    assert shown["gangsched_losses_total{cause=failed}"] == 0
    assert shown["gangsched_avoided_nodes"] == 2
    assert shown["gangsched_heal_seconds_sum{where=wider}"] == 2


def test_the_namespaces_that_are_shown_are_bounded() -> None:
    """The largest have series of their own, and all others one."""
    metrics = Metrics()
    now = Pending(
        namespaces=Counter({f"ns{number:02}": number + 1 for number in range(60)}), never=3
    )
    metrics.gangs.count = lambda: now
    shown = {name: value for name, value in samples(metrics).items() if "namespace_pending" in name}
    assert len(shown) == MOST_NAMESPACES + 1
    assert shown["gangsched_namespace_pending_pods{namespace=ns59}"] == 60
    assert shown["gangsched_namespace_pending_pods{namespace=(others)}"] == sum(range(1, 11))
    assert samples(metrics)["gangsched_impossible_gangs"] == 3


@pytest.mark.parametrize(
    ("members", "size"),
    [(0, "1"), (1, "1"), (2, "2-8"), (8, "2-8"), (9, "9-64"), (512, "65-512"), (513, "513+")],
)
def test_a_start_is_counted_by_its_minimum(members: int, size: str) -> None:
    """The wait is in the histogram of its size and in no other; so are the rounds, of all sizes
    together.
    """
    metrics = Metrics()
    metrics.gangs.started(GangStart(members, 0.2, 3))
    shown = samples(metrics)
    counted = {
        name: value for name, value in shown.items() if "gang_wait_seconds_count" in name and value
    }
    assert counted == {f"gangsched_gang_wait_seconds_count{{members={size}}}": 1}
    assert shown[f"gangsched_gang_wait_seconds_bucket{{le=0.25}}{{members={size}}}"] == 1
    assert shown[f"gangsched_gang_wait_seconds_bucket{{le=0.1}}{{members={size}}}"] == 0
    assert (
        shown["gangsched_gang_rounds_bucket{le=2.0}"],
        shown["gangsched_gang_rounds_bucket{le=3.0}"],
    ) == (0, 1)
