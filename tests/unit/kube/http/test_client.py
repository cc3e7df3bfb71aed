"""The client: faults, credentials and the check at the start."""

from __future__ import annotations

import json
import socket
import ssl
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
from aiohttp import (
    ClientConnectorCertificateError,
    ClientConnectorError,
    ServerDisconnectedError,
    web,
)
from aiohttp.client_reqrep import ConnectionKey

from gangsched.api.keys import SIGS, X_K8S
from gangsched.kube.http import client, credentials, location
from gangsched.kube.http.client import connect
from gangsched.kube.http.faults import ApiFault, Malformed, Misconfigured, Unreachable, said
from gangsched.kube.http.permissions import (
    EXTENDED_RESOURCES,
    LAST_RESORT,
    PATH,
    PERMISSIONS,
    PREEMPTION,
    VOLUMES,
    Lease,
    warnings,
)
from gangsched.kube.ports import Sleep
from tests.server_thread import Handler
from tests.unit.kube.fakes import FakeTime, kubeconfig, says, serving, status


async def test_status_becomes_a_fault(tmp_path: Path) -> None:
    """An error answer keeps code, reason, words and the time to wait."""
    async with serving(tmp_path) as (server, api):
        body = status(429, "TooManyRequests", "busy", retryAfterSeconds=3)
        server.will("GET", "/x", says(body, 429), says({"not": "a status"}, 503))
        with pytest.raises(ApiFault, match="busy") as caught:
            await api.request("GET", "/x")
        fault = caught.value
        assert (fault.status, fault.reason, fault.retry_after_s) == (429, "TooManyRequests", 3.0)
        with pytest.raises(ApiFault) as caught:
            await api.request("GET", "/x")
        assert (caught.value.status, caught.value.retry_after_s) == (503, None)


async def test_no_answer_is_unreachable(tmp_path: Path) -> None:
    """Refused, cut off or too slow is one fault, chained to its cause."""

    async def cut(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    async with serving(tmp_path) as (server, api):
        server.will("POST", "/cut", cut)
        with pytest.raises(Unreachable, match=server.url) as caught:
            await api.request("POST", "/cut", b"{}")
        assert caught.value.__cause__ is not None
    async with await connect(kubeconfig(tmp_path / "k", "http://127.0.0.1:1")) as api:
        with pytest.raises(Unreachable):
            await api.request("GET", "/x")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ConnectionRefusedError(111, "Connect call failed ('127.0.0.1', 1)"), "Connection refused"),
        (socket.gaierror(-2, "Name or service not known"), "Name or service not known"),
        (ssl.SSLCertVerificationError(1, "certificate verify failed"), "certificate verify failed"),
        (TimeoutError(), "timed out"),
        (ServerDisconnectedError(), "Server disconnected"),
        (ValueError(" of\n two  lines. "), "of two lines"),
    ],
)
def test_what_others_say(error: Exception, text: str) -> None:
    """A person reads the system's own words, in one line; aiohttp's wrapping, with addresses in
    memory, is left out.
    """
    key = ConnectionKey(
        "host", 443, is_ssl=True, ssl=True, proxy=None, proxy_auth=None, proxy_headers_hash=None
    )
    assert said(error) == text
    if isinstance(error, OSError) and not isinstance(
        error, (TimeoutError, ServerDisconnectedError)
    ):
        assert said(ClientConnectorError(key, error)) == text
        assert said(ClientConnectorCertificateError(key, error)) == text


@pytest.mark.parametrize("content", ["", "[]", "just words", "contexts: 5\ncurrent-context: c\n"])
async def test_a_file_that_is_no_kubeconfig(tmp_path: Path, content: str) -> None:
    """Its name is told, and that it is none; never a sentence about NoneType."""
    (tmp_path / "k").write_text(content)
    with pytest.raises(Misconfigured, match=f"^Cannot use kubeconfig {tmp_path / 'k'}: ") as caught:
        await connect(tmp_path / "k")
    assert "object" not in str(caught.value)
    assert "'" not in str(caught.value)


async def test_answer_that_is_no_json(tmp_path: Path) -> None:
    """A proxy's page is a fault, not a crash."""

    async def html(request: web.Request) -> web.StreamResponse:
        return web.Response(text="<html>")

    async with serving(tmp_path) as (server, api):
        server.will("GET", "/x", html)
        with pytest.raises(Malformed, match="not JSON"):
            await api.request_json("GET", "/x")


