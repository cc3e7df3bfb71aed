"""Gangs with ResourceClaims on a real API server: slices are made by hand, claims by its own
controller.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from control_plane import ControlPlane
from control_plane import objects as make
from control_plane.api import Api, Object
from control_plane.daemon import Daemon
from control_plane.following import Following
from control_plane.pods import nodes_of, refusal

from tests.e2e.conftest import PODS, delete_all

pytestmark = pytest.mark.e2e

GROUP = "/apis/resource.k8s.io/v1"
SLICES, CLASSES = f"{GROUP}/resourceslices", f"{GROUP}/deviceclasses"
CLAIMS, TEMPLATES = f"{GROUP}/resourceclaims", f"{GROUP}/resourceclaimtemplates"
HERE = f"{GROUP}/namespaces/default"
POD_GROUPS = "/apis/scheduling.x-k8s.io/v1alpha1/podgroups"
ROLE = "/apis/rbac.authorization.k8s.io/v1/clusterroles/gangsched-devices"
FINALIZER = "resource.kubernetes.io/delete-protection"
DRIVER = "gpu.test"
WITHIN_S = 20.0
PLANE = {"kcm": True}
ALL = ("--devices", "all")


@pytest.fixture
def api(plane: ControlPlane) -> Iterator[Api]:
    """An administrator's client with the class `gpu`; leaves no pod, claim, slice or
    node behind.
    """
    api = Api.of(plane)
    selector = {"cel": {"expression": f'device.driver == "{DRIVER}"'}}
    config = {"opaque": {"driver": DRIVER, "parameters": {"of": "class"}}}
    api.post(CLASSES, resource("DeviceClass", "gpu", {"selectors": [selector], "config": [config]}))
    yield api
    delete_all(api, PODS, POD_GROUPS, TEMPLATES, SLICES, CLASSES, "/api/v1/nodes")
    with Following(api, CLAIMS) as claims:
        claims.wait_for(
            lambda items: not allocated(items), within_s=WITHIN_S, what="the end of all allocations"
        )
        delete_all(api, CLAIMS)
        claims.wait_for(lambda items: not items, within_s=WITHIN_S, what="the end of all claims")
    api.close()


# --- objects ------------------------------------------------------------------------------------


def resource(kind: str, name: str, spec: Mapping[str, Any]) -> Object:
    """An object of resource.k8s.io/v1."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": dict(spec),
    }


def node(
    api: Api,
    name: str,
    *devices: Mapping[str, Any],
    counters: Mapping[str, int] | None = None,
    gpus: int = 0,
    labels: Mapping[str, str] | None = None,
) -> None:
    """A node with these devices; `counters` are amounts of the counter `mem` by set."""
    make.create_all(api, [make.node(name, gpus=gpus, labels=labels)])
    parts = [{"devices": [dict(each) for each in devices]}]
    if counters:
        sets = [
            {"name": each, "counters": {"mem": {"value": str(most)}}}
            for each, most in counters.items()
        ]
        parts.append({"sharedCounters": sets})
    for number, part in enumerate(parts):
        pool = {"name": name, "generation": 1, "resourceSliceCount": len(parts)}
        spec = {"driver": DRIVER, "pool": pool, "nodeName": name, **part}
        api.post(SLICES, resource("ResourceSlice", f"{name}-{number}", spec))


def gpu(name: str, *, takes: tuple[str, int] | None = None, **attributes: str) -> Object:
    """A device; `takes` is what it consumes of the counter `mem` of a set."""
    made: Object = {
        "name": name,
        "attributes": {key: {"string": value} for key, value in attributes.items()},
    }
    if takes is not None:
        counters = {"mem": {"value": str(takes[1])}}
        made["consumesCounters"] = [{"counterSet": takes[0], "counters": counters}]
    return made


def asks(*alternatives: Mapping[str, Any], **exactly: Any) -> Object:
    """The spec of a claim with one request; with alternatives, for the first that can be had."""
    if alternatives:
        named = [
            {"name": f"a{number}", "deviceClassName": "gpu", **each}
            for number, each in enumerate(alternatives)
        ]
        return {"devices": {"requests": [{"name": "gpu", "firstAvailable": named}]}}
    return {
        "devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu", **exactly}}]}
    }


