"""What plays do: declare gangs, wait for what must become true, and report each step with
its time.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from control_plane.api import Api, ApiError, Object
from control_plane.errors import ControlPlaneError
from control_plane.real import RealCluster

from tests.distribution import CHART_ARCHIVE
from tests.packaging import CHART, ROOT
from tests.release import DIST

NAMESPACE = "gangsched-system"
LABEL = "app.kubernetes.io/name=gangsched"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/gangsched"
GANGS = "/apis/visibility.gangsched.dev/v1alpha1/gangs"
PODS = "/api/v1/namespaces/default/pods"
IMAGE = "docker.io/library/python:3.13-slim"
WITHIN_S = 60.0
FROM_DIST = os.environ.get("RELEASE", "") not in {"", "0"}
"""Whether manifests, chart and image are those that `make release` wrote."""
INSTALL = DIST / "install.yaml" if FROM_DIST else ROOT / "manifests" / "install.yaml"
HELM_CHART = DIST / CHART_ARCHIVE if FROM_DIST else CHART


def say(text: str) -> None:
    """One line of progress."""
    print(f"real-node: {text}", flush=True)


@contextmanager
def step(name: str) -> Iterator[None]:
    """Report a step and how long it took."""
    began_s = time.monotonic()
    try:
        yield
    except BaseException:
        say(f"{name}: FAILED after {time.monotonic() - began_s:.1f} s")
        raise
    say(f"{name}: {time.monotonic() - began_s:.1f} s")


@dataclass
class Stage:
    """The cluster, as its administrator sees it."""

    cluster: RealCluster
    api: Api

    def apply(self, *bodies: Object) -> None:
        """`kubectl apply` of these objects."""
        self.cluster.kubectl("apply", "-f", "-", text="\n---\n".join(map(json.dumps, bodies)))

    def pods(self, prefix: str = "", *, namespace: str = "default") -> list[Object]:
        """The pods whose names begin so, by name."""
        found = self.api.list(f"/api/v1/namespaces/{namespace}/pods").items
        return sorted(
            (pod for pod in found if pod["metadata"]["name"].startswith(prefix)),
            key=lambda pod: pod["metadata"]["name"],
        )

    def running(self, prefix: str) -> list[str]:
        """The nodes of live pods whose containers run."""
        return [pod["spec"]["nodeName"] for pod in self.pods(prefix) if runs(pod)]

    def until(self, holds: Callable[[], Any], what: str, *, within_s: float = WITHIN_S) -> Any:
        """Wait until it holds; its value. Fails with what was waited for and how the pods are."""
        deadline_s = time.monotonic() + within_s
        while True:
            self.cluster.check()
            try:
                if found := holds():
                    return found
            # an API that is rolled, an object that is not there yet
            except (ApiError, OSError, ControlPlaneError):
                found = None
            assert time.monotonic() < deadline_s, (
                f"not within {within_s:g} s: {what}\n{self.told()}"
            )
            time.sleep(0.2)

    def told(self) -> str:
        """Pods, their conditions and the scheduler's last lines, for a failure."""
        lines = [
            f"{pod['metadata']['name']} {pod['status'].get('phase')} {refusal(pod)}"
            for pod in self.pods()
        ]
        logs = self._logs()
        groups = self.cluster.kubectl("get", "podgroups.scheduling.x-k8s.io", "-A")
        replicas = self.cluster.kubectl("-n", NAMESPACE, "get", "pods", "-o", "wide")
        return "\n".join([*lines, groups, replicas, logs])

    def _logs(self) -> str:
        try:
            return self.cluster.kubectl(
                "-n", NAMESPACE, "logs", "-l", LABEL, "--tail=15", "--prefix"
            )
        except ControlPlaneError as error:
            return str(error)  # a node that is dead has none

    def pod_group(self, name: str) -> Object:
        """The status of a PodGroup."""
        path = f"/apis/scheduling.x-k8s.io/v1alpha1/namespaces/default/podgroups/{name}"
        found: Object = self.api.get(path).get("status", {})
        return found

    def condition(self, name: str, kind: str) -> Object:
        """A condition of a PodGroup; empty if it has none."""
        return next(
            (each for each in self.pod_group(name).get("conditions", ()) if each["type"] == kind),
            {},
        )

    def events(self, reason: str) -> list[str]:
        """The notes of Events with this reason."""
        found = self.api.list("/apis/events.k8s.io/v1/events").items
        return [each.get("note", "") for each in found if each["reason"] == reason]

    def free_cpu_milli(self, node: str) -> int:
        """CPU of a node that no pod requests."""
        allocatable = milli(self.api.get(f"/api/v1/nodes/{node}")["status"]["allocatable"]["cpu"])
        pods = self.api.list("/api/v1/pods", fieldSelector=f"spec.nodeName={node}").items
        containers = [
            each for pod in pods if "nodeName" in pod["spec"] for each in pod["spec"]["containers"]
        ]
        return allocatable - sum(
            milli(each["resources"].get("requests", {}).get("cpu", "0")) for each in containers
        )

    def clear(self) -> None:
        """Delete all work, and wait until it is gone."""
        kinds = "jobs,deployments,pods,podgroups.scheduling.x-k8s.io"
        self.cluster.kubectl(
            "delete", kinds, "--all", "--grace-period=1", "--wait=true", "-n", "default"
        )
        self.until(lambda: not self.pods(), "no pods")

    def replicas(self) -> list[Object]:
        """gangsched's live pods."""
        return [
            pod
            for pod in self.pods(namespace=NAMESPACE)
            if "deletionTimestamp" not in pod["metadata"]
        ]

    def leader(self) -> Object:
        """The replica that holds the Lease; waits until one does."""

        def found() -> Object | None:
            holder = self.api.get(LEASE)["spec"].get("holderIdentity") or ""
            return next(
                (pod for pod in self.replicas() if holder.startswith(pod["metadata"]["name"])), None
            )

        leader: Object = self.until(found, "a replica that holds the Lease")
        return leader

    def rolled_out(self, *, within_s: int = 90) -> None:
        """`kubectl rollout status`, as the README says."""
        words = ("rollout", "status", "deploy/gangsched", f"--timeout={within_s}s")
        self.cluster.kubectl("-n", NAMESPACE, *words, within_s=within_s + 10.0)


