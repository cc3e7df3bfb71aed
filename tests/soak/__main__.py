"""`make soak-jobs`: real Jobs, and JobSets where they are built, under gangsched and the real
controller-manager, disturbed.

Each Job must complete: pods fail, are deleted and lose their nodes, and gangsched is killed, but no
Job ends by its own doing. Exit code 1 if one does not complete, or a PodGroup has a history of
phases that is not allowed.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from random import Random

from control_plane import ControlPlane
from control_plane import objects as make
from control_plane.api import Api, ApiError, Object
from control_plane.applying import ROOT, apply_manifests, apply_yaml
from control_plane.components import BIN
from control_plane.daemon import Daemon
from control_plane.following import Following

from tests.operators.jobset import JOBS as JOB_SETS
from tests.operators.jobset import jobset_installed
from tests.soak.kubelets import SoakKubelets
from tests.soak.phases import StatusHistories
from tests.soak.workload import GROUP, cron_job, soak_job

PODS = "/api/v1/namespaces/default/pods"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
CRON_JOBS = "/apis/batch/v1/namespaces/default/cronjobs"
POD_GROUPS = "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/default/podgroups"
ENDS = {"Complete": "Complete", "Completed": "Complete", "Failed": "Failed"}
"""What conditions of Jobs and JobSets say."""
NODES = 8
AT_A_TIME = 24
PAUSE_S = 0.05
ENDS_WITHIN_S = 180.0
STOPS_WITHIN_S = 60.0
"""On a busy machine; what a process writes at its end takes up to `shutdown_s`."""
SHARED = frozenset({"nightly-a", "nightly-b"})


@dataclass
class Soak:
    """One run; `outcomes` has each Job that ended."""

    plane: ControlPlane
    daemon: Daemon
    random: Random
    number: int
    #: JobSets are created, too.
    job_sets: bool = False
    created: list[str] = field(default_factory=list)
    outcomes: dict[str, str] = field(default_factory=dict)
    deleted: set[str] = field(default_factory=set)
    #: By name, where the object is.
    paths: dict[str, str] = field(default_factory=dict)
    restarts: int = 0
    lost_nodes: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.api = Api.of(self.plane)
        self.histories = StatusHistories()
        self.pods = Following(self.api, PODS)
        self.jobs = Following(self.api, JOBS, on_change=self._hear_job)
        self.sets = Following(self.api, JOB_SETS, on_change=self._hear_job)
        self.groups = Following(self.api, POD_GROUPS, on_change=self.histories.hear)
        self.kubelets = SoakKubelets(self.api, self.pods, self.random)

    def run(self) -> int:
        """Create all Jobs, a few at a time, and disturb them; the number of faults."""
        make.create_all(self.api, [make.node(f"n{number}") for number in range(NODES)])
        for name in sorted(SHARED):
            make.create_all(self.api, cron_job(name, width=3))

        with ExitStack() as following:
            for each in (self.pods, self.jobs, self.groups):
                following.enter_context(each)
            if self.job_sets:
                following.enter_context(self.sets)

            while len(self.created) < self.number or self._open():
                self._step(disturbs=True)
                if len(self.created) == self.number and len(self._open()) <= AT_A_TIME // 2:
                    break

            self._calm_down()
            return self._report()

    def _open(self) -> list[str]:
        return [
            name for name in self.created if name not in self.outcomes and name not in self.deleted
        ]

    def _step(self, *, disturbs: bool) -> None:
        if len(self.created) < self.number and len(self._open()) < AT_A_TIME:
            made = soak_job(len(self.created), self.random, job_sets=self.job_sets)
            if made.pod_group is not None:
                self._create(made.pod_group)

            self._create(made.body)
            self.created.append(made.name)
            self.paths[made.name] = f"{self.api.path_of(made.body)}/{made.name}"
            if len(self.created) % 100 == 0:
                print(f"{len(self.created)} Jobs, {len(self.outcomes)} have ended", flush=True)

        self.daemon.check()
        # The API server of a busy machine may take longer than a client waits.
        with suppress(OSError):
            self.kubelets.look()
            if disturbs:
                self._disturb()

        time.sleep(PAUSE_S)

    def _create(self, *bodies: Object) -> None:
        """Create objects, again if the answer does not come in time."""
        for body in bodies:
            is_created = False
            while not is_created:
                with suppress(OSError):
                    is_created = self._is_created(body)

    def _is_created(self, body: Object) -> bool:
        try:
            self.api.post(self.api.path_of(body), body)
        except ApiError as error:
            if error.status != 409:
                raise

        return True

    def _disturb(self) -> None:
        """Do to the cluster what happens to clusters, each with its own rate."""
        ways: list[tuple[float, Callable[[], None]]] = [
            (0.04, self._delete_pod),
            (0.04, self._remove_ended),
            (0.01, self._cordon),
            (0.006, self._lose_node),
            (0.006, self._restart),
            (0.004, self._delete_job),
        ]
        for rate, happens in ways:
            if self.random.random() < rate:
                happens()

    def _pods_in(self, *phases: str) -> list[Object]:
        pods = self.pods.objects().values()
        found = [pod for pod in pods if pod.get("status", {}).get("phase") in phases]
        return sorted(found, key=lambda pod: str(pod["metadata"]["name"]))

    def _delete_pod(self) -> None:
        if pods := self._pods_in("Running"):
            self.api.delete(f"{PODS}/{self.random.choice(pods)['metadata']['name']}")

    def _remove_ended(self) -> None:
        """What pod GC does, or a node that an autoscaler recycles."""
        if pods := self._pods_in("Succeeded"):
            self.api.delete(f"{PODS}/{self.random.choice(pods)['metadata']['name']}")

    def _cordon(self) -> None:
        name = f"n{self.random.randrange(NODES)}"
        closed = self.random.random() < 0.5
        self._patch_node(name, {"spec": {"unschedulable": closed}})

    def _lose_node(self) -> None:
        """A node goes with its pods, and comes back with the next disturbance of this kind."""
        for name in sorted(self.lost_nodes):
            self._create(make.node(name))

        self.lost_nodes = {f"n{self.random.randrange(NODES)}"}
        for name in self.lost_nodes:
            self.api.delete(f"/api/v1/nodes/{name}")
            for pod in self._pods_in("Running", "Succeeded", "Failed"):
                if pod["spec"].get("nodeName") == name:
                    self.api.delete(f"{PODS}/{pod['metadata']['name']}")

    def _restart(self) -> None:
        """A kill, or an orderly end as at an upgrade; the next process takes over."""
        if self.random.random() < 0.5:
            self.daemon.kill()
        else:
            self.daemon.stop(within_s=STOPS_WITHIN_S)

        # The kubelets go on meanwhile.
        until_s = time.monotonic() + self.random.uniform(0, 2)
        while time.monotonic() < until_s:
            self.kubelets.look()
            time.sleep(PAUSE_S)

        self.daemon.start()
        self.restarts += 1

    def _delete_job(self) -> None:
        if names := self._open():
            name = self.random.choice(names)
            self.deleted.add(name)
            self.api.call("DELETE", self.paths[name], {"propagationPolicy": "Background"})

    def _patch_node(self, name: str, change: Object) -> None:
        try:
            self.api.patch(f"/api/v1/nodes/{name}", change)
        except ApiError as error:
            if error.status != 404:
                raise

    def _hear_job(self, kind: str, job: Object, seen_s: float) -> None:
        for condition in job.get("status", {}).get("conditions", ()):
            if condition["status"] == "True" and condition["type"] in ENDS:
                self.outcomes[job["metadata"]["name"]] = ENDS[condition["type"]]

    def _calm_down(self) -> None:
        """Nothing happens any more, so that all Jobs complete."""
        for name in sorted(self.lost_nodes):
            self._create(make.node(name))
        for number in range(NODES):
            self._patch_node(f"n{number}", {"spec": {"unschedulable": False}})
        for cron in self.api.list(CRON_JOBS).items:
            self.api.delete(f"{CRON_JOBS}/{cron['metadata']['name']}")

        self.kubelets.is_kind = True
        until_s = time.monotonic() + ENDS_WITHIN_S
        while self._open() and time.monotonic() < until_s:
            self._step(disturbs=False)

    def _report(self) -> int:
        stuck = self._open()
        failed = [name for name in self.created if self.outcomes.get(name) == "Failed"]
        faults = self.histories.faults()
        complete = sum(self.outcomes.get(name) == "Complete" for name in self.created)
        print(
            f"{len(self.created)} Jobs: {complete} complete, {len(self.deleted)} deleted,"
            f" {len(failed)} failed, {len(stuck)} stuck; {self.kubelets.ended} pods ended,"
            f" {self.restarts} restarts; {len(faults)} histories are not allowed"
        )
        for name in (*stuck, *failed):
            self._describe(name)
        for fault in faults[:20]:
            print(fault)

        return len(stuck) + len(failed) + len(faults)

    def _describe(self, name: str) -> None:
        groups = [each for each in self.api.list(POD_GROUPS).items if name_of(each) == name]
        statuses = [group.get("status") for group in groups]
        print(name, self.paths[name], self.histories.phases(name), statuses)
        for pod in self.pods.objects().values():
            if pod["metadata"].get("labels", {}).get(GROUP) == name:
                told = [
                    each.get("message")
                    for each in pod.get("status", {}).get("conditions", ())
                    if each["type"] == "PodScheduled"
                ]
                print("  ", pod["metadata"]["name"], pod["status"].get("phase"), told)


def name_of(body: Object) -> str:
    """The name of an object."""
    return str(body["metadata"]["name"])


def main() -> int:
    """Run a soak; 1 if there is a fault."""
    parser = argparse.ArgumentParser(description="Real Jobs, disturbed.")
    parser.add_argument("--jobs", type=int, default=2_000, help="number of Jobs")
    parser.add_argument("--seed", type=int, default=0, help="seed of everything that is random")
    options = parser.parse_args()
    print(f"{options.jobs} Jobs, seed {options.seed}", flush=True)

    has_job_sets = (BIN / "jobset").is_file()
    if not has_job_sets:
        print("without JobSets: `hack/control-plane/build.py jobset` builds their operator")

    with ExitStack() as parts:
        plane = parts.enter_context(ControlPlane(kcm=True, kwok=True))
        apply_manifests(Api.of(plane))
        apply_yaml(Api.of(plane), ROOT / "manifests" / "rbac-owners.yaml")
        if has_job_sets:
            apply_yaml(Api.of(plane), ROOT / "manifests" / "rbac-owners-jobset.yaml")
            parts.enter_context(jobset_installed(plane))

        daemon = Daemon(plane, ready_timeout_s=120)
        daemon.start()
        try:
            random = Random(options.seed)
            soak = Soak(plane, daemon, random, options.jobs, has_job_sets)
            return min(1, soak.run())
        finally:
            daemon.kill()


if __name__ == "__main__":
    sys.exit(main())
