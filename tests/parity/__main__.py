"""`python -m tests.parity --number 300 --seed 1`: prints every difference, then the figures.

`--case SEED/NUMBER` shows one case, its objects first. Exit code 1 if one side placed a pod where
the other would not; `docs/parity.md` says which other differences are known.
"""

from __future__ import annotations

import argparse
import json
import sys
import time

from control_plane import ControlPlane

from tests.parity.compare import cases, run
from tests.parity.generate import case
from tests.parity.kube_scheduler import ADMISSION_OFF


def main() -> int:
    """Compare and print."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.parity", description="Do we say what kube-scheduler says?"
    )
    parser.add_argument("--number", type=int, default=300, help="probes to compare (default 300)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--case", metavar="SEED/NUMBER", help="compare only this case, and print its objects"
    )
    asked = parser.parse_args()
    chosen = cases(asked.seed)
    if asked.case:
        seed, _, number = asked.case.partition("/")
        one = case(int(seed), int(number))
        chosen = iter([one])
        for each in (*one.storage.objects, *one.nodes, *one.bound, *one.probes):
            print(json.dumps(each))
        print(f"ended {sorted(one.ended)}, terminating {sorted(one.leaving | one.storage.leaving)}")
        print(f"lost {sorted(one.storage.lost)}, resized {json.dumps(one.resized)}")
    with ControlPlane(scheduler=True, disable_admission=ADMISSION_OFF) as plane:
        started_s = time.monotonic()
        figures = run(plane, chosen, asked.number)
        took_s = time.monotonic() - started_s
    for difference in figures.differences:
        print(difference)
    print(f"{asked.case or f'seed {asked.seed}'}, {took_s:.0f} s: {figures}")
    return 1 if figures.contradicts else 0


if __name__ == "__main__":
    sys.exit(main())
