"""The fault proxy itself: each fault does to a request on a real API server what it says, and
nothing else.
"""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, closing, nullcontext, suppress
from pathlib import Path

import pytest
import pytest_asyncio
from control_plane import ControlPlane
from control_plane import objects as make
from control_plane.api import Api
from control_plane.applying import apply_manifests

from gangsched.kube.http.client import ApiClient, connect
from gangsched.kube.http.faults import ApiFault, Silent, Unreachable
from gangsched.kube.read.reflector import LineSplitter
from tests.faults.answers import REASONS, etcd_timeout, expired_token, gateway_page, refusal
from tests.faults.bodies import End, Repeated, SmallPages, Trickle, Watch
from tests.faults.deaths import Hurt, Point, at_call
from tests.faults.proxy import FaultProxy
from tests.faults.requests import ApiRequest
from tests.faults.rules import BlackHole, Delay, Drop, Fault, Held, Rule, nth

PODS = "/api/v1/namespaces/default/pods"


@pytest.mark.parametrize(
    ("method", "path", "watch", "request_"),
    [
        (
            "POST",
            f"{PODS}/p/binding",
            False,
            ApiRequest("create", "pods", "binding", "default", "p"),
        ),
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
def test_requests_are_read_as_kubernetes_names_them(
    method: str, path: str, watch: bool, request_: ApiRequest
) -> None:
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
    return await client.request("POST", f"{PODS}/{name}/binding", binding_of(name), timeout_s=2.0)


def binding_of(name: str) -> bytes:
    """The body of a bind to the node n."""
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name},
        "target": {"kind": "Node", "name": "n"},
    }
    return json.dumps(body).encode()


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
    """The client is left without an answer, and only the server knows whether the bind was carried
    out.
    """
    with pytest.raises(Unreachable):
        await bind(proxy, client, name, fault)
    assert bool(node_of(proxy, name)) is is_bound
    assert proxy.rules[0].struck == 1


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("fault", "status"), [(etcd_timeout(0.3), 409), (gateway_page(502, 0.3), 502)], ids=str
)
async def test_answers_that_come_too_early(
    proxy: FaultProxy, client: ApiClient, fault: Fault, status: int
) -> None:
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
    """A delayed request is carried out; rules count, and what they do not match is left alone,
    watches too.
    """
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


@pytest.mark.e2e
async def test_answers_that_are_late_slow_or_cut(proxy: FaultProxy, client: ApiClient) -> None:
    """The bind is carried out each time; its answer comes late, in pieces, or ends half-way."""
    for name, fault in (("s0", Delay(0.5, applied=True)), ("s1", Trickle(0.5))):
        began_s = time.monotonic()
        binding = asyncio.create_task(bind(proxy, client, name, fault))
        async with asyncio.timeout(10):
            while not any(asked.name == name and status == 201 for asked, status in proxy.answered):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert json.loads(await binding)["status"] == "Success"
        assert time.monotonic() - began_s >= 0.5
    with pytest.raises(Unreachable):
        await bind(proxy, client, "s2", Trickle(0.0, cut=True))
    assert node_of(proxy, "s2") == "n"


@pytest.mark.e2e
@pytest.mark.parametrize("code", REASONS)
async def test_refusals(proxy: FaultProxy, client: ApiClient, code: int) -> None:
    """A Status of the code comes instead, with its reason and when to come again; nothing is
    carried out.
    """
    fault = refusal(code, retry_after_s=7)
    # The client asks once more after a 401.
    proxy.rules[:] = [Rule([fault, fault], verb="create", resource="configmaps")]
    with pytest.raises(ApiFault) as caught:
        await client.request(
            "POST", "/api/v1/namespaces/default/configmaps", b'{"metadata":{"name":"c"}}'
        )
    said = caught.value
    assert (said.status, said.reason, said.is_status, said.retry_after_s) == (
        code,
        REASONS[code],
        True,
        7.0,
    )


@pytest.mark.e2e
async def test_small_pages_and_a_token_that_expires(proxy: FaultProxy, client: ApiClient) -> None:
    """A list comes in pages of one, and a rule may strike the second page alone."""
    path = "/api/v1/namespaces?limit=500"
    proxy.rules[:] = [
        Rule([SmallPages()], verb="list", next_page=False),
        Rule([None, expired_token()], verb="list", next_page=True),
    ]
    page = await client.request_json("GET", path)
    assert len(page["items"]) == 1
    again = f"{path}&continue={page['metadata']['continue']}"
    assert len((await client.request_json("GET", again))["items"]) > 1
    with pytest.raises(ApiFault, match="too old") as caught:
        await client.request_json("GET", again)
    assert caught.value.status == 410