def tokens(good: str) -> Handler:
    """Accept one bearer token only."""

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.headers.get("Authorization") != f"Bearer {good}":
            return web.json_response(status(401, "Unauthorized", "Unauthorized"), status=401)
        return web.json_response({"ok": await request.text()})

    return answer


async def test_new_token_is_read_after_a_401(tmp_path: Path) -> None:
    """A token replaced in its file is used at the next refusal, for the same request; once."""
    async with serving(tmp_path) as (server, _):
        server.will("POST", "/x", tokens("new"))
        path = kubeconfig(tmp_path / "k", server.url, token="old")
        async with await connect(path) as api:
            kubeconfig(path, server.url, token="new")
            assert await api.request_json("POST", "/x", b"body") == {"ok": "body"}
        async with await connect(kubeconfig(path, server.url, token="bad")) as api:
            server.seen.clear()
            with pytest.raises(ApiFault, match="Unauthorized"):
                await api.request("POST", "/x", b"body")
            assert len(server.seen) == 2


def reviewing(*denied: str) -> Handler:
    """Answer credentials reviews, with no for some "verb resource"."""

    async def answer(request: web.Request) -> web.StreamResponse:
        asked = msgspec.json.decode(await request.read())["spec"]["resourceAttributes"]
        resource = "/".join(part for part in (asked["resource"], asked["subresource"]) if part)
        return web.json_response(
            {"status": {"allowed": f"{asked['verb']} {resource}" not in denied}}
        )

    return answer


async def test_check_passes_when_everything_is_granted(tmp_path: Path) -> None:
    """Every permission is asked for, and nothing else."""
    async with serving(tmp_path) as (server, api):
        server.will("GET", "/version", says({}))
        server.will("POST", PATH, reviewing())
        assert await api.check() == ()
        assert sorted(request.path for request in server.seen) == sorted(
            [
                "/version",
                *(f"/apis/{group}/v1alpha1" for group in (X_K8S, SIGS)),
                *[PATH] * len((*PERMISSIONS, *VOLUMES)),
            ]
        )


async def test_leader_election_needs_its_lease_and_nothing_else_needs_that(tmp_path: Path) -> None:
    """What is asked for is one Lease by name, but for `create`; a missing right is named."""
    asked: list[dict[str, str]] = []
    review = reviewing("update leases")

    async def heard(request: web.Request) -> web.StreamResponse:
        asked.append(msgspec.json.decode(await request.read())["spec"]["resourceAttributes"])
        return await review(request)

    async with serving(tmp_path) as (server, api):
        server.will("GET", "/version", says({}))
        server.will("POST", PATH, heard)
        with pytest.raises(
            Misconfigured,
            match=r"may not update leases in coordination\.k8s\.io on Lease ns/l: apply manifests",
        ):
            await api.check(lease=Lease("ns", "l"))
    of_leases = {
        each["verb"]: (each["namespace"], each["name"])
        for each in asked
        if each["resource"] == "leases"
    }
    assert of_leases == {
        "create": ("ns", ""),
        "get": ("ns", "l"),
        "update": ("ns", "l"),
        "watch": ("ns", "l"),
    }


@pytest.mark.parametrize("subresource", [True, False])
async def test_whole_pod_groups_are_patched_only_without_a_status_subresource(
    tmp_path: Path, *, subresource: bool
) -> None:
    """`patch podgroups` is asked for where the definition served here cannot do without it."""
    names = ["podgroups", *(["podgroups/status"] if subresource else [])]
    async with serving(tmp_path) as (server, api):
        server.will("GET", "/version", says({}))
        server.will(
            "GET", f"/apis/{SIGS}/v1alpha1", says({"resources": [{"name": name} for name in names]})
        )
        server.will("POST", PATH, reviewing("patch podgroups"))
        if subresource:
            assert await api.check() == ()
        else:
            with pytest.raises(Misconfigured, match=f"may not patch podgroups in {SIGS}: apply"):
                await api.check()


async def test_a_server_that_is_away_is_waited_for(tmp_path: Path) -> None:
    """A start goes on when the server comes back in time, and says meanwhile what it waits for."""
    clock, told = FakeTime(), list[str]()
    async with serving(tmp_path) as (server, _):
        config = kubeconfig(tmp_path / "k", server.url)
        async with await connect(config, now=clock.now) as api:
            server.will(
                "GET",
                "/version",
                *[says(status(503, "ServiceUnavailable", "starting"), 503)] * 3,
                says({}),
            )
            server.will("POST", PATH, reviewing())
            assert await api.check(wait_s=60.0, warn=told.append, sleep=passing(clock)) == ()
    assert len(told) == 3
    assert all("does not answer (starting); trying for " in sentence for sentence in told)
    assert told[0].endswith("for 60 s more.")


