"""Play waves of groups that preempt, and print what each cost.

`python -m bench.waves [CASE …] [--beside] [--raw] [--out FILE.json]` plays the named cases, all
without any, each on a control plane with kwok of its own; `--beside` plays them with kube-scheduler
too, in turn: single pods with its preemption, gangs with its native gangs and
WorkloadAwarePreemption; not the elastic gang and the zones, for which it has no objects; `--raw`
plays those whose high pods fill whole nodes with a client that only evicts and binds. Exit code 1
where not all start.

Columns: high pods started, the seconds until the last of them was bound, CPU seconds of the
scheduler, what it wrote for each high pod (binds, nominations, one to three writes an eviction,
Events, conditions, statuses), its verdicts that refused, the longest stall of its loop, nominations
lost, and how many times the seconds KAI's scale tests report for a case. Why nominations were lost
comes below.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from bench.gangs.contenders import GANGSCHED, KUBE_SCHEDULER, NATIVE
from bench.waves.cases import CASES, Case
from bench.waves.play import Figures, play
from bench.waves.raw import can_play, play_raw

PREEMPTING_GANGS = replace(NATIVE, gates={**NATIVE.gates, "WorkloadAwarePreemption": True})
WIDTHS = (18, 15, 11, 9, 8, 8, 9, 9, 6, 7)
HEAD = (
    "case",
    "scheduler",
    "started",
    "seconds",
    "CPU s",
    "writes",
    "refusals",
    "stall ms",
    "lost",
    "x KAI",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Play, print and write."""
    parser = argparse.ArgumentParser(
        prog="bench.waves", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("case", nargs="*", help="cases to play; all without any")
    parser.add_argument("--beside", action="store_true", help="kube-scheduler too")
    parser.add_argument(
        "--raw", action="store_true", help="a client that evicts and binds without a scheduler too"
    )
    parser.add_argument("--out", type=Path)
    given = parser.parse_args(arguments)
    named = {case.name: case for case in CASES}
    if unknown := set(given.case) - named.keys():
        parser.error(f"no such case: {', '.join(sorted(unknown))}; there are {', '.join(named)}")
    print(f"load of the machine: {os.getloadavg()[0]:.1f}")
    print(_row(HEAD))
    found: list[Figures] = []
    for case in [named[name] for name in given.case] or CASES:
        beside = (
            [KUBE_SCHEDULER if case.members == 1 else PREEMPTING_GANGS]
            if given.beside and case.is_common
            else []
        )
        for contender in (GANGSCHED, *beside, *([None] if given.raw and can_play(case) else ())):
            figures = play(case, contender) if contender is not None else play_raw(case)
            found.append(figures)
            print(_row(_cells(case, figures)), flush=True)
            for why, number in figures.why_lost.items():
                print(f"{number:>30} x {why}")
    if given.out is not None:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(json.dumps([asdict(each) for each in found], indent=1) + "\n")
    ours = [each for each in found if each.scheduler == GANGSCHED.name]
    return 0 if all(each.started == each.pods for each in ours) else 1


def _cells(case: Case, figures: Figures) -> tuple[str, ...]:
    ratio = "" if case.theirs_s is None else f"{case.theirs_s / figures.seconds:.1f}"
    return (
        case.name,
        figures.scheduler,
        f"{figures.started}/{figures.pods}",
        f"{figures.seconds:.1f}",
        f"{figures.cpu_s:.1f}",
        "" if figures.writes is None else f"{figures.writes:.1f}",
        "" if figures.refusals is None else f"{figures.refusals}",
        "" if figures.stall_ms is None else f"{figures.stall_ms:.0f}",
        f"{figures.lost}",
        ratio,
    )


def _row(cells: Sequence[str]) -> str:
    return "".join(f"{cell:>{width}}" for cell, width in zip(cells, WIDTHS, strict=True))


if __name__ == "__main__":
    raise SystemExit(main())
