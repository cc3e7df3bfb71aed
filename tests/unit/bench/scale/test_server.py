"""bench.scale's server: lists in pages, events on the watches, binds counted."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from aiohttp import web

from bench.scale.server import Server
from gangsched.kube.http.client import connect
from gangsched.kube.ports import Runtime, silent
from gangsched.kube.read import resources
from gangsched.kube.read.reflector import Reflector
from gangsched.kube.read.shapes import ShapeTable
from gangsched.kube.read.store import Store
from gangsched.model.protocol import Message
from tests.unit.kube.fakes import kubeconfig


async def test_the_daemons_reflectors_understand_it(tmp_path: Path) -> None:
    """1,200 pods come in three pages, a gang comes by the watch, and its binds are counted."""
    server = Server(3, 1_200)
    runner = web.ServerRunner(web.Server(server.handle), shutdown_timeout=0.1)  # type: ignore[arg-type]
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    told: list[Message] = []
    async with await connect(kubeconfig(tmp_path / "kubeconfig", url)) as client:
        pods = Store(resources.pods(ShapeTable()), told.append, silent)
        nodes = Store(resources.nodes(silent), told.append, silent)
        of_pods, of_nodes = (
            Reflector(client, pods, runtime=Runtime()),
            Reflector(client, nodes, runtime=Runtime()),
        )
        tasks = [asyncio.create_task(of_pods.run()), asyncio.create_task(of_nodes.run())]
        async with asyncio.timeout(60):
            await of_pods.synced.wait()
            await of_nodes.synced.wait()
            assert (len(pods), len(nodes)) == (1_200, 3)
            while len(pods) < 1_205:  # the watch may not be open yet
                await client.request("POST", "/bench/gang?size=5")
                await asyncio.sleep(0.05)
        await client.request("POST", "/api/v1/namespaces/default/pods/member-0/binding", b"{}")
        assert json.loads(await client.request("GET", "/bench/state"))["bound"] == 1
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    await runner.cleanup()