async def test_a_server_that_stays_away_is_given_up_with_one_sentence(tmp_path: Path) -> None:
    """After the time to wait the start ends, as without it."""
    clock, told = FakeTime(), list[str]()
    async with await connect(
        kubeconfig(tmp_path / "k", "http://127.0.0.1:1"), now=clock.now
    ) as api:
        with pytest.raises(Misconfigured, match=r"Cannot reach .*127.0.0.1:1.*check that"):
            await api.check(wait_s=60.0, warn=told.append, sleep=passing(clock))
    assert 50.0 < clock.at_s - 1000.0 <= 60.0
    assert 5 < len(told) < 15


def passing(clock: FakeTime) -> Sleep:
    """A sleep in which the clock moves on."""

    async def sleep(seconds: float) -> None:
        clock.at_s += seconds

    return sleep


async def test_check_passes_without_the_rights_to_volumes(tmp_path: Path) -> None:
    """A role from before volumes were served is good enough to start with; what will not work is
    said.
    """
    async with serving(tmp_path) as (server, api):
        server.will("GET", "/version", says({}))
        server.will("POST", PATH, reviewing("patch persistentvolumeclaims", "list csinodes"))
        told = warnings(await api.check())
    assert told == (
        (
            "Pods with persistent volume claims have to wait. The scheduler may not patch"
            " persistentvolumeclaims; list csinodes in storage.k8s.io: apply manifests/rbac.yaml."
        ),
        "",
        "",
    )


async def test_check_passes_without_the_rights_to_preemption(tmp_path: Path) -> None:
    """V26: without them preemption is off, and said to be; nobody asks for them where it is not
    wanted.
    """
    async with serving(tmp_path) as (server, api):
        server.will("GET", "/version", says({}))
        server.will(
            "POST",
            PATH,
            reviewing("create pods/eviction", "watch poddisruptionbudgets", "delete pods"),
        )
        assert warnings(await api.check(optional=(*VOLUMES, *PREEMPTION))) == (
            "",
            (
                "Preemption is off. The scheduler may not create pods/eviction; watch"
                " poddisruptionbudgets in policy: apply manifests/rbac-preemption.yaml."
            ),
            "",
        )
        assert (
            warnings(await api.check(optional=LAST_RESORT)).preemption
            == "Preemption is off. The scheduler may not delete pods: apply"
            " manifests/rbac-preemption.yaml."
        )
        assert warnings(await api.check()) == ("", "", "")


async def test_check_passes_without_the_rights_to_extended_resources(tmp_path: Path) -> None:
    """A6: devices then serve no extended resources, and that is said."""
    async with serving(tmp_path) as (server, api):
        server.will("GET", "/version", says({}))
        server.will("POST", PATH, reviewing("create resourceclaims"))
        assert (
            warnings(await api.check(optional=EXTENDED_RESOURCES)).extended_resources
            == "Devices do not serve extended resources. The scheduler may not create"
            " resourceclaims in resource.k8s.io: apply manifests/rbac-extended-resources.yaml."
        )


async def test_check_names_what_is_missing_and_the_fix(tmp_path: Path) -> None:
    """A missing permission is one sentence with verb, resource and what to do."""
    async with serving(tmp_path) as (server, api):
        server.will("GET", "/version", says({}))
        server.will("POST", PATH, reviewing("create pods/binding", "patch pods/status"))
        with pytest.raises(Misconfigured) as caught:
            await api.check()
        assert (
            str(caught.value)
            == "The scheduler may not create pods/binding; patch pods/status: apply"
            " manifests/rbac.yaml."
        )


async def test_check_without_credentials(tmp_path: Path) -> None:
    """A server that does not know us is told apart from one that forbids."""
    async with serving(tmp_path) as (server, api):
        server.will("GET", "/version", says({}))
        server.will("POST", PATH, says(status(401, "Unauthorized", "Unauthorized"), 401))
        with pytest.raises(Misconfigured, match="does not accept our credentials"):
            await api.check()


