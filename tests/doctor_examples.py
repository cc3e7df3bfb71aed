"""A cluster in which nothing is wrong, for `doctor`, and what it says of one."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from gangsched import __version__
from gangsched.api.timestamps import format_timestamp
from kubectl_gangsched.doctor.rights import PATH as REVIEWS
from kubectl_gangsched.main import cli
from tests.fake_api import FakeApi, listed, node, pod, pod_group, served

X, SIGS, VOLCANO = "scheduling.x-k8s.io", "scheduling.sigs.k8s.io", "scheduling.volcano.sh"
DEFINITION = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/podgroups.{X}"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/gangsched-system/leases/gangsched"


def deployment(
    *args: str, image: str = f"gangsched:{__version__}", ready: int = 2, failure: str = ""
) -> dict[str, Any]:
    container = {"name": "gangsched", "image": image, "args": ["run", *args]}
    fails = {"type": "ReplicaFailure", "status": "True", "message": failure}
    return {
        "metadata": {
            "namespace": "gangsched-system",
            "name": "gangsched",
            "labels": {"app.kubernetes.io/name": "gangsched"},
        },
        "spec": {"template": {"spec": {"containers": [container]}}},
        "status": {"readyReplicas": ready, "conditions": [fails] if failure else []},
    }


def api_group(name: str, version: str = "v1alpha1") -> dict[str, Any]:
    return {"name": name, "preferredVersion": {"groupVersion": f"{name}/{version}"}}


def lease(holder: str, ago_s: float = 1.0) -> dict[str, Any]:
    """A Lease of 15 s that was renewed so long ago."""
    renewed = f"{format_timestamp(int(time.time() - ago_s))[:-1]}.000000Z"
    spec = {
        "holderIdentity": holder,
        "leaseDurationSeconds": 15,
        "renewTime": renewed,
        "acquireTime": renewed,
    }
    return {"metadata": {"name": "gangsched"}, "spec": spec}


def event(instance: str, first: int, last: int) -> dict[str, Any]:
    """An Event of a daemon, first and last seen at these seconds of a minute."""
    minute = "2026-01-01T00:00"
    return {
        "metadata": {"name": f"{instance}-{first}"},
        "reportingInstance": instance,
        "eventTime": f"{minute}:{first:02}.000001Z",
        "series": {"lastObservedTime": f"{minute}:{last:02}.000001Z"},
    }


def sound() -> dict[str, Any]:
    """A cluster in which nothing is wrong."""
    resources = {"resources": [{"name": "podgroups"}, {"name": "podgroups/status"}]}
    return {
        "/version": {"gitVersion": "v1.36.0"},
        "/apis/apps/v1/deployments": listed(deployment()),
        LEASE: lease("one"),
        "/api/v1/events": listed(event("one", 1, 5), event("two", 6, 9)),
        REVIEWS: {"status": {"allowed": True}},
        "/apis": {
            "groups": [
                api_group(X),
                {"name": "apps", "preferredVersion": {"groupVersion": "apps/v1"}},
            ]
        },
        f"/apis/{X}/v1alpha1": resources,
        f"/apis/{SIGS}/v1alpha1": resources,
        f"/apis/{VOLCANO}/v1beta1": resources,
        DEFINITION: {"metadata": {}, "spec": {"versions": [{"subresources": {"status": {}}}]}},
        "/apis/apiregistration.k8s.io/v1/apiservices": listed(
            {
                "metadata": {"name": "v1."},
                "status": {"conditions": [{"type": "Available", "status": "True"}]},
            }
        ),
        "/api/v1/pods": listed(
            pod("train-0", gang="train", message="no room"), pod("web", node="n1")
        ),
        "/api/v1/namespaces": listed(),
        "/api/v1/nodes": listed(node("n1", 8)),
        f"/apis/{X}/v1alpha1/podgroups": listed(pod_group("train", 1)),
        f"/apis/{SIGS}/v1alpha1/podgroups": listed(),
        f"/apis/{VOLCANO}/v1beta1/podgroups": listed(pod_group("mpi", 1)),
    }


def examine(tmp_path: Path, answers: dict[str, Any]) -> tuple[int, dict[str, Any], FakeApi]:
    with served(tmp_path, answers) as (fake, kubeconfig):
        answer = CliRunner().invoke(cli, ["doctor", "-o", "json", "--kubeconfig", str(kubeconfig)])
    return answer.exit_code, json.loads(answer.stdout), fake
