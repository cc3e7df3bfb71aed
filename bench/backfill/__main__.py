"""`python -m bench.backfill`: waits by size of the real planner, beside FIFO, skipping and EASY, on
one trace.

Without `--philly` it plays our small generated trace on 12 nodes; with it, the jobs of that list
from 9 October to 19 November 2017 on 72. The real planner goes through `gangsched.simulate`,
without reservations and with what it may know of run times; the others are models (`models`). It
prints waits by size, then what each policy made of the cluster; `--out` writes the same as JSON,
`--plot` draws it.

Kept idle is room behind reservations, as a share of all GPUs (`simulate.simulator`). Promises are
the times told to jobs that became the oldest that waits: how many, how many started later, by how
much at most.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from bench.backfill.models import Model, Policy, run_class_s
from gangsched.model.objects import Node
from gangsched.model.resources import PODS
from gangsched.settings import Settings
from gangsched.simulate import figures, report
from gangsched.simulate.simulator import Run, Simulator
from gangsched.simulate.traces import read_jobs
from gangsched.simulate.workload import GPU, Job

SMALL_TRACE = Path(__file__).parents[1] / "data" / "backfill_trace.csv"
PER_NODE = 8
OURS = "gangsched"
KNOWN: dict[str, Callable[[Job], bool]] = {
    "class known": lambda job: True,
    "half known": lambda job: zlib.crc32(job.name.encode()) % 2 == 0,
    "nothing known": lambda job: False,
}
"""Which jobs state the class of their run time; half of them by lot, the same ones in every run."""
PERIOD = (
    datetime(2017, 10, 9, tzinfo=UTC).timestamp(),
    datetime(2017, 11, 20, tzinfo=UTC).timestamp(),
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one policy made of the jobs."""

    runs: Sequence[Run]
    share: float
    seconds: float
    errors_s: Sequence[float] = ()
    idle: float = 0.0