async def test_check_without_cluster(tmp_path: Path) -> None:
    """Nobody at the address: the sentence names address and file."""
    path = kubeconfig(tmp_path / "k", "http://127.0.0.1:1")
    async with await connect(path) as api:
        with pytest.raises(Misconfigured, match=rf"Cannot reach .*127.0.0.1:1.*{path}.*check that"):
            await api.check()


@pytest.mark.parametrize(
    "text", ["", "just words", "a: [", json.dumps({"current-context": "x", "contexts": []})]
)
async def test_bad_kubeconfig_is_one_sentence(tmp_path: Path, text: str) -> None:
    """Whatever is wrong with the file, the sentence names it and fits a line."""
    path = tmp_path / "k"
    path.write_text(text)
    with pytest.raises(Misconfigured) as caught:
        await connect(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


async def test_where_the_kubeconfig_comes_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A given path must exist; else $KUBECONFIG; else the home directory; else a sentence with the
    fix.
    """
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(Misconfigured, match=r"no kubeconfig at ~/.kube/config: pass --kubeconfig"):
        await connect()
    with pytest.raises(Misconfigured, match="no kubeconfig at /nowhere"):
        await connect(Path("/nowhere"))
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path / "k", "http://env")))
    async with await connect() as api:
        assert api.credentials.server == "http://env"


@pytest.mark.parametrize(("host", "shown"), [("10.0.0.1", "10.0.0.1"), ("fd00::1", "[fd00::1]")])
async def test_service_account_inside_a_pod(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str, shown: str
) -> None:
    """In a pod the mounted files are used, and a rotated token is picked up within a minute; IPv6
    has brackets.
    """
    at_s = 0.0
    ca = tmp_path / "ca.crt"
    ca.write_text("not a certificate")
    (tmp_path / "token").write_text("one\n")
    monkeypatch.setattr(location, "SERVICE_ACCOUNT", tmp_path)
    library = "kubernetes_asyncio.config.incluster_config"
    monkeypatch.setattr(f"{library}.SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(f"{library}.SERVICE_CERT_FILENAME", str(ca))
    monkeypatch.setattr(f"{library}.TOKEN_REFRESH_PERIOD", timedelta(0))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    with pytest.raises(Misconfigured, match="the pod's service account"):
        await client.connect()
    monkeypatch.setattr(credentials, "_tls", lambda settings: None)
    async with await client.connect(now=lambda: at_s) as api:
        assert (api.credentials.server, api.credentials.authorization) == (
            f"https://{shown}:443",
            "Bearer one",
        )
        (tmp_path / "token").write_text("two\n")
        at_s = 61.0
        await api.credentials.renew()
        assert api.credentials.authorization == "Bearer two"


@pytest.mark.parametrize(
    ("user", "said"),
    [
        (
            "exec: {apiVersion: client.authentication.k8s.io/v1, command: no-such-authenticator}",
            "no-such-authenticator is its exec plugin, and is not in PATH",
        ),
        (
            "exec: {apiVersion: client.authentication.k8s.io/v1, command: /opt/no-such/plugin}",
            "/opt/no-such/plugin does not exist",
        ),
        ("tokenFile: /no/such/token", "/no/such/token does not exist"),
    ],
)
async def test_a_missing_exec_plugin_or_token_file_is_named(
    tmp_path: Path, user: str, said: str
) -> None:
    """In one sentence, with the kubeconfig that asks for it."""
    path = tmp_path / "kubeconfig"
    path.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context:"
        " {cluster: c, user: u}}]\nclusters: [{name: c, cluster: {server:"
        f" 'http://127.0.0.1:1'}}}}]\nusers:\n- name: u\n  user: {{{user}}}\n"
    )
    with pytest.raises(Misconfigured) as caught:
        await connect(path)
    assert str(caught.value) == f"Cannot use kubeconfig {path}: {said}."


def test_a_proxy_is_checked_where_the_server_speaks_no_tls() -> None:
    """Without a context of the credentials an https proxy is checked against the system's
    authorities.
    """
    plain = credentials.Credentials(None, now=lambda: 0.0)
    plain.proxy = "https://proxy.example"
    checked = client._tls(plain)
    assert checked.verify_mode is ssl.CERT_REQUIRED
    assert checked.check_hostname
    assert checked.cert_store_stats() == ssl.create_default_context().cert_store_stats()
    plain.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    assert client._tls(plain) is plain.tls
