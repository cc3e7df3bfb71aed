"""What the daemon's token is worth beyond fields of its objects: victims, evictions, the Lease, the
API of gangs.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Iterator

import pytest
from control_plane import ControlPlane
from control_plane import objects as make
from control_plane.api import STRATEGIC_PATCH, Api, Object
from control_plane.applying import ROOT, apply, load_yaml
from control_plane.daemon import ACCOUNT, NAMESPACE

from gangsched.api import keys
from tests.e2e.conftest import PODS, delete_all
from tests.e2e.forgeries import (
    API_SERVICE_FORGERIES,
    FOREIGN_POD_FORGERIES,
    LEASE_FORGERIES,
    NO_VICTIMS,
    SECRET_FORGERIES,
    VICTIM,
    condition,
)
from tests.e2e.test_admission import CORE, DENIED, OK, WITHIN_S, answered, assert_denied
from tests.e2e.test_volumes import DEVICES

pytestmark = pytest.mark.e2e

LEASES = "/apis/coordination.k8s.io/v1/namespaces/{}/leases"
API_SERVICE = "/apis/apiregistration.k8s.io/v1/apiservices/v1alpha1.visibility.gangsched.dev"
SECRET = f"/api/v1/namespaces/{NAMESPACE}/secrets/gangsched-visibility"
BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
FORBIDDEN = 403
RUNS = {"nodeName": "n", "terminationGracePeriodSeconds": 30}
PREEMPTED = condition("DisruptionTarget", "True", **VICTIM)


@pytest.fixture
def api(plane: ControlPlane) -> Iterator[Api]:
    """An administrator's client; leaves no pod behind."""
    api = Api.of(plane)
    yield api
    delete_all(api, PODS)
    api.close()


@pytest.fixture(scope="module")
def thief(plane: ControlPlane) -> Iterator[Api]:
    """Who has the daemon's token, once all policies are in force, with every right that an
    administrator may bind.
    """
    admin = Api.of(plane)
    for name in ("rbac.yaml", "secret.yaml", "apiservice.yaml"):
        for body in load_yaml(ROOT / "manifests" / "visibility" / name):
            apply(admin, body)
    admin.post(f"{CORE}/pods", make.pod("probe"))
    (last_resort,) = (
        body
        for body in load_yaml(ROOT / "manifests" / "rbac-preemption.yaml")
        if "subjects" in body
    )
    name = "gangsched-preemption-last-resort"
    apply(
        admin,
        {
            **last_resort,
            "metadata": {"name": name},
            "roleRef": {**last_resort["roleRef"], "name": name},
        },
    )
    thief = Api(
        plane.url,
        ssl.create_default_context(cafile=str(plane.ca_path)),
        token=plane.service_account_token(NAMESPACE, ACCOUNT),
    )
    dry, at = {"dryRun": ["All"]}, "?dryRun=All"
    evict, loot = (
        f"{CORE}/pods/probe/eviction",
        forged(admin, SECRET, SECRET_FORGERIES["another key"]),
    )
    probes: list[Callable[[], int]] = [
        lambda: answered(
            thief, "PATCH", f"{CORE}/pods/probe/status{at}", condition("PodScheduled", "True")
        )[0],
        lambda: delete(thief, "probe", **dry),
        lambda: answered(thief, "POST", evict, eviction("probe", "", **dry))[0],
        lambda: answered(thief, "POST", f"{LEASES.format(NAMESPACE)}{at}", lease("probe"))[0],
        lambda: answered(thief, "PATCH", f"{API_SERVICE}{at}", API_SERVICE_FORGERIES["a label"])[0],
        lambda: answered(thief, "PUT", f"{SECRET}{at}", loot, "application/json")[0],
    ]
    deadline_s = time.monotonic() + WITHIN_S
    for probe in probes:
        while (code := probe()) != DENIED:
            assert time.monotonic() < deadline_s, f"the policies are not in force: {code}"
            time.sleep(0.05)
    admin.delete(f"{CORE}/pods/probe")
    yield thief
    admin.delete(API_SERVICE)  # while nobody answers it, discovery fails
    admin.delete(f"{BINDINGS}/{name}")
    thief.close()


def forged(admin: Api, path: str, change: Object) -> Object:
    """The object with a change to its metadata or its data, as a PUT sends it."""
    body = admin.get(path)
    return {**body, **{part: {**body.get(part, {}), **value} for part, value in change.items()}}


def lease(name: str, **metadata: object) -> Object:
    """A Lease as the daemon creates it."""
    meta = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, **metadata},
    }
    return {**meta, "spec": {"holderIdentity": "x", "leaseDurationSeconds": 15}}


