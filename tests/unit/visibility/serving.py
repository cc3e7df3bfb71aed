"""A server with TLS in this process, the front proxy that asks it, and an API server that allows or
refuses.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from functools import partial
from pathlib import Path
from typing import Any

from aiohttp import ClientResponse, ClientSession, TCPConnector
from control_plane.pki import Pki
from control_plane.ports import free_ports
from yarl import URL

from gangsched.core.cycle import Limits
from gangsched.kube.read.shapes import ShapeTable
from gangsched.kube.read.templates import template_pod
from gangsched.settings import Settings
from gangsched.telemetry.history import History
from gangsched.visibility.gangs.store import GangStore
from gangsched.visibility.listener import listen
from gangsched.visibility.ports import ApiAnswer, Clocks, Json
from gangsched.visibility.reviews.review import Reviewer
from gangsched.visibility.server import Server
from tests.builders import members, node
from tests.world import EPOCH_S, World

GANGS = "/apis/visibility.gangsched.dev/v1alpha1"
REVIEWS = f"{GANGS}/namespaces/ns/placementreviews"
ALICE = {"X-Remote-User": "alice"}


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

    async def __call__(self, method: str, path: str, body: Json | None = None) -> ApiAnswer:
        if path.endswith("extension-apiserver-authentication"):
            return ApiAnswer(200, {"data": self.config})
        self.asked += 1
        return ApiAnswer(201, {"status": {"allowed": self.allows}})


def certificate_of(pki: Pki) -> Path:
    """A directory as a Secret of type kubernetes.io/tls is mounted."""
    folder = Path(pki.server_cert).parent / "tls"
    folder.mkdir(exist_ok=True)
    for name, source in {"tls.crt": pki.server_cert, "tls.key": pki.server_key}.items():
        (folder / name).write_bytes(Path(source).read_bytes())
    return folder


@asynccontextmanager
async def served(
    world: World, api: Api, pki: Pki, history: History | None = None
) -> AsyncIterator[str]:
    """The address of a server for this world, which has begun to listen."""
    history = history or History(lambda: EPOCH_S + world.now_s)
    (port,) = free_ports(1)
    settings = Settings(
        visibility_port=port, bind_address="127.0.0.1", visibility_cert_dir=certificate_of(pki)
    )
    loop = asyncio.get_running_loop()
    clocks = Clocks(now_s=loop.time, wall_s=lambda: EPOCH_S + world.now_s)
    server = Server(
        settings,
        api,
        GangStore(world.state, clocks, served_by=lambda: {"role": "leader"}, history=history),
        clocks=clocks,
        leads=lambda: True,
        reviewer=Reviewer(
            world.state, api, clocks, partial(template_pod, shapes=ShapeTable()), Limits()
        ),
    )
    with closing(listen(settings)) as listener:
        async with server.serving(listener):
            yield f"https://127.0.0.1:{port}"


def client(
    pki: Pki, certificate: Path | None = None, key: Path | None = None, local: str = ""
) -> ClientSession:
    """A client that believes the server, with a certificate or without; `local` is its address."""
    context = ssl.create_default_context(cafile=str(pki.ca))
    if certificate is not None:
        context.load_cert_chain(certificate, key)
    return ClientSession(
        connector=TCPConnector(ssl=context, local_addr=(local, 0) if local else None)
    )


def proxy(pki: Pki) -> ClientSession:
    """The front proxy."""
    return client(pki, pki.proxy_cert, pki.proxy_key)


@asynccontextmanager
async def raw_connection(
    url: str, pki: Pki, *, is_proxy: bool
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection on which every byte is ours to choose."""
    context = ssl.create_default_context(cafile=str(pki.ca))
    if is_proxy:
        context.load_cert_chain(pki.proxy_cert, pki.proxy_key)
    reader, writer = await asyncio.open_connection("127.0.0.1", URL(url).port, ssl=context)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def told(response: ClientResponse) -> tuple[int, Any]:
    """Status and body."""
    return response.status, json.loads(await response.read())


def world_of(*names: str) -> World:
    """A world with these gangs."""
    world = World(node("a", 8))
    for name in names:
        world.create(members(name, 1, gpus=0))
    return world.settle()
