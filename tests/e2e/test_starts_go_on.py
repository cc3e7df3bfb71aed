"""What is known of a start, of run times and of claims survives a kill at any moment (I6, H1, B7).

Real Jobs: the controller-manager creates and replaces the pods. kwok starts them, and the test ends
them as a kubelet would.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from control_plane import ControlPlane
from control_plane import objects as make
from control_plane.api import Api, Object
from control_plane.daemon import Daemon
from control_plane.following import Following

from tests.e2e.conftest import PODS, delete_all

pytestmark = pytest.mark.e2e

NAMESPACED = "/api/v1/namespaces/default"
JOBS = "/apis/batch/v1/jobs"
CLAIMS = "/api/v1/persistentvolumeclaims"
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
GROUPS = "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/default/podgroups"
SELECTED = "volume.kubernetes.io/selected-node"
RUN_TIME = "gangsched.dev/expected-runtime"
INDEX = "batch.kubernetes.io/job-completion-index"
WITHIN_S = 60.0
PLANE = {"kcm": True, "kwok": True}
MOMENTS = ("started", "succeeded", "removed", "lost", "replaced")
FAILS_AT = "lost"
"""In one case the last member fails, and its Job waits 10 s before it replaces it; in the others it
is deleted.
"""


@pytest.fixture
def api(plane: ControlPlane) -> Iterator[Api]:
    """An administrator's client with a class of volumes that nobody provisions."""
    api = Api.of(plane)
    waits = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "late"},
        "provisioner": "nobody.test",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    make.create_all(api, [waits])
    yield api
    groups = "/apis/scheduling.x-k8s.io/v1alpha1/podgroups"
    delete_all(api, JOBS, PODS, groups, CLAIMS, CLASSES, "/api/v1/nodes")
    api.close()


def indexed_job(name: str, width: int) -> list[Object]:
    """A PodGroup and an Indexed Job all of whose pods are needed."""
    template = make.pod("unused", gang=name, gpus=1, node_selector={"for": "jobs"})
    body: Object = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "completionMode": "Indexed",
            "parallelism": width,
            "completions": width,
            "template": {
                "metadata": {"labels": template["metadata"]["labels"]},
                "spec": template["spec"],
            },
        },
    }
    return [make.pod_group(name, min_member=width), body]


def claiming_pod() -> list[Object]:
    """A pod whose claim waits for its first consumer."""
    claim: Object = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "c", "namespace": "default"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "late",
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "c"}}
    spec = {"volumes": [volume]}
    return [claim, make.pod("claims", node_selector={"for": "claims"}, spec=spec)]


