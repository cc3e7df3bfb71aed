"""kopf embedded: how often it asks, and with which credentials."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiohttp import web

from gangsched.kube.http.backoff import RequestPace
from gangsched.kube.http.client import ApiClient
from gangsched.kube.ports import Runtime
from gangsched.kube.read.kopf_watch import OperatorEnded, follow
from gangsched.kube.read.podgroup_informer import PodGroupInformer
from gangsched.model.protocol import Applied, Message
from tests.interpreter import printed_by
from tests.server_thread import Handler
from tests.unit.kube.fakes import FakeServer, kubeconfig, line, page, says, serving, status, streams

API = "/apis/scheduling.x-k8s.io"
POD_GROUPS = f"{API}/v1alpha1/podgroups"
FOR_S = 1.5
VERBS = ["list", "patch", "watch"]
NAMESPACES = {
    "name": "namespaces",
    "singularName": "namespace",
    "kind": "Namespace",
    "namespaced": False,
}
RESOURCE = {
    "name": "podgroups",
    "singularName": "podgroup",
    "kind": "PodGroup",
    "namespaced": True,
    "verbs": VERBS,
}


@pytest.fixture(autouse=True)
def kopfs_log() -> Iterator[None]:
    """`follow` silences kopf's log; other tests listen to it."""
    logger = logging.getLogger("kopf")
    level = logger.level
    yield
    logger.setLevel(level)


def serve_pod_groups(server: FakeServer, *watches: Handler) -> None:
    """An API server with PodGroups of one API group, which answers watches so."""
    version = {"groupVersion": "scheduling.x-k8s.io/v1alpha1", "version": "v1alpha1"}
    group = {"name": "scheduling.x-k8s.io", "versions": [version], "preferredVersion": version}
    server.will("GET", "/api", says({"versions": ["v1"]}))
    server.will("GET", "/api/v1", says({"groupVersion": "v1", "resources": [NAMESPACES]}))
    server.will("GET", "/apis", says({"groups": [group]}))
    server.will("GET", API, says(group))
    server.will(
        "GET",
        f"{API}/v1alpha1",
        says({"groupVersion": version["groupVersion"], "resources": [RESOURCE]}),
    )
    server.will("GET", POD_GROUPS, says(page(rv="5")))
    server.will("WATCH", POD_GROUPS, *watches)


async def listen(server: FakeServer, client: ApiClient, seconds: float) -> None:
    """Follow PodGroups for so long, from the first watch on."""
    informer = PodGroupInformer(
        client, lambda message: None, runtime=Runtime(), api_groups=("scheduling.x-k8s.io",)
    )
    task = asyncio.create_task(informer.run())
    async with asyncio.timeout(20):
        while not server.queries("WATCH", POD_GROUPS):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    await asyncio.sleep(seconds)
    task.cancel()
    await asyncio.wait({task})


@pytest.mark.parametrize(
    "answer",
    [
        says(status(401, "Unauthorized", "Unauthorized"), 401),
        streams(),
        streams(line("ERROR", status(410, "Expired", "too old"))),
    ],
    ids=["401", "ends", "410 line"],
)
async def test_no_answer_makes_a_storm_of_watches(tmp_path: Path, answer: Handler) -> None:
    """Whatever the server answers, kopf and the plain watch open a watch at most once a second
    each.
    """
    async with serving(tmp_path) as (server, client):
        serve_pod_groups(server, answer)
        await listen(server, client, FOR_S / 3)
        assert len(server.queries("WATCH", POD_GROUPS)) <= 2 * (1 + FOR_S)
        assert len(server.queries("GET", POD_GROUPS)) <= 2 * (1 + FOR_S)


