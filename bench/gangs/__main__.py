"""`python -m bench.gangs`: run cases, print a line for each measurement, write the JSON; see `docs/performance.md`."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from bench.gangs.cases import CASES, Case
from bench.gangs.contenders import CONTENDERS
from bench.gangs.measure import Result, measure
from bench.gangs.report import Report

#: The part of the machine that others may use while we measure, and how often we try to be alone.
FOREIGN_CPU_MAX = 0.08
TRIES = 3


def main() -> None:
    """Take turns: every contender once, then every contender again, so that none has the quiet hour for itself."""
    parser = argparse.ArgumentParser(prog="bench.gangs", description="Gangs on a real API server, side by side.")
    parser.add_argument("--cases", default="", help="names, comma-separated; all by default: " + ", ".join(_names()))
    parser.add_argument("--runs", type=int, default=3, help="measurements of each contender (default 3)")
    parser.add_argument("--only", default="", help="contenders, comma-separated; all by default")
    parser.add_argument("--out", type=Path, default=None, help="write (or add to) this JSON file")
    asked = parser.parse_args()
    wanted = asked.cases.split(",") if asked.cases else _names()
    unknown = set(wanted) - set(_names())
    if unknown:
        parser.error(f"unknown case {min(unknown)}; there are {', '.join(_names())}")
    report = Report(asked.out)
    for case in CASES:
        if case.name not in wanted:
            continue
        names = [name for name in ("gangsched", *case.against) if not asked.only or name in asked.only.split(",")]
        results: list[Result] = []
        print(f"\n{case.title}", flush=True)
        for run in range(asked.runs):
            turn = names if run % 2 == 0 else names[::-1]
            results += [_measure_in_peace(report, case, name) for name in turn]
        report.add(case, results)
    print(report.table())


def _measure_in_peace(report: Report, case: Case, name: str) -> Result:
    """Measure, and measure again when the machine was not ours meanwhile; the quietest of the tries counts."""
    tries: list[Result] = []
    while True:
        result = measure(case, CONTENDERS[name])
        tries.append(result)
        print(report.line(result), flush=True)
        foreign = result.foreign_cpu_s or 0.0
        if foreign < FOREIGN_CPU_MAX * result.total_s * (os.cpu_count() or 1) or len(tries) == TRIES:
            return min(tries, key=lambda each: each.foreign_cpu_s or 0.0)


def _names() -> list[str]:
    return [case.name for case in CASES]


if __name__ == "__main__":
    main()
