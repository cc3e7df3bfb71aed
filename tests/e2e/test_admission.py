"""What the daemon's token is worth: what the daemon writes is admitted, all else is answered 422
(decision 0023).
"""

from __future__ import annotations

import copy
import json
import ssl
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from control_plane import ControlPlane
from control_plane import objects as make
from control_plane.api import MERGE_PATCH, STRATEGIC_PATCH, Api, ApiError, Object
from control_plane.applying import ROOT, load_yaml
from control_plane.daemon import ACCOUNT, NAMESPACE, Daemon
from control_plane.following import Following
from control_plane.pods import nodes_of

from tests.e2e.conftest import PODS, delete_all
from tests.e2e.forgeries import (
    CLAIM_FORGERIES,
    CONSUMER_FORGERIES,
    POD_FORGERIES,
    PODGROUP_CONSUMER,
    TIMEOUT,
    VICTIM,
    VOLUME_FORGERIES,
    condition,
)
from tests.e2e.test_volumes import (
    CLAIMS,
    CLASSES,
    DEVICES,
    SELECTED,
    VOLUMES,
    claim,
    storage_class,
    volume,
)

pytestmark = pytest.mark.e2e

PLANE = {"kcm": True, "kwok": True}
CORE = "/api/v1/namespaces/default"
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
GROUPS = "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/default/podgroups"
STAMPS = "gangsched-stamp"
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
WITHIN_S = 20.0
OK, DENIED = 200, 422
POLICY_NAMES = [
    body["metadata"]["name"]
    for body in load_yaml(ROOT / "manifests" / "admission.yaml")
    if body["kind"] == "ValidatingAdmissionPolicy"
]

KILLING: Object = {
    "metadata": {"name": "e", "namespace": "default"},
    "eventTime": "2026-01-01T00:00:00.000000Z",
    "reportingController": "kubelet",
    "reportingInstance": "x",
    "action": "Killing",
    "reason": "Killing",
    "type": "Normal",
    "regarding": {"apiVersion": "v1", "kind": "Pod", "namespace": "default", "name": "p"},
    "note": "Stopping container main",
}
"""An Event of a kubelet."""


@pytest.fixture
def api(plane: ControlPlane) -> Iterator[Api]:
    """An administrator's client; leaves nothing behind that a test made."""
    api = Api.of(plane)
    yield api
    delete_all(
        api,
        PODS,
        "/apis/scheduling.x-k8s.io/v1alpha1/podgroups",
        CLAIMS,
        VOLUMES,
        CLASSES,
        "/api/v1/nodes",
    )
    with Following(api, CLAIMS) as claims, Following(api, VOLUMES) as volumes:
        for collection in (claims, volumes):
            collection.wait_for(
                lambda items: not items, within_s=WITHIN_S, what="the end of protection"
            )
    api.close()


@pytest.fixture(scope="module")
def thief(plane: ControlPlane) -> Iterator[Api]:
    """Who has the daemon's token, once all policies are in force: they are a moment after they are
    stored.

    The API server answers 422 to objects that are invalid, too.
    """
    admin = Api.of(plane)
    context = ssl.create_default_context(cafile=str(plane.ca_path))
    thief = Api(plane.url, context, token=plane.service_account_token(NAMESPACE, ACCOUNT))
    admin.post(f"{CORE}/pods", make.pod("probe"))
    probes: list[tuple[str, str, Object]] = [
        ("PATCH", f"{CORE}/pods/probe/status?dryRun=All", {"metadata": {"labels": {"a": "b"}}}),
        ("POST", f"{EVENTS}?dryRun=All", KILLING),
    ]
    deadline_s = time.monotonic() + WITHIN_S
    for method, path, body in probes:
        while "ValidatingAdmissionPolicy" not in answered(thief, method, path, body)[1]:
            assert time.monotonic() < deadline_s, "the policies are not in force"
            time.sleep(0.05)
    admin.delete(f"{CORE}/pods/probe")
    yield thief
    thief.close()