def having(attribute: str, value: str) -> Object:
    """Selects devices by an attribute of the driver."""
    return {
        "selectors": [
            {"cel": {"expression": f'device.attributes["{DRIVER}"].{attribute} == "{value}"'}}
        ]
    }


def template(api: Api, name: str, spec: Mapping[str, Any]) -> Object:
    """A template of claims; what a pod has in its spec to get one."""
    api.post(
        f"{HERE}/resourceclaimtemplates",
        resource("ResourceClaimTemplate", name, {"spec": dict(spec)}),
    )
    return {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": name}]}


def direct(api: Api, name: str, spec: Mapping[str, Any]) -> Object:
    """A claim; what pods have in their specs to use it."""
    api.post(f"{HERE}/resourceclaims", resource("ResourceClaim", name, spec))
    return {"resourceClaims": [{"name": "gpu", "resourceClaimName": name}]}


# --- what is looked at --------------------------------------------------------------------------


def allocated(claims: Mapping[str, Object]) -> dict[str, list[str]]:
    """The devices of allocated claims by name, each as `pool/device`."""
    return {
        item["metadata"]["name"]: [f"{each['pool']}/{each['device']}" for each in results(item)]
        for item in claims.values()
        if (item.get("status") or {}).get("allocation") is not None
    }


def results(claim: Object) -> list[Object]:
    """What a claim has."""
    found: list[Object] = claim["status"]["allocation"]["devices"].get("results") or []
    return found


def wait_bound(pods: Following, prefix: str, number: int) -> dict[str, str]:
    """Where the pods with this prefix are, once so many are bound."""
    try:
        pods.wait_for(lambda items: len(nodes_of(items, prefix)) == number, within_s=WITHIN_S)
    except TimeoutError as error:
        told = [(item["metadata"]["name"], refusal(item)) for item in pods.objects().values()]
        raise AssertionError(f"{number} of {prefix} are not bound: {told}") from error
    return nodes_of(pods.objects(), prefix)


def wait_said(pods: Following, name: str, *fragments: str) -> None:
    """Until the condition of a pod says this."""
    try:
        pods.wait_for(
            lambda items: any(
                all(each in " ".join(refusal(pod)) for each in fragments)
                for pod in items.values()
                if pod["metadata"]["name"] == name
            ),
            within_s=WITHIN_S,
        )
    except TimeoutError as error:
        told = [(item["metadata"]["name"], refusal(item)) for item in pods.objects().values()]
        raise AssertionError(f"{name} does not say {fragments}: {told}") from error


def wait_told(api: Api, gang: str, fragment: str) -> None:
    """Until a condition of a gang's PodGroup says this: facts that move are told there."""
    with Following(api, POD_GROUPS) as seen:
        seen.wait_for(
            lambda items: any(
                fragment in condition["message"]
                for item in items.values()
                if item["metadata"]["name"] == gang
                for condition in item.get("status", {}).get("conditions", ())
            ),
            within_s=WITHIN_S,
            what=f"PodGroup {gang} saying {fragment!r}",
        )


def one_each(api: Api, number: int) -> None:
    """Every device is in one claim, every claim that has devices names its pod, and there are so
    many.
    """
    items = {item["metadata"]["name"]: item for item in api.list(CLAIMS).items}
    had = [device for devices in allocated(items).values() for device in devices]
    assert len(had) == len(set(had)) == number, had
    for name in allocated(items):
        assert len(items[name]["status"]["reservedFor"]) == 1
        assert FINALIZER in items[name]["metadata"]["finalizers"]
        assert items[name]["status"]["allocation"]["allocationTimestamp"]


def all_share(api: Api, claim: str, nodes: Mapping[str, str]) -> None:
    """All these pods run on the node of the claim's device, and are its consumers."""
    found = api.get(f"{HERE}/resourceclaims/{claim}")
    ((device,),) = allocated({claim: found}).values()
    assert set(nodes.values()) == {device.partition("/")[0]}
    assert {each["name"] for each in found["status"]["reservedFor"]} == set(nodes)
    assert FINALIZER in found["metadata"]["finalizers"]


# --- scenarios ----------------------------------------------------------------------------------


def test_a_gang_that_kube_scheduler_cannot_start(plane: ControlPlane, api: Api) -> None:
    """Kubernetes #138765: each of two members takes the whole device first, and both halves
    together are enough.
    """
    parts = [
        gpu("whole", takes=("g", 80), size="whole"),
        *(gpu(f"h{n}", takes=("g", 40), size="half") for n in "01"),
    ]
    with Daemon(plane, extra_args=ALL), Following(api, PODS) as pods:
        node(api, "n0", *parts, counters={"g": 80})
        uses = template(api, "some", asks(having("size", "whole"), having("size", "half")))
        make.create_all(api, make.gang("g", members=2, spec=uses))
        assert set(wait_bound(pods, "g-", 2).values()) == {"n0"}
    one_each(api, 2)


def test_members_that_ask_for_different_devices(plane: ControlPlane, api: Api) -> None:
    """Whoever takes any device leaves the one that another member needs; what does not fit takes
    nothing.
    """
    with (
        Daemon(plane, extra_args=ALL) as daemon,
        Following(api, PODS) as pods,
        Following(api, CLAIMS) as claims,
    ):
        node(api, "n0", gpu("g0", model="h100"), gpu("g1", model="a100"))
        some, large = (
            template(api, "some", asks()),
            template(api, "large", asks(**having("model", "h100"))),
        )
        make.create_all(
            api, [make.pod_group("g", min_member=2), make.pod("g-0", gang="g", spec=some)]
        )
        make.create_all(api, [make.pod("g-1", gang="g", spec=large)])
        wait_bound(pods, "g-", 2)
        one_each(api, 2)
        make.create_all(api, make.gang("late", members=2, spec=some))
        wait_told(api, "late", "cannot allocate all claims")
        assert len(allocated(claims.objects())) == 2
        node(api, "n1", gpu("g0"), gpu("g1"))
        assert set(wait_bound(pods, "late-", 2).values()) == {"n1"}
        assert daemon.metrics()
    one_each(api, 4)


def test_a_plain_pod_with_a_claim(plane: ControlPlane, api: Api) -> None:
    """It has what kube-scheduler would give it: the first device, the configs, itself as the
    consumer.
    """
    # keys that are not sorted
    own = {"opaque": {"driver": DRIVER, "parameters": {"of": "claim", "and": 1}}}
    spec = asks(tolerations=[{"key": "k", "operator": "Exists"}])
    spec["devices"]["config"] = [own]
    with Daemon(plane, extra_args=ALL), Following(api, PODS) as pods:
        node(api, "n0", gpu("g0"), gpu("g1"))
        make.create_all(api, [make.pod("p", spec=direct(api, "direct", spec))])
        wait_bound(pods, "p", 1)
        claim = api.get(f"{HERE}/resourceclaims/direct")
        assert allocated({"direct": claim}) == {"direct": ["n0/g0"]}
        assert [each["name"] for each in claim["status"]["reservedFor"]] == ["p"]
        configs = claim["status"]["allocation"]["devices"]["config"]
        assert [(each["source"], each["opaque"]["parameters"]["of"]) for each in configs] == [
            ("FromClass", "class"),
            ("FromClaim", "claim"),
        ]
        assert results(claim)[0]["tolerations"][0]["key"] == "k"
    one_each(api, 1)


def test_a_claim_that_all_members_share(plane: ControlPlane, api: Api) -> None:
    """A13, Kubernetes #140053: one device, allocated once; a member that comes later, and another
    pod, join them.
    """
    with Daemon(plane, extra_args=ALL), Following(api, PODS) as pods:
        for name in ("n0", "n1"):
            node(api, name, gpu("g0"))
        uses = direct(api, "common", asks())
        make.create_all(api, make.gang("g", members=3, spec=uses))
        all_share(api, "common", wait_bound(pods, "g-", 3))
        make.create_all(api, [make.pod("g-3", gang="g", spec=uses), make.pod("g-other", spec=uses)])
        all_share(api, "common", wait_bound(pods, "g-", 5))


def test_single_pods_that_share_a_claim(plane: ControlPlane, api: Api) -> None:
    """They come at once; one has the claim allocated, and the others wait for that."""
    with Daemon(plane, extra_args=ALL) as daemon, Following(api, PODS) as pods:
        for name in ("n0", "n1"):
            node(api, name, gpu("g0"), gpu("g1"))
        uses = direct(api, "common", asks())
        make.create_all(api, [make.pod(f"p-{n}", spec=uses) for n in range(20)], connections=4)
        all_share(api, "common", wait_bound(pods, "p-", 20))
        assert not any(line["event"] == "bind failed" for line in daemon.log_lines())


def test_sharers_that_fit_on_no_node_together(plane: ControlPlane, api: Api) -> None:
    """None starts and nothing is allocated, though each alone would; a larger node helps."""
    with (
        Daemon(plane, extra_args=ALL),
        Following(api, PODS) as pods,
        Following(api, CLAIMS) as claims,
    ):
        for name in ("n0", "n1"):
            node(api, name, gpu("g0"))
        uses = direct(api, "common", asks())
        make.create_all(api, make.gang("g", members=2, spec=uses, cpu="40"))
        wait_said(pods, "g-1", "")
        assert allocated(claims.objects()) == {}
        make.create_all(api, [make.node("n2", gpus=0, cpu="128")])
        spec = {
            "driver": DRIVER,
            "pool": {"name": "n2", "generation": 1, "resourceSliceCount": 1},
            "nodeName": "n2",
        }
        api.post(SLICES, resource("ResourceSlice", "n2-0", {**spec, "devices": [gpu("g0")]}))
        assert set(wait_bound(pods, "g-", 2).values()) == {"n2"}


def test_devices_are_freed_for_who_waits(plane: ControlPlane, api: Api) -> None:
    """A gang waits for devices that another one has, and starts once these pods are gone."""
    with Daemon(plane, extra_args=ALL), Following(api, PODS) as pods:
        node(api, "n0", gpu("g0"), gpu("g1"))
        uses = template(api, "some", asks())
        make.create_all(api, make.gang("first", members=2, spec=uses))
        wait_bound(pods, "first-", 2)
        make.create_all(api, make.gang("second", members=2, spec=uses))
        wait_told(api, "second", "cannot allocate all claims")
        for name in ("first-0", "first-1"):
            api.delete(f"/api/v1/namespaces/default/pods/{name}?gracePeriodSeconds=0")
        wait_bound(pods, "second-", 2)


def test_without_the_role_and_without_the_setting(plane: ControlPlane, api: Api) -> None:
    """Pods with claims say what is missing, and all others start."""
    role = api.get(ROLE)
    node(api, "n0", gpu("g0"))
    uses = template(api, "some", asks())
    with Daemon(plane, extra_args=("--devices", "allocated")), Following(api, PODS) as pods:
        make.create_all(api, [make.pod("p", spec=uses), make.pod("other")])
        wait_bound(pods, "other", 1)
        wait_said(
            pods, "p", 'is not allocated, and the setting "devices" is "allocated"', "Unsupported"
        )
    api.patch(ROLE, {"rules": role["rules"][1:]})
    try:
        with Daemon(plane, extra_args=ALL), Following(api, PODS) as pods:
            wait_said(
                pods, "p", "is not allocated, and gangsched cannot allocate devices", "Unsupported"
            )
            make.create_all(api, [make.pod("another")])
            wait_bound(pods, "another", 1)
    finally:
        api.patch(ROLE, {"rules": role["rules"]})


def test_the_role_is_bound_and_taken_away_while_it_runs(plane: ControlPlane, api: Api) -> None:
    """`devices: auto`, the default: without the role as `allocated`, with it as `all`; the log has
    each change once.
    """
    role = api.get(ROLE)
    uses = template(api, "some", asks())
    api.patch(ROLE, {"rules": role["rules"][1:]})
    try:
        with Daemon(plane) as daemon, Following(api, PODS) as pods:
            node(api, "n0", gpu("g0"), gpu("g1"))
            make.create_all(api, [make.pod("early", spec=uses), make.pod("other")])
            wait_bound(pods, "other", 1)
            wait_said(
                pods,
                "early",
                "is not allocated, and gangsched cannot allocate devices",
                "Unsupported",
            )

            api.patch(ROLE, {"rules": role["rules"]})
            wait_bound(pods, "early", 1)

            # Only a right to write is taken away: the devices could still be read.
            api.patch(ROLE, {"rules": role["rules"][:1]})
            line_of(daemon, "get resourceclaims in resource.k8s.io", within_s=2 * WITHIN_S)
            make.create_all(api, [make.pod("late", spec=uses), make.pod("plain")])
            wait_bound(pods, "plain", 1)
            wait_said(
                pods,
                "late",
                "is not allocated, and gangsched cannot allocate devices",
                "Unsupported",
            )

            api.patch(ROLE, {"rules": role["rules"]})
            wait_bound(pods, "late", 1)
            told = [
                line["event"]
                for line in daemon.log_lines()
                if "allocated to resource claims" in line["event"]
            ]
        assert [each.split(".")[0].split(" from")[0] for each in told] == [
            "No devices are allocated to resource claims",
            "Devices are allocated to resource claims",
        ] * 2
    finally:
        api.patch(ROLE, {"rules": role["rules"]})


def line_of(daemon: Daemon, fragment: str, *, within_s: float) -> None:
    """Until the log has a line with this."""
    deadline_s = time.monotonic() + within_s
    while not any(fragment in line["event"] for line in daemon.log_lines()):
        assert time.monotonic() < deadline_s, f"the log does not say {fragment!r}"
        time.sleep(0.1)


def test_a_selector_without_an_answer(plane: ControlPlane, api: Api) -> None:
    """A key that a device lacks refuses the pod by name, and delays nobody else."""
    with Daemon(plane, extra_args=ALL), Following(api, PODS) as pods:
        node(api, "n0", gpu("g0"))
        uses = template(api, "bad", asks(**having("model", "h100")))
        good = template(api, "good", asks())
        make.create_all(api, make.gang("bad", members=2, spec=uses))
        wait_said(pods, "bad-0", "InvalidClaim", "no such key: model", f"{DRIVER}/n0/g0")
        make.create_all(api, [make.pod("p", spec=good)])
        wait_bound(pods, "p", 1)


def test_who_is_less_important_gives_up_devices(plane: ControlPlane, api: Api) -> None:
    """A22: victims leave as a whole, and the gang starts once the controller has deallocated their
    claims.
    """
    classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
    for name, value in (("low", 1), ("high", 100)):
        body = {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
        }
        api.post(classes, {**body, "value": value})
    with Daemon(plane, extra_args=ALL), Following(api, PODS) as pods:
        node(api, "n0", gpu("g0"), gpu("g1"))
        uses = template(api, "some", asks()) | {"terminationGracePeriodSeconds": 0}
        make.create_all(api, make.gang("low", members=2, spec=uses | {"priorityClassName": "low"}))
        wait_bound(pods, "low-", 2)
        make.create_all(
            api, make.gang("high", members=2, spec=uses | {"priorityClassName": "high"})
        )
        wait_bound(pods, "high-", 2)
    one_each(api, 2)
    for name in ("low", "high"):
        api.delete(f"{classes}/{name}")


def test_a_device_that_another_scheduler_took(plane: ControlPlane, api: Api) -> None:
    """A17: both claims have the device until ours yields; no member is bound beside it, and others
    are taken.
    """
    taken: list[str] = []

    def take(_: str, claim: Object, __: float) -> None:
        """Another scheduler writes at the moment at which ours has."""
        name = claim["metadata"]["name"]
        if not taken and name != "rival" and (own := allocated({name: claim})):
            taken.extend(own[name])
            status = {"allocation": claim["status"]["allocation"], "reservedFor": [rival]}
            api.patch(f"{HERE}/resourceclaims/rival/status", {"status": status})

    with Daemon(plane, extra_args=ALL), Following(api, PODS) as pods:
        node(api, "n0", gpu("g0"), gpu("g1"))
        node(api, "n1", gpu("g0"), gpu("g1"))
        api.post(f"{HERE}/resourceclaims", resource("ResourceClaim", "rival", asks()))
        uses = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "rival"}]}
        made = api.post(
            "/api/v1/namespaces/default/pods", make.pod("other", scheduler_name="other", spec=uses)
        )
        rival = {"resource": "pods", "name": "other", "uid": made["metadata"]["uid"]}
        with Following(api, CLAIMS, on_change=take):
            make.create_all(api, make.gang("g", members=2, spec=template(api, "some", asks())))
            assert len(set(wait_bound(pods, "g-", 2).values())) == 1
        had = allocated({item["metadata"]["name"]: item for item in api.list(CLAIMS).items})
        assert had.pop("rival") == taken
        assert len({device for devices in had.values() for device in devices} - set(taken)) == 2
    api.delete("/api/v1/namespaces/default/pods/other")
    api.delete(f"{HERE}/resourceclaims/rival")
