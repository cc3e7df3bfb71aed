"""What one user asks takes nothing from another, and ends with its client, its deadline or its
right (0044).
"""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack

import pytest
import structlog.testing
from aiohttp import ClientResponse, ClientSession, ClientTimeout
from control_plane.pki import Pki

from gangsched.api import keys
from gangsched.telemetry.history import Happening, History
from gangsched.visibility import application
from gangsched.visibility.access import authorization
from gangsched.visibility.admission import REVIEWING, WATCHING
from gangsched.visibility.gangs import watching
from gangsched.visibility.ports import ApiAnswer, Json
from gangsched.visibility.reviews.review import Reviewer
from gangsched.visibility.reviews.rights import PRIORITY_CLASSES
from tests.builders import gang_metadata, members, node, pod
from tests.unit.visibility.reviews.test_holders import reserved
from tests.unit.visibility.serving import (
    ALICE,
    GANGS,
    REVIEWS,
    Api,
    proxy,
    raw_connection,
    served,
    told,
    world_of,
)
from tests.world import World

BOB = {"X-Remote-User": "bob"}
REVIEW = {
    "spec": {"podSets": [{"template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}]}
}
SOON_S = 5.0


class SlowApi(Api):
    """An API server that answers for PriorityClasses, which every review asks for, once `goes_on`
    is set.
    """

    def __init__(self, pki: Pki) -> None:
        super().__init__(pki)
        self.goes_on = asyncio.Event()
        self.waiting = 0

    async def __call__(self, method: str, path: str, body: Json | None = None) -> ApiAnswer:
        if path != PRIORITY_CLASSES:
            return await super().__call__(method, path, body)
        self.waiting += 1
        try:
            await self.goes_on.wait()
        finally:
            self.waiting -= 1
        return ApiAnswer(200, {"items": []})


async def review(itself: ClientSession, url: str, user: dict[str, str]) -> ClientResponse:
    """One review of a pod that asks for nothing."""
    headers = {"Content-Type": "application/json", **user}
    return await itself.post(url + REVIEWS, headers=headers, data=json.dumps(REVIEW).encode())


async def waiting(api: SlowApi, number: int) -> None:
    """Wait until so many reviews are under way."""
    async with asyncio.timeout(SOON_S):
        while api.waiting != number:  # noqa: ASYNC110  (nobody tells)
            await asyncio.sleep(0.01)


class ApiWithoutNodes(Api):
    """An API server that lets everybody read everything but nodes."""

    async def __call__(self, method: str, path: str, body: Json | None = None) -> ApiAnswer:
        answer = await super().__call__(method, path, body)
        asked = ((body or {}).get("spec") or {}).get("resourceAttributes") or {}
        return (
            ApiAnswer(201, {"status": {"allowed": False}})
            if asked.get("resource") == "nodes"
            else answer
        )


@pytest.mark.parametrize("api_of", [Api, ApiWithoutNodes])
async def test_the_best_domains_are_for_those_who_may_list_nodes(
    pki: Pki, api_of: type[Api]
) -> None:
    """A gang that waits for a rack has the racks in its status, and nobody else learns their names
    or room.
    """
    marks = (*gang_metadata("g", min_member=3), (keys.TOPOLOGY[0], "rack"))
    world = World(node("a", 2, labels={"rack": "left"}), node("b", 1, labels={"rack": "right"}))
    world.create([pod(f"g-{n}", gang_metadata=marks) for n in range(3)])
    world.settle()
    async with served(world, api_of(pki), pki) as url, proxy(pki) as itself:
        path = f"{url}{GANGS}/namespaces/ns/gangs"
        _, one = await told(await itself.get(f"{path}/g", headers=ALICE))
        _, of_all = await told(await itself.get(path, headers=ALICE))
    found = one["status"].get("domains", [])
    assert [
        (each["domain"], each["holds"], each["lacks"], each["refutedBy"]) for each in found
    ] == ([("rack=left", 2, 1, "sums"), ("rack=right", 1, 2, "sums")] if api_of is Api else [])
    assert "domains" not in of_all["items"][0]["status"]


@pytest.mark.parametrize("api_of", [Api, ApiWithoutNodes])
async def test_the_reserved_nodes_are_for_those_who_may_list_nodes(
    pki: Pki, api_of: type[Api]
) -> None:
    """In a GET of the gang; a list, which is the same for everybody, has none."""
    async with served(reserved(), api_of(pki), pki) as url, proxy(pki) as itself:
        path = f"{url}{GANGS}/namespaces/ns/gangs"
        _, one = await told(await itself.get(f"{path}/g", headers=ALICE))
        _, of_all = await told(await itself.get(path, headers=ALICE))
    nodes = one["status"]["reserved"].get("nodes")
    assert nodes == (["a", "b"] if api_of is Api else None)
    assert "nodes" not in of_all["items"][0]["status"]["reserved"]


async def test_the_queue_is_read_in_parts(pki: Pki) -> None:
    """view=queue: places from an offset on; nothing else is a view, and none can be watched."""
    world = World(node("a", 1))
    for name in ("first", "second", "third"):
        world.create(members(name, 2))
        world.advance(1)
    async with served(world, Api(pki), pki) as url, proxy(pki) as itself:
        path = f"{url}{GANGS}/namespaces/ns/gangs"
        _, whole = await told(await itself.get(f"{path}?view=queue", headers=ALICE))
        query = "view=queue&offset=1&limit=1"
        _, part = await told(await itself.get(f"{path}?{query}", headers=ALICE))
        for wrong in ("view=all", "view=queue&watch=1", "view=queue&offset=-1", "offset=1"):
            code, _ = await told(await itself.get(f"{path}?{wrong}", headers=ALICE))
            assert code == 400, wrong

        # Nor is either ignored where it means nothing: the path of one gang.
        for one in ("first?view=queue", "first?offset=1", "first/history?view=queue"):
            code, refused = await told(await itself.get(f"{path}/{one}", headers=ALICE))
            assert code == 400, one
            assert "this is the path of one gang" in refused["message"]
    assert [each["name"] for each in whole["items"]] == ["first", "second", "third"]
    assert (whole["kind"], whole["total"], whole["offset"]) == ("GangQueue", 3, 0)
    assert part["items"] == [{"namespace": "ns", "name": "second", "position": 2}]
    assert (part["total"], part["offset"]) == (3, 1)


async def test_the_queue_has_the_name_that_is_selected(pki: Pki) -> None:
    """A permission may be one for this name only, as for other lists."""
    world = World(node("a", 1))
    for name in ("mine", "other"):
        world.create(members(name, 2))
        world.advance(1)

    async with served(world, Api(pki), pki) as url, proxy(pki) as itself:
        query = "view=queue&fieldSelector=metadata.name%3Dmine"
        for path in (f"{url}{GANGS}/namespaces/ns/gangs", f"{url}{GANGS}/gangs"):
            _, found = await told(await itself.get(f"{path}?{query}", headers=ALICE))
            assert [row["name"] for row in found["items"]] == ["mine"]
            assert found["total"] == 1


async def test_reviews_of_one_user_leave_places_for_others(pki: Pki) -> None:
    """The third of one user is refused while two are under way; of another user it is not, and
    lists pass.
    """
    async with served(world_of("g"), api := SlowApi(pki), pki) as url, proxy(pki) as itself:
        under_way = [asyncio.create_task(review(itself, url, ALICE)) for _ in range(REVIEWING[1])]
        await waiting(api, REVIEWING[1])
        assert (await review(itself, url, ALICE)).status == 429
        under_way.append(asyncio.create_task(review(itself, url, BOB)))
        await waiting(api, REVIEWING[1] + 1)
        assert (await itself.get(f"{url}{GANGS}/gangs", headers=ALICE)).status == 200
        api.goes_on.set()
        assert [(await each).status for each in under_way] == [201] * len(under_way)


async def test_a_review_ends_with_its_client(pki: Pki) -> None:
    """Who has gone keeps no place."""
    async with served(world_of("g"), api := SlowApi(pki), pki) as url, proxy(pki) as itself:
        for _ in range(3):
            gone = [asyncio.create_task(review(itself, url, ALICE)) for _ in range(REVIEWING[1])]
            await waiting(api, REVIEWING[1])
            for each in gone:
                each.cancel()
            await waiting(api, 0)


async def test_there_is_an_answer_before_the_api_server_gives_up(
    pki: Pki, monkeypatch: pytest.MonkeyPatch
) -> None:
    """504 with a Retry-After, and the place is free again."""
    assert application.ANSWER_WITHIN_S < 60.0
    monkeypatch.setattr(application, "ANSWER_WITHIN_S", 0.1)
    async with served(world_of("g"), api := SlowApi(pki), pki) as url, proxy(pki) as itself:
        status, body = await told(await review(itself, url, ALICE))
        assert (status, body["reason"], body["details"]) == (
            504,
            "Timeout",
            {"retryAfterSeconds": 10},
        )
        assert api.waiting == 0


async def test_watches_of_one_user_leave_places_for_others(pki: Pki) -> None:
    """Ten at most; another user's are open all the same."""
    async with served(world_of("g"), Api(pki), pki) as url, AsyncExitStack() as streams:
        itself = await streams.enter_async_context(proxy(pki))
        for _ in range(WATCHING[1]):
            stream = await streams.enter_async_context(
                itself.get(f"{url}{GANGS}/gangs?watch=1", headers=ALICE)
            )
            assert stream.status == 200
        assert (await itself.get(f"{url}{GANGS}/gangs?watch=1", headers=ALICE)).status == 429
        assert (await itself.get(f"{url}{GANGS}/gangs", headers=ALICE)).status == 200
        other = await streams.enter_async_context(
            itself.get(f"{url}{GANGS}/gangs?watch=1", headers=BOB)
        )
        assert other.status == 200


async def test_a_watch_ends_with_the_right_to_it(pki: Pki, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked for again each minute; the last line is the refusal."""
    assert watching.EVERY_MINUTE_S == 60.0
    monkeypatch.setattr(watching, "EVERY_MINUTE_S", 0.2)
    monkeypatch.setattr(authorization, "REMEMBERED_S", 0.0)
    api, forever = Api(pki), ClientTimeout(total=SOON_S)
    async with served(world_of("g"), api, pki) as url, proxy(pki) as itself:
        stream = await itself.get(f"{url}{GANGS}/gangs?watch=1", headers=ALICE, timeout=forever)
        assert json.loads(await stream.content.readline())["type"] == "ADDED"
        api.allows = False
        last = json.loads((await stream.content.read()).splitlines()[-1])
    assert (last["type"], last["object"]["code"], last["object"]["reason"]) == (
        "ERROR",
        403,
        "Forbidden",
    )


async def test_a_review_is_sent_back_as_it_came(pki: Pki) -> None:
    """Also numbers that only JSON has."""
    metadata = {"name": "r", "labels": {"large": 10**40}}
    body = json.dumps({**REVIEW, "metadata": metadata}).encode()
    headers = {"Content-Type": "application/json", **ALICE}
    async with served(world_of("g"), Api(pki), pki) as url, proxy(pki) as itself:
        status, answered = await told(await itself.post(url + REVIEWS, headers=headers, data=body))
    assert (status, answered["metadata"], answered["kind"]) == (201, metadata, "PlacementReview")


async def test_errors_are_logged_in_bounded_lines_and_not_each(
    pki: Pki, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody fills the log with what they send, neither with reviews nor with what is no HTTP."""

    async def fails(*_: object, **__: object) -> None:
        raise TypeError("x" * 100_000)

    monkeypatch.setattr(Reviewer, "wanted", fails)
    with structlog.testing.capture_logs() as logged:
        async with served(world_of("g"), Api(pki), pki) as url, proxy(pki) as itself:
            for _ in range(5):
                status, answered = await told(await review(itself, url, ALICE))
                assert (status, answered["message"]) == (
                    422,
                    "the PlacementReview cannot be read: TypeError",
                )
            for _ in range(5):
                async with raw_connection(url, pki, is_proxy=True) as (reader, writer):
                    writer.write(b"GET / HTTP/1.1\r\nno header\r\n\r\n")
                    assert (await reader.read()).startswith(b"HTTP/1.0 400")
    errors = [each for each in logged if each["log_level"] == "error"]
    assert [each["event"] for each in errors] == [
        "a PlacementReview cannot be read",
        "visibility: Error handling request",
    ]
    assert all(len(json.dumps(each)) < 2_000 for each in errors)


class ApiThatRemembers(Api):
    """An API server that allows what a review asks, and keeps the attributes."""

    def __init__(self, pki: Pki) -> None:
        super().__init__(pki)
        self.attributes: list[Json] = []

    async def __call__(self, method: str, path: str, body: Json | None = None) -> ApiAnswer:
        if body is not None and "resourceAttributes" in body.get("spec", {}):
            self.attributes.append(body["spec"]["resourceAttributes"])
        return await super().__call__(method, path, body)


async def test_a_history_is_for_those_who_may_read_it_in_the_namespace(pki: Pki) -> None:
    """Without nodes and names of other namespaces' pods; also of a gang that is gone; nothing can
    be written.
    """
    api, history = ApiThatRemembers(pki), History(lambda: 1_000.0)
    victims = [("ns/mine-0", "u1"), ("theirs/secret", "u2")]
    history.note("ns/gone", Happening.PREEMPTING, "2 pods to be evicted", plan=4, objects=victims)
    history.note("ns/gone", Happening.RESERVED, "1 node reserved", objects=[("node-1", "")])
    history.note("other/gone", Happening.STARTED, "x")
    path = f"{GANGS}/namespaces/ns/gangs/gone/history"
    async with served(world_of("g"), api, pki, history) as url, proxy(pki) as itself:
        status, found = await told(await itself.get(url + path, headers=ALICE))
        assert (status, found["kind"], found["completeSince"]) == (
            200,
            "GangHistory",
            "1970-01-01T00:16:40Z",
        )
        first, second = found["entries"]
        assert (first["what"], first["plan"], first["objectCount"]) == ("Preempting", 4, 2)
        assert first["objects"] == [{"name": "ns/mine-0", "uid": "u1"}, {"name": "", "uid": "u2"}]
        assert (second["what"], second["objects"]) == ("Reserved", [])
        asked = {
            "verb": "get",
            "resource": "gangs",
            "subresource": "history",
            "namespace": "ns",
            "name": "gone",
        }
        assert asked.items() <= api.attributes[-1].items()
        status, found = await told(
            await itself.get(url + path.replace("gone", "never"), headers=ALICE)
        )
        assert (status, found["message"]) == (
            404,
            'gangs.visibility.gangsched.dev "never" not found',
        )
        status, found = await told(await itself.get(url + path.replace("gone", "g"), headers=ALICE))
        assert (status, found["entries"]) == (200, [])
        status, _ = await told(await itself.delete(url + path, headers=ALICE))
        assert status == 405
        api.allows = False
        status, found = await told(await itself.get(url + path, headers=BOB))
        assert status == 403
        assert 'cannot get resource "gangs/history"' in found["message"]
        assert "evicted" not in json.dumps(found)
