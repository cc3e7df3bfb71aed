"""Pools: one backlog for one instance, and the same for two instances with a node pool each.

`python -m bench.pools [--gangs 500] [--members 8] [--nodes 1000] [--rounds 3] [--json]`. For each
number of instances, in turn, a control plane of its own has the nodes and all gangs before any
scheduler starts; half of the gangs and of the nodes are of each pool. The instances start together.
The clock runs from the start of their processes, and from when the last of them is ready, until
they have bound everything, as their metrics say; then a LIST shows that each pod is in its pool.
CPU is of each whole process until then, memory its peak.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from pathlib import Path

from control_plane import ControlPlane
from control_plane import objects as make
from control_plane.api import Api, Object
from control_plane.applying import apply_manifests
from control_plane.daemon import Daemon

from bench.gangs.contenders import cpu_s

POOLS = ("a", "b")
LABEL = "example.com/pool"
GPUS = 8
WITHIN_S = 300.0
LOOK_EVERY_S = 0.05
BOUND = 'gangsched_binds_total{result="bound"}'


@dataclass(frozen=True, slots=True)
class Result:
    """One backlog; `nodes`, `cpu_s` and `peak_mib` have an entry for each instance."""

    instances: int
    pods: int
    from_start_s: float
    from_ready_s: float
    pods_per_s: float
    nodes: list[int]
    cpu_s: list[float]
    peak_mib: list[float]


def measure(instances: int, *, gangs: int, members: int, nodes: int) -> Result:
    """Bind a backlog of `gangs` gangs of `members` pods with one GPU each."""
    with ControlPlane(for_load=True) as plane, closing(Api.of(plane)) as api, ExitStack() as stack:
        apply_manifests(api, scheduler_names=[_scheduler(pool, instances) for pool in POOLS])
        pool_of = [POOLS[number % len(POOLS)] for number in range(max(gangs, nodes))]
        make.create_all(
            api,
            [make.node(f"n{n:05}", gpus=GPUS, labels={LABEL: pool_of[n]}) for n in range(nodes)],
        )
        make.create_all(
            api, [body for n in range(gangs) for body in _gang(n, pool_of[n], members, instances)]
        )
        daemons = [_daemon(plane, index, instances) for index in range(instances)]
        began_s = time.monotonic()
        with ThreadPoolExecutor(instances) as pool:
            list(pool.map(Daemon.start, daemons))
        ready_s = time.monotonic()
        for daemon in daemons:
            stack.callback(daemon.kill)
        _wait(daemons, gangs * members)
        ended_s = time.monotonic()
        used = [(cpu_s(daemon.pid), _peak_mib(daemon.pid)) for daemon in daemons]
        _check(api, members * gangs)
        return Result(
            instances,
            gangs * members,
            round(ended_s - began_s, 2),
            round(ended_s - ready_s, 2),
            round(gangs * members / (ended_s - began_s)),
            [round(daemon.metrics()["gangsched_nodes"]) for daemon in daemons],
            [round(cpu, 1) for cpu, _ in used],
            [round(peak, 1) for _, peak in used],
        )


def _scheduler(pool: str, instances: int) -> str:
    return "gangsched" if instances == 1 else f"gangsched-{pool}"


def _gang(number: int, pool: str, members: int, instances: int) -> list[Object]:
    """Its pods name their pool in any case, so that one instance and two have the same
    to decide.
    """
    name = _scheduler(pool, instances)
    return make.gang(
        f"g{number}", members=members, gpus=1, scheduler_name=name, node_selector={LABEL: pool}
    )


def _daemon(plane: ControlPlane, index: int, instances: int) -> Daemon:
    pool = POOLS[index]
    selector = [] if instances == 1 else ["--node-selector", f"{LABEL}={pool}"]
    return Daemon(
        plane,
        scheduler_names=[_scheduler(pool, instances)],
        extra_args=selector,
        log_path=plane.logs / f"instance-{pool}.log",
    )


def _wait(daemons: Sequence[Daemon], pods: int) -> None:
    deadline_s = time.monotonic() + WITHIN_S
    while (bound := sum(daemon.metrics().get(BOUND, 0) for daemon in daemons)) < pods:
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"{bound:g} of {pods} pods are bound after {WITHIN_S:g} s")
        time.sleep(LOOK_EVERY_S)


def _check(api: Api, pods: int) -> None:
    """Every pod is bound, to a node of its pool."""
    pool_of = {
        node["metadata"]["name"]: node["metadata"]["labels"][LABEL]
        for node in api.list("/api/v1/nodes").items
    }
    listed = api.list("/api/v1/pods").items
    right = sum(
        pool_of.get(pod["spec"].get("nodeName", "")) == pod["spec"]["nodeSelector"][LABEL]
        for pod in listed
    )
    assert right == len(listed) == pods, f"{right} of {len(listed)} pods are bound in their pool"


def _peak_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print a table, or JSON."""
    parser = argparse.ArgumentParser(
        prog="bench.pools", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--gangs", type=int, default=500)
    parser.add_argument("--members", type=int, default=8)
    parser.add_argument("--nodes", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each, in turns")
    parser.add_argument("--json", action="store_true", help="print one JSON object a measurement")
    asked = parser.parse_args(arguments)
    results: list[Result] = []
    for _ in range(asked.rounds):
        for instances in (1, len(POOLS)):
            results.append(
                measure(instances, gangs=asked.gangs, members=asked.members, nodes=asked.nodes)
            )
            print(json.dumps(asdict(results[-1])) if asked.json else results[-1], flush=True)
    for instances in (1, len(POOLS)):
        found = [each for each in results if each.instances == instances]
        print(
            f"{instances} instance(s): {statistics.median(each.from_start_s for each in found):.2f}"
            f" s from the start, {statistics.median(each.from_ready_s for each in found):.2f} s"
            f" from ready, {statistics.median(each.pods_per_s for each in found):.0f} pods a"
            f" second; medians of {len(found)}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