async def test_after_a_401_the_token_is_read_again_first(tmp_path: Path) -> None:
    """A token that was replaced in its file is used by the next try, and the watch stands."""
    tokens: list[str] = []

    async def only_the_new_one(request: web.Request) -> web.StreamResponse:
        tokens.append(request.headers["Authorization"])
        if tokens[-1] == "Bearer new":
            return await streams(hold=True)(request)
        kubeconfig(tmp_path / "kubeconfig", server.url, token="new")
        return await says(status(401, "Unauthorized", "Unauthorized"), 401)(request)

    async with serving(tmp_path) as (server, client):
        kubeconfig(tmp_path / "kubeconfig", server.url, token="old")
        await client.credentials.load()
        serve_pod_groups(server, only_the_new_one)
        await listen(server, client, FOR_S)
    assert tokens[:2] == ["Bearer old", "Bearer new"]
    assert "Bearer old" not in tokens[2:]  # kopf and the plain watch have one each


async def test_a_refused_watch_is_one_sentence(tmp_path: Path) -> None:
    """The API server's own, without the Status around it, which kopf's text shows."""
    refusal = (
        'podgroups.scheduling.x-k8s.io is forbidden: User "x" cannot watch resource "podgroups"'
    )
    async with serving(tmp_path) as (server, client):
        serve_pod_groups(server, says(status(403, "Forbidden", f"{refusal}."), 403))
        with pytest.raises(OperatorEnded) as ended:
            await follow(
                client,
                "scheduling.x-k8s.io",
                "v1alpha1",
                lambda *_: None,
                pace=RequestPace(0.0, now=time.monotonic, sleep=asyncio.sleep),
                stop=asyncio.Event(),
                restore_signals=lambda: None,
            )
    assert str(ended.value) == f"The watch of scheduling.x-k8s.io ended: {refusal}."


async def test_a_line_is_not_kept_by_who_handled_it(tmp_path: Path) -> None:
    """kopf's worker of an object ends soon after its last line; at ten PodGroups a second fifty
    would be there.
    """
    added = {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "PodGroup",
        "spec": {"minMember": 2},
    }
    added |= {"metadata": {"name": "g", "namespace": "ns", "uid": "u", "resourceVersion": "6"}}

    def workers() -> list[str]:
        return [
            task.get_name()
            for task in asyncio.all_tasks()
            if task.get_name().startswith("worker for")
        ]

    seen: list[Message] = []
    async with serving(tmp_path) as (server, client):
        serve_pod_groups(server, streams(line("ADDED", added), hold=True))
        informer = PodGroupInformer(
            client, seen.append, runtime=Runtime(), api_groups=("scheduling.x-k8s.io",)
        )
        task = asyncio.create_task(informer.run())
        async with asyncio.timeout(20):
            while not workers():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            began_s = asyncio.get_running_loop().time()
            while workers():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert asyncio.get_running_loop().time() - began_s < 2.0
        task.cancel()
        await asyncio.wait({task})
    assert [type(message) for message in seen].count(Applied) == 1


def test_generated_clients_are_not_loaded() -> None:
    """Whoever listens with kopf has none of the generated models, with our credentials read before
    or not.
    """
    for first in ("", "from gangsched.kube.http.credentials import Credentials; "):
        said = printed_by(
            f"import sys; {first}from gangsched.kube.read import kopf_watch; print('kopf' in"
            " sys.modules, [name for name in sys.modules if '.client.models' in name][:3])"
        )
        assert said == "True []"


def test_whole_package_can_be_imported_afterwards() -> None:
    """Who needs the client libraries still gets them, with the same Configuration."""
    said = printed_by(
        "from gangsched.kube.http import sdk; from gangsched.kube.read.kopf_watch import kopf;"
        " import kubernetes_asyncio as k; print(k.client.CoreV1Api.__name__,"
        " k.client.ApiClient.__name__, k.client.Configuration is sdk.Configuration,"
        " kopf.OperatorRegistry.__name__)"
    )
    assert said == "CoreV1Api ApiClient True OperatorRegistry"


def test_package_that_is_there_stays() -> None:
    """Where somebody imported all of it before, it is the same afterwards, and used."""
    said = printed_by(
        "import kubernetes_asyncio as k, sys; from gangsched.kube.http import sdk; "
        "from gangsched.kube.read.kopf_watch import kopf; import kubernetes_asyncio.client as c; "
        "print(sys.modules['kubernetes_asyncio'] is k, c is k.client, sdk.config is k.config)"
    )
    assert said == "True True True"
