"""Beside kube-scheduler: how many nodes two schedulers over-commit that fill the same nodes at full
speed.

`python -m bench.beside [--trials 10] [--nodes 50] [--seconds 0] [--json]`. Every node has 8 GPUs,
of which other pods have 6. In a trial pods of one GPU come for both schedulers, for each as many as
the whole room: plain ones for kube-scheduler, gangs of four for gangsched; all at once, or evenly
over some seconds. Neither has a limit on its requests. No kubelet runs, so nothing that is bound is
refused; a LIST at the end counts the nodes whose pods ask for more than they have. Trials in which
both may use all nodes take turns with trials in which half of the nodes is tainted for gangs, and
gangs select these. It exits with 1 if a trial of the second kind over-commits a node.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict, dataclass

from control_plane import ControlPlane
from control_plane import objects as make
from control_plane.api import Api, Object
from control_plane.applying import apply_manifests
from control_plane.daemon import Daemon

from tests.e2e.conftest import delete_all

PODS, NODES = "/api/v1/pods", "/api/v1/nodes"
GROUPS = "/apis/scheduling.x-k8s.io/v1alpha1/podgroups"
POOL = "example.com/pool"
TAINT = {"key": "gangsched.dev/gangs", "value": "only", "effect": "NoSchedule"}
TOLERATION = {"key": "gangsched.dev/gangs", "operator": "Exists"}
GPUS, TAKEN, MEMBERS = 8, 6, 4
CONNECTIONS = 16
SETTLED_S = 3.0
WITHIN_S = 120.0


@dataclass(frozen=True, slots=True)
class Result:
    """One trial; `excess` is the number of GPUs that are bound and not there, `bound` who bound how
    many pods.
    """

    apart: bool
    nodes: int
    over_committed: int
    excess: int
    bound: dict[str, int]
    took_s: float


def trial(api: Api, *, nodes: int, seconds: float, apart: bool) -> Result:
    """Fill new nodes by both schedulers; leaves nothing behind."""
    make.create_all(api, [_node(number, nodes, apart) for number in range(nodes)])
    fill = [
        make.pod(f"taken-{n}", gpus=TAKEN, scheduler_name="nobody", spec={"nodeName": f"n{n}"})
        for n in range(nodes)
    ]
    make.create_all(api, fill)
    room = nodes * (GPUS - TAKEN)
    where = (
        {"node_selector": {POOL: "gangs"}, "spec": {"tolerations": [TOLERATION]}} if apart else {}
    )
    gangs = [
        body
        for n in range(room // MEMBERS)
        for body in make.gang(f"g{n}", members=MEMBERS, gpus=1, **where)  # type: ignore[arg-type]
    ]
    plain = [make.pod(f"p{n}", gpus=1, scheduler_name="default-scheduler") for n in range(room)]
    began_s = time.monotonic()
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda bodies: _arrive(api, bodies, seconds), (gangs, plain)))
    settled_s = _settle(api)
    result = _count(api, nodes, apart, settled_s - began_s)
    delete_all(api, PODS, GROUPS, NODES)
    return result


def _node(number: int, nodes: int, apart: bool) -> Object:
    for_gangs = apart and number < nodes // 2
    return make.node(
        f"n{number}",
        gpus=GPUS,
        labels={POOL: "gangs" if for_gangs else "rest"},
        taints=[TAINT] if for_gangs else [],
    )


def _arrive(api: Api, bodies: list[Object], seconds: float) -> None:
    """Create them at once, or evenly over some seconds."""
    if not seconds:
        make.create_all(api, bodies, connections=CONNECTIONS)
        return
    began_s = time.monotonic()
    for number, body in enumerate(bodies):
        time.sleep(max(0.0, began_s + seconds * number / len(bodies) - time.monotonic()))
        api.post(api.path_of(body), body)


def _settle(api: Api) -> float:
    """Wait until nothing was bound for some seconds; returns when the last bind was seen."""
    last_s, bound, deadline_s = time.monotonic(), 0, time.monotonic() + WITHIN_S
    while time.monotonic() < last_s + SETTLED_S:
        now = sum(bool(pod["spec"].get("nodeName")) for pod in api.list(PODS).items)
        if now != bound:
            last_s, bound = time.monotonic(), now
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"pods are still being bound after {WITHIN_S:g} s")
        time.sleep(0.2)
    return last_s


def _count(api: Api, nodes: int, apart: bool, took_s: float) -> Result:
    used: Counter[str] = Counter()
    bound: Counter[str] = Counter()
    for pod in api.list(PODS).items:
        if node := pod["spec"].get("nodeName"):
            used[node] += int(pod["spec"]["containers"][0]["resources"]["limits"][make.GPU])
            bound[pod["spec"]["schedulerName"]] += 1
    del bound["nobody"]
    over = [number - GPUS for number in used.values() if number > GPUS]
    return Result(apart, nodes, len(over), sum(over), dict(bound), round(took_s, 2))


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print each trial and the sums."""
    parser = argparse.ArgumentParser(
        prog="bench.beside", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--trials", type=int, default=10, help="of each kind, in turns")
    parser.add_argument("--nodes", type=int, default=50)
    parser.add_argument(
        "--seconds", type=float, default=0.0, help="over which pods come; 0: all at once"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object a trial")
    asked = parser.parse_args(arguments)
    results: list[Result] = []
    with ControlPlane(scheduler=True, for_load=True) as plane, closing(Api.of(plane)) as api:
        apply_manifests(api)
        with Daemon(plane) as daemon:
            for apart in (False, True) * asked.trials:
                results.append(trial(api, nodes=asked.nodes, seconds=asked.seconds, apart=apart))
                print(json.dumps(asdict(results[-1])) if asked.json else results[-1], flush=True)
                while daemon.metrics().get("gangsched_nodes"):
                    time.sleep(0.1)
    for apart in (False, True):
        found = [each for each in results if each.apart is apart]
        over = [each.over_committed for each in found]
        print(
            f"{'apart by taint and selector' if apart else 'the same nodes'}: "
            f"{sum(over)} of {asked.nodes * len(found)} nodes over-committed, "
            f"{min(over)} to {max(over)} in a trial, {statistics.mean(over):.1f} on average; "
            f"{sum(each.excess for each in found)} GPUs too many"
        )
    return int(any(each.over_committed for each in results if each.apart))


if __name__ == "__main__":
    sys.exit(main())
