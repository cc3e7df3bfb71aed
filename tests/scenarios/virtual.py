"""The virtual form: the scheduler's own loop and state on a virtual clock, with a fake API server.

Law: the fake does what scheduling sees of an API server (uids, generations, deletion with finalizers, bind
preconditions, updates for the annotations we write), objects pass as JSON through the real decoders, and time advances
only when nothing else is left to do. Kubelets run bound pods at once.
"""

from __future__ import annotations

import copy
import heapq
import json
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import count
from typing import Any, Final

from control_plane import objects as make
from control_plane.api import Object
from control_plane.checks import Checks
from structlog.testing import capture_logs

from gangsched import parameters
from gangsched.api.keys import PERMITTED, SIGS, TIMEOUT, X_K8S
from gangsched.api.values import format_permit
from gangsched.kube.read import resources, store
from gangsched.kube.read.podgroup_store import PodGroupStore
from gangsched.kube.read.shapes import ShapeTable
from gangsched.loop import Loop, Ports
from gangsched.model.protocol import (
    Bind,
    BindClaims,
    BindFailed,
    BindGone,
    Bound,
    MarkTimedOut,
    Outcome,
    PreemptionOrder,
    RecordEvent,
    Report,
    SetPodCondition,
    SetPodGroupStatus,
)
from gangsched.settings import Settings
from gangsched.state.scheduling import SchedulingState
from gangsched.state.validate import validate
from gangsched.telemetry.metrics import Metrics
from tests.scenarios.objects import PRIORITIES
from tests.scenarios.view import View, is_bound

AVOID_S: Final = 3.0
EPOCH_S: Final = 1_750_000_000
TURNS: Final = 10_000


