"""kube-scheduler beside gangsched: room that it makes by preemption is its own (semantics F1)."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping

import pytest
from control_plane import ControlPlane
from control_plane import objects as make
from control_plane.api import Api, Object
from control_plane.applying import apply_manifests
from control_plane.daemon import Daemon
from control_plane.following import Following

pytestmark = [pytest.mark.e2e, pytest.mark.alone]

PODS = "/api/v1/pods"
DEFAULT = "/api/v1/namespaces/default"
NODES, GPUS = 4, 8
GANGS, MEMBERS = 40, 4
HOLD = "example.com/hold"
END_AFTER_S = (1.0, 4.0)
WITHIN_S = 60.0


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """A control plane with kwok and the real kube-scheduler."""
    with ControlPlane(kwok=True, scheduler=True) as plane:
        api = Api.of(plane)
        apply_manifests(api)
        for name, value in (("low", 10), ("high", 1000)):
            body = {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": name},
            }
            api.post("/apis/scheduling.k8s.io/v1/priorityclasses", {**body, "value": value})
        make.create_all(api, [make.node(f"n{i}", gpus=GPUS) for i in range(NODES)])
        yield plane
        api.close()


class Victims:
    """Pods that end 1 to 4 seconds after they were deleted, as their finalizer has it."""

    def __init__(self, api: Api) -> None:
        self.killed: list[str] = []
        self._api = api
        self._timers: list[threading.Timer] = []
        self._patient = True

    def saw(self, kind: str, pod: Object, seen_s: float) -> None:
        """Note a deletion, and let the pod end a while later."""
        name = pod["metadata"]["name"]
        if "deletionTimestamp" not in pod["metadata"] or HOLD not in pod["metadata"].get(
            "finalizers", ()
        ):
            return
        if name in self.killed:
            return
        first, last = END_AFTER_S
        delay_s = (
            first + (last - first) * (len(self.killed) % GPUS) / (GPUS - 1)
            if self._patient
            else 0.0
        )
        self.killed.append(name)
        timer = threading.Timer(delay_s, self._end, (name,))
        self._timers.append(timer)
        timer.start()

    def hurry(self) -> None:
        """From now on pods end at once."""
        self._patient = False

    def join(self) -> None:
        """Wait until the last has ended."""
        for timer in self._timers:
            timer.join()

    def _end(self, name: str) -> None:
        self._api.patch(f"{DEFAULT}/pods/{name}", {"metadata": {"finalizers": None}})


def preempt(plane: ControlPlane, *, with_gangs: bool) -> tuple[float, int]:
    """(seconds until the urgent pod was bound, pods killed), on a full cluster that is emptied
    afterwards.
    """
    api = Api.of(plane)
    victims = Victims(api)
    make.create_all(
        api, [low(f"victim-{n}-{i}", nodeName=f"n{n}") for n in range(NODES) for i in range(GPUS)]
    )
    with Following(api, PODS, on_change=victims.saw) as pods:
        if with_gangs:
            groups = [make.pod_group(f"g{g}", min_member=MEMBERS) for g in range(GANGS)]
            members = [low(f"g{g}-{m}", gang=f"g{g}") for g in range(GANGS) for m in range(MEMBERS)]
            make.create_all(api, [*groups, *members])
            pods.wait_for(
                lambda items: told(items) == GANGS * MEMBERS,
                within_s=WITHIN_S,
                what="gangs to wait",
            )
        began_s = time.monotonic()
        spec = {"priorityClassName": "high"}
        api.post(
            f"{DEFAULT}/pods",
            make.pod("urgent", gpus=GPUS, scheduler_name="default-scheduler", spec=spec),
        )
        pods.wait_for(urgent_is_bound, within_s=WITHIN_S, what="the urgent pod to be bound")
        took_s, killed = time.monotonic() - began_s, len(victims.killed)
        victims.hurry()
        for pod in pods.objects().values():
            if "deletionTimestamp" not in pod["metadata"]:
                api.delete(f"{DEFAULT}/pods/{pod['metadata']['name']}")
        pods.wait_for(lambda items: not items, within_s=WITHIN_S, what="an empty cluster")
        victims.join()
    api.close()
    return took_s, killed


def low(name: str, *, gang: str = "", **spec: str) -> Object:
    """A pod of low priority that takes its time to end."""
    body = make.pod(name, gang=gang, gpus=1, spec={"priorityClassName": "low", **spec})
    body["metadata"]["finalizers"] = [HOLD]
    return body


def urgent_is_bound(pods: Mapping[str, Object]) -> bool:
    """Whether kube-scheduler has bound its pod."""
    return any(
        pod["metadata"]["name"] == "urgent" and pod["spec"].get("nodeName") for pod in pods.values()
    )


def told(pods: Mapping[str, Object]) -> int:
    """How many members of gangs wait with a condition."""
    members = [pod for pod in pods.values() if pod["metadata"]["name"].startswith("g")]
    return sum(bool(pod.get("status", {}).get("conditions")) for pod in members)


def test_urgent_pod_is_bound_as_fast_as_alone(plane: ControlPlane) -> None:
    """Its victims end one by one while 40 gangs wait; nobody takes their room, and no more pods are
    killed.
    """
    with Daemon(plane):
        alone_s, killed_alone = preempt(plane, with_gangs=False)
        beside_s, killed_beside = preempt(plane, with_gangs=True)
    print(
        f"alone {alone_s:.1f} s, {killed_alone} killed; beside {GANGS} gangs {beside_s:.1f} s,"
        f" {killed_beside} killed"
    )
    assert killed_beside == killed_alone == GPUS
    assert beside_s <= 2 * alone_s
