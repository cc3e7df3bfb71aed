"""The figures of a replay: waits by size, GPU use over time, broken promises. Pure arithmetic.

A wait is the time from the creation of a job's last pod to its minimum being bound, as seen by a
watch, in seconds of the replay (times the speedup: of the trace). GPU use is weighted by time, from
the first arrival to the last finish.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, Final

from bench.replay import Replay
from gangsched.simulate.figures import percentile

SIZE_CLASSES: Final = ((1, 1), (2, 4), (5, 8), (9, 16), (17, 32), (33, 10**6))
BARS: Final = " ▁▂▃▄▅▆▇█"


def size_class(gpus: int) -> str:
    """The class of a job by its GPUs, such as "2-4"."""
    for low, high in SIZE_CLASSES:
        if low <= gpus <= high:
            return (
                str(low)
                if low == high
                else f"{low}-{high}"
                if high < SIZE_CLASSES[-1][1]
                else f"{low}+"
            )
    raise ValueError(f"A job of {gpus} GPUs has no class.")


def waits(replay: Replay) -> dict[str, list[float]]:
    """Waits in seconds of the jobs that started, by size class in the order of size."""
    found: dict[str, list[float]] = {}
    for name, played in sorted(replay.played.items(), key=lambda item: item[1].job.gpus):
        started_s = replay.started_s(name)
        if started_s is not None and played.created_s is not None:
            found.setdefault(size_class(played.job.gpus), []).append(
                max(0.0, started_s - played.created_s)
            )
    return found


def mean_use(changes: Iterable[tuple[float, int]], *, begin_s: float, end_s: float) -> float:
    """The time-weighted mean of a step function that is 0 before its first change."""
    area, level, since_s = 0.0, 0, begin_s
    for at_s, value in changes:
        at_s = min(max(at_s, begin_s), end_s)  # noqa: PLW2901
        area, level, since_s = area + level * (at_s - since_s), value, at_s
    return (area + level * (end_s - since_s)) / (end_s - begin_s) if end_s > begin_s else 0.0


def use_over_time(
    changes: Sequence[tuple[float, int]], *, begin_s: float, end_s: float, parts: int
) -> list[float]:
    """`mean_use` of each of `parts` equal parts of the time."""
    width_s = (end_s - begin_s) / parts
    edges = [begin_s + width_s * part for part in range(parts + 1)]
    return [mean_use(changes, begin_s=low, end_s=high) for low, high in pairwise(edges)]


def summary(
    replay: Replay,
    *,
    gpus: int,
    in_use: Sequence[tuple[float, int]],
    violations: Sequence[str],
    longest_partly_s: float,
) -> dict[str, Any]:
    """Everything in one JSON object; `gpus` is how many the cluster has."""
    all_played = list(replay.played.values())
    fitting = [played for played in all_played if played.fits]
    end_s = max(
        (played.finished_s for played in fitting if played.finished_s is not None),
        default=replay.ended_s,
    )
    span = {"begin_s": replay.begun_s, "end_s": end_s}
    return {
        "jobs": len(all_played),
        "can_fit": len(fitting),
        "cannot_fit": len(all_played) - len(fitting),
        "started": sum(1 for name in replay.played if replay.started_s(name) is not None),
        "finished": sum(1 for played in fitting if played.finished_s is not None),
        "pods": sum(len(played.job.pods) for played in all_played),
        "seconds": round(end_s - replay.begun_s, 1),
        "gpus": gpus,
        "gpu_use": round(mean_use(in_use, **span) / gpus, 4),
        "gpu_use_over_time": [
            round(use / gpus, 3) for use in use_over_time(in_use, **span, parts=60)
        ],
        "wait_s": {
            name: {
                "jobs": len(values),
                "mean": round(sum(values) / len(values), 3),
                "p95": round(percentile(values, 0.95), 3),
                "max": round(max(values), 3),
            }
            for name, values in waits(replay).items()
        },
        "longest_partly_bound_s": round(longest_partly_s, 3),
        "violations": list(violations),
        "faults": replay.faults,
    }


def lines(figures: dict[str, Any]) -> list[str]:
    """The same for people."""
    bars = "".join(BARS[min(8, round(use * 8))] for use in figures["gpu_use_over_time"])
    return [
        (
            f"{figures['finished']} of {figures['can_fit']} jobs that can fit finished in"
            f" {figures['seconds']} s ({figures['pods']} pods, {figures['cannot_fit']} jobs cannot"
            " fit)"
        ),
        "  GPUs of a job     jobs   wait mean      p95      max  (s)",
        *(
            f"  {name:<15} {wait['jobs']:6} {wait['mean']:11.2f} {wait['p95']:8.2f}"
            f" {wait['max']:8.2f}"
            for name, wait in figures["wait_s"].items()
        ),
        f"GPU use {figures['gpu_use']:.1%} of {figures['gpus']}, time-weighted: |{bars}|",
        (
            "longest time a gang was seen partly bound:"
            f" {figures['longest_partly_bound_s'] * 1e3:.0f} ms"
        ),
        f"over-commits and gangs partly bound too long: {len(figures['violations'])}",
        *(f"  broken: {text}" for text in figures["violations"][:10]),
        *(f"  fault: {text}" for text in figures["faults"][:10]),
    ]
