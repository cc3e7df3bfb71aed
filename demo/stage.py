"""The stage of the demo: a control plane with fake nodes, gangsched, and methods to apply, wait and
claim.

Invariant: every wait is for a watch event, with a deadline; a claim that does not come true in time
raises `FalseClaimError`, and so does any breach of the two promises (see `control_plane.checks`) in
the whole demo.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from control_plane import ControlPlane
from control_plane.api import Api, Object
from control_plane.checks import Checks, gang_of
from control_plane.daemon import Daemon
from control_plane.following import Following
from control_plane.objects import A100, GPU_PRODUCT, RUN_SECONDS, create_all, namespace, node
from control_plane.pods import refusal

from demo.cluster import gangsched_on
from demo.screen import Screen

NAMESPACE = "demo"
POD_GROUPS = f"/apis/scheduling.x-k8s.io/v1alpha1/namespaces/{NAMESPACE}/podgroups"
NODES, GPUS_PER_NODE, A100_NODES = 12, 8, 2
PATIENCE_S = 30.0
PLUGIN = Path(sys.executable).with_name("kubectl-gangsched")

T = TypeVar("T")


class FalseClaimError(Exception):
    """A claim of the demo did not hold; `str()` is one sentence."""


class Stage:
    """The cluster of the scenes. Gangs and pods are named without their namespace, which
    is `demo`.
    """

    def __init__(
        self, api: Api, kubeconfig: Path, pods: Following, checks: Checks, screen: Screen
    ) -> None:
        self.api = api
        self.kubeconfig = kubeconfig
        self.pods = pods
        self.checks = checks
        self.screen = screen
        self.say, self.quote = screen.say, screen.quote
        #: Claims proved so far.
        self.proved = 0

    # --- doing -----------------------------------------------------------------------------------

    def create(self, bodies: Iterable[Object], minima: Mapping[str, int] | None = None) -> float:
        """Create objects in parallel; returns the monotonic time after the last one. `minima`: gang
        → its minimum.
        """
        for gang, minimum in (minima or {}).items():
            self.checks.expect(f"{NAMESPACE}/{gang}", minimum)
        create_all(
            self.api,
            ({**body, "metadata": {**body["metadata"], "namespace": NAMESPACE}} for body in bodies),
        )
        return time.monotonic()

    def create_in_turn(self, bodies: Iterable[Object]) -> None:
        """Create objects one after the other, in the given order."""
        placed = (
            {**body, "metadata": {**body["metadata"], "namespace": NAMESPACE}} for body in bodies
        )
        create_all(self.api, placed, connections=1)

    def create_in_cluster(self, bodies: Iterable[Object]) -> None:
        """Create objects that have no namespace."""
        create_all(self.api, bodies)

    def devices_of(self, *claims: str) -> list[str]:
        """The devices that ResourceClaims have, in the order of their names."""
        path = f"/apis/resource.k8s.io/v1/namespaces/{NAMESPACE}/resourceclaims"
        found = (
            self.api.get(f"{path}/{claim}")["status"]["allocation"]["devices"]["results"]
            for claim in claims
        )
        return sorted(result["device"] for results in found for result in results)

    def delete_pod(self, name: str) -> float:
        """Delete one pod; returns the monotonic time of the request."""
        asked_s = time.monotonic()
        self.api.delete(f"/api/v1/namespaces/{NAMESPACE}/pods/{name}")
        return asked_s

    def finish(self, gang: str) -> float:
        """Have every pod of a gang succeed now; returns the monotonic time of the first request."""
        asked_s = time.monotonic()
        now = {"metadata": {"annotations": {RUN_SECONDS: "0"}}}
        for member in self.members(gang):
            self.api.patch(f"/api/v1/namespaces/{NAMESPACE}/pods/{member['metadata']['name']}", now)
        return asked_s

    def type_in(self, *words: str) -> None:
        """Print what `kubectl gangsched` prints; raises FalseClaimError if it fails."""
        argv = [str(PLUGIN), *words, "--namespace", NAMESPACE]
        environment = {
            **os.environ,
            "KUBECONFIG": str(self.kubeconfig),
            "NO_COLOR": "1",
            "COLUMNS": "110",
        }
        done = subprocess.run(
            argv, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
        if done.returncode:
            raise FalseClaimError(f"kubectl gangsched {words[0]} failed: {done.stderr.strip()}")
        self.screen.output(f"kubectl gangsched {' '.join(words)}", done.stdout)

    def clear(self, *gangs: str) -> None:
        """Delete gangs with their PodGroups and wait until every pod of them is gone."""
        # As the API server has them: the watch may not have shown the last ones yet.
        pods = self.api.list(f"/api/v1/namespaces/{NAMESPACE}/pods").items
        names = [
            pod["metadata"]["name"]
            for pod in pods
            if gang_of(pod) in {f"{NAMESPACE}/{gang}" for gang in gangs}
        ]
        with ThreadPoolExecutor(16) as pool:
            list(pool.map(self.delete_pod, names))
        for gang in gangs:
            self.api.delete(
                f"/apis/scheduling.x-k8s.io/v1alpha1/namespaces/{NAMESPACE}/podgroups/{gang}"
            )
        self.await_gone(*gangs)

    # --- seeing ----------------------------------------------------------------------------------

    def members(self, gang: str) -> list[Object]:
        """The pods of a gang as last seen."""
        return [
            pod for pod in self.pods.objects().values() if gang_of(pod) == f"{NAMESPACE}/{gang}"
        ]

    def bound(self, gang: str) -> int:
        """How many pods of a gang have a node."""
        return sum(1 for pod in self.members(gang) if pod["spec"].get("nodeName"))

    def started_s(self, gang: str) -> float:
        """When the gang's minimum was seen bound (monotonic)."""
        started_s = self.checks.started_s(f"{NAMESPACE}/{gang}")
        assert started_s is not None
        return started_s

    # --- claiming --------------------------------------------------------------------------------

    def claim(self, text: str, holds: bool) -> None:
        """Print a claim; raises FalseClaimError if it does not hold."""
        if not holds:
            raise FalseClaimError(f"This should be so, and is not: {text}")
        self.proved += 1
        self.screen.proved(text)

    def await_bound(self, gang: str, members: int) -> None:
        """Wait until that many pods of a gang have a node."""
        self._await(lambda _: self.bound(gang) == members, f"{members} pods of {gang} are bound")

    def await_gone(self, *gangs: str) -> None:
        """Wait until no pod of these gangs is left."""
        self._await(
            lambda _: not any(map(self.members, gangs)), f"the pods of {', '.join(gangs)} are gone"
        )

    def await_none_left(self, members: int, *gangs: str) -> None:
        """Wait until so many pods of these gangs together have a node."""
        self._await(
            lambda _: sum(map(self.bound, gangs)) == members,
            f"{members} pods of {' and '.join(gangs)} are bound",
        )

    def await_waiting(self, gang: str) -> str:
        """Wait until a pod of a gang is told why it waits; returns the message."""

        def told(_: object) -> str | None:
            said = (
                message
                for reason, message in map(refusal, self.members(gang))
                if reason == "Unschedulable"
            )
            return next(said, None)

        return self._await(told, f"a waiting pod of {gang} is told why")

    def await_one_of(self, gangs: Sequence[str], members: int) -> str:
        """Wait until one of the gangs has that many pods bound; returns its name."""

        def first(_: object) -> str | None:
            return next((gang for gang in gangs if self.bound(gang) == members), None)

        return self._await(first, f"one of {' and '.join(gangs)} has {members} pods bound")

    def await_pod(self, name: str) -> None:
        """Wait until a plain pod has a node."""

        def has_node(pods: Mapping[str, Object]) -> bool:
            return any(
                pod["metadata"]["name"] == name and pod["spec"].get("nodeName")
                for pod in pods.values()
            )

        self._await(has_node, f"pod {name} is bound")

    def await_told(self, gang: str, reason: str, members: int) -> str:
        """Wait until that many pods of a gang, none of them bound, have this reason; returns the
        message of one.
        """

        def told(_: object) -> str | None:
            pods = self.members(gang)
            said = [message for why, message in map(refusal, pods) if why == reason]
            return said[0] if len(said) == len(pods) == members else None

        return self._await(told, f"{members} waiting pods of {gang} are told {reason}")

    def await_facts(self, gang: str, reason: str, condition_type: str = "Scheduled") -> str:
        """Wait until a condition of the PodGroup has this reason; returns its message, with what is
        so now.
        """

        def holds(condition: Object) -> bool:
            return bool(condition["type"] == condition_type and condition["reason"] == reason)

        def facts(groups: Mapping[str, Object]) -> str | None:
            conditions = (
                condition
                for group in groups.values()
                if group["metadata"]["name"] == gang
                for condition in group.get("status", {}).get("conditions", ())
            )
            return next((str(each["message"]) for each in conditions if holds(each)), None)

        with Following(self.api, POD_GROUPS) as groups:
            return self._await(facts, f"PodGroup {gang} says {reason}", groups)

    def check_promises(self) -> None:
        """Raise FalseClaimError when a node was over-committed or a gang stayed partly bound at any
        moment so far.
        """
        self.checks.look(time.monotonic())
        if self.checks.violations:
            raise FalseClaimError(self.checks.violations[0])

    def _await(
        self,
        look: Callable[[Mapping[str, Object]], T | None],
        what: str,
        followed: Following | None = None,
    ) -> T:
        try:
            return (followed or self.pods).wait_for(look, within_s=PATIENCE_S)
        except TimeoutError as error:
            raise FalseClaimError(
                f"Within {PATIENCE_S:g} s it should be so, and is not: {what}."
            ) from error


@contextmanager
def staged(plane: ControlPlane, screen: Screen) -> Iterator[tuple[Stage, Daemon]]:
    """Prepare a running control plane (nodes, CRDs, RBAC, gangsched) and stop what was started."""
    api = Api.of(plane)
    labelled = {f"node-{number:02}": number > NODES - A100_NODES for number in range(1, NODES + 1)}
    fakes = [
        node(name, gpus=GPUS_PER_NODE, labels={GPU_PRODUCT: A100} if a100 else {})
        for name, a100 in labelled.items()
    ]
    create_all(api, [namespace(NAMESPACE), *fakes])
    checks = Checks()
    with (
        gangsched_on(plane) as daemon,
        Following(api, "/api/v1/nodes", on_change=checks.node_changed) as nodes,
        Following(api, "/api/v1/pods", on_change=checks.pod_changed) as pods,
        screen,
    ):
        screen.follow(nodes, pods)
        yield Stage(api, plane.kubeconfig, pods, checks, screen), daemon
