"""Packing: how many GPUs are in use when large gangs stop fitting? Against three baselines, on two
public traces.

`python -m bench.packing --openb NODES.csv PODS.csv --philly JOBS.csv [--seeds 10] [--misses 1]
[--json]`; a trace whose file is absent is skipped with a message. Arrivals are drawn from the trace
with replacement, in an order that depends on the seed only. Every policy places gangs whole or not
at all and agrees on what fits; only the choice of nodes differs. Two questions are asked:

- *Filling up*: nothing ever leaves. What does not fit is refused, until `--misses` gangs of exactly
  8 GPUs have been; counted are the GPUs that are allocated then.
- *Coming and going*: as much arrives as the cluster could just serve, and gangs run for a random
  time (exponential, whatever their size). What does not fit is refused. Counted are the GPUs that
  are allocated on average, and the gangs of 8 GPUs or more that are refused, after a start as long
  as the part that counts.

The baselines choose pod by pod:

- `least-allocated`: kube-scheduler's default scores for resources, LeastAllocated and
  BalancedAllocation of cpu and memory at equal weights; ties, as there, at random;
- `best-fit`: the node with the fewest GPUs left over; `first-fit`: the first node. Ties go by name.

openb (Alibaba, Weng et al., USENIX ATC'23): its GPU nodes; its pods that ask for whole GPUs, each a
gang of its own. Philly (Microsoft, Jeon et al., USENIX ATC'19): the list has no nodes and no
requests but GPUs. Assumed are 231 nodes of 8 GPUs and 321 of 2 (2,490 in all, as the paper counts),
8 CPUs and 64 GiB to a GPU; jobs above 8 GPUs are gangs of 8-GPU pods, the last one with what
remains.
"""

from __future__ import annotations

import argparse
import csv
import heapq
import json
import random
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from gangsched.core.reserve import Ledger
from gangsched.core.rounds import run_round
from gangsched.model.objects import Node, Shape
from gangsched.model.plan import RoundOutcome
from gangsched.model.resources import CPU, MEMORY
from gangsched.model.snapshot import Ints, Snapshot
from tests import builders

GIB = 2**30
LARGE = 8
"""GPUs of the gangs whose refusal ends a run; the least that counts as a large gang."""
LIFETIMES = 4
"""Mean running times that the counted part of coming and going lasts."""

Arrival = tuple[Shape, ...]
Pick = Callable[[Shape, Ints, Ledger, random.Random], int]
Placed = list[tuple[Shape, str]]
Place = Callable[[Arrival, Ledger, random.Random], Placed | None]


@dataclass(frozen=True, slots=True)
class Trace:
    """A cluster and the arrivals to draw from; a shape is one object however often it occurs."""

    name: str
    nodes: tuple[Node, ...]
    arrivals: tuple[Arrival, ...]


def main(argv: Sequence[str] | None = None) -> None:
    """Run every policy on every trace that is there and print a table of means."""
    parser = argparse.ArgumentParser(
        description="How many GPUs are in use when large gangs stop fitting?"
    )
    parser.add_argument(
        "--openb", nargs=2, type=Path, metavar=("NODES", "PODS"), help="two CSV files of the trace"
    )
    parser.add_argument(
        "--philly", type=Path, metavar="JOBS", help="CSV file with a column num_gpus"
    )
    parser.add_argument("--seeds", type=int, default=10, help="runs per policy (default 10)")
    parser.add_argument(
        "--misses",
        type=int,
        default=1,
        help="8-GPU gangs turned away before a run ends (default 1)",
    )
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object per trace and policy"
    )
    arguments = parser.parse_args(argv)
    for name, files, read in (
        ("openb", arguments.openb, openb),
        ("philly", [arguments.philly] if arguments.philly else None, philly),
    ):
        if not files or not all(file.is_file() for file in files):
            print(f"The {name} trace is not there (--{name}); skipped.")
            continue
        report(read(*files), seeds=arguments.seeds, misses=arguments.misses, as_json=arguments.json)


