"""An operator at 3 a.m.: each broken thing is named by `doctor`, `why` or the log within a minute.

A definition that is deleted is in test_orders.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from control_plane import ControlPlane
from control_plane import objects as make
from control_plane.api import Api, ApiError
from control_plane.daemon import Daemon

from tests.e2e.conftest import PODS, delete_all
from tests.e2e.test_kubectl import ask

pytestmark = pytest.mark.e2e

LEASE = "/apis/coordination.k8s.io/v1/namespaces/gangsched-system/leases/gangsched"
ACCOUNT = "/api/v1/namespaces/gangsched-system/serviceaccounts/gangsched"
ROLE = "/apis/rbac.authorization.k8s.io/v1/clusterroles/gangsched"
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
UNPRIVILEGED = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
PAUSE = {
    "name": "gangsched",
    "image": "registry.k8s.io/pause:3.10",
    "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
}
WITHIN_S = 60.0
UNDECIDED_S = 25.0
"""Less than a bind is sent again for whose answer proves nothing."""
ELECTS = ("--leader-elect", "--lease-duration-s", "5")


@pytest.fixture
def api(plane: ControlPlane) -> Iterator[Api]:
    """An administrator's client, and two nodes of 8 GPUs; leaves nothing behind."""
    api = Api.of(plane)
    make.create_all(api, [make.node("n0"), make.node("n1")])
    yield api
    delete_all(api, PODS, "/apis/scheduling.x-k8s.io/v1alpha1/podgroups", "/api/v1/nodes")
    api.close()


def doctor(plane: ControlPlane) -> str:
    """What the doctor says."""
    return " ".join(ask(plane.kubeconfig, "doctor").out.split())


def log(daemon: Daemon) -> str:
    """All lines of the log, with their fields."""
    return " ".join(map(str, daemon.log_lines()))


def await_named(look: Callable[[], str], *causes: str) -> None:
    """Until what is shown names the cause, a minute at most."""
    deadline_s = time.monotonic() + WITHIN_S
    while not all(cause in (shown := look()) for cause in causes):
        assert time.monotonic() < deadline_s, f"{causes} is not in: {shown}"
        time.sleep(0.5)


def bind_nobody(api: Api) -> str:
    """The refusal of a bind of a pod that does not exist: webhooks are called first."""
    bind = {"metadata": {"name": "nobody"}, "target": {"kind": "Node", "name": "n0"}}
    with pytest.raises(ApiError) as refused:
        api.post("/api/v1/namespaces/default/pods/nobody/binding", bind)
    return refused.value.message


def test_a_dead_leader_and_a_pause(plane: ControlPlane, api: Api) -> None:
    """The doctor names the holder that does not renew the Lease, and the order that it
    was given.
    """
    with Daemon(plane, extra_args=ELECTS) as daemon:
        await_named(lambda: log(daemon), "leading")
        api.patch(LEASE, {"metadata": {"annotations": {"gangsched.dev/pause": "INC-1"}}})
        await_named(lambda: doctor(plane), "Scheduling is paused: INC-1 (gangsched.dev/pause).")
        api.patch(LEASE, {"metadata": {"annotations": {"gangsched.dev/set-aside": "train"}}})
        await_named(
            lambda: log(daemon), '"train" (gangsched.dev/set-aside) is not the id of a gang'
        )
        daemon.kill()
    await_named(
        lambda: doctor(plane), "Lease gangsched-system/gangsched is held by", "no gang is scheduled"
    )
    api.delete(LEASE)


def test_a_right_that_is_revoked(plane: ControlPlane, api: Api) -> None:
    """The log has the API server's answer, the doctor the right and the manifest."""
    role = api.get(ROLE)
    rest = [rule for rule in role["rules"] if "pods/binding" not in rule["resources"]]
    assert rest != role["rules"]
    try:
        with Daemon(plane) as daemon:
            api.patch(ROLE, {"rules": rest})
            make.create_all(api, make.gang("revoked", members=2, gpus=1))
            await_named(lambda: doctor(plane), "create pods/binding", "Apply manifests/rbac.yaml")
            await_named(lambda: log(daemon), "BindRefused", "pods/binding")
    finally:
        api.patch(ROLE, {"rules": role["rules"]})


