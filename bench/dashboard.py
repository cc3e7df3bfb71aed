"""A picture of the dashboard: its panels where Grafana puts them, with what a real Prometheus
answers to its queries.

`python -m bench.dashboard [--minutes 8] [--rate 8] [--seed 1] [--out docs/pictures/dashboard]`.
Gangs of every kind come and go as in `bench.soak`, and large gangs with stated run times beside
them; Prometheus scrapes the daemon every two seconds. matplotlib draws `OUT.png` with all panels,
and `OUT-top.png` with those of the first rows. It is not a picture of Grafana: place, title, unit,
queries and legends are the dashboard's, the drawing is ours.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import matplotlib as mpl
from control_plane import ControlPlane
from control_plane import objects as make
from control_plane.api import Api
from control_plane.applying import apply_manifests
from control_plane.daemon import Daemon
from control_plane.monitoring import Panel, panels
from control_plane.prometheus import Prometheus

from bench.soak.churn import Churn, prepare

mpl.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.gridspec import GridSpec
from matplotlib.ticker import EngFormatter, Formatter, FuncFormatter, MaxNLocator
from PIL import Image

INTERVAL, STEP_S = "1m", 5.0
NODES, LARGE, LARGE_EVERY_S, LARGE_RUNS_S = 14, 4, 30.0, 15.0
COLUMNS, TOP_ROWS, INCHES_A_ROW, WIDTH_INCHES = 24, 2, 0.37, 17.0
MOST_NAMES, THOUSAND = 6, 1_000
MARGIN_INCHES, DPI, COLOURS = 0.3, 90, 128
Series = tuple[str, list[tuple[float, float]]]


def observe(*, minutes: float, rate: float, seed: int) -> dict[Panel, list[Series]]:
    """What each panel shows after some minutes: the names and points (minutes before the end,
    value) of its series.
    """
    with (
        ControlPlane(kwok=True, for_load=True) as plane,
        closing(Api.of(plane)) as api,
        tempfile.TemporaryDirectory() as folder,
    ):
        apply_manifests(api)
        prepare(api, NODES)
        daemon = Daemon(plane, extra_args=["--leader-elect"])
        with daemon, Prometheus(Path(folder), {"gangsched-0": daemon.health_port}) as prometheus:
            began_s = time.time()
            with Churn(api, rate=rate, seed=seed) as churn:
                _large_gangs(api, churn, until_s=time.monotonic() + minutes * 60)
            return {
                panel: _answers(prometheus, panel, began_s, time.time())
                for panel in panels(INTERVAL)
            }


def _large_gangs(api: Api, churn: Churn, *, until_s: float) -> None:
    """Gangs of whole nodes come, which need a reservation to start beside so many small ones."""
    options: dict[str, Any] = {"gpus": 8, "run_seconds": LARGE_RUNS_S}
    options["annotations"] = {"gangsched.dev/expected-runtime": f"{LARGE_RUNS_S:g}s"}
    pause, number = threading.Event(), 0
    while (left_s := until_s - time.monotonic()) > 0:
        churn.check()
        make.create_all(api, make.gang(f"large-{number}", members=LARGE, **options))
        pause.wait(min(left_s, LARGE_EVERY_S))
        number += 1


def _answers(prometheus: Prometheus, panel: Panel, began_s: float, ended_s: float) -> list[Series]:
    found: list[Series] = []
    for query in panel.queries:
        for labels, points in prometheus.query_range(
            query.expression, start_s=began_s, end_s=ended_s, step_s=STEP_S
        ):
            known = [
                ((at_s - ended_s) / 60, value) for at_s, value in points if not math.isnan(value)
            ]
            found += [(query.name(labels), known)] if known else []
    return found


# --- drawing ------------------------------------------------------------------------------------


def draw(answers: Mapping[Panel, Sequence[Series]], note: str, file: Path) -> None:
    """Write the panels to a PNG file, under the titles of their rows."""
    first, last = (
        min(panel.y for panel in answers) - 1,
        max(panel.y + panel.height for panel in answers),
    )
    height = (last - first) * INCHES_A_ROW + 2 * MARGIN_INCHES
    edge = MARGIN_INCHES / height
    figure = plt.figure(figsize=(WIDTH_INCHES, height))
    grid = GridSpec(
        last - first,
        COLUMNS,
        figure,
        left=0.01,
        right=0.99,
        top=1 - edge / 3,
        bottom=edge,
        wspace=0,
        hspace=0,
    )
    for row in dict.fromkeys(panel.row for panel in answers):
        y = min(panel.y for panel in answers if panel.row == row) - 1 - first
        _frame(figure, grid[y, :], row, bold=True)
    for panel, series in answers.items():
        place = grid[
            panel.y - first : panel.y - first + panel.height, panel.x : panel.x + panel.width
        ]
        box = _frame(figure, place, panel.title)
        (_numbers if panel.is_number else _lines)(box, panel, series)
    figure.text(0.01, edge / 4, note, fontsize=9, color="#57606a")
    figure.savefig(file, dpi=DPI)
    plt.close(figure)
    with Image.open(file) as image:
        image.convert("RGB").quantize(COLOURS).save(file, optimize=True)


def _frame(figure: Any, place: Any, title: str, *, bold: bool = False) -> Any:
    """An empty box with its title; the box in which to draw."""
    frame = figure.add_subplot(place)
    frame.set_xticks([])
    frame.set_yticks([])
    for spine in frame.spines.values():
        spine.set_visible(not bold)
        spine.set_color("#d0d7de")
    frame.text(
        0.012,
        0.2 if bold else 0.97,
        title,
        transform=frame.transAxes,
        va="bottom" if bold else "top",
        fontsize=12 if bold else 9,
        fontweight="bold",
    )
    return frame


def _numbers(frame: Any, panel: Panel, series: Sequence[Series]) -> None:
    """The last value of each series."""
    unit = _unit(panel)
    shown = [f"{name}  {unit(points[-1][1])}" for name, points in series]
    frame.text(
        0.5,
        0.42,
        "\n".join(shown) or "No data",
        transform=frame.transAxes,
        ha="center",
        va="center",
        fontsize=13,
    )


def _lines(frame: Any, panel: Panel, series: Sequence[Series]) -> None:
    """Values over time, on top of each other where the panel stacks them."""
    axis = frame.inset_axes((0.13, 0.3, 0.85, 0.56))
    axis.tick_params(labelsize=7, length=2, color="#d0d7de")
    axis.spines[:].set_visible(False)
    axis.grid(color="#eaeef2", linewidth=0.6)
    axis.yaxis.set_major_formatter(_unit(panel))
    axis.yaxis.set_major_locator(MaxNLocator(4))
    axis.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    axis.xaxis.set_major_formatter(lambda minutes, _: f"{minutes:g} min" if minutes else "now")
    if not series:
        axis.text(
            0.5,
            0.5,
            "No data",
            transform=axis.transAxes,
            ha="center",
            va="center",
            fontsize=9,
            color="#57606a",
        )
        return
    times = sorted({at for _, points in series for at, _ in points})
    nothing = 0.0 if panel.is_stacked else math.nan
    low = [0.0] * len(times)
    for name, points in series:
        values = dict(points)
        high = [under + values.get(at, nothing) for at, under in zip(times, low, strict=True)]
        (line,) = axis.plot(times, high, linewidth=1.0, label=name)
        opacity = 0.35 if panel.is_stacked else 0.05
        axis.fill_between(times, low, high, alpha=opacity, color=line.get_color(), linewidth=0)
        low = high if panel.is_stacked else low
    if not any(value for _, points in series for _, value in points):
        axis.set_ylim(top=1)
    axis.set_ylim(bottom=0)
    names = [name for name, _ in series[:MOST_NAMES]] + (["…"] if len(series) > MOST_NAMES else [])
    frame.legend(
        axis.get_lines()[: MOST_NAMES + 1],
        names,
        loc="lower left",
        ncols=3,
        fontsize=6.5,
        frameon=False,
        handlelength=1.0,
        columnspacing=0.8,
        borderaxespad=0.1,
    )


def _unit(panel: Panel) -> Formatter:
    """How Grafana writes numbers of the panel's unit, nearly."""
    if panel.unit == "short":
        return FuncFormatter(
            lambda value, _: f"{value:.3g}" if value < THOUSAND else EngFormatter(sep="")(value)
        )
    return EngFormatter({"s": "s", "bytes": "B"}[panel.unit])


def main(arguments: Sequence[str] | None = None) -> int:
    """Observe, and write the pictures."""
    parser = argparse.ArgumentParser(
        prog="bench.dashboard", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument(
        "--rate", type=float, default=8.0, help="pods created a second, and as many deleted"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("docs/pictures/dashboard"))
    asked = parser.parse_args(arguments)
    answers = observe(minutes=asked.minutes, rate=asked.rate, seed=asked.seed)
    note = (
        f"{asked.minutes:g} minutes of {asked.rate:g} pods a second on {NODES} nodes: what"
        " Prometheus answers to the queries of manifests/monitoring/dashboard.json, drawn by"
        " matplotlib at their places; not Grafana's drawing."
    )
    rows = list(dict.fromkeys(panel.row for panel in answers))[:TOP_ROWS]
    draw(answers, note, asked.out.with_suffix(".png"))
    top = {panel: series for panel, series in answers.items() if panel.row in rows}
    draw(top, note, asked.out.with_name(asked.out.name + "-top.png"))
    empty = [panel.title for panel, series in answers.items() if not series]
    print(f"{len(answers)} panels; without data: {', '.join(empty) or 'none'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
