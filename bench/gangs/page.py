"""`python -m bench.gangs.page`: put the figures of `docs/performance/` into `docs/performance.md`.

Law: everything between the two marks is made anew from the JSON files, and nothing else is touched; what is missing
there is missing in the page. The plots are drawn where matplotlib is installed (the dependency group `bench`).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bench.gangs.cases import CASES
from bench.gangs.goals import goals
from bench.gangs.report import read_cases, table

BEGIN, END = "<!-- figures: made by `make bench-page` -->", "<!-- end of figures -->"
INGEST = "ingest.json"
PLOT = "throughput"


def main() -> None:
    """Write the page and, if possible, its plots."""
    parser = argparse.ArgumentParser(prog="bench.gangs.page", description="Write docs/performance.md from the JSON.")
    parser.add_argument("--page", type=Path, default=Path("docs/performance.md"))
    parser.add_argument("--figures", type=Path, default=Path("docs/performance"))
    asked = parser.parse_args()
    cases = read_cases(asked.figures)
    file = asked.figures / INGEST
    ingest = json.loads(file.read_text("utf-8")) if file.exists() else None
    text = asked.page.read_text("utf-8")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    body = "\n".join(_body(cases, ingest, f"{asked.figures.name}/{PLOT}.svg"))
    asked.page.write_text(f"{before}{BEGIN}\n{body}\n{END}{after}", encoding="utf-8")
    if find_spec("matplotlib") is None:
        print("There is no matplotlib (dependency group `bench`): the plots are left as they are.")
    elif cases:
        from bench.gangs.plot import draw

        draw(cases, [asked.figures / f"{PLOT}.{kind}" for kind in ("svg", "png")])


def _body(cases: dict[str, Any], ingest: dict[str, Any] | None, plot: str) -> Iterator[str]:
    yield from _machines([*cases.values(), *([ingest] if ingest else [])])
    yield "\n## Goals, met and missed\n"
    yield "| | measured | goal | |\n|---|---:|---:|---|"
    for goal in goals(cases, ingest):
        yield f"| {goal.what} | {goal.shown()} | {goal.asked()} | {goal.verdict} |"
    yield "\n## Side by side\n"
    yield f"![Pods per second of every contender in every case]({plot})\n"
    yield "Medians; “gangsched is” is the ratio of pods/s. RSS is the peak; CPU is the scheduler's process."
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
            f"Measured on {m['cpus']} × {m['cpu']}, {m['memory_gib']} GiB, Linux {m['kernel']}; Kubernetes "
            f"{m['kubernetes']}, etcd {m['etcd']}, Python {m['python']}, gangsched {m['gangsched']} ({m['commit']})"
        )
        seen.setdefault(line, document.get("measured", "")[:10])
    yield from (f"{line}, {day}." if day else f"{line}." for line, day in seen.items())


def _runs(case: dict[str, Any]) -> str:
    """How many measurements there were, how far they are apart, and what else the machine did."""
    said = []
    for name in case["medians"]:
        rates = sorted(run["pods_per_s"] for run in case["runs"][name])
        foreign = max(run.get("foreign_cpu_s", 0.0) for run in case["runs"][name])
        said.append(f"{name} {len(rates)} runs, {rates[0]:.0f}–{rates[-1]:.0f} pods/s, others' CPU ≤ {foreign:.1f} s")
    return "; ".join(said) + "."


def _ingest(ingest: dict[str, Any]) -> Iterator[str]:
    start, lines = ingest["start"]["medians"], ingest["lines"]["medians"]
    yield f"\n## Taking in a cluster: {ingest['pods']:,} pods, {ingest['nodes']:,} nodes\n"
    yield "| | |\n|---|---:|"
    yield f"| process start → ready | {start['ready_s']:.2f} s |"
    yield f"| CPU of it | {start['cpu_s']:.2f} s |"
    yield f"| peak RSS | {start['rss_mib']:.0f} MiB |"
    yield f"| longest stall of the event loop | {start['longest_stall_ms']:.0f} ms |"
    yield f"| watch lines per second, decoded into the mirror | {lines['mirror_lines_per_s']:,.0f} |"
    yield f"| the same, into the state as well | {lines['mirror_and_state_lines_per_s']:,.0f} |"


if __name__ == "__main__":
    main()
