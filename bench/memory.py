"""Memory: what is left of pods that are gone.

`python -m bench.memory [--pods 4000] [--jobs 3000] [--nodes 5000] [--limit-mib 20]`

Invariant: watch lines go through store, state and planner as in the daemon, without a network.
Resident memory is read before and after, each time after a collection, once a few pods of each sort
have warmed everything up. It exits with 1 when more is left than the limit.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from control_plane.objects import node, pod

from gangsched.api.keys import GROUPS, MIN, NAME, K
from gangsched.core.cycle import Limits
from gangsched.kube.ports import silent
from gangsched.kube.read import resources
from gangsched.kube.read.shapes import ShapeTable
from gangsched.kube.read.store import Store
from gangsched.loop import Loop, Ports
from gangsched.model.gpu_policy import GpuPolicy
from gangsched.model.protocol import Bind, BindOrder, Bound, Report
from gangsched.settings import LogFormat, LogLevel
from gangsched.state.rule_set import Rules
from gangsched.state.scheduling import SchedulingState
from gangsched.telemetry.logs import configure_logging
from gangsched.telemetry.metrics import Metrics

TEXT_BYTES = 200_000
WARM_UP = 50


class Cluster:
    """An API server's pods and nodes, and a daemon's loop that follows them."""

    def __init__(self, nodes: int) -> None:
        self._binds: list[Bind] = []
        self._now_s = 0.0
        self._version = 1
        state = SchedulingState(Rules(policy=GpuPolicy((), frozenset())))
        ports = Ports(self, self.tell, lambda order: None, self)
        self._loop = Loop(state, ports, metrics=Metrics(), limits=Limits(), ready=lambda: True)
        self._pods = Store(resources.pods(ShapeTable()), self._loop.inbox, silent)
        known = Store(resources.nodes(silent), self._loop.inbox, silent)
        items = [node(f"n{index:04}", memory="256Gi") for index in range(nodes)]
        known.add_page(_encoded({"metadata": {"resourceVersion": "1"}, "items": items}))
        self._pods.add_page(_encoded({"metadata": {"resourceVersion": "1"}, "items": []}))
        self.turn()

    def now_s(self) -> float:
        """The virtual clock."""
        return self._now_s

    def wall(self) -> str:
        """A time of day that stands still."""
        return "2026-01-01T00:00:00Z"

    def wall_s(self) -> float:
        """The same in seconds since the epoch."""
        return 1_767_225_600.0

    def submit(self, orders: Sequence[BindOrder]) -> None:
        """Keep the binds for `run`."""
        self._binds += [order for order in orders if isinstance(order, Bind)]

    def tell(self, report: Report) -> None:
        """Nobody reads it."""

    def turn(self) -> None:
        """Let the daemon catch up, a second later."""
        self._now_s += 1.0
        while self._loop.turn():
            pass

    def line(self, kind: str, body: dict[str, Any]) -> None:
        """Send one line of the watch of pods."""
        self._version += 1
        body["metadata"]["resourceVersion"] = str(self._version)
        self._pods.take_line(_encoded({"type": kind, "object": body}))

    def delete_at_once(self, body: dict[str, Any]) -> None:
        """A pod comes and goes."""
        self.line("ADDED", body)
        self.turn()
        self.line("DELETED", body)
        self.turn()

    def run(self, body: dict[str, Any]) -> None:
        """A pod is scheduled, ends and is deleted."""
        self.line("ADDED", body)
        self.turn()
        binds, self._binds = self._binds, []
        assert [bind.uid for bind in binds] == [body["metadata"]["uid"]], (
            "every job of the benchmark fits"
        )
        self._loop.inbox(Bound(binds[0].uid, binds[0].node))
        body["spec"]["nodeName"] = binds[0].node
        self.line("MODIFIED", body)
        self.turn()
        body["status"] = {"phase": "Succeeded"}
        self.line("MODIFIED", body)
        self.line("DELETED", body)
        self.turn()


def talkative(first: int, count: int) -> Iterator[dict[str, Any]]:
    """Pods with annotations of 200 KB under keys that we read: a gang's name, values and lists;
    half are not ours.
    """
    keys = (NAME, MIN[0], GROUPS[0], K + "unknown")
    for number in range(first, first + count):
        key = keys[number % len(keys)]
        text = f"{number} " + "x" * TEXT_BYTES
        annotations = {NAME: f"g{number}", key: text}
        scheduler = "gangsched" if number % 2 else "default-scheduler"
        yield _body(f"t{number}", cpu="1", annotations=annotations, scheduler=scheduler)


def jobs(first: int, count: int) -> Iterator[dict[str, Any]]:
    """Pods of which no two ask for the same; every fourth keeps off its own kind, by a selector of
    its own.
    """
    for number in range(first, first + count):
        body = _body(f"j{number}", cpu=f"{1000 + number}m", annotations={}, scheduler="gangsched")
        if number % 4 == 0:
            body["metadata"]["labels"] = {"job": f"j{number}"}
            term = {
                "topologyKey": "kubernetes.io/hostname",
                "labelSelector": {"matchLabels": {"job": f"j{number}"}},
            }
            required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
            body["spec"]["affinity"] = {"podAntiAffinity": required}
        yield body


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        prog="bench.memory", description="What is left of pods that are gone."
    )
    parser.add_argument("--pods", type=int, default=4_000, help="pods with 200 KB of annotations")
    parser.add_argument("--jobs", type=int, default=3_000, help="finished jobs of distinct shapes")
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--limit-mib", type=float, default=20.0)
    asked = parser.parse_args()
    configure_logging(LogFormat.JSON, LogLevel.ERROR)
    cluster = Cluster(asked.nodes)
    _play(cluster, pods=WARM_UP, number_of_jobs=WARM_UP, first=0)
    before = resident_mib()
    _play(cluster, pods=asked.pods, number_of_jobs=0, first=WARM_UP)
    between = resident_mib()
    _play(cluster, pods=0, number_of_jobs=asked.jobs, first=WARM_UP)
    after = resident_mib()
    figures = {"before_mib": before, "after_pods_mib": between, "after_jobs_mib": after}
    print(json.dumps({name: round(figure, 1) for name, figure in figures.items()}))
    if after - before > asked.limit_mib or between - before > asked.limit_mib:
        raise SystemExit(1)


def resident_mib() -> float:
    """Resident memory of this process, after a collection."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def _play(cluster: Cluster, *, pods: int, number_of_jobs: int, first: int) -> None:
    for body in talkative(first, pods):
        cluster.delete_at_once(body)
    for body in jobs(first, number_of_jobs):
        cluster.run(body)


def _body(name: str, *, cpu: str, annotations: dict[str, str], scheduler: str) -> dict[str, Any]:
    body = pod(name, cpu=cpu)
    body["metadata"] |= {"uid": f"uid-{name}", "namespace": "default", "annotations": annotations}
    body["spec"]["schedulerName"] = scheduler
    return body


def _encoded(body: object) -> bytes:
    return json.dumps(body).encode()


if __name__ == "__main__":
    main()
