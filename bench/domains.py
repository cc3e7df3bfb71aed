"""Required topology: what plans cost that judge every domain, and what judging four of them would
find.

`python -m bench.domains [--repeat 11] [--demands 200] [--seed 33] [--part 1] [--json]` prints three
tables, times in milliseconds of the process, which collects garbage as the daemon does (`cold`: the
first plan of a process with these nodes; before each other one a node changed). Racks of which one
in N fits; whole clusters of 5,000 and 15,000 nodes; and racks that all differ, with gangs of three
shapes at the edge of what sums allow in any rack. Those may take several plans; `next` is the first
plan of another gang of the same kind. `four` counts the gangs that would start if only the four
racks of least room were searched. `--part 10` takes a tenth of the racks.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from msgspec import structs

from bench.plan import Case
from bench.timing import timed_ms
from gangsched.core.cycle import plan
from gangsched.core.placement_attempt import PlacementAttempt
from gangsched.core.reserve import Ledger
from gangsched.core.search.demand import Demand
from gangsched.core.search.domains import Domains
from gangsched.core.search.facts import packed
from gangsched.daemon import GC_THRESHOLDS
from gangsched.model.gang import Gang, Group
from gangsched.model.gpu_policy import PlacementConstraints, SliceLayer
from gangsched.model.objects import Node, Shape
from gangsched.model.plan import Plan
from gangsched.model.reasons import Reason
from gangsched.model.resources import CPU
from gangsched.model.snapshot import Snapshot
from gangsched.sentences import say
from tests import builders

RACK, ZONE = "topology.kubernetes.io/rack", "topology.kubernetes.io/zone"
GIB = 2**30
ZONES, SLICE = 5, 4
FOUR = 4
MOST_PLANS = 50
Figures = Mapping[str, str | int | float]


def main(argv: Sequence[str] | None = None) -> None:
    """Print the tables, or a JSON object a row."""
    parser = argparse.ArgumentParser(description="What does it cost to judge every domain?")
    parser.add_argument(
        "--repeat", type=int, default=11, help="plans per case; the median counts (default 11)"
    )
    parser.add_argument(
        "--demands", type=int, default=200, help="gangs on racks that all differ (default 200)"
    )
    parser.add_argument("--seed", type=int, default=33)
    parser.add_argument("--part", type=int, default=1, help="divide racks by this (default 1)")
    parser.add_argument("--json", action="store_true", help="print one JSON object per case")
    asked = parser.parse_args(argv)
    gc.set_threshold(*GC_THRESHOLDS)
    tables: list[tuple[str, Iterator[Figures]]] = [
        ("{case:52} {plan_ms:7.2f} {cold_ms:7.2f} {goal_ms:7.0f}", small(asked.part, asked.repeat)),
        ("{case:52} {plan_ms:7.2f} {cold_ms:7.2f} {goal_ms:7.0f}", large(asked.part, asked.repeat)),
        (
            (
                "{case:34} {demands:7} {start:6} {four:5} {most_plans:6} {goal_plans:5}"
                " {longest_ms:8.2f} {p99_ms:7.2f} {first_ms:7.2f} {next_ms:7.2f}"
                " {next_most_ms:10.2f}"
            ),
            different(asked.part, asked.demands, asked.seed),
        ),
    ]
    heads = [
        f"{'case':52} {'median':>7} {'cold':>7} {'goal':>7}",
        "",
        (
            f"seed {asked.seed}\n{'case':34} {'demands':>7} {'start':>6} {'four':>5} {'plans':>6}"
            f" {'goal':>5} {'longest':>8} {'99th':>7} {'median':>7} {'next':>7} {'next, most':>10}"
        ),
    ]
    for (row, cases), head in zip(tables, heads, strict=True):
        if head and not asked.json:
            print(head, flush=True)
        for figures in cases:
            print(json.dumps(figures) if asked.json else row.format_map(figures), flush=True)


# --- one rack in N, and whole clusters ----------------------------------------------------------


def small(part: int, repeat: int) -> Iterator[Figures]:
    """Two pods of 8 GPUs and one of 1 fit into the one rack of three nodes beside N of two."""
    for racks in (2, 10, 50, 100, 250, 500):
        nodes = [node for n in range(max(2, racks // part)) for node in rack(f"r{n:03}", [8, 8])]
        group = builders.group(gang("ns/g", [(whole(8), 2), (whole(1), 1)]))
        yield measure(
            Case(f"1 of {racks} racks fits", [*nodes, *rack("x", [8, 8, 8])], group, 2.0), repeat
        )


def large(part: int, repeat: int) -> Iterator[Figures]:
    """Every domain of a large cluster is judged."""
    for racks, refuse_ms, place_ms in ((500, 1.0, 10.0), (1_500, 2.0, 15.0)):
        number = racks // part
        nodes = [
            node
            for n in range(number)
            for node in rack(f"r{n:04}", [8] * 10, f"z{n * ZONES // number}")
        ]
        over = f"{number * 10:,} nodes, {number:,} racks"
        for counts in ([(whole(8), 11)], [(whole(8), 10), (whole(1), 1)]):
            refused = builders.group(gang("ns/g", counts))
            kinds = "1 shape" if len(counts) == 1 else "2 shapes"
            yield measure(
                Case(f"{over}: refuse, {kinds}", nodes, refused, refuse_ms, starts=False), repeat
            )
        three = builders.group(gang("ns/g", [(whole(8), 6), (whole(5), 2), (whole(3), 3)]))
        yield measure(Case(f"{over}: 3 shapes in a rack", nodes, three, place_ms), repeat)
        slices = min(64, number // ZONES * (10 // SLICE))
        sliced = builders.group(in_slices(slices))
        yield measure(Case(f"{over}: {slices} slices in a zone", nodes, sliced, place_ms), repeat)


def measure(case: Case, repeat: int) -> Figures:
    """The figures of one case; a plan that decides otherwise is an error, not a figure."""
    first = builders.snapshot(case.nodes)
    cold_ms = decide(first, case)
    times = [decide(changed(first, number), case) for number in range(repeat)]
    return {
        "case": case.name,
        "plan_ms": statistics.median(times),
        "cold_ms": cold_ms,
        "goal_ms": case.goal_ms,
    }


def decide(snapshot: Snapshot, case: Case) -> float:
    """Milliseconds of one plan, which decides the group."""
    made: list[Plan] = []
    _, took_ms = timed_ms(lambda: made.append(plan(snapshot, [case.group], now_s=0.0)))
    (verdict,) = made[0].verdicts
    if (verdict.reason is Reason.SCHEDULED) is not case.starts:
        raise SystemExit(f"{case.name}: {say(verdict.told).text}")
    return took_ms


# --- racks that all differ ----------------------------------------------------------------------


@dataclass(slots=True)
class Decisions:
    """What came of gangs on one cluster, in milliseconds of plans."""

    plans: list[int]
    first_ms: list[float]
    plan_ms: list[float]
    next_ms: list[float]
    start: int = 0
    four: int = 0


def different(part: int, demands: int, seed: int) -> Iterator[Figures]:
    """Racks that all differ, and gangs of three shapes that sums allow in some of them."""
    for racks, size, goal in ((500, 10, 5), (250, 18, 12)):
        for names in (("gpu",), ("cpu", "gpu")):
            rng = random.Random(seed)
            snapshot = builders.snapshot(fragmented(rng, racks // part, size, names))
            gc.collect()
            gc.freeze()
            drawn = edge_demands(rng, snapshot, size, names, max(2, demands // part))
            made = decisions(snapshot, drawn)
            resources = "GPUs" if len(names) == 1 else "CPUs and GPUs"
            yield {
                "case": f"{racks // part} racks of {size}, {resources}",
                "demands": len(made.plans),
                "start": made.start,
                "four": made.four,
                "most_plans": max(made.plans),
                "goal_plans": goal,
                "longest_ms": max(made.plan_ms),
                "p99_ms": float(np.percentile(made.plan_ms, 99)),
                "first_ms": statistics.median(made.first_ms),
                "next_ms": statistics.median(made.next_ms),
                "next_most_ms": max(made.next_ms),
            }


def fragmented(rng: random.Random, racks: int, size: int, names: Sequence[str]) -> list[Node]:
    """Racks of nodes of which a random part is free."""
    found = []
    for n in range(racks):
        for i in range(size):
            cpus = rng.randint(8, 64) if "cpu" in names else 256
            found.append(
                builders.node(
                    f"r{n:03}-{i}",
                    rng.randint(1, 8),
                    cpu_milli=cpus * 1_000,
                    labels={RACK: f"r{n:03}", ZONE: "z"},
                )
            )
    return found


def edge_demands(
    rng: random.Random, snapshot: Snapshot, size: int, names: Sequence[str], number: int
) -> Iterator[list[tuple[Shape, int]]]:
    """Three shapes each, and as many pods of them, in a random mix, as sums allow in any rack, or
    one or two fewer.
    """
    found = 0
    while found < number:
        shapes = [
            whole(gpus, rng.randint(1, 24) if "cpu" in names else 1)
            for gpus in rng.sample(range(1, 8), 3)
        ]
        mix = rng.choices(shapes, [rng.random() for _ in shapes], k=8 * size)
        low, high = 3, len(mix)
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if allowed(snapshot, mix[:middle]) else (low, middle - 1)
        pods = mix[: low - rng.choice((0, 0, 1, 2))]
        counts = [(each, pods.count(each)) for each in shapes]
        if all(count for _, count in counts) and allowed(snapshot, pods):
            found += 1
            yield counts


def allowed(snapshot: Snapshot, pods: Sequence[Shape]) -> bool:
    """Whether sums leave room for these pods in any rack."""
    group = builders.group(gang("ns/g", [(each, pods.count(each)) for each in dict.fromkeys(pods)]))
    domains = Domains.required(group, snapshot.table)
    assert domains is not None
    enough, _ = domains.judge(Demand.of(group.gangs, PlacementAttempt(group, Ledger(snapshot))))
    return bool(enough.any())


def decisions(snapshot: Snapshot, drawn: Iterator[list[tuple[Shape, int]]]) -> Decisions:
    """What becomes of two gangs of each kind, one after the other, nobody starting."""
    made = Decisions([], [], [], [])
    for number, counts in enumerate(drawn):
        group = builders.group(gang(f"ns/g{number}", counts))
        is_started, times = until_decided(again(snapshot), group)
        made.start += is_started
        made.four += of_four(again(snapshot), group)
        made.plans.append(len(times))
        made.plan_ms += times
        made.first_ms.append(times[0])
        other = builders.group(gang(f"ns/h{number}", counts))
        as_before, times = until_decided(again(snapshot), other)
        if as_before is not is_started or len(times) > 1:
            raise SystemExit(
                f"The second gang of a kind was decided otherwise, or in {len(times)} plans:"
                f" {counts}"
            )
        made.next_ms += times
    return made


def until_decided(snapshot: Snapshot, group: Group) -> tuple[bool, list[float]]:
    """Whether the group starts, and the milliseconds of each plan until that was decided."""
    times: list[float] = []
    unfinished = None
    while len(times) < MOST_PLANS:
        made: list[Plan] = []
        now, before = again(snapshot), unfinished
        work: Callable[[], None] = lambda: made.append(  # noqa: B023, E731
            plan(now, [group], now_s=0.0, unfinished=before)  # noqa: B023
        )
        times.append(timed_ms(work)[1])
        if made[0].verdicts:
            return made[0].verdicts[0].reason is Reason.SCHEDULED, times
        unfinished = made[0].unfinished
    raise SystemExit(f"{group.id} was not decided in {MOST_PLANS} plans.")


def of_four(snapshot: Snapshot, group: Group) -> bool:
    """Whether one of the four racks with the least room that is enough for each shape by itself
    holds the group.
    """
    demand = Demand.of(group.gangs, PlacementAttempt(group, Ledger(snapshot)))
    domains = Domains.required(group, snapshot.table)
    assert domains is not None
    rooms = [domains.level.sums(room) for room in demand.room]
    enough = np.logical_and.reduce(
        [sums >= len(item.pods) for sums, item in zip(rooms, demand.items, strict=True)]
    )
    tried = domains.order(np.flatnonzero(enough), demand)[:FOUR]
    return any(
        packed(demand.problem(None, domains.scope(n)), demand.ledger) is not None for n in tried
    )


# --- what both are made of ----------------------------------------------------------------------


def rack(name: str, gpus: Sequence[int], zone: str = "z") -> list[Node]:
    """One node of each of these numbers of GPUs."""
    labels = {RACK: name, ZONE: zone}
    return [
        builders.node(f"{name}-{n}", each, cpu_milli=96_000, labels=labels)
        for n, each in enumerate(gpus)
    ]


def gang(name: str, counts: Sequence[tuple[Shape, int]]) -> Gang:
    """So many pods of each shape, all needed, in one rack."""
    members = [
        pod for n, (of, count) in enumerate(counts) for pod in builders.pods(f"s{n}", of, count)
    ]
    return structs.replace(
        builders.gang(name, members), constraints=PlacementConstraints(topology=(RACK,))
    )


def in_slices(number: int) -> Gang:
    """So many slices of 8-GPU pods, each in one rack, all in one zone."""
    constraints = PlacementConstraints(topology=(ZONE,), slices=(SliceLayer(SLICE, RACK),))
    return structs.replace(gang("ns/g", [(whole(8), number * SLICE)]), constraints=constraints)


def whole(gpus: int, cpus: int = 1) -> Shape:
    """A pod of so many GPUs and CPUs."""
    return builders.shape(gpus, cpu_milli=cpus * 1_000)


def changed(snapshot: Snapshot, number: int) -> Snapshot:
    """The same nodes, of which one has a little less room, as after an event."""
    made = again(snapshot)
    made.free[snapshot.resources[CPU], number * 7 % len(snapshot.table)] -= 1
    return made


def again(snapshot: Snapshot) -> Snapshot:
    """The same nodes and the same room."""
    return Snapshot(snapshot.table, snapshot.resources, snapshot.allocatable, snapshot.free.copy())


if __name__ == "__main__":
    main()
