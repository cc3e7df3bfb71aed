"""The server with TLS, in this process: strangers, forgeries, floods, slow readers and odd requests."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientConnectionError, ClientResponse, ClientSession, TCPConnector
from control_plane.pki import Pki, make_pki
from control_plane.ports import free_ports
from yarl import URL

from gangsched.api.gang_spec import GangDefaults
from gangsched.core.cycle import Limits
from gangsched.kube.read.shapes import ShapeTable
from gangsched.kube.read.templates import template_pod
from gangsched.model.gpu_policy import GpuPolicy
from gangsched.settings import Settings
from gangsched.visibility.gangs import watching
from gangsched.visibility.gangs.store import GangStore
from gangsched.visibility.listener import listen
from gangsched.visibility.ports import Answer, Clocks, Json
from gangsched.visibility.reviews.review import Planning, Reviewer
from gangsched.visibility.server import Server
from tests.builders import members, node
from tests.world import EPOCH_S, World

GANGS = "/apis/visibility.gangsched.dev/v1alpha1"
ALICE = {"X-Remote-User": "alice"}
POLICY = GpuPolicy()


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    """Certificates of a cluster."""
    return make_pki(tmp_path_factory.mktemp("pki"))


class Api:
    """The API server, as far as it is asked: `allows` is the answer of every review."""

    def __init__(self, pki: Pki, names: str = '["front-proxy-client"]') -> None:
        self.allows = True
        self.asked = 0
        self.config = {
            "requestheader-client-ca-file": pki.proxy_ca.read_text(),
            "requestheader-allowed-names": names,
            "requestheader-username-headers": '["X-Remote-User"]',
            "requestheader-group-headers": '["X-Remote-Group"]',
        }

    async def __call__(self, method: str, path: str, body: Json | None = None) -> Answer:
        if path.endswith("extension-apiserver-authentication"):
            return Answer(200, {"data": self.config})
        self.asked += 1
        return Answer(201, {"status": {"allowed": self.allows}})


@asynccontextmanager
async def served(world: World, api: Api, pki: Pki) -> AsyncIterator[str]:
    """The address of a server for this world, which has begun to listen."""
    (port,) = free_ports(1)
    settings = Settings(
        visibility_port=port,
        visibility_host="127.0.0.1",
        visibility_cert_file=Path(pki.server_cert),
        visibility_key_file=Path(pki.server_key),
    )
    loop = asyncio.get_running_loop()
    clocks = Clocks(now_s=loop.time, wall_s=lambda: EPOCH_S + world.now_s)
    planning = Planning(limits=Limits(), policy=POLICY, defaults=GangDefaults())
    server = Server(
        settings,
        api,
        GangStore(world.state, clocks, policy=POLICY, served_by=lambda: {"role": "leader"}),
        clocks=clocks,
        leads=lambda: True,
        reviewer=Reviewer(world.state, api, clocks, partial(template_pod, shapes=ShapeTable()), planning),
        policy=POLICY,
        served_by=lambda: {"role": "leader"},
    )
    with closing(listen(settings)) as listener:
        async with server.serving(listener):
            yield f"https://127.0.0.1:{port}"


def client(pki: Pki, certificate: Path | None = None, key: Path | None = None) -> ClientSession:
    """A client that believes the server, with a certificate or without."""
    context = ssl.create_default_context(cafile=str(pki.ca))
    if certificate is not None:
        context.load_cert_chain(certificate, key)
    return ClientSession(connector=TCPConnector(ssl=context))


def proxy(pki: Pki) -> ClientSession:
    """The front proxy."""
    return client(pki, pki.proxy_cert, pki.proxy_key)


async def told(response: ClientResponse) -> tuple[int, Any]:
    """Status and body."""
    return response.status, json.loads(await response.read())


def world_of(*names: str) -> World:
    """A world with these gangs."""
    world = World(node("a", 8))
    for name in names:
        world.create(members(name, 1, gpus=0))
    return world.settle()


async def test_only_the_front_proxy_is_believed(pki: Pki, tmp_path: Path) -> None:
    """Nobody, another authority's certificate, another name of its authority; and then the proxy itself."""
    forged = {**ALICE, "X-Remote-Group": "system:masters"}
    other = make_pki(tmp_path)
    async with served(world_of("g"), api := Api(pki), pki) as url:
        async with client(pki) as nobody:
            for path in (f"{GANGS}/gangs", "/apis", "/openapi/v2", "/", "/%00"):
                status, body = await told(await nobody.get(url + path, headers=forged))
                assert (status, body["kind"], body["reason"]) == (401, "Status", "Unauthorized")
        for certificate, key in ((pki.admin_cert, pki.admin_key), (other.proxy_cert, other.proxy_key)):
            async with client(pki, certificate, key) as stranger:
                with pytest.raises(ClientConnectionError):
                    await stranger.get(f"{url}{GANGS}/gangs", headers=forged)
        assert api.asked == 0
        async with proxy(pki) as itself:
            status, body = await told(await itself.get(f"{url}{GANGS}/gangs", headers=ALICE))
            assert (status, [each["metadata"]["name"] for each in body["items"]]) == (200, ["g"])
    async with served(world_of("g"), Api(pki, '["somebody-else"]'), pki) as url, proxy(pki) as itself:
        assert (await itself.get(f"{url}{GANGS}/gangs", headers=forged)).status == 401


