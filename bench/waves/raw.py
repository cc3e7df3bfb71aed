"""The API server's part of a wave: a client that knows whom to evict and where to bind, and tells
nobody.

Invariant: it sends what every scheduler must send, an eviction for each victim and a binding for
each high pod, over as many connections as gangsched evicts with; controllers and kwok do what they
do beside a scheduler. What a scheduler takes longer is what it decides, nominates and tells.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from control_plane import objects as make
from control_plane.api import Api, Object
from control_plane.following import Following

from bench.waves.cases import GPUS, Case
from bench.waves.play import PODS, SETTLED_S, Controllers, Figures, prepared

CONNECTIONS = 16
NOBODY = "nobody"


def can_play(case: Case) -> bool:
    """Whether high pods fill whole nodes, all of whose plain pods are the victims."""
    return not case.surplus and GPUS % case.gpus == 0


def play_raw(case: Case) -> Figures:
    """The wave without a scheduler, on a control plane of its own."""
    with ExitStack() as stack:
        api, _ = prepared(case, NOBODY, stack)
        nodes = [f"n{n:04}" for n in range(0, case.nodes, case.zones)][
            : case.pods * case.gpus // GPUS
        ]
        victims = [
            pod["metadata"]["name"]
            for pod in api.list(PODS).items
            if pod["spec"].get("nodeName") in frozenset(nodes)
        ]
        left, all_gone = set(victims), threading.Event()
        controllers = Controllers(
            case, NOBODY, api, stack.enter_context(ThreadPoolExecutor(CONNECTIONS))
        )

        def pod_changed(kind: str, pod: Object, seen_s: float) -> None:
            controllers.pod_changed(kind, pod, seen_s)
            if kind == "DELETED":
                left.discard(pod["metadata"]["name"])
                if not left:
                    all_gone.set()

        with Following(api, PODS, on_change=pod_changed), ThreadPoolExecutor(CONNECTIONS) as sender:
            time.sleep(SETTLED_S)
            began_s, cpu_s = time.monotonic(), time.process_time()
            make.create_all(api, case.high_bodies(NOBODY))
            list(sender.map(lambda name: _evict(api, name), victims))
            all_gone.wait(case.within_s)
            high = [
                f"high-{gang}-{member}"
                for gang in range(case.gangs)
                for member in range(case.members)
            ]
            places = [(name, nodes[n * case.gpus // GPUS]) for n, name in enumerate(high)]
            list(sender.map(lambda place: _bind(api, *place), places))
            started, seconds = controllers.wait(began_s)
            controllers.open = False
    return Figures(
        case=case.name,
        scheduler="raw",
        pods=case.pods,
        started=started,
        seconds=seconds,
        cpu_s=time.process_time() - cpu_s,
        writes=(len(victims) + case.pods) / case.pods,
        refusals=None,
        stall_ms=None,
        lost=0,
        why_lost={},
    )


def _evict(api: Api, name: str) -> None:
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    api.post(f"/api/v1/namespaces/default/pods/{name}/eviction", body)


def _bind(api: Api, name: str, node: str) -> None:
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
    api.post(f"/api/v1/namespaces/default/pods/{name}/binding", body)
