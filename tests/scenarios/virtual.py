"""The virtual form: the scheduler's own loop and state on a virtual clock, with a fake API server.

Invariant: the fake does what scheduling sees of an API server (uids, generations, deletion with
finalizers, bind preconditions, updates for the annotations we write), objects pass as JSON through
the real decoders, and time advances only when nothing else is left to do. Kubelets run bound pods
at once.
"""

from __future__ import annotations

import copy
import heapq
import json
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from itertools import count
from typing import Any, Final

from control_plane import objects as make
from control_plane.api import Object
from control_plane.checks import Checks
from structlog.testing import capture_logs

from gangsched import parameters
from gangsched.api.dialects import DIALECTS
from gangsched.api.keys import PERMITTED, TIMEOUT
from gangsched.api.permits import format_permit
from gangsched.core.cycle import Limits
from gangsched.kube.read import resources, store
from gangsched.kube.read.owner_asks import OwnerAsks
from gangsched.kube.read.podgroup_store import PodGroupStore
from gangsched.kube.read.shapes import ShapeTable
from gangsched.kube.read.storage import SELECTED_NODE
from gangsched.loop import Loop, Ports
from gangsched.model.protocol import (
    Bind,
    BindClaims,
    BindFailed,
    BindGone,
    BindOrder,
    Bound,
    ClaimsWritten,
    Evict,
    MarkTimedOut,
    Message,
    Outcome,
    PreemptionOrder,
    ProvisioningAvailable,
    RecordEvent,
    ReleaseClaims,
    Report,
    SetPodCondition,
    SetPodGroupStatus,
)
from gangsched.settings import Settings
from gangsched.state.scheduling import SchedulingState
from gangsched.state.validate import validate
from gangsched.telemetry.metrics import Metrics
from tests.scenarios.api_server import admit, dialect_of, key_of, merged, rfc3339, version_of
from tests.scenarios.eviction import Evictions
from tests.scenarios.objects import CLASS, own, storage_class
from tests.scenarios.view import View, is_bound
from tests.tuned import altered, split

AVOID_S: Final = 3.0
EPOCH_S: Final = 1_750_000_000
TURNS: Final = 10_000


