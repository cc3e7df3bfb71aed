"""Output of a simulation: tables, a CSV of every job, a plot of the waits.

Invariant: all numbers come from `figures`. The plot needs matplotlib, which the daemon does not.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from rich.table import Table

from gangsched.simulate.figures import HOUR_S, SIZES, Waits, size_of
from gangsched.simulate.simulator import Run
from gangsched.simulate.tables import InputError

COLUMNS = (
    "name",
    "namespace",
    "priority",
    "gpus",
    "pods",
    "submitted",
    "started",
    "wait_seconds",
    "run_seconds",
    "preempted",
)


def waits_table(title: str, rows: Iterable[tuple[str, Waits]]) -> Table:
    """A table of (label, waits), in hours."""
    table = Table(title=title, title_justify="left")
    for name in ("", "jobs", "started", "mean, h", "median, h", "p95, h", "max, h"):
        table.add_column(name, justify="right" if name else "left")

    for name, waits in rows:
        hours = (waits.mean_s, waits.median_s, waits.p95_s, waits.max_s)
        table.add_row(
            name, str(waits.jobs), str(waits.started), *(f"{hour / HOUR_S:.2f}" for hour in hours)
        )

    return table


def write_csv(file: Path, runs: Iterable[Run]) -> None:
    """Write one line per job, with times in seconds from the start of the trace. Start and wait of
    a job that never started are empty.

    Raises InputError.
    """
    try:
        with file.open("w", newline="", encoding="utf-8") as lines:
            out = csv.writer(lines, lineterminator="\n")
            out.writerow(COLUMNS)

            for run in runs:
                job = run.job
                started = (
                    ("", "")
                    if run.started_s is None
                    else (f"{run.started_s:.3f}", f"{run.wait_s:.3f}")
                )
                whose = (job.name, job.namespace, job.priority, job.gpus, len(job.pods))
                out.writerow(
                    (*whose, f"{job.submit_s:.3f}", *started, f"{job.run_s:.3f}", run.preempted)
                )
    except OSError as error:
        raise InputError(f"The file {file} cannot be written: {error.strerror}.") from error


def plot(file: Path, runs: Mapping[str, Sequence[Run]]) -> None:
    """Draw the cumulative distribution of waits for each size class, one line per entry of `runs`.

    Raises InputError if matplotlib is not installed, or the file cannot be written in the format of
    its name.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise InputError(
            "A plot needs matplotlib, which is not installed (pip install matplotlib)."
        ) from error

    classes = [
        name
        for name, _, _ in SIZES
        if any(size_of(run) == name for of_policy in runs.values() for run in of_policy)
    ]
    figure = Figure(figsize=(4 * len(classes), 3.6), layout="constrained")

    panels = figure.subplots(1, len(classes), sharey=True, squeeze=False)[0]
    for panel, size in zip(panels, classes, strict=True):
        for name, played in runs.items():
            waits = sorted(
                run.wait_s / HOUR_S
                for run in played
                if size_of(run) == size and run.started_s is not None
            )
            panel.step(
                waits,
                [(index + 1) / len(waits) for index in range(len(waits))],
                where="post",
                label=name,
            )

        panel.set(
            title=size,
            xlabel="waited at most, hours",
            xscale="symlog",
            xlim=(0, None),
            ylim=(0, 1.02),
        )
        panel.grid(alpha=0.3)

    panels[0].set_ylabel("share of jobs")
    if len(runs) > 1:
        panels[-1].legend(loc="lower right")

    try:
        figure.savefig(file)
    except (OSError, ValueError) as error:
        raise InputError(f"The plot {file} cannot be written: {error}.") from error