def answered(
    api: Api, method: str, path: str, body: Any, content_type: str = MERGE_PATCH
) -> tuple[int, str]:
    """Status and message of the answer to a request."""
    try:
        api.call(
            method,
            path,
            body,
            content_type="application/json" if method == "POST" else content_type,
        )
    except ApiError as error:
        return error.status, error.message
    return 200, ""


def assert_denied(
    thief: Api, admin: Api, path: str, body: Object, *, policy: str, status: str = ""
) -> None:
    """The patch is answered 422 by this policy, in both kinds of patch, and the object is as it
    was.

    A list is merged by one kind and replaced by the other; both are tried. `status` is "/status"
    for the subresource.
    """
    before = admin.get(path)
    for kind in (STRATEGIC_PATCH, MERGE_PATCH):
        code, message = answered(thief, "PATCH", path + status, body, kind)
        if code == 415:  # custom resources know no strategic merge
            continue
        assert (code, policy in message) == (DENIED, True), f"{kind}: {code} {message}"
    assert admin.get(path) == before


# --- pods ---------------------------------------------------------------------------------------


@pytest.fixture
def pod(api: Api) -> Object:
    """A pod that waits, with labels, an annotation and a condition of somebody else."""
    body = make.pod("p", labels={"app": "a"}, annotations={"kept": "yes"})
    api.post(f"{CORE}/pods", body)
    return api.patch(f"{CORE}/pods/p/status", condition("example.com/theirs", "True"))


@pytest.mark.parametrize("what", POD_FORGERIES)
def test_forgeries_of_pods_are_refused(thief: Api, api: Api, pod: Object, what: str) -> None:
    """Of a pod's metadata and status nothing can be forged through pods/status."""
    assert_denied(
        thief,
        api,
        f"{CORE}/pods/p",
        POD_FORGERIES[what],
        policy="gangsched-pod-status",
        status="/status",
    )


def test_spec_and_owners_cannot_be_forged_through_the_status(
    thief: Api, api: Api, pod: Object
) -> None:
    """The API server itself leaves these as they are, and answers 200; the pod itself is forbidden
    by RBAC.
    """
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "1"}
    before = api.get(f"{CORE}/pods/p")
    for forged in (
        {"metadata": {"ownerReferences": [owner]}},
        {"spec": {"activeDeadlineSeconds": 1}},
    ):
        assert answered(thief, "PATCH", f"{CORE}/pods/p/status", forged, STRATEGIC_PATCH)[0] == 200
        assert answered(thief, "PATCH", f"{CORE}/pods/p", forged, STRATEGIC_PATCH)[0] == 403
    assert answered(thief, "PUT", f"{CORE}/pods/p/status", before, "application/json")[0] == 403
    assert api.get(f"{CORE}/pods/p") == before


def test_what_is_told_of_bound_pods(thief: Api, api: Api, pod: Object) -> None:
    """A pod that is bound cannot be called unscheduled or nominated, and can still be called a
    victim.
    """
    path = f"{CORE}/pods/p"
    api.bind("default", "p", "n")
    code, message = answered(
        thief, "PATCH", f"{path}/status", condition("PodScheduled", "False"), STRATEGIC_PATCH
    )
    assert (code, "gangsched-pod-status" in message) == (DENIED, True)
    nominated = {"status": {"nominatedNodeName": "n"}}
    # by the API server itself
    assert answered(thief, "PATCH", f"{path}/status", nominated)[0] == DENIED
    victim = condition("DisruptionTarget", "True", **VICTIM)
    assert answered(thief, "PATCH", f"{path}/status", victim, STRATEGIC_PATCH) == (200, "")


def test_pods_with_as_many_annotations_as_are_compared(thief: Api, api: Api) -> None:
    """The cost that the API server allows is enough for 5,000 annotations; with more, conditions
    are still written.
    """
    for name, number in (("many", 5_000), ("more", 5_001)):
        api.post(
            f"{CORE}/pods",
            make.pod(name, annotations={f"{index:x}": "" for index in range(number)}),
        )
        path = f"{CORE}/pods/{name}/status"
        told = condition("PodScheduled", "False", reason="Unschedulable", message="m")
        assert answered(thief, "PATCH", path, told, STRATEGIC_PATCH) == (200, "")
        timeout = {"metadata": {"annotations": {TIMEOUT: "true"}}}
        assert answered(thief, "PATCH", path, timeout, STRATEGIC_PATCH)[0] == (
            200 if name == "many" else DENIED
        )