class VirtualCluster:
    """A `play.Cluster`. `one_by_one`: the scheduler has a turn after every single change, and sees
    a bind in the watch before its answer; else changes come together, and the answer comes first.
    """

    def __init__(self, *, one_by_one: bool, settings: Mapping[str, Any] | None = None) -> None:
        names = ("gangsched", "scheduler-plugins-scheduler")
        own, self._constants = split({"avoid_s": AVOID_S, **(settings or {})})
        self._settings = Settings(scheduler_names=names, **own)
        self.view = View()
        self.checks = Checks()
        self._one_by_one = one_by_one
        self._now_s = 0.0
        self._objects: dict[tuple[str, str], Object] = {}
        #: Of all objects that were ever made, by kind and key.
        self._uids: dict[tuple[str, str], str] = {}
        self._version = 0
        self._refused: set[str] = set()
        self._deeds: dict[str, str] = {}
        self._later: deque[Callable[[], None]] = deque()
        self._stopping: set[str] = set()
        self._recreated: list[str] = []
        self._given: dict[tuple[str, str], Object] = {}
        self._intruders: dict[str, Callable[[], None]] = {}
        self._writes_left = 0
        self._numbers = count()
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._evictions = Evictions(self, self._intruders)
        self._objects["StorageClass", CLASS] = storage_class()
        self._start()

    def _start(self) -> None:
        self._evictions.dead = True
        self._evictions = Evictions(self, self._intruders)
        state = SchedulingState(altered(parameters.rules(self._settings), self._constants))
        self._loop = Loop(
            state,
            Ports(self, self._tell, self.preempt, self),
            metrics=Metrics(),
            limits=Limits(),
            ready=lambda: True,
        )
        self._state = state
        asks = OwnerAsks(self._settings.owner_gangs)

        def sink(message: Message) -> None:
            asks.take(message)
            self._loop.inbox(message)
            if asks.pods_again.is_set():
                asks.pods_again.clear()
                self._list_pods()

        pods = resources.pods(ShapeTable(), owner_asks=asks)
        self._pods = store.Store(pods, sink, self._report)
        sink(ProvisioningAvailable("The API server does not serve ProvisioningRequests."))
        self._nodes = store.Store(resources.nodes(self._report), sink, self._report)
        self._groups = {dialect: PodGroupStore(dialect, sink, self._report) for dialect in DIALECTS}
        self._budgets = store.Store(resources.DISRUPTION_BUDGETS, sink, self._report)
        self._others: dict[str, store.Store[Any, Any]] = {
            "Service": store.Store(resources.SERVICES, sink, self._report),
            "StorageClass": store.Store(resources.CLASSES, sink, self._report),
            "PersistentVolumeClaim": store.Store(resources.CLAIMS, sink, self._report),
            "PersistentVolume": store.Store(resources.VOLUMES, sink, self._report),
            "Namespace": store.Store(resources.NAMESPACES, sink, self._report),
            **{
                resource.kind.__name__.removesuffix("Owner"): store.Store(
                    resource, sink, self._report
                )
                for resource in resources.OWNERS
            },
        }
        readers: dict[str, store.Store[Any, Any]] = {
            "Namespace": self._others["Namespace"],  # first, as in the daemon
            "Pod": self._pods,
            "Node": self._nodes,
            "PodDisruptionBudget": self._budgets,
            **self._others,
        }
        for kind, reader in readers.items():
            items = [body for (each, _), body in self._objects.items() if each == kind]
            reader.add_page(
                json.dumps({"metadata": {"resourceVersion": "1"}, "items": items}).encode()
            )
        for dialect, pod_groups in self._groups.items():
            bodies = [body for body in self._objects.values() if dialect_of(body) == dialect]
            found = [
                pod_group
                for body in bodies
                if (pod_group := pod_groups.read(body, version_of(body))) is not None
            ]
            pod_groups.replace(found, str(self._version))

    def _list_pods(self) -> None:
        """The pods are listed again, as by their reflector."""
        items = [body for (kind, _), body in self._objects.items() if kind == "Pod"]
        metadata = {"resourceVersion": str(self._version)}
        self._pods.add_page(json.dumps({"metadata": metadata, "items": items}).encode())

    # --- what a scenario does (play.Cluster) -----------------------------------------------------

    def create(self, bodies: list[Object]) -> None:
        for given in bodies:
            body = own(copy.deepcopy(given), self._uids)
            metadata = body["metadata"]
            key = (body["kind"], key_of(body))
            assert key not in self._objects, f"{key} is there already"
            metadata |= {
                "uid": f"uid-{self._version}",
                "creationTimestamp": self.wall(),
                "generation": 1,
            }
            self._uids[key] = metadata["uid"]
            body.setdefault("status", {})
            if body["kind"] == "Pod":
                notes = metadata.get("annotations", {})
                metadata["annotations"] = {
                    key: text.replace("<uid>", metadata["uid"]) for key, text in notes.items()
                }
                admit(body, self.wall())
                self._given[key] = given
            self._store("ADDED", body)
            if body["kind"] == "Pod" and is_bound(body):
                self._run(body)

    def delete(self, kind: str, key: str) -> None:
        body = self._objects[(kind, key)]
        if kind == "Pod":
            self.stop(body)
        elif body["metadata"].get("finalizers"):
            self._patch(body, {"metadata": {"deletionTimestamp": self.wall()}})
        else:
            self._remove(body)

    def patch(self, kind: str, key: str, body: Object, *, status: bool = False) -> None:
        self._patch(self._objects[(kind, key)], body)

    def until(self, look: Callable[[View], list[str]], *, within_s: float) -> None:
        deadline_s = self._now_s + within_s
        while True:
            self._settle()
            found = look(self.view)
            if not found:
                assert not self.checks.violations, self.checks.violations
                return
            if not self._advance(deadline_s):
                raise AssertionError("; ".join(found))

    def seen(self) -> View:
        return self.view

    def refuse_binds(self, keys: list[str]) -> None:
        self._refused = set(keys)

    def while_binding(self, deeds: dict[str, str]) -> None:
        self._deeds |= deeds

    def while_evicting(self, intruders: Mapping[str, Callable[[], None]]) -> None:
        self._intruders.update(intruders)

    def recreate(self, patterns: Sequence[str]) -> None:
        self._recreated = list(patterns)

    def crash_after(self, writes: int) -> None:
        self._writes_left = writes

    def ago(self, seconds: float) -> str:
        return rfc3339(self.wall_s() - seconds)

    def restart(self) -> None:
        self._settle()
        self._later.clear()
        self._start()

    def wait(self, seconds: float) -> None:
        end_s = self._now_s + seconds
        self._settle()
        while self._advance(end_s):
            self._settle()
        self._now_s = end_s
        self._settle()

    def every(self, seconds: float, deed: Callable[[], bool]) -> None:
        def again() -> None:
            if deed():
                self.plan(seconds, again)

        again()

    # --- time ------------------------------------------------------------------------------------

    def plan(self, seconds: float, deed: Callable[[], None]) -> None:
        """Do this so many seconds from now."""
        heapq.heappush(self._agenda, (self._now_s + seconds, next(self._numbers), deed))

    def _advance(self, until_s: float) -> bool:
        """Go on to the next moment at which something is due, and do it; False if there is none by
        `until_s`.
        """
        due_s = self._state.next_deadline_s(self._now_s)
        if self._agenda and (due_s is None or self._agenda[0][0] <= due_s):
            due_s = self._agenda[0][0]
        if due_s is None or due_s > until_s:
            return False
        self._now_s = max(self._now_s, due_s)
        while self._agenda and self._agenda[0][0] <= self._now_s:
            heapq.heappop(self._agenda)[2]()
        return True

    def _run(self, pod: Object) -> None:
        """A kubelet runs the pod at once, and ends it when its time is over."""
        runs_s = pod["metadata"].get("annotations", {}).get(make.RUN_SECONDS)
        if runs_s is not None:
            self.plan(
                float(runs_s), partial(self._end, pod["metadata"]["uid"], ("Pod", key_of(pod)))
            )

    def _end(self, uid: str, key: tuple[str, str]) -> None:
        pod = self._objects.get(key)
        if pod is not None and pod["metadata"]["uid"] == uid:
            self._patch(pod, {"status": {"phase": "Succeeded"}})

    # --- the scheduler's ports -------------------------------------------------------------------

    def now_s(self) -> float:
        """Virtual monotonic seconds."""
        return self._now_s

    def wall(self) -> str:
        """The virtual present in RFC 3339."""
        return rfc3339(self.wall_s())

    def wall_s(self) -> float:
        """The same in seconds since the epoch."""
        return EPOCH_S + self._now_s

    def submit(self, orders: Sequence[BindOrder]) -> None:
        """Answer orders after the turn that gave them."""
        for order in orders:
            self._later.append(
                partial(self._bind, order)
                if isinstance(order, Bind)
                else partial(self._select, order)
            )

    def _select(self, order: BindClaims | ReleaseClaims) -> None:
        """Ask for volumes on the node of a pod, or no more."""
        versions: dict[str, str] = {}
        for each in order.claims:
            node = each.node if isinstance(order, BindClaims) else None
            asked = {"metadata": {"annotations": {SELECTED_NODE: node}}}
            self._patch(self._objects["PersistentVolumeClaim", each.key], asked)
            versions[each.key] = str(self._version)
        if isinstance(order, BindClaims):
            self._loop.inbox(ClaimsWritten(order.uid, versions))

    def _tell(self, report: Report) -> None:
        self._later.append(lambda: self._write(report))

    def preempt(self, order: PreemptionOrder) -> None:
        """Begin to carry out an order of the scheduler's."""
        self._evictions.order(order)

    # --- for evictions (eviction.Objects) --------------------------------------------------------

    def needs(self, order: Evict) -> bool:
        """Whether the scheduler still needs an eviction, asked before each send."""
        return self._state.preemptions.nominations.wants(order)

    def of_kind(self, kind: str) -> list[Object]:
        """All objects of a kind."""
        return [body for (each, _), body in self._objects.items() if each == kind]

    def change(self, old: Object, patch: Object) -> None:
        """Merge-patch an object."""
        self._patch(old, patch)

    def stop(self, pod: Object) -> None:
        """Delete a pod: one that runs is gone after its grace period, and only then its finalizers
        count.
        """
        uid, key = pod["metadata"]["uid"], ("Pod", key_of(pod))
        grace_s = pod["spec"].get("terminationGracePeriodSeconds", 30) if is_bound(pod) else 0
        if "deletionTimestamp" in pod["metadata"]:
            return
        if grace_s:
            self._stopping.add(uid)
            self.plan(grace_s, partial(self._stopped, uid, key))
        if grace_s or pod["metadata"].get("finalizers"):
            self._patch(pod, {"metadata": {"deletionTimestamp": rfc3339(self.wall_s() + grace_s)}})
        else:
            self._remove(merged(pod, {"metadata": {"deletionTimestamp": self.wall()}}))

    def _stopped(self, uid: str, key: tuple[str, str]) -> None:
        self._stopping.discard(uid)
        pod = self._objects.get(key)
        if (
            pod is not None
            and pod["metadata"]["uid"] == uid
            and not pod["metadata"].get("finalizers")
        ):
            self._remove(pod)

    def soon(self, deed: Callable[[], None]) -> None:
        """Do this once the scheduler has had its turn."""
        self._later.append(deed)

    def tell(self, message: Message) -> None:
        """Tell the scheduler."""
        self._loop.inbox(message)

    def wrote(self) -> None:
        """A write of a preemption is done; the scheduler crashes if it was the last one that it was
        given.
        """
        if self._writes_left:
            self._writes_left -= 1
            if not self._writes_left:
                self._later.clear()
                self._start()

    # --- the pretended API server ----------------------------------------------------------------

    def _settle(self) -> None:
        """Turn and carry out actions until nothing is left to do at this moment."""
        with capture_logs():
            for _ in range(TURNS):
                busy = self._loop.turn()
                assert validate(self._state) == []
                if not busy and not self._later:
                    return
                while self._later:
                    self._later.popleft()()
        raise AssertionError(f"the loop does not come to rest within {TURNS} turns")

    def _bind(self, bind: Bind) -> None:
        key = f"{bind.namespace}/{bind.name}"
        deed = self._deeds.pop(key, "")
        if deed == "gone":
            self.delete("Pod", key)
        pod = self._objects.get(("Pod", key))
        node = "" if pod is None else pod["spec"].get("nodeName", "")
        outcome: Outcome
        if (
            pod is None
            or pod["metadata"]["uid"] != bind.uid
            or node
            or pod["metadata"].get("deletionTimestamp")
        ):
            outcome = BindGone(bind.uid, bind.node, "the pod is not the one that was meant")
        elif key in self._refused or deed == "lost":
            outcome = BindFailed(bind.uid, bind.node, "the server does not want it")
        else:
            outcome = Bound(bind.uid, bind.node)
        if not self._one_by_one:
            self._loop.inbox(outcome)
        if isinstance(outcome, Bound):
            told = {
                "conditions": [{"type": "PodScheduled", "status": "True"}],
                "nominatedNodeName": None,
            }
            stamp = (
                {PERMITTED: format_permit(bind.permitted, bind.uid)}
                if bind.permitted is not None
                else {}
            )
            self._patch(
                self._objects[("Pod", key)],
                {
                    "metadata": {"annotations": stamp},
                    "spec": {"nodeName": bind.node},
                    "status": told,
                },
            )
            self._patch(
                self._objects[("Pod", key)],
                {"status": {"phase": "Running", "startTime": self.wall()}},
            )
            self._run(self._objects[("Pod", key)])
        if self._one_by_one:
            self._loop.inbox(outcome)

    def _write(self, report: Report) -> None:
        match report:
            case RecordEvent(regarding=about, reason=reason, message=message):
                regarding = {"kind": about.kind, "namespace": about.namespace, "name": about.name}
                self.view.events.append({"regarding": regarding, "reason": reason, "note": message})
            case SetPodCondition(reason=reason, message=message):
                pod = self.named(report)
                if pod is not None and not is_bound(pod):
                    told = {
                        "type": "PodScheduled",
                        "status": "False",
                        "reason": reason,
                        "message": message,
                    }
                    self._patch(pod, {"status": {"conditions": [told]}})
            case MarkTimedOut():
                pod = self.named(report)
                if pod is not None:
                    self._patch(pod, {"metadata": {"annotations": {TIMEOUT: "true"}}})
            case SetPodGroupStatus(uid=uid, status=status):
                group = next(
                    (body for body in self._objects.values() if body["metadata"].get("uid") == uid),
                    None,
                )
                if group is not None:
                    self._patch(group, {"status": json.loads(json.dumps(dict(status)))})

    def named(self, order: Any) -> Object | None:
        """The pod with this namespace, name and uid."""
        pod = self._objects.get(("Pod", f"{order.namespace}/{order.name}"))
        return pod if pod is not None and pod["metadata"]["uid"] == order.uid else None

    def _patch(self, old: Object, patch: Object) -> None:
        new = merged(old, patch)
        if new == old:
            return
        if new.get("spec") != old.get("spec") and dialect_of(new):
            new["metadata"]["generation"] += 1
        is_deleted = (
            new["metadata"].get("deletionTimestamp")
            and new["metadata"]["uid"] not in self._stopping
        )
        if is_deleted and not new["metadata"].get("finalizers"):
            self._remove(new)
        else:
            self._store("MODIFIED", new)

    def _remove(self, body: Object) -> None:
        key = (body["kind"], key_of(body))
        del self._objects[key]
        self._say("DELETED", body)
        if body["kind"] == "Pod" and any(
            fnmatchcase(key[1], pattern) for pattern in self._recreated
        ):
            self.create([self._given[key]])

    def _store(self, change: str, body: Object) -> None:
        self._objects[(body["kind"], key_of(body))] = body
        self._say(change, body)

    def _say(self, change: str, body: Object) -> None:
        """Send a change to every watch, in the server's order."""
        self._version += 1
        body["metadata"]["resourceVersion"] = str(self._version)
        line = json.dumps({"type": change, "object": body}).encode()
        match body["kind"]:
            case "Pod":
                self._pods.take_line(line)
                self.view.pod_changed(change, body, EPOCH_S + self._now_s)
                self.checks.pod_changed(change, body, self._now_s)
            case "Node":
                self._nodes.take_line(line)
                self.checks.node_changed(change, body, self._now_s)
            case "PodDisruptionBudget":
                self._budgets.take_line(line)
            case kind if kind in self._others:
                self._others[kind].take_line(line)
            case _:
                store = self._groups[dialect_of(body)]
                if change == "DELETED":
                    store.gone(body)
                else:
                    store.applied(json.loads(line)["object"], version_of(body))
                self.view.pod_group_changed(change, body)
        if self._one_by_one and not self._later:
            with capture_logs():
                self._loop.turn()

    def _report(self, sentence: str) -> None:
        raise AssertionError(f"the scheduler cannot read an object: {sentence}")
