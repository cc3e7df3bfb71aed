"""A daemon behind a fault proxy on a real control plane, and everything that is seen of its gangs.

    with Site(plane) as site:
        site.create(objects)
        site.wait_until(lambda: site.is_whole(gang), within_s=30.0, what="the gang")

Invariant: it judges by what the API server says: no node over-committed, no pod bound twice or
moved, no gang between none and its minimum at rest. It takes everything away that was created
through it.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from http import HTTPStatus
from types import TracebackType
from typing import Self

from control_plane import ControlPlane
from control_plane.api import Api, Object
from control_plane.checks import Checks
from control_plane.daemon import Daemon
from control_plane.following import Following
from control_plane.pods import nodes_of, refusal

from tests.faults.patience import create_patiently
from tests.faults.proxy import FaultProxy
from tests.faults.rules import Rule

POD_GROUPS = "/apis/scheduling.x-k8s.io/v1alpha1/podgroups"
API_GROUPS = 2
"""How many API groups with PodGroups are served."""
GANG_STARTED = {"Scheduled", "Running"}
CLEAN_WITHIN_S, READY_WITHIN_S = 60.0, 120.0
PAUSE_S = 0.01


class Site:
    """See the module. `daemon` is not started yet; whoever kills it starts it again."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane
        self.api = Api.of(plane)
        self.proxy = FaultProxy(plane)
        self.daemon = Daemon(plane, url="")
        #: How long a gang may be half bound depends on the fault; each test says it itself.
        self.checks = Checks(limit_s=float("inf"))
        self._created: list[Object] = []
        self._expected: dict[str, int] = {}
        self._started_at = 0
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        enter = self._stack.enter_context
        enter(self.proxy)
        self.daemon = Daemon(self.plane, url=self.proxy.url, ready_timeout_s=READY_WITHIN_S)
        enter(Following(self.api, "/api/v1/nodes", on_change=self.checks.node_changed))
        self.pods = enter(Following(self.api, "/api/v1/pods", on_change=self.checks.pod_changed))
        self.pod_groups = enter(Following(self.api, POD_GROUPS))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.daemon.kill()
        self._stack.close()
        self.api.close()

    # --- what is done ----------------------------------------------------------------------------

    def expect(self, gangs: dict[str, int]) -> None:
        """Gangs that are about to be created, with their minimum."""
        self._expected |= gangs
        for gang, minimum in gangs.items():
            self.checks.expect(gang, minimum)

    def create(self, bodies: Sequence[Object]) -> None:
        """Create objects, also while the API server comes and goes."""
        self._created += bodies
        create_patiently(self.api, bodies)

    def start(self) -> None:
        """Start the daemon; a process that was killed before is replaced."""
        self.daemon.kill()
        self._started_at = len(self.proxy.asked)
        self.daemon.start()

    def restart_component(self, name: str) -> None:
        """Bring back a component that was killed."""
        self.plane.stop_component(name)
        self.plane.start_component(name)

    def clean(self) -> None:
        """Let every request through again, take away what was created, and wait until it
        is gone.
        """
        self.proxy.rules.clear()
        for body in reversed(self._created):
            self.api.delete(f"{self.api.path_of(body)}/{body['metadata']['name']}")
        self._created.clear()
        self._expected.clear()
        self.pods.wait_for(lambda left: not left, within_s=CLEAN_WITHIN_S, what="the pods to go")

    # --- what is seen ----------------------------------------------------------------------------

    def wait_until(self, holds: Callable[[], object], *, within_s: float, what: str) -> None:
        """Look until it holds. Raises TimeoutError with where every pod is, or with the log of a
        daemon that died.
        """
        deadline_s = time.monotonic() + within_s
        while not holds():
            if time.monotonic() > deadline_s:
                self.daemon.check()
                raise TimeoutError("\n".join([f"not within {within_s:g} s: {what}", *self.told()]))
            time.sleep(PAUSE_S)

    def is_whole(self, gang: str) -> bool:
        """Whether its minimum is bound."""
        return self.checks.started_s(gang) is not None

    def is_told(self, pod_group: str) -> bool:
        """Whether a PodGroup says that its gang has started."""
        for each in self.pod_groups.objects().values():
            if f"{each['metadata']['namespace']}/{each['metadata']['name']}" == pod_group:
                return each.get("status", {}).get("phase") in GANG_STARTED
        return False

    def are_refused(self, bodies: Sequence[Object]) -> bool:
        """Whether each of these pods says why it waits."""
        names = {body["metadata"]["name"] for body in bodies if body["kind"] == "Pod"}
        found = [pod for pod in self.pods.objects().values() if pod["metadata"]["name"] in names]
        return len(found) == len(names) and all(refusal(pod)[0] for pod in found)

    def quiet_for(self, pause_s: float, within_s: float = 30.0) -> None:
        """Wait until the daemon has asked nothing for so long."""
        asked, since_s, deadline_s = -1, 0.0, time.monotonic() + within_s
        while True:
            if asked != len(self.proxy.asked):
                asked, since_s = len(self.proxy.asked), time.monotonic()
            if time.monotonic() - since_s > pause_s or time.monotonic() > deadline_s:
                return
            time.sleep(PAUSE_S)

    def hears_pod_groups(self) -> bool:
        """Whether the daemon watches both kinds of PodGroups; a moment after its start it only
        lists them.
        """
        asked = self.proxy.asked[self._started_at :]
        return (
            sum(each.verb == "watch" and each.resource == "podgroups" for each in asked)
            >= API_GROUPS
        )

    def knows(self, name: str) -> bool:
        """Whether the daemon has heard of this PodGroup of the default namespace."""
        status, told = self.daemon.http(f"/debug/gangs/default/{name}", port=self.daemon.debug_port)
        return status == HTTPStatus.OK and json.loads(told)["podGroup"] is not None

    def have_struck(self, rules: Sequence[Rule]) -> bool:
        """Whether each rule has given a fault."""
        return all(rule.struck for rule in rules)

    def bound_now(self, prefix: str) -> int:
        """How many pods whose names start so are on a node."""
        return len(nodes_of(self.pods.objects(), prefix))

    def lists(self) -> int:
        """How often the daemon has listed pods."""
        return sum(
            asked.verb == "list" and asked.resource == "pods" for asked in list(self.proxy.asked)
        )

    def told(self) -> list[str]:
        """One line for each pod: where it is and what it says."""
        return [
            f"{pod['metadata']['name']} on {pod['spec'].get('nodeName')}: {' '.join(refusal(pod))}"
            for pod in self.pods.objects().values()
        ]

    def wrongs(self) -> list[str]:
        """What must not be: over-commits, pods bound twice, half gangs, and a state that does not
        agree with itself.
        """
        binds = Counter(
            f"{asked.namespace}/{asked.name}"
            for asked, status in list(self.proxy.answered)
            if asked.subresource == "binding" and status < 300
        )
        twice = [f"{pod} was bound {times} times" for pod, times in binds.items() if times > 1]
        half = [
            f"{gang} has {self.checks.bound(gang)} of {minimum}"
            for gang, minimum in self._expected.items()
            if 0 < self.checks.bound(gang) < minimum
        ]
        return [*self.checks.violations, *twice, *half, *self.daemon.complaints()]