def test_administrators_are_not_looked_at(thief: Api, api: Api, pod: Object) -> None:
    """The policies are for one account: the kubelet, and everybody else, writes as before."""
    for forged in (
        POD_FORGERIES["the phase"],
        POD_FORGERIES["a label"],
        POD_FORGERIES["another condition"],
    ):
        assert answered(api, "PATCH", f"{CORE}/pods/p/status", forged, STRATEGIC_PATCH) == (200, "")


def test_nobody_but_gangsched_writes_stamps(thief: Api, api: Api) -> None:
    """B4: an owner of pods cannot create a pod with its stamp, add or change one, or bind
    with one.
    """
    uid = "0f4e2a6c-6a3e-4c1e-9a57-3b1d8f0f2c11"
    forged = make.pod(
        "f", annotations={"gangsched.dev/permitted": f"8/1 {uid}"}, spec={"nodeName": "n"}
    )
    forged["metadata"]["uid"] = uid
    assert api.post(f"{CORE}/pods", forged)["metadata"]["uid"] != uid, (
        "a stamp could be written at creation"
    )
    make.create_all(api, [make.pod("p"), make.pod("q")])
    for name in ("p", "q"):
        text = f"8/1 {api.get(f'{CORE}/pods/{name}')['metadata']['uid']}"
        stamp = {"metadata": {"annotations": {"gangsched.dev/permitted": text}}}
        for path in ("", "/status"):
            code, message = answered(
                api, "PATCH", f"{CORE}/pods/{name}{path}", stamp, STRATEGIC_PATCH
            )
            assert (code, "gangsched-stamp" in message) == (DENIED, True), message
        binding = {
            "metadata": {"name": name, **stamp["metadata"]},
            "target": {"kind": "Node", "name": "n"},
        }
        if name == "p":
            for path in (f"{CORE}/pods/p/binding", f"{CORE}/bindings"):
                code, message = answered(api, "POST", path, binding)
                assert (code, "gangsched-stamp" in message) == (DENIED, True), message
            assert answered(thief, "POST", f"{CORE}/pods/p/binding", binding) == (200, "")
            written = text
    ours = f"{CORE}/pods/p"
    for other in ("9/1", "8/2"):
        raised = {
            "metadata": {"annotations": {"gangsched.dev/permitted": written.replace("8/1", other)}}
        }
        assert answered(api, "PATCH", ours, raised, STRATEGIC_PATCH)[0] == DENIED
    assert answered(api, "PATCH", ours, {"metadata": {"labels": {"a": "b"}}}, STRATEGIC_PATCH) == (
        200,
        "",
    )
    assert note(api.get(ours), "gangsched.dev/permitted") == written
    assert answered(api, "PATCH", ours, {"metadata": {"annotations": None}}, MERGE_PATCH) == (
        200,
        "",
    )


def test_a_forged_stamp_passes_nobody(plane: ControlPlane, thief: Api, api: Api) -> None:
    """B4, Q2: by a stamp that its owner wrote before a policy forbade it, a gang passes no older
    pod.
    """
    binding = f"/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/{STAMPS}"
    kept = api.get(binding)
    api.delete(binding)
    forged = api.post(f"{CORE}/pods", make.pod("forged-0", gang="forged", spec={"nodeName": "n0"}))[
        "metadata"
    ]
    stamp = {"metadata": {"annotations": {"gangsched.dev/permitted": f"3/1 {forged['uid']}"}}}
    deadline_s = time.monotonic() + WITHIN_S
    while answered(api, "PATCH", f"{CORE}/pods/forged-0", stamp, STRATEGIC_PATCH)[0] == DENIED:
        assert time.monotonic() < deadline_s, "the policy does not go"
        time.sleep(0.05)
    api.post(binding.rpartition("/")[0], {**kept, "metadata": {"name": STAMPS}})
    make.create_all(api, [make.node("n0", gpus=4, unschedulable=True), make.pod("older", gpus=3)])
    # of creation: pods of one second are in the order of their names (Q1)
    second = int(time.time())
    while int(time.time()) == second:
        time.sleep(0.02)
    make.create_all(
        api, [make.pod_group("forged", min_member=3), *(later(index) for index in (1, 2))]
    )
    with Following(api, PODS) as pods, Daemon(plane):
        wait(
            pods,
            lambda items: sum(said(pod, "PodScheduled") for pod in items.values()) == 3,
            "refusals",
        )
        api.patch("/api/v1/nodes/n0", {"spec": {"unschedulable": None}})
        wait(pods, lambda items: "older" in nodes_of(items, "older"), "the older pod")
        assert nodes_of(pods.objects(), "forged-1") == {}


