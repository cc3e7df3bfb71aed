"""Waits and shares: plain arithmetic on what became of jobs."""

from __future__ import annotations

import pytest

from gangsched.simulate import figures
from gangsched.simulate.simulator import Run
from gangsched.simulate.traces import make_shape
from gangsched.simulate.workload import GPU, Job


def run(
    gpus: int, submit_s: float, started_s: float | None, run_s: float = 10.0, priority: int = 0
) -> Run:
    """What became of a job."""
    pods = (make_shape(((GPU, gpus),) if gpus else ()),)
    name = f"{gpus}-{submit_s}"
    spans = [] if started_s is None else [(started_s, started_s + run_s)]
    return Run(
        Job(name=name, submit_s=submit_s, run_s=run_s, pods=pods, priority=priority),
        started_s,
        spans=spans,
    )


def test_waits_by_size() -> None:
    """Each class that occurs, after all jobs; who never started has no wait and is counted."""
    runs = [run(1, 0, 4), run(4, 0, 8), run(8, 0, 100), run(8, 1, None), run(0, 0, 0)]
    found = {each.name: each for each in figures.by_size(runs)}
    assert list(found) == ["all", "no GPU", "1-4 GPUs", "5-8 GPUs"]
    assert (found["all"].jobs, found["all"].started, found["all"].mean_s, found["all"].max_s) == (
        5,
        4,
        28,
        100,
    )
    assert (found["5-8 GPUs"].jobs, found["5-8 GPUs"].started, found["5-8 GPUs"].mean_s) == (
        2,
        1,
        100,
    )


def test_waits_by_priority() -> None:
    """The highest first."""
    runs = [run(1, 0, 4), run(1, 1, 8, priority=5)]
    assert [(each.name, each.mean_s) for each in figures.by_priority(runs)] == [
        ("priority 5", 7),
        ("priority 0", 4),
    ]


def test_percentiles_are_values_that_occur() -> None:
    """Nearest rank, in any order, and 0 of nothing; the p99 of 50 values is the largest."""
    assert figures.percentile(range(50, 0, -1), 0.99) == 50
    assert figures.percentile(range(1, 51), 0.5) == 25
    assert [figures.percentile([4, 1, 3, 2], part) for part in (0.0, 0.5, 0.75, 0.95, 1.0)] == [
        1,
        2,
        3,
        4,
        4,
    ]
    assert figures.percentile([], 0.5) == 0


def test_the_allocated_share_counts_while_jobs_arrive() -> None:
    """8 of 16 GPUs for half of the time, then all of them; what runs on after the last submission
    does not count.
    """
    runs = [run(8, 0, 0, run_s=100), run(8, 10, 10, run_s=100), run(1, 20, None)]
    assert figures.allocated_share(runs, 16) == pytest.approx(0.75)
    assert figures.allocated_share(runs[:1], 16) == 0
