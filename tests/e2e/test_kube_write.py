"""What goes out: what is written is stored on a real API server."""

from __future__ import annotations

import asyncio

import pytest
from control_plane import ControlPlane

from gangsched.kube.http.client import connect
from gangsched.kube.ports import Runtime
from gangsched.kube.write.recorder import Recorder
from gangsched.model.objects import Pod
from gangsched.model.protocol import (
    Bind,
    BindFailed,
    BindGone,
    Bound,
    Gone,
    MarkTimedOut,
    ObjectRef,
    RecordEvent,
    SetPodCondition,
    SetPodGroupStatus,
)
from tests.e2e.kube_parts import (
    PODS,
    SIGS,
    at_work,
    create,
    create_pod,
    defined,
    definition,
    delete,
    pod_group,
    stored,
)

pytestmark = pytest.mark.e2e


async def test_pods_from_creation_to_binding(control_plane: ControlPlane) -> None:
    """A pod is seen, told why it waits, annotated, bound, seen bound, and seen gone."""
    async with at_work(control_plane.kubeconfig) as ports:
        client = ports.client
        uid = await create_pod(client, "a", labels={"scheduling.x-k8s.io/pod-group": "g"})
        await ports.until(lambda: ports.pod("a") is not None)
        ports.status.put(
            SetPodCondition(uid, "default", "a", "Unschedulable", "0/0 nodes are available.")
        )
        ports.status.put(MarkTimedOut(uid, "default", "a"))
        assert await ports.status.drain(5) == 0
        await ports.until(
            lambda: (
                (found := ports.pod("a")) is not None and found.timed_out and bool(found.condition)
            )
        )
        found = ports.pod("a")
        assert found is not None
        assert found.condition is not None
        assert (found.condition.reason, found.condition.message) == (
            "Unschedulable",
            "0/0 nodes are available.",
        )
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
        await ports.until(
            lambda: any(isinstance(m, Gone) and m.kind is Pod for m in ports.messages)
        )
        assert ports.reports == []


async def test_bind_outcomes(control_plane: ControlPlane) -> None:
    """Binding a pod that is bound, deleted, recreated or gated is an outcome, never an exception
    (B3).
    """
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
        ports.status.put(
            SetPodCondition("old-uid", "default", "c", "Unschedulable", "about the old one")
        )
        ports.status.put(MarkTimedOut("old-uid", "default", "c"))
        assert await ports.status.drain(5) == 0
        found = await stored(ports.client, f"{PODS}/c")
        assert "conditions" not in found["status"]
        assert "annotations" not in found["metadata"]
        assert ports.reports == []
        await delete(ports.client, f"{PODS}/c")


async def test_events(control_plane: ControlPlane) -> None:
    """Events about namespaced and cluster-scoped objects are accepted; a repeated one becomes a
    series.
    """
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
        recorder = Recorder(
            ports.client,
            (ports.binder.in_flight,),
            runtime=Runtime(now=lambda: clock, sleep=_instant),
        )
        task = asyncio.create_task(recorder.run())
        recorder.record(RecordEvent(about, "Again", "same"))
        # `drain` sleeps on this clock: it gives up at once
        await ports.until(lambda: recorder.counts.written == 1)
        recorder.record(RecordEvent(about, "Again", "same"))
        clock = 70.0
        await ports.until(lambda: recorder.counts.written == 2)
        task.cancel()
        await asyncio.wait({task})
        series = [
            e["series"]["count"]
            for e in (await stored(ports.client, path))["items"]
            if e["reason"] == "Again"
        ]
        assert series == [2]


async def _instant(seconds: float) -> None:
    await asyncio.sleep(0.01)


@pytest.mark.parametrize("subresource", [True, False])
async def test_pod_group_status(control_plane: ControlPlane, subresource: bool) -> None:
    """The status is stored with or without the subresource, and nothing else of the object is
    touched (E3).
    """
    path = f"/apis/{SIGS}/v1alpha1/namespaces/default/podgroups"
    body = definition(SIGS, subresource=subresource)
    async with (
        await connect(control_plane.kubeconfig) as client,
        defined(control_plane, client, body),
        at_work(control_plane.kubeconfig) as ports,
    ):
        uid = (await create(client, path, pod_group(SIGS, "g", 2)))["metadata"]["uid"]
        degraded = {"type": "Degraded", "status": "True", "reason": "BelowMin", "message": "m"}
        for scheduled in (1, 2):
            status = {"phase": "Pending", "scheduled": scheduled, "conditions": [degraded]}
            ports.status.put(SetPodGroupStatus(SIGS, "v1alpha1", "default", "g", uid, status))
            assert await ports.status.drain(5) == 0
        if not subresource:  # a status subresource ignores the uid in the patch
            ports.status.put(
                SetPodGroupStatus(SIGS, "v1alpha1", "default", "g", "other-uid", {"scheduled": 9})
            )
            assert await ports.status.drain(5) == 0
        found = await stored(client, f"{path}/g")
        assert (found["status"]["phase"], found["status"]["scheduled"]) == ("Pending", 2)
        assert found["status"]["conditions"][0]["message"] == "m"
        assert found["spec"] == {"minMember": 2}
        await ports.until(
            lambda: (
                "g" in (known := ports.pod_groups(SIGS)) and known["g"].status.get("scheduled") == 2
            )
        )
        assert ports.reports == []
