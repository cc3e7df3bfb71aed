"""Evictions and conditions that the API server gets after the plan has changed are harmless and
bounded (V12, B5, E1; decision 0145): a gateway answers 504 to the scheduler, and passes the request
on later.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import pytest
from aiohttp import web
from control_plane import ControlPlane
from control_plane import objects as make
from control_plane.api import Api, Object
from control_plane.daemon import Daemon
from control_plane.following import Following
from control_plane.pods import nodes_of, refusal

from tests.e2e.conftest import COLLECTIONS, delete_all
from tests.faults.answers import gateway_page
from tests.faults.proxy import FaultProxy
from tests.faults.requests import ApiRequest
from tests.faults.rules import Exchange, Rule
from tests.kwok_plane import plane_with_nodes

pytestmark = pytest.mark.e2e

PODS = "/api/v1/pods"
DEFAULT = "/api/v1/namespaces/default/pods"
NODES = 3
WITHIN_S = 20.0
AGAIN_S = 2.0
"""An eviction without a clear answer is sent again after about a second, and then after two."""


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """Three nodes of one GPU, and three priorities."""
    with plane_with_nodes(NODES, gpus=1) as plane:
        api = Api.of(plane)
        for name, value in (("low", 10), ("mid", 100), ("high", 1000)):
            body = {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": name},
            }
            api.post("/apis/scheduling.k8s.io/v1/priorityclasses", {**body, "value": value})

        api.close()
        yield plane


@dataclass
class Late(Rule):
    """No eviction, or other write of `subresource`, is carried out, and each is answered by a
    gateway, until `held_back` is false; the first one of each pod is, once the test says so.
    """

    held_back: bool = True
    sent: dict[str, Exchange] = field(default_factory=dict)
    through: list[str] = field(default_factory=list)
    _loop: asyncio.AbstractEventLoop | None = None
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def fault_for(self, request: ApiRequest) -> Late | None:
        """Itself for every request that is held back."""
        if request.resource != "pods" or request.subresource != self.subresource:
            return None
        if not self.held_back:
            self.through.append(request.name)
            return None

        return self

    async def strike(self, exchange: Exchange) -> web.StreamResponse:
        """504, as a load balancer answers."""
        with self._changed:
            self._loop = asyncio.get_running_loop()
            self.sent.setdefault(exchange.asked.name, exchange)
            self._changed.notify_all()

        return await gateway_page(504, None).strike(exchange)

    def wait_for(self, *, number: int) -> list[str]:
        """Until something was sent for so many pods; their names in that order."""
        with self._changed:
            are_sent = self._changed.wait_for(lambda: len(self.sent) >= number, WITHIN_S)
            assert are_sent, f"sent only for {[*self.sent]}"
            return [*self.sent]

    def land(self, name: str) -> None:
        """The gateway passes on what it was sent first about this pod."""
        assert self._loop is not None
        landing = asyncio.run_coroutine_threadsafe(self.sent[name].carry_out(), self._loop)
        landing.result(WITHIN_S)


class Scene:
    """A daemon behind the gateway."""

    def __init__(self, api: Api, daemon: Daemon, pods: Following, late: Late) -> None:
        self.api = api
        self.daemon = daemon
        self.pods = pods
        self.late = late

    def create(self, *bodies: Object) -> None:
        """Create objects."""
        make.create_all(self.api, bodies)

    def wait_running(self, prefix: str, number: int) -> dict[str, str]:
        """Until so many pods of a prefix run; their nodes."""

        def run(items: Mapping[str, Object]) -> bool:
            phases = [
                pod["status"].get("phase")
                for pod in items.values()
                if pod["metadata"]["name"].startswith(prefix)
            ]
            return phases.count("Running") == number

        self.wait(run, f"{number} of {prefix}* run")
        return nodes_of(self.pods.objects(), prefix)

    def wait(self, holds: Callable[[Mapping[str, Object]], object], what: str) -> None:
        """Until it holds for the pods."""
        self.pods.wait_for(holds, within_s=WITHIN_S, what=what)

    def cordon(self, node: str, *, back: bool = False) -> None:
        """The administrator takes a node away, or gives it back."""
        self.api.patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": None if back else True}})

    def nominated(self) -> dict[str, str]:
        """The nodes that waiting pods are promised."""
        return {
            pod["metadata"]["name"]: node
            for pod in self.pods.objects().values()
            if (node := pod["status"].get("nominatedNodeName")) and not pod["spec"].get("nodeName")
        }


@pytest.fixture
def scene(plane: ControlPlane) -> Iterator[Scene]:
    """Nothing runs yet; at the end nobody is nominated, and the state is sound."""
    late = Late(faults=(), subresource="eviction")
    api = Api.of(plane)
    with FaultProxy(plane) as proxy, Following(api, PODS) as pods:
        proxy.rules.append(late)
        with Daemon(plane, url=proxy.url) as daemon:
            scene = Scene(api, daemon, pods, late)
            yield scene
            assert scene.nominated() == {}

        for number in range(NODES):
            scene.cordon(f"n{number}", back=True)
        delete_all(api, *COLLECTIONS[:2])
        pods.wait_for(lambda items: not items, within_s=WITHIN_S, what="no pods")

    api.close()


def pod(name: str, priority: str) -> Object:
    """A plain pod that takes a whole node."""
    spec = {"priorityClassName": priority, "terminationGracePeriodSeconds": 1}
    return make.pod(name, gpus=1, spec=spec)


def gang(name: str, priority: str) -> list[Object]:
    """A gang of two that takes two whole nodes."""
    spec = {"priorityClassName": priority, "terminationGracePeriodSeconds": 1}
    return make.gang(name, members=2, gpus=1, spec=spec)


def replanned(scene: Scene) -> tuple[str, str, str]:
    """The node of the victim is cordoned, so that the plan changes to another victim; the nodes of
    the two, and that of a bystander of middle priority.
    """
    scene.create(pod("mid", "mid"))
    (bystander,) = scene.wait_running("mid", 1).values()
    scene.create(pod("low-a", "low"), pod("low-b", "low"))
    nodes = scene.wait_running("low-", 2)

    scene.create(pod("high", "high"))
    (first,) = scene.late.wait_for(number=1)
    scene.cordon(nodes[first])
    _, second = scene.late.wait_for(number=2)
    assert {first, second} == {"low-a", "low-b"}
    return nodes[first], nodes[second], bystander


def test_at_most_what_was_in_flight_is_evicted_for_nothing(scene: Scene) -> None:
    """The first eviction lands when the second victim's place has been taken: that pod is lost, and
    nobody else is evicted for it.
    """
    cordoned, taken, bystander = replanned(scene)
    first, _ = scene.late.sent

    scene.late.held_back = False
    scene.wait(lambda items: nodes_of(items, "high") == {"high": taken}, "high runs")
    scene.late.land(first)
    scene.wait(lambda items: len(items) == 2, "the first victim goes")

    # Whoever owns it replaces it: it waits, is told why, and starts when its node is back.
    scene.create(pod("low-new", "low"))
    scene.wait(
        lambda items: any(
            "1 node(s) were unschedulable" in refusal(waiting)[1] for waiting in items.values()
        ),
        "the replacement is told",
    )
    scene.cordon(cordoned, back=True)
    scene.wait_running("low-new", 1)

    bound = {"high": taken, "mid": bystander, "low-new": cordoned}
    assert nodes_of(scene.pods.objects()) == bound
    assert len(scene.late.through) == 1


def test_who_was_nominated_elsewhere_takes_the_room_that_comes_late(scene: Scene) -> None:
    """V11: the second victim is spared, since its eviction is not sent any more."""
    returned, spared, bystander = replanned(scene)
    first, second = scene.late.sent

    scene.cordon(returned, back=True)
    scene.late.land(first)
    scene.wait(lambda items: nodes_of(items, "high") == {"high": returned}, "high starts")
    scene.late.held_back = False

    time.sleep(AGAIN_S)  # what must not be sent has this long to be sent
    bound = nodes_of(scene.pods.objects())
    assert bound == {"high": returned, "mid": bystander, second: spared}
    assert scene.late.through == []


def test_a_gang_that_loses_a_member_late_is_healed(scene: Scene) -> None:
    """B5: its rest is not evicted, and its replacement joins it when there is room."""
    scene.create(pod("mid", "mid"))
    scene.wait_running("mid", 1)
    scene.create(*gang("low", "low"))
    nodes = scene.wait_running("low-", 2)

    scene.create(*gang("high", "high"))
    scene.late.wait_for(number=2)
    # Two whole nodes are what it needs, and there are no longer two for it: it gives up.
    scene.cordon(nodes["low-0"])
    scene.wait(lambda _: not scene.nominated(), "nobody is nominated")
    scene.late.held_back = False
    scene.late.land("low-0")
    scene.wait(lambda items: "low-0" not in nodes_of(items), "one member goes")

    make.create_all(scene.api, [make.node("n3", gpus=1)])
    scene.api.delete(f"{DEFAULT}/high-0")
    scene.api.delete(f"{DEFAULT}/high-1")
    spec = {"priorityClassName": "low"}
    scene.create(make.pod("low-2", gang="low", gpus=1, spec=spec))
    assert scene.wait_running("low-", 2) == {"low-1": nodes["low-1"], "low-2": "n3"}
    assert scene.late.through == []
    scene.api.delete("/api/v1/nodes/n3")


def test_a_condition_that_lands_after_the_bind_is_refused(scene: Scene) -> None:
    """E1: a pod that runs does not say for ever why it waits; the policy of `admission.yaml`."""
    scene.late.subresource = "status"
    for number in range(NODES):
        scene.cordon(f"n{number}")
    scene.create(pod("p", "low"))
    scene.late.wait_for(number=1)

    scene.cordon("n1", back=True)
    assert scene.wait_running("p", 1) == {"p": "n1"}
    scene.late.land("p")

    (status,) = [
        condition["status"]
        for condition in scene.api.get(f"{DEFAULT}/p")["status"]["conditions"]
        if condition["type"] == "PodScheduled"
    ]
    assert status == "True"
