"""`python -m bench.gangs.page`: put the figures of `docs/performance/` into `docs/performance.md`.

Invariant: the text between the two comments is made from the JSON files, and so is the whole of
`bench/results/gangs.md`, which has every figure of every case. A case that was not measured has no
row, and is named. The plots need matplotlib (dependency group `bench`).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bench.gangs.cases import CASES, Mode
from bench.gangs.goals import Goal, goals
from bench.gangs.report import read_cases, table

BEGIN, END = "<!-- figures: made by `make bench-page` -->", "<!-- end of figures -->"
INGEST = "ingest.json"
DETAILS = "bench/results/gangs.md"
PLOT = "throughput"


def main() -> None:
    """Write the page and, if possible, its plots."""
    parser = argparse.ArgumentParser(
        prog="bench.gangs.page", description="Write docs/performance.md from the JSON."
    )
    parser.add_argument("--page", type=Path, default=Path("docs/performance.md"))
    parser.add_argument("--figures", type=Path, default=Path("docs/performance"))
    parser.add_argument("--details", type=Path, default=Path(DETAILS))
    asked = parser.parse_args()
    cases = read_cases(asked.figures)
    file = asked.figures / INGEST
    ingest = json.loads(file.read_text("utf-8")) if file.exists() else None
    before, _, rest = asked.page.read_text("utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    body = "\n".join(_summary(cases, ingest, asked.figures.name))
    asked.page.write_text(f"{before}{BEGIN}\n{body}\n{END}{after}", encoding="utf-8")
    asked.details.write_text("\n".join(_details(cases, ingest)) + "\n", encoding="utf-8")
    if find_spec("matplotlib") is None:
        print("There is no matplotlib (dependency group `bench`): the plots are left as they are.")
    elif cases:
        from bench.gangs.plot import draw

        draw(cases, [asked.figures / f"{PLOT}.{kind}" for kind in ("svg", "png")])


def _summary(cases: dict[str, Any], ingest: dict[str, Any] | None, folder: str) -> Iterator[str]:
    yield from _machines([*cases.values(), *([ingest] if ingest else [])])
    asked = goals(cases, ingest)
    others = [goal for goal in asked if not goal.met]
    met = len(asked) - len(others)
    yield f"\n{met} of {len(asked)} [goals](../{DETAILS}) are met. The others:\n"
    yield from _goals(others)
    yield from _paced(cases)
    yield f"\n![Pods per second of every contender in every case]({folder}/{PLOT}.svg)"
    if missing := [each.title for each in CASES if each.name not in cases]:
        yield f"\nNot measured: {'; '.join(missing)}."
    yield (
        f"\n[All figures of every case](../{DETAILS}): throughput, latency, CPU, memory, and how"
        " far the runs are apart."
    )


def _goals(shown: Sequence[Goal]) -> Iterator[str]:
    yield "| goal | measured | bound | |\n|---|---:|---:|---|"
    for goal in shown:
        yield f"| {goal.what} | {goal.shown()} | {goal.asked()} | {goal.verdict} |"


def _paced(cases: dict[str, Any]) -> Iterator[str]:
    """Waits by size of gang, where the pace is given and pods/s say nothing."""
    for case in (each for each in CASES if each.mode is Mode.PACED and each.name in cases):
        figures = cases[case.name]["medians"]
        pace = min(row["offered_pods_per_s"] for row in figures.values())
        yield (
            f"\n| {case.title} ({pace:.0f} pods/s): last creation → last bind, p50 / p99 |"
            f" {' | '.join(figures)} |"
        )
        yield f"|---|{'---:|' * len(figures)}"
        for members, _ in case.sizes:
            pairs = (
                (row[f"gang{members}_p50_ms"], row[f"gang{members}_p99_ms"])
                for row in figures.values()
            )
            yield f"| {members} | {' | '.join(f'{p50:.0f} / {p99:.0f} ms' for p50, p99 in pairs)} |"


def _details(cases: dict[str, Any], ingest: dict[str, Any] | None) -> Iterator[str]:
    yield (
        "# Figures of every case\n\nMade by `make bench-page` from the JSON in"
        " `docs/performance/`.\n"
    )
    yield (
        "Medians. “gangsched is” is the ratio of pods/s. RSS is the peak; CPU is the scheduler's"
        " process."
    )
    yield "\n### Goals\n"
    yield from _goals(goals(cases, ingest))
    yield ""
    for case in CASES:
        if case.name in cases:
            yield table(cases[case.name])
            yield f"\n{_runs(cases[case.name])}"
    if ingest:
        yield from _ingest(ingest)


def _machines(documents: list[dict[str, Any]]) -> Iterator[str]:
    """What all of it was measured on; several lines when that differs."""
    seen: dict[str, str] = {}
    for document in documents:
        m = document["machine"]
        line = (
            f"Measured on {m['cpus']} × {m['cpu']}, {m['memory_gib']} GiB, Linux {m['kernel']};"
            f" Kubernetes {m['kubernetes']}, etcd {m['etcd']}, Python {m['python']}, gangsched"
            f" {m['gangsched']} ({m['commit']})"
        )
        seen.setdefault(line, document.get("measured", "")[:10])
    yield from (f"{line}, {day}." if day else f"{line}." for line, day in seen.items())


def _runs(case: dict[str, Any]) -> str:
    """How many measurements there were, how far they are apart, and what else the machine did."""
    said = []
    for name in case["medians"]:
        rates = sorted(run["pods_per_s"] for run in case["runs"][name])
        foreign = max(run.get("foreign_cpu_s", 0.0) for run in case["runs"][name])
        said.append(
            f"{name} {len(rates)} runs, {rates[0]:.0f}–{rates[-1]:.0f} pods/s, others' CPU ≤"
            f" {foreign:.1f} s"
        )
    return "; ".join(said) + "."


def _ingest(ingest: dict[str, Any]) -> Iterator[str]:
    start, lines = ingest["start"]["medians"], ingest["lines"]["medians"]
    yield f"\n## Taking in a cluster: {ingest['pods']:,} pods, {ingest['nodes']:,} nodes\n"
    yield "| | |\n|---|---:|"
    yield f"| process start → ready | {start['ready_s']:.2f} s |"
    yield f"| CPU of it | {start['cpu_s']:.2f} s |"
    yield f"| peak RSS | {start['rss_mib']:.0f} MiB |"
    yield f"| longest stall of the event loop | {start['longest_stall_ms']:.0f} ms |"
    yield f"| watch lines per second, decoded into the store | {lines['store_lines_per_s']:,.0f} |"
    yield f"| the same, into the state as well | {lines['store_and_state_lines_per_s']:,.0f} |"


if __name__ == "__main__":
    main()
