"""The fault proxy itself: each fault does to a request on a real API server what it says, and nothing else."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, closing
from pathlib import Path

import pytest
import pytest_asyncio
from control_plane import ControlPlane
from control_plane import objects as make
from control_plane.api import Api
from control_plane.applying import apply_manifests

from gangsched.kube.http.client import ApiClient, connect
from gangsched.kube.http.faults import ApiFault, Unreachable
from tests.faults.proxy import FaultProxy
from tests.faults.requests import ApiRequest
from tests.faults.rules import BlackHole, Delay, Drop, Fault, Rule, etcd_timeout, gateway_page, nth

PODS = "/api/v1/namespaces/default/pods"


@pytest.mark.parametrize(
    ("method", "path", "watch", "request_"),
    [
        ("POST", f"{PODS}/p/binding", False, ApiRequest("create", "pods", "binding", "default", "p")),
        ("GET", "/api/v1/pods", False, ApiRequest("list", "pods", "", "", "")),
        ("GET", "/api/v1/pods", True, ApiRequest("watch", "pods", "", "", "")),
        ("GET", f"{PODS}/p", False, ApiRequest("get", "pods", "", "default", "p")),
        (
            "PATCH",
            "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/a/podgroups/g/status",
            False,
            ApiRequest("patch", "podgroups", "status", "a", "g"),
        ),
        ("GET", "/api/v1/namespaces/a", False, ApiRequest("get", "namespaces", "", "", "a")),
        ("GET", "/version", False, ApiRequest("get", "/version", "", "", "")),
    ],
)
def test_requests_are_read_as_kubernetes_names_them(method: str, path: str, watch: bool, request_: ApiRequest) -> None:
    """Verb, resource, subresource, namespace and name of a request."""
    assert ApiRequest.of(method, path, watch=watch) == request_


@pytest.fixture(scope="module")
def proxy() -> Iterator[FaultProxy]:
    """A proxy before an API server with our ServiceAccount."""
    with ControlPlane() as plane:
        with closing(Api.of(plane)) as api:
            apply_manifests(api)
        with FaultProxy(plane) as proxy:
            yield proxy


@pytest_asyncio.fixture
async def client(proxy: FaultProxy, tmp_path: Path) -> AsyncIterator[ApiClient]:
    """The daemon's client, through the proxy; no rule is left at the end."""
    token = proxy.plane.service_account_token("gangsched-system", "gangsched")
    config = proxy.plane.write_kubeconfig(tmp_path / "kubeconfig", token=token, url=proxy.url)
    async with await connect(config) as client:
        yield client
    proxy.rules.clear()


def node_of(proxy: FaultProxy, name: str) -> str:
    """Where a pod is, as the API server itself says."""
    with closing(Api.of(proxy.plane)) as api:
        return str(api.get(f"{PODS}/{name}")["spec"].get("nodeName", ""))


async def bind(proxy: FaultProxy, client: ApiClient, name: str, fault: Fault) -> bytes:
    """Create a pod, and bind it while `fault` is about."""
    with closing(Api.of(proxy.plane)) as api:
        api.post(PODS, make.pod(name))
    proxy.rules[:] = [Rule([fault], verb="create", resource="pods", subresource="binding")]
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": {"kind": "Node", "name": "n"}}
    return await client.request("POST", f"{PODS}/{name}/binding", json.dumps(body).encode(), timeout_s=2.0)


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("name", "fault", "is_bound"),
    [
        ("p0", Drop(), False),
        ("p1", Drop(applied=True), True),
        ("p2", Drop(reset=True), False),
        ("p3", Drop(applied=True, reset=True), True),
        ("p4", BlackHole(), False),
        ("p5", BlackHole(applied=True), True),
    ],
    ids=str,
)
async def test_answers_that_do_not_come(
    proxy: FaultProxy, client: ApiClient, name: str, fault: Fault, is_bound: bool
) -> None:
    """The client is left without an answer, and only the server knows whether the bind was carried out."""
    with pytest.raises(Unreachable):
        await bind(proxy, client, name, fault)
    assert bool(node_of(proxy, name)) is is_bound
    assert proxy.rules[0].struck == 1


@pytest.mark.e2e
@pytest.mark.parametrize(("fault", "status"), [(etcd_timeout(0.3), 409), (gateway_page(502, 0.3), 502)], ids=str)
async def test_answers_that_come_too_early(proxy: FaultProxy, client: ApiClient, fault: Fault, status: int) -> None:
    """The answer says no, and the bind is carried out afterwards."""
    name = f"q{status}"
    with pytest.raises(ApiFault) as caught:
        await bind(proxy, client, name, fault)
    assert (caught.value.status, caught.value.is_status) == (status, status == 409)
    assert node_of(proxy, name) == ""
    async with asyncio.timeout(10):
        while not node_of(proxy, name):  # noqa: ASYNC110
            await asyncio.sleep(0.05)


@pytest.mark.e2e
async def test_delays_and_what_passes(proxy: FaultProxy, client: ApiClient) -> None:
    """A delayed request is carried out; rules count, and what they do not match is left alone, watches too."""
    began_s = time.monotonic()
    await bind(proxy, client, "r", Delay(0.5))
    assert time.monotonic() - began_s >= 0.5
    assert node_of(proxy, "r") == "n"
    proxy.rules[:] = [Rule(nth(2, gateway_page(504, None)), verb="get", resource="pods")]
    await client.request("GET", f"{PODS}/r")
    with pytest.raises(ApiFault, match="504"):
        await client.request("GET", f"{PODS}/r")
    await client.request("GET", f"{PODS}/r")
    async with aclosing(client.chunks("/api/v1/pods?watch=true", silence_s=5.0)) as chunks:  # type: ignore[type-var]
        assert b'"ADDED"' in await anext(chunks)
