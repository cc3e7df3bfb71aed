"""Informers: what is read before anybody takes it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from gangsched.api import keys
from gangsched.api.dialects import DIALECTS
from gangsched.kube.http import permissions
from gangsched.kube.http.faults import ApiFault
from gangsched.kube.ports import Runtime, silent
from gangsched.kube.read import resources, store
from gangsched.kube.read.informers import Informers
from gangsched.kube.read.provisioning import GROUP
from gangsched.kube.read.reflector import Reflector
from gangsched.kube.read.shapes import ShapeTable
from gangsched.kube.read.store import Store
from gangsched.model.disruption import PodDisruptionBudget
from gangsched.model.objects import Namespace, Node, Pod, PodGroup, Service
from gangsched.model.owners import JobOwner, StatefulSetOwner
from gangsched.model.protocol import Applied, Gone, Message, Replaced, Unread
from gangsched.model.storage import Claim, CsiNode, ResourceClaim, StorageClass, Volume
from tests.unit.kube.fakes import (
    FakeTime,
    bookmark,
    compact,
    line,
    node,
    page,
    pod,
    says,
    serving,
    status,
    streams,
)

REQUIRED = ("/api/v1/pods", "/api/v1/nodes", "/api/v1/namespaces")


async def test_what_was_read_before_anybody_took_it_comes_first_and_in_order(
    tmp_path: Path,
) -> None:
    """Lists and lines from before `deliver_to` reach the sink once, before what comes later."""
    told: list[Message] = []
    async with serving(tmp_path) as (server, client):
        server.will("GET", "/api/v1/pods", says(page(pod("a"), rv="5")))
        server.will("GET", "/api/v1/nodes", says(page(node("n"), rv="5")))
        server.will("GET", "/api/v1/namespaces", says(page(rv="5")))
        server.will("WATCH", "/api/v1/pods", streams(line("ADDED", pod("b", rv="6")), hold=True))
        informers = Informers(
            client, runtime=Runtime(), restore_signals=lambda: None, sweep_every_s=60.0
        )
        assert {"pods", "nodes", "namespaces", "podgroups"} < set(informers.waiting_for())
        running = asyncio.create_task(informers.run())
        async with asyncio.timeout(10):
            await informers.synced()
            while not informers.stores["pods"].counts.lines:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        assert informers.waiting_for() == []
        informers.deliver_to(told.append)
        informers.stores["pods"].take_line(json.dumps(line("DELETED", pod("a", rv="7"))).encode())
        late: list[Message] = []
        informers.deliver_to(late.append)
        again = len(told)
        informers.stores["pods"].take_line(json.dumps(line("ADDED", pod("c", rv="8"))).encode())
        assert len(told) == again
        running.cancel()
        await asyncio.wait({running})
    of_pods = [
        message
        for message in told
        if Pod in {getattr(message, "kind", None), type(getattr(message, "item", None))}
    ]
    assert [type(message) for message in of_pods] == [Replaced, Applied, Gone]
    assert {Node, Namespace} < {message.kind for message in told if isinstance(message, Replaced)}
    # A daemon that begins anew hears of all that is there, then of what comes, and of nothing that
    # is gone.
    (listed,) = [
        message for message in late if isinstance(message, Replaced) and message.kind is Pod
    ]
    assert [each.name for each in listed.items] == ["b"]
    assert [message.item.name for message in late if isinstance(message, Applied)] == ["c"]
    kinds = [message.kind for message in late if isinstance(message, Replaced | Unread)]
    assert len(kinds) == len(told_at_first(told))
    assert set(kinds) == set(told_at_first(told))


def told_at_first(told: list[Message]) -> list[object]:
    """The kinds that were listed or found unread."""
    return [message.kind for message in told if isinstance(message, Replaced | Unread)]


async def test_a_kind_that_may_not_be_read_holds_nothing_up(tmp_path: Path) -> None:
    """Everything is read once every resource is listed or refused; what of storage is refused is
    said to be unread.
    """
    said: list[Message] = []
    messages: list[str] = []
    forbidden = says(status(403, "Forbidden", "claims are forbidden"), 403)
    async with serving(tmp_path) as (server, client):
        server.will("GET", resources.CLAIMS.path, forbidden)
        server.will("GET", resources.DISRUPTION_BUDGETS.path, forbidden)
        server.will("GET", resources.SERVICES.path, forbidden)
        # ResourceClaims are answered by 404
        for path in (*REQUIRED, *(each.path for each in resources.STORAGE[1:4])):
            server.will("GET", path, says(page()))
            server.will("WATCH", path, streams(hold=True))
        informers = Informers(
            client,
            runtime=Runtime(warn=messages.append),
            restore_signals=lambda: None,
            sweep_every_s=60.0,
        )
        informers.deliver_to(said.append)
        assert {resource.name for resource in resources.STORAGE} < set(informers.waiting_for())
        task = asyncio.create_task(informers.run())
        async with asyncio.timeout(10):
            await informers.synced()
        assert informers.waiting_for() == []
        assert Unread(Claim) in said
        assert Unread(ResourceClaim) in said
        assert Unread(PodDisruptionBudget) in said
        assert Unread(Service) in said
        read = {message.kind for message in said if isinstance(message, Replaced)}
        assert read == {Pod, Node, Namespace, Volume, StorageClass, CsiNode}
        unserved = {
            message.api_group
            for message in said
            if isinstance(message, Unread) and message.kind is PodGroup
        }
        assert unserved == set(DIALECTS)
        sentences = sorted(messages)  # an API that is not served is no trouble
        assert [sentence.split(":")[0] for sentence in sentences] == [
            "Cannot follow persistentvolumeclaims",
            "Cannot follow poddisruptionbudgets",
            "Cannot follow services",
        ]
        assert sentences[2].endswith(
            "; until then pods behind Services are packed unless a controller replicates them."
        )
        assert all("apply manifests/rbac.yaml" in sentence for sentence in sentences)
        task.cancel()
        await asyncio.wait({task})


async def test_budgets_that_may_be_read_later_are_told(tmp_path: Path) -> None:
    """V26: the right may come while the daemon runs, and a server without policy/v1 may learn it;
    404 is no trouble.
    """
    said: list[Message] = []
    messages: list[str] = []
    path = resources.DISRUPTION_BUDGETS.path
    clock = FakeTime()
    async with serving(tmp_path) as (server, client):
        body = {
            "metadata": {"name": "w", "namespace": "ns", "generation": 1},
            "spec": {"selector": {}},
        }
        server.will(
            "GET", path, says(status(404, "NotFound", "no policy/v1"), 404), says(page(body))
        )
        server.will("WATCH", path, streams(hold=True))
        reader = store.Store(resources.DISRUPTION_BUDGETS, said.append, messages.append)
        unread = Unread(PodDisruptionBudget)
        reflector = Reflector(
            client,
            reader,
            runtime=Runtime(warn=messages.append, now=clock.now, sleep=clock.sleep),
            refused=lambda forbidden: said.append(unread),
        )
        task = asyncio.create_task(reflector.run())
        async with asyncio.timeout(10):
            await reflector.synced.wait()
            assert said == [unread]
            while len(said) == 1:
                await clock.advance(1.0)
                await asyncio.sleep(0.001)
        task.cancel()
        await asyncio.wait({task})
    assert said[1:] == [
        Replaced(PodDisruptionBudget, (PodDisruptionBudget(namespace="ns", name="w", selector=()),))
    ]
    assert messages == []


async def test_nobody_reads_budgets_without_preemption(tmp_path: Path) -> None:
    """V26: `preemption: off` needs no right to them and waits for nothing."""
    async with serving(tmp_path) as (_, client):
        reads = [
            Informers(
                client,
                runtime=Runtime(),
                restore_signals=lambda: None,
                sweep_every_s=60.0,
                disruption_budgets=asked,
            )
            for asked in (True, False)
        ]
    with_them, without = (set(informers.stores) for informers in reads)
    assert with_them - without == {"poddisruptionbudgets"}


async def test_nobody_reads_services_where_nothing_is_spread(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, client):
        reads = [
            Informers(
                client,
                runtime=Runtime(),
                restore_signals=lambda: None,
                sweep_every_s=60.0,
                services=asked,
            )
            for asked in (True, False)
        ]
    with_them, without = (set(informers.stores) for informers in reads)
    assert with_them - without == {"services"}


async def test_the_right_to_services_is_missed_once_and_used_when_it_comes(tmp_path: Path) -> None:
    """The list is tried again every ten seconds, and nothing is said again until it succeeds."""
    said: list[Message] = []
    messages: list[str] = []
    path, clock = resources.SERVICES.path, FakeTime()
    async with serving(tmp_path) as (server, client):
        body = {"metadata": {"name": "s", "namespace": "ns"}, "spec": {"selector": {"app": "web"}}}
        server.will(
            "GET", path, *[says(status(403, "Forbidden", "no services"), 403)] * 4, says(page(body))
        )
        server.will("WATCH", path, streams(hold=True))
        reader = store.Store(resources.SERVICES, said.append, messages.append)
        reflector = Reflector(
            client,
            reader,
            runtime=Runtime(warn=messages.append, now=clock.now, sleep=clock.sleep),
            refused=reader.refused,
        )
        task = asyncio.create_task(reflector.run())
        async with asyncio.timeout(10):
            while Replaced(Service, (Service("ns", "s", frozenset({("app", "web")})),)) not in said:
                await clock.advance(1.0)
                await asyncio.sleep(0.001)
        task.cancel()
        await asyncio.wait({task})
    assert said[:-1] == [Unread(Service)] * 4
    assert [message.split(":")[0] for message in messages] == [
        "Cannot follow services",
        "Following services again.",
    ]


def test_ten_thousand_budgets_are_listed_page_by_page() -> None:
    """V7: each is told once before the list is whole, and the list then says that nothing is
    missing.
    """
    said: list[Message] = []
    reader = store.Store(resources.DISRUPTION_BUDGETS, said.append, silent)
    bodies = [
        {
            "metadata": {"name": f"w{number}", "namespace": f"ns{number % 7}"},
            "spec": {"selector": {}},
        }
        for number in range(10_000)
    ]
    for start in range(0, 10_000, 500):
        token = "more" if start < 9_500 else ""
        reader.add_page(
            json.dumps(page(*bodies[start : start + 500], rv="5", token=token)).encode()
        )
    assert len(said) == 10_001
    assert isinstance(said[-1], Replaced)
    assert len(said[-1].items) == 10_000


class Told:
    """A client whose list is empty or refused, and whose watch says what a test says."""

    def __init__(self) -> None:
        self.refused = False
        self.said: asyncio.Queue[bytes] = asyncio.Queue()

    async def request(self, method: str, path: str, *, timeout_s: float) -> bytes:
        if self.refused:
            raise ApiFault(403, "Forbidden", "no right")
        return compact(page(rv="5"))

    async def chunks(self, path: str, *, silence_s: float) -> AsyncIterator[bytes]:
        while True:
            yield await self.said.get()


async def test_when_a_resource_was_last_heard_of_is_known() -> None:
    """A list, and each line that comes, bookmarks too, show that the API server still talks to us;
    time does not.
    """
    clock, client, messages = FakeTime(), Told(), list[Message]()
    reader = Store(resources.pods(ShapeTable()), messages.append, lambda _: None)
    reflector = Reflector(client, reader, runtime=Runtime(now=clock.now, sleep=clock.sleep))
    assert reflector.heard_s is None
    task = asyncio.create_task(reflector.run())
    await clock.advance(0.0)
    assert reflector.heard_s == 1_000.0
    await clock.advance(60.0)
    assert reflector.heard_s == 1_000.0
    client.said.put_nowait(compact(bookmark("6")) + b"\n")
    await clock.advance(60.0)
    assert reflector.heard_s == 1_060.0
    task.cancel()
    await asyncio.wait({task})


async def test_nobody_waits_to_hear_of_what_is_refused() -> None:
    """An optional resource that we may not read is not silent for ever longer."""
    clock, client, refusals = FakeTime(), Told(), list[int]()
    client.refused = True
    reader = Store(resources.pods(ShapeTable()), lambda _: None, lambda _: None)
    reflector = Reflector(
        client,
        reader,
        runtime=Runtime(now=clock.now, sleep=clock.sleep),
        refused=lambda forbidden: refusals.append(1),
    )
    reflector.heard_s = 900.0
    task = asyncio.create_task(reflector.run())
    await clock.advance(0.0)
    assert refusals == [1]
    assert getattr(reflector, "heard_s") is None  # noqa: B009  (mypy takes it for 900.0)
    task.cancel()
    await asyncio.wait({task})


async def test_owners_are_read_once_a_pod_asks(tmp_path: Path) -> None:
    """O7: no request for Jobs is sent before; then they are, and StatefulSets are not."""
    said: list[Message] = []
    async with serving(tmp_path) as (server, client):
        for path in (*REQUIRED, resources.JOBS.path):
            server.will("GET", path, says(page(rv="5")))
        asking = pod("a", rv="6")
        asking["metadata"] |= {
            "labels": {"gangsched.dev/gang": "owner"},
            "ownerReferences": [{"kind": "Job", "name": "j", "uid": "u", "controller": True}],
        }
        server.will("WATCH", "/api/v1/pods", streams(line("ADDED", asking), hold=True))
        informers = Informers(
            client, runtime=Runtime(), restore_signals=lambda: None, sweep_every_s=60.0
        )
        informers.deliver_to(said.append)
        assert not {"jobs", "statefulsets"} & set(informers.waiting_for())
        running = asyncio.create_task(informers.run())
        async with asyncio.timeout(10):
            await informers.synced()
            await informers.reflectors["jobs"].synced.wait()
        running.cancel()
        await asyncio.wait({running})
    kinds = [message.kind for message in said if isinstance(message, Replaced)]
    assert JobOwner in kinds
    assert StatefulSetOwner not in kinds
    assert not informers.reflectors["statefulsets"].synced.is_set()


def in_namespace(body: Any, **metadata: Any) -> Any:
    """A pod with more metadata."""
    return {**body, "metadata": {**body["metadata"], "namespace": "ml", **metadata}}


async def test_a_namespace_that_begins_to_ask_has_its_pods_read_again(tmp_path: Path) -> None:
    """O1: also groups of a LeaderWorkerSet, which only the decoder knows, and pods that ended."""
    said: list[Message] = []
    group = dict.fromkeys(keys.LWS_GROUP, "0")
    owner = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": "j",
        "uid": "j",
        "controller": True,
    }
    ended = {**pod("ended"), "status": {"phase": "Succeeded"}}
    listed = page(
        in_namespace(pod("leader"), labels=group),
        in_namespace(ended, ownerReferences=[owner]),
        rv="5",
    )
    asking = {"metadata": {"name": "ml", "uid": "n", "labels": {keys.OWNER_GANG: keys.OWNER}}}
    silent_one = {"metadata": {"name": "ml", "uid": "n"}}
    async with serving(tmp_path) as (server, client):
        server.will("GET", "/api/v1/pods", says(listed), says(listed))
        server.will("WATCH", "/api/v1/pods", streams(hold=True), streams(hold=True))
        server.will("GET", "/api/v1/namespaces", says(page(silent_one, rv="5")))
        server.will("WATCH", "/api/v1/namespaces", streams(hold=True))
        server.will("GET", "/api/v1/nodes", says(page(rv="5")))
        server.will("WATCH", "/api/v1/nodes", streams(hold=True))
        informers = Informers(
            client, runtime=Runtime(), restore_signals=lambda: None, sweep_every_s=60.0
        )
        informers.deliver_to(said.append)
        task = asyncio.create_task(informers.run())
        async with asyncio.timeout(10):
            while not informers.reflectors["pods"].counts.watches:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            assert [each.name for _, each in informers.stores["pods"].items()] == ["leader"]
            changed = json.dumps(line("MODIFIED", asking)).encode()
            informers.stores["namespaces"].take_line(changed)
            while informers.reflectors["pods"].counts.lists < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        task.cancel()
        await asyncio.wait({task})
    *_, last = [each for each in said if isinstance(each, Replaced) and each.kind is Pod]
    assert {each.name: bool(each.gang_metadata) for each in last.items} == {
        "leader": True,
        "ended": False,
    }


async def test_an_owner_is_read_in_the_version_that_is_served(tmp_path: Path) -> None:
    """O7: MPIJobs of the training operator, once those of mpi-operator are not served."""
    said: list[Message] = []
    missing = says(status(404, "NotFound", "no such version"), 404)
    mpi = {
        "metadata": {"name": "train", "namespace": "ml", "uid": "u"},
        "spec": {"mpiReplicaSpecs": {"Worker": {"replicas": 3}}},
    }
    resource = resources.TRAINING_JOBS["MPIJob"]
    served = "/apis/kubeflow.org/v1/mpijobs"
    async with serving(tmp_path) as (server, client):
        server.will("GET", resource.path, missing)
        server.will("GET", served, says(page(mpi, rv="5")))
        server.will("WATCH", served, streams(hold=True))
        reader = store.Store(resource, said.append, silent)
        reflector = Reflector(client, reader, runtime=Runtime(), refused=reader.refused)
        task = asyncio.create_task(reflector.run())
        async with asyncio.timeout(10):
            await reflector.synced.wait()
            while not reflector.counts.watches:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        task.cancel()
        await asyncio.wait({task})
    (listed,) = said
    assert isinstance(listed, Replaced)
    assert [owner.minimum for owner in listed.items] == [3]


async def test_the_requests_of_an_earlier_process_are_read_before_the_first_plan(
    tmp_path: Path,
) -> None:
    """E10: only those of this scheduler, once it is known in which version."""
    path = f"/apis/{GROUP}/v1beta1/provisioningrequests"
    allowed = {"status": {"allowed": True}}
    async with serving(tmp_path) as (server, client):
        for each in REQUIRED:
            server.will("GET", each, says(page(rv="5")))
        server.will("POST", permissions.PATH, says(allowed))
        server.will("GET", f"/apis/{GROUP}", says({"versions": [{"version": "v1beta1"}]}))
        server.will("GET", path, says(page(rv="5")))
        informers = Informers(
            client,
            runtime=Runtime(),
            restore_signals=lambda: None,
            sweep_every_s=60.0,
            requested_by="ours",
        )
        assert "provisioningrequests" in informers.waiting_for()
        running = asyncio.create_task(informers.run())
        async with asyncio.timeout(10):
            await informers.synced()
        running.cancel()
        await asyncio.wait({running})

    (listed,) = server.queries("GET", path)
    assert listed["labelSelector"] == "gangsched.dev/requested-by=ours"