def report(trace: Trace, *, seeds: int, misses: int, as_json: bool) -> None:
    """Print the means over all seeds for each policy."""
    total = sum(dict(node.allocatable).get(builders.GPU, 0) for node in trace.nodes)
    for policy, place in POLICIES.items():
        filled = [fill(trace, place, seed=seed, misses=misses) for seed in range(1, seeds + 1)]
        churned = [churn(trace, place, seed=seed) for seed in range(1, seeds + 1)]
        figures = {
            "trace": trace.name,
            "policy": policy,
            "gpus": total,
            "filled_gpus": statistics.mean(filled),
            "filled_percent": 100 * statistics.mean(filled) / total,
            "least": min(filled),
            "most": max(filled),
            "churn_gpus": statistics.mean(gpus for gpus, _ in churned),
            "churn_turned_away_percent": 100 * statistics.mean(share for _, share in churned),
        }
        text = (
            "{trace:7} {policy:16} filled {filled_gpus:7.1f} of {gpus} ({filled_percent:5.2f} %,"
            " {least}-{most})   coming and going {churn_gpus:7.1f}, large gangs turned away"
            " {churn_turned_away_percent:5.2f} %"
        )
        print(json.dumps(figures) if as_json else text.format_map(figures), flush=True)


def fill(trace: Trace, place: Place, *, seed: int, misses: int) -> int:
    """GPUs allocated when the `misses`-th gang of 8 GPUs is turned away."""
    draws, inter_pod = random.Random(seed), random.Random(-seed)
    ledger = builders.ledger(trace.nodes)
    used = 0
    while misses:
        arrival = draws.choice(trace.arrivals)
        if place(arrival, ledger, inter_pod) is not None:
            used += size(arrival)
        elif size(arrival) == LARGE:
            misses -= 1
    return used


def churn(trace: Trace, place: Place, *, seed: int) -> tuple[float, float]:
    """GPUs allocated on average, and the share of gangs of 8 GPUs or more turned away, while gangs
    come and go.

    The unit of time is the mean running time. Half of the arrivals only bring the cluster into its
    usual state.
    """
    draws, inter_pod = random.Random(seed), random.Random(-seed)
    ledger = builders.ledger(trace.nodes)
    total = sum(dict(node.allocatable).get(builders.GPU, 0) for node in trace.nodes)
    rate = total / statistics.mean(map(size, trace.arrivals))
    now, used, area, counted_from = 0.0, 0, 0.0, 0.0
    large, away = 0, 0
    running: list[tuple[float, int, Placed]] = []
    arrivals = round(2 * LIFETIMES * rate)
    for number in range(arrivals):
        arrival, then = draws.choice(trace.arrivals), now + draws.expovariate(rate)
        ends = then + draws.expovariate(1.0)
        if number == arrivals // 2:
            area, counted_from, large, away = 0.0, now, 0, 0
        while running and running[0][0] <= then:
            over, _, gone = heapq.heappop(running)
            area, now = area + used * (over - now), over
            for shape, node in gone:
                ledger.release(builders.pods("p", shape, 1)[0], node)
                used -= gpus(shape)
        area, now = area + used * (then - now), then
        placed = place(arrival, ledger, inter_pod)
        large += size(arrival) >= LARGE
        if placed is None:
            away += size(arrival) >= LARGE
        else:
            used += size(arrival)
            heapq.heappush(running, (ends, number, placed))
    return area / (now - counted_from), away / large


def size(arrival: Arrival) -> int:
    """GPUs that a gang asks for in all."""
    return sum(map(gpus, arrival))


def gpus(shape: Shape) -> int:
    """GPUs that one pod asks for."""
    return dict(shape.requests).get(builders.GPU, 0)


# --- policies -----------------------------------------------------------------------------------


def gangsched(arrival: Arrival, ledger: Ledger, _: random.Random) -> Placed | None:
    """What the scheduler does with one Strict gang, in a plan of its own."""
    members = [
        pod for number, shape in enumerate(arrival) for pod in builders.pods(f"p{number}", shape, 1)
    ]
    gang = builders.gang("ns/g", members)
    now = Snapshot(ledger.table, ledger.resources, ledger.allocatable, ledger.free)
    trial, round_ = run_round(builders.group(gang), [gang], Ledger(now))
    if round_.outcome is not RoundOutcome.PERMITTED:
        return None
    for placement in trial.placements:
        ledger.reserve(
            (placement.pod,), np.array([ledger.table.index[placement.node]]), np.array([1])
        )
    return [(placement.pod.shape, placement.node) for placement in trial.placements]


