"""An observer that checks the scheduler's two promises while it works.

Invariant: no node is ever over-committed, no pod leaves its node for another, and no gang stays
between none and its minimum for longer than a limit (its binds are separate writes, so it is there
for a moment). It judges by the API server's watch events, in their order, and shares no code with
the scheduler. Not judged here: *whether* a gang should have started.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal

from control_plane.api import Object
from control_plane.objects import GPU, KOORDINATOR, POD_GROUP_LABEL

PARTLY_BOUND_LIMIT_S = 2.0
SUFFIXES = {
    "m": Decimal("0.001"),
    "k": Decimal(10**3),
    "M": Decimal(10**6),
    "G": Decimal(10**9),
    "T": Decimal(10**12),
    "Ki": Decimal(2**10),
    "Mi": Decimal(2**20),
    "Gi": Decimal(2**30),
    "Ti": Decimal(2**40),
}
Amounts = dict[str, Decimal]


@dataclass
class _Gang:
    """One gang as seen by the watch."""

    min_member: int
    bound: set[str] = field(default_factory=set)
    #: When it left "none"; None while it has none or its minimum.
    partly_since_s: float | None = None
    #: When it reached its minimum first.
    whole_s: float | None = None
    told: bool = False


@dataclass(frozen=True, slots=True)
class _Doubt:
    """A possible breach: none if a version of the node older than the bind, seen later, had the
    room.
    """

    node: str
    version: int
    name: str
    used: Decimal
    text: str


class Checks:
    """Call `node_changed` and `pod_changed` (both fit `Following(on_change=…)`), and `look` now and
    then.

    `judges`: whether the scheduler answers for the bind of a pod that was seen then; None: always.
    """

    def __init__(
        self,
        *,
        limit_s: float = PARTLY_BOUND_LIMIT_S,
        judges: Callable[[Object, float], bool] | None = None,
    ) -> None:
        self._limit_s = limit_s
        self._judges = judges
        self._lock = threading.Lock()
        self._allocatable: dict[str, Amounts] = {}
        self._used: defaultdict[str, Amounts] = defaultdict(lambda: defaultdict(Decimal))
        self._placed: dict[str, tuple[str, Amounts]] = {}
        self._gangs: dict[str, _Gang] = {}
        self._doubts: list[_Doubt] = []
        #: One sentence each; empty as long as the promises hold.
        self.violations: list[str] = []
        #: The longest time a gang was seen between none and its minimum.
        self.longest_partly_s = 0.0
        #: (monotonic seconds, GPUs in use) at each change.
        self.gpus_in_use: list[tuple[float, int]] = []

    def expect(self, gang: str, min_member: int) -> None:
        """Check a gang, "namespace/name"; call it before its pods exist."""
        with self._lock:
            self._gangs[gang] = _Gang(min_member)

    def excuse(self, gang: str) -> None:
        """Others have bound or evicted members of this gang: it may be partly bound."""
        with self._lock:
            self._gangs[gang].told = True

    def started_s(self, gang: str) -> float | None:
        """When the gang was first seen with its minimum bound (monotonic)."""
        with self._lock:
            return self._gangs[gang].whole_s

    def bound(self, gang: str) -> int:
        """How many members of the gang are bound, finished ones included."""
        with self._lock:
            return len(self._gangs[gang].bound)

    def node_changed(self, kind: str, node: Object, _seen_s: float) -> None:
        """A change of a node. Nodes and pods have separate watches: the node of a pod may be seen
        after the pod.
        """
        name = node["metadata"]["name"]
        with self._lock:
            if kind == "DELETED":
                self._allocatable.pop(name, None)
            else:
                self._allocatable[name] = _amounts(node["status"].get("allocatable", {}))
                self._reconsider(name, _version(node))

    def pod_changed(self, kind: str, pod: Object, seen_s: float) -> None:
        """A change of a pod."""
        uid, node = pod["metadata"]["uid"], pod["spec"].get("nodeName")
        ended = kind == "DELETED" or pod["status"].get("phase") in {"Succeeded", "Failed"}
        with self._lock:
            changed = (uid in self._placed) == ended if node else False
            if changed and ended:
                self._remove(uid)
            elif changed:
                self._place(uid, node, pod, seen_s)
            elif node and uid in self._placed and self._placed[uid][0] != node:
                self.violations.append(f"Pod {_key(pod)} left {self._placed[uid][0]} for {node}.")
            if changed:
                used = sum(amounts[GPU] for amounts in self._used.values())
                self.gpus_in_use.append((seen_s, int(used)))
            self._count(kind, pod, seen_s)

    def look(self, now_s: float) -> None:
        """Judge the gangs that are now between none and their minimum."""
        with self._lock:
            for name, gang in self._gangs.items():
                self._judge(name, gang, now_s)

    # --- inside ----------------------------------------------------------------------------------

    def _place(self, uid: str, node: str, pod: Object, seen_s: float) -> None:
        requests = _requests(pod)
        self._placed[uid] = node, requests
        used, allocatable = self._used[node], self._allocatable.get(node)
        for name, amount in requests.items():
            used[name] += amount

        if allocatable is None or (self._judges is not None and not self._judges(pod, seen_s)):
            return

        for name in requests:
            if used[name] > allocatable.get(name, 0):
                text = (
                    f"Node {node} is over-committed: {used[name]} {name} of"
                    f" {allocatable.get(name, 0)} since {_key(pod)}."
                )
                self.violations.append(text)
                self._doubts.append(_Doubt(node, _version(pod), name, used[name], text))

    def _reconsider(self, node: str, version: int) -> None:
        """Withdraw doubts that this version of the node, valid before the bind, resolves."""
        for doubt in [doubt for doubt in self._doubts if doubt.node == node]:
            if version < doubt.version and doubt.used <= self._allocatable[node].get(doubt.name, 0):
                self._doubts.remove(doubt)
                self.violations.remove(doubt.text)

    def _remove(self, uid: str) -> None:
        node, requests = self._placed.pop(uid)
        for name, amount in requests.items():
            self._used[node][name] -= amount

    def _count(self, kind: str, pod: Object, seen_s: float) -> None:
        """Follow the member's gang between none, some and enough."""
        name = gang_of(pod)
        gang = self._gangs.get(name)
        if gang is None or not pod["spec"].get("nodeName"):
            return
        if kind == "DELETED":
            gang.bound.discard(pod["metadata"]["uid"])
        else:
            gang.bound.add(pod["metadata"]["uid"])
        if gang.whole_s is not None:
            return  # it may shrink again as its members end
        if gang.bound and gang.partly_since_s is None:
            gang.partly_since_s = seen_s
        self._judge(name, gang, seen_s)
        if len(gang.bound) >= gang.min_member:
            gang.whole_s = seen_s
        if not gang.bound or gang.whole_s is not None:
            gang.partly_since_s = None

    def _judge(self, name: str, gang: _Gang, now_s: float) -> None:
        if gang.partly_since_s is None:
            return
        partly_s = now_s - gang.partly_since_s
        self.longest_partly_s = max(self.longest_partly_s, partly_s)
        if partly_s > self._limit_s and not gang.told:
            gang.told = True
            self.violations.append(
                f"Gang {name} has been partly bound for {partly_s:.1f} s: {len(gang.bound)} of"
                f" {gang.min_member}."
            )


def gang_of(pod: Object) -> str:
    """The gang a pod names, "namespace/name"; "" for a plain pod."""
    metadata = pod["metadata"]
    name = metadata.get("labels", {}).get(POD_GROUP_LABEL) or metadata.get("annotations", {}).get(
        KOORDINATOR + "name"
    )
    return f"{metadata['namespace']}/{name}" if name else ""


def _key(pod: Object) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def _version(made: Object) -> int:
    """The revision of the store at which an object was written; one clock for all kinds of one
    etcd.
    """
    return int(made["metadata"].get("resourceVersion", 0))


def _requests(pod: Object) -> Amounts:
    """The requests of a pod without init containers, and one of `pods`."""
    total: Amounts = defaultdict(Decimal, pods=Decimal(1))
    for container in pod["spec"]["containers"]:
        for name, amount in _amounts(container.get("resources", {}).get("requests", {})).items():
            total[name] += amount
    return total


def _amounts(raw: dict[str, str]) -> Amounts:
    return {name: _quantity(str(text)) for name, text in raw.items()}


def _quantity(text: str) -> Decimal:
    digits = text.rstrip("kmMGTPEi")
    return Decimal(digits) * SUFFIXES.get(text[len(digits) :], Decimal(1))
