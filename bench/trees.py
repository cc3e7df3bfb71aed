"""Trees beside flat gangs: what it costs the loop to start the same pods as gangs of gangs.

`python -m bench.trees [--part 1] [--repeat 3] [--json]` runs the loop in this process, as
`bench.waiting` does: 5,000 empty nodes of 8 GPUs, and all pods come at once. Each case is played as
trees of two gangs, both of which must start, and as the same gangs without a parent, in turn. CPU
milliseconds of all turns until every pod is bound, medians of `repeat`; `ratio` is trees over flat
gangs, whose goal is 1.1. What it does *not* show: decoding, and what is written.
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

import structlog

from bench.waiting import Daemon
from gangsched.api import keys
from gangsched.daemon import GC_THRESHOLDS
from gangsched.model.objects import Pod
from gangsched.model.protocol import Applied
from tests import builders

NODES, GPUS, CHILDREN = 5_000, 8, 2
GOAL = 1.1
CASES = ((500, 3), (1_500, 3), (3, 500))
"""Numbers of trees, and members of each of their gangs."""


@dataclass(frozen=True, slots=True)
class Result:
    """One case: CPU milliseconds of the loop, and the longest turn of the trees."""

    trees: int
    members: int
    trees_ms: float
    flat_ms: float
    ratio: float
    longest_turn_ms: float


def pods_of(trees: int, members: int, *, is_flat: bool) -> Iterator[Pod]:
    """The members of all gangs, of one GPU each."""
    of = builders.shape(1, 1_000)
    for number in range(trees):
        parent = (
            ()
            if is_flat
            else ((keys.MIN_CHILDREN[0], str(CHILDREN)), (keys.PARENT[0], f"t{number:04}"))
        )
        for child in range(CHILDREN):
            name = f"t{number:04}-{child}"
            notes = (*builders.gang_metadata(name, min_member=members), *parent)
            for index in range(members):
                yield builders.pod(
                    f"{name}-{index}",
                    of=of,
                    namespace="trees",
                    gang_metadata=notes,
                    creation_s=number,
                )


def played(trees: int, members: int, *, is_flat: bool) -> tuple[float, float]:
    """CPU milliseconds until all are bound, and of the longest turn."""
    daemon = Daemon()
    daemon.say(*(Applied(builders.node(f"n{number:04}", GPUS)) for number in range(NODES)))
    daemon.rest()
    gc.collect()
    gc.freeze()
    daemon.longest_ms = 0.0
    pods = list(pods_of(trees, members, is_flat=is_flat))
    daemon.create(*pods)
    took_ms = daemon.rest()
    assert len(daemon.bound) == len(pods), f"{len(daemon.bound)} of {len(pods)} pods were bound"
    return took_ms, daemon.longest_ms


def measure(trees: int, members: int, repeat: int) -> Result:
    """One case, as trees and flat in turn."""
    times = [
        [played(trees, members, is_flat=is_flat) for is_flat in (False, True)]
        for _ in range(repeat)
    ]
    trees_ms, flat_ms = (
        statistics.median(each[0] for each in column) for column in zip(*times, strict=True)
    )
    longest_ms = min(as_trees[1] for as_trees, _ in times)
    return Result(
        trees,
        members,
        round(trees_ms, 1),
        round(flat_ms, 1),
        round(trees_ms / flat_ms, 3),
        longest_ms,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; exit code 1 when the goal is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--part", type=int, default=1, help="divide the number of trees by this (default 1)"
    )
    parser.add_argument(
        "--repeat", type=int, default=3, help="plays of each form; the median counts (default 3)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object a case")
    asked = parser.parse_args(arguments)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    gc.set_threshold(*GC_THRESHOLDS)
    missed = False
    for trees, members in CASES:
        result = measure(max(1, trees // asked.part), members, asked.repeat)
        missed = missed or result.ratio > GOAL
        print(json.dumps(asdict(result)) if asked.json else result, flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
