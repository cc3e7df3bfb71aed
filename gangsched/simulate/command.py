"""`gangsched simulate`: read the input, run the simulation, print the results.

Invariant: invalid input ends with one sentence (`InputError`) before the simulation starts.
"""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from gangsched.model.text import counted
from gangsched.settings import Settings
from gangsched.simulate import figures, report
from gangsched.simulate.simulator import Run, Simulator
from gangsched.simulate.spans import spans_of, write_page, write_spans, write_trace
from gangsched.simulate.statements import Stated, stating
from gangsched.simulate.traces import read_jobs, read_nodes
from gangsched.simulate.workload import gpus_of

ENDLESS = 10_000
"""Columns of a terminal in which every table fits."""


def simulate(
    nodes: Path,
    jobs: Path,
    settings: Settings,
    *,
    stated: Stated = Stated.FILE,
    out: Path | None = None,
    plot: Path | None = None,
    spans: Path | None = None,
    trace: Path | None = None,
    html: Path | None = None,
) -> int:
    """Simulate the jobs on the nodes, print the tables and write the files that are given; return
    the exit code. Raises InputError.
    """
    console = Console()
    cluster = read_nodes(nodes)
    simulator = Simulator(cluster, stating(read_jobs(jobs, cluster), stated), settings)
    runs = play(simulator, "jobs")
    gpus = sum(map(gpus_of, cluster))
    share = figures.allocated_share(runs, gpus)
    rows = [*figures.by_size(runs), *figures.by_priority(runs)]
    print_whole(console, report.waits_table("Waiting time", ((row.name, row) for row in rows)))
    size = f"{counted(len(cluster), 'node')}, {counted(gpus, 'GPU')}"
    console.print(f"{size}; {share:.1%} of the GPUs allocated while jobs arrived.")

    if late := figures.promise_errors_s(simulator.promises.told_s, runs):
        missed = figures.late_s(late)
        said_when = (
            f"{counted(len(late), 'job')} at the head of the queue had a latest start;"
            f" {len(missed)} started later"
        )
        console.print(
            f"{said_when}, by {max(missed) / figures.HOUR_S:.2f} h at most."
            if missed
            else f"{said_when}."
        )

    if preempted := [run for run in runs if run.preempted]:
        lost, ran = (gpu_s / figures.HOUR_S for gpu_s in figures.lost_gpu_s(runs))
        who = "1 job was" if len(preempted) == 1 else f"{len(preempted)} jobs were"
        times = counted(sum(run.preempted for run in preempted), "time")
        console.print(
            f"{who} preempted, {times} in all; {lost:.1f} of {ran:.1f} GPU-hours were lost."
        )

    if never := sum(run.started_s is None for run in runs):
        console.print(
            f"{counted(never, 'job')} never started, asking for more than the empty cluster has."
        )

    if out is not None:
        report.write_csv(out, runs)

    if plot is not None:
        report.plot(plot, {"gangsched": runs})

    if spans is not None:
        write_spans(spans, spans_of(runs, simulator.promises))

    if trace is not None:
        write_trace(trace, cluster, spans_of(runs, simulator.promises))

    if html is not None:
        write_page(html, cluster, list(spans_of(runs, simulator.promises)), jobs.name)

    return 0


def print_whole(console: Console, table: Table) -> None:
    """Print a table with all its letters, also in a terminal that is narrower."""
    endless = console.options.update(max_width=ENDLESS)
    console.width = max(console.width, console.measure(table, options=endless).maximum)
    console.print(table)


def play(simulator: Simulator, what: str) -> list[Run]:
    """Run a simulation, with a progress bar on a terminal."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    stderr = Console(stderr=True)
    with Progress(
        *columns,
        console=stderr,
        transient=True,
        disable=not stderr.is_terminal,
    ) as progress:
        task = progress.add_task(what, total=len(simulator.runs))
        return simulator.run(lambda arrived: progress.update(task, completed=arrived))
