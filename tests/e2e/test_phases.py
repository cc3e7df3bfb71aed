"""Phases of PodGroups after the start, where the API server and its controllers decide: Jobs that
are cleaned, finalizers, native PodGroups, pods that go while no gangsched runs (E3, E8).

kwok starts the pods, and the test ends them as a kubelet would.
"""

from __future__ import annotations

import http.client
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from control_plane import ControlPlane
from control_plane import objects as make
from control_plane.api import Api, ApiError, Object
from control_plane.daemon import Daemon
from control_plane.following import Following

from tests.e2e.conftest import COLLECTIONS, PODS, delete_all
from tests.e2e.test_native import GATES, NATIVE, native_gang

pytestmark = pytest.mark.e2e

NAMESPACED = "/api/v1/namespaces/default"
GROUPS = "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/default/podgroups"
NATIVES = "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups"
JOBS = "/apis/batch/v1/jobs"
FINALIZER = "example.com/keep"
WITHIN_S = 60.0
PLANE = {
    "kcm": True,
    "kwok": True,
    "feature_gates": dict.fromkeys(GATES, True),
    "runtime_config": ["scheduling.k8s.io/v1alpha2=true"],
}
GANGS = {"failed": 3, "launcher": 4, "kept": 2, "lost": 2, "late": 3}


@pytest.fixture
def api(plane: ControlPlane) -> Iterator[Api]:
    """An administrator's client."""
    api = Api.of(plane)
    make.create_all(api, [make.node("n0", gpus=32)])
    yield api
    delete_all(api, JOBS, *COLLECTIONS, NATIVE)
    api.close()


def job(name: str, width: int) -> list[Object]:
    """A PodGroup and a Job that is removed, with its pods, a second after it has completed."""
    template = make.pod("unused", gang=name, gpus=1)
    body: Object = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "parallelism": width,
            "completions": width,
            "ttlSecondsAfterFinished": 1,
            "template": {
                "metadata": {"labels": template["metadata"]["labels"]},
                "spec": template["spec"],
            },
        },
    }
    return [make.pod_group(name, min_member=width), body]


class Watched:
    """The API server as the test sees it."""

    def __init__(self, api: Api, pods: Following, groups: Following, natives: Following) -> None:
        self.api = api
        self.pods = pods
        self.groups = groups
        self.natives = natives

    def of(self, gang: str) -> list[Object]:
        """The pods of a gang, by name."""
        pods = self.pods.objects().values()
        found = [pod for pod in pods if pod["metadata"]["name"].startswith(f"{gang}-")]
        return sorted(found, key=lambda pod: str(pod["metadata"]["name"]))

    def end(self, pods: list[Object], phase: str) -> None:
        """The kubelet says that pods have ended."""
        for pod in pods:
            path = f"{NAMESPACED}/pods/{pod['metadata']['name']}/status"
            self.api.patch(path, {"status": {"phase": phase}})

    def delete(self, pods: list[Object]) -> None:
        """Somebody deletes pods."""
        for pod in pods:
            self.api.delete(f"{NAMESPACED}/pods/{pod['metadata']['name']}")

    def await_running(self, gang: str, number: int) -> None:
        """Wait until the members of a gang run."""

        def run(items: Mapping[str, Object]) -> bool:
            phases = [
                pod.get("status", {}).get("phase")
                for pod in items.values()
                if pod["metadata"]["name"].startswith(f"{gang}-")
            ]
            return phases == ["Running"] * number

        self.pods.wait_for(run, within_s=WITHIN_S, what=f"{gang} runs")

    def await_status(self, name: str, *texts: str, of: Following | None = None) -> None:
        """Wait until the status of a PodGroup has all of these in one line."""

        def told(items: Mapping[str, Object]) -> bool:
            lines = [_line(group) for group in items.values() if _name(group) == name]
            return any(all(text in line for text in texts) for line in lines)

        following = of if of is not None else self.groups
        following.wait_for(told, within_s=WITHIN_S, what=f"{name}: {', '.join(texts)}")


def _name(group: Object) -> str:
    return str(group["metadata"]["name"])


