"""The real form: many scenarios at once in one control plane with one daemon.

Invariant: a scenario sees and touches only its own namespaces and nodes. All information comes from
three watches shared by all; a change wakes only its scenario. Time is real, and nothing sleeps for
a fixed time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Any, Final

from control_plane import ControlPlane
from control_plane import objects as make
from control_plane.api import Api, Object
from control_plane.applying import ROOT, apply_manifests, apply_yaml
from control_plane.checks import Checks
from control_plane.daemon import Daemon
from control_plane.following import Following

from gangsched.model.owners import OWNER_KINDS
from tests import policies
from tests.e2e import definitions
from tests.scenarios.api_server import dialect_of
from tests.scenarios.objects import BUILT_IN, NEVER, PRIORITIES, SCENARIO, own, storage_class
from tests.scenarios.play import play
from tests.scenarios.table import Scenario
from tests.scenarios.view import View
from tests.tuned import command, split

#: The machine is slow and shared: what takes a moment in virtual time may take this much longer.
SLACK_S: Final = 45.0
#: "At once", with everybody's scenarios on two cores; far from the minute of the safety net.
AT_ONCE_S: Final = 20.0
#: How late a change may be seen, and how late a scheduler on a machine that is shared may be with a
#: start.
SEEN_WITHIN_S: Final = 5.0
LONGEST_WAIT_S: Final = 5.0
AVOID_S: Final = 12.0
"""How long a node is avoided: long enough to see what is said of it meanwhile."""
STREAMS: Final = 4
"""Streams of pods in one scenario."""
#: How soon a controller notices that a pod of its own is gone.
RECREATE_EVERY_S: Final = 0.05
PATHS: Final = (
    "/api/v1/pods",
    "/apis/scheduling.x-k8s.io/v1alpha1/podgroups",
    "/apis/scheduling.sigs.k8s.io/v1alpha1/podgroups",
    "/apis/scheduling.volcano.sh/v1beta1/podgroups",
    "/apis/scheduler.grove.io/v1alpha1/podgangs",
    "/apis/events.k8s.io/v1/events",
)


class Stage:
    """A running control plane and daemon on which scenarios are played."""

    def __init__(self, api: Api, daemon: Daemon) -> None:
        self.api, self.daemon = api, daemon
        self.checks = Checks()
        self.boards: dict[str, Board] = {}

    def heard(self, kind: str, body: Object, seen_s: float) -> None:
        """A change of a pod, PodGroup or Event, passed to the scenario of its namespace."""
        if "regarding" not in body and "containers" in body["spec"]:
            self.checks.pod_changed(kind, body, seen_s)
        namespace = body["metadata"]["namespace"]
        board = self.boards.get(namespace)
        if board is not None:
            board.heard(kind, body)


class Board:
    """What one scenario sees, and a way to wait for it."""

    def __init__(self) -> None:
        self.view = View(slack_s=SEEN_WITHIN_S)
        self._changed = threading.Condition()

    def heard(self, kind: str, body: Object) -> None:
        """Apply a change and wake the waiting thread."""
        with self._changed:
            if "regarding" in body:
                self.view.events.append(body)
            elif "containers" in body["spec"]:
                self.view.pod_changed(kind, body, time.time())
            else:
                self.view.pod_group_changed(kind, body)
            self._changed.notify_all()

    def until(self, look: Callable[[View], list[str]], *, within_s: float) -> None:
        """Wait until `look` has no complaints. Raises AssertionError with the last ones."""
        deadline_s = time.monotonic() + within_s
        with self._changed:
            while found := look(self.view):
                left_s = deadline_s - time.monotonic()
                if left_s <= 0:
                    raise AssertionError("; ".join(found))
                self._changed.wait(left_s)


class RealCluster:
    """A `play.Cluster`: one scenario's part of a `Stage`."""

    def __init__(self, stage: Stage, scenario: Scenario) -> None:
        self._stage, self._api = stage, stage.api
        self._board = Board()
        self._slug = scenario.slug
        #: Paths of the objects that declare gangs, by kind and key.
        self._groups: dict[tuple[str, str], str] = {}
        self._refuses = False
        self._namespaces: set[str] = set()
        #: Of owners of pods, by kind and key.
        self._uids: dict[tuple[str, str], str] = {}
        self._given: dict[str, Object] = {}
        self._recreated: list[str] = []
        self._closing = threading.Event()
        self._repeating: list[Future[None]] = []
        self._repeater = ThreadPoolExecutor(STREAMS)

    def create(self, bodies: list[Object]) -> None:
        """Wait until all have been seen, so that the next step means these pods too."""
        for body in bodies:
            namespace = body["metadata"].get("namespace")
            if namespace is not None:
                self._need(namespace)
            if dialect_of(body) or body["kind"] in OWNER_KINDS:
                self._groups[body["kind"], _key(body)] = (
                    f"{self._api.path_of(body)}/{body['metadata']['name']}"
                )
        if len(bodies) > 20:
            created = make.create_all(self._api, bodies, connections=8)
        else:
            created = [self._post(body) for body in bodies]
        for body in bodies:
            # no controller writes their status, nor anybody else
            if body["kind"] == "PodDisruptionBudget":
                self.patch(body["kind"], _key(body), {"status": body["status"]}, status=True)
        self._given |= {_key(body): body for body in bodies if body["kind"] == "Pod"}
        pods = {
            body["metadata"]["uid"]: body["metadata"]["name"]
            for body in created
            if body["kind"] == "Pod"
        }

        def unseen(view: View) -> list[str]:
            return [f"pod {pods[uid]} is not seen" for uid in pods.keys() - view.created]

        self._board.until(unseen, within_s=SLACK_S)

    def _post(self, given: Object) -> Object:
        if given["kind"] == "Namespace":  # which is there as soon as anything is in it
            name = given["metadata"]["name"]
            self._need(name)
            self._api.patch(f"/api/v1/namespaces/{name}", {"metadata": given["metadata"]})
            return given

        body = self._api.post(self._api.path_of(given), own(given, self._uids))
        self._uids[body["kind"], _key(body)] = body["metadata"]["uid"]
        return body

    def delete(self, kind: str, key: str) -> None:
        """Wait until the deletion has been seen, so that no later step counts the pod."""
        old = self._board.view.pods.get(key) if kind == "Pod" else None
        slowly = old is not None and make.STOPS_SLOWLY in old["metadata"].get("annotations", {})
        self._api.delete(self._path(kind, key), grace_s=None if slowly else 0)

        def lives(view: View) -> list[str]:
            now = view.pods.get(key)
            same = old and now and now["metadata"]["uid"] == old["metadata"]["uid"]
            return (
                [f"{key} lives on"]
                if same and now and "deletionTimestamp" not in now["metadata"]
                else []
            )

        self._board.until(lives, within_s=SLACK_S)

    def patch(self, kind: str, key: str, body: Object, *, status: bool = False) -> None:
        self._api.patch(self._path(kind, key) + ("/status" if status else ""), body)

    def until(self, look: Callable[[View], list[str]], *, within_s: float) -> None:
        self._stage.daemon.check()
        for done in [each for each in self._repeating if each.done()]:
            done.result()
        self._board.until(look, within_s=within_s + (SLACK_S if within_s else AT_ONCE_S))

    def seen(self) -> View:
        return self._board.view

    def refuse_binds(self, keys: list[str]) -> None:
        """By an admission policy; it takes a moment to start."""
        names = [key.partition("/")[2] for key in keys]
        bodies = policies.policy(
            self._slug,
            self._slug,
            [policies.rule("pods/binding", "CREATE")],
            f"!(request.name in {names})",
            "the server does not want it",
        )
        path = f"/apis/{policies.API_VERSION}/validatingadmissionpolicies/{self._slug}"
        # changed in place, so that who is refused before and after is so in between
        if keys and self._refuses:
            self._api.patch(path, {"spec": bodies[0]["spec"]})
        elif keys:
            for body in bodies:
                self._api.post(self._api.path_of(body), body)
            self._need(self._slug)
            policies.await_policy(self._api, self._slug)
        elif self._refuses:
            bindings = f"/apis/{policies.API_VERSION}/validatingadmissionpolicybindings"
            self._api.delete(f"{bindings}/{self._slug}")
            self._api.delete(path)
        self._refuses = bool(keys)

    def while_binding(self, deeds: dict[str, str]) -> None:
        raise AssertionError("nobody can step between a real scheduler and its server")

    def while_evicting(self, intruders: Mapping[str, Callable[[], None]]) -> None:
        raise AssertionError("nobody can step between a real scheduler and its server")

    def crash_after(self, writes: int) -> None:
        raise AssertionError("nobody counts what a real scheduler writes")

    def recreate(self, patterns: Sequence[str]) -> None:
        """In a thread of its own, as pods are seen to be gone."""
        self._recreated = list(patterns)
        if patterns:
            self.every(RECREATE_EVERY_S, self._recreate)

    def _recreate(self) -> bool:
        there = self._board.view.pods
        for key, body in list(self._given.items()):
            if key not in there and any(fnmatchcase(key, pattern) for pattern in self._recreated):
                self.create([body])
        return bool(self._recreated)

    def ago(self, seconds: float) -> str:
        return datetime.fromtimestamp(time.time() - seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def restart(self) -> None:
        self._stage.daemon.kill()
        self._stage.daemon.start()

    def wait(self, seconds: float) -> None:
        """Only for so long as makes times of creation differ, which are whole seconds."""
        assert seconds <= LONGEST_WAIT_S, "real time is not waited for"
        self._closing.wait(seconds)

    def every(self, seconds: float, deed: Callable[[], bool]) -> None:
        """In a thread of its own, which `until` and `close` hear of if it fails."""

        def repeat() -> None:
            while not self._closing.is_set() and deed():
                self._closing.wait(seconds)

        self._repeating.append(self._repeater.submit(repeat))

    def close(self) -> None:
        """Leave no pod, PodGroup, node or policy behind."""
        self._closing.set()
        self._repeater.shutdown()
        self.refuse_binds([])
        for namespace in self._namespaces:
            root = f"/api/v1/namespaces/{namespace}/pods"
            for pod in self._api.list(root).items:
                path = f"{root}/{pod['metadata']['name']}"
                if pod["metadata"].get("finalizers"):
                    self._api.patch(path, {"metadata": {"finalizers": None}})
                self._api.delete(path)
            budgets = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"
            for budget in self._api.list(budgets).items:
                self._api.delete(f"{budgets}/{budget['metadata']['name']}")
        for path in self._groups.values():
            self._api.delete(path)
        for node in self._api.list("/api/v1/nodes", labelSelector=f"{SCENARIO}={self._slug}").items:
            self._api.delete(f"/api/v1/nodes/{node['metadata']['name']}")
        for namespace in self._namespaces:
            self._stage.boards.pop(namespace, None)

    def _need(self, namespace: str) -> None:
        if namespace in self._namespaces:
            return
        self._namespaces.add(namespace)
        self._stage.boards[namespace] = self._board
        self._api.post("/api/v1/namespaces", make.namespace(namespace))

    def _path(self, kind: str, key: str) -> str:
        if kind == "Node":
            return f"/api/v1/nodes/{key}"
        namespace, _, name = key.partition("/")
        if kind == "Namespace":
            return f"/api/v1/namespaces/{key}"
        if kind == "Pod":
            return f"/api/v1/namespaces/{namespace}/pods/{name}"
        if kind == "PersistentVolumeClaim":
            return f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}"
        if kind == "PodDisruptionBudget":
            return f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets/{name}"
        return self._groups[kind, key]