def later(index: int) -> Object:
    """A pod of the forger's that is as large as what is free."""
    return make.pod(f"forged-{index}", gang="forged", gpus=3)


@pytest.mark.parametrize(
    "forged",
    [
        {"metadata": {"annotations": {"x": "y"}}},
        {"metadata": {"annotations": {"gangsched.dev/permitted": "mine"}}},
        {"metadata": {"labels": {"app": "other"}}},
    ],
    ids=["an annotation", "another stamp", "a label"],
)
def test_forgeries_by_a_binding_are_refused(
    thief: Api, api: Api, pod: Object, forged: Object
) -> None:
    """Labels and annotations of a Binding would be copied onto the pod."""
    binding = {
        "metadata": {"name": "p", **forged["metadata"]},
        "target": {"kind": "Node", "name": "n"},
    }
    code, message = answered(thief, "POST", f"{CORE}/pods/p/binding", binding)
    assert (code, "gangsched-binding" in message) == (DENIED, True)
    assert api.get(f"{CORE}/pods/p")["metadata"]["labels"] == pod["metadata"]["labels"]


# --- volumes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", CLAIM_FORGERIES)
def test_forgeries_of_claims_are_refused(thief: Api, api: Api, what: str) -> None:
    """Of a claim nothing but the selected node can be written."""
    make.create_all(api, [storage_class("late"), claim("c")])
    path = f"{CORE}/persistentvolumeclaims/c"
    settled(api, CLAIMS, "Pending")
    assert_denied(thief, api, path, CLAIM_FORGERIES[what], policy="gangsched-claim")


@pytest.mark.parametrize("what", VOLUME_FORGERIES)
def test_forgeries_of_volumes_are_refused(thief: Api, api: Api, what: str) -> None:
    """Of a volume nothing but a claim can be written, and never over another one."""
    make.create_all(api, [storage_class("late")])
    owner = {"metadata": {"name": "c", "uid": "0a1b2c3d-0000-4000-8000-000000000000"}}
    make.create_all(api, [volume("v", owner=owner)])
    settled(api, VOLUMES, "Released")
    assert_denied(thief, api, f"{VOLUMES}/v", VOLUME_FORGERIES[what], policy="gangsched-volume")


def settled(api: Api, path: str, phase: str, name: str = "") -> None:
    """Wait until the controllers have said what they have to say of each object of a collection, or
    of this one.
    """

    def is_settled(item: Object) -> bool:
        return bool(item["metadata"].get("finalizers")) and item["status"].get("phase") == phase

    def are_settled(items: Mapping[str, Object]) -> bool:
        wanted = [item for item in items.values() if name in ("", item["metadata"]["name"])]
        return bool(wanted) and all(map(is_settled, wanted))

    with Following(api, path) as seen:
        seen.wait_for(are_settled, within_s=WITHIN_S, what=f"the controllers at {path}")


