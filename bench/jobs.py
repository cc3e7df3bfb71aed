"""Jobs of a trace, split into gangs of whole-GPU pods and compressed in time. Pure: the same seed
gives the same jobs.

A trace is CSV with a header; read are `timestamp` (YYYY-MM-DD HH:MM:SS), `duration` (seconds of
running, waiting excluded) and `num_gpus` (of the whole job, all needed at once). Traces do not say
how a job was split; here it is: more GPUs than a node has, one pod a node and the rest in a last
one; fewer, into two or more equal pods, how many at random; one GPU, one pod. Time is compressed
twice: running times by `speedup`, within bounds; arrivals so that the jobs chosen come at a given
load.
"""

from __future__ import annotations

import csv
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

RUN_MIN_S = 1.0


class TraceError(Exception):
    """The trace cannot be used; `str()` is one sentence that names the file and the line."""


@dataclass(frozen=True, slots=True)
class Row:
    """One job of the trace."""

    submitted: datetime
    duration_s: float
    gpus: int


@dataclass(frozen=True, slots=True)
class Job:
    """One job as played: arrives at `arrival_s` after the start, has a pod per entry of `pods`
    (GPUs), runs `run_s`.
    """

    name: str
    arrival_s: float
    run_s: float
    pods: tuple[int, ...]

    @property
    def gpus(self) -> int:
        """GPUs of all its pods."""
        return sum(self.pods)


def read_trace(path: Path) -> list[Row]:
    """The jobs of a file in the order of their submission. Raises TraceError, also for a file
    without jobs.
    """
    rows = []
    try:
        with path.open(newline="") as file:
            for line in csv.DictReader(file):
                submitted = datetime.fromisoformat(line["timestamp"])
                rows.append(Row(submitted, float(line["duration"]), int(line["num_gpus"])))
    except OSError as error:
        raise TraceError(f"The trace {path} cannot be read: {error.strerror}.") from error
    except KeyError as error:
        raise TraceError(f"The trace {path} has no column {error}.") from error
    except (ValueError, TypeError) as error:
        raise TraceError(
            f"Line {len(rows) + 2} of the trace {path} is not a job: {error}."
        ) from error
    if not rows:
        raise TraceError(f"The trace {path} has no jobs.")
    return sorted(rows, key=lambda row: row.submitted)


def choose(rows: Sequence[Row], *, jobs: int, min_gpus: int, rng: random.Random) -> list[Row]:
    """`jobs` jobs with a duration and at least `min_gpus`, drawn at random from the whole trace, in
    its order.
    """
    fitting = [row for row in rows if row.gpus >= min_gpus and row.duration_s > 0]
    return sorted(rng.sample(fitting, min(jobs, len(fitting))), key=lambda row: row.submitted)


def split(gpus: int, *, per_node: int, rng: random.Random) -> tuple[int, ...]:
    """GPUs of each pod of a job. Complexity: linear in `per_node`."""
    if gpus > per_node:
        whole, rest = divmod(gpus, per_node)
        return (per_node,) * whole + ((rest,) if rest else ())
    parts = rng.choice([count for count in range(2, gpus + 1) if gpus % count == 0] or [1])
    return (gpus // parts,) * parts


def to_jobs(
    rows: Sequence[Row],
    *,
    nodes: int,
    per_node: int,
    speedup: float,
    max_run_s: float,
    load: float,
    rng: random.Random,
) -> list[Job]:
    """The jobs to play on `nodes` nodes of `per_node` GPUs.

    Arrivals keep the trace's order and its relative gaps; they are scaled so that the GPU-seconds
    of the jobs that can fit would keep `load` times the cluster busy while they arrive.
    """
    sizes = [split(row.gpus, per_node=per_node, rng=rng) for row in rows]
    runs_s = [min(max(row.duration_s / speedup, RUN_MIN_S), max_run_s) for row in rows]
    jobs = [
        Job(f"job-{n:04}", 0.0, run_s, pods)
        for n, (run_s, pods) in enumerate(zip(runs_s, sizes, strict=True))
    ]
    work = sum(job.gpus * job.run_s for job in jobs if can_fit(job, nodes=nodes, per_node=per_node))
    begin, end = rows[0].submitted, rows[-1].submitted
    scale = work / (nodes * per_node * load) / (end - begin).total_seconds() if end > begin else 0.0
    return [
        replace(job, arrival_s=(row.submitted - begin).total_seconds() * scale)
        for job, row in zip(jobs, rows, strict=True)
    ]


def too_big(count: int, *, nodes: int, per_node: int) -> list[Job]:
    """Jobs one node bigger than the cluster, created at the start: they must wait and block no
    other.
    """
    return [
        Job(f"too-big-{index}", 0.0, RUN_MIN_S, (per_node,) * (nodes + 1)) for index in range(count)
    ]


def can_fit(job: Job, *, nodes: int, per_node: int) -> bool:
    """Whether an empty cluster has room: big jobs have one pod a node, and the others fit on one
    node.
    """
    return job.gpus <= per_node or len(job.pods) <= nodes
