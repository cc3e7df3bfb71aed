"""Who else works on the cluster: kubelets, controllers of jobs, nodes and PodDisruptionBudgets,
users, a rival.

Invariant: each acts on the store some time after it could have seen why, as its likes do on a real
cluster. They make no mistakes of their own: what they do to the scheduler is drawn in `injector`.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from random import Random

from control_plane import objects as make

from tests.sim.api_server.server import BUDGETS, ENDED, ApiServer, covers, merge
from tests.sim.api_server.store import DELETED, Change, Object, copied, key_of
from tests.sim.timeline import Timeline
from tests.sim.workload import Job

Amounts = Counter[str]


def requests(pod: Object) -> Amounts:
    """What a pod asks for, in whole units; itself counts as one of "pods"."""
    amounts: Amounts = Counter(pods=1)
    for container in pod["spec"]["containers"]:
        for name, amount in container["resources"].get("requests", {}).items():
            if name != "memory":
                amounts[name] += int(amount)
    return amounts


def offered(node: Object) -> Amounts:
    """What a node offers, in whole units."""
    return Counter(
        {
            name: int(amount)
            for name, amount in node["status"]["allocatable"].items()
            if name != "memory"
        }
    )


def fits(asked: Amounts, room: Amounts) -> bool:
    """Whether all of it is there."""
    return all(amount <= room[name] for name, amount in asked.items())


def takes_room(pod: Object) -> bool:
    """Whether a pod is on a node and has not ended."""
    return bool(pod["spec"].get("nodeName")) and pod["status"].get("phase") not in ENDED


class Cluster:
    """Everybody but the scheduler."""

    def __init__(self, timeline: Timeline, server: ApiServer, rng: Random) -> None:
        self.timeline, self.server, self.store, self.rng = timeline, server, server.store, rng
        self.jobs: dict[str, Job] = {}
        self.rejects = 0.0
        """The share of pods that kubelets reject for no reason that shows."""
        self.rejected = 0
        self._admitted: dict[str, str] = {}
        self._job_of: dict[str, Job] = {}
        self.store.listeners.append(self._heard)

    # --- what others see -------------------------------------------------------------------------

    def room(self, node: str) -> Amounts:
        """What is free on a node, in truth."""
        body = self.store.get("nodes", node)
        free: Amounts = Counter(offered(body)) if body is not None else Counter()
        for pod in self.on(node):
            free.subtract(requests(pod))
        return free

    def on(self, node: str) -> list[Object]:
        """The pods that take room on a node."""
        return [
            pod
            for pod in self.store.all("pods")
            if pod["spec"].get("nodeName") == node and takes_room(pod)
        ]

    def job_of(self, pod: Object) -> Job | None:
        """The job that a pod is of."""
        return self.job_named(key_of(pod))

    def job_named(self, key: str) -> Job | None:
        """The job that the pod of this `namespace/name` is of."""
        return self._job_of.get(key)

    # --- users -----------------------------------------------------------------------------------

    def submit(self, job: Job) -> None:
        """Create a job's objects."""
        job.has_arrived = True
        self.jobs[job.key] = job
        if job.pod_group is not None:
            self.create_pod_group(job)
        for name, body in job.pods.items():
            self._job_of[f"{job.namespace}/{name}"] = job
            self.timeline.after(self.rng.uniform(0, 0.3), partial(self.create_pod, job, body))

    def create_pod_group(self, job: Job) -> None:
        """Create the PodGroup of a job, if it is not there."""
        assert job.pod_group is not None
        kind = f"podgroups.{job.pod_group['apiVersion'].partition('/')[0]}"
        if self.store.get(kind, job.key) is None:
            self.store.create(kind, job.pod_group)

    def create_pod(self, job: Job, body: Object) -> None:
        """Create a pod of a job, if it is wanted and not there."""
        if job.is_over or self.store.get("pods", key_of(body)) is not None:
            return
        self.store.create("pods", admitted(body))

    def finish(self, job: Job) -> None:
        """Delete a job for good."""
        job.is_over = True
        for body in job.pods.values():
            self.server.delete_pod(key_of(body), grace_s=0)
        if job.pod_group is not None:
            kind = f"podgroups.{job.pod_group['apiVersion'].partition('/')[0]}"
            if self.store.get(kind, job.key) is not None:
                self.store.remove(kind, job.key)

    # --- controllers and kubelets ----------------------------------------------------------------

    def _heard(self, change: Change) -> None:
        if change.resource == "pods":
            self._pod(change)
        elif change.resource == "nodes" and change.type == DELETED:
            self.timeline.after(self.rng.uniform(0.5, 5), partial(self._collect, change.key))

    def _pod(self, change: Change) -> None:
        pod, key = change.body, change.key
        uid = pod["metadata"]["uid"]
        job = self._job_of.get(key)
        if change.type == DELETED:
            self._admitted.pop(uid, None)
            if job is not None and job.recreates:
                body = job.pods[pod["metadata"]["name"]]
                self.timeline.after(self.rng.uniform(0.01, 2), partial(self.create_pod, job, body))
        elif pod["metadata"].get("deletionTimestamp"):
            grace_s = pod["spec"].get("terminationGracePeriodSeconds", 0)
            self.timeline.after(
                self.rng.uniform(0.02, 0.05 + grace_s), partial(self._remove, key, uid)
            )
        elif pod["status"].get("phase") == "Failed" and job is not None and job.recreates:
            self.timeline.after(self.rng.uniform(0.1, 2), partial(self._remove, key, uid))
        elif (
            pod["spec"].get("nodeName")
            and uid not in self._admitted
            and pod["status"].get("phase") == "Pending"
        ):
            self._admitted[uid] = "asked"
            self.timeline.after(self.rng.uniform(0.01, 0.8), partial(self._admit, key, uid))
        if self.store.all(BUDGETS):
            self.timeline.after(self.rng.uniform(0.02, 0.5), self._count_budgets)

    def _live(self, key: str, uid: str) -> Object | None:
        pod = self.store.get("pods", key)
        return pod if pod is not None and pod["metadata"]["uid"] == uid else None

    def _admit(self, key: str, uid: str) -> None:
        pod = self._live(key, uid)
        if (
            pod is None
            or pod["metadata"].get("deletionTimestamp")
            or pod["status"].get("phase") in ENDED
        ):
            return
        node = self.store.get("nodes", pod["spec"]["nodeName"])
        if node is None:
            self._collect(pod["spec"]["nodeName"])
            return
        room: Amounts = Counter(offered(node))
        for other in self.on(pod["spec"]["nodeName"]):
            if self._admitted.get(other["metadata"]["uid"]) == "runs":
                room.subtract(requests(other))
        lacking = next((name for name, amount in requests(pod).items() if amount > room[name]), "")
        if not lacking and self.rng.random() < self.rejects:
            self.rejected += 1
            lacking = "chance"
        if lacking:
            reason = "UnexpectedAdmissionError" if lacking == "chance" else f"OutOf{lacking}"
            self._set(key, {"phase": "Failed", "reason": reason})
            return
        self._admitted[uid] = "runs"
        self._set(key, {"phase": "Running", "startTime": self.store.wall()})
        ends_s = pod["metadata"].get("annotations", {}).get(make.RUN_SECONDS)
        if ends_s:
            self.timeline.after(float(ends_s), partial(self._end, key, uid))

    def _end(self, key: str, uid: str) -> None:
        if self._live(key, uid) is not None:
            self._set(key, {"phase": "Succeeded"})

    def _set(self, key: str, state: Object) -> None:
        self.store.update("pods", key, lambda pod: merge(pod["status"], state, strategic=True))

    def _remove(self, key: str, uid: str) -> None:
        if self._live(key, uid) is not None:
            self.store.remove("pods", key)

    def _collect(self, node: str) -> None:
        """Delete the pods of a node that is gone (the garbage collector of pods)."""
        if self.store.get("nodes", node) is None:
            for pod in list(self.store.all("pods")):
                if pod["spec"].get("nodeName") == node:
                    self.store.remove("pods", key_of(pod))

    def _count_budgets(self) -> None:
        for budget in list(self.store.all(BUDGETS)):
            healthy = sum(
                covers(budget, pod)
                and pod["status"].get("phase") == "Running"
                and not pod["metadata"].get("deletionTimestamp")
                for pod in self.store.all("pods")
            )
            allowed = max(0, healthy - budget["spec"]["minAvailable"])
            if allowed != budget["status"]["disruptionsAllowed"]:
                self.store.update(BUDGETS, key_of(budget), partial(_allow, allowed))


def _allow(allowed: int, budget: Object) -> None:
    budget["status"]["disruptionsAllowed"] = allowed


def admitted(body: Object) -> Object:
    """A new pod after defaulting and admission."""
    pod: Object = copied(body)
    for container in pod["spec"]["containers"]:
        resources = container["resources"]
        resources["requests"] = {**resources.get("limits", {}), **resources.get("requests", {})}
    pod["status"] = {"phase": "Pending"}
    return pod