async def test_a_user_without_the_right_is_told_nothing_else(pki: Pki) -> None:
    """403 for what is there, what is not, and what there could not be."""
    api = Api(pki)
    api.allows = False
    async with served(world_of("g"), api, pki) as url, proxy(pki) as itself:
        for path in (
            "/namespaces/ns/gangs/g",
            "/namespaces/ns/gangs/no",
            "/gangs",
            "/nonsense",
            "/namespaces/ns/gangs",
        ):
            assert (await itself.get(url + GANGS + path, headers=ALICE)).status == 403, path
        assert (await itself.post(f"{url}{GANGS}/namespaces/ns/placementreviews", headers=ALICE)).status == 403
        assert (await itself.delete(f"{url}{GANGS}/namespaces/ns/gangs/g", headers=ALICE)).status == 403


async def test_odd_names_are_found_and_cannot_leave_their_namespace(pki: Pki) -> None:
    """Spaces, signs of a path and other scripts; an encoded slash is part of the name."""
    names = ("My Gang", "a/../b", "✓", "100%", "x" * 300, '"quoted"')
    async with served(world_of(*names), Api(pki), pki) as url, proxy(pki) as itself:
        listed = (await told(await itself.get(f"{url}{GANGS}/namespaces/ns/gangs", headers=ALICE)))[1]["items"]
        assert sorted(each["metadata"]["name"] for each in listed) == sorted(names)
        for name, path in (("My Gang", "My%20Gang"), ("✓", "%E2%9C%93"), ("100%", "100%25")):
            one = URL(f"{url}{GANGS}/namespaces/ns/gangs/{path}", encoded=True)
            status, body = await told(await itself.get(one, headers=ALICE))
            assert (status, body["metadata"]["name"]) == (200, name)
        away = URL(f"{url}{GANGS}/namespaces/ns%2F..%2Fother/gangs", encoded=True)
        assert (await told(await itself.get(away, headers=ALICE)))[1]["items"] == []


async def test_a_flood_is_answered_429_and_costs_no_review(pki: Pki) -> None:
    """Of 300 requests of one user some 50 are let in; discovery is answered all the same."""
    async with served(world_of("g"), api := Api(pki), pki) as url, proxy(pki) as itself:
        answers = await asyncio.gather(*(itself.get(f"{url}{GANGS}/gangs", headers=ALICE) for _ in range(300)))
        let_in = sum(answer.status == 200 for answer in answers)
        refused = [answer for answer in answers if answer.status == 429]
        assert 50 <= let_in <= 200
        assert len(refused) == 300 - let_in
        assert refused[0].headers["Retry-After"] == "1"
        assert api.asked <= let_in
        assert (await itself.get(f"{url}{GANGS}", headers=ALICE)).status == 200
        masters = {**ALICE, "X-Remote-Group": "system:masters"}
        assert (await itself.get(f"{url}{GANGS}/gangs", headers=masters)).status == 200


async def test_large_and_strange_bodies_are_refused(pki: Pki) -> None:
    """413, 415, 400 and 405, each with its Status."""
    path = f"{GANGS}/namespaces/ns/placementreviews"
    async with served(world_of("g"), Api(pki), pki) as url, proxy(pki) as itself:
        kind = {"Content-Type": "application/json", **ALICE}
        large = await itself.post(url + path, headers=kind, data=b"[" * 600_000)
        assert (large.status, (await told(large))[1]["reason"]) == (413, "RequestEntityTooLarge")
        yaml = await itself.post(url + path, headers={**ALICE, "Content-Type": "application/yaml"}, data=b"a: b")
        assert yaml.status == 415
        assert (await itself.post(url + path, headers=kind, data=b"[" * 400_000)).status == 400
        assert (await itself.get(url + path, headers=ALICE)).status == 405
        assert (await itself.put(f"{url}{GANGS}/namespaces/ns/gangs/g", headers=kind, data=b"{}")).status == 405
        assert (await itself.get(f"{url}{GANGS}/namespaces/ns/gangs?limit=x", headers=ALICE)).status == 400
        assert (await itself.get(f"{url}{GANGS}/gangs", headers={**ALICE, "Accept": "text/html"})).status == 406


async def test_a_watch_sends_what_is_there_and_knows_what_it_does_not_know(pki: Pki) -> None:
    """From now on with a bookmark after it; a version of another replica is answered 410."""
    async with served(world_of("g", "h"), Api(pki), pki) as url, proxy(pki) as itself:
        query = "watch=1&sendInitialEvents=true&allowWatchBookmarks=true"
        async with itself.get(f"{url}{GANGS}/gangs?{query}", headers=ALICE) as stream:
            lines = [json.loads(await stream.content.readline()) for _ in range(3)]
            assert [line["type"] for line in lines] == ["ADDED", "ADDED", "BOOKMARK"]
            assert lines[2]["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        gone = await itself.get(f"{url}{GANGS}/gangs?watch=1&resourceVersion=12345", headers=ALICE)
        assert (gone.status, (await told(gone))[1]["reason"]) == (410, "Expired")
        async with itself.get(f"{url}{GANGS}/gangs?watch=1&timeoutSeconds=1", headers=ALICE) as short:
            assert len((await short.read()).splitlines()) == 2


class Stalled:
    """A response whose reader takes nothing."""

    async def write(self, line: bytes) -> None:
        """Wait for ever, as for a full socket."""
        await asyncio.Event().wait()


async def test_a_reader_that_takes_nothing_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its watch ends as if it had broken off."""
    monkeypatch.setattr(watching, "SEND_WITHIN_S", 0.05)
    watches = object.__new__(watching.Watches)  # it sends by itself
    with pytest.raises(ConnectionResetError):
        await watches.send(Stalled(), b"line")  # type: ignore[arg-type]
