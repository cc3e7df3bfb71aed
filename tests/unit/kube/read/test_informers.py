"""Informers: what is read before anybody takes it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from gangsched.api.keys import NATIVE, SIGS, X_K8S
from gangsched.kube.ports import silent
from gangsched.kube.read import resources
from gangsched.kube.read.informers import Informers
from gangsched.model.objects import Namespace, Node, Pod, PodGroup
from gangsched.model.protocol import Applied, Gone, Message, Replaced, Unread
from gangsched.model.storage import Claim, CsiNode, ResourceClaim, StorageClass, Volume
from tests.unit.kube.fakes import line, node, page, pod, says, serving, status, streams

REQUIRED = ("/api/v1/pods", "/api/v1/nodes", "/api/v1/namespaces")


async def test_what_was_read_before_anybody_took_it_comes_first_and_in_order(tmp_path: Path) -> None:
    """Lists and lines from before `deliver_to` reach the sink once, before what comes later."""
    told: list[Message] = []
    async with serving(tmp_path) as (server, client):
        server.will("GET", "/api/v1/pods", says(page(pod("a"), rv="5")))
        server.will("GET", "/api/v1/nodes", says(page(node("n"), rv="5")))
        server.will("GET", "/api/v1/namespaces", says(page(rv="5")))
        server.will("WATCH", "/api/v1/pods", streams(line("ADDED", pod("b", rv="6")), hold=True))
        informers = Informers(client, warn=silent, restore_signals=lambda: None, sweep_every_s=60.0)
        assert {"pods", "nodes", "namespaces", "podgroups"} < set(informers.waiting_for())
        running = asyncio.create_task(informers.run())
        async with asyncio.timeout(10):
            await informers.synced()
            while not informers.stores["pods"].counts.lines:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        assert informers.waiting_for() == []
        informers.deliver_to(told.append)
        informers.stores["pods"].take_line(json.dumps(line("DELETED", pod("a", rv="7"))).encode())
        running.cancel()
        await asyncio.wait({running})
    of_pods = [
        message for message in told if Pod in {getattr(message, "kind", None), type(getattr(message, "item", None))}
    ]
    assert [type(message) for message in of_pods] == [Replaced, Applied, Gone]
    assert {Node, Namespace} < {message.kind for message in told if isinstance(message, Replaced)}


async def test_a_kind_that_may_not_be_read_holds_nothing_up(tmp_path: Path) -> None:
    """Everything is read once every resource is listed or refused; what of storage is refused is said to be unread."""
    said: list[Message] = []
    messages: list[str] = []
    forbidden = says(status(403, "Forbidden", "claims are forbidden"), 403)
    async with serving(tmp_path) as (server, client):
        server.will("GET", resources.CLAIMS.path, forbidden)
        # ResourceClaims are answered by 404
        for path in (*REQUIRED, *(each.path for each in resources.STORAGE[1:4])):
            server.will("GET", path, says(page()))
            server.will("WATCH", path, streams(hold=True))
        informers = Informers(client, warn=messages.append, restore_signals=lambda: None, sweep_every_s=60.0)
        informers.deliver_to(said.append)
        assert {resource.name for resource in resources.STORAGE} < set(informers.waiting_for())
        task = asyncio.create_task(informers.run())
        async with asyncio.timeout(10):
            await informers.synced()
        assert informers.waiting_for() == []
        assert Unread(Claim) in said
        assert Unread(ResourceClaim) in said
        read = {message.kind for message in said if isinstance(message, Replaced)}
        assert read == {Pod, Node, Namespace, Volume, StorageClass, CsiNode}
        unserved = {message.api_group for message in said if isinstance(message, Unread) and message.kind is PodGroup}
        assert unserved == {X_K8S, SIGS, NATIVE}
        (sentence,) = messages  # an API that is not served is no trouble
        assert sentence.startswith("Cannot follow persistentvolumeclaims")
        assert "apply manifests/rbac.yaml" in sentence
        task.cancel()
        await asyncio.wait({task})
