"""The kube package at work on a real API server, and what its tests say to that server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml
from control_plane import ControlPlane
from control_plane.api import Api
from control_plane.applying import apply, remove_definition

from gangsched.kube.http.client import ApiClient, connect
from gangsched.kube.ports import Runtime
from gangsched.kube.read.podgroup_informer import PodGroupInformer
from gangsched.kube.read.reflector import Reflector
from gangsched.kube.read.resources import nodes, pods
from gangsched.kube.read.shapes import ShapeTable
from gangsched.kube.read.store import Store
from gangsched.kube.write.binder import Binder
from gangsched.kube.write.recorder import Recorder
from gangsched.kube.write.status import StatusWriter
from gangsched.model.objects import Pod, PodGroup
from gangsched.model.protocol import Applied, Gone, Message, Replaced, Unread

ROOT = Path(__file__).resolve().parents[2]
PODS = "/api/v1/namespaces/default/pods"
X_K8S = "scheduling.x-k8s.io"
SIGS = "scheduling.sigs.k8s.io"


class KubeParts:
    """Everything of the kube package at work, and what it said."""

    def __init__(self, client: ApiClient) -> None:
        self.client = client
        self.messages: list[Message] = []
        self.reports: list[str] = []
        report = self.reports.append
        self.pods = Reflector(
            client,
            Store(pods(ShapeTable()), self.messages.append, report),
            runtime=Runtime(warn=report),
        )
        self.nodes = Reflector(
            client, Store(nodes(report), self.messages.append, report), runtime=Runtime(warn=report)
        )
        self.operator = PodGroupInformer(client, self.messages.append, runtime=Runtime(warn=report))
        runtime = Runtime(warn=report)
        self.binder = Binder(client, self.messages.append, runtime=runtime)
        self.status = StatusWriter(client, self.binder, self.messages.append, runtime=runtime)
        self.recorder = Recorder(client, (self.binder.in_flight,), runtime=runtime)

    async def until(self, holds: Callable[[], bool], within_s: float = 10.0) -> None:
        async with asyncio.timeout(within_s):
            while not holds():  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    def pod(self, name: str) -> Pod | None:
        """The last version of a pod that was seen."""
        found = None
        for message in self.messages:
            if (
                isinstance(message, Applied)
                and isinstance(message.item, Pod)
                and message.item.name == name
            ):
                found = message.item
            elif isinstance(message, Replaced) and message.kind is Pod:
                found = next((pod for pod in message.items if pod.name == name), None)
        return found

    def pod_groups(self, api_group: str) -> dict[str, PodGroup]:
        """The PodGroups of an API group as the state would hold them."""
        held: dict[str, PodGroup] = {}
        for message in self.messages:
            match message:
                case Replaced(api_group=of, items=all_of_them) if of == api_group:
                    held = {found.name: found for found in all_of_them}
                case Applied(item=PodGroup() as found) if found.api_group == api_group:
                    held[found.name] = found
                case Gone(api_group=of, key=key) if of == api_group:
                    held.pop(key.partition("/")[2], None)
                case Unread(api_group=of) if of == api_group:
                    held.clear()
        return held


@asynccontextmanager
async def at_work(kubeconfig: Path) -> AsyncIterator[KubeParts]:
    async with await connect(kubeconfig) as client:
        ports = KubeParts(client)
        parts = (
            ports.pods,
            ports.nodes,
            ports.operator,
            ports.binder,
            ports.status,
            ports.recorder,
        )
        tasks = [asyncio.create_task(part.run()) for part in parts]
        try:
            async with asyncio.timeout(10):
                for part in (ports.pods, ports.nodes, ports.operator):
                    await part.synced.wait()
            yield ports
        finally:
            for task in tasks:
                task.cancel()
            done, _ = await asyncio.wait(tasks, timeout=8)
            assert len(done) == len(tasks)


async def create(client: ApiClient, path: str, body: dict[str, Any]) -> dict[str, Any]:
    created: dict[str, Any] = await client.request_json("POST", path, json.dumps(body).encode())
    return created


async def create_pod(client: ApiClient, name: str, **metadata: Any) -> str:
    """Create a pod; its uid."""
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **metadata},
        "spec": {
            "schedulerName": "gangsched",
            "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}],
        },
    }
    return str((await create(client, PODS, body))["metadata"]["uid"])


async def delete(client: ApiClient, *paths: str) -> None:
    for path in paths:
        body = json.dumps({"gracePeriodSeconds": 0}).encode() if "/pods/" in path else None
        await client.request("DELETE", path, body)


async def stored(client: ApiClient, path: str) -> dict[str, Any]:
    found: dict[str, Any] = await client.request_json("GET", path)
    return found


def definition(api_group: str, *, subresource: bool = True) -> dict[str, Any]:
    """Our definition of PodGroup, or the same without the status subresource, as some clusters have
    it.
    """
    body: dict[str, Any] = yaml.safe_load(
        (ROOT / "crds" / f"{api_group}_podgroups.yaml").read_text()
    )
    if not subresource:
        for version in body["spec"]["versions"]:
            del version["subresources"]
    return body


@asynccontextmanager
async def defined(
    plane: ControlPlane, client: ApiClient, body: dict[str, Any]
) -> AsyncIterator[None]:
    """The definition exists and is served inside; afterwards it is gone."""
    api = Api.of(plane)
    await asyncio.to_thread(apply, api, body)
    try:
        yield
    finally:
        await asyncio.to_thread(remove_definition, api, body["metadata"]["name"])
        api.close()


def pod_group(api_group: str, name: str, minimum: int) -> dict[str, Any]:
    return {
        "apiVersion": f"{api_group}/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": {"minMember": minimum},
    }
