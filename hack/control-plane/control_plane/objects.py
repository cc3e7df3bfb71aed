"""Builders of the API objects that tests, the demo and the benchmarks create.

Invariant: a builder returns a plain JSON object with only the fields that were given, so that the
server's defaults apply. It makes no request. Amounts are Kubernetes quantities ("100m", "64Gi");
`gpus` counts whole GPUs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from typing import Any

from control_plane.api import Api, Object

GPU = "nvidia.com/gpu"
GPU_PRODUCT = "nvidia.com/gpu.product"
A100 = "NVIDIA-A100-SXM4-80GB"
POD_GROUP_LABEL = "scheduling.x-k8s.io/pod-group"
KOORDINATOR = "gang.scheduling.koordinator.sh/"
#: kwok ends a pod with this annotation that many seconds after its start.
RUN_SECONDS = "gangsched.dev/run-seconds"
#: kwok lets a deleted pod with this annotation stop only at the end of its grace period.
STOPS_SLOWLY = "gangsched.dev/stops-slowly"
IMAGE = "registry.k8s.io/pause:3.10"


def node(
    name: str,
    *,
    cpu: str = "64",
    memory: str = "512Gi",
    gpus: int = 8,
    pods: int = 110,
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Mapping[str, str]] = (),
    unschedulable: bool = False,
) -> Object:
    """A node; `gpus` 0 means none at all. It becomes Ready when kwok runs."""
    room = {"cpu": cpu, "memory": memory, "pods": str(pods), **({GPU: str(gpus)} if gpus else {})}
    spec: Object = {"taints": [dict(taint) for taint in taints]} if taints else {}
    if unschedulable:
        spec["unschedulable"] = True
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
        "spec": spec,
        "status": {"allocatable": room, "capacity": room},
    }


def pod(
    name: str,
    namespace: str = "default",
    *,
    gang: str = "",
    gpus: int = 0,
    cpu: str = "100m",
    memory: str = "64Mi",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    scheduler_name: str = "gangsched",
    run_seconds: float | None = None,
    node_selector: Mapping[str, str] | None = None,
    spec: Mapping[str, Any] | None = None,
) -> Object:
    """A pod of one container.

    `gang` is the PodGroup it names by label; a gang of annotations goes into `annotations` (see
    `gang_annotations`). `spec` overrides fields of the pod's spec (tolerations, affinity,
    schedulingGates, nodeName, …).
    """
    marks = {POD_GROUP_LABEL: gang} if gang else {}
    ends = {} if run_seconds is None else {RUN_SECONDS: f"{run_seconds:g}"}
    requests = {"cpu": cpu, "memory": memory}
    resources = (
        {"requests": requests, "limits": {GPU: str(gpus)}} if gpus else {"requests": requests}
    )
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {**marks, **(labels or {})},
            "annotations": {**ends, **(annotations or {})},
        },
        "spec": {
            "schedulerName": scheduler_name,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": IMAGE, "resources": resources}],
            **({"nodeSelector": dict(node_selector)} if node_selector else {}),
            **(spec or {}),
        },
    }


def pod_group(
    name: str,
    namespace: str = "default",
    min_member: int | None = None,
    *,
    api: str = "scheduling.x-k8s.io",
    min_resources: Mapping[str, str] | None = None,
    schedule_timeout_s: int | None = None,
    annotations: Mapping[str, str] | None = None,
) -> Object:
    """A PodGroup of either API group."""
    spec = {
        "minMember": min_member,
        "minResources": min_resources,
        "scheduleTimeoutSeconds": schedule_timeout_s,
    }
    return {
        "apiVersion": f"{api}/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": namespace, "annotations": dict(annotations or {})},
        "spec": {key: value for key, value in spec.items() if value is not None},
    }


def gang(
    name: str,
    namespace: str = "default",
    *,
    members: int,
    min_member: int | None = None,
    **pod_options: Any,
) -> list[Object]:
    """A PodGroup and its members `name-0` …, all alike; `pod_options` are those of `pod`."""
    group = pod_group(name, namespace, members if min_member is None else min_member)
    return [
        group,
        *(pod(f"{name}-{index}", namespace, gang=name, **pod_options) for index in range(members)),
    ]


def gang_annotations(
    name: str,
    min_available: int,
    *,
    total: int | None = None,
    mode: str | None = None,
    groups: Sequence[str] = (),
    waiting_time: str | None = None,
) -> dict[str, str]:
    """The pod annotations that declare a gang without a PodGroup; `groups` are "namespace/name"."""
    values = {
        "name": name,
        "min-available": str(min_available),
        "total-number": None if total is None else str(total),
        "mode": mode,
        "groups": json.dumps(list(groups)) if groups else None,
        "waiting-time": waiting_time,
    }
    return {KOORDINATOR + key: value for key, value in values.items() if value is not None}


def namespace(name: str) -> Object:
    """A namespace."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def released_lease(name: str = "gangsched", namespace: str = "gangsched-system") -> Object:
    """The Lease of a scheduler that ran here before and ended: the next one leads at once."""
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "holderIdentity": "",
            "leaseDurationSeconds": 1,
            "renewTime": "2026-01-01T00:00:00.000000Z",
        },
    }


def create_all(api: Api, bodies: Iterable[Object], *, connections: int = 16) -> list[Object]:
    """Create objects in parallel; as stored, in the given order.

    Objects of one kind are all created before the next kind begins, in the given order: PodGroups
    before pods.
    """
    created: list[Object] = []
    with ThreadPoolExecutor(connections) as pool:
        for _, run in groupby(bodies, key=lambda body: (body["apiVersion"], body["kind"])):
            created += pool.map(lambda body: api.post(api.path_of(body), body), run)
    return created
