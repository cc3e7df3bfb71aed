"""ProvisioningRequests on a real API server: the autoscaler is played (semantics E10)."""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping

import pytest
from control_plane import ControlPlane
from control_plane import objects as make
from control_plane.api import Api, Object
from control_plane.daemon import ACCOUNT, NAMESPACE, Daemon
from control_plane.following import Following
from control_plane.pods import nodes_of, refusal

from tests.e2e import definitions
from tests.e2e.conftest import PODS, delete_all
from tests.e2e.test_admission import DENIED, answered

pytestmark = pytest.mark.e2e

CLASS = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
ROLE = "/apis/rbac.authorization.k8s.io/v1/clusterroles/gangsched-provisioning"
TEMPLATES = "/api/v1/podtemplates"
WITHIN_S = 30.0
SETTINGS = {
    "GANGSCHED_PROVISIONING": "true",
    "GANGSCHED_PROVISIONING_CLASS": CLASS,
    "GANGSCHED_PROVISIONING_AFTER_S": "0",
}


@pytest.fixture
def version() -> str:
    """The served version."""
    return "v1"


@pytest.fixture(autouse=True)
def served(api: Api, version: str) -> Iterator[None]:
    """The definition; nothing of it is left behind."""
    body = definitions.provisioning(version)
    definitions.install(api, body)
    yield
    delete_all(api, TEMPLATES)
    definitions.remove(api, body)


def path_of(version: str) -> str:
    return f"/apis/autoscaling.x-k8s.io/{version}/provisioningrequests"


def here(version: str) -> str:
    return f"/apis/autoscaling.x-k8s.io/{version}/namespaces/default/provisioningrequests"


def says(api: Api, version: str, name: str, *conditions: tuple[str, str, str]) -> None:
    """The autoscaler writes its conditions."""
    told = [
        {
            "type": kind,
            "status": status,
            "reason": reason,
            "message": "played",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        for kind, status, reason in conditions
    ]
    status = {"conditions": told, "provisioningClassDetails": {"x": "y"}}
    api.patch(f"{here(version)}/{name}/status", {"status": status})


def await_reason(pods: Following, prefix: str, reason: str, *, within_s: float = WITHIN_S) -> None:
    def all_say(items: Mapping[str, Object]) -> bool:
        mine = [pod for pod in items.values() if pod["metadata"]["name"].startswith(prefix)]
        return bool(mine) and all(refusal(pod)[0] == reason for pod in mine)

    pods.wait_for(all_say, within_s=within_s, what=f"{reason} on {prefix}*")


def await_message(api: Api, text: str) -> None:
    """The status of a PodGroup changes with no pod: it is followed itself."""
    path = "/apis/scheduling.x-k8s.io/v1alpha1/podgroups"

    def told(items: Mapping[str, Object]) -> bool:
        return any(text in str(item.get("status", {})) for item in items.values())

    with Following(api, path) as groups:
        groups.wait_for(told, within_s=WITHIN_S, what=f"{text!r}")


def await_one(requests: Following, but: str = "") -> Object:
    def one(items: Mapping[str, Object]) -> Object | None:
        others = [item for item in items.values() if item["metadata"]["uid"] != but]
        return others[0] if len(others) == 1 and len(items) == 1 else None

    found: Object = requests.wait_for(one, within_s=WITHIN_S, what="one request")
    return found


def await_none(requests: Following) -> None:
    requests.wait_for(lambda items: not items, within_s=WITHIN_S, what="no request")


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_a_gang_asks_once_and_starts_on_its_nodes(
    plane: ControlPlane,
    api: Api,
    version: str,
) -> None:
    """E10: across a kill; a plain pod that waited gets none of the nodes that come."""
    daemon = Daemon(plane, environment=SETTINGS)
    with (
        daemon,
        Following(api, PODS) as pods,
        Following(api, path_of(version)) as requests,
    ):
        make.create_all(api, [make.pod("plain", gpus=8), *make.gang("g", members=2, gpus=8)])
        await_reason(pods, "g-", "Provisioning")
        await_reason(pods, "plain", "Unschedulable")
        request = await_one(requests)
        name, uid = request["metadata"]["name"], request["metadata"]["uid"]
        assert request["spec"]["provisioningClassName"] == CLASS
        (pod_set,) = request["spec"]["podSets"]
        assert pod_set["count"] == 2
        template = api.get(
            f"/api/v1/namespaces/default/podtemplates/{pod_set['podTemplateRef']['name']}"
        )
        assert template["template"]["spec"]["schedulerName"] == "gangsched"
        (owner,) = request["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"]) == ("PodGroup", "g")

        daemon.kill()
        daemon.start()
        accepted = ("Accepted", "True", "Accepted")
        says(api, version, name, accepted, ("Provisioned", "False", "CapacityIsNotFound"))
        await_message(api, "has no capacity yet: CapacityIsNotFound: played")

        says(api, version, name, accepted, ("Provisioned", "True", "CapacityIsFound"))
        await_message(api, "is provisioned")
        make.create_all(api, [make.node("n0", gpus=8)])
        await_message(api, "1 new node is reserved until")
        assert await_one(requests)["metadata"]["uid"] == uid

        make.create_all(api, [make.node("n1", gpus=8)])
        pods.wait_for(
            lambda items: sorted(nodes_of(items, "g-").values()) == ["n0", "n1"],
            within_s=WITHIN_S,
            what="the start",
        )
        assert "nodeName" not in api.get("/api/v1/namespaces/default/pods/plain")["spec"]
        await_none(requests)
        with Following(api, TEMPLATES) as templates:
            await_none(templates)


