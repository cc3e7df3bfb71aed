"""Jobs played on a running system: created when they arrive, followed by a watch, deleted once they
have finished.

Invariant: only the scheduler decides when a job starts; this module creates and deletes, and the
fake kubelets end the pods. All times are those of watch events. A stall ends the replay with a list
of unfinished jobs.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from control_plane.api import Api, Object
from control_plane.checks import Checks, gang_of
from control_plane.objects import pod, pod_group

from bench.jobs import Job

NAMESPACE = "trace"
CONNECTIONS = 12
TICK_S, PROGRESS_EVERY_S = 0.1, 5.0


@dataclass
class Played:
    """What happened to one job; times are monotonic seconds, None if that did not happen."""

    job: Job
    fits: bool
    created_s: float | None = None
    finished_s: float | None = None
    ended_pods: set[str] = field(default_factory=set)


class Replay:
    """One run. A watch of all pods calls `pod_changed`; `run` does the rest."""

    def __init__(
        self,
        api: Api,
        checks: Checks,
        jobs: Sequence[tuple[Job, bool]],
        *,
        say: Callable[[str], None],
    ) -> None:
        self._api, self._checks, self._say = api, checks, say
        self.played = {f"{NAMESPACE}/{job.name}": Played(job, fits) for job, fits in jobs}
        self.begun_s = self.ended_s = 0.0
        #: Sentences about what else went wrong.
        self.faults: list[str] = []
        self._lock = threading.Lock()
        self._finished: queue.SimpleQueue[Played] = queue.SimpleQueue()

    # --- what the watch tells --------------------------------------------------------------------

    def pod_changed(self, kind: str, body: Object, seen_s: float) -> None:
        """A change of a pod: fits `Following(on_change=…)`."""
        self._checks.pod_changed(kind, body, seen_s)
        played = self.played.get(gang_of(body))
        phase = body["status"].get("phase")
        if played is None or phase not in {"Succeeded", "Failed"}:
            return
        with self._lock:
            if phase == "Failed":
                self.faults.append(
                    f"Pod {body['metadata']['name']} failed: {body['status'].get('reason')}."
                )
            played.ended_pods.add(body["metadata"]["uid"])
            if len(played.ended_pods) == len(played.job.pods) and played.finished_s is None:
                played.finished_s = seen_s
                self._finished.put(played)

    # --- the run ---------------------------------------------------------------------------------

    def run(self, *, stall_s: float, limit_s: float, alive: Callable[[], None]) -> None:
        """Play all jobs until those that can fit have finished; `alive` may raise when the
        scheduler has died.

        Stops with a fault after `stall_s` without any job starting or finishing, or after `limit_s`
        in all.
        """
        arriving = sorted(
            self.played.values(), key=lambda played: played.job.arrival_s, reverse=True
        )
        requests: list[Future[None]] = []
        self.begun_s = told_s = moved_s = time.monotonic()
        before = self._counts()
        with ThreadPoolExecutor(CONNECTIONS) as pool:
            while True:
                now_s = time.monotonic()
                while arriving and arriving[-1].job.arrival_s <= now_s - self.begun_s:
                    requests.append(pool.submit(self._create, arriving.pop()))
                self._delete_finished(pool, requests)
                self._checks.look(now_s)
                counts = self._counts()
                moved_s, before = (now_s, counts) if counts != before else (moved_s, before)
                if now_s - told_s >= PROGRESS_EVERY_S:
                    told_s = now_s
                    self._say(self._progress(now_s, counts))
                    alive()
                if self._done(arriving, now_s, moved_s, stall_s, limit_s):
                    break
            self.ended_s = time.monotonic()
            self._delete_finished(pool, requests)
        for request in requests:
            request.result()  # raises what a creation or deletion raised

    def _done(
        self,
        arriving: Sequence[Played],
        now_s: float,
        moved_s: float,
        stall_s: float,
        limit_s: float,
    ) -> bool:
        unfinished = [
            played for played in self.played.values() if played.fits and played.finished_s is None
        ]
        if not unfinished:
            return True
        stalled = not arriving and now_s - moved_s > stall_s
        if stalled or now_s - self.begun_s > limit_s:
            why = (
                f"nothing has moved for {stall_s:g} s"
                if stalled
                else f"the limit of {limit_s:g} s is over"
            )
            names = ", ".join(played.job.name for played in unfinished[:3])
            self.faults.append(
                f"{len(unfinished)} jobs that can fit did not finish, {why}: {names}."
            )
            return True
        return False

    def _create(self, played: Played) -> None:
        job = played.job
        self._checks.expect(f"{NAMESPACE}/{job.name}", len(job.pods))
        group = pod_group(job.name, NAMESPACE, len(job.pods))
        self._api.post(self._api.path_of(group), group)
        for index, gpus in enumerate(job.pods):
            member = pod(
                f"{job.name}-{index}",
                NAMESPACE,
                gang=job.name,
                gpus=gpus,
                run_seconds=round(job.run_s, 2),
            )
            self._api.post(self._api.path_of(member), member)
        played.created_s = time.monotonic()

    def _delete(self, played: Played) -> None:
        for index in range(len(played.job.pods)):
            self._api.delete(f"/api/v1/namespaces/{NAMESPACE}/pods/{played.job.name}-{index}")
        self._api.delete(
            f"/apis/scheduling.x-k8s.io/v1alpha1/namespaces/{NAMESPACE}/podgroups/{played.job.name}"
        )

    def _delete_finished(self, pool: ThreadPoolExecutor, requests: list[Future[None]]) -> None:
        """Delete finished jobs, and wait one tick for more."""
        timeout_s: float | None = TICK_S
        try:
            while True:
                requests.append(pool.submit(self._delete, self._finished.get(timeout=timeout_s)))
                timeout_s = 0.001
        except queue.Empty:
            return

    # --- telling ---------------------------------------------------------------------------------

    def started_s(self, name: str) -> float | None:
        """When a job's gang was bound, by its name with namespace; None when it was not."""
        return self._checks.started_s(name) if self.played[name].created_s is not None else None

    def _counts(self) -> tuple[int, int, int]:
        """Jobs created, started, finished."""
        created = [name for name, played in self.played.items() if played.created_s is not None]
        started = sum(1 for name in created if self._checks.started_s(name) is not None)
        return (
            len(created),
            started,
            sum(1 for played in self.played.values() if played.finished_s is not None),
        )

    def _progress(self, now_s: float, counts: tuple[int, int, int]) -> str:
        created, started, finished = counts
        used = self._checks.gpus_in_use[-1][1] if self._checks.gpus_in_use else 0
        return (
            f"{now_s - self.begun_s:5.0f} s  submitted {created:4}  waiting {created - started:4}  "
            f"running {started - finished:4}  finished {finished:4}  GPUs in use {used:4}"
        )