def one_by_one(
    pick: Pick, arrival: Arrival, ledger: Ledger, inter_pod: random.Random
) -> Placed | None:
    """Place a gang pod by pod, or not at all."""
    checkpoint = ledger.checkpoint()
    placed = []
    for shape in arrival:
        feasible = np.flatnonzero(ledger.room(shape))
        if not feasible.size:
            ledger.rollback(checkpoint)
            return None
        node = pick(shape, feasible, ledger, inter_pod)
        ledger.reserve(builders.pods("p", shape, 1), np.array([node]), np.array([1]))
        placed.append((shape, ledger.table.names[node]))
    return placed


def least_allocated(shape: Shape, feasible: Ints, ledger: Ledger, inter_pod: random.Random) -> int:
    """kube-scheduler: 100 x the free share after placing, its mean over cpu and memory, plus 100 x
    (1 - deviation).
    """
    asked = dict(shape.requests)
    shares = []
    for name in (CPU, MEMORY):
        row = ledger.resources[name]
        shares.append(
            (ledger.free[row, feasible] - asked.get(name, 0)) / ledger.allocatable[row, feasible]
        )
    least = np.floor(50 * (shares[0] + shares[1]))
    balanced = np.floor(100 * (1 - np.abs(shares[0] - shares[1]) / 2))
    best = np.flatnonzero((least + balanced) == (least + balanced).max())
    return int(feasible[inter_pod.choice(best.tolist())])


def best_fit(_: Shape, feasible: Ints, ledger: Ledger, __: random.Random) -> int:
    """The fewest GPUs left over; the first such node."""
    return int(feasible[np.argmin(ledger.free[ledger.resources[builders.GPU], feasible])])


def first_fit(_: Shape, feasible: Ints, __: Ledger, ___: random.Random) -> int:
    """The first node."""
    return int(feasible[0])


POLICIES: Mapping[str, Place] = {
    "gangsched": gangsched,
    "best-fit": partial(one_by_one, best_fit),
    "first-fit": partial(one_by_one, first_fit),
    "least-allocated": partial(one_by_one, least_allocated),
}


# --- traces -------------------------------------------------------------------------------------


def openb(nodes: Path, pods: Path) -> Trace:
    """GPU nodes and whole-GPU pods of the openb trace."""
    made = tuple(
        builders.node(
            row["sn"],
            cpu_milli=int(row["cpu_milli"]),
            memory_bytes=int(row["memory_mib"]) * 2**20,
            gpus=int(row["gpu"]),
            pods=256,
        )
        for row in rows(nodes)
    )
    shapes: dict[tuple[int, int, int], Shape] = {}
    arrivals = []
    for row in rows(pods):
        cpu, memory, gpu = (
            int(row["cpu_milli"]),
            int(row["memory_mib"]) * 2**20,
            int(row["num_gpu"]),
        )
        if gpu and int(row["gpu_milli"]) == 1000:
            shape = shapes.setdefault(
                (cpu, memory, gpu), builders.shape(cpu_milli=cpu, memory_bytes=memory, gpus=gpu)
            )
            arrivals.append((shape,))
    return Trace("openb", made, tuple(arrivals))


PHILLY_GPUS = (8,) * 231 + (2,) * 321
"""Of each node of the assumed cluster."""


def philly(jobs: Path) -> Trace:
    """Jobs of the Philly trace on the assumed cluster."""
    made = tuple(
        builders.node(
            f"node-{n:03}", cpu_milli=8_000 * size, memory_bytes=64 * GIB * size, gpus=size
        )
        for n, size in enumerate(PHILLY_GPUS)
    )
    shapes = {
        size: builders.shape(cpu_milli=8_000 * size, memory_bytes=64 * GIB * size, gpus=size)
        for size in range(1, 9)
    }
    arrivals = []
    for row in rows(jobs):
        whole, rest = divmod(int(row["num_gpus"]), 8)
        arrivals.append((shapes[8],) * whole + ((shapes[rest],) if rest else ()))
    return Trace("philly", made, tuple(arrivals))


def rows(file: Path) -> Iterator[Mapping[str, str]]:
    """The rows of a CSV file by column name."""
    with file.open(newline="", encoding="utf-8") as lines:
        yield from csv.DictReader(lines)


if __name__ == "__main__":
    main()
