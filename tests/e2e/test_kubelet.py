"""Kubelets that turn a member away (semantics B6): said on the gang, the node avoided, the gang
completed elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Self

import pytest
from control_plane import ControlPlane
from control_plane import objects as make
from control_plane.api import STRATEGIC_PATCH, Api, Object
from control_plane.daemon import Daemon
from control_plane.following import Following

from tests.e2e.conftest import PODS
from tests.tuned import command

pytestmark = pytest.mark.e2e

EVENTS = "/apis/events.k8s.io/v1/events"
GROUPS = "/apis/scheduling.x-k8s.io/v1alpha1/podgroups"
WITHIN_S = 20.0
SENTENCE = "Node didn't have enough resource: nvidia.com/gpu, requested: 1, used: 8, capacity: 8"
"""As kubelet 1.36 writes it after "Pod was rejected: "."""


class FakeKubelet:
    """All nodes' kubelets: a bound pod runs at once, but the `kth` of them (from 1) is rejected for
    `reason`.

    `rejected` is the pod that was, once it was; its nodes turn away nothing else.
    """

    def __init__(self, api: Api, *, kth: int, reason: str) -> None:
        self._api, self._left, self._reason = api, kth, reason
        self._seen: set[str] = set()
        self._pods = Following(api, PODS, on_change=self._on_change)
        self.rejected: Object | None = None

    def __enter__(self) -> Self:
        self._pods.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._pods.__exit__(kind, error, trace)

    def _on_change(self, kind: str, pod: Object, seen_s: float) -> None:
        meta = pod["metadata"]
        if kind == "DELETED" or not pod["spec"].get("nodeName") or meta["uid"] in self._seen:
            return
        self._seen.add(meta["uid"])
        self._left -= 1
        status: Object = {"phase": "Running"}
        if self._left == 0:
            status = {
                "phase": "Failed",
                "reason": self._reason,
                "message": f"Pod was rejected: {SENTENCE}",
            }
            self.rejected = pod
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/status"
        self._api.patch(path, {"status": status}, content_type=STRATEGIC_PATCH)


def nodes_of(pods: Mapping[str, Object], phase: str) -> dict[str, str]:
    """Pod name to node of the pods in this phase."""
    return {
        pod["metadata"]["name"]: pod["spec"]["nodeName"]
        for pod in pods.values()
        if pod["status"].get("phase") == phase and pod["spec"].get("nodeName")
    }


def rejection(events: Mapping[str, Object], group: str) -> str | None:
    """The note of the KubeletRejected Event on a PodGroup."""
    for event in events.values():
        about = event["regarding"]
        if event["reason"] == "KubeletRejected" and (about["kind"], about["name"]) == (
            "PodGroup",
            group,
        ):
            return str(event["note"])
    return None


@pytest.mark.parametrize(
    ("kth", "reason"),
    [(1, "OutOfcpu"), (3, "OutOfnvidia.com/gpu"), (4, "UnexpectedAdmissionError")],
)
def test_a_rejected_member_is_replaced_on_another_node(
    plane: ControlPlane, api: Api, kth: int, reason: str
) -> None:
    """B6: an Event on the gang names pod and node; the replacement goes elsewhere and completes the
    gang.
    """
    make.create_all(api, [make.node("n0"), make.node("n1")])
    name = f"gang{kth}"
    with (
        Daemon(plane) as daemon,
        FakeKubelet(api, kth=kth, reason=reason) as kubelet,
        Following(api, PODS) as pods,
        Following(api, EVENTS) as events,
        Following(api, GROUPS) as groups,
    ):
        make.create_all(api, make.gang(name, members=4, gpus=1))
        pods.wait_for(
            lambda all_: len(nodes_of(all_, "Failed")) == 1,
            within_s=WITHIN_S,
            what="a rejected pod",
        )
        pods.wait_for(
            lambda all_: len(nodes_of(all_, "Running")) == 3,
            within_s=WITHIN_S,
            what="the others running",
        )
        assert kubelet.rejected is not None
        victim, node = kubelet.rejected["metadata"]["name"], kubelet.rejected["spec"]["nodeName"]
        note = events.wait_for(
            lambda all_: rejection(all_, name), within_s=WITHIN_S, what="an Event on the gang"
        )
        assert (
            note
            == f"the kubelet of node {node} rejected pod default/{victim}: {reason}: {SENTENCE}"
        )
        api.delete(f"/api/v1/namespaces/default/pods/{victim}")
        make.create_all(api, [make.pod(f"{name}-again", gang=name, gpus=1)])
        running = pods.wait_for(
            lambda all_: found if len(found := nodes_of(all_, "Running")) == 4 else None,
            within_s=WITHIN_S,
            what="the whole gang running",
        )
        assert running[f"{name}-again"] not in {"", node}
        groups.wait_for(
            lambda all_: any(g.get("status", {}).get("running") == 4 for g in all_.values()),
            within_s=WITHIN_S,
            what="4 running members in the PodGroup's status",
        )
        daemon.check()


def test_an_avoided_node_is_used_again_after_the_backoff(plane: ControlPlane, api: Api) -> None:
    """B6, Q3: with no other node the replacement waits, says why, and starts by itself when the
    backoff is over.
    """
    make.create_all(api, [make.node("only")])
    with (
        Daemon(plane, command=command({"avoid_s": 3})) as daemon,
        FakeKubelet(api, kth=2, reason="OutOfmemory") as kubelet,
        Following(api, PODS) as pods,
    ):
        make.create_all(api, make.gang("alone", members=2, gpus=1))
        pods.wait_for(
            lambda all_: len(nodes_of(all_, "Failed")) == 1,
            within_s=WITHIN_S,
            what="a rejected pod",
        )
        assert kubelet.rejected is not None
        api.delete(f"/api/v1/namespaces/default/pods/{kubelet.rejected['metadata']['name']}")
        make.create_all(api, [make.pod("alone-again", gang="alone", gpus=1)])
        pods.wait_for(
            lambda all_: any(
                "recently rejected a member of this gang" in str(pod["status"])
                for pod in all_.values()
            ),
            within_s=WITHIN_S,
            what="the reason on the waiting replacement",
        )
        # Well below the queue's safety net of 60 s.
        pods.wait_for(
            lambda all_: len(nodes_of(all_, "Running")) == 2,
            within_s=WITHIN_S,
            what="the gang running",
        )
        daemon.check()