class Scene:
    """Two Jobs that lose members, a gang that waits for a node without a known end, and a claim
    whose node goes; each step happens to all of them.
    """

    def __init__(self, api: Api, pods: Following, *, fails: bool) -> None:
        self.api = api
        self.pods = pods
        self.fails = fails
        self.lost: set[str] = set()

    def started(self) -> None:
        """Everything runs or waits."""
        self.api_nodes("jobs", "busy", "claims")
        make.create_all(self.api, [*indexed_job("two", 2), *indexed_job("four", 4)])
        on_busy: dict[str, Any] = {"gpus": 8, "node_selector": {"for": "busy"}}
        make.create_all(self.api, make.gang("first", members=1, **on_busy))
        self.await_pods("first-", 1)
        make.create_all(self.api, make.gang("waits", members=1, **on_busy))
        make.create_all(self.api, claiming_pod())
        self.await_pods("two-", 2)
        self.await_pods("four-", 4)
        self.await_claim("claims")

    def succeeded(self) -> None:
        """All but the last index of each Job succeed."""
        for pod in self.of("two-", "four-"):
            if pod["metadata"]["labels"][INDEX] not in {"1" if _is_two(pod) else "3"}:
                self.end(pod, "Succeeded")

        self.await_pods("two-", 1, phase="Succeeded")
        self.await_pods("four-", 3, phase="Succeeded")

    def removed(self) -> None:
        """The pods of one Job that have succeeded are removed, and the node of the claim goes."""
        for pod in self.of("four-"):
            if pod["status"]["phase"] == "Succeeded":
                self.api.delete(f"{NAMESPACED}/pods/{pod['metadata']['name']}")

        def are_stored(status: Mapping[str, Any]) -> bool:
            gone = status.get("start", {}).get("gone", {})
            return bool(gone.get("succeeded") == 3)

        self.await_group("four", are_stored)
        self.api.delete("/api/v1/nodes/claims")
        make.create_all(self.api, [make.node("spare", labels={"for": "claims"})])

    def lose(self) -> None:
        """The last index of each Job is lost, and the pod on the busy node says how long it
        runs.
        """
        for pod in self.of("two-", "four-"):
            if pod["status"]["phase"] != "Running":
                continue

            self.lost.add(pod["metadata"]["uid"])
            if self.fails:
                self.end(pod, "Failed")
            else:
                self.api.delete(f"{NAMESPACED}/pods/{pod['metadata']['name']}")

        change = {"metadata": {"annotations": {RUN_TIME: "1h"}}}
        self.api.patch(f"{NAMESPACED}/pods/first-0", change)

    def replaced(self) -> None:
        """The Jobs have created other pods for these indexes."""

        def are_there(items: Mapping[str, Object]) -> bool:
            return len(self.replacements(items)) == 2

        self.pods.wait_for(are_there, within_s=WITHIN_S, what="the Jobs replace their pods")

    def check(self) -> None:
        """Everything goes on."""

        def are_bound(items: Mapping[str, Object]) -> bool:
            found = self.replacements(items)
            return len(found) == 2 and all(pod["spec"].get("nodeName") for pod in found)

        self.pods.wait_for(are_bound, within_s=WITHIN_S, what="the last indexes start again")
        for pod in self.replacements(self.pods.objects()):
            stamp = pod["metadata"]["annotations"]["gangsched.dev/permitted"]
            assert "/1 " in stamp, "it is the same start"

        self.await_group("waits", _has_reservation)
        self.await_claim("spare")

    # --- what it is made of ----------------------------------------------------------------------

    def api_nodes(self, *purposes: str) -> None:
        """A node for each purpose."""
        make.create_all(self.api, [make.node(name, labels={"for": name}) for name in purposes])

    def of(self, *prefixes: str) -> list[Object]:
        """The pods with names that begin so."""
        pods = self.pods.objects().values()
        return [pod for pod in pods if pod["metadata"]["name"].startswith(prefixes)]

    def replacements(self, items: Mapping[str, Object]) -> list[Object]:
        """The pods that were created for the lost indexes."""
        found: list[Object] = []
        for uid, pod in items.items():
            labels = pod["metadata"].get("labels", {})
            is_last = labels.get(INDEX) == ("1" if _is_two(pod) else "3")
            if is_last and uid not in self.lost:
                found.append(pod)

        return found

    def end(self, pod: Object, phase: str) -> None:
        """The kubelet says that a pod has ended."""
        path = f"{NAMESPACED}/pods/{pod['metadata']['name']}/status"
        self.api.patch(path, {"status": {"phase": phase}})

    def await_pods(self, prefix: str, number: int, *, phase: str = "Running") -> None:
        """Wait until so many pods of a prefix are in this phase."""

        def are_in_it(items: Mapping[str, Object]) -> bool:
            phases = [
                pod.get("status", {}).get("phase")
                for pod in items.values()
                if pod["metadata"]["name"].startswith(prefix)
            ]
            return phases.count(phase) == number

        self.pods.wait_for(are_in_it, within_s=WITHIN_S, what=f"{number} of {prefix}*: {phase}")

    def await_group(self, name: str, look: Any) -> None:
        """Wait until the status of a PodGroup satisfies `look`."""

        def told(items: Mapping[str, Object]) -> bool:
            return any(
                look(group.get("status", {}))
                for group in items.values()
                if group["metadata"]["name"] == name
            )

        with Following(self.api, GROUPS) as groups:
            groups.wait_for(told, within_s=WITHIN_S, what=f"the status of {name}")

    def await_claim(self, node: str) -> None:
        """Wait until a volume is requested on the node."""

        def asks(items: Mapping[str, Object]) -> bool:
            found = [
                claim["metadata"].get("annotations", {}).get(SELECTED) for claim in items.values()
            ]
            return found == [node]

        with Following(self.api, CLAIMS) as claims:
            claims.wait_for(asks, within_s=WITHIN_S, what=f"a volume is requested on {node}")


def _is_two(pod: Object) -> bool:
    return bool(pod["metadata"]["name"].startswith("two-"))


def _has_reservation(status: Mapping[str, Any]) -> bool:
    return any(
        each["type"] == "Reserved" and each["status"] == "True"
        for each in status.get("conditions", ())
    )


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_start_goes_on_after_a_kill(plane: ControlPlane, api: Api, moment: str) -> None:
    """I6, H1, H3, B7: kill -9 after each step; then the last indexes start at once, the gang that
    waits has its reservation, and the volume is requested on another node.
    """
    daemon = Daemon(plane)
    with Following(api, PODS) as pods, daemon:
        scene = Scene(api, pods, fails=moment == FAILS_AT)
        steps = (scene.started, scene.succeeded, scene.removed, scene.lose, scene.replaced)
        for name, step in zip(MOMENTS, steps, strict=True):
            step()
            if name == moment:
                daemon.kill()
                daemon.start()

        scene.check()
