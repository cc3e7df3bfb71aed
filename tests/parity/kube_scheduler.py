"""The real kube-scheduler, asked one pod at a time.

Invariant: a probe is a pod for the default scheduler; the answer is its PodScheduled condition. The
scheduler sees nodes and pods by its own watches, a moment after we wrote them: an unexpected answer
must be asked for again (`compare`).
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from control_plane.api import STRATEGIC_PATCH, Api
from control_plane.plane import ControlPlane

from tests.parity.generate import Case
from tests.parity.pods import NAMESPACES, RUNTIME_CLASS, Object
from tests.parity.volumes import CLASSES

#: As a control plane without a controller manager has it, and claims and volumes go when they are
#: deleted.
ADMISSION_OFF = ("TaintNodesByCondition", "ServiceAccount", "StorageObjectInUseProtection")
PODS = "/api/v1/pods"
NODES = "/api/v1/nodes"
ANSWER_S = 30.0
T = TypeVar("T")


@dataclass(frozen=True)
class Answer:
    """The pod's node ("" for none) and, for none, the message."""

    node: str
    message: str = ""


class KubeScheduler:
    """One control plane with kube-scheduler; `build` and `clear` a case, `ask` about a probe."""

    def __init__(self, plane: ControlPlane) -> None:
        self.api = Api.of(plane)
        self._pool = ThreadPoolExecutor(8)
        for name, labels in NAMESPACES.items():
            body = {
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {"name": name, "labels": labels},
            }
            self.api.post("/api/v1/namespaces", body)
        for storage_class in CLASSES:
            self.api.post(self.api.path_of(storage_class), storage_class)
        heavy = {
            "metadata": {"name": RUNTIME_CLASS},
            "handler": "heavy",
            "overhead": {"podFixed": {"cpu": "250m"}},
        }
        self.api.post("/apis/node.k8s.io/v1/runtimeclasses", heavy)
        self._answers: queue.Queue[tuple[str, Answer]] = queue.Queue()
        self._watch = self.api.watch(PODS, self.api.list(PODS).resource_version)
        threading.Thread(target=self._listen, daemon=True).start()

    def close(self) -> None:
        """Stop listening."""
        self._watch.close()
        self._pool.shutdown()

    def build(self, case: Case) -> None:
        """Create the storage, the nodes and the bound pods of a case, in the states they should be
        in.
        """
        self._each(lambda item: self.api.post(self.api.path_of(item), item), case.storage.objects)
        for claim in _claims(case, case.storage.lost):
            self.api.patch(f"{self._path_of(claim)}/status", {"status": {"phase": "Lost"}})
        for claim in _claims(case, case.storage.leaving):
            self.api.delete(self._path_of(claim))
        self._each(lambda node: self.api.post(NODES, node), case.nodes)
        self._each(lambda pod: self.api.post(_collection(pod), pod), case.bound)
        for pod in case.bound:
            name, path = pod["metadata"]["name"], f"{_path(pod)}/status"
            if name in case.ended:
                self.api.patch(path, {"status": {"phase": "Succeeded"}})
            elif name in case.leaving:
                self.api.delete(_path(pod))
            elif name in case.resized:
                self.api.patch(path, {"status": {"phase": "Running", **case.resized[name]}})

    def clear(self, case: Case, asked: Iterable[Object]) -> None:
        """Delete everything of a case, one object at a time: that is faster than a collection."""
        for pod in case.bound:
            if pod["metadata"]["name"] in case.leaving:
                self.api.patch(_path(pod), {"metadata": {"finalizers": None}})
        self._each(lambda pod: self.api.delete(_path(pod)), [*case.bound, *asked])
        self._each(lambda node: self.api.delete(f"{NODES}/{node['metadata']['name']}"), case.nodes)
        for claim in _claims(case, case.storage.leaving):
            self.api.patch(self._path_of(claim), {"metadata": {"finalizers": None}})
        self._each(lambda item: self.api.delete(self._path_of(item)), case.storage.objects)

    def create(self, probe: Object, *, dry_run: bool = False) -> Object:
        """Create a probe, or with a dry run only see what would be stored; not bound yet."""
        return self.api.post(_collection(probe) + ("?dryRun=All" if dry_run else ""), probe)

    def answer(self, stored: Object) -> Answer:
        """The answer about a created probe."""
        uid = stored["metadata"]["uid"]
        while True:
            answered, answer = self._answers.get(timeout=ANSWER_S)
            if answered == uid:
                return answer

    def ask(self, probe: Object) -> Answer:
        """Create a probe and wait for the answer."""
        return self.answer(self.create(probe))

    def delete(self, pod: Object) -> None:
        """Delete a pod."""
        self.api.delete(_path(pod))

    def close_nodes(self, case: Case, but: str) -> None:
        """Leave no room on any node but one. Only resources change, so that no other filter is
        affected.
        """
        self._set_pods([(node, "0") for node in case.nodes if node["metadata"]["name"] != but])

    def open_nodes(self, case: Case, but: str) -> None:
        """Undo `close_nodes`."""
        others = [node for node in case.nodes if node["metadata"]["name"] != but]
        self._set_pods([(node, node["status"]["allocatable"].get("pods")) for node in others])

    def _path_of(self, item: Object) -> str:
        metadata = item["metadata"]
        folder = self.api.path_of(item, namespace=metadata.get("namespace", ""))
        return f"{folder}/{metadata['name']}"

    def _set_pods(self, changes: Sequence[tuple[Object, str | None]]) -> None:
        def change(pair: tuple[Object, str | None]) -> None:
            path = f"{NODES}/{pair[0]['metadata']['name']}/status"
            self.api.patch(
                path, {"status": {"allocatable": {"pods": pair[1]}}}, content_type=STRATEGIC_PATCH
            )

        self._each(change, changes)

    def _each(self, do: Callable[[T], Any], items: Iterable[T]) -> None:
        list(self._pool.map(do, items))

    def _listen(self) -> None:
        for kind, pod in self._watch:
            if kind == "DELETED":
                continue
            for condition in pod.get("status", {}).get("conditions") or ():
                if condition["type"] == "PodScheduled" and (
                    pod["spec"].get("nodeName") or condition.get("message")
                ):
                    answer = Answer(pod["spec"].get("nodeName", ""), condition.get("message", ""))
                    self._answers.put((pod["metadata"]["uid"], answer))


def _claims(case: Case, names: set[str]) -> list[Object]:
    claims = (item for item in case.storage.objects if item["kind"] == "PersistentVolumeClaim")
    return [claim for claim in claims if claim["metadata"]["name"] in names]


def _collection(pod: Object) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods"


def _path(pod: Object) -> str:
    return f"{_collection(pod)}/{pod['metadata']['name']}"