def main(argv: Sequence[str] | None = None) -> None:
    """Play every policy and print the tables."""
    asked = arguments(argv)
    nodes = asked.nodes or (72 if asked.philly else 12)
    jobs = read_jobs(asked.philly or SMALL_TRACE, cluster(1))
    if asked.philly:
        jobs = [job for job in jobs if PERIOD[0] <= job.submit_s < PERIOD[1]]
    jobs = sorted(jobs, key=lambda job: job.submit_s)[: asked.jobs]
    chosen = {
        name: play
        for name, play in policies(jobs, nodes).items()
        if not asked.only or name in asked.only
    }
    found = {name: measure(name, play, len(jobs), nodes) for name, play in chosen.items()}
    console = Console(width=None if sys.stdout.isatty() else 140)
    console.print(
        f"{len(jobs)} jobs on {nodes} nodes of {PER_NODE} GPUs, load {load(jobs, nodes):.2f}"
    )
    console.print(waits(found), cluster_table(found, len(jobs)))
    if asked.out:
        asked.out.write_text(json.dumps(as_json(found, nodes), indent=2) + "\n")
    if asked.plot:
        report.plot(asked.plot, {name: outcome.runs for name, outcome in found.items()})


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.backfill", description=(__doc__ or "").partition("\n\n")[0]
    )
    parser.add_argument(
        "--philly", type=Path, metavar="JOBS", help="CSV file; default: our small trace"
    )
    parser.add_argument(
        "--nodes", type=int, help="nodes of 8 GPUs (default 72 with --philly, else 12)"
    )
    parser.add_argument("--jobs", type=int, metavar="N", help="only the first N jobs")
    parser.add_argument(
        "--only", action="append", metavar="POLICY", help="only this row; may be repeated"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the figures as JSON")
    parser.add_argument(
        "--plot", type=Path, metavar="FILE", help="draw the waits (.svg, .png); needs matplotlib"
    )
    return parser.parse_args(argv)


def cluster(count: int) -> list[Node]:
    """Alike nodes."""
    return [
        Node(name=f"node-{n:03}", allocatable=((GPU, PER_NODE), (PODS, 110))) for n in range(count)
    ]


def policies(jobs: Sequence[Job], nodes: int) -> dict[str, Callable[[], Simulator | Model]]:
    """Makers of what can be played, by name."""
    model = partial(Model, jobs=jobs, nodes=nodes, per_node=PER_NODE)
    return {
        "FIFO": partial(model, Policy.FIFO),
        "skip": partial(model, Policy.SKIP),
        "EASY, exact times": partial(model, Policy.EASY),
        "EASY, class known": partial(model, Policy.EASY, expected_s=run_class_s),
        f"{OURS}, no reservations": partial(
            Simulator, cluster(nodes), jobs, Settings(reservations=0)
        ),
        f"{OURS}, exact times": partial(
            Simulator, cluster(nodes), [replace(job, stated_s=job.run_s) for job in jobs]
        ),
        **{
            f"{OURS}, {name}": partial(Simulator, cluster(nodes), stating(jobs, who))
            for name, who in KNOWN.items()
        },
    }


def stating(jobs: Sequence[Job], who: Callable[[Job], bool]) -> list[Job]:
    """The jobs, of which some state the class of their run time."""
    return [replace(job, stated_s=run_class_s(job) if who(job) else None) for job in jobs]


def measure(name: str, make: Callable[[], Simulator | Model], jobs: int, nodes: int) -> Outcome:
    """Play one policy."""
    begun_s = time.process_time()
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(name, total=jobs)
        played = make()
        runs = played.run(lambda arrived: progress.update(task, completed=arrived))
    seconds = time.process_time() - begun_s
    share = figures.allocated_share(runs, nodes * PER_NODE)
    if isinstance(played, Model):
        return Outcome(runs, share, seconds, figures.promise_errors_s(played.promised_s, runs))
    idle = played.promises.idle_gpu_s / (
        nodes * PER_NODE * (runs[-1].job.submit_s - runs[0].job.submit_s)
    )
    return Outcome(
        runs, share, seconds, figures.promise_errors_s(played.promises.told_s, runs), idle
    )


def load(jobs: Sequence[Job], nodes: int) -> float:
    """GPU-seconds asked for, as a share of what the cluster has while jobs arrive."""
    asked = sum(job.gpus * job.run_s for job in jobs)
    return asked / (nodes * PER_NODE * (jobs[-1].submit_s - jobs[0].submit_s))


def waits(found: dict[str, Outcome]) -> Table:
    """Waits of every policy by size class, so that policies stand beside each other."""
    rows = [
        (row.name, name, row)
        for name, outcome in found.items()
        for row in figures.by_size(outcome.runs)
    ]
    order = list(dict.fromkeys(size for size, _, _ in rows))
    rows.sort(key=lambda each: order.index(each[0]))
    return report.waits_table(
        "Waiting time", ((f"{size}: {name}", row) for size, name, row in rows)
    )


def cluster_table(found: dict[str, Outcome], jobs: int) -> Table:
    """What each policy made of the cluster, and what it cost to play."""
    table = Table(title="Cluster", title_justify="left")
    for column in (
        "",
        "allocated",
        "kept idle",
        "promises",
        "late",
        "late at most, h",
        "mean error, h",
        "CPU, s",
        "jobs/min",
    ):
        table.add_column(column, justify="right" if column else "left")
    for name, each in found.items():
        late = figures.late_s(each.errors_s)
        mean_s = sum(each.errors_s) / len(each.errors_s) if each.errors_s else 0.0
        hours = (f"{seconds / figures.HOUR_S:.2f}" for seconds in (max(late, default=0.0), mean_s))
        told = (str(len(each.errors_s)), str(len(late)), *hours)
        speed = (f"{each.seconds:.1f}", f"{jobs / each.seconds * 60:,.0f}")
        table.add_row(name, f"{each.share:.3f}", f"{each.idle:.2%}", *told, *speed)
    return table


def as_json(found: dict[str, Outcome], nodes: int) -> dict[str, Any]:
    """Everything the tables say, in seconds."""
    return {
        "nodes": nodes,
        "policies": {
            name: {
                "allocated_share": each.share,
                "cpu_s": each.seconds,
                "kept_idle_share": each.idle,
                "promises": {
                    "number": len(each.errors_s),
                    "late_s": sorted(figures.late_s(each.errors_s), reverse=True),
                    "mean_error_s": sum(each.errors_s) / max(1, len(each.errors_s)),
                },
                "waits": [asdict(row) for row in figures.by_size(each.runs)],
            }
            for name, each in found.items()
        },
    }


if __name__ == "__main__":
    main()
