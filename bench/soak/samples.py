"""What is sampled of the daemon, and the straight line through it."""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from control_plane.daemon import Daemon

from bench.gangs.contenders import cpu_s

MB = 1e6
EVENT_PARTS = ("skipped", "written", "dropped")
MINUTE_S, HOUR_S = 60.0, 3_600.0


@dataclass(frozen=True, slots=True)
class Sample:
    """One look; `at_s` is after the start of the churn, `stall_s` the longest stall of the event
    loop so far.

    `events` are ordered and not yet written: when they pile up, the API server is too slow for the
    rate.
    """

    at_s: float
    rss_mb: float
    descriptors: int
    lag_s: float
    stall_s: float
    cpu_s: float
    pods: int
    gangs: int
    bound: int
    preempted: int
    events: int


def take_sample(daemon: Daemon, began_s: float) -> Sample:
    """Look at the daemon's process and metrics."""
    metrics, process = daemon.metrics(), Path("/proc") / str(daemon.pid)
    return Sample(
        at_s=round(time.monotonic() - began_s, 1),
        rss_mb=int((process / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / MB,
        descriptors=sum(1 for _ in (process / "fd").iterdir()),
        lag_s=metrics["gangsched_loop_lag_seconds"],
        stall_s=metrics["gangsched_loop_stall_max_seconds"],
        cpu_s=cpu_s(daemon.pid),
        pods=round(metrics["gangsched_pods"]),
        gangs=round(metrics["gangsched_gangs"]),
        bound=round(metrics.get('gangsched_binds_total{result="bound"}', 0)),
        preempted=round(
            sum(
                v
                for k, v in metrics.items()
                if k.startswith("gangsched_preemption_victim_pods_total")
            )
        ),
        events=round(
            _events(metrics, "ordered") - sum(_events(metrics, part) for part in EVENT_PARTS)
        ),
    )


def _events(metrics: dict[str, float], what: str) -> float:
    return metrics[f'gangsched_recorder_{what}_total{{part="events"}}']


def slope(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """The slope of the least-squares line through (x, y), and its standard error: infinite for two
    points.
    """
    xs, ys = [x for x, _ in points], [y for _, y in points]
    line = statistics.linear_regression(xs, ys)
    if len(points) < 3:
        return line.slope, math.inf
    left = sum((y - line.intercept - line.slope * x) ** 2 for x, y in points)
    spread = statistics.pvariance(xs) * len(xs)
    return line.slope, math.sqrt(left / (len(xs) - 2) / spread)


def rss_slope(samples: Sequence[Sample]) -> tuple[float, float]:
    """MB an hour and its standard error, of the means of each minute: neighbouring samples say
    nearly the same.
    """
    minutes: dict[int, list[float]] = {}
    for sample in samples:
        minutes.setdefault(int(sample.at_s // MINUTE_S), []).append(sample.rss_mb)
    return slope(
        [
            (minute * MINUTE_S / HOUR_S, statistics.fmean(found))
            for minute, found in sorted(minutes.items())
        ]
    )


def descriptors_growth(samples: Sequence[Sample]) -> float:
    """The median of the last third minus that of the first; below 0 where connections of the start
    were closed.
    """
    third = max(1, len(samples) // 3)
    first, last = samples[:third], samples[-third:]
    return statistics.median(each.descriptors for each in last) - statistics.median(
        each.descriptors for each in first
    )
