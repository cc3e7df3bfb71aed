"""`python -m bench.backfill.generate > bench/data/backfill_trace.csv`: a small trace of nobody's
jobs, made by lot.

It has the columns of the Philly list and, in the rough, its statistics: which share of the jobs
asks for how many GPUs, how long those run (quantiles of each size class, log-linear between them),
arrivals in bursts. Arrivals are stretched so that the jobs keep `--load` of `--gpus` GPUs busy
while they come.
"""

from __future__ import annotations

import argparse
import csv
import math
import random
import sys
from collections.abc import Sequence
from datetime import datetime, timedelta

QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.0)
RUN_S = {
    1: (10, 57, 226, 1278, 2627, 8148, 17535, 115773, 400000),
    4: (5, 11, 21, 558, 44076, 151310, 207533, 350000, 400000),
    8: (20, 82, 565, 20456, 173209, 326704, 390000, 400000, 400000),
    32: (20, 40, 345, 22383, 110052, 231731, 308335, 350000, 400000),
}
"""Seconds that a job of up to so many GPUs runs, at each of QUANTILES."""
GAP_S = (0.5, 0.6, 2, 6, 29, 267, 540, 601, 1200)
SIZES = {1: 47578, 2: 887, 4: 1287, 8: 883, 12: 7, 16: 87, 24: 4, 32: 16}
"""How often a job asks for so many GPUs."""
BEGIN = datetime(2025, 1, 6)


def draw(values: Sequence[float], dice: random.Random) -> float:
    """A value by its quantiles, log-linear between them."""
    at = dice.random()
    high = next(index for index, quantile in enumerate(QUANTILES) if at < quantile)
    part = (at - QUANTILES[high - 1]) / (QUANTILES[high] - QUANTILES[high - 1])
    return math.exp((1 - part) * math.log(values[high - 1]) + part * math.log(values[high]))


def generate(*, jobs: int, gpus: int, load: float, seed: int) -> list[tuple[float, float, int]]:
    """(submitted, run time, GPUs) of each job, in seconds; sizes keep their shares exactly,
    whatever the dice say.
    """
    dice = random.Random(seed)
    total = sum(SIZES.values())
    sizes = [
        size for size, often in SIZES.items() for _ in range(max(1, round(often * jobs / total)))
    ]
    dice.shuffle(sizes)
    runs_s = [
        draw(next(values for most, values in RUN_S.items() if size <= most), dice) for size in sizes
    ]
    gaps = [draw(GAP_S, dice) for _ in sizes]
    stretch = (
        sum(size * run_s for size, run_s in zip(sizes, runs_s, strict=True))
        / (gpus * load)
        / sum(gaps)
    )
    at_s, rows = 0.0, []
    for size, run_s, gap in zip(sizes, runs_s, gaps, strict=True):
        at_s += gap * stretch
        rows.append((at_s, run_s, size))
    return rows


def main() -> None:
    """Write the trace to standard output."""
    parser = argparse.ArgumentParser(prog="python -m bench.backfill.generate")
    parser.add_argument("--jobs", type=int, default=4000)
    parser.add_argument("--gpus", type=int, default=96)
    parser.add_argument("--load", type=float, default=0.95)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow(["timestamp", "duration", "num_gpus"])
    for at_s, run_s, size in generate(
        jobs=asked.jobs, gpus=asked.gpus, load=asked.load, seed=asked.seed
    ):
        out.writerow([BEGIN + timedelta(seconds=round(at_s)), round(run_s), size])


if __name__ == "__main__":
    main()
