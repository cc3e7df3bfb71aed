"""The PodGroup informer: what it hears before kopf listens, and when it believes that an API group
is gone.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, cast

from gangsched.kube.http.backoff import RequestPace
from gangsched.kube.http.client import ApiClient
from gangsched.kube.http.faults import ApiFault, Unreachable
from gangsched.kube.ports import Runtime
from gangsched.kube.read.podgroup_informer import (
    GONE_AFTER_S,
    LISTEN_WITHIN_S,
    UNFOLLOWED_AFTER_S,
    Handler,
    PodGroupInformer,
)
from gangsched.model.objects import PodGroup
from gangsched.model.protocol import Applied, Followed, Gone, Message, Replaced, Unread
from tests.unit.kube.fakes import FakeTime, compact, line, settle

GROUP = "scheduling.x-k8s.io"
API = f"/apis/{GROUP}"
ABSENT = ApiFault(404, "NotFound", "the server could not find the requested resource")
NATIVE = "/apis/scheduling.k8s.io"
PRIORITY_CLASSES, POD_GROUPS = {"name": "priorityclasses"}, {"name": "podgroups"}
SERVED: dict[str, Any] = {
    # Kubernetes 1.37 with two versions of native gangs switched on: the group's own first version
    # has none.
    NATIVE: {"versions": [{"version": "v1"}, {"version": "v1beta1"}, {"version": "v1alpha3"}]},
    f"{NATIVE}/v1": {"resources": [PRIORITY_CLASSES]},
    f"{NATIVE}/v1beta1": {
        "resources": [{"name": "workloads"}, POD_GROUPS, {"name": "podgroups/status"}]
    },
    f"{NATIVE}/v1alpha3": {"resources": [{"name": "compositepodgroups"}, POD_GROUPS]},
    API: {"versions": [{"version": "v1alpha1"}]},
    f"{API}/v1alpha1": {"resources": [{"name": "podgroups"}]},
}


def pod_group(name: str, rv: int) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "ns", "uid": f"uid-{name}", "resourceVersion": str(rv)}
    return {
        "metadata": metadata | {"creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"minMember": 2},
    }


class Server:
    """An API server that lists one PodGroup at version 5, whose watch says what a test puts into
    `lines`.
    """

    def __init__(self) -> None:
        self.is_served = True
        self.refuses = False
        self.forbids = False
        self.lists = 0
        self.answers = asyncio.Event()  # cleared: lists wait
        self.answers.set()
        self.watches: list[str] = []
        self.open_watches = 0
        self.lines: asyncio.Queue[bytes | None] = asyncio.Queue()

    async def request_json(self, method: str, path: str) -> Any:
        assert method == "GET"
        if self.refuses:
            raise Unreachable("The API server does not answer.")
        if not self.is_served:
            raise ABSENT
        if path in SERVED:
            return SERVED[path]
        self.lists += 1
        await self.answers.wait()
        if self.forbids:
            raise ApiFault(403, "Forbidden", "podgroups are forbidden")
        return {"metadata": {"resourceVersion": "5"}, "items": [pod_group("old", 4)]}

    async def chunks(self, path: str, *, silence_s: float) -> AsyncIterator[bytes]:
        assert silence_s > 0
        self.watches.append(path)
        self.open_watches += 1
        try:
            while (said := await self.lines.get()) is not None:
                yield said
        finally:
            self.open_watches -= 1

    def says(self, kind: str, body: dict[str, Any]) -> None:
        self.lines.put_nowait(compact(line(kind, body)) + b"\n")


class Kopf:
    """In kopf's place: started, it hears nothing by itself, and ends when told to."""

    def __init__(self) -> None:
        self.handler: Handler | None = None
        self.fails = asyncio.Event()

    async def follow(
        self,
        client: ApiClient,
        api_group: str,
        version: str,
        on_event: Handler,
        /,
        *,
        pace: RequestPace,
        stop: asyncio.Event,
        restore_signals: Callable[[], None],
    ) -> None:
        self.handler = on_event
        waits = [asyncio.create_task(self.fails.wait()), asyncio.create_task(stop.wait())]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        self.handler = None
        for wait in waits:
            wait.cancel()
        if self.fails.is_set():
            self.fails.clear()
            raise Unreachable("The API server went.")


