"""The daemon's hands and eyes on a real API server: what is written is stored, what is stored is seen."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from control_plane import ControlPlane
from control_plane.api import Api
from control_plane.applying import apply, apply_manifests

from gangsched.kube.http.backoff import Pace
from gangsched.kube.http.client import ApiClient, connect
from gangsched.kube.http.faults import ApiFault, Misconfigured
from gangsched.kube.ports import Runtime
from gangsched.kube.read.kopf_watch import OperatorEnded, follow
from gangsched.kube.read.podgroup_informer import PodGroupInformer
from gangsched.kube.read.reflector import Reflector
from gangsched.kube.read.resources import nodes, pods
from gangsched.kube.read.shapes import ShapeTable
from gangsched.kube.read.store import Store
from gangsched.kube.write.binder import Binder
from gangsched.kube.write.recorder import Recorder
from gangsched.kube.write.status import StatusWriter
from gangsched.model.objects import Node, Pod, PodGroup
from gangsched.model.protocol import (
    Applied,
    Bind,
    BindFailed,
    BindGone,
    Bound,
    Gone,
    MarkTimedOut,
    Message,
    ObjectRef,
    RecordEvent,
    Replaced,
    SetPodCondition,
    SetPodGroupStatus,
    Unread,
)

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).resolve().parents[2]
PODS = "/api/v1/namespaces/default/pods"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
X_K8S = "scheduling.x-k8s.io"
SIGS = "scheduling.sigs.k8s.io"


class Ports:
    """Everything of the kube package at work, and what it said."""

    def __init__(self, client: ApiClient) -> None:
        self.client = client
        self.messages: list[Message] = []
        self.reports: list[str] = []
        report = self.reports.append
        self.pods = Reflector(client, Store(pods(ShapeTable()), self.messages.append, report), warn=report)
        self.nodes = Reflector(client, Store(nodes(report), self.messages.append, report), warn=report)
        self.operator = PodGroupInformer(client, self.messages.append, warn=report)
        runtime = Runtime(warn=report)
        self.binder = Binder(client, self.messages.append, runtime=runtime)
        self.status = StatusWriter(client, self.binder, runtime=runtime)
        self.recorder = Recorder(client, self.binder, runtime=runtime)

    async def until(self, holds: Callable[[], bool], within_s: float = 10.0) -> None:
        async with asyncio.timeout(within_s):
            while not holds():  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    def pod(self, name: str) -> Pod | None:
        """The last version of a pod that was seen."""
        found = None
        for message in self.messages:
            if isinstance(message, Applied) and isinstance(message.item, Pod) and message.item.name == name:
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
async def at_work(kubeconfig: Path) -> AsyncIterator[Ports]:
    async with await connect(kubeconfig) as client:
        ports = Ports(client)
        parts = (ports.pods, ports.nodes, ports.operator, ports.binder, ports.status, ports.recorder)
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
    """Our definition of PodGroup, or the same without the status subresource, as some clusters have it."""
    body: dict[str, Any] = yaml.safe_load((ROOT / "crds" / f"{api_group}_podgroups.yaml").read_text())
    if not subresource:
        for version in body["spec"]["versions"]:
            del version["subresources"]
    return body


@asynccontextmanager
async def defined(plane: ControlPlane, client: ApiClient, body: dict[str, Any]) -> AsyncIterator[None]:
    """The definition exists and is served inside; afterwards it is gone."""
    api = Api.of(plane)
    await asyncio.to_thread(apply, api, body)
    try:
        yield
    finally:
        await delete(client, f"{DEFINITIONS}/{body['metadata']['name']}")
        await _gone(client, f"{DEFINITIONS}/{body['metadata']['name']}")
        api.close()


async def _gone(client: ApiClient, path: str) -> None:
    async with asyncio.timeout(20):
        while True:
            try:
                await stored(client, path)
            except ApiFault:
                return
            await asyncio.sleep(0.05)


async def test_pods_from_creation_to_binding(control_plane: ControlPlane) -> None:
    """A pod is seen, told why it waits, annotated, bound, seen bound, and seen gone."""
    async with at_work(control_plane.kubeconfig) as ports:
        client = ports.client
        uid = await create_pod(client, "a", labels={"scheduling.x-k8s.io/pod-group": "g"})
        await ports.until(lambda: ports.pod("a") is not None)
        ports.status.put(SetPodCondition(uid, "default", "a", "Unschedulable", "0/0 nodes are available."))
        ports.status.put(MarkTimedOut(uid, "default", "a"))
        assert await ports.status.drain(5) == 0
        await ports.until(lambda: (found := ports.pod("a")) is not None and found.timed_out and bool(found.condition))
        found = ports.pod("a")
        assert found is not None
        assert found.condition is not None
        assert (found.condition.reason, found.condition.message) == ("Unschedulable", "0/0 nodes are available.")
        assert found.gang_metadata == (("scheduling.x-k8s.io/pod-group", "g"),)

        ports.binder.submit([Bind(uid, "default", "a", "n1")])
        assert await ports.binder.drain(5) == 0
        await ports.until(lambda: (found := ports.pod("a")) is not None and found.node_name == "n1")
        assert Bound(uid, "n1") in ports.messages
        # Told too late: the pod is bound, and its condition says so.
        ports.status.put(SetPodCondition(uid, "default", "a", "Unschedulable", "too late"))
        assert await ports.status.drain(5) == 0
        conditions = (await stored(client, f"{PODS}/a"))["status"]["conditions"]
        assert [(c["type"], c["status"]) for c in conditions] == [("PodScheduled", "True")]
        await delete(client, f"{PODS}/a")
        await ports.until(lambda: any(isinstance(m, Gone) and m.kind is Pod for m in ports.messages))
        assert ports.reports == []


async def test_bind_outcomes(control_plane: ControlPlane) -> None:
    """Binding a pod that is bound, deleted, recreated or gated is an outcome, never an exception (B3)."""
    async with at_work(control_plane.kubeconfig) as ports:
        client = ports.client
        uid = await create_pod(client, "b")
        for bind in (
            Bind(uid, "default", "b", "n1"),
            Bind(uid, "default", "b", "n1"),
            Bind(uid, "default", "b", "n2"),
            Bind("other", "default", "b", "n1"),
            Bind("nobody", "default", "nobody", "n1"),
        ):
            ports.binder.submit([bind])
            assert await ports.binder.drain(5) == 0
        outcomes = [m for m in ports.messages if isinstance(m, Bound | BindGone | BindFailed)]
        assert [type(outcome).__name__ for outcome in outcomes] == [
            "Bound",
            "Bound",
            "BindGone",
            "BindGone",
            "BindGone",
        ]
        await delete(client, f"{PODS}/b")


async def test_another_pod_of_the_name_is_not_touched(control_plane: ControlPlane) -> None:
    """The uid in a patch is a precondition: a recreated pod keeps its own status."""
    async with at_work(control_plane.kubeconfig) as ports:
        await create_pod(ports.client, "c")
        ports.status.put(SetPodCondition("old-uid", "default", "c", "Unschedulable", "about the old one"))
        ports.status.put(MarkTimedOut("old-uid", "default", "c"))
        assert await ports.status.drain(5) == 0
        found = await stored(ports.client, f"{PODS}/c")
        assert "conditions" not in found["status"]
        assert "annotations" not in found["metadata"]
        assert ports.reports == []
        await delete(ports.client, f"{PODS}/c")


async def test_events(control_plane: ControlPlane) -> None:
    """Events about namespaced and cluster-scoped objects are accepted; a repeated one becomes a series."""
    async with at_work(control_plane.kubeconfig) as ports:
        about = ObjectRef("v1", "Pod", "default", "e", "uid-e")
        ports.recorder.record(RecordEvent(about, "FailedScheduling", "x" * 3000, warning=True))
        ports.recorder.record(RecordEvent(ObjectRef("v1", "Node", "", "n", "uid-n"), "Odd", "note"))
        assert await ports.recorder.drain(5) == 0
        assert (ports.recorder.counts.written, ports.reports) == (2, [])
        path = "/apis/events.k8s.io/v1/namespaces/default/events"
        events = {event["reason"]: event for event in (await stored(ports.client, path))["items"]}
        assert len(events["FailedScheduling"]["note"].encode()) == 1024
        assert events["Odd"]["regarding"]["kind"] == "Node"

        clock = 0.0
        recorder = Recorder(ports.client, ports.binder, runtime=Runtime(now=lambda: clock, sleep=_instant))
        task = asyncio.create_task(recorder.run())
        recorder.record(RecordEvent(about, "Again", "same"))
        await recorder.drain(5)
        recorder.record(RecordEvent(about, "Again", "same"))
        clock = 70.0
        await ports.until(lambda: recorder.counts.written == 2)
        task.cancel()
        await asyncio.wait({task})
        series = [e["series"]["count"] for e in (await stored(ports.client, path))["items"] if e["reason"] == "Again"]
        assert series == [2]


async def _instant(seconds: float) -> None:
    await asyncio.sleep(0.01)


async def test_definition_that_comes_and_goes(control_plane: ControlPlane) -> None:
    """A definition installed later is served within ten seconds; one that is removed takes its PodGroups along."""
    async with at_work(control_plane.kubeconfig) as ports:
        assert Unread(PodGroup, X_K8S) in ports.messages
        path = f"/apis/{X_K8S}/v1alpha1/namespaces/default/podgroups"
        async with defined(control_plane, ports.client, definition(X_K8S)):
            await create(ports.client, path, _pod_group(X_K8S, "g", 3))
            await ports.until(lambda: "g" in ports.pod_groups(X_K8S), within_s=10)
            assert ports.pod_groups(X_K8S)["g"].min_member == 3
            patch = json.dumps({"spec": {"minMember": 5}}).encode()
            await ports.client.request("PATCH", f"{path}/g", patch, content_type="application/merge-patch+json")
            await ports.until(lambda: ports.pod_groups(X_K8S)["g"].min_member == 5)
            found = await stored(ports.client, f"{path}/g")
            assert "annotations" not in found["metadata"]
            assert "finalizers" not in found["metadata"]
            await create(ports.client, path, _pod_group(X_K8S, "h", 1))
            await ports.until(lambda: "h" in ports.pod_groups(X_K8S))
            await delete(ports.client, f"{path}/h")
            await ports.until(lambda: "h" not in ports.pod_groups(X_K8S))
        await ports.until(lambda: ports.pod_groups(X_K8S) == {})
        async with defined(control_plane, ports.client, definition(X_K8S)):
            await create(ports.client, path, _pod_group(X_K8S, "again", 1))
            await ports.until(lambda: list(ports.pod_groups(X_K8S)) == ["again"], within_s=15)


def _pod_group(api_group: str, name: str, minimum: int) -> dict[str, Any]:
    return {
        "apiVersion": f"{api_group}/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": {"minMember": minimum},
    }


@pytest.mark.parametrize("subresource", [True, False])
async def test_pod_group_status(control_plane: ControlPlane, subresource: bool) -> None:
    """The status is stored with or without the subresource, and nothing else of the object is touched (E3)."""
    path = f"/apis/{SIGS}/v1alpha1/namespaces/default/podgroups"
    body = definition(SIGS, subresource=subresource)
    async with (
        await connect(control_plane.kubeconfig) as client,
        defined(control_plane, client, body),
        at_work(control_plane.kubeconfig) as ports,
    ):
        uid = (await create(client, path, _pod_group(SIGS, "g", 2)))["metadata"]["uid"]
        degraded = {"type": "Degraded", "status": "True", "reason": "BelowMin", "message": "m"}
        for scheduled in (1, 2):
            status = {"phase": "Pending", "scheduled": scheduled, "conditions": [degraded]}
            ports.status.put(SetPodGroupStatus(SIGS, "v1alpha1", "default", "g", uid, status))
            assert await ports.status.drain(5) == 0
        if not subresource:  # a status subresource ignores the uid in the patch
            ports.status.put(SetPodGroupStatus(SIGS, "v1alpha1", "default", "g", "other-uid", {"scheduled": 9}))
            assert await ports.status.drain(5) == 0
        found = await stored(client, f"{path}/g")
        assert (found["status"]["phase"], found["status"]["scheduled"]) == ("Pending", 2)
        assert found["status"]["conditions"][0]["message"] == "m"
        assert found["spec"] == {"minMember": 2}
        await ports.until(lambda: ports.pod_groups(SIGS)["g"].status.get("scheduled") == 2)
        assert ports.reports == []


async def test_kopf_leaves_our_tasks_and_signals_alone(control_plane: ControlPlane) -> None:
    """When kopf's operator dies, tasks it did not start live on, and our signal handler is the one that is called."""
    signalled = asyncio.Event()
    loop = asyncio.get_running_loop()
    async with await connect(control_plane.kubeconfig) as client:
        async with defined(control_plane, client, definition(X_K8S)):
            stop = asyncio.Event()
            events: list[str | None] = []
            following = asyncio.create_task(
                follow(
                    client,
                    X_K8S,
                    "v1alpha1",
                    lambda kind, _: events.append(kind),
                    pace=Pace(1.0, now=time.monotonic, sleep=asyncio.sleep),
                    stop=stop,
                    restore_signals=lambda: loop.add_signal_handler(signal.SIGTERM, signalled.set),
                )
            )
            bystander = asyncio.create_task(asyncio.Event().wait())
            await create(client, f"/apis/{X_K8S}/v1alpha1/namespaces/default/podgroups", _pod_group(X_K8S, "g", 1))
            async with asyncio.timeout(10):
                while not events:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.wait_for(signalled.wait(), 2)
            assert not following.done()
        with pytest.raises(OperatorEnded):
            await asyncio.wait_for(following, 20)
        assert not bystander.done()
        bystander.cancel()
        loop.remove_signal_handler(signal.SIGTERM)


