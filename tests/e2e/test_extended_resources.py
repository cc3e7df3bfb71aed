"""Extended resources that a DeviceClass serves, on a real API server: nobody makes claims but the
scheduler.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from control_plane import ControlPlane
from control_plane import objects as make
from control_plane.api import Api, Object
from control_plane.daemon import Daemon
from control_plane.following import Following

from tests.e2e.conftest import PODS
from tests.e2e.test_devices import (
    ALL,
    CLAIMS,
    CLASSES,
    DRIVER,
    FINALIZER,
    GROUP,
    HERE,
    PLANE,
    WITHIN_S,
    allocated,
    api,
    gpu,
    node,
    one_each,
    resource,
    results,
    wait_bound,
    wait_said,
    wait_told,
)

pytestmark = pytest.mark.e2e

NAME = "nvidia.com/gpu"
EXTENDED = "resource.kubernetes.io/extended-resource-claim"
__all__ = ["PLANE", "api"]


@pytest.fixture(autouse=True)
def served(api: Api) -> None:
    """A class that serves `nvidia.com/gpu`; the pods of kube-scheduler and ours ask as they always
    did.
    """
    selector = {"cel": {"expression": f'device.driver == "{DRIVER}"'}}
    api.post(
        CLASSES,
        resource("DeviceClass", "served", {"selectors": [selector], "extendedResourceName": NAME}),
    )


def wants(count: int, *, name: str = NAME) -> Object:
    """What a pod has in its spec that requests so many devices."""
    resources = {"requests": {"cpu": "1", name: str(count)}, "limits": {name: str(count)}}
    return {"containers": [{"name": "main", "image": make.IMAGE, "resources": resources}]}


def claims_of(pods: Mapping[str, Object]) -> dict[str, str]:
    """The claim of each pod for extended resources, by the pod's name."""
    told = {
        pod["metadata"]["name"]: pod["status"].get("extendedResourceClaimStatus")
        for pod in pods.values()
    }
    return {name: status["resourceClaimName"] for name, status in told.items() if status}


def test_a_gang_on_nodes_without_a_device_plugin(plane: ControlPlane, api: Api) -> None:
    """Scenario 28: `nvidia.com/gpu` is served by devices; each pod is told which claim is
    its own.
    """
    with Daemon(plane, extra_args=ALL), Following(api, PODS) as pods:
        for name in ("n0", "n1"):
            node(api, name, *(gpu(f"g{number}") for number in range(8)))
        make.create_all(api, make.gang("g", members=2, spec=wants(8)))
        assert set(wait_bound(pods, "g-", 2).values()) == {"n0", "n1"}
        made = claims_of(pods.objects())
        assert set(made) == {"g-0", "g-1"}
        for pod in pods.objects().values():
            name = pod["metadata"]["name"]
            claim = api.get(f"{HERE}/resourceclaims/{made[name]}")
            assert claim["metadata"]["annotations"][EXTENDED] == "true"
            (owner,) = claim["metadata"]["ownerReferences"]
            assert (owner["kind"], owner["uid"], owner["controller"]) == (
                "Pod",
                pod["metadata"]["uid"],
                True,
            )
            (mapping,) = pod["status"]["extendedResourceClaimStatus"]["requestMappings"]
            (request,) = claim["spec"]["devices"]["requests"]
            assert mapping == {
                "containerName": "main",
                "resourceName": NAME,
                "requestName": "container-0-request-1",
            }
            assert (request["name"], request["exactly"]["count"]) == ("container-0-request-1", 8)
            assert len(results(claim)) == 8
    one_each(api, 16)


def test_a_cluster_with_and_without_a_device_plugin(plane: ControlPlane, api: Api) -> None:
    """Scenario 29: a gang uses both kinds of nodes; only pods on nodes without a plugin have
    claims.
    """
    with Daemon(plane, extra_args=ALL), Following(api, PODS) as pods:
        make.create_all(api, [make.node("plugin", gpus=8)])
        node(api, "driver", *(gpu(f"g{number}") for number in range(8)))
        make.create_all(api, make.gang("g", members=4, spec=wants(4)))
        nodes = wait_bound(pods, "g-", 4)
        assert sorted(nodes.values()) == ["driver", "driver", "plugin", "plugin"]
        assert set(claims_of(pods.objects())) == {
            name for name, on in nodes.items() if on == "driver"
        }
        make.create_all(api, make.gang("late", members=1, spec=wants(1)))
        wait_told(api, "late", "cannot allocate all claims")
        wait_told(api, "late", "Insufficient nvidia.com/gpu")
    one_each(api, 8)