class Following:
    """An informer at work on a virtual clock, and what it told."""

    def __init__(self, api_group: str = GROUP) -> None:
        self.server, self.kopf, self.time = Server(), Kopf(), FakeTime()
        self.messages: list[Message] = []
        self.informer = PodGroupInformer(
            cast(ApiClient, self.server),
            self.messages.append,
            runtime=Runtime(now=self.time.now, sleep=self.time.sleep),
            api_groups=(api_group,),
            backlog_bound=asyncio.Event(),
            follow=self.kopf.follow,
        )

    def names(self) -> set[str]:
        """The PodGroups as somebody knows them who heard every message."""
        known: dict[str, str] = {}
        for message in self.messages:
            match message:
                case Replaced(items=items):
                    known = {
                        found.uid: found.name for found in items if isinstance(found, PodGroup)
                    }
                case Applied(item=PodGroup() as found):
                    known[found.uid] = found.name
                case Gone(uid=uid):
                    known.pop(uid, None)
                case Unread():
                    known = {}
        return set(known.values())


@asynccontextmanager
async def following(api_group: str = GROUP) -> AsyncIterator[Following]:
    """An informer that has listed and waits before it starts kopf."""
    parts = Following(api_group)
    running = asyncio.create_task(parts.informer.run())
    await settle()
    yield parts
    running.cancel()
    await asyncio.wait({running})


async def test_native_pod_groups_are_read_in_the_first_version_that_has_them() -> None:
    """Of Kubernetes 1.37 that is v1beta1, before v1alpha3; v1 has only PriorityClasses."""
    async with following("scheduling.k8s.io") as run:
        assert [path.partition("?")[0] for path in run.server.watches] == [
            f"{NATIVE}/v1beta1/podgroups"
        ]
        assert run.names() == {"old"}
        (listed,) = [message for message in run.messages if isinstance(message, Replaced)]
        assert [found.version for found in listed.items if isinstance(found, PodGroup)] == [
            "v1beta1"
        ]


async def test_a_kind_that_may_not_be_read_holds_nothing_up_and_is_read_once_it_may_be() -> None:
    """A1: it counts as absent, for a standby as well, and is asked for again; the log says
    it once.
    """
    said: list[str] = []
    parts = Following("scheduling.k8s.io")
    parts.informer.runtime = replace(parts.informer.runtime, warn=said.append)
    parts.server.forbids = True
    running = asyncio.create_task(parts.informer.run())
    await settle()
    assert parts.messages == [Unread(PodGroup, "scheduling.k8s.io", forbidden=True)]
    assert parts.informer.known() == parts.messages
    assert parts.informer.synced.is_set()
    assert parts.informer.is_live()
    assert parts.informer.is_followed()
    for _ in range(3):
        await parts.time.advance(60)
    assert parts.server.lists > 3
    assert said == [
        "Gangs of scheduling.k8s.io have to wait. The scheduler may not list podgroups in"
        " scheduling.k8s.io: apply manifests/rbac.yaml."
    ]
    parts.server.forbids = False
    await parts.time.advance(60)
    assert parts.names() == {"old"}
    running.cancel()
    await asyncio.wait({running})


async def test_changes_are_heard_before_kopf_listens() -> None:
    """A PodGroup that is created, changed or deleted right after the list is known at once, without
    time passing.
    """
    async with following() as parts:
        assert parts.informer.synced.is_set()
        assert parts.kopf.handler is None
        assert ["resourceVersion=5" in path for path in parts.server.watches] == [True]
        parts.server.says("ADDED", pod_group("new", 6))
        parts.server.says("BOOKMARK", {"metadata": {"resourceVersion": "7"}})
        parts.server.says("ADDED", pod_group("brief", 8))
        await settle()
        assert parts.names() == {"old", "new", "brief"}
        parts.server.says("DELETED", pod_group("brief", 9))
        await settle()
        assert parts.names() == {"old", "new"}


async def test_the_watch_goes_on_when_kopf_listens() -> None:
    """What kopf brings late, behind a burst, is known from the watch; what both bring is
    told once.
    """
    async with following() as parts:
        await parts.time.advance(LISTEN_WITHIN_S)
        assert parts.kopf.handler is not None
        assert (parts.server.open_watches, parts.informer.is_live()) == (1, True)
        await parts.time.advance(10.0)
        assert parts.server.lists == 2
        assert (parts.server.open_watches, parts.informer.is_live()) == (1, True)
        parts.server.says("ADDED", pod_group("later", 12))
        await settle()
        assert "later" in parts.names()
        told = len(parts.messages)
        parts.kopf.handler("ADDED", {**pod_group("later", 12)})
        assert len(parts.messages) == told
        parts.kopf.handler("ADDED", {**pod_group("latest", 13)})
        assert "latest" in parts.names()


