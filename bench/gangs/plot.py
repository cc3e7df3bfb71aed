"""The plot: pods per second of every contender, a panel for each case.

Invariant: drawn from the medians of the JSON, with each measurement as a dot on its bar; needs
matplotlib.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

from bench.gangs.cases import CASES, Mode
from bench.gangs.contenders import CONTENDERS

mpl.use("Agg")
mpl.rcParams["svg.hashsalt"] = "gangsched"  # the same figures give the same file

from matplotlib import pyplot as plt  # noqa: E402

COLOURS = {
    "gangsched": "#1f6feb",
    "newcomer": "#79b8ff",
    "kube-scheduler": "#8b949e",
    "native": "#d29922",
    "raw": "#3fb950",
}
COLUMNS = 3


def draw(cases: Mapping[str, Any], files: Sequence[Path]) -> None:
    """Write the plot to each file, in the format of its suffix."""
    shown = [case for case in CASES if case.name in cases and case.mode is not Mode.PACED]
    rows = -(-len(shown) // COLUMNS)
    figure, axes = plt.subplots(rows, COLUMNS, figsize=(12, 2.6 * rows), squeeze=False)
    for axis in axes.flat[len(shown) :]:
        axis.set_axis_off()
    for axis, case in zip(axes.flat, shown, strict=False):
        _panel(axis, case.title, cases[case.name])
    handles = [plt.Rectangle((0, 0), 1, 1, color=COLOURS[name]) for name in COLOURS]
    figure.legend(
        handles,
        [CONTENDERS[name].title for name in COLOURS],
        loc="lower center",
        ncols=len(COLOURS),
        frameon=False,
    )
    figure.suptitle(
        "Pods bound per second on a real API server (bars: medians, dots: measurements)"
    )
    figure.tight_layout(rect=(0, 0.04, 1, 1))
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(file, dpi=110, metadata={"Date": None} if file.suffix == ".svg" else None)
    plt.close(figure)


def _panel(axis: Any, title: str, case: Mapping[str, Any]) -> None:
    names = [name for name in COLOURS if name in case["medians"]]
    for place, name in enumerate(names):
        rate = case["medians"][name]["pods_per_s"]
        axis.bar(place, rate, color=COLOURS[name], width=0.7)
        runs = [run["pods_per_s"] for run in case["runs"][name]]
        axis.plot([place] * len(runs), runs, ".", color="black", markersize=4)
        axis.annotate(
            f"{rate:.0f}",
            (place, 0),
            (0, 3),
            textcoords="offset points",
            ha="center",
            color="white",
        )
    axis.set_title(title, fontsize=9)
    axis.set_xticks([])
    axis.set_ylim(bottom=0)
    axis.spines[["top", "right"]].set_visible(False)