def test_the_name_of_a_class_is_a_resource(plane: ControlPlane, api: Api) -> None:
    """Every class serves a resource with its own name, also if it says no other one."""
    with Daemon(plane, extra_args=ALL), Following(api, PODS) as pods:
        node(api, "n0", gpu("g0"), gpu("g1"))
        make.create_all(
            api, [make.pod("p", spec=wants(2, name="deviceclass.resource.kubernetes.io/gpu"))]
        )
        wait_bound(pods, "p", 1)
    one_each(api, 2)


def test_a_gang_that_does_not_fit_makes_no_claim(plane: ControlPlane, api: Api) -> None:
    """Scenario 4: it needs 9 of 8 devices; it starts as soon as a slice has more."""
    with (
        Daemon(plane, extra_args=ALL),
        Following(api, PODS) as pods,
        Following(api, CLAIMS) as claims,
    ):
        node(api, "n0", *(gpu(f"g{number}") for number in range(8)))
        make.create_all(api, make.gang("g", members=9, spec=wants(1)))
        wait_told(api, "g", "nvidia.com/gpu")
        assert not claims.objects()
        node(api, "n1", gpu("g0"))
        wait_bound(pods, "g-", 9)
    one_each(api, 9)


def test_what_an_interrupted_start_left(plane: ControlPlane, api: Api) -> None:
    """A claim without devices is used, and one of another class is deleted; no pod has two."""
    with Following(api, PODS) as pods, Following(api, CLAIMS) as claims:
        make.create_all(api, make.gang("g", members=2, spec=wants(1)))
        pods.wait_for(lambda items: len(items) == 2, within_s=WITHIN_S)
        for name, of_class in (("g-0", "served"), ("g-1", "gpu")):
            pod = api.get(f"/api/v1/namespaces/default/pods/{name}")
            api.post(f"{GROUP}/namespaces/default/resourceclaims", left_over(pod, of_class))
        with Daemon(plane, extra_args=ALL):
            node(api, "n0", gpu("g0"), gpu("g1"))
            wait_bound(pods, "g-", 2)
            owners = [
                claim["metadata"]["ownerReferences"][0]["name"]
                for claim in claims.objects().values()
            ]
            assert sorted(owners) == ["g-0", "g-1"]
    one_each(api, 2)


def test_a_claim_that_somebody_else_made(plane: ControlPlane, api: Api) -> None:
    """A claim with the name of ours, made by a tenant, is neither used nor deleted; the pod says
    so.
    """
    with Following(api, PODS) as pods:
        make.create_all(api, [make.pod("p", spec=wants(1))])
        pods.wait_for(lambda items: len(items) == 1, within_s=WITHIN_S)
        foreign = left_over(api.get("/api/v1/namespaces/default/pods/p"), "served")
        del foreign["metadata"]["ownerReferences"]
        api.post(f"{GROUP}/namespaces/default/resourceclaims", foreign)
        with Daemon(plane, extra_args=ALL):
            node(api, "n0", gpu("g0"))
            wait_said(pods, "p", "was not created for pod default/p")
        assert not allocated({"c": api.get(f"{HERE}/resourceclaims/{foreign['metadata']['name']}")})


def test_without_the_role(plane: ControlPlane, api: Api) -> None:
    """Nodes with a device plugin take pods, and the others are not used."""
    path = "/apis/rbac.authorization.k8s.io/v1/clusterroles/gangsched-extended-resources"
    rules = api.get(path)["rules"]
    api.patch(path, {"rules": []})
    try:
        with Daemon(plane, extra_args=ALL) as daemon, Following(api, PODS) as pods:
            node(api, "driver", gpu("g0"))
            make.create_all(api, [make.node("plugin", gpus=1), make.pod("p", spec=wants(1))])
            assert wait_bound(pods, "p", 1) == {"p": "plugin"}
            make.create_all(api, [make.pod("q", spec=wants(1))])
            wait_said(pods, "q", "Insufficient nvidia.com/gpu")
            assert any(
                "rbac-extended-resources.yaml" in line["event"] for line in daemon.log_lines()
            )
    finally:
        api.patch(path, {"rules": rules})


def left_over(pod: Object, of_class: str) -> Object:
    """The claim that a start of this pod made before it was interrupted."""
    name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
    exactly = {"deviceClassName": of_class, "allocationMode": "ExactCount", "count": 1}
    claim = resource(
        "ResourceClaim",
        f"{name}-extended-resources-{uid}",
        {"devices": {"requests": [{"name": "container-0-request-1", "exactly": exactly}]}},
    )
    owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid, "controller": True}
    claim["metadata"] |= {
        "annotations": {EXTENDED: "true"},
        "ownerReferences": [owner],
        "finalizers": [FINALIZER],
    }
    return claim