def milli(cpu: str) -> int:
    """A quantity of CPU in thousandths."""
    return int(cpu.removesuffix("m")) if cpu.endswith("m") else int(cpu) * 1000


def runs(pod: Object) -> bool:
    """Whether it is Running and not on its way out."""
    return pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]


def refusal(pod: Object) -> str:
    """What it is told while it waits."""
    for each in pod["status"].get("conditions", ()):
        if each["type"] == "PodScheduled" and each["status"] == "False":
            return f"{each['reason']}: {each.get('message', '')}"
    return ""


def container_id(pod: Object) -> str:
    """The id that containerd knows its container by."""
    return str(pod["status"]["containerStatuses"][0]["containerID"]).removeprefix("containerd://")


def pod_group(name: str, minimum: int) -> Object:
    """A PodGroup."""
    return {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"minMember": minimum},
    }


def pod_spec(code: str = "sleep 600", *, cpu: str = "50m", grace_s: int = 1, **more: Any) -> Object:
    """The spec of a pod of ours that runs a line of shell."""
    return {
        "schedulerName": "gangsched",
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": grace_s,
        "containers": [
            {
                "name": "main",
                "image": IMAGE,
                "imagePullPolicy": "Never",
                "command": ["sh", "-c", f"trap 'exit 143' TERM; {code} & wait $!"],
                "resources": {"requests": {"cpu": cpu, "memory": "8Mi"}},
                **more.pop("container", {}),
            }
        ],
        **more,
    }


def labels(group: str) -> Mapping[str, str]:
    """What says that a pod belongs to a PodGroup."""
    return {"scheduling.x-k8s.io/pod-group": group}


def gang(name: str, members: int, code: str = "sleep 600", **spec: Any) -> list[Object]:
    """A PodGroup and its pods, all of them needed."""
    pods = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"{name}-{number}",
                "namespace": "default",
                "labels": dict(labels(name)),
            },
            "spec": pod_spec(code, **spec),
        }
        for number in range(members)
    ]
    return [pod_group(name, members), *pods]


def job(name: str, completions: int, spec: Object, *, group: str = "", **more: Any) -> Object:
    """An Indexed Job whose pods are a gang."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "completions": completions,
            "parallelism": completions,
            "completionMode": "Indexed",
            "template": {"metadata": {"labels": dict(labels(group or name))}, "spec": spec},
            **more,
        },
    }


def deployment(name: str, replicas: int, spec: Object) -> Object:
    """A Deployment whose pods are a gang."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name, **labels(name)}},
                "spec": {**spec, "restartPolicy": "Always"},
            },
        },
    }


def on_a_lost_node(seconds: int) -> Sequence[Object]:
    """Tolerations with which a pod leaves a node that is away for so long."""
    return [
        {
            "key": f"node.kubernetes.io/{key}",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": seconds,
        }
        for key in ("unreachable", "not-ready")
    ]
