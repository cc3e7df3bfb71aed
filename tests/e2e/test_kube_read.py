"""What comes in: what is stored on a real API server is seen."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time

import pytest
from control_plane import ControlPlane

from gangsched.kube.http.backoff import RequestPace
from gangsched.kube.http.client import connect
from gangsched.kube.read.kopf_watch import OperatorEnded, follow
from gangsched.model.objects import Node, PodGroup
from gangsched.model.protocol import Bind, Replaced, SetPodCondition, Unread
from tests.e2e.kube_parts import (
    PODS,
    X_K8S,
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


async def test_definition_that_comes_and_goes(control_plane: ControlPlane) -> None:
    """A definition installed later is served within ten seconds; one that is removed takes its
    PodGroups along.
    """
    async with at_work(control_plane.kubeconfig) as ports:
        assert Unread(PodGroup, X_K8S) in ports.messages
        path = f"/apis/{X_K8S}/v1alpha1/namespaces/default/podgroups"
        async with defined(control_plane, ports.client, definition(X_K8S)):
            await create(ports.client, path, pod_group(X_K8S, "g", 3))
            await ports.until(lambda: "g" in ports.pod_groups(X_K8S), within_s=10)
            assert ports.pod_groups(X_K8S)["g"].min_member == 3
            patch = json.dumps({"spec": {"minMember": 5}}).encode()
            await ports.client.request(
                "PATCH", f"{path}/g", patch, content_type="application/merge-patch+json"
            )
            await ports.until(lambda: ports.pod_groups(X_K8S)["g"].min_member == 5)
            found = await stored(ports.client, f"{path}/g")
            assert "annotations" not in found["metadata"]
            assert "finalizers" not in found["metadata"]
            await create(ports.client, path, pod_group(X_K8S, "h", 1))
            await ports.until(lambda: "h" in ports.pod_groups(X_K8S))
            await delete(ports.client, f"{path}/h")
            await ports.until(lambda: "h" not in ports.pod_groups(X_K8S))
        await ports.until(lambda: ports.pod_groups(X_K8S) == {})
        async with defined(control_plane, ports.client, definition(X_K8S)):
            await create(ports.client, path, pod_group(X_K8S, "again", 1))
            await ports.until(lambda: list(ports.pod_groups(X_K8S)) == ["again"], within_s=15)


async def test_kopf_leaves_our_tasks_and_signals_alone(control_plane: ControlPlane) -> None:
    """When kopf's operator dies, tasks it did not start live on, and our signal handler is the one
    that is called.
    """
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
                    pace=RequestPace(1.0, now=time.monotonic, sleep=asyncio.sleep),
                    stop=stop,
                    restore_signals=lambda: loop.add_signal_handler(signal.SIGTERM, signalled.set),
                )
            )
            bystander = asyncio.create_task(asyncio.Event().wait())
            await create(
                client,
                f"/apis/{X_K8S}/v1alpha1/namespaces/default/podgroups",
                pod_group(X_K8S, "g", 1),
            )
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
        assert any(
            isinstance(message, Replaced) and message.kind is Node for message in ports.messages
        )
        assert await ports.status.drain(15) == 0
        await delete(ports.client, f"{PODS}/before", f"{PODS}/after")