def _key(body: Object) -> str:
    return f"{body['metadata'].get('namespace', '')}/{body['metadata']['name']}"


def daemon(plane: ControlPlane, given: Mapping[str, Any]) -> Daemon:
    """The daemon with these settings and constants."""
    settings, constants = split({"avoid_s": AVOID_S, **given})
    environment = {f"GANGSCHED_{name.upper()}": f"{value}" for name, value in settings.items()}
    return Daemon(plane, environment=environment, command=command(constants))


@contextmanager
def stage(settings: Mapping[str, Any] | None = None) -> Iterator[Stage]:
    """A control plane with kwok, our CRDs, the daemon with its own rights, and the watches; some
    settings differ.
    """
    with ExitStack() as stack:
        plane = stack.enter_context(ControlPlane(kwok=True, for_load=True))
        api = Api.of(plane)
        apply_manifests(api, all_victims=(settings or {}).get("preemption") == "all")
        for manifest in sorted((ROOT / "manifests").glob("rbac-owners*.yaml")):
            apply_yaml(api, manifest)
        for body in (definitions.VOLCANO, definitions.GROVE, *definitions.OWNERS):
            definitions.install(api, body)
        for name, value in PRIORITIES.items():
            body = {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": name},
            }
            policy = {"preemptionPolicy": "Never"} if name in NEVER else {}
            if name not in BUILT_IN:
                api.post(api.path_of(body), {**body, "value": value, **policy})
        api.post("/apis/storage.k8s.io/v1/storageclasses", storage_class())
        built = Stage(api, stack.enter_context(daemon(plane, settings or {})))
        for path in PATHS:
            stack.enter_context(Following(api, path, on_change=built.heard))
        stack.enter_context(Following(api, "/api/v1/nodes", on_change=built.checks.node_changed))
        yield built
        assert not built.checks.violations, built.checks.violations


@contextmanager
def playing(
    scenarios: Sequence[Scenario], built: Stage, *, width: int
) -> Iterator[dict[str, Future[float]]]:
    """By name a future of each: its seconds, or what it failed of. Those that restart the daemon
    come last, alone.
    """
    with ThreadPoolExecutor(width) as pool, ThreadPoolExecutor(1) as alone:
        futures = {
            each.name: pool.submit(_played, each, built) for each in scenarios if not each.restarts
        }
        others = list(futures.values())
        for each in scenarios:
            if each.restarts:
                futures[each.name] = alone.submit(_played_after, others, each, built)
        yield futures


def _played(scenario: Scenario, built: Stage) -> float:
    started_s = time.monotonic()
    cluster = RealCluster(built, scenario)
    try:
        play(scenario, cluster)
    finally:
        cluster.close()
    return time.monotonic() - started_s


def _played_after(others: list[Future[float]], scenario: Scenario, built: Stage) -> float:
    """A restart would disturb the others."""
    for other in others:
        other.exception()
    return _played(scenario, built)
