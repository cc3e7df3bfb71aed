"""Planning time beside reservations: `plan` for groups that are refused, with and without heads, in
the same run.

`python -m bench.heads [--repeat 11] [--part 1] [--json]`: 5,000 nodes with 20,000 pods, 8 heads of
100 whole nodes, and 50 groups that wait behind them. Medians in milliseconds, by the clock and of
the process; `--part 50` takes a fiftieth. `ratio` is to the same groups without reservations, whose
plans take turns with these: a busy machine slows both. Groups that are refused *again* are those of
which the state knows why they have no reservation; they are looked at once a minute, or when
something could help them. Of those refused *for the first time* the plan finds it out.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from msgspec import structs

from bench import plan as bench_plan
from bench.timing import timed_ms
from gangsched.core.cycle import plan
from gangsched.core.plan_cache import PlanCache
from gangsched.model.gang import Group
from gangsched.model.objects import Node, Shape
from gangsched.model.plan import Plan
from gangsched.model.reservation import (
    NotReserved,
    Occupant,
    ReservationLimits,
    Reserved,
    Reserving,
)
from gangsched.model.snapshot import Snapshot
from tests import builders

GIB = 2**30
LIMITS = ReservationLimits(per_namespace=8)
WHOLE = builders.shape(cpu_milli=64_000, memory_bytes=512 * GIB, gpus=8)
WHOLE_OF_POOL = replace(WHOLE, node_selector=(("pool", "full"),))
SMALL = builders.shape(cpu_milli=1_000, memory_bytes=GIB, gpus=1)
RUNNING = tuple(
    builders.shape(cpu_milli=cpu, memory_bytes=64 * GIB, gpus=2) for cpu in (8_000, 4_000)
)


def main(argv: Sequence[str] | None = None) -> None:
    """Time every case and print a line for each."""
    parser = argparse.ArgumentParser(description="What do reservations cost a plan?")
    parser.add_argument(
        "--repeat", type=int, default=11, help="plans per case; the median counts (default 11)"
    )
    parser.add_argument(
        "--part", type=int, default=1, help="divide nodes and pods by this (default 1)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object per case")
    asked = parser.parse_args(argv)
    if not asked.json:
        print(f"{'case':46} {'median':>9} {'cpu':>9} {'ratio':>7}   (milliseconds)")
    for figures in (*measure(asked.part, asked.repeat), *measure_placing(asked.part, asked.repeat)):
        row = "{case:46} {plan_ms:9.2f} {cpu_ms:9.2f} {ratio:7.2f}"
        print(json.dumps(figures) if asked.json else row.format_map(figures), flush=True)


def measure(part: int, repeat: int) -> list[Mapping[str, Any]]:
    """The figures of every case; each repetition has a snapshot and groups of its own, as after an
    event.
    """
    snapshot, occupants = full_cluster(5_000 // part)
    heads = [waiting(f"head{n}", 100 // part, since_s=n) for n in range(8)]
    caches: defaultdict[str, PlanCache] = defaultdict(PlanCache)  # by case

    def play(case: str, now: Snapshot, queue: Sequence[Group], **fields: Any) -> Plan:
        reserving = Reserving(limits=LIMITS, wall_s=0.0, occupants=lambda: occupants, **fields)
        return plan(now, queue, now_s=0.0, reserving=reserving, cache=caches[case])

    standing = reserved_for(heads, snapshot, lambda: occupants)
    stand = {"standing": standing, "waiting": tuple(heads)}
    two, all_of_them = (frozenset(each.group for each in standing[:count]) for count in (2, 8))
    alone, beside = (_causes(play("", snapshot, refused(), **each)) for each in ({}, stand))
    cases: dict[str, Mapping[str, Any] | None] = {
        "no reservations": None,
        "nobody is a head, refused again": {"known": alone},
        "nobody is a head, refused for the first time": {},
        "8 heads stand, refused again": {**stand, "known": beside},
        "8 heads stand, refused for the first time": stand,
        "8 heads stand, 2 are made anew": {**stand, "stale": two},
        "8 heads stand, 8 are stale": {**stand, "stale": all_of_them},
    }

    def work(case: str, now: Snapshot, others: Sequence[Group]) -> Plan:
        fields = cases[case]
        return plan(now, others, now_s=0.0) if fields is None else play(case, now, others, **fields)

    for case in cases:
        work(case, snapshot, refused())
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in cases}
    for _ in range(repeat):
        for case in cases:
            now, others = structs.replace(snapshot, free=snapshot.free.copy()), refused()
            times[case].append(timed_ms(partial(work, case, now, others)))
    cpu_ms = {name: statistics.median(cpu for _, cpu in each) for name, each in times.items()}
    wall_ms = {name: statistics.median(wall for wall, _ in each) for name, each in times.items()}
    plain_ms = max(cpu_ms["no reservations"], 1e-6)
    return [
        {
            "case": name,
            "plan_ms": wall_ms[name],
            "cpu_ms": cpu_ms[name],
            "ratio": cpu_ms[name] / plain_ms,
        }
        for name in cases
    ]


def measure_placing(part: int, repeat: int) -> list[Mapping[str, Any]]:
    """The figures of `bench.plan`'s groups, which are placed: without reservations, and beside 8
    heads that stand.
    """
    figures: list[Mapping[str, Any]] = []
    for case in (
        bench_plan.identical(part),
        bench_plan.ten_shapes(part),
        bench_plan.close_together(part),
    ):
        snapshot, occupants = full_cluster(
            1_600 // part, labels={"pool": "full"}, others=case.nodes
        )
        heads = [waiting(f"head{n}", 100 // part, since_s=n, kind=WHOLE_OF_POOL) for n in range(8)]
        fields: dict[str, Any] = {
            "limits": LIMITS,
            "wall_s": 0.0,
            "waiting": tuple(heads),
            "standing": reserved_for(heads, snapshot, partial(dict, occupants)),
            "occupants": lambda on=occupants: on,
        }
        cache, times = (
            PlanCache(),
            dict[str, list[tuple[float, float]]]({"": [], ", 8 heads stand": []}),
        )
        for turn in range(repeat + 1):
            for name, taken in times.items():
                now = structs.replace(snapshot, free=snapshot.free.copy())
                beside = Reserving(**fields) if name else None
                took = timed_ms(
                    partial(plan, now, [case.group], now_s=0.0, reserving=beside, cache=cache)
                )
                if turn:  # the first one computes what filters say of each node
                    taken.append(took)
        plain_ms = max(statistics.median(cpu for _, cpu in times[""]), 1e-6)
        for name, taken in times.items():
            wall_ms, cpu_ms = (statistics.median(each) for each in zip(*taken, strict=True))
            row = {
                "case": f"{case.name.partition(', ')[0]}{name}",
                "plan_ms": wall_ms,
                "cpu_ms": cpu_ms,
            }
            figures.append({**row, "ratio": cpu_ms / plain_ms})
    return figures


def reserved_for(
    heads: Sequence[Group], snapshot: Snapshot, occupants: Callable[[], Any]
) -> tuple[Reserved, ...]:
    """The reservations of all these heads, made in several plans: one does not have the work for
    all of them.
    """
    standing: tuple[Reserved, ...] = ()
    for _ in heads:
        reserving = Reserving(
            limits=LIMITS,
            wall_s=0.0,
            waiting=tuple(heads),
            standing=standing,
            occupants=occupants,
            made_at_most=len(heads),
        )
        made = plan(snapshot, heads, now_s=0.0, reserving=reserving).reservations
        standing = made.standing if made is not None else ()
    if len(standing) < len(heads):
        raise SystemExit("Every head was to have a reservation.")
    return standing


def _causes(made: Plan) -> Mapping[str, NotReserved]:
    """Why groups have no reservation, which the state tells the next plan for as long as it is
    true.
    """
    return {} if made.reservations is None else made.reservations.not_reserved


def refused() -> list[Group]:
    """Groups that find no room."""
    return [waiting(f"other{n}", 1, since_s=1_000 + n, kind=SMALL) for n in range(50)]


def full_cluster(
    size: int, *, labels: Mapping[str, str] | None = None, others: Sequence[Node] = ()
) -> tuple[Snapshot, dict[str, tuple[Occupant, ...]]]:
    """Nodes of 8 GPUs with four pods of 2 each, one pod in ten of unknown run time; `others` have
    none.
    """
    dice = random.Random(1)
    nodes = [
        builders.node(f"n{n:04}", cpu_milli=96_000, memory_bytes=768 * GIB, gpus=8, labels=labels)
        for n in range(size)
    ]
    occupants = {}
    for number, node in enumerate(nodes):
        pods = [
            builders.running(builders.pods(f"on{number}-{n}", RUNNING[n % 2], 1)[0], node.name)
            for n in range(4)
        ]
        ends_s = [math.inf if dice.random() < 0.1 else dice.uniform(1, 3 * 86_400) for _ in pods]
        occupants[node.name] = tuple(
            Occupant(pod, node.name, -1.0, end_s) for pod, end_s in zip(pods, ends_s, strict=True)
        )
    there = [(each.pod, each.node) for on_node in occupants.values() for each in on_node]
    return builders.snapshot([*nodes, *others], there), occupants


def waiting(name: str, pods: int, *, since_s: int, kind: Shape = WHOLE) -> Group:
    """A gang that waits since then; those of whole nodes are heads, the others are too young."""
    return builders.group(
        builders.gang(f"{name}/g", builders.pods(name, kind, pods)), creation_s=since_s
    )


if __name__ == "__main__":
    main()