def test_an_account_that_was_deleted(plane: ControlPlane, api: Api) -> None:
    """The doctor says that its token is refused, and what to do once it is there again."""
    account = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"namespace": "gangsched-system", "name": "gangsched"},
    }
    replica = make.pod(
        "gangsched-0",
        "gangsched-system",
        labels={"app.kubernetes.io/name": "gangsched"},
        spec={"securityContext": UNPRIVILEGED, "containers": [PAUSE]},
    )
    with Daemon(plane, extra_args=ELECTS) as daemon:
        await_named(lambda: log(daemon), "leading")
        make.create_all(api, [replica])
        time.sleep(1.0)  # times of creation have seconds
        api.delete(ACCOUNT)
        try:
            await_named(lambda: doctor(plane), "gangsched-system/gangsched does not exist")
            await_named(lambda: log(daemon), "Unauthorized")
        finally:
            make.create_all(api, [account])
        await_named(lambda: doctor(plane), "was created again at", "rollout restart deployment")
        daemon.kill()
    api.delete("/api/v1/namespaces/gangsched-system/pods/gangsched-0")
    api.delete(LEASE)


def test_a_lost_node_and_a_full_cluster(plane: ControlPlane, api: Api) -> None:
    """`why` names the taint of the lost node, and what is missing on the others."""
    with Daemon(plane):
        taint = {"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"}
        api.patch("/api/v1/nodes/n1", {"spec": {"taints": [taint]}})
        make.create_all(api, make.gang("lost", members=2, gpus=8))
        await_named(
            lambda: ask(plane.kubeconfig, "why", "lost").out, "node.kubernetes.io/unreachable"
        )
        await_named(lambda: doctor(plane), "1 of 2 nodes is lost: n1 (unreachable).")
        make.create_all(api, [make.pod("large", gpus=8, spec={"nodeName": "n0"})])
        make.create_all(api, make.gang("crowded", members=1, gpus=8))
        await_named(lambda: ask(plane.kubeconfig, "why", "crowded").out, "0 of 8", "nvidia.com/gpu")


def test_a_name_that_nobody_serves(plane: ControlPlane, api: Api) -> None:
    """The doctor names it at its first call, of a pod that was just created."""
    with Daemon(plane):
        make.create_all(api, [make.pod("typo", scheduler_name="gangshed")])
        assert 'for the scheduler "gangshed"' in doctor(plane)
        make.create_all(api, [make.pod("served")])
        assert "served" not in doctor(plane)


def test_a_webhook_that_is_away(plane: ControlPlane, api: Api) -> None:
    """Doctor, `why` and the log have the API server's answer within seconds: nothing is written
    before webhooks are called, so that such a bind is refused.
    """
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "resources": ["pods/binding"],
        "operations": ["CREATE"],
    }
    webhook = {
        "name": "binds.example.com",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "timeoutSeconds": 1,
        "failurePolicy": "Fail",
        "clientConfig": {"url": "https://127.0.0.1:9/"},
        "rules": [rule],
    }
    configuration = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "away"},
        "webhooks": [webhook],
    }
    with Daemon(plane) as daemon:
        make.create_all(api, [configuration])
        try:
            await_named(lambda: bind_nobody(api), "binds.example.com")
            make.create_all(api, make.gang("blocked", members=2, gpus=1))
            began_s = time.monotonic()
            await_named(lambda: log(daemon), "BindRefused", "binds.example.com")
            await_named(lambda: ask(plane.kubeconfig, "why", "blocked").out, "binds.example.com")
            await_named(lambda: doctor(plane), "refuses to bind 2 pods", "binds.example.com")
            assert time.monotonic() - began_s < UNDECIDED_S
        finally:
            api.delete(WEBHOOKS + "/away")


def test_two_daemons_of_one_name(plane: ControlPlane, api: Api) -> None:
    """Both write Events by turns, which the doctor notices."""
    with (
        Daemon(plane, extra_args=("--identity", "a")),
        Daemon(plane, log_path=plane.logs / "second.log"),
    ):
        for number in range(6):
            make.create_all(api, make.gang(f"both-{number}", members=2, gpus=1))
            time.sleep(1)
        await_named(lambda: doctor(plane), "schedule at the same time")