def test_forgeries_of_resource_claims_are_refused(thief: Api, api: Api) -> None:
    """Pods and native PodGroups may be entered; nothing is taken away and nothing allocated."""
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.test"}}
    meta = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "shared"},
    }
    api.post(DEVICES, {**meta, "spec": {"devices": {"requests": [request]}}})
    result = {"request": "gpu", "driver": "gpu.test", "pool": "p", "device": "d"}
    user = {
        "resource": "pods",
        "name": "a",
        "uid": api.post(f"{CORE}/pods", make.pod("a"))["metadata"]["uid"],
    }
    allocated = {"allocation": {"devices": {"results": [result]}}, "reservedFor": [user]}
    api.patch(f"{DEVICES}/shared/status", {"status": allocated})
    before = api.get(f"{DEVICES}/shared")
    other = copy.deepcopy(allocated["allocation"])
    other["devices"]["results"][0]["device"] = "e"  # type: ignore[index]
    consumers = ([user, {**user, **consumer}] for consumer in CONSUMER_FORGERIES)
    for forged in ({"reservedFor": []}, *({"reservedFor": each} for each in consumers)):
        code, message = answered(thief, "PATCH", f"{DEVICES}/shared/status", {"status": forged})
        assert (code, "gangsched-resource-claim" in message) == (DENIED, True), message
    assert (
        answered(thief, "PATCH", f"{DEVICES}/shared/status", {"status": {"allocation": other}})[0]
        == DENIED
    )
    assert api.get(f"{DEVICES}/shared") == before
    users = {"reservedFor": [user, PODGROUP_CONSUMER]}
    assert answered(thief, "PATCH", f"{DEVICES}/shared/status", {"status": users}) == (200, "")
    api.delete(f"{DEVICES}/shared")


@pytest.mark.parametrize(
    "forged",
    [
        {"spec": {"minMember": 1}},
        {"metadata": {"labels": {"a": "b"}}},
        {"metadata": {"finalizers": ["example.com/x"]}},
    ],
    ids=["spec", "label", "finalizer"],
)
def test_forgeries_of_pod_groups_are_refused(thief: Api, api: Api, forged: Object) -> None:
    """The object is patched where there is no status subresource, and then its status only."""
    api.post(GROUPS, make.pod_group("g", min_member=4))
    assert_denied(thief, api, f"{GROUPS}/g", forged, policy="gangsched-pod-group")


def test_forgeries_of_events_are_refused(thief: Api, api: Api) -> None:
    """Nobody else's Event is written or changed, and of one of ours only how often it happened."""
    assert answered(thief, "POST", EVENTS, KILLING)[0] == DENIED
    api.post(EVENTS, KILLING)
    series = {"series": {"count": 2, "lastObservedTime": "2026-01-01T00:00:01.000000Z"}}
    assert_denied(thief, api, f"{EVENTS}/e", series, policy="gangsched-event")
    ours = {
        **KILLING,
        "metadata": {**KILLING["metadata"], "name": "ours"},
        "reportingController": "gangsched",
    }
    assert answered(thief, "POST", EVENTS, ours) == (200, "")
    assert_denied(
        thief, api, f"{EVENTS}/ours", {"metadata": {"labels": {"a": "b"}}}, policy="gangsched-event"
    )
    # by the API server itself
    assert answered(thief, "PATCH", f"{EVENTS}/ours", {"note": "other"})[0] == DENIED
    assert answered(thief, "PATCH", f"{EVENTS}/ours", series) == (200, "")


# --- the daemon under them ----------------------------------------------------------------------


