"""A user with rights in one namespace stops nobody else: on a real API server, with the tenant's
own credentials.

Each case creates what the tenant may create. Meanwhile a pod of another namespace is bound within a
second.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from control_plane import ControlPlane
from control_plane import objects as make
from control_plane.api import Api, Object
from control_plane.daemon import Daemon
from control_plane.following import Following
from control_plane.pods import nodes_of, refusal

from tests.e2e.conftest import PODS

pytestmark = [pytest.mark.e2e, pytest.mark.alone]

TENANT = "tenant"
BOUND_S = 1.0
TOLD_S = 30.0
MOST_MIB = 250
GANGS = 3_000
RULES = [
    {"apiGroups": [""], "resources": ["pods", "persistentvolumeclaims"], "verbs": ["*"]},
    {"apiGroups": ["scheduling.x-k8s.io"], "resources": ["podgroups"], "verbs": ["*"]},
]
SHARED: Object = {
    "gangsched.dev/keep-room": "true",
    "gang.scheduling.koordinator.sh/total-number": "513",
}


@pytest.fixture(autouse=True)
def _node(api: Api) -> None:
    make.create_all(api, [make.node("n0", gpus=16)])


@pytest.fixture(scope="module")
def tenant(plane: ControlPlane) -> Iterator[Api]:
    """Who may do everything with pods, claims and PodGroups of one namespace, and nothing else."""
    api = Api.of(plane)
    core, rbac = (
        f"/api/v1/namespaces/{TENANT}",
        f"/apis/rbac.authorization.k8s.io/v1/namespaces/{TENANT}",
    )
    metadata = {"name": TENANT, "namespace": TENANT}
    api.post(
        "/api/v1/namespaces",
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TENANT}},
    )
    api.post(
        f"{core}/serviceaccounts",
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata},
    )
    version = "rbac.authorization.k8s.io/v1"
    api.post(
        f"{rbac}/roles",
        {"apiVersion": version, "kind": "Role", "metadata": metadata, "rules": RULES},
    )
    subject = {"kind": "ServiceAccount", "name": TENANT, "namespace": TENANT}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": TENANT}
    binding = {"apiVersion": version, "kind": "RoleBinding", "metadata": metadata}
    api.post(f"{rbac}/rolebindings", {**binding, "subjects": [subject], "roleRef": role})
    context = ssl.create_default_context(cafile=str(plane.ca_path))
    with_rights = Api(plane.url, context, token=plane.service_account_token(TENANT, TENANT))
    yield with_rights
    with_rights.close()
    api.close()


def bound_within(api: Api, pods: Following, name: str) -> float:
    """Create a pod of another namespace; the seconds until it is bound."""
    began_s = time.monotonic()
    api.post("/api/v1/namespaces/default/pods", make.pod(name))
    pods.wait_for(lambda items: bool(nodes_of(items, name)), within_s=TOLD_S, what=f"{name} bound")
    return time.monotonic() - began_s


def told(pods: Following, name: str, reason: str) -> str:
    """The message of the tenant's pod, once it waits for this reason."""

    def found(items: Any) -> str | None:
        mine = [refusal(pod) for pod in items.values() if pod["metadata"]["name"] == name]
        return next((text for kind, text in mine if kind == reason), None)

    return str(pods.wait_for(found, within_s=TOLD_S, what=f"{reason} on {name}"))


def many_keys() -> Sequence[Object]:
    """A PodGroup with 12,000 keys in minResources, and its pod."""
    asked = {f"example.com/k{number}": "1" for number in range(12_000)}
    return [
        make.pod_group("keys", TENANT, 1, min_resources=asked),
        make.pod("keys", TENANT, gang="keys"),
    ]


def many_containers() -> Sequence[Object]:
    """A pod of 3,000 containers, each with an extended resource of its own."""
    body = make.pod("containers", TENANT)
    (pattern,) = body["spec"]["containers"]
    amounts = ({f"example.com/c{number}": "1"} for number in range(3_000))
    resources = [{"requests": each, "limits": each} for each in amounts]
    body["spec"]["containers"] = [
        {**pattern, "name": f"c{number}", "resources": each}
        for number, each in enumerate(resources)
    ]
    return [body]


@pytest.mark.parametrize(
    ("objects", "name", "reason", "words"),
    [
        (
            many_keys,
            "keys",
            "InvalidGang",
            "spec.minResources of PodGroup tenant/keys has 12,000 entries",
        ),
        (many_containers, "containers", "Unsupported", "spec.containers has more than 256 entries"),
    ],
)
def test_a_large_object_delays_nobody(
    plane: ControlPlane,
    api: Api,
    tenant: Api,
    objects: Callable[[], Sequence[Object]],
    name: str,
    reason: str,
    words: str,
) -> None:
    """I8: while it is created, edited, and read by a process that starts; the tenant is told field
    and bound.
    """
    with Daemon(plane) as daemon, Following(api, PODS) as pods:
        for body in objects():
            tenant.post(tenant.path_of(body), body)
        assert bound_within(api, pods, "first") < BOUND_S
        assert words in told(pods, name, reason)

        tenant.patch(
            f"/api/v1/namespaces/{TENANT}/pods/{name}", {"metadata": {"labels": {"edited": "yes"}}}
        )
        assert bound_within(api, pods, "second") < BOUND_S

        daemon.kill()
        daemon.start()
        assert bound_within(api, pods, "third") < BOUND_S
        assert words in told(pods, name, reason)