async def test_rights(control_plane: ControlPlane, tmp_path: Path) -> None:
    """Without the role the daemon says which rights it lacks and how to grant them; with it, it may start."""
    api = Api.of(control_plane)
    await asyncio.to_thread(apply_manifests, api, crds=False)
    token = control_plane.service_account_token("gangsched-system", "gangsched")
    config = control_plane.write_kubeconfig(tmp_path / "kubeconfig", token=token)
    async with await connect(config) as client:
        await client.check()
    binding = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/gangsched"
    async with await connect(control_plane.kubeconfig) as admin:
        await delete(admin, binding)
    async with await connect(config) as client:
        async with asyncio.timeout(10):
            while True:  # the authorizer learns of it a moment later
                try:
                    await client.check()
                except Misconfigured as fault:
                    said = str(fault)
                    break
                await asyncio.sleep(0.05)
    assert "create pods/binding" in said
    assert said.endswith("apply manifests/rbac.yaml.")
    api.close()


async def test_wrong_token(control_plane: ControlPlane, tmp_path: Path) -> None:
    """Credentials the server does not know are one sentence."""
    config = control_plane.write_kubeconfig(tmp_path / "kubeconfig", token="wrong")
    async with await connect(config) as client:
        with pytest.raises(Misconfigured, match="does not accept"):
            await client.check()


async def test_server_that_goes_away_and_comes_back(control_plane: ControlPlane) -> None:
    """While the API server is away nothing breaks; what happened meanwhile is known soon after."""
    async with at_work(control_plane.kubeconfig) as ports:
        uid = await create_pod(ports.client, "before")
        await ports.until(lambda: ports.pod("before") is not None)
        await asyncio.to_thread(control_plane.stop_component, "kube-apiserver")
        ports.binder.submit([Bind(uid, "default", "before", "n1")])
        ports.status.put(SetPodCondition("other", "default", "other", "Unschedulable", "m"))
        await ports.until(lambda: bool(ports.reports))
        assert ports.binder.pending == 1
        await asyncio.to_thread(control_plane.start_component, "kube-apiserver")
        assert await ports.binder.drain(15) == 0
        await create_pod(ports.client, "after")
        await ports.until(lambda: ports.pod("after") is not None, within_s=15)
        assert any(isinstance(message, Replaced) and message.kind is Node for message in ports.messages)
        assert await ports.status.drain(15) == 0
        await delete(ports.client, f"{PODS}/before", f"{PODS}/after")
