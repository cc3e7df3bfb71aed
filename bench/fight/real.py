"""The load on a control plane with kwok, under gangsched or under kube-scheduler.

Invariant: figures come from a watch of our own. A pod is evicted when it is being deleted and
carries DisruptionTarget, which both schedulers write. Kubelets are kwok's, no PodDisruptionBudget
is in the way, and victims take 0 to 4 s to end.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing

from control_plane import ControlPlane
from control_plane import objects as make
from control_plane.api import Api, ApiError, Object
from control_plane.applying import apply_manifests
from control_plane.daemon import Daemon
from control_plane.following import Following

from bench.fight.count import Count, Figures
from bench.fight.load import GPUS, NODES, OURS, PRIORITIES, THEIRS, Job, arrivals

PODS = "/api/v1/pods"
NOT_FOUND = 404


class Fight:
    """The controllers of all jobs, and what they see."""

    def __init__(self, api: Api, workers: ThreadPoolExecutor) -> None:
        self._jobs: dict[str, Job] = {}
        self._count = Count()
        self._api, self._workers = api, workers
        self._lock = threading.Lock()
        self._seen_bound: set[str] = set()
        self._seen_evicted: set[str] = set()

    def arrive(self, job: Job, bodies: Sequence[Object]) -> None:
        """Create a job."""
        with self._lock:
            self._count.arrived(job, time.monotonic())
            self._jobs[job.name] = job
        for body in bodies:
            self._api.post(self._api.path_of(body), body)

    def pod_changed(self, kind: str, pod: Object, seen_s: float) -> None:
        """Count what happened to a pod, and recreate it if it is gone before it has succeeded."""
        name, job_name = pod["metadata"]["name"], pod["metadata"].get("labels", {}).get("job", "")
        with self._lock:
            job = self._jobs.get(job_name)
            if job is None:
                return
            self._see(job, pod, max(seen_s, job.counted_s))
            if kind == "DELETED" and name not in job.ended:
                job.bound.pop(name, None)
                self._workers.submit(self._post, job.bodies[name])
            if job.is_done:
                del self._jobs[job_name]
                self._workers.submit(self._clean, job)

    def _see(self, job: Job, pod: Object, seen_s: float) -> None:
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        if pod["spec"].get("nodeName") and uid not in self._seen_bound:
            self._seen_bound.add(uid)
            self._count.bound(job, name, seen_s)
        if pod["status"].get("phase") == "Succeeded" and name not in job.ended:
            self._count.ended(job, name, seen_s)
        conditions = pod["status"].get("conditions") or ()
        is_target = any(
            each["type"] == "DisruptionTarget" and each["status"] == "True" for each in conditions
        )
        is_going = is_target and "deletionTimestamp" in pod["metadata"]
        if is_going and uid not in self._seen_evicted and name not in job.ended:
            self._seen_evicted.add(uid)
            self._count.evicted(job, name, seen_s)

    def figures(self, scheduler: str, load: str, minutes: float) -> Figures:
        """As of now."""
        with self._lock:
            return self._count.figures(scheduler, load, minutes, time.monotonic())

    def _post(self, body: Object) -> None:
        try:
            self._api.post(self._api.path_of(body), body)
        except ApiError as error:
            print(f"not recreated: {error}")

    def _clean(self, job: Job) -> None:
        for name in job.bodies:
            self._delete(f"/api/v1/namespaces/default/pods/{name}")
        self._delete(f"/apis/scheduling.x-k8s.io/v1alpha1/namespaces/default/podgroups/{job.name}")

    def _delete(self, path: str) -> None:
        try:
            self._api.delete(path)
        except ApiError as error:
            if error.status != NOT_FOUND:
                raise


def play(scheduler: str, load: str, minutes: float, seed: int) -> Figures:
    """The whole load on a control plane of its own."""
    with ExitStack() as stack:
        plane = stack.enter_context(
            ControlPlane(kwok=True, scheduler=scheduler == THEIRS, for_load=True)
        )
        api = stack.enter_context(closing(Api.of(plane)))
        apply_manifests(api)
        for name, value in PRIORITIES.items():
            body = {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": name},
            }
            api.post(api.path_of(body), {**body, "value": value})
        make.create_all(api, [make.node(f"n{index}", gpus=GPUS) for index in range(NODES)])
        daemon = stack.enter_context(Daemon(plane)) if scheduler == OURS else None
        fight = Fight(api, stack.enter_context(ThreadPoolExecutor(8)))
        stack.enter_context(Following(api, PODS, on_change=fight.pod_changed))
        began_s = time.monotonic()
        for at_s, job, bodies in arrivals(scheduler, load, minutes, seed):
            time.sleep(max(0.0, began_s + at_s - time.monotonic()))
            fight.arrive(job, bodies)
            if daemon is not None:
                daemon.check()
        time.sleep(max(0.0, began_s + 60 * minutes - time.monotonic()))
        return fight.figures(scheduler, load, minutes)
