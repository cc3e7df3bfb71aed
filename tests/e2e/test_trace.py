"""The trace benchmark: it plays what it was given, its figures add up, and it ends with 1 when a
promise was broken.
"""

import json
import random
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from bench import figures
from bench.jobs import Row, TraceError, can_fit, choose, read_trace, split, to_jobs, too_big
from bench.trace import SMALL_TRACE

ROOT = Path(__file__).resolve().parents[2]
SMALL = ["--nodes", "4", "--speedup", "1200", "--max-run-s", "2", "--seed", "7"]


def trace(*arguments: str) -> subprocess.CompletedProcess[str]:
    """`python -m bench.trace` on the small trace and a small cluster."""
    argv = [sys.executable, "-m", "bench.trace", *SMALL, *arguments]
    return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=180, check=False)


@pytest.mark.e2e
def test_the_small_trace_finishes_with_both_promises_kept(tmp_path: Path) -> None:
    """Every job that can fit finishes, the impossible ones block nobody and get nothing, and no
    promise is broken.
    """
    done = trace("--out", str(tmp_path / "figures.json"))
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    found: dict[str, Any] = json.loads((tmp_path / "figures.json").read_text())
    assert (found["jobs"], found["can_fit"], found["cannot_fit"]) == (62, 60, 2)
    assert found["started"] == found["finished"] == 60
    assert (found["violations"], found["faults"]) == ([], [])
    assert found["longest_partly_bound_s"] < 2.0
    assert sum(wait["jobs"] for wait in found["wait_s"].values()) == 60
    assert 0.2 < found["gpu_use"] <= 1.0
    assert "60 of 60 jobs that can fit finished" in done.stdout


@pytest.mark.e2e
def test_jobs_that_do_not_finish_in_time_end_it_with_1() -> None:
    """When the limit is over it stops, names jobs that did not finish, and the exit code is 1."""
    done = trace("--jobs", "20", "--too-big", "0", "--limit-s", "1")
    assert done.returncode == 1
    assert "did not finish, the limit of 1 s is over: job-" in done.stdout
    assert "Traceback" not in done.stderr


def test_a_trace_that_cannot_be_used_is_refused_in_one_sentence(tmp_path: Path) -> None:
    """A missing file, a missing column and a bad line are each named, without a traceback."""
    with pytest.raises(TraceError, match="cannot be read: No such file"):
        read_trace(tmp_path / "none.csv")
    path = tmp_path / "trace.csv"
    for text, said in [
        ("timestamp,duration\n2025-01-01 00:00:00,5\n", "no column 'num_gpus'"),
        (
            "timestamp,duration,num_gpus\n2025-01-01 00:00:00,5,1\nyesterday,5,1\n",
            "Line 3 of the trace",
        ),
        ("timestamp,duration,num_gpus\n", "has no jobs"),
    ]:
        path.write_text(text)
        with pytest.raises(TraceError, match=said):
            read_trace(path)
    assert trace(str(path)).stderr == f"trace: The trace {path} has no jobs.\n"


def test_a_job_is_split_without_losing_a_gpu() -> None:
    """Pods hold whole GPUs, together those of the job; big jobs have one pod a node, small ones two
    or more pods.
    """
    rng = random.Random(5)
    for gpus in range(1, 130):
        pods = split(gpus, per_node=8, rng=rng)
        assert sum(pods) == gpus
        assert max(pods) <= 8
        if gpus > 8:
            assert len(pods) == -(-gpus // 8)
        elif gpus > 1:
            assert len(pods) >= 2
            assert len(set(pods)) == 1


def test_time_is_squeezed_within_bounds_and_to_the_load() -> None:
    """Running times keep their bounds, arrivals their order, and the work arrives at the load that
    was asked for.
    """
    rows = read_trace(SMALL_TRACE)
    jobs = to_jobs(
        rows, nodes=4, per_node=8, speedup=600, max_run_s=4, load=1.5, rng=random.Random(5)
    )
    assert all(1.0 <= job.run_s <= 4.0 for job in jobs)
    assert [job.arrival_s for job in jobs] == sorted(job.arrival_s for job in jobs)
    assert jobs[0].arrival_s == 0.0
    assert sum(job.gpus * job.run_s for job in jobs) / (32 * jobs[-1].arrival_s) == pytest.approx(
        1.5
    )


def test_the_same_seed_draws_the_same_jobs() -> None:
    """What is played depends on the seed alone: jobs in the trace's order, big enough, that lasted,
    none twice.
    """
    day = datetime(2025, 1, 1)
    rows = [Row(day.replace(hour=hour), float(hour % 5), 1 + hour % 3) for hour in range(24)]
    chosen = choose(rows, jobs=6, min_gpus=2, rng=random.Random(3))
    assert chosen == choose(rows, jobs=6, min_gpus=2, rng=random.Random(3))
    assert chosen != choose(rows, jobs=6, min_gpus=2, rng=random.Random(4))
    assert chosen == [row for row in rows if row in chosen]
    assert len(chosen) == 6
    assert all(row.gpus >= 2 and row.duration_s > 0 for row in chosen)
    assert len(choose(rows, jobs=99, min_gpus=1, rng=random.Random(3))) == sum(
        1 for row in rows if row.duration_s
    )


def test_impossible_jobs_are_known_as_such() -> None:
    """A job of one pod more than there are nodes cannot fit; one of as many can, and so can any
    that fits on one.
    """
    (impossible,) = too_big(1, nodes=3, per_node=8)
    rng = random.Random(1)
    rows = [Row(datetime(2025, 1, 1), 60.0, gpus) for gpus in (24, 8)]
    as_big, small = to_jobs(rows, nodes=3, per_node=8, speedup=1, max_run_s=60, load=1, rng=rng)
    assert [can_fit(job, nodes=3, per_node=8) for job in (impossible, as_big, small)] == [
        False,
        True,
        True,
    ]


def test_gpu_use_is_weighted_by_time() -> None:
    """Eight GPUs for one of four seconds are a mean of two; parts of the time see only what was in
    them.
    """
    changes = [(11.0, 8), (12.0, 0)]
    assert figures.mean_use(changes, begin_s=10.0, end_s=14.0) == 2.0
    assert figures.use_over_time(changes, begin_s=10.0, end_s=14.0, parts=4) == [0.0, 8.0, 0.0, 0.0]
    assert figures.use_over_time([(9.0, 4)], begin_s=10.0, end_s=12.0, parts=2) == [4.0, 4.0]


@pytest.mark.parametrize(
    ("gpus", "name"), [(1, "1"), (2, "2-4"), (8, "5-8"), (12, "9-16"), (32, "17-32"), (33, "33+")]
)
def test_every_size_has_its_class(gpus: int, name: str) -> None:
    """Size classes have no gaps."""
    assert figures.size_class(gpus) == name
