"""A server that speaks as much of the API as the daemon asks for: lists in pages, watches, answers
to writes.

`python -m bench.scale.server --port 8001 --nodes 15000 --pods 150000`

Invariant: objects have the fields and the size that a real API server gives them, and are made when
they are asked for; it stores nothing but the number of binds. `POST /bench/...` makes events:
`heartbeats`, `pods`, `gang`. What it does *not* do: validate, store, or show what was written.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
from typing import Any

from aiohttp import web

STATUS_OK = {"kind": "Status", "apiVersion": "v1", "status": "Success", "code": 201}
CREATED = "2026-01-01T00:00:00Z"
IMAGES = 30
GPUS_A_NODE = 8
TICK_S = 0.1


def node(index: int, version: int) -> dict[str, Any]:
    """A node as its kubelet reports it, with its conditions and images."""
    name = f"node-{index:05}"
    room = {
        "cpu": "96",
        "memory": "768Gi",
        "pods": "110",
        "nvidia.com/gpu": str(GPUS_A_NODE),
        "ephemeral-storage": "1Ti",
    }
    kinds = ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")
    return {
        "metadata": _metadata(
            name, "", version, {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": "a"}
        ),
        "spec": {"podCIDR": "10.0.0.0/24", "providerID": f"cloud:///{name}"},
        "status": {
            "allocatable": room,
            "capacity": room,
            "conditions": [
                {
                    "type": kind,
                    "status": str(kind == "Ready"),
                    "lastHeartbeatTime": CREATED,
                    "reason": "KubeletHasNo",
                }
                for kind in kinds
            ],
            "images": [
                {"names": [f"registry.example/image-{n}@sha256:{'0' * 64}"], "sizeBytes": n}
                for n in range(IMAGES)
            ],
        },
    }


def pod(
    name: str, version: int, *, on: str = "", phase: str = "Pending", gang: str = "", size: int = 0
) -> dict[str, Any]:
    """A pod of another scheduler, or a member of a gang of ours, which has a GPU until it runs."""
    gpus = {"nvidia.com/gpu": "1"} if gang and not on else {}
    requests = {"cpu": "1", "memory": "4Gi", **gpus}
    notes = {
        "gang.scheduling.koordinator.sh/name": gang,
        "gang.scheduling.koordinator.sh/min-available": str(size),
    }
    metadata = _metadata(
        name, "default", version, {"app": "bench", "pod-template-hash": "6d4cf56db6"}
    )
    return {
        "metadata": {**metadata, "annotations": notes if gang else {}},
        "spec": {
            "schedulerName": "gangsched" if gang else "default-scheduler",
            **({"nodeName": on} if on else {}),
            "restartPolicy": "Always",
            "serviceAccountName": "default",
            "tolerations": [
                {
                    "key": f"node.kubernetes.io/{key}",
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": 300,
                }
                for key in ("not-ready", "unreachable")
            ],
            "containers": [
                {
                    "name": "main",
                    "image": "registry.example/image:1",
                    "resources": {"requests": requests, "limits": requests},
                    "terminationMessagePath": "/dev/termination-log",
                    "imagePullPolicy": "IfNotPresent",
                }
            ],
        },
        "status": {"phase": phase, "qosClass": "Guaranteed", "podIP": "10.0.0.1" if on else ""},
    }


def _metadata(name: str, namespace: str, version: int, labels: dict[str, str]) -> dict[str, Any]:
    where = {"namespace": namespace} if namespace else {}
    managed = {
        "manager": "kubelet",
        "operation": "Update",
        "fieldsV1": {"f:status": {f"f:{n}": {} for n in range(20)}},
    }
    return {
        "name": name,
        **where,
        "uid": f"uid-{name}",
        "resourceVersion": str(version),
        "creationTimestamp": CREATED,
        "labels": labels,
        "managedFields": [managed],
    }


class Server:
    """The cluster of `nodes` and `pods`, and the watches that are open. The running pods are gangs
    of `gang_size`, or of another scheduler if that is 0.
    """

    def __init__(self, nodes: int, pods: int, gang_size: int = 0) -> None:
        self._nodes, self._pods = nodes, pods
        self._gang_size = gang_size
        self._version = 1_000_000
        self._watches: dict[str, set[asyncio.Queue[bytes]]] = {}
        self._made = 0
        self._running: set[asyncio.Task[None]] = set()
        self.bound = 0
        self.told = 0

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Any request."""
        path = request.path
        if path.startswith("/bench/"):
            return self._bench(request)
        if request.method == "POST" and path.endswith("selfsubjectaccessreviews"):
            return web.json_response({"status": {"allowed": True}}, status=201)
        if request.method != "GET":
            self.bound += path.endswith("/binding")
            return web.json_response(STATUS_OK, status=201)
        if path == "/version":
            return web.json_response({"major": "1", "minor": "36"})
        if path.startswith("/apis/scheduling.") or path in {"/api", "/apis"}:
            return web.json_response(
                {"kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound"},
                status=404,
            )
        kind = path.rpartition("/")[2]
        return await (
            self._watch(request, kind) if "watch" in request.query else self._list(request, kind)
        )

    async def _list(self, request: web.Request, kind: str) -> web.StreamResponse:
        begin, limit = (
            int(request.query.get("continue") or 0),
            int(request.query.get("limit") or 500),
        )
        size = {"nodes": self._nodes, "pods": self._pods}.get(kind, 0)
        end = min(begin + limit, size)
        if kind == "pods":
            items = [self._running_pod(n) for n in range(begin, end)]
        else:
            items = [node(n, n + 1) for n in range(begin, end)]
        token = {"continue": str(end)} if end < size else {}
        return web.json_response(
            {"metadata": {"resourceVersion": str(self._version), **token}, "items": items}
        )

    def _running_pod(self, number: int) -> dict[str, Any]:
        """One of the pods that are there from the start."""
        size = self._gang_size
        gang = f"gang-{number // size}" if size else ""
        on = f"node-{number % self._nodes:05}"
        return pod(f"pod-{number}", number + 1, on=on, phase="Running", gang=gang, size=size)

    async def _watch(self, request: web.Request, kind: str) -> web.StreamResponse:
        lines: asyncio.Queue[bytes] = asyncio.Queue()
        self._watches.setdefault(kind, set()).add(lines)
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        with contextlib.suppress(ConnectionError):
            await response.prepare(request)
            while True:
                await response.write(await lines.get())
        self._watches[kind].discard(lines)
        return response

    def _say(self, kind: str, change: str, body: dict[str, Any]) -> None:
        line = json.dumps({"type": change, "object": body}, separators=(",", ":")).encode() + b"\n"
        self.told += 1
        for lines in self._watches.get(kind, ()):
            lines.put_nowait(line)

    def _next(self) -> int:
        self._version += 1
        return self._version

    def _bench(self, request: web.Request) -> web.Response:
        what, query = request.path.rpartition("/")[2], request.query
        if what == "gang":
            size = int(query["size"])
            for number in range(size):
                self._say(
                    "pods", "ADDED", pod(f"member-{number}", self._next(), gang="gang", size=size)
                )
        elif what in {"heartbeats", "pods"}:
            made = self._heartbeat if what == "heartbeats" else self._life_of_a_pod
            task = asyncio.create_task(
                self._at_rate(made, float(query["rate"]), float(query["seconds"]))
            )
            self._running.add(task)
            task.add_done_callback(self._running.discard)
        return web.json_response({"bound": self.bound, "told": self.told})

    async def _at_rate(self, made: Any, rate: float, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        began_s, told = loop.time(), 0
        while loop.time() < began_s + seconds:
            await asyncio.sleep(TICK_S)
            due = int((loop.time() - began_s) * rate)
            for _ in range(told, due):
                made()
            told = max(told, due)

    def _heartbeat(self) -> None:
        self._made += 1
        self._say("nodes", "MODIFIED", node(self._made % self._nodes, self._next()))

    def _life_of_a_pod(self) -> None:
        """The next event of pods that come, are bound, run and go, one after the other."""
        self._made += 1
        number, step = divmod(self._made, 4)
        on = "" if step == 0 else f"node-{number % self._nodes:05}"
        phase = "Running" if step > 1 else "Pending"
        change = ("ADDED", "MODIFIED", "MODIFIED", "DELETED")[step]
        self._say("pods", change, pod(f"brief-{number}", self._next(), on=on, phase=phase))


async def serve(port: int, nodes: int, pods: int, gang_size: int) -> None:
    """Serve on 127.0.0.1 until cancelled."""
    server = Server(nodes, pods, gang_size)
    runner = web.ServerRunner(web.Server(server.handle))  # type: ignore[arg-type]
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for option in ("--port", "--nodes", "--pods"):
        parser.add_argument(option, type=int, required=True)
    parser.add_argument("--gang-size", type=int, default=0, help="of the running pods; 0: no gangs")
    asked = parser.parse_args()
    asyncio.run(serve(asked.port, asked.nodes, asked.pods, asked.gang_size))
