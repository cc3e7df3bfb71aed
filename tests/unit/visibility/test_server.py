"""The server with TLS, in this process: strangers, forgeries, floods, slow readers and odd
requests.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from contextlib import suppress
from pathlib import Path

import pytest
from aiohttp import ClientConnectionError
from control_plane.pki import Pki, make_pki
from structlog.testing import capture_logs
from yarl import URL

from gangsched.visibility import connections
from gangsched.visibility.admission import RequestRate
from gangsched.visibility.gangs import watching
from gangsched.visibility.ports import ApiAnswer, Json
from tests.unit.visibility.serving import (
    ALICE,
    GANGS,
    Api,
    certificate_of,
    client,
    proxy,
    served,
    told,
    world_of,
)


async def test_only_the_front_proxy_is_believed(pki: Pki, tmp_path: Path) -> None:
    """Nobody, another authority's certificate, another name of its authority; and then the proxy
    itself.
    """
    forged = {**ALICE, "X-Remote-Group": "system:masters"}
    other = make_pki(tmp_path)
    async with served(world_of("g"), api := Api(pki), pki) as url:
        async with client(pki) as nobody:
            for path in (f"{GANGS}/gangs", "/apis", "/openapi/v2", "/", "/%00"):
                status, body = await told(await nobody.get(url + path, headers=forged))
                assert (status, body["kind"], body["reason"]) == (401, "Status", "Unauthorized")
        for certificate, key in (
            (pki.admin_cert, pki.admin_key),
            (other.proxy_cert, other.proxy_key),
        ):
            async with client(pki, certificate, key) as stranger:
                with pytest.raises(ClientConnectionError):
                    await stranger.get(f"{url}{GANGS}/gangs", headers=forged)
        assert api.asked == 0
        async with proxy(pki) as itself:
            status, body = await told(await itself.get(f"{url}{GANGS}/gangs", headers=ALICE))
            assert (status, [each["metadata"]["name"] for each in body["items"]]) == (200, ["g"])
    async with (
        served(world_of("g"), Api(pki, '["somebody-else"]'), pki) as url,
        proxy(pki) as itself,
    ):
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
        assert (
            await itself.post(f"{url}{GANGS}/namespaces/ns/placementreviews", headers=ALICE)
        ).status == 403
        assert (
            await itself.delete(f"{url}{GANGS}/namespaces/ns/gangs/g", headers=ALICE)
        ).status == 403


async def test_odd_names_are_found_and_cannot_leave_their_namespace(pki: Pki) -> None:
    """Spaces, signs of a path and other scripts; an encoded slash is part of the name."""
    names = ("My Gang", "a/../b", "✓", "100%", "x" * 300, '"quoted"')
    async with served(world_of(*names), Api(pki), pki) as url, proxy(pki) as itself:
        listed = (await told(await itself.get(f"{url}{GANGS}/namespaces/ns/gangs", headers=ALICE)))[
            1
        ]["items"]
        assert sorted(each["metadata"]["name"] for each in listed) == sorted(names)
        for name, path in (("My Gang", "My%20Gang"), ("✓", "%E2%9C%93"), ("100%", "100%25")):
            one = URL(f"{url}{GANGS}/namespaces/ns/gangs/{path}", encoded=True)
            status, body = await told(await itself.get(one, headers=ALICE))
            assert (status, body["metadata"]["name"]) == (200, name)
        away = URL(f"{url}{GANGS}/namespaces/ns%2F..%2Fother/gangs", encoded=True)
        assert (await told(await itself.get(away, headers=ALICE)))[1]["items"] == []


async def test_a_flood_is_answered_429_and_costs_no_review(pki: Pki) -> None:
    """50 requests of one user are let in, and few of 300 after those; discovery is answered all the
    same.
    """
    async with served(world_of("g"), api := Api(pki), pki) as url, proxy(pki) as itself:
        # One after the other: how many of a flood are let in at once depends on the machine.
        for _ in range(50):
            assert (await itself.get(f"{url}{GANGS}/gangs", headers=ALICE)).status == 200

        answers = await asyncio.gather(
            *(itself.get(f"{url}{GANGS}/gangs", headers=ALICE) for _ in range(300))
        )
        let_in = sum(answer.status == 200 for answer in answers)
        refused = [answer for answer in answers if answer.status == 429]
        assert let_in <= 150
        assert len(refused) == 300 - let_in
        assert refused[0].headers["Retry-After"] == "1"
        assert api.asked <= 50 + let_in
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
        yaml = await itself.post(
            url + path, headers={**ALICE, "Content-Type": "application/yaml"}, data=b"a: b"
        )
        assert yaml.status == 415
        assert (await itself.post(url + path, headers=kind, data=b"[" * 400_000)).status == 400
        assert (await itself.get(url + path, headers=ALICE)).status == 405
        assert (
            await itself.put(f"{url}{GANGS}/namespaces/ns/gangs/g", headers=kind, data=b"{}")
        ).status == 405
        assert (
            await itself.get(f"{url}{GANGS}/namespaces/ns/gangs?limit=x", headers=ALICE)
        ).status == 400
        assert (
            await itself.get(f"{url}{GANGS}/gangs", headers={**ALICE, "Accept": "text/html"})
        ).status == 406


async def test_a_watch_sends_what_is_there_and_knows_what_it_does_not_know(pki: Pki) -> None:
    """From now on with a bookmark after it; a version of another replica is answered 410."""
    async with served(world_of("g", "h"), Api(pki), pki) as url, proxy(pki) as itself:
        query = "watch=1&sendInitialEvents=true&allowWatchBookmarks=true"
        async with itself.get(f"{url}{GANGS}/gangs?{query}", headers=ALICE) as stream:
            lines = [json.loads(await stream.content.readline()) for _ in range(3)]
            assert [line["type"] for line in lines] == ["ADDED", "ADDED", "BOOKMARK"]
            assert lines[2]["object"]["metadata"]["annotations"] == {
                "k8s.io/initial-events-end": "true"
            }
        gone = await itself.get(f"{url}{GANGS}/gangs?watch=1&resourceVersion=12345", headers=ALICE)
        assert (gone.status, (await told(gone))[1]["reason"]) == (410, "Expired")
        async with itself.get(
            f"{url}{GANGS}/gangs?watch=1&timeoutSeconds=1", headers=ALICE
        ) as short:
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


async def test_strangers_take_no_place_of_others(pki: Pki, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of those that shake hands for ever, or say nothing after it, the oldest end, and the front
    proxy comes in.
    """
    monkeypatch.setattr(connections, "STRANGERS", 3)
    monkeypatch.setattr(connections, "CONNECTIONS", 2)
    nobody = ssl.create_default_context(cafile=str(pki.ca))
    async with served(world_of("g"), Api(pki), pki) as url, proxy(pki) as itself:
        port = URL(url).port
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(5)]
        unknown = [await asyncio.open_connection("127.0.0.1", port, ssl=nobody) for _ in range(5)]
        for reader, writer in (*silent[:2], *unknown[:2]):
            with suppress(ConnectionResetError):
                # before its five seconds are over
                assert await asyncio.wait_for(reader.read(), 2.0) == b""
            writer.transport.abort()
        assert (await itself.get(f"{url}{GANGS}/gangs", headers=ALICE)).status == 200
        for _, writer in (*silent[2:], *unknown[2:]):
            writer.transport.abort()