def test_members_to_come_take_little_memory(plane: ControlPlane, api: Api, tenant: Api) -> None:
    """B8: 3,000 gangs with 512 members to come each, of one namespace."""
    asked = {"nvidia.com/gpu": "513"}
    groups = [
        make.pod_group(f"g-{number}", TENANT, 1, min_resources=asked, annotations=SHARED)
        for number in range(GANGS)
    ]
    waiting = [
        make.pod(f"g-{number}", TENANT, gang=f"g-{number}", gpus=1) for number in range(GANGS)
    ]
    with Daemon(plane) as daemon, Following(api, PODS) as pods:
        make.create_all(tenant, [*groups, *waiting])
        assert bound_within(api, pods, "first") < BOUND_S
        # The oldest: conditions of one namespace are written at a limited rate.
        assert "its minResources are 513 nvidia.com/gpu" in told(pods, "g-0", "Unschedulable")
        assert bound_within(api, pods, "second") < BOUND_S
        with open(f"/proc/{daemon.pid}/statm") as statm:
            used_mib = int(statm.read().split()[1]) * 4 // 1_024
        print(f"{used_mib} MiB with {GANGS} gangs")
        assert used_mib <= MOST_MIB


RACK = "example.com/rack"
RACKS = ((1, "r0"), (4, "r1"), (2, "r0"), (2, "r1"))
"""GPUs and racks of nodes where the first choice of members does not fit: all are packed."""


def composite(name: str, *, parent: str = "", least: int, topology: str = "") -> Object:
    """A PodGroup that is a parent, and perhaps a child."""
    stated = {
        "gangsched.dev/parent": parent,
        "gangsched.dev/min-children": str(least),
        "gangsched.dev/topology": topology,
    }
    annotations = {key: value for key, value in stated.items() if value}
    return make.pod_group(name, TENANT, annotations=annotations)


def child(
    name: str, parent: str, gpus: Sequence[int], *, topology: str = "", policy: str = ""
) -> list[Object]:
    """A gang with a minimum of two, and its pods, with so many GPUs each."""
    stated = {
        "gangsched.dev/parent": parent,
        "gangsched.dev/topology": topology,
        "gang.scheduling.koordinator.sh/match-policy": policy,
    }
    annotations = {key: value for key, value in stated.items() if value}
    pods = [
        make.pod(f"{name}-{index}", TENANT, gang=name, gpus=number)
        for index, number in enumerate(gpus)
    ]
    return [make.pod_group(name, TENANT, 2, annotations=annotations), *pods]


def two_shapes() -> list[Object]:
    """A child whose minimum of two can be reached by pods of 1 and 2 GPUs, beside another one."""
    return [
        composite("svc", least=2),
        *child("x", "svc", [1, 1, 2], topology=RACK),
        *child("y", "svc", [3, 1]),
    ]


def nothing_needed() -> list[Object]:
    """A part with a minimum of 0 inside others that need one child."""
    return [
        composite("svc", least=1),
        composite("in", parent="svc", least=1),
        composite("zero", parent="in", least=0),
        *child("x", "zero", [1, 1]),
    ]


def nothing_needed_in_a_rack() -> list[Object]:
    """A part with a minimum of 0 and a required rack, beside children that are packed."""
    return [
        composite("svc", least=3),
        composite("zero", parent="svc", least=0, topology=RACK),
        *child("x", "svc", [1, 1, 2], topology=RACK),
        *child("y", "svc", [3, 1], topology=RACK),
        *child("z", "zero", [1, 1]),
    ]


def only_waiting() -> list[Object]:
    """Members that all have nodes, and count only while they wait."""
    return [
        composite("svc", least=1),
        *child("x", "svc", [1, 1], policy="only-waiting"),
    ]


@pytest.mark.parametrize(
    "objects", [two_shapes, nothing_needed, nothing_needed_in_a_rack, only_waiting]
)
def test_a_tree_ends_no_process(
    plane: ControlPlane, api: Api, tenant: Api, objects: Callable[[], Sequence[Object]]
) -> None:
    """I9, I10: each once ended every replica, again at each restart; the tree starts as well."""
    nodes = [
        make.node(f"rack-{index}", gpus=gpus, labels={RACK: rack})
        for index, (gpus, rack) in enumerate(RACKS)
    ]
    api.delete("/api/v1/nodes/n0")
    make.create_all(api, nodes)

    with Daemon(plane) as daemon, Following(api, PODS) as pods:
        make.create_all(tenant, objects())
        assert bound_within(api, pods, "first") < BOUND_S
        pods.wait_for(
            lambda items: len(nodes_of(items, "x-")) >= 2, within_s=TOLD_S, what="the child x"
        )

        # A further child, which makes the whole tree be decided again.
        make.create_all(tenant, child("late", "svc", [1, 1]))
        assert bound_within(api, pods, "second") < BOUND_S

        assert daemon.internal_errors() == 0

        daemon.kill()
        daemon.start()
        assert bound_within(api, pods, "third") < BOUND_S
        assert daemon.internal_errors() == 0


def test_a_pod_above_a_bound_keeps_nobody_off_its_node(
    plane: ControlPlane, api: Api, tenant: Api
) -> None:
    """I8: kubelets run it, so it is there for as long as its owner likes, on every node."""
    body = make.pod("labels", TENANT, labels={f"l-{number}": "" for number in range(1_025)})
    body["spec"] |= {"nodeName": "n0", "schedulerName": "other"}
    tenant.post(tenant.path_of(body), body)
    with Daemon(plane), Following(api, PODS) as pods:
        assert bound_within(api, pods, "first") < BOUND_S
