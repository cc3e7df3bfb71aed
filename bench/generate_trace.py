"""`python -m bench.generate_trace > bench/data/small_trace.csv`: the small trace, made at random.

It has the columns of the public traces and roughly their shape: most jobs small, running times
spread over orders of magnitude, arrivals in bursts. It has every common size from 1 to 16 GPUs.
"""

from __future__ import annotations

import argparse
import csv
import random
import sys
from datetime import datetime, timedelta

SIZES, WEIGHTS = (1, 2, 4, 8, 12, 16), (26, 22, 20, 16, 8, 8)
BEGIN = datetime(2025, 1, 6, 9)


def main() -> None:
    """Write the trace to standard output."""
    parser = argparse.ArgumentParser(prog="python -m bench.generate_trace")
    parser.add_argument("--jobs", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    rng = random.Random(asked.seed)
    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow(["timestamp", "duration", "num_gpus"])
    at = BEGIN
    for _ in range(asked.jobs):
        # Two of three jobs come right after the one before: people submit sweeps.
        at += timedelta(seconds=round(rng.expovariate(1 / (20 if rng.random() < 2 / 3 else 600))))
        duration_s = round(min(rng.lognormvariate(6.9, 1.2), 36_000.0), 1)
        out.writerow([at, duration_s, rng.choices(SIZES, WEIGHTS)[0]])


if __name__ == "__main__":
    main()