async def lines_of(client: ApiClient, silence_s: float = 1.0) -> AsyncIterator[bytes]:
    """The lines of a watch of namespaces, of which there are always a few."""
    splitter = LineSplitter()
    async with aclosing(
        client.chunks("/api/v1/namespaces?watch=true", silence_s=silence_s)
    ) as chunks:  # type: ignore[type-var]
        async for chunk in chunks:
            for line in splitter.feed(chunk):
                yield line


def type_of(line: bytes) -> str:
    """The type of a line of a watch."""
    try:
        return str(json.loads(line)["type"])
    except ValueError:
        return "no JSON"


def kind_of(line: bytes) -> str:
    """The type of a line of a watch, and what it is about."""
    event = json.loads(line)
    return (
        f"{event['type']} {event['object'].get('code', '') or event['object']['metadata']['name']}"
    )


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("fault", "first", "ends_with"),
    [
        (Watch(End.CUT, 1), ["ADDED"], Unreachable),
        (Watch(End.CLOSED, 1), ["ADDED"], None),
        (Watch(End.FROZEN, 1), ["ADDED"], Silent),
        (Watch(End.EXPIRED, 1), ["ADDED", "ERROR"], None),
        (Watch(End.EXPIRED), ["ERROR"], None),
        (Watch(End.GARBLED, 1), ["ADDED", "no JSON", "ADDED"], Silent),
        (Watch(End.MISSHAPEN, 1), ["ADDED", "MODIFIED", "ADDED"], Silent),
        (refusal(503), [], ApiFault),
    ],
    ids=str,
)
async def test_watches_that_end(
    proxy: FaultProxy,
    client: ApiClient,
    fault: Fault,
    first: list[str],
    ends_with: type[Exception] | None,
) -> None:
    """A watch goes well for so many lines, and then it does what the fault says."""
    proxy.rules[:] = [Rule([fault], verb="watch")]
    seen: list[str] = []
    with nullcontext() if ends_with is None else pytest.raises(ends_with):
        async for line in lines_of(client):
            seen += [type_of(line)]
    assert seen[: len(first)] == first
    assert len(first) == 3 or len(seen) == len(first)


@pytest.mark.e2e
@pytest.mark.parametrize("replay", [False, True])
async def test_lines_that_come_again(proxy: FaultProxy, client: ApiClient, replay: bool) -> None:
    """Each line comes twice, or with all before it."""
    proxy.rules[:] = [Rule([Repeated(replay)], verb="watch")]
    async with aclosing(lines_of(client)) as lines:  # type: ignore[type-var]
        seen = [kind_of(await anext(lines)) for _ in range(5)]
    a, b = seen[0], seen[2]
    assert a != b
    assert seen == ([a, a, b, a, b] if replay else [a, a, b, b, seen[4]])


@pytest.mark.e2e
async def test_watches_can_be_cut_from_outside(proxy: FaultProxy, client: ApiClient) -> None:
    """A watch that is open ends at once; one that is held ends when it is released."""
    seen: list[bytes] = []

    async def follow() -> None:
        async for line in lines_of(client, silence_s=20.0):
            seen.append(line)

    watching = asyncio.create_task(follow())
    async with asyncio.timeout(10):
        while not seen:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    await asyncio.to_thread(proxy.cut_watches)
    with pytest.raises(Unreachable):
        await asyncio.wait_for(watching, 5.0)
    held, seen = Held(), []
    # aiohttp asks once more where a kept connection ends
    proxy.rules[:] = [Rule([held, held], verb="watch")]
    watching = asyncio.create_task(follow())
    done, _ = await asyncio.wait([watching], timeout=0.3)
    assert not done
    held.release.set()
    with pytest.raises(Unreachable):
        await asyncio.wait_for(watching, 5.0)
    assert seen == []


@pytest.mark.e2e
@pytest.mark.parametrize("point", Point)
async def test_a_process_dies_at_its_call(
    proxy: FaultProxy, client: ApiClient, point: Point
) -> None:
    """The second of three binds is the last; it is carried out or not, as the point says, and the
    third never is.
    """
    process = await asyncio.create_subprocess_exec("sleep", "60")
    hurt = Hurt(lambda: process.pid, point)
    names = [f"{point.name.lower()}-{i}" for i in range(3)]
    answered = []
    with closing(Api.of(proxy.plane)) as api:
        for name in names:
            api.post(PODS, make.pod(name))
    proxy.rules[:] = at_call(2, hurt, lambda asked: asked.subresource == "binding")
    for name in names:
        with suppress(Unreachable):
            await client.request("POST", f"{PODS}/{name}/binding", binding_of(name), timeout_s=2.0)
            answered.append(name)
    assert await process.wait() == -signal.SIGKILL
    assert answered == names[: 2 if point is Point.ANSWERED else 1]
    assert [name for name in names if node_of(proxy, name)] == names[
        : 1 if point is Point.BEFORE else 2
    ]
    assert [asked.name for asked in hurt.met] == names[1:2]
