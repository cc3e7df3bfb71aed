"""What only a kubelet does: grace periods, rejections, resizes in place, and tokens that are
renewed.
"""

from __future__ import annotations

import json
import os
import time

import pytest
from control_plane.api import Object

from tests.real_node.stage import (
    NAMESPACE,
    PODS,
    Stage,
    gang,
    job,
    pod_group,
    pod_spec,
    refusal,
    say,
    step,
)

pytestmark = pytest.mark.real_node

#: Ends two seconds after it is told to.
SLOW_TO_END = "trap 'sleep 2; exit 0' TERM; while :; do sleep 0.2; done"
TERMINAL = ("Succeeded", "Failed")
LONG = os.environ.get("REAL_NODE_LONG") == "1"


def test_preemption_waits_for_real_grace_periods(stage: Stage) -> None:
    """Three pods of low priority end when they want; the gang above them starts then, and no
    kubelet rejects it.

    A kubelet writes that a pod's containers have ended before it deletes the pod; the room is free
    from then on.
    """
    for name, value in (("low", 10), ("high", 1000)):
        stage.apply(
            {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": name},
                "value": value,
            }
        )
    low = gang("low", 3, cpu="1200m", grace_s=20, priorityClassName="low")
    for pod in low[1:]:
        pod["spec"]["containers"][0]["command"] = ["sh", "-c", SLOW_TO_END]
    with step("a gang of low priority on all nodes"):
        stage.apply(*low)
        stage.until(lambda: len(stage.running("low-")) == 3, "the low gang")
    with step("a gang of high priority takes their place"):
        stage.apply(*gang("high", 3, cpu="1200m", priorityClassName="high"))
        stage.until(lambda: len(stage.running("high-")) == 3, "the high gang")
        alive = [
            pod["metadata"]["name"]
            for pod in stage.pods("low-")
            if pod["status"]["phase"] not in TERMINAL
        ]
        assert not alive, f"{alive} had not ended when the gang above them ran"
        assert all(pod["status"].get("reason") is None for pod in stage.pods("high-")), (
            "a kubelet rejected a member"
        )
        stage.until(lambda: not stage.pods("low-"), "no evicted pod is left")
    stage.clear()


def test_a_rejection_is_told_in_the_kubelets_words(stage: Stage) -> None:
    """A sysctl that no node allows: Event and metric know it for a rejection, whatever its reason
    is called.
    """
    spec = pod_spec() | {
        "securityContext": {"sysctls": [{"name": "net.core.somaxconn", "value": "1024"}]}
    }
    with step("a Job whose pods the kubelet rejects"):
        stage.apply(pod_group("rejected", 2), job("rejected", 2, spec, backoffLimit=3))
        stage.until(
            lambda: told_of_rejection(stage, "forbidden sysctl"),
            "an Event with the kubelet's sentence",
        )
    stage.clear()


def told_of_rejection(stage: Stage, fragment: str) -> bool:
    """Whether an Event of ours has what the kubelet said."""
    return any(fragment in note for note in stage.events("KubeletRejected"))


def test_a_resize_in_place_is_followed(stage: Stage) -> None:
    """A running pod that grows takes its room, and gives it back when it shrinks: the kubelet never
    rejects.
    """
    nodes = stage.cluster.names
    with step("a pod grows by a resize; a gang waits for its room"):
        stage.apply(*gang("grows", 1, cpu="100m"))
        stage.until(lambda: stage.running("grows-"), "a running pod")
        (node,) = stage.running("grows-")
        resize(stage, "1500m")
        stage.until(lambda: allocated(stage) == "1500m", "a resize that the kubelet carried out")
        stage.apply(*gang("wants", len(nodes), cpu="1200m"))
        stage.until(lambda: all(refusal(pod) for pod in stage.pods("wants-")), "a gang that waits")
        assert not stage.running("wants-")
    with step("it shrinks; the gang starts"):
        resize(stage, "100m")
        stage.until(lambda: len(stage.running("wants-")) == len(nodes), "the gang")
        assert all(pod["status"].get("reason") is None for pod in stage.pods("wants-")), node
    stage.clear()


def resize(stage: Stage, cpu: str) -> None:
    """`kubectl patch --subresource resize`."""
    body = {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]}}
    words = ("patch", "pod", "grows-0", "--subresource=resize", "--patch", json.dumps(body))
    stage.cluster.kubectl(*words)


def allocated(stage: Stage) -> str:
    """The CPU that the kubelet has given the pod."""
    pod: Object = stage.api.get(f"{PODS}/grows-0")
    status = pod["status"]["containerStatuses"][0]
    return str(status.get("resources", {}).get("requests", {}).get("cpu", ""))


@pytest.mark.skipif(
    not LONG, reason="a token lives for ten minutes at least: make real-node LONG=1"
)
def test_a_token_that_is_renewed(stage: Stage) -> None:
    """The kubelet renews the projected token after eight minutes; the first one ends, and gangs
    start all the same.
    """
    token = {"serviceAccountToken": {"path": "token", "expirationSeconds": 600}}
    authority = {
        "configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}
    }
    namespace = {
        "downwardAPI": {
            "items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]
        }
    }
    folder = "/var/run/secrets/kubernetes.io/serviceaccount"
    pod = {
        "automountServiceAccountToken": False,
        "containers": [
            {
                "name": "gangsched",
                "volumeMounts": [{"name": "token", "mountPath": folder, "readOnly": True}],
            }
        ],
        "volumes": [{"name": "token", "projected": {"sources": [token, authority, namespace]}}],
    }
    patch = json.dumps({"spec": {"template": {"spec": pod}}})
    with step("a rollout with tokens of ten minutes"):
        stage.cluster.kubectl("-n", NAMESPACE, "patch", "deploy", "gangsched", "--patch", patch)
        stage.rolled_out()
    restarts = {pod["metadata"]["name"] for pod in stage.replicas()}
    with step("thirteen minutes, a gang each minute"):
        for minute in range(13):
            began_s = time.monotonic()
            stage.apply(*gang(f"minute-{minute}", 2, cpu="10m"))
            stage.until(
                lambda minute=minute: len(stage.running(f"minute-{minute}-")) == 2,  # type: ignore[misc]
                f"minute {minute}",
            )
            say(f"minute {minute}: {time.monotonic() - began_s:.1f} s")
            time.sleep(max(0.0, began_s + 60.0 - time.monotonic()))
    assert {pod["metadata"]["name"] for pod in stage.replicas()} == restarts
    stage.clear()
