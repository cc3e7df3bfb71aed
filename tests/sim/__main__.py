"""Play histories: `python -m tests.sim --seeds 200 --first 0`, or one with all that happens in it:
`--show 17`.

Exit status 1 when something that must hold did not. Hashes of texts have to be the same in every
run, so Python is started again with PYTHONHASHSEED=0 if it was not.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from tests.sim.play import Manner, Tally, play

TOLD_EVERY = 250
BATCHES_PER_PROCESS = 8
"""Garbage is collected by hand, so that a process grows with what it plays."""


def main() -> int:
    """Parse, play, and tell in one line."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many histories")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--workers", type=int, default=2, help="processes")
    parser.add_argument("--show", type=int, help="play one seed and print its trace")
    parser.add_argument(
        "--twice", action="store_true", help="play each seed twice and compare the traces"
    )
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        help="what may go wrong, and nothing else; see trouble/",
    )
    parser.add_argument(
        "--replicas", type=int, default=0, help="how many instances; else it is drawn"
    )
    parser.add_argument("--trees", action="store_true", help="every other gang is a tree of gangs")
    parser.add_argument(
        "--planted", action="store_true", help="functions of the product raise now and then"
    )
    parser.add_argument("--until-first", action="store_true", help="end at the first violation")
    parser.add_argument(
        "--minutes",
        type=float,
        default=float("inf"),
        help="end after this time, whatever is played",
    )
    parser.add_argument(
        "--batch", type=int, default=25, help="seeds that a process plays before it tells of them"
    )
    asked = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.execve(
            sys.executable,
            [sys.executable, "-m", "tests.sim", *sys.argv[1:]],
            {**os.environ, "PYTHONHASHSEED": "0"},
        )
    manner = Manner(asked.twice, frozenset(asked.only), asked.replicas, asked.trees, asked.planted)
    if asked.show is not None:
        return play([asked.show], manner, sys.stdout).tell()
    began_s = time.monotonic()
    seeds = range(asked.first, asked.first + asked.seeds)
    batches = [
        list(seeds[start : start + asked.batch]) for start in range(0, len(seeds), asked.batch)
    ]
    total = Tally()
    for tally in played(batches, manner, asked.workers):
        for line in tally.violations:
            print(line, flush=True)
        total += tally
        if total.seeds % TOLD_EVERY == 0:
            total.tell_how_far()
        is_late = time.monotonic() - began_s > asked.minutes * 60
        if is_late or (asked.until_first and total.violations):
            break
    return total.tell(time.monotonic() - began_s)


def played(batches: list[list[int]], manner: Manner, workers: int) -> Iterator[Tally]:
    """What came of each batch, in order; one worker is this process itself."""
    if workers == 1:
        for batch in batches:
            yield play(batch, manner)
        return
    share = workers * BATCHES_PER_PROCESS
    for start in range(0, len(batches), share):
        # New processes for each share: a pool that renews its workers itself
        # (`max_tasks_per_child`) may wait for ever.
        with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
            try:
                yield from pool.map(
                    play, part := batches[start : start + share], [manner] * len(part)
                )
            finally:
                pool.shutdown(cancel_futures=True)


if __name__ == "__main__":
    sys.exit(main())