def eviction(name: str, uid: str = "", **options: object) -> Object:
    """An Eviction with these DeleteOptions; with a uid it has that as a precondition."""
    preconditions = {"preconditions": {"uid": uid}} if uid else {}
    meta = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": "default"},
    }
    return {**meta, "deleteOptions": {**preconditions, **options}}


def delete(thief: Api, name: str, **options: object) -> int:
    """Status of the answer to a deletion with these DeleteOptions."""
    body = {"apiVersion": "v1", "kind": "DeleteOptions", **options}
    return answered(thief, "DELETE", f"{CORE}/pods/{name}", body, "application/json")[0]


# --- pods of others -----------------------------------------------------------------------------


@pytest.mark.parametrize("what", FOREIGN_POD_FORGERIES)
def test_nothing_is_said_of_pods_of_other_schedulers(thief: Api, api: Api, what: str) -> None:
    """Nominations, conditions and the timeout annotation are written on pods of our schedulers
    only.
    """
    api.post(f"{CORE}/pods", make.pod("theirs", scheduler_name="other"))
    change, policy = FOREIGN_POD_FORGERIES[what], "gangsched-pod-status"
    assert_denied(thief, api, f"{CORE}/pods/theirs", change, policy=policy, status="/status")
    if what != "that it is preempted":
        api.post(f"{CORE}/pods", make.pod("ours"))
        assert answered(thief, "PATCH", f"{CORE}/pods/ours/status", change, STRATEGIC_PATCH) == (
            200,
            "",
        )


@pytest.mark.parametrize("what", NO_VICTIMS)
def test_who_is_never_preempted_is_not_said_to_be(thief: Api, api: Api, what: str) -> None:
    """V5: DisruptionTarget is for bound pods of our schedulers, of no DaemonSet and below
    system-critical priority.
    """
    body = make.pod("p", spec=NO_VICTIMS[what])
    if what == "a pod of a DaemonSet":
        owner = {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "name": "d",
            "uid": "1",
            "controller": True,
        }
        body["metadata"]["ownerReferences"] = [owner]
    api.post(f"{CORE}/pods", body)
    assert_denied(
        thief, api, f"{CORE}/pods/p", PREEMPTED, policy="gangsched-pod-status", status="/status"
    )


# --- evictions and deletions --------------------------------------------------------------------


def test_evictions_keep_the_grace_period(thief: Api, api: Api) -> None:
    """V13: an eviction names the pod's uid, and leaves how long it has to the pod."""
    uid = api.post(f"{CORE}/pods", make.pod("p", spec=RUNS))["metadata"]["uid"]
    path = f"{CORE}/pods/p/eviction"
    for options in (
        {"gracePeriodSeconds": 0},
        {"gracePeriodSeconds": 1},
        {"propagationPolicy": "Foreground"},
    ):
        code, message = answered(thief, "POST", path, eviction("p", uid, **options))
        assert (code, "gangsched-eviction" in message) == (DENIED, True), message
    code, message = answered(thief, "POST", path, eviction("p"))
    assert (code, "by its uid" in message) == (DENIED, True), message
    assert "deletionTimestamp" not in api.get(f"{CORE}/pods/p")["metadata"]
    assert answered(thief, "POST", path, eviction("p", uid)) == (200, "")
    assert api.get(f"{CORE}/pods/p")["metadata"]["deletionGracePeriodSeconds"] == 30
    # by an administrator, of whom no policy asks anything
    assert delete(api, "p", gracePeriodSeconds=0) == 200


def test_who_is_deleted_was_said_to_be_preempted(thief: Api, api: Api) -> None:
    """With the right for `preempt_pdb: last_resort` a victim is deleted, and nobody else."""
    path = f"{CORE}/pods/p"
    uid = api.post(f"{CORE}/pods", make.pod("p", spec=RUNS))["metadata"]["uid"]
    right = {"preconditions": {"uid": uid}}
    assert delete(thief, "p", **right) == DENIED
    assert answered(thief, "PATCH", f"{path}/status", PREEMPTED, STRATEGIC_PATCH) == (200, "")
    assert delete(thief, "p") == DENIED
    assert delete(thief, "p", **right, gracePeriodSeconds=0) == DENIED
    assert "deletionTimestamp" not in api.get(path)["metadata"]
    assert delete(thief, "p", **right) == 200
    assert delete(api, "p", gracePeriodSeconds=0) == 200


# --- the Lease ----------------------------------------------------------------------------------