async def test_only_the_front_proxy_is_waited_for(
    pki: Pki, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it came from, more handshakes are allowed; of others those beyond the rate are not
    taken.
    """
    monkeypatch.setattr(connections, "HANDSHAKES", RequestRate(0.01, 2.0))
    async with served(world_of("g"), Api(pki), pki) as url:
        for number in range(10):  # each with connections of its own
            async with proxy(pki) as itself:
                assert (await itself.get(f"{url}{GANGS}/gangs", headers=ALICE)).status == 200, (
                    number
                )
        async with client(pki, local="127.0.0.3") as nobody:
            assert (await nobody.get(f"{url}{GANGS}/gangs", headers=ALICE)).status == 401
            with pytest.raises(ClientConnectionError):
                await nobody.get(f"{url}{GANGS}/gangs", headers=ALICE)


class Refusing(Api):
    """An API server that refuses while it `refuses`, and knows how often it was looked at."""

    refuses = False
    looks = 0

    async def __call__(self, method: str, path: str, body: Json | None = None) -> ApiAnswer:
        self.looks += 1
        return ApiAnswer(401, {}) if self.refuses else await super().__call__(method, path, body)

    async def looked_at(self, times: int) -> None:
        """Wait until it was looked at so many times more."""
        wanted = self.looks + times
        while self.looks < wanted:  # noqa: ASYNC110  (nothing tells it)
            await asyncio.sleep(0.001)


async def test_what_cannot_be_read_is_logged_once(
    pki: Pki, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two things that fail by turns are not repeated; once all is well, both are news again."""
    monkeypatch.setattr("gangsched.visibility.server.LOOK_SOON_S", 0.001)
    monkeypatch.setattr("gangsched.visibility.server.LOOK_EVERY_S", 0.001)
    certificate = certificate_of(pki) / "tls.crt"
    text = certificate.read_text()
    api = Refusing(pki)
    with capture_logs() as logged:
        async with served(world_of("g"), api, pki):
            for _ in range(2):
                certificate.unlink()
                api.refuses = True
                await api.looked_at(5)
                certificate.write_text(text)
                api.refuses = False
                await api.looked_at(5)
    said = [line["event"] for line in logged]
    for sentence in (
        "The ConfigMap of the front proxy cannot be read (status 401)",
        "The certificate of the visibility API cannot be read",
        "the visibility API is up to date again",
    ):
        assert sum(line.startswith(sentence) for line in said) == 2, said
