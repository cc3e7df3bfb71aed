"""A scheduler that is killed -9 after any write of a preemption, and the one that follows it
(semantics V13, V24).

`make crashes` kills after each of the writes; otherwise a few are tried: CRASH_AFTER=1,2,3.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import pytest
from aiohttp import web
from control_plane import ControlPlane
from control_plane import objects as make
from control_plane.api import Api, Object
from control_plane.daemon import Daemon
from control_plane.following import Following

from tests.faults.proxy import FaultProxy
from tests.faults.requests import ApiRequest
from tests.faults.rules import Cut, Exchange, Rule
from tests.kwok_plane import plane_with_nodes

pytestmark = pytest.mark.e2e

PODS = "/api/v1/pods"
DEFAULT = "/api/v1/namespaces/default"
MEMBERS = 8
#: Two nominations, eight marks, eight evictions and two binds; victims that are gone within a
#: second have no mark more.
WRITES = 2 + MEMBERS + MEMBERS + 2
SHORT = "1,6,11,16,20"
AFTER = [int(number) for number in os.environ.get("CRASH_AFTER", SHORT).split(",")]
#: Of single pods there are no marks.
ALONE = [number for number in AFTER if number <= WRITES - MEMBERS]
WITHIN_S = 60.0


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """Two nodes of eight GPUs, and three priorities."""
    with plane_with_nodes(2, gpus=MEMBERS) as plane:
        api = Api.of(plane)
        for name, value in (("lowest", 1), ("low", 10), ("high", 1000)):
            body = {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": name},
            }
            api.post("/apis/scheduling.k8s.io/v1/priorityclasses", {**body, "value": value})
        api.close()
        yield plane


@dataclass
class Deadly(Rule):
    """After so many writes to pods have been carried out, nothing gets through any more until
    `revived`.
    """

    writes_left: int = 0
    done: threading.Event = field(default_factory=threading.Event)
    dead: bool = False
    within_s: float = WITHIN_S

    def fault_for(self, request: ApiRequest) -> Deadly | None:
        """Itself for every write that counts, and for every request of a dead scheduler."""
        counts = request.resource == "pods" and request.subresource in {
            "status",
            "eviction",
            "binding",
        }
        return self if counts and request.verb in {"create", "patch"} else None

    async def strike(self, exchange: Exchange) -> web.StreamResponse:
        """Carry the request out, or none any more."""
        if self.dead:
            raise Cut
        self.writes_left -= 1
        if self.writes_left <= 0:
            self.dead = True
        answer = await exchange.forward()
        if self.dead:
            self.done.set()
            await asyncio.sleep(WITHIN_S)  # the scheduler is killed meanwhile
        return answer

    def kill_after(
        self, number: int, api: Api, objects: Sequence[Object], daemon: Daemon, proxy: FaultProxy
    ) -> None:
        """Create objects, kill the scheduler after so many writes for them, and let the next one's
        requests through.
        """
        self.writes_left = number
        make.create_all(api, objects)
        assert self.done.wait(self.within_s), "there are fewer writes than that"
        daemon.kill()
        proxy.rules.remove(self)


class Seen:
    """The pods of one trial, as a watch shows them."""

    def __init__(self) -> None:
        self.evicted: set[str] = set()
        self.bound: dict[str, set[str]] = {}

    def changed(self, _: str, pod: Object, __: float) -> None:
        """Note who is being deleted, and who was bound."""
        name = pod["metadata"]["name"]
        if "deletionTimestamp" in pod["metadata"]:
            self.evicted.add(name)
        if pod["spec"].get("nodeName"):
            self.bound.setdefault(name, set()).add(pod["metadata"]["uid"])


def members(name: str, number: int, gpus: int, priority: str) -> list[Object]:
    """A gang of one priority whose pods take a second to stop."""
    spec = {"priorityClassName": priority, "terminationGracePeriodSeconds": 1}
    return make.gang(name, members=number, gpus=gpus, spec=spec)


def singly(gang: list[Object]) -> list[Object]:
    """Its pods as plain pods."""
    pods = [each for each in gang if each["kind"] == "Pod"]
    for pod in pods:
        pod["metadata"].pop("labels", None)
        pod["metadata"].pop("annotations", None)
    return pods


def bound(pods: Mapping[str, Object], gang: str) -> int:
    """How many live members of a gang are bound."""
    return sum(
        pod["metadata"]["name"].startswith(f"{gang}-") and bool(pod["spec"].get("nodeName"))
        for pod in pods.values()
        if "deletionTimestamp" not in pod["metadata"]
    )


def is_whole(gang: str, pods: Mapping[str, Object]) -> bool:
    """Whether all its members are bound."""
    return bound(pods, gang) == MEMBERS


@pytest.mark.parametrize(
    ("number", "alone"),
    [*((number, False) for number in AFTER), *((number, True) for number in ALONE)],
)
def test_a_kill_after_any_write_leaves_no_gang_halved(
    plane: ControlPlane, number: int, alone: bool
) -> None:
    """V13, V24: one start; the victims, a gang or pods alone, are all gone; nobody else
    is evicted.
    """
    api, seen = Api.of(plane), Seen()
    deadly = Deadly(faults=(), writes_left=10**6)
    with FaultProxy(plane) as proxy, Following(api, PODS, on_change=seen.changed) as pods:
        proxy.rules.append(deadly)
        daemon = Daemon(plane, url=proxy.url)
        daemon.start()
        try:
            for name, priority in (("victim", "lowest"), ("bystander", "low")):
                created = members(name, MEMBERS, 1, priority)
                make.create_all(api, singly(created) if alone else created)
                pods.wait_for(
                    partial(is_whole, name), within_s=WITHIN_S, what=f"the start of {name}"
                )
            deadly.kill_after(number, api, members("high", 2, 4, "high"), daemon, proxy)
            daemon.start()
            pods.wait_for(
                lambda items: bound(items, "high") == 2,
                within_s=WITHIN_S,
                what="the start of the high gang",
            )
            pods.wait_for(
                lambda items: bound(items, "victim") in {0, MEMBERS},
                within_s=30.0,
                what="no half gang",
            )
            assert bound(pods.objects(), "victim") == 0
            assert bound(pods.objects(), "bystander") == MEMBERS
            assert {name.rpartition("-")[0] for name in seen.evicted} == {"victim"}
            assert all(len(seen.bound[f"high-{index}"]) == 1 for index in range(2))
            assert daemon.complaints() == []
        finally:
            daemon.kill()
            clean(api, pods)
    api.close()


def clean(api: Api, pods: Following) -> None:
    """Take everything of a trial away."""
    for item in api.list(PODS).items:
        api.delete(f"{DEFAULT}/pods/{item['metadata']['name']}")
    groups = "/apis/scheduling.x-k8s.io/v1alpha1"
    for item in api.list(f"{groups}/podgroups").items:
        api.delete(f"{groups}/namespaces/default/podgroups/{item['metadata']['name']}")
    pods.wait_for(lambda items: not items, within_s=WITHIN_S, what="an empty cluster")