def test_a_request_of_somebody_else_under_the_name_is_left_alone(
    plane: ControlPlane,
    api: Api,
) -> None:
    """E10: the gang says so; its own request goes with the gang."""
    with (
        Daemon(plane, environment=SETTINGS),
        Following(api, PODS) as pods,
        Following(api, path_of("v1")) as requests,
    ):
        objects = make.gang("g", members=2, gpus=8)
        make.create_all(api, objects)
        request = await_one(requests)
        # The PodGroup stays: the name is made from its uid.
        of_gang = [body for body in objects if body["kind"] == "Pod"]
        for body in of_gang:
            api.delete(f"{api.path_of(body)}/{body['metadata']['name']}")

        await_none(requests)
        stranger = {
            "apiVersion": "autoscaling.x-k8s.io/v1",
            "kind": "ProvisioningRequest",
            "metadata": {"name": request["metadata"]["name"], "namespace": "default"},
            "spec": request["spec"],
        }
        kept = api.post(here("v1"), stranger)
        make.create_all(api, of_gang)
        await_message(api, "exists already and belongs to another client")
        await_reason(pods, "g-", "Provisioning")
        assert await_one(requests)["metadata"]["uid"] == kept["metadata"]["uid"]


def test_without_the_role_gangs_ask_as_plain_pods_do(plane: ControlPlane, api: Api) -> None:
    """E10: said once in the log; the role is looked for while the daemon runs."""
    rules = api.get(ROLE)["rules"]
    api.patch(ROLE, {"rules": []})
    try:
        with (
            Daemon(plane, environment=SETTINGS) as daemon,
            Following(api, PODS) as pods,
            Following(api, path_of("v1")) as requests,
        ):
            make.create_all(api, make.gang("g", members=2, gpus=8))
            await_message(api, "No autoscaler is asked for all nodes at once")
            await_reason(pods, "g-", "Unschedulable")
            said = [
                line for line in daemon.log_lines() if "rbac-provisioning.yaml" in line["event"]
            ]
            assert len(said) == 1

            api.patch(ROLE, {"rules": rules})
            await_reason(pods, "g-", "Provisioning")
            await_one(requests)
    finally:
        api.patch(ROLE, {"rules": rules})


def test_a_stolen_token_makes_and_deletes_only_what_belongs_to_a_gang(
    plane: ControlPlane,
    api: Api,
) -> None:
    """Decision 0023: the role grants the resources, the policy the objects."""
    context = ssl.create_default_context(cafile=str(plane.ca_path))
    thief = Api(plane.url, context, token=plane.service_account_token(NAMESPACE, ACCOUNT))
    template = {
        "apiVersion": "v1",
        "kind": "PodTemplate",
        "metadata": {"name": "gangsched-x", "namespace": "default"},
        "template": {"spec": make.pod("x")["spec"]},
    }
    request = {
        "apiVersion": "autoscaling.x-k8s.io/v1",
        "kind": "ProvisioningRequest",
        "metadata": {"name": "gangsched-x", "namespace": "default"},
        "spec": {
            "provisioningClassName": CLASS,
            "podSets": [{"podTemplateRef": {"name": "gangsched-x"}, "count": 1}],
        },
    }
    for body in (template, request):
        code, text = answered(thief, "POST", api.path_of(body), body)
        assert (code, "gangsched-provisioning" in text) == (DENIED, True), text

        api.post(api.path_of(body), body)
        path = f"{api.path_of(body)}/gangsched-x"
        code, text = answered(thief, "DELETE", path, None)
        assert (code, "gangsched-provisioning" in text) == (DENIED, True), text

    thief.close()
