"""Planning time: `plan` on large clusters, beside a naive loop over every node for every pod in the
same run.

The last lines are of plans that preempt (`bench.preemption`).

`python -m bench.plan [--repeat 11] [--part 1] [--json]` prints medians in milliseconds; `--part 50`
takes a fiftieth of the pods and nodes, for which the goals are not meant. A repetition plans on a
new snapshot of the same nodes, as the daemon does, and another one while the work of one plan is
not enough; `cold` is the first repetition, which also computes what filters say of each node. `cpu`
is the median of the process's own time, for machines that are busy with other things.

The naive loop answers the same question (each pod gets the feasible node with the least left over)
without columns, shapes or memory; it says what the arrangement is worth, not how any other
scheduler performs.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from msgspec import structs

from bench import preemption
from bench.timing import timed_ms
from gangsched.core.cycle import plan
from gangsched.model.gang import Group
from gangsched.model.gpu_policy import PRODUCT_LABEL, TOPOLOGY_KEYS
from gangsched.model.inter_pod import InterPodConstraints, PodTerm, Requirement, selects
from gangsched.model.objects import Node, Pod, Shape
from gangsched.model.reasons import Reason
from gangsched.model.snapshot import NodeTable, Snapshot
from gangsched.sentences import say
from tests import builders

GIB = 2**30
HOSTNAME = "kubernetes.io/hostname"
CLIQUE, _, ZONE = TOPOLOGY_KEYS


@dataclass(frozen=True, slots=True)
class Case:
    """Nodes, one group, and the most milliseconds that planning it may take; `starts` is what must
    become of it.
    """

    name: str
    nodes: Sequence[Node]
    group: Group
    goal_ms: float
    starts: bool = True


def main(argv: Sequence[str] | None = None) -> None:
    """Time every case and print a line for each."""
    parser = argparse.ArgumentParser(
        description="How long does planning take, and how long would a naive loop?"
    )
    parser.add_argument(
        "--repeat", type=int, default=11, help="plans per case; the median counts (default 11)"
    )
    parser.add_argument(
        "--part", type=int, default=1, help="divide pods and nodes by this (default 1)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object per case")
    arguments = parser.parse_args(argv)
    if not arguments.json:
        print(
            f"{'case':46} {'median':>9} {'cpu':>9} {'cold':>9} {'goal':>7} {'naive':>10}  "
            " (milliseconds)"
        )
    for case in (identical, ten_shapes, apart, close_together):
        figures = measure(case(arguments.part), repeat=arguments.repeat)
        if arguments.json:
            print(json.dumps(figures), flush=True)
        else:
            row = (
                "{case:46} {plan_ms:9.2f} {plan_cpu_ms:9.2f} {cold_ms:9.2f} {goal_ms:7.0f}"
                " {naive_ms:10.0f}"
            )
            print(row.format_map(figures), flush=True)
    rows = (
        (False, "", False),
        (True, "", False),
        (False, preemption.ZONE, False),
        (False, preemption.RACK, False),
    )
    for gangs, level, sliced in (*rows, (False, preemption.RACK, True)):
        crowd = preemption.Crowd.of(arguments.part, gangs=gangs, level=level, sliced=sliced)
        figures = preemption.measure(crowd, repeat=arguments.repeat)
        if arguments.json:
            print(json.dumps(figures), flush=True)
        else:
            row = (
                "{case:46} {plan_ms:9.2f} {plan_cpu_ms:9.2f} {cold_ms:9.2f} {goal_ms:7.0f}       "
                "     "
            )
            row += "(cpu of cold {cold_cpu_ms:.2f}, without preemption {without_cpu_ms:.2f}, "
            row += "at equal priority {equal_cpu_ms:.2f})"
            print(row.format_map(figures), flush=True)


def measure(case: Case, *, repeat: int) -> Mapping[str, str | float]:
    """The figures of one case; a plan that does not place everything is an error, not a figure."""
    pending = [pod for gang in case.group.gangs for pod in gang.pending]
    first = builders.snapshot(case.nodes)
    cold_ms, _ = timed_ms(lambda: _plan(first, case.group))
    times = []
    for _ in range(repeat):
        again = Snapshot(first.table, first.resources, first.allocatable, first.free.copy())
        times.append(timed_ms(lambda again=again: _plan(again, case.group)))  # type: ignore[misc]  # bound per turn
    naive_ms, _ = timed_ms(lambda: naive(first.table, pending))
    return {
        "case": case.name,
        "pods": len(pending),
        "nodes": len(case.nodes),
        "plan_ms": statistics.median(wall for wall, _ in times),
        "plan_cpu_ms": statistics.median(cpu for _, cpu in times),
        "cold_ms": cold_ms,
        "goal_ms": case.goal_ms,
        "naive_ms": naive_ms,
    }


def identical(part: int = 1) -> Case:
    """1,000 identical pods on 5,000 nodes of 8 GPUs."""
    one = builders.shape(cpu_milli=4_000, memory_bytes=32 * GIB, gpus=1)
    pods, nodes = 1_000 // part, large_cluster(part)
    gang = builders.gang("ns/identical", builders.pods("p", one, pods))
    return Case(f"{pods:,} identical pods, {len(nodes):,} nodes", nodes, builders.group(gang), 5.0)


def ten_shapes(part: int = 1) -> Case:
    """1,000 pods of ten shapes, with and without GPUs, on the same nodes."""
    kinds = [
        builders.shape(
            cpu_milli=(1 + n) * 1_000, memory_bytes=(4 + n) * GIB, gpus=(0, 1, 2, 4, 8)[n % 5]
        )
        for n in range(10)
    ]
    members = [
        pod for n, kind in enumerate(kinds) for pod in builders.pods(f"s{n}", kind, 100 // part)
    ]
    gang, nodes = builders.gang("ns/ten", members), large_cluster(part)
    return Case(
        f"{len(members):,} pods of 10 shapes, {len(nodes):,} nodes",
        nodes,
        builders.group(gang),
        20.0,
    )


def apart(part: int = 1) -> Case:
    """100 pods, no two of them on one node, on 1,000 nodes."""
    term = PodTerm(HOSTNAME, (Requirement("app", "In", ("apart",)),))
    kind = Shape(
        requests=builders.shape(cpu_milli=4_000, memory_bytes=32 * GIB, gpus=1).requests,
        inter_pod=InterPodConstraints(anti_affinity=(term,)),
    )
    members = [
        structs.replace(pod, labels={"app": "apart"})
        for pod in builders.pods("p", kind, 100 // part)
    ]
    nodes = [
        builders.node(
            f"node-{n:04}",
            labels={HOSTNAME: f"node-{n:04}"},
            cpu_milli=96_000,
            memory_bytes=768 * GIB,
            gpus=8,
        )
        for n in range(1_000 // part)
    ]
    group = builders.group(builders.gang("ns/apart", members))
    return Case(f"{len(members)} pods with anti-affinity, {len(nodes):,} nodes", nodes, group, 50.0)


def close_together(part: int = 1) -> Case:
    """64 pods of 8 GPUs on 5,000 labelled nodes: one GPU product and one zone of several, if any
    has the room.
    """
    nodes = [
        builders.node(
            f"node-{n:04}",
            cpu_milli=96_000,
            memory_bytes=768 * GIB,
            gpus=8,
            labels={
                PRODUCT_LABEL: f"product-{n % 4}",
                CLIQUE: f"clique-{n // 18}",
                ZONE: f"zone-{n // 1_000}",
            },
        )
        for n in range(5_000 // part)
    ]
    pods = -(-64 // part)
    gang = builders.gang(
        "ns/close",
        builders.pods("p", builders.shape(cpu_milli=8_000, memory_bytes=64 * GIB, gpus=8), pods),
    )
    return Case(
        f"{pods} pods of 8 GPUs, {len(nodes):,} nodes with topology",
        nodes,
        builders.group(gang),
        20.0,
    )


def large_cluster(part: int = 1) -> list[Node]:
    """5,000 nodes: four in five with 8 GPUs, the others with none."""
    return [
        builders.node(
            f"node-{n:04}", cpu_milli=96_000, memory_bytes=768 * GIB, gpus=8 if n % 5 else 0
        )
        for n in range(5_000 // part)
    ]


def naive(table: NodeTable, pods: Sequence[Pod]) -> list[str]:
    """Every pod looks at every node and the pods there: where it fits with the least CPU left;
    raises if nowhere.
    """
    free = [dict(node.allocatable) for node in table.nodes]
    there: list[list[Pod]] = [[] for _ in table.nodes]
    chosen = []
    for pod in pods:
        requests = pod.shape.requests
        best, best_left = -1, 0
        for index, have in enumerate(free):
            if all(have.get(name, 0) >= amount for name, amount in requests) and not _kept_apart(
                pod, there[index]
            ):
                left = have["cpu"]
                if best < 0 or left < best_left:
                    best, best_left = index, left
        if best < 0:
            raise SystemExit(f"The naive loop found no node for {pod.key}.")
        for name, amount in requests:
            free[best][name] -= amount
        there[best].append(pod)
        chosen.append(table.names[best])
    return chosen


def _kept_apart(pod: Pod, others: Sequence[Pod]) -> bool:
    """Whether anti-affinity on the hostname keeps `pod` from `others` of the same node."""
    inter_pod = pod.shape.inter_pod
    return inter_pod is not None and any(
        selects(term.selector, other.labels) for term in inter_pod.anti_affinity for other in others
    )


def _plan(snapshot: Snapshot, group: Group) -> None:
    planned = plan(snapshot, [group], now_s=0.0)
    while planned.unfinished is not None:
        planned = plan(snapshot, [group], now_s=0.0, unfinished=planned.unfinished)
    verdict = planned.verdicts[0]
    if verdict.reason is not Reason.SCHEDULED or verdict.notes:
        raise SystemExit(f"The group was to be placed whole: {say(verdict.told).text}.")


if __name__ == "__main__":
    main()
