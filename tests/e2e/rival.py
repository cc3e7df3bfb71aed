"""A second scheduler that knows nothing of gangs, and who watches what comes of it.

Invariant: whatever the rival does, a scheduler may do that has the rights. `Witness` holds against
gangsched only what it did after it must have known better.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from types import TracebackType
from typing import Self

from control_plane import objects as make
from control_plane.api import Api, ApiError, Object
from control_plane.checks import Checks, gang_of
from control_plane.following import Following
from control_plane.pods import nodes_of, refusal

from tests.crowd import GPUS

DEFAULT = "/api/v1/namespaces/default/pods"
KUBE_SCHEDULER = "default-scheduler"
TAINT = {"key": "example.com/taken", "effect": "NoSchedule"}
MOST_CLOSED = 2
ENDED = ("Succeeded", "Failed")
KNOWN_AFTER_S = 2.0
"""By then a scheduler on a busy machine has heard of a bind or of a closed node."""
AGREE_AFTER_S = 0.5
"""Two watches of one client tell of the same moment by then."""
BOUND_WITHIN_S = 20.0


class Witness:
    """`checks`, and what follows from there being others; `heard_…` fit `Following(on_change=…)`.

    `theirs` are the uids of pods that the rival has bound or is about to bind.
    """

    def __init__(self, *, partly_s: float) -> None:
        self.checks = Checks(limit_s=partly_s, judges=self._judges)
        self.theirs: set[str] = set()
        self.violations: list[str] = []
        self._foreign_s: dict[str, float] = {}
        self._closed_s: dict[str, float] = {}
        self._bound: set[str] = set()
        self._running: set[str] = set()
        self._holders: defaultdict[str, dict[str, set[str]]] = defaultdict(dict)
        self._shared_s: dict[str, float] = {}

    def found(self) -> list[str]:
        """All that must not be."""
        now_s = time.monotonic()
        self.checks.look(now_s)
        self._look_at_devices(now_s)
        return [*self.checks.violations, *self.violations]

    def heard_node(self, kind: str, node: Object, seen_s: float) -> None:
        """Since when it takes no pods."""
        spec, name = node["spec"], node["metadata"]["name"]
        if spec.get("unschedulable") or spec.get("taints"):
            self._closed_s.setdefault(name, seen_s)
        else:
            self._closed_s.pop(name, None)

        self.checks.node_changed(kind, node, seen_s)

    def heard_pod(self, kind: str, pod: Object, seen_s: float) -> None:
        """Binds, and what pods are told."""
        uid, node = pod["metadata"]["uid"], pod["spec"].get("nodeName")
        if node and uid not in self._bound:
            self._bound.add(uid)
            if not self._is_foreign(pod) and self._must_know(self._closed_s, node, seen_s):
                self.violations.append(f"Pod {_key(pod)} was bound to {node}, which is closed.")

        if node and kind != "DELETED" and pod["status"].get("phase") not in ENDED:
            self._running.add(uid)
        else:
            self._running.discard(uid)

        if refusal(pod)[0] == "InternalError":
            self.violations.append(f"Pod {_key(pod)} is told: {refusal(pod)[1]}")

        self.checks.pod_changed(kind, pod, seen_s)

    def heard_claim(self, kind: str, claim: Object, _seen_s: float) -> None:
        """Which claims have which devices, and for whom."""
        key = _key(claim)
        for holders in self._holders.values():
            holders.pop(key, None)
        if kind == "DELETED":
            return

        status = claim.get("status", {})
        consumers = {each["uid"] for each in status.get("reservedFor") or ()}
        allocation = status.get("allocation") or {}
        for result in allocation.get("devices", {}).get("results", ()):
            self._holders[f"{result['pool']}/{result['device']}"][key] = consumers

    def _look_at_devices(self, now_s: float) -> None:
        """A17: a device is in the claims of at most one bound pod, once all watches agree."""
        shared: dict[str, float] = {}
        for device, holders in list(self._holders.items()):
            used = [key for key, uids in list(holders.items()) if uids & self._running]
            if len(used) > 1:
                shared[device] = self._shared_s.get(device, now_s)
                if now_s > shared[device] + AGREE_AFTER_S:
                    self.violations.append(f"Device {device} is in {' and '.join(used)}.")

        self._shared_s = shared

    def _judges(self, pod: Object, seen_s: float) -> bool:
        node = pod["spec"]["nodeName"]
        if self._is_foreign(pod):
            self._foreign_s[node] = seen_s
            return False

        return node not in self._foreign_s or self._must_know(self._foreign_s, node, seen_s)

    def _is_foreign(self, pod: Object) -> bool:
        """Whether another scheduler has bound it."""
        is_of_kube = pod["spec"]["schedulerName"] == KUBE_SCHEDULER
        return is_of_kube or pod["metadata"]["uid"] in self.theirs

    @staticmethod
    def _must_know(since_s: Mapping[str, float], node: str, now_s: float) -> bool:
        return node in since_s and now_s > since_s[node] + KNOWN_AFTER_S


@dataclass
class Rival:
    """Binds members of gangs, evicts and nominates them, closes nodes, and creates pods of high
    priority for kube-scheduler; `counts` says how often.
    """

    api: Api
    pods: Following
    nodes: list[str]
    random: Random
    witness: Witness
    counts: Counter[str] = field(default_factory=Counter)
    _numbers: itertools.count[int] = field(default_factory=itertools.count)
    _closed: set[str] = field(default_factory=set)

    def act(self) -> None:
        """Do one thing; what others were faster with fails."""
        ways: dict[Callable[[], None], int] = {
            self._bind: 3,
            self._evict: 1,
            self._nominate: 2,
            self._close: 1,
            self._open: 2,
            self._create: 3,
        }
        (act,) = self.random.choices(list(ways), list(ways.values()))
        try:
            act()
            self.counts[act.__name__] += 1
        except IndexError:
            pass  # there is nothing to choose from
        except ApiError as error:
            if error.status >= 500:
                raise

    def leave(self) -> None:
        """Open all nodes, and take away what it has bound: gangs that it began fill the cluster."""
        for node in sorted(self._closed):
            self._patch(node, {"unschedulable": None, "taints": None})
        for uid, pod in self.pods.objects().items():
            if uid in self.witness.theirs or pod["spec"]["schedulerName"] == KUBE_SCHEDULER:
                self.api.delete(f"{DEFAULT}/{pod['metadata']['name']}")

    def _member(self, *, bound: bool) -> Object:
        """A random member of a gang that has a node, or that has none."""
        found = [
            pod
            for pod in self.pods.objects().values()
            if gang_of(pod) and bool(pod["spec"].get("nodeName")) is bound
        ]
        return self.random.choice(sorted(found, key=_key))

    def _bind(self) -> None:
        """Bind a member to a node that has room for it, as far as is known; now and then to any."""
        pod = self._member(bound=False)
        free = self._free_gpus()
        roomy = [node for node in self.nodes if free[node] >= _gpus(pod)]
        node = self.random.choice(roomy if self.random.random() < 0.9 else self.nodes)

        self.witness.checks.excuse(gang_of(pod))
        self.witness.theirs.add(pod["metadata"]["uid"])
        try:
            self.api.bind("default", pod["metadata"]["name"], node)
        except ApiError:
            self.witness.theirs.discard(pod["metadata"]["uid"])
            raise

    def _free_gpus(self) -> dict[str, int]:
        free = dict.fromkeys(self.nodes, GPUS)
        for pod in self.pods.objects().values():
            if pod["spec"].get("nodeName") and pod["status"].get("phase") not in ENDED:
                free[pod["spec"]["nodeName"]] -= _gpus(pod)

        return free

    def _evict(self) -> None:
        """Evict a member that runs."""
        pod = self._member(bound=True)
        self.witness.checks.excuse(gang_of(pod))
        name = pod["metadata"]["name"]
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
        self.api.post(f"{DEFAULT}/{name}/eviction", eviction)

    def _nominate(self) -> None:
        """Say that a member that waits is to get a node."""
        name = self._member(bound=False)["metadata"]["name"]
        status = {"nominatedNodeName": self.random.choice(self.nodes)}
        self.api.patch(f"{DEFAULT}/{name}/status", {"status": status})

    def _close(self) -> None:
        """Cordon or taint a node."""
        if len(self._closed) == MOST_CLOSED:
            return

        node = self.random.choice(self.nodes)
        change = self.random.choice(({"unschedulable": True}, {"taints": [TAINT]}))
        self._closed.add(node)
        self._patch(node, change)

    def _open(self) -> None:
        """Open a node again."""
        if self._closed:
            node = self.random.choice(sorted(self._closed))
            self._patch(node, {"unschedulable": None, "taints": None})
            self._closed.discard(node)

    def _create(self) -> None:
        """A pod for kube-scheduler, which preempts for it, and nominates it."""
        pod = make.pod(
            f"kube-{next(self._numbers)}",
            gpus=self.random.choice((1, 4, GPUS)),
            scheduler_name=KUBE_SCHEDULER,
            run_seconds=self.random.uniform(2.0, 12.0),
            spec={"priorityClassName": "high"},
        )
        self.api.post(DEFAULT, pod)

    def _patch(self, node: str, change: Mapping[str, object]) -> None:
        self.api.patch(f"/api/v1/nodes/{node}", {"spec": change})


class Bystander:
    """A user of another namespace; `took_s` has how long each plain pod waited for its node."""

    def __init__(self, api: Api, pods: Following, namespace: str) -> None:
        self.took_s: list[float] = []
        self._api = api
        self._pods = pods
        self._namespace = namespace

    def act(self) -> None:
        """Create a pod, wait until it is bound, and delete it."""
        name = f"bystander-{len(self.took_s)}"
        path = f"/api/v1/namespaces/{self._namespace}/pods"
        began_s = time.monotonic()
        self._api.post(path, make.pod(name, self._namespace))
        self._pods.wait_for(
            lambda items: bool(nodes_of(items, name)), within_s=BOUND_WITHIN_S, what=f"{name} bound"
        )
        self.took_s.append(time.monotonic() - began_s)
        self._api.delete(f"{path}/{name}")


class Beside:
    """Does something again and again in a thread, while its block runs."""

    def __init__(self, act: Callable[[], None], *, every_s: float) -> None:
        self._act = act
        self._every_s = every_s
        self._ends = threading.Event()
        self._failed: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ends.set()
        self._thread.join()
        if error is None:
            self.check()

    def check(self) -> None:
        """Raise what it failed of."""
        if self._failed is not None:
            raise self._failed

    def _run(self) -> None:
        try:
            while not self._ends.wait(self._every_s):
                self._act()
        except BaseException as error:
            self._failed = error


def _gpus(pod: Object) -> int:
    """How many GPUs it takes."""
    (container,) = pod["spec"]["containers"]
    return int(container.get("resources", {}).get("limits", {}).get(make.GPU, 0))


def _key(body: Object) -> str:
    return f"{body['metadata']['namespace']}/{body['metadata']['name']}"