def _line(group: Object) -> str:
    """Phase, counts and conditions of a PodGroup: what `kubectl get` and `describe` show."""
    status: dict[str, Any] = group.get("status", {})
    counts = [f"{name}={status.get(name)}" for name in ("scheduled", "running", "succeeded")]
    conditions = [
        " ".join((each["type"], each["status"], each["reason"], each["message"]))
        for each in status.get("conditions", ())
    ]
    return "; ".join([str(status.get("phase")), *counts, *conditions])


def _after_failure(status: Object) -> Object:
    """What gangsched makes of a status once a member has failed and its pod is gone."""
    gone = {**status["start"]["gone"], "failed": 1}
    return {**status, "running": 2, "failed": 1, "start": {**status["start"], "gone": gone}}


def _without(api: Api, name: str, change: Callable[[Object], None]) -> None:
    """Change a PodGroup, again if its status was written meanwhile."""
    while True:
        group = api.get(f"{GROUPS}/{name}")
        change(group)
        try:
            api.put(f"{GROUPS}/{name}", group)
            return
        except ApiError as error:
            if error.status != http.client.CONFLICT:
                raise


def test_phases_are_true_after_the_start(plane: ControlPlane, api: Api) -> None:
    """E3, E8: a cleaned Job, a failed gang, a launcher without its workers, a PodGroup that a
    finalizer keeps, a native PodGroup, a gang that is lost while gangsched is away, and one of
    whose failed member only the process before has told, whose write is carried out last.
    """
    daemon = Daemon(plane)
    with (
        Following(api, PODS) as pods,
        Following(api, GROUPS) as groups,
        Following(api, NATIVES) as natives,
        daemon,
    ):
        seen = Watched(api, pods, groups, natives)
        for name, width in GANGS.items():
            make.create_all(api, make.gang(name, members=width, gpus=1))

        make.create_all(api, job("done", 2))
        group, *members = native_gang("native", members=2, gpus=1, policy={"gang": {"minCount": 2}})
        api.post(api.path_of(group), group)
        make.create_all(api, members)
        for name, width in {**GANGS, "done": 2, "native": 2}.items():
            seen.await_running(name, width)

        seen.await_status("native", "PodGroupSatisfied True MinCountSatisfied 2 of 2", of=natives)
        _without(api, "kept", lambda group: group["metadata"].update(finalizers=[FINALIZER]))
        api.delete(f"{GROUPS}/kept")

        seen.end(seen.of("done"), "Succeeded")
        seen.end([*seen.of("failed"), *seen.of("kept")], "Failed")
        launcher, *workers = seen.of("launcher")
        seen.end([launcher], "Succeeded")
        seen.delete([*workers, seen.of("native")[0]])

        seen.await_status("failed", "Failed", "Scheduled False MembersFailed 3 of 3 members")
        seen.await_status("kept", "Failed", "2 of 2 members have failed")
        seen.await_status("launcher", "Unknown", "3 members were deleted; 1 succeeded")
        seen.await_status("native", "PodGroupSatisfied False BelowMinCount 1 of 2", of=natives)
        pods.wait_for(lambda _: not seen.of("done"), within_s=WITHIN_S, what="the Job is cleaned")
        finished = ("Finished", "scheduled=2; running=0; succeeded=2", "Scheduled True Scheduled 2")
        seen.await_status("done", *finished)

        daemon.kill()
        seen.delete(seen.of("lost"))
        pods.wait_for(lambda _: not seen.of("lost"), within_s=WITHIN_S, what="its pods are gone")
        api.patch(f"{GROUPS}/failed/status", {"status": {"phase": "Running"}})
        late = _after_failure(api.get(f"{GROUPS}/late")["status"])
        seen.delete(seen.of("late")[:1])
        daemon.start()
        api.patch(f"{GROUPS}/late/status", {"status": late})
        seen.end(seen.of("late"), "Succeeded")
        seen.await_status("late", "succeeded=2", "1 of 3 members has failed; 2 succeeded")
        seen.await_status("lost", "Pending", "running=0")
        seen.await_status("failed", "Failed", "Scheduled False MembersFailed 3 of 3 members")
        seen.await_status("done", *finished)
        _without(api, "kept", lambda group: group["metadata"].update(finalizers=[]))
