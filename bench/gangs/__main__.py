"""`python -m bench.gangs`: run cases, print a line for each measurement, write the JSON; see
`docs/performance.md`.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from bench.gangs.cases import CASES, PROBE, Case, Mode
from bench.gangs.contenders import CONTENDERS, RAW, cpus
from bench.gangs.goals import goals
from bench.gangs.measure import measure
from bench.gangs.report import Report
from bench.gangs.result import Result

#: The part of the machine that others may use while we measure, and how often we try to be alone.
FOREIGN_CPU_MAX = 0.08
TRIES = 2
#: A paced case comes at this part of what the raw client creates and binds on this machine, in the
#: same run.
PACE = 0.5


def main() -> None:
    """Measure every contender of every case once, then all again, so that none has a quiet hour for
    itself.
    """
    asked = _asked()
    report = Report(asked.out, resume=asked.resume)
    began_s = time.monotonic()
    for run in range(asked.runs):
        for case in asked.cases:
            names = [name for name in case.contenders if not asked.only or name in asked.only]
            todo = [name for name in names if report.runs(case, name) <= run]
            is_over = time.monotonic() - began_s > asked.minutes * 60
            if todo:
                print(f"\n{case.title}, run {run + 1} of {asked.runs}", flush=True)
            pods_per_s = _pace() if todo and not is_over and case.mode is Mode.PACED else 0.0
            for name in todo if run % 2 == 0 else todo[::-1]:
                if time.monotonic() - began_s > asked.minutes * 60:
                    print(f"The {asked.minutes:g} minutes are over; RESUME=1 goes on from here.")
                    break
                _try(report, case, name, pods_per_s)
    print(report.table())
    print("\n".join(goal.line() for goal in goals(report.cases, None)))


def _asked() -> argparse.Namespace:
    names = [case.name for case in CASES]
    parser = argparse.ArgumentParser(
        prog="bench.gangs", description="Gangs on a real API server, side by side."
    )
    parser.add_argument("--cases", default="", help="names, comma-separated: " + ", ".join(names))
    parser.add_argument(
        "--runs", type=int, default=3, help="measurements of each contender (default 3)"
    )
    parser.add_argument("--only", default="", help="contenders, comma-separated; all by default")
    parser.add_argument("--out", type=Path, default=None, help="folder for a JSON file per case")
    parser.add_argument(
        "--resume", action="store_true", help="count what is in --out already towards --runs"
    )
    parser.add_argument(
        "--minutes", type=float, default=600.0, help="begin no measurement after that"
    )
    asked = parser.parse_args()
    # Another release than the gate's is built by `make control-plane VERSION=1.37`.
    wanted = (
        asked.cases.split(",") if asked.cases else [case.name for case in CASES if not case.release]
    )
    unknown = set(wanted) - set(names)
    if unknown:
        parser.error(f"unknown case {min(unknown)}; there are {', '.join(names)}")
    asked.cases = [case for case in CASES if case.name in wanted]
    asked.only = asked.only.split(",") if asked.only else []
    return asked


def _pace() -> float:
    """Pods a second of a paced case, for all contenders of a run: a part of what the raw client
    reaches now.
    """
    rate = PACE * measure(PROBE, RAW).pods_per_s
    print(f"  {rate:.0f} pods/s, {PACE:g} × the raw client", flush=True)
    return rate


def _try(report: Report, case: Case, name: str, pods_per_s: float) -> None:
    """Measure; a contender that fails has no figure of this run."""
    try:
        report.add(case, _measure_in_peace(report, case, name, pods_per_s))
    except Exception as error:  # whatever it was: the next one has a control plane of its own
        print(f"  {name:15} FAILED: {type(error).__name__}: {error}", flush=True)


def _measure_in_peace(report: Report, case: Case, name: str, pods_per_s: float) -> Result:
    """Measure, and again if other processes used the machine meanwhile; the quietest try counts."""
    tries: list[Result] = []
    while True:
        result = measure(case, CONTENDERS[name], pods_per_s)
        tries.append(result)
        print(report.line(result), flush=True)
        foreign = result.foreign_cpu_s or 0.0
        if foreign < FOREIGN_CPU_MAX * result.clock_s * cpus() or len(tries) == TRIES:
            return min(tries, key=lambda each: each.foreign_cpu_s or 0.0)


if __name__ == "__main__":
    main()
