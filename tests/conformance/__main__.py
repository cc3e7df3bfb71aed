"""`python -m tests.conformance`: run the specs with both schedulers, and write
`bench/results/conformance.md`.

A part of the specs (`--focus`), or one scheduler (`--side`), adds to what was run before, which is
kept in `.cache/conformance`; the page is written once both have run the same specs and every
difference has its reason. Exit code 1 for a spec that does not pass with both and for which
`differences.toml` has no reason, or has one for other outcomes.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from control_plane import ControlPlaneError

from tests.conformance import table
from tests.conformance.clusters import OURS, SIDES, THEIRS, cluster, run_specs
from tests.conformance.results import Outcome, State, load, save

KEPT = Path(__file__).resolve().parents[2] / ".cache" / "conformance"
ALL = r"\[sig-scheduling\]"


def run_side(side: str, focus: str, *, whole: bool) -> dict[str, Outcome]:
    """Run one scheduler's part; returns all outcomes of it that are known."""
    KEPT.mkdir(parents=True, exist_ok=True)
    path, workdir = KEPT / f"{side}.json", KEPT / f"{side}.plane"
    shutil.rmtree(workdir, ignore_errors=True)  # what the last run left for a look at its logs
    with cluster(side, workdir) as plane:
        ran = run_specs(plane, focus, KEPT / f"{side}.report.json", KEPT / f"{side}.log")
    for spec, outcome in sorted(ran.items()):
        said = (
            "" if outcome.state is State.PASSES else f": {' '.join(outcome.message.split())[:300]}"
        )
        print(f"{side}: {outcome.state} in {outcome.seconds:.0f} s  {spec}{said}", flush=True)
    outcomes = ran if whole else {**load(path), **ran}
    save(path, outcomes)
    return outcomes


def main() -> int:
    """The command line; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.conformance", description="Kubernetes' specs of scheduling."
    )
    parser.add_argument("--side", choices=SIDES, help="only with this scheduler")
    parser.add_argument(
        "--focus", default="", metavar="REGEX", help="only specs whose text matches"
    )
    parser.add_argument(
        "--table", action="store_true", help="run nothing: only the table of what was run before"
    )
    asked = parser.parse_args()
    focus = asked.focus or ALL
    try:
        # Both at once: nearly all that a spec does is wait.
        with ThreadPoolExecutor() as pool:
            sides = () if asked.table else (asked.side,) if asked.side else SIDES
            list(pool.map(partial(run_side, focus=focus, whole=not asked.focus), sides))
    except (ControlPlaneError, OSError) as error:
        print(f"conformance: {error}", file=sys.stderr)
        return 1
    ours, theirs = (load(KEPT / f"{side}.json") for side in (OURS, THEIRS))
    known = table.read_differences(table.DIFFERENCES.read_text())
    made = table.rows(ours, theirs, known)
    wrong = [
        *table.complaints(ours, theirs, known),
        *(() if asked.focus else table.unheard_of(ours, known)),
    ]
    print(table.summary(made))
    for line in wrong:
        print(line, file=sys.stderr)
    if not wrong and not asked.focus and made:
        table.PAGE.write_text(table.with_table(table.PAGE.read_text(), made))
        print(f"The table is in {table.PAGE.name}.")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