async def test_a_watch_that_ends_is_resumed_where_it_stopped() -> None:
    """Also after a bookmark, without another list."""
    async with following() as parts:
        await parts.time.advance(10.0)
        lists = parts.server.lists
        parts.server.says("BOOKMARK", {"metadata": {"resourceVersion": "71"}})
        parts.server.lines.put_nowait(None)
        await settle()
        assert parts.server.open_watches == 1
        assert "resourceVersion=71&" in parts.server.watches[-1]
        assert parts.server.lists == lists


async def test_a_watch_that_breaks_or_talks_nonsense_is_made_up_for_by_the_next_list() -> None:
    """Nothing ends because of it; kopf is started all the same."""
    for said in (
        b"<html>\n",
        json.dumps([1]).encode() + b"\n",
        b'{"type":"ERROR","object":{"code":410}}\n',
    ):
        async with following() as parts:
            parts.server.lines.put_nowait(said)
            await settle()
            assert not parts.informer.is_live(), said
            await parts.time.advance(1.0)
            assert (parts.server.lists, parts.server.open_watches) == (2, 1), said
            await parts.time.advance(10.0)
            assert parts.kopf.handler is not None, said
            assert parts.informer.is_live(), said


async def test_lists_are_read_one_after_the_other() -> None:
    """While a list is slow no other one is begun: the older one, applied last, would bring back
    what was deleted.
    """
    async with following() as parts:
        parts.server.answers.clear()
        parts.server.lines.put_nowait(b"<html>\n")  # the watch lists again after it
        await parts.time.advance(1.0)
        catching_up = asyncio.create_task(parts.informer.catch_up())
        await settle()
        assert parts.server.lists == 2
        parts.server.answers.set()
        await catching_up
        assert parts.server.lists == 3


async def test_an_api_group_that_is_absent_for_a_moment_keeps_its_podgroups() -> None:
    """An API server that just started may not serve definitions yet: nothing is dropped."""
    async with following() as parts:
        await parts.time.advance(10.0)
        parts.server.is_served = False
        parts.kopf.fails.set()
        await parts.time.advance(GONE_AFTER_S - 2.0)
        assert parts.names() == {"old"}
        parts.server.is_served = True
        await parts.time.advance(2.0)
        assert parts.kopf.handler is None  # it waits, and a watch listens
        assert parts.server.open_watches == 1
        await parts.time.advance(10.0)
        assert not any(isinstance(message, Unread) for message in parts.messages)


async def test_an_api_group_that_stays_away_takes_its_podgroups_along() -> None:
    """A definition that was removed while nobody listened."""
    async with following() as parts:
        await parts.time.advance(10.0)
        parts.server.is_served = False
        parts.kopf.fails.set()
        await parts.time.advance(GONE_AFTER_S + 2.0)
        assert parts.names() == set()
        assert parts.messages[-1] == Unread(PodGroup, GROUP)


async def test_kopf_that_never_listens_is_an_outage_at_once() -> None:
    """Where kopf ends when it starts PodGroups are reported as unreadable, until the list after a
    good start.
    """
    async with following() as parts:
        parts.kopf.fails.set()
        await parts.time.advance(LISTEN_WITHIN_S)
        assert not parts.informer.is_followed()
        assert parts.messages[-1] == Followed(GROUP, live=False)
        assert parts.informer.known()[-1] == Followed(GROUP, live=False)
        await parts.time.advance(10.0)
        assert parts.informer.is_followed()
        assert parts.messages[-1] == Followed(GROUP, live=True)


async def test_a_short_interruption_is_no_outage() -> None:
    """What a list makes up for within seconds is not worth a word; what lasts is."""
    async with following() as parts:
        await parts.time.advance(10.0)
        parts.kopf.fails.set()
        await parts.time.advance(10.0)
        assert parts.informer.is_followed()
        parts.server.refuses = True
        parts.kopf.fails.set()
        await parts.time.advance(UNFOLLOWED_AFTER_S / 2)
        assert parts.informer.is_followed()
        await parts.time.advance(3 * UNFOLLOWED_AFTER_S)
        assert [message for message in parts.messages if isinstance(message, Followed)] == [
            Followed(GROUP, live=False)
        ]
