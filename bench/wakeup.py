"""Wake-up latency: from `DELETE pod` that makes room to the last bind of the gang that waited for
it.

`python -m bench.wakeup [--trials 50] [--nodes 100] [--members 8] [--seed 1] [--json]` runs the
daemon beside a real API server. Every node is full; in each trial a gang is created that would just
fill one node, is told that it must wait, and a pod of a random node is deleted. The clock starts
before the DELETE is sent and stops when a watch of our own shows the last member bound, so it holds
two watches, a plan and the binds. What it does *not* show: the grace period of real pods, whose
room is free only after the kubelet has ended them.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from control_plane import ControlPlane
from control_plane import objects as make
from control_plane.api import Api, Object
from control_plane.applying import apply_manifests
from control_plane.daemon import Daemon
from control_plane.following import Following
from control_plane.pods import nodes_of, refusal

from gangsched.simulate.figures import percentile

PODS = "/api/v1/pods"
POD = "/api/v1/namespaces/default/pods"
GROUP = "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/default/podgroups"
GPUS = 8
WITHIN_S = 30.0
GOAL_P99_MS = 500.0


@dataclass(frozen=True, slots=True)
class Result:
    """Latencies in milliseconds; `p99_ms` of fewer than 100 trials is the worst of them."""

    trials: int
    nodes: int
    members: int
    seed: int
    p50_ms: float
    p99_ms: float
    max_ms: float
    goal_p99_ms: float = GOAL_P99_MS


class FullCluster:
    """Nodes of 8 GPUs, each filled by one pod of another scheduler. A gang of `members` pods fills
    a node exactly.
    """

    def __init__(self, api: Api, pods: Following, *, nodes: int, members: int) -> None:
        if GPUS % members:
            raise ValueError(f"{members} members cannot share {GPUS} GPUs evenly.")
        self._api, self._pods, self._members = api, pods, members
        self.nodes = [f"n{index:03}" for index in range(nodes)]
        make.create_all(api, [make.node(name, gpus=GPUS) for name in self.nodes])
        make.create_all(api, [_filler(name) for name in self.nodes])

    def wait(self, name: str) -> None:
        """Create a gang and wait until each member is Unschedulable."""
        make.create_all(
            self._api, make.gang(name, members=self._members, gpus=GPUS // self._members)
        )
        self._pods.wait_for(
            lambda items: sum(_waits(pod, name) for pod in items.values()) == self._members,
            within_s=WITHIN_S,
            what=f"{self._members} members of {name} that are told to wait",
        )

    def free(self, node: str) -> None:
        """Delete the pod that fills a node."""
        self._api.delete(f"{POD}/filler-{node}")

    def bound(self, name: str) -> set[str]:
        """Wait until the whole gang is bound; its nodes."""
        found = self._pods.wait_for(
            lambda items: (
                nodes if len(nodes := nodes_of(items, f"{name}-")) == self._members else None
            ),
            within_s=WITHIN_S,
            what=f"{self._members} bound members of {name}",
        )
        return set(found.values())

    def clear(self, name: str, node: str) -> None:
        """Delete the gang, fill its node again, and wait until a watch shows it."""
        for index in range(self._members):
            self._api.delete(f"{POD}/{name}-{index}")
        self._api.delete(f"{GROUP}/{name}")
        make.create_all(self._api, [_filler(node)])
        filler = f"filler-{node}"
        self._pods.wait_for(
            lambda items: any(pod["metadata"]["name"] == filler for pod in items.values()),
            within_s=WITHIN_S,
            what=filler,
        )


def _filler(node: str) -> Object:
    return make.pod(f"filler-{node}", gpus=GPUS, scheduler_name="other", spec={"nodeName": node})


def _waits(pod: Object, gang: str) -> bool:
    return pod["metadata"]["name"].startswith(f"{gang}-") and refusal(pod)[0] == "Unschedulable"


def measure(*, trials: int, nodes: int, members: int, seed: int) -> Result:
    """Run the trials one after the other on a control plane of their own."""
    rng = random.Random(seed)
    took_ms: list[float] = []
    with ControlPlane() as plane:
        api = Api.of(plane)
        apply_manifests(api)
        with Daemon(plane), Following(api, PODS) as pods:
            cluster = FullCluster(api, pods, nodes=nodes, members=members)
            for trial in range(trials):
                name, node = f"gang-{trial}", rng.choice(cluster.nodes)
                cluster.wait(name)
                began_s = time.monotonic()
                cluster.free(node)
                found = cluster.bound(name)
                took_ms.append((time.monotonic() - began_s) * 1e3)
                assert found == {node}, f"{name} is on {found} and not on {node}"
                cluster.clear(name, node)
        api.close()
    return Result(
        trials,
        nodes,
        members,
        seed,
        *(round(percentile(took_ms, share), 1) for share in (0.5, 0.99, 1.0)),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; exit code 1 when the goal is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--trials", type=int, default=50)
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--members", type=int, default=8, help="1, 2, 4 or 8")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    asked = parser.parse_args(arguments)
    result = measure(trials=asked.trials, nodes=asked.nodes, members=asked.members, seed=asked.seed)
    if asked.json:
        print(json.dumps(asdict(result)))
    else:
        print(
            f"{result.trials} trials, {result.members}-pod gang, {result.nodes} nodes, seed"
            f" {result.seed}: p50 {result.p50_ms} ms, p99 {result.p99_ms} ms, worst {result.max_ms}"
            f" ms (goal: p99 < {GOAL_P99_MS:g} ms)"
        )
    return 0 if result.p99_ms < GOAL_P99_MS else 1


if __name__ == "__main__":
    sys.exit(main())