class VirtualCluster:
    """A `play.Cluster`. `one_by_one`: the scheduler has a turn after every single change, and sees a bind
    in the watch before its answer; else changes come together, and the answer comes first.
    """

    def __init__(self, *, one_by_one: bool, settings: Mapping[str, Any] | None = None) -> None:
        names = ("gangsched", "scheduler-plugins-scheduler")
        self._settings = Settings(scheduler_names=names, kubelet_rejection_avoid_s=AVOID_S, **(settings or {}))
        self.view = View()
        self.checks = Checks()
        self._one_by_one = one_by_one
        self._now_s = 0.0
        self._objects: dict[tuple[str, str], Object] = {}
        self._version = 0
        self._refused: set[str] = set()
        self._deeds: dict[str, str] = {}
        self._later: deque[Callable[[], None]] = deque()
        self._numbers = count()
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._start()

    def _start(self) -> None:
        state = SchedulingState(parameters.rules(self._settings))
        self._loop = Loop(
            state,
            Ports(self, self._tell, self._preempt, self),
            metrics=Metrics(),
            limits=parameters.limits(self._settings),
            ready=lambda: True,
            policy=parameters.gpu_policy(self._settings),
        )
        self._state = state
        sink = self._loop.inbox
        self._pods = store.Store(resources.pods(ShapeTable()), sink, self._report)
        self._nodes = store.Store(resources.nodes(self._report), sink, self._report)
        self._groups = {group: PodGroupStore(group, sink, self._report) for group in (X_K8S, SIGS)}
        for reader, kind in ((self._pods, "Pod"), (self._nodes, "Node")):
            items = [body for (each, _), body in self._objects.items() if each == kind]
            reader.add_page(json.dumps({"metadata": {"resourceVersion": "1"}, "items": items}).encode())
        for group, pod_groups in self._groups.items():
            bodies = [
                body
                for (kind, _), body in self._objects.items()
                if kind == "PodGroup" and body["apiVersion"].startswith(f"{group}/")
            ]
            found = [pod_group for body in bodies if (pod_group := pod_groups.read(body, "v1alpha1")) is not None]
            pod_groups.replace(found, str(self._version))

    # --- what a scenario does (play.Cluster) ------------------------------------------------------------------------

    def create(self, bodies: list[Object]) -> None:
        for given in bodies:
            body = copy.deepcopy(given)
            metadata = body["metadata"]
            key = (body["kind"], _key(body))
            assert key not in self._objects, f"{key} is there already"
            metadata |= {"uid": f"uid-{self._version}", "creationTimestamp": self.wall(), "generation": 1}
            body.setdefault("status", {})
            if body["kind"] == "Pod":
                _admit(body, self.wall())
            self._store("ADDED", body)
            if body["kind"] == "Pod" and is_bound(body):
                self._run(body)

    def delete(self, kind: str, key: str) -> None:
        body = self._objects[(kind, key)]
        if body["metadata"].get("finalizers"):
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
                self._plan(seconds, again)

        again()

    # --- time ---------------------------------------------------------------------------------------------------------

    def _plan(self, seconds: float, deed: Callable[[], None]) -> None:
        """Do this so many seconds from now."""
        heapq.heappush(self._agenda, (self._now_s + seconds, next(self._numbers), deed))

    def _advance(self, until_s: float) -> bool:
        """Go on to the next moment at which something is due, and do it; False if there is none by `until_s`."""
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
            self._plan(float(runs_s), partial(self._end, pod["metadata"]["uid"], ("Pod", _key(pod))))

    def _end(self, uid: str, key: tuple[str, str]) -> None:
        pod = self._objects.get(key)
        if pod is not None and pod["metadata"]["uid"] == uid:
            self._patch(pod, {"status": {"phase": "Succeeded"}})

    # --- the scheduler's ports ----------------------------------------------------------------------------------------

    def now_s(self) -> float:
        """Virtual monotonic seconds."""
        return self._now_s

    def wall(self) -> str:
        """The virtual present in RFC 3339."""
        return datetime.fromtimestamp(self.wall_s(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def wall_s(self) -> float:
        """The same in seconds since the epoch."""
        return EPOCH_S + self._now_s

    def submit(self, orders: Sequence[Bind | BindClaims]) -> None:
        """Answer binds after the turn that ordered them."""
        self._later.extend(lambda bind=bind: self._bind(bind) for bind in orders if isinstance(bind, Bind))  # type: ignore[misc]

    def _tell(self, report: Report) -> None:
        self._later.append(lambda: self._write(report))

    def _preempt(self, order: PreemptionOrder) -> None:
        raise AssertionError(f"nobody evicts yet: {order}")

    # --- the pretended API server -------------------------------------------------------------------------------------

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
        if pod is None or pod["metadata"]["uid"] != bind.uid or node or pod["metadata"].get("deletionTimestamp"):
            outcome = BindGone(bind.uid, bind.node, "the pod is not the one that was meant")
        elif key in self._refused or deed == "lost":
            outcome = BindFailed(bind.uid, bind.node, "the server does not want it")
        else:
            outcome = Bound(bind.uid, bind.node)
        if not self._one_by_one:
            self._loop.inbox(outcome)
        if isinstance(outcome, Bound):
            told = {"conditions": [{"type": "PodScheduled", "status": "True"}]}
            stamp = {PERMITTED: format_permit(bind.permitted)} if bind.permitted is not None else {}
            self._patch(
                self._objects[("Pod", key)],
                {"metadata": {"annotations": stamp}, "spec": {"nodeName": bind.node}, "status": told},
            )
            self._patch(self._objects[("Pod", key)], {"status": {"phase": "Running", "startTime": self.wall()}})
            self._run(self._objects[("Pod", key)])
        if self._one_by_one:
            self._loop.inbox(outcome)

    def _write(self, report: Report) -> None:
        match report:
            case RecordEvent(regarding=about, reason=reason, message=message):
                regarding = {"kind": about.kind, "namespace": about.namespace, "name": about.name}
                self.view.events.append({"regarding": regarding, "reason": reason, "note": message})
            case SetPodCondition(reason=reason, message=message):
                pod = self._named(report)
                if pod is not None and not is_bound(pod):
                    told = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
                    self._patch(pod, {"status": {"conditions": [told]}})
            case MarkTimedOut():
                pod = self._named(report)
                if pod is not None:
                    self._patch(pod, {"metadata": {"annotations": {TIMEOUT: "true"}}})
            case SetPodGroupStatus(namespace=namespace, name=name, uid=uid, status=status):
                group = self._objects.get(("PodGroup", f"{namespace}/{name}"))
                if group is not None and group["metadata"]["uid"] == uid:
                    self._patch(group, {"status": json.loads(json.dumps(dict(status)))})

    def _named(self, order: SetPodCondition | MarkTimedOut) -> Object | None:
        pod = self._objects.get(("Pod", f"{order.namespace}/{order.name}"))
        return pod if pod is not None and pod["metadata"]["uid"] == order.uid else None

    def _patch(self, old: Object, patch: Object) -> None:
        new = _merged(old, patch)
        if new == old:
            return
        if new.get("spec") != old.get("spec") and new["kind"] == "PodGroup":
            new["metadata"]["generation"] += 1
        if new["metadata"].get("deletionTimestamp") and not new["metadata"].get("finalizers"):
            self._remove(new)
        else:
            self._store("MODIFIED", new)

    def _remove(self, body: Object) -> None:
        del self._objects[(body["kind"], _key(body))]
        self._say("DELETED", body)

    def _store(self, change: str, body: Object) -> None:
        self._objects[(body["kind"], _key(body))] = body
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
            case _:
                store = self._groups[body["apiVersion"].partition("/")[0]]
                if change == "DELETED":
                    store.gone(body)
                else:
                    store.applied(json.loads(line)["object"], "v1alpha1")
                self.view.pod_group_changed(change, body)
        if self._one_by_one and not self._later:
            with capture_logs():
                self._loop.turn()

    def _report(self, sentence: str) -> None:
        raise AssertionError(f"the scheduler cannot read an object: {sentence}")


def _key(body: Object) -> str:
    metadata = body["metadata"]
    return f"{metadata['namespace']}/{metadata['name']}" if "namespace" in metadata else str(metadata["name"])


def _admit(pod: Object, wall: str) -> None:
    """A new pod after defaulting and admission."""
    pod["spec"]["priority"] = PRIORITIES.get(pod["spec"].pop("priorityClassName", ""), 0)
    for container in pod["spec"]["containers"]:
        resources = container["resources"]
        resources["requests"] = {**resources.get("limits", {}), **resources.get("requests", {})}
    pod["status"] |= {"phase": "Running", "startTime": wall} if pod["spec"].get("nodeName") else {"phase": "Pending"}


def _merged(old: Any, patch: Any) -> Any:
    """RFC 7396."""
    if not isinstance(patch, dict):
        return patch
    new = dict(old) if isinstance(old, dict) else {}
    for key, value in patch.items():
        if value is None:
            new.pop(key, None)
        else:
            new[key] = _merged(new.get(key), value)
    return new