def test_the_daemon_works_under_the_policies(plane: ControlPlane, thief: Api, api: Api) -> None:
    """Gangs are bound and stamped, told why they wait, timed out, preempt and get volumes, and
    nothing is denied.
    """
    make.create_all(api, [make.node("n0", gpus=4), storage_class("late")])
    api.post("/apis/scheduling.k8s.io/v1/priorityclasses", priority_class("urgent", 1_000))
    local = storage_class("local", provisioner="kubernetes.io/no-provisioner")
    disk = volume("disk", "local", key="kubernetes.io/hostname", value="n0")
    make.create_all(api, [local, disk, claim("static", "local"), claim("dynamic")])
    with Daemon(plane) as daemon, Following(api, PODS) as pods:
        settled(api, VOLUMES, "Available", "disk")
        make.create_all(api, [make.pod("filler", gpus=2, spec={"nodeName": "n0"}), *sweep()])
        wait(
            pods,
            lambda items: (
                [note_of(items, f"sweep-{index}", TIMEOUT) for index in range(3)] == ["true"] * 3
            ),
            "a gang that times out",
        )
        delete_all(api, PODS)
        make.create_all(api, make.gang("low", members=4, gpus=1))
        wait(pods, lambda items: len(nodes_of(items, "low-")) == 4, "a gang that is bound")
        stamps = {note(pod, "gangsched.dev/permitted") for pod in pods.objects().values()}
        assert {stamp.partition("/")[0] for stamp in stamps} == {"4"}
        make.create_all(api, make.gang("next", members=2, gpus=1))
        wait(
            pods,
            lambda items: any(said(pod, "PodScheduled") for pod in items.values()),
            "a refusal",
        )
        make.create_all(
            api, make.gang("high", members=2, gpus=1, spec={"priorityClassName": "urgent"})
        )
        wait(pods, lambda items: len(nodes_of(items, "high-")) == 2, "a gang that preempts")
        stores = [
            {"name": "data", "persistentVolumeClaim": {"claimName": each}}
            for each in ("static", "dynamic")
        ]
        make.create_all(
            api,
            [make.pod(f"v{index}", spec={"volumes": [each]}) for index, each in enumerate(stores)],
        )
        wait(pods, lambda items: "v0" in nodes_of(items), "a pod with a volume that exists")
        with Following(api, CLAIMS) as claims:
            claims.wait_for(
                lambda items: note_of(items, "dynamic", SELECTED) == "n0",
                within_s=WITHIN_S,
                what="a selected node",
            )
        assert not [line for line in daemon.log_lines() if "denied request" in json.dumps(line)]
        numbers = daemon.metrics()
        lost = (
            "outbox_dropped",
            "outbox_faults",
            "recorder_faults",
            "recorder_dropped",
            "writer_not_prepared",
        )
        assert {
            name: value
            for name, value in numbers.items()
            if value and any(each in name for each in lost)
        } == {}
        for done in ("prepared", "evicted"):
            assert (
                sum(value for name, value in numbers.items() if f"_writer_{done}_total" in name)
                >= 1
            )
    api.delete("/apis/scheduling.k8s.io/v1/priorityclasses/urgent")


def sweep() -> list[Object]:
    """A NonStrict gang of three that holds what there is for a second."""
    notes = make.gang_annotations("sweep", 3, mode="NonStrict", waiting_time="1s")
    return [make.pod(f"sweep-{index}", gpus=1, annotations=notes) for index in range(3)]


def priority_class(name: str, value: int) -> Object:
    """A PriorityClass."""
    meta = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
    }
    return {**meta, "value": value}


def note(item: Object, key: str) -> str:
    """An annotation."""
    return str(item["metadata"].get("annotations", {}).get(key, ""))


def note_of(items: Mapping[str, Object], name: str, key: str) -> str:
    """An annotation of the object of this name."""
    return next(
        (note(item, key) for item in items.values() if item["metadata"]["name"] == name), ""
    )


def said(pod: Object, kind: str) -> bool:
    """Whether a pod has this condition, False."""
    conditions = pod.get("status", {}).get("conditions", ())
    return any((each["type"], each["status"]) == (kind, "False") for each in conditions)


def wait(pods: Following, look: Any, what: str) -> None:
    """Until the pods look so."""
    pods.wait_for(look, within_s=WITHIN_S, what=what)


def test_the_policies_are_sound(thief: Api, api: Api) -> None:
    """The controller manager has checked the types of every expression and complains of none."""
    with Following(api, POLICIES) as policies:
        checked = policies.wait_for(
            lambda items: (
                items
                if all("typeChecking" in each.get("status", {}) for each in items.values())
                else None
            ),
            within_s=WITHIN_S,
            what="checked types",
        )
    found = {each["metadata"]["name"]: each["status"]["typeChecking"] for each in checked.values()}
    assert found == {name: {} for name in POLICY_NAMES}
