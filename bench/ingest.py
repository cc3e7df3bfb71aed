"""Ingest: watch lines per second, and a start with 50,000 pods and 5,000 nodes on a real API
server.

`python -m bench.ingest [--pods 50000] [--nodes 5000] [--lines 40000] [--runs 3] [--out FILE.json]`

Invariant: the lines come from a real API server, and the start is that of the console script under
its ServiceAccount; the longest stall is the daemon's own metric, measured every 100 ms.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from control_plane.api import Api
from control_plane.applying import apply_manifests
from control_plane.objects import node, pod
from control_plane.plane import ControlPlane

from bench.gangs.cases import PODS, encoded
from bench.gangs.contenders import GANGSCHED, Running
from bench.gangs.http import Pool
from bench.gangs.report import machine
from gangsched.kube.ports import silent
from gangsched.kube.read import resources, store
from gangsched.kube.read.shapes import ShapeTable
from gangsched.model.protocol import Message
from gangsched.state.rule_set import Rules
from gangsched.state.scheduling import SchedulingState

NODES_OF_LINES = 1_000
GOALS = {"ready_s": 8.0, "rss_mib": 400.0, "longest_stall_ms": 100.0}


def main() -> None:
    """Measure and print; write JSON when asked to."""
    parser = argparse.ArgumentParser(
        prog="bench.ingest", description="What it costs to follow a large cluster."
    )
    parser.add_argument("--pods", type=int, default=50_000)
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument(
        "--lines", type=int, default=40_000, help="watch lines of the measurement without a network"
    )
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--out", type=Path, default=None)
    asked = parser.parse_args()
    with ControlPlane(for_load=True) as plane:
        api = Api.of(plane)
        apply_manifests(api)
        asyncio.run(fill(plane, asked.nodes, asked.pods))
        sample = api.get(f"{PODS}/p0")
        gc.collect()
        lines = [lines_per_second(sample, asked.lines) for _ in range(asked.runs)]
        starts = [start(plane) for _ in range(asked.runs)]
    document = {
        "machine": machine(),
        "pods": asked.pods,
        "nodes": asked.nodes,
        "line_bytes": len(encoded(sample)),
        "lines": {"medians": _medians(lines), "runs": lines},
        "start": {"medians": _medians(starts), "runs": starts, "goals": GOALS},
    }
    print(json.dumps({key: document[key]["medians"] for key in ("lines", "start")}, indent=1))
    if asked.out is not None:
        asked.out.parent.mkdir(parents=True, exist_ok=True)
        asked.out.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")


async def fill(plane: ControlPlane, nodes: int, pods: int) -> None:
    """Create nodes, and pods that are bound already."""
    async with Pool(plane.url, plane.ssl_context(), 32) as pool:
        names = [f"node-{index:05}" for index in range(nodes)]
        await pool.send_all(
            pool.request("POST", "/api/v1/nodes", encoded(node(name))) for name in names
        )
        bodies = (
            pod(
                f"p{index}",
                scheduler_name="default-scheduler",
                spec={"nodeName": names[index % nodes]},
            )
            for index in range(pods)
        )
        await pool.send_all(pool.request("POST", PODS, encoded(body)) for body in bodies)


def lines_per_second(sample: dict[str, Any], count: int) -> dict[str, float]:
    """Lines per second, half new pods and half their binds: through the store alone, and through
    store and state.
    """
    lines = _lines(sample, count)
    figures = {}
    for name, with_state in (("store", False), ("store_and_state", True)):
        state = SchedulingState(Rules(scheduler_names=frozenset({"gangsched"})))
        inbox: list[Message] = []
        pods = store.Store(resources.pods(ShapeTable()), inbox.append, silent)
        gc.collect()
        began_s = time.perf_counter()
        for number, line in enumerate(lines):
            pods.take_line(line)
            if with_state and number % 100 == 0:
                _take_in(state, inbox)
        figures[f"{name}_lines_per_s"] = len(lines) / (time.perf_counter() - began_s)
    return figures


def start(plane: ControlPlane) -> dict[str, float]:
    """One start of the daemon, from its process to its readiness."""
    running = Running(GANGSCHED, plane)
    try:
        running.start()
        ready_s = running.await_ready()
        # the gauge beats every 100 ms, and the garbage is collected once after the first lists
        time.sleep(2.0)
        return {
            "ready_s": ready_s,
            "rss_mib": running.rss_mib(),
            "longest_stall_ms": running.stall_ms() or 0.0,
            "cpu_s": running.cpu_s(),
        }
    finally:
        running.stop()


def _lines(sample: dict[str, Any], count: int) -> list[bytes]:
    """Watch lines about `count / 2` pods like this one: each is added, then bound."""
    lines = []
    for kind, bound in (("ADDED", False), ("MODIFIED", True)):
        for index in range(count // 2):
            meta = {
                **sample["metadata"],
                "name": f"l{index}",
                "uid": f"u{index}",
                "resourceVersion": str(index + 1),
            }
            spec = {**sample["spec"], "schedulerName": "gangsched"}
            spec.pop("nodeName", None)
            if bound:
                spec["nodeName"] = f"node-{index % NODES_OF_LINES:05}"
            lines.append(
                encoded({"type": kind, "object": {**sample, "metadata": meta, "spec": spec}})
            )
    return lines


def _take_in(state: SchedulingState, inbox: list[Message]) -> None:
    for message in inbox:
        state.apply(message, now_s=0.0)
    inbox.clear()
    state.refresh(0.0)


def _medians(runs: Sequence[dict[str, float]]) -> dict[str, float]:
    return {key: round(statistics.median(run[key] for run in runs), 3) for key in runs[0]}


if __name__ == "__main__":
    main()
