"""What a user applies is what the API server takes: every example is bound, every manifest is
accepted as written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from control_plane import ControlPlane
from control_plane import objects as make
from control_plane.api import APPLY_PATCH, Api, Object
from control_plane.applying import ROOT, apply_crds, apply_yaml, load_yaml
from control_plane.daemon import ACCOUNT, NAMESPACE, Daemon
from control_plane.following import Following

from tests.packaging import INSTALL

pytestmark = pytest.mark.e2e

PODS = "/api/v1/pods"
WITHIN_S = 30.0
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
WITHOUT_CONTROLLERS = frozenset({"Pod", "PodGroup", "Namespace", "PriorityClass"})
EXAMPLES = [
    path
    for path in sorted((ROOT / "examples").glob("*.yaml"))
    if {body["kind"] for body in load_yaml(path)} <= WITHOUT_CONTROLLERS
]
"""Those whose pods nobody has to make; `test_examples` applies all of them."""


def resources(folder: Path) -> Iterator[Path]:
    """The files that `kubectl apply -k` would send, in the order of the kustomizations."""
    for name in yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"]:
        path = (folder / name).resolve()
        if path.is_dir():
            yield from resources(path)
        else:
            yield path


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """A control plane with controllers, native PodGroups and everything that `kubectl apply -k
    manifests` sends.
    """
    gates, served = {"GenericWorkload": True}, ["scheduling.k8s.io/v1alpha2=true"]
    with ControlPlane(kcm=True, kwok=True, feature_gates=gates, runtime_config=served) as plane:
        api = Api.of(plane)
        apply_crds(api)  # first, because they are waited for
        for path in resources(ROOT / "manifests"):
            apply_yaml(api, path)
        make.create_all(api, [make.node(f"n{i}", gpus=8) for i in range(4)])
        api.close()
        yield plane


@pytest.fixture
def api(plane: ControlPlane) -> Iterator[Api]:
    """An administrator's client."""
    api = Api.of(plane)
    yield api
    api.close()


@pytest.fixture(scope="module")
def daemon(plane: ControlPlane) -> Iterator[Daemon]:
    """One daemon for all examples, under the rights of its ServiceAccount."""
    with Daemon(plane) as daemon:
        yield daemon


def expected(documents: list[Object]) -> set[str]:
    """The names of the pods that come of these, those of a Job without what the
    controller appends.
    """
    names = {each["metadata"]["name"] for each in documents if each["kind"] == "Pod"}
    for job in (each for each in documents if each["kind"] == "Job"):
        names |= {
            f"{job['metadata']['name']}-{index}" for index in range(job["spec"]["completions"])
        }
    return names


def bound(pods: Mapping[str, Object], names: set[str]) -> bool:
    """Whether each of these has a node."""
    placed = {pod["metadata"]["name"] for pod in pods.values() if pod["spec"].get("nodeName")}
    return all(any(pod == name or pod.startswith(f"{name}-") for pod in placed) for name in names)


def said(group: Object) -> list[tuple[str, str]]:
    """Type and status of a PodGroup's conditions."""
    return [
        (entry["type"], entry["status"]) for entry in group.get("status", {}).get("conditions", ())
    ]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_is_accepted_and_bound(daemon: Daemon, api: Api, path: Path) -> None:
    """Each file, as it is, gives a gang that starts, and its PodGroups say so and complain of
    nothing.
    """
    documents = load_yaml(path)
    for body in documents:
        created = api.post(f"{api.path_of(body)}?fieldValidation=Strict", body)
        assert created["metadata"]["uid"]
    names = expected(documents)
    assert names
    with Following(api, PODS) as pods:
        pods.wait_for(
            lambda items: bound(items, names), within_s=WITHIN_S, what=f"the pods of {path.name}"
        )
    for group in (body for body in documents if body["kind"] == "PodGroup"):
        where, name = api.path_of(group), group["metadata"]["name"]
        is_native = group["apiVersion"].startswith("scheduling.k8s.io/")
        types = ("PodGroupSatisfied", "PodGroupScheduled") if is_native else ("Scheduled",)
        wanted = [(kind, "True") for kind in types]
        with Following(api, where) as groups:
            groups.wait_for(
                lambda items, name=name, wanted=wanted: any(  # type: ignore[misc]
                    item["metadata"]["name"] == name and sorted(said(item)) == wanted
                    for item in items.values()
                ),
                within_s=WITHIN_S,
                what=f"PodGroup {name} to say so",
            )
    assert not [
        line for line in daemon.log_lines() if line.get("level") in {"warning", "error", "critical"}
    ]


def test_kubectl_get_shows_why_a_pod_group_waits(
    daemon: Daemon, plane: ControlPlane, api: Api
) -> None:
    """Name, Min, Phase, Reason, Bound and Age; the Message, a long sentence, is the last column of
    `-o wide`.
    """
    api.post(
        "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/default/podgroups",
        make.pod_group("waits", min_member=2),
    )
    api.post("/api/v1/namespaces/default/pods", make.pod("waits-0", gang="waits"))
    with Following(api, "/apis/scheduling.x-k8s.io/v1alpha1/podgroups") as groups:
        groups.wait_for(
            lambda items: any(
                said(item) == [("Scheduled", "False")]
                for item in items.values()
                if item["metadata"]["name"] == "waits"
            ),
            within_s=WITHIN_S,
            what="the condition of PodGroup waits",
        )
    table = Api.of(plane, accept=TABLE).get(
        "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/default/podgroups/waits"
    )
    columns = {column["name"]: number for number, column in enumerate(table["columnDefinitions"])}
    shown = [column["name"] for column in table["columnDefinitions"] if column["priority"] == 0]
    (row,) = table["rows"]
    assert shown == ["Name", "Min", "Phase", "Reason", "Bound", "Age"]
    assert table["columnDefinitions"][-1]["name"] == "Message"
    assert [row["cells"][columns[name]] for name in ("Name", "Min", "Reason")] == [
        "waits",
        2,
        "WaitingForMembers",
    ]
    assert "1 of 2" in row["cells"][columns["Message"]]


