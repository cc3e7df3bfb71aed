"""A fight for room: three priorities, more work than GPUs, and controllers that recreate evicted pods at once.

`python -m bench.fight [--minutes 10] [--load small|large] [--seed 1] [--only gangsched|kube-scheduler] [--out
FILE.json]` plays the same load twice, each time on a control plane of its own: as gangs with gangsched, and as plain
pods with kube-scheduler's own preemption.

Law: figures come from a watch of our own. A pod is evicted when it is being deleted and carries DisruptionTarget, which
both schedulers write. A gang is stopped when an eviction takes it below its minimum; plain pods are counted by the same
jobs. Kubelets are kwok's, no PodDisruptionBudget is in the way, and victims take 0 to 4 s to end.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, field
from pathlib import Path

from control_plane import ControlPlane
from control_plane import objects as make
from control_plane.api import Api, ApiError, Object
from control_plane.applying import apply_manifests
from control_plane.daemon import Daemon
from control_plane.following import Following

PODS = "/api/v1/pods"
NODES, GPUS = 8, 8
PRIORITIES = {"low": 10, "middle": 100, "high": 1000}
OURS, THEIRS = "gangsched", "kube-scheduler"
SCHEDULERS = {OURS: "gangsched", THEIRS: "default-scheduler"}
NOT_FOUND = 404


@dataclass(frozen=True, slots=True)
class Kind:
    """Jobs of one priority: one every `every_s`, of `members` pods of which `minimum` must run together."""

    priority: str
    every_s: float
    members: int
    minimum: int
    gpus: int
    run_s: float

    @property
    def offered_gpus(self) -> float:
        """GPUs that these jobs would use on average if all ran at once."""
        return self.members * self.gpus * self.run_s / self.every_s


LOW = Kind("low", 12.0, members=8, minimum=4, gpus=1, run_s=80.0)
LOADS = {
    "small": (
        LOW,
        Kind("middle", 18.0, members=3, minimum=3, gpus=4, run_s=40.0),
        Kind("high", 30.0, members=2, minimum=2, gpus=8, run_s=30.0),
    ),
    "large": (
        LOW,
        Kind("middle", 24.0, members=6, minimum=6, gpus=4, run_s=40.0),
        Kind("high", 40.0, members=4, minimum=4, gpus=8, run_s=30.0),
    ),
}
"""small: every gang fits once it is its turn. large: gangs of up to half the cluster, which compete with their like."""


@dataclass(slots=True)
class Job:
    """A job under way. `bound` and `ended` are names of its pods; `whole_s` is since when it has its minimum."""

    name: str
    kind: Kind
    bodies: dict[str, Object]
    created_s: float = 0.0
    started_s: float | None = None
    whole_s: float | None = None
    bound: dict[str, float] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)
    counted_s: float = 0.0

    @property
    def gpus_in_vain(self) -> int:
        """GPUs that its pods use while they are fewer than the minimum."""
        return 0 if self.whole_s is not None else self.kind.gpus * len(self.bound.keys() - self.ended)


@dataclass(frozen=True, slots=True)
class Figures:
    """What one scheduler made of the load; times in seconds, work in GPU-seconds.

    `work_lost` is that of evicted pods alone; `gang_work_lost` that of all members of a stopped gang since it was
    whole; `work_in_vain` is what pods used while they were fewer than their gang's minimum. `high_start_s` has every
    job of the highest priority, one that did not start with the time it has waited.
    """

    scheduler: str
    load: str
    minutes: float
    jobs: int
    started: int
    finished: int
    evicted_pods: int
    evictions_per_started: float
    gangs_stopped: int
    work_done: float
    work_lost: float
    gang_work_lost: float
    work_in_vain: float
    high_jobs: int
    high_not_started: int
    high_start_median_s: float
    high_start_p90_s: float
    high_start_max_s: float


def arrivals(scheduler: str, load: str, minutes: float, seed: int) -> Iterator[tuple[float, Job, list[Object]]]:
    """(when it comes, the job, its objects), in order; the same for both schedulers."""
    rng, kinds = random.Random(seed), LOADS[load]
    times = sorted(
        (number * kind.every_s + rng.uniform(0.0, 0.5) * kind.every_s, kind.priority, number)
        for kind in kinds
        for number in range(int(minutes * 60 / kind.every_s))
    )
    by_priority = {kind.priority: kind for kind in kinds}
    for at_s, priority, number in times:
        kind, name = by_priority[priority], f"{priority}-{number}"
        pods = [_pod(f"{name}-{index}", name, kind, scheduler, rng) for index in range(kind.members)]
        group = [make.pod_group(name, min_member=kind.minimum)] if scheduler == OURS else []
        yield at_s, Job(name, kind, {pod["metadata"]["name"]: pod for pod in pods}), [*group, *pods]


def _pod(name: str, job: str, kind: Kind, scheduler: str, rng: random.Random) -> Object:
    grace_s = rng.randrange(5)
    return make.pod(
        name,
        gang=job if scheduler == OURS else "",
        gpus=kind.gpus,
        labels={"job": job},
        annotations={make.STOPS_SLOWLY: "true"} if grace_s else {},
        run_seconds=round(kind.run_s * rng.uniform(0.8, 1.2), 1),
        scheduler_name=SCHEDULERS[scheduler],
        spec={"priorityClassName": kind.priority, "terminationGracePeriodSeconds": grace_s},
    )


class Fight:
    """The controllers of all jobs, and what they see."""

    def __init__(self, api: Api, workers: ThreadPoolExecutor) -> None:
        self.jobs: dict[str, Job] = {}
        self.finished: list[Job] = []
        self.evicted: set[str] = set()
        self.stopped = 0
        self.work_done = self.work_lost = self.gang_work_lost = self.work_in_vain = 0.0
        self._api, self._workers = api, workers
        self._lock = threading.Lock()
        self._seen_bound: set[str] = set()

    def arrive(self, job: Job, bodies: Sequence[Object]) -> None:
        """Create a job."""
        with self._lock:
            job.created_s = time.monotonic()
            self.jobs[job.name] = job
        for body in bodies:
            self._api.post(self._api.path_of(body), body)

    def pod_changed(self, kind: str, pod: Object, seen_s: float) -> None:
        """Count what happened to a pod, and recreate it if it is gone before it has succeeded."""
        name, job_name = pod["metadata"]["name"], pod["metadata"].get("labels", {}).get("job", "")
        with self._lock:
            job = self.jobs.get(job_name)
            if job is None:
                return
            self._count(job, pod, seen_s)
            if kind == "DELETED" and name not in job.ended:
                job.bound.pop(name, None)
                self._workers.submit(self._post, job.bodies[name])
            if len(job.ended) == len(job.bodies):
                del self.jobs[job_name]
                self.finished.append(job)
                self._workers.submit(self._clean, job)

    def _count(self, job: Job, pod: Object, seen_s: float) -> None:
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        self.work_in_vain += job.gpus_in_vain * (seen_s - max(job.counted_s, job.created_s))
        job.counted_s = seen_s
        if pod["spec"].get("nodeName") and uid not in self._seen_bound:
            self._seen_bound.add(uid)
            job.bound[name] = seen_s
            if len(job.bound) >= job.kind.minimum and job.whole_s is None:
                job.whole_s = seen_s
                job.started_s = job.started_s or seen_s
        if pod["status"].get("phase") == "Succeeded" and name not in job.ended:
            job.ended.add(name)
            self.work_done += job.kind.gpus * float(pod["metadata"]["annotations"][make.RUN_SECONDS])
        conditions = pod["status"].get("conditions") or ()
        is_target = any(each["type"] == "DisruptionTarget" and each["status"] == "True" for each in conditions)
        if is_target and "deletionTimestamp" in pod["metadata"] and uid not in self.evicted and name not in job.ended:
            self.evicted.add(uid)
            self._lose(job, name, seen_s)

    def _lose(self, job: Job, name: str, seen_s: float) -> None:
        """A pod of the job is evicted."""
        since_s = job.bound.pop(name, seen_s)
        self.work_lost += job.kind.gpus * (seen_s - since_s)
        if job.whole_s is not None and len(job.bound) < job.kind.minimum:
            self.stopped += 1
            self.gang_work_lost += job.kind.gpus * (len(job.bound) + 1) * (seen_s - job.whole_s)
            job.whole_s = None

    def figures(self, scheduler: str, load: str, minutes: float) -> Figures:
        """As of now."""
        now_s = time.monotonic()
        with self._lock:
            jobs = [*self.jobs.values(), *self.finished]
            started = sum(job.started_s is not None for job in jobs)
            high = [job for job in jobs if job.kind.priority == "high"]
            waits = sorted((job.started_s or now_s) - job.created_s for job in high)
            return Figures(
                scheduler,
                load,
                minutes,
                len(jobs),
                started,
                len(self.finished),
                len(self.evicted),
                round(len(self.evicted) / max(1, started), 2),
                self.stopped,
                round(self.work_done),
                round(self.work_lost),
                round(self.gang_work_lost),
                round(self.work_in_vain + sum(job.gpus_in_vain * (now_s - job.counted_s) for job in jobs)),
                len(high),
                sum(job.started_s is None for job in high),
                round(statistics.median(waits), 2),
                round(waits[min(len(waits) - 1, int(0.9 * len(waits)))], 2),
                round(waits[-1], 2),
            )

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
        plane = stack.enter_context(ControlPlane(kwok=True, scheduler=scheduler == THEIRS, for_load=True))
        api = stack.enter_context(closing(Api.of(plane)))
        apply_manifests(api)
        for name, value in PRIORITIES.items():
            body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
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


def main(arguments: Sequence[str] | None = None) -> int:
    """Play, print and write; exit code 1 unless ours evicts fewer pods and stops fewer gangs."""
    parser = argparse.ArgumentParser(prog="bench.fight", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--load", choices=tuple(LOADS), default="small")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=(OURS, THEIRS))
    parser.add_argument("--out", type=Path)
    given = parser.parse_args(arguments)
    offered = sum(kind.offered_gpus for kind in LOADS[given.load])
    print(f"{offered:.0f} GPUs asked for on average, {NODES * GPUS} there are; seed {given.seed}")
    contenders = (given.only,) if given.only else (OURS, THEIRS)
    found = [play(each, given.load, given.minutes, given.seed) for each in contenders]
    for name in Figures.__dataclass_fields__:
        print(f"{name:24}" + "".join(f"{getattr(each, name)!s:>16}" for each in found))
    if given.out is not None:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(json.dumps([asdict(each) for each in found], indent=1) + "\n")
    if len(found) == 1:
        return 0
    ours, theirs = found
    better = ours.evicted_pods < theirs.evicted_pods and ours.gangs_stopped < theirs.gangs_stopped
    return 0 if better else 1


if __name__ == "__main__":
    raise SystemExit(main())