def test_there_is_one_lease(thief: Api, api: Api) -> None:
    """One Lease is created and held; none beside it, and nothing but the election is written into
    it.
    """
    ours = LEASES.format(NAMESPACE)
    for wrong in (
        lease("other"),
        lease("", generateName="gangsched"),
        lease("gangsched", labels={"a": "b"}),
    ):
        code, message = answered(thief, "POST", ours, wrong)
        assert (code, "gangsched-lease" in message) == (DENIED, True), message
    assert answered(thief, "POST", LEASES.format("default"), lease("gangsched"))[0] == FORBIDDEN
    assert answered(thief, "POST", ours, lease("gangsched")) == (200, "")
    path = f"{ours}/gangsched"
    for change in LEASE_FORGERIES.values():
        code, message = answered(thief, "PUT", path, forged(api, path, change), "application/json")
        assert (code, "gangsched-lease" in message) == (DENIED, True), message
    renewed = forged(
        api, path, {"spec": {"holderIdentity": "y", "renewTime": "2026-01-01T00:00:00.000000Z"}}
    )
    assert answered(thief, "PUT", path, renewed, "application/json") == (200, "")
    suspects = forged(api, path, {"metadata": {"annotations": {keys.SUSPECTS: '{"a/b":1}'}}})
    assert answered(thief, "PUT", path, suspects, "application/json") == (200, "")
    api.delete(path)


# --- the API of gangs ---------------------------------------------------------------------------


@pytest.mark.parametrize("what", API_SERVICE_FORGERIES)
def test_the_api_of_gangs_cannot_be_redirected(thief: Api, api: Api, what: str) -> None:
    """Of the APIService nothing but the authority that the API server believes is written."""
    assert_denied(
        thief, api, API_SERVICE, API_SERVICE_FORGERIES[what], policy="gangsched-api-service"
    )
    assert answered(thief, "PATCH", API_SERVICE, {"spec": {"caBundle": "QQ=="}}) == (200, "")


@pytest.mark.parametrize("what", SECRET_FORGERIES)
def test_the_secret_holds_a_certificate_only(thief: Api, api: Api, what: str) -> None:
    """The Secret of the API of gangs is no place for anything else."""
    code, message = answered(
        thief, "PUT", SECRET, forged(api, SECRET, SECRET_FORGERIES[what]), "application/json"
    )
    assert (code, "gangsched-certificate" in message) == (DENIED, True), message
    kept = forged(api, SECRET, {"data": {"ca.crt": "YQ==", "tls.crt": "YQ==", "tls.key": "YQ=="}})
    assert answered(thief, "PUT", SECRET, kept, "application/json") == (200, "")


def test_what_no_policy_can_refuse(thief: Api) -> None:
    """API servers ask no policy about SubjectAccessReviews: SECURITY.md says that this right
    remains.
    """
    asked = {"user": "somebody", "resourceAttributes": {"verb": "get", "resource": "secrets"}}
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": asked}
    assert answered(thief, "POST", REVIEWS, body) == (200, "")


def test_of_a_resource_claim_one_finalizer_may_be_added(thief: Api, api: Api) -> None:
    """What an allocation needs and nothing else; without its role, devices are neither allocated
    nor freed.
    """
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.test"}}
    meta = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "bare"},
    }
    api.post(DEVICES, {**meta, "spec": {"devices": {"requests": [request]}}})
    for forged in ({"labels": {"a": "b"}}, {"finalizers": ["example.com/x"]}):
        assert_denied(
            thief,
            api,
            f"{DEVICES}/bare",
            {"metadata": forged},
            policy="gangsched-resource-claim-finalizer",
        )
    ours = {"metadata": {"finalizers": ["resource.kubernetes.io/delete-protection"]}}
    assert answered(thief, "PATCH", f"{DEVICES}/bare", ours) == (200, "")
    result = {"request": "gpu", "driver": "gpu.test", "pool": "p", "device": "d"}
    allocated = {"status": {"allocation": {"devices": {"results": [result]}}}}
    freed = {"status": {"allocation": None}}
    role = "/apis/rbac.authorization.k8s.io/v1/clusterroles/gangsched-devices"
    rules = api.get(role)["rules"]

    def until(expected: int, body: Object) -> None:
        """The authorizer sees a change of a role a moment after it was written."""
        deadline_s = time.monotonic() + WITHIN_S
        while (answer := answered(thief, "PATCH", f"{DEVICES}/bare/status", body))[0] != expected:
            assert time.monotonic() < deadline_s, answer
            if answer[0] == OK:
                api.patch(f"{DEVICES}/bare/status", freed)
            time.sleep(0.05)

    api.patch(role, {"rules": []})
    try:
        until(DENIED, allocated)
        api.patch(f"{DEVICES}/bare/status", allocated)
        assert answered(thief, "PATCH", f"{DEVICES}/bare/status", freed)[0] == DENIED
    finally:
        api.patch(role, {"rules": rules})
    until(OK, freed)
    assert answered(thief, "PATCH", f"{DEVICES}/bare/status", allocated) == (200, "")
    api.patch(f"{DEVICES}/bare/status", freed)
    api.delete(f"{DEVICES}/bare")


# --- PodGroups and Events -----------------------------------------------------------------------