def test_a_pod_group_without_pods_says_so(daemon: Daemon, plane: ControlPlane, api: Api) -> None:
    """In phase and reason, also where no scheduler has written yet; its first pod replaces that."""
    groups = "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/default/podgroups"
    api.post(groups, make.pod_group("alone", min_member=1))
    stored = api.get(f"{groups}/alone")
    (condition,) = stored["status"]["conditions"]
    assert (stored["status"]["phase"], condition["status"], condition["reason"]) == (
        "Pending",
        "Unknown",
        "NoPods",
    )
    table = Api.of(plane, accept=TABLE).get(f"{groups}/alone")
    shown = [column["name"] for column in table["columnDefinitions"] if column["priority"] == 0]
    assert shown == ["Name", "Min", "Phase", "Reason", "Bound", "Age"]
    assert table["rows"][0]["cells"][:5] == ["alone", 1, "Pending", "NoPods", 0]
    api.post("/api/v1/namespaces/default/pods", make.pod("alone-0", gang="alone"))
    with Following(api, groups) as followed:
        followed.wait_for(
            lambda items: any(
                said(item) == [("Scheduled", "True")]
                for item in items.values()
                if item["metadata"]["name"] == "alone"
            ),
            within_s=WITHIN_S,
            what="the condition of PodGroup alone",
        )


def test_the_kustomization_names_every_manifest() -> None:
    """No file is forgotten, and each object is in our namespace or in none."""
    sent = list(resources(ROOT / "manifests"))
    ours = {
        path
        for folder in ("manifests", "manifests/visibility", "crds")
        for path in (ROOT / folder).glob("*.yaml")
    }
    rights = {
        ROOT / "manifests" / f"rbac-{name}.yaml"
        for name in (
            "devices",
            "extended-resources",
            "dialects",
            "owners",
            "owners-jobset",
            "owners-kuberay",
            "owners-kubeflow",
            "provisioning",
        )
    }
    by_hand = {ROOT / "crds" / "scheduling.sigs.k8s.io_podgroups.yaml", *rights}
    assert {path for path in ours if path.name != "kustomization.yaml"} == {
        *sent,
        *by_hand,
        INSTALL,
    }
    assert list(resources(ROOT / "hack" / "kind")) == sent
    # of a Role that is there
    elsewhere = {("RoleBinding", "gangsched-visibility-auth-reader", "kube-system")}
    placed = {
        (body["kind"], body["metadata"]["name"], body["metadata"].get("namespace", NAMESPACE))
        for path in sent
        for body in load_yaml(path)
    }
    assert {each for each in placed if each[2] != NAMESPACE} == elsewhere


def test_every_manifest_is_accepted_as_written(plane: ControlPlane, api: Api) -> None:
    """The API server knows every field, and applying a second time changes nothing."""
    for path in resources(ROOT / "manifests"):
        for body in load_yaml(path):
            where = f"{api.path_of(body)}/{body['metadata']['name']}"
            query = "fieldManager=again&force=true&dryRun=All&fieldValidation=Strict"
            again = api.patch(f"{where}?{query}", body, content_type=APPLY_PATCH)
            assert again["metadata"].get("generation") == api.get(where)["metadata"].get(
                "generation"
            ), where


def template() -> Any:
    """The pod template of the Deployment."""
    (deployment,) = load_yaml(ROOT / "manifests" / "deployment.yaml")
    return deployment["spec"]["template"]


def test_the_daemons_pod_is_admitted(plane: ControlPlane, api: Api) -> None:
    """The pod that the Deployment makes passes the namespace's restricted policy, and never evicts
    anybody.
    """
    with Following(api, PODS) as pods:
        made = pods.wait_for(
            lambda items: next(
                (pod for pod in items.values() if pod["metadata"]["namespace"] == NAMESPACE), None
            ),
            within_s=WITHIN_S,
            what="the Deployment's pod",
        )
    assert made["spec"]["serviceAccountName"] == ACCOUNT
    assert made["spec"]["schedulerName"] == "default-scheduler"
    assert made["spec"]["priority"] == 10**9  # the highest that a class of users may have
    assert made["spec"]["preemptionPolicy"] == "Never"


def test_the_daemons_pod_is_set_up_as_the_manual_says() -> None:
    """Read-only root, no rights, memory and probes; the probes' port is the one the daemon is told
    to use.

    Kubernetes sets no variables for Services: one called gangsched-debug would set our
    GANGSCHED_DEBUG_PORT.
    """
    assert template()["spec"]["enableServiceLinks"] is False
    (container,) = template()["spec"]["containers"]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert container["resources"]["requests"].keys() == {"cpu", "memory"}
    (port,) = container["ports"]
    assert container["args"][container["args"].index("--health-port") + 1] == str(
        port["containerPort"]
    )
    for kind, path in (("startup", "/livez"), ("liveness", "/livez"), ("readiness", "/readyz")):
        assert container[f"{kind}Probe"]["httpGet"] == {"path": path, "port": port["name"]}
