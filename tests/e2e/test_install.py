"""Each way to install, with the tools that a user has: applied twice, running, and gone but for the
definitions.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator

import pytest
from control_plane import ControlPlane
from control_plane import objects as make
from control_plane.api import Api, Object
from control_plane.applying import ROOT, apply_yaml, load_yaml
from control_plane.daemon import NAMESPACE

from tests.e2e.installing import (
    CommandError,
    commands,
    everything,
    forget_discovery,
    kubectl,
    type_in,
    wanted,
)
from tests.packaging import INSTALL, install_yaml, kustomized

pytestmark = pytest.mark.e2e

WITHIN_S = 60.0
X_K8S, SIGS = "scheduling.x-k8s.io", "scheduling.sigs.k8s.io"
SPARED = "app.kubernetes.io/component!=definition"
DEFINITION = {
    f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/podgroups.{X_K8S}",
    f"/apis/apiregistration.k8s.io/v1/apiservices/v1alpha1.{X_K8S}",
}
"""The definition that stays, and what the API server makes of it."""


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """A cluster with controllers and kube-scheduler, two nodes with GPUs and two without, and
    Prometheus' operator.
    """
    with ControlPlane(kcm=True, kwok=True, scheduler=True) as plane:
        api = Api.of(plane)
        label = {"nvidia.com/gpu.present": "true"}
        make.create_all(
            api, [make.node(f"gpu-{index}", gpus=8, labels=label) for index in range(2)]
        )
        make.create_all(
            api, [make.node(f"cpu-{index}", gpus=0, cpu="4", memory="8Gi") for index in range(2)]
        )
        for plural, kind in (
            ("servicemonitors", "ServiceMonitor"),
            ("prometheusrules", "PrometheusRule"),
        ):
            apply_yaml(api, operators_definition(plural, kind))
        api.close()
        yield plane


@pytest.fixture
def api(plane: ControlPlane) -> Iterator[Api]:
    """An administrator's client."""
    api = Api.of(plane)
    yield api
    api.close()


def operators_definition(plural: str, kind: str) -> str:
    """A definition of the Prometheus operator that takes anything."""
    return f"""
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {{name: {plural}.monitoring.coreos.com}}
spec:
  group: monitoring.coreos.com
  scope: Namespaced
  names: {{kind: {kind}, plural: {plural}, singular: {kind.lower()}, listKind: {kind}List}}
  versions:
    - name: v1
      served: true
      storage: true
      schema: {{openAPIV3Schema: {{type: object, x-kubernetes-preserve-unknown-fields: true}}}}
"""


def until(
    met: Callable[[], bool], what: Callable[[], object], *, within_s: float = WITHIN_S
) -> None:
    """Wait for what others do; fails with `what()`."""
    deadline_s = time.monotonic() + within_s
    while not met():
        assert time.monotonic() < deadline_s, what()
        time.sleep(0.1)


def replicas(api: Api) -> dict[str, str]:
    """The daemon's pods that are not going, and the node of each."""
    pods = api.list(f"/api/v1/namespaces/{NAMESPACE}/pods").items
    return {
        pod["metadata"]["name"]: pod["spec"].get("nodeName", "")
        for pod in pods
        if "deletionTimestamp" not in pod["metadata"]
    }


def test_install_yaml_is_what_kustomize_makes() -> None:
    """After a change of a manifest: run `make packages`."""
    assert INSTALL.read_text() == install_yaml()


(BY_KUBECTL,), (BY_HELM,) = commands("With kubectl")[:1], commands("With Helm")
UPGRADE_BY_KUBECTL, UPGRADE_BY_HELM = commands("Upgrade")
UNINSTALL_BY_KUBECTL, UNINSTALL_BY_HELM = commands("Uninstall")


def overlay(name: str) -> list[str]:
    """What installs an overlay."""
    return [
        f"kubectl apply --server-side -k overlays/{name}",
        f"kubectl -n {NAMESPACE} rollout status deploy/gangsched --timeout=120s",
    ]


def without(name: str) -> list[str]:
    """What uninstalls an overlay."""
    return [UNINSTALL_BY_KUBECTL[0], f"kubectl delete -k overlays/{name} -l {SPARED} --wait=false"]


WAYS: dict[str, tuple[list[str], list[str], list[str]]] = {
    "no-definitions": (
        overlay("no-definitions"),
        overlay("no-definitions"),
        without("no-definitions"),
    ),
    "helm": (BY_HELM, UPGRADE_BY_HELM, UNINSTALL_BY_HELM),
    "kubectl": (BY_KUBECTL, UPGRADE_BY_KUBECTL, UNINSTALL_BY_KUBECTL),
    "no-gangs-api": (overlay("no-gangs-api"), overlay("no-gangs-api"), without("no-gangs-api")),
    "single": (overlay("single"), overlay("single"), without("single")),
    "monitoring": (overlay("monitoring"), overlay("monitoring"), without("monitoring")),
}
"""What is typed to install, to install again and to uninstall. Nobody serves the API of gangs here,
and it must be gone nevertheless. The one without definitions is first, for these stay; Helm's is
the next, so that kubectl has a definition to upgrade that Helm installed."""


def sent_by(way: str) -> list[Object]:
    """The objects that are sent. That the chart has those of install.yaml is seen
    in test_chart.py.
    """
    if way == "kubectl":
        return load_yaml(INSTALL)
    if way == "helm":
        return [body for body in load_yaml(INSTALL) if body["kind"] != "Namespace"]
    return load_yaml(kustomized(ROOT / "overlays" / way))


@pytest.mark.parametrize("way", WAYS)
def test_it_is_installed_twice_and_gone(plane: ControlPlane, api: Api, way: str) -> None:
    """The second time changes nothing, the replicas run off the nodes with GPUs, and only
    definitions stay.
    """
    before = everything(api)
    install, again, uninstall = WAYS[way]
    type_in(plane, install)
    sent = sent_by(way)
    first = wanted(api, sent)
    assert len(first) == len(sent)
    type_in(plane, again)
    assert wanted(api, sent) == first
    placed = replicas(api)
    assert len(placed) == (1 if way == "single" else 2)
    assert all(name.startswith("cpu-") for name in placed.values()), placed
    type_in(plane, uninstall)
    stays = before | (set() if way == "no-definitions" else DEFINITION)
    until(lambda: everything(api) == stays, lambda: everything(api) ^ stays)
    assert ("PodDisruptionBudget" in {body["kind"] for body in sent}) == (way != "single")


def test_every_command_of_the_page_is_typed_here() -> None:
    """No block of docs/install.md is under a heading that is not looked at."""
    typed = sum(
        len(commands(heading)) for heading in ("With kubectl", "With Helm", "Upgrade", "Uninstall")
    )
    assert (ROOT / "docs" / "install.md").read_text().count("```console") == typed


def test_kubectl_get_podgroup_shows_those_of_operators(plane: ControlPlane, api: Api) -> None:
    """With the definitions of install.yaml; the one that is optional takes the name `podgroup`, but
    not `pg`.
    """
    kubectl(plane, "apply", "--server-side", "-k", ROOT / "crds")
    columns = ["NAME", "MIN", "PHASE", "REASON", "BOUND", "AGE"]
    group = make.pod_group("training", min_member=4)
    api.post(api.path_of(group), group)
    for name in ("podgroup", "podgroups", "pg"):
        head, row = kubectl(plane, "get", name).splitlines()
        assert head.split() == columns
        assert row.split()[:5] == ["training", "4", "Pending", "NoPods", "0"]
    type_in(plane, commands("With kubectl")[1])
    other = make.pod_group("koordinated", min_member=2, api=SIGS)
    api.post(api.path_of(other), other)
    shown: dict[str, str] = {}

    def told() -> bool:
        forget_discovery(plane)
        shown.update(
            {name: kubectl(plane, "get", name, "-o", "name").strip() for name in ("podgroup", "pg")}
        )
        return shown["podgroup"] == f"podgroup.{SIGS}/koordinated"

    until(told, lambda: shown)
    assert shown["pg"] == f"podgroup.{X_K8S}/training"


def test_nodes_with_gpus_are_for_work(plane: ControlPlane, api: Api) -> None:
    """The affinity is required: where only nodes with GPUs take pods the replicas wait, but for the
    overlay.
    """
    for index in range(2):
        kubectl(plane, "cordon", f"cpu-{index}")
    kubectl(plane, "apply", "--server-side", "-f", "manifests/install.yaml")
    wait = (
        "wait",
        "-n",
        "gangsched-system",
        "pod",
        "-l",
        "app.kubernetes.io/name=gangsched",
        "--timeout=30s",
    )
    kubectl(
        plane,
        *wait,
        "--for=jsonpath={.status.conditions[?(@.type=='PodScheduled')].reason}=Unschedulable",
    )
    assert not any(replicas(api).values())
    kubectl(plane, "apply", "--server-side", "-k", "overlays/on-accelerator-nodes")
    kubectl(
        plane, "rollout", "status", "-n", "gangsched-system", "deploy/gangsched", "--timeout=60s"
    )
    assert sorted(replicas(api).values()) == ["gpu-0", "gpu-1"]


def test_a_rollback_and_the_upgrade_after_it(plane: ControlPlane, api: Api) -> None:
    """The runbook's two commands, in their order: the first brings back the image, the second
    everything else.
    """
    runbook = (ROOT / "docs" / "runbook.md").read_text()
    section = runbook.split("Roll back a version:", 1)[1].split("\n\n", 1)[0]
    undo, again = re.findall(r"`(kubectl [^`]+)`", section)
    path = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/gangsched"

    def image() -> str:
        (container,) = api.get(path)["spec"]["template"]["spec"]["containers"]
        return str(container["image"])

    kubectl(plane, "apply", "--server-side", "-f", INSTALL)
    before = image()
    kubectl(plane, "-n", NAMESPACE, "set", "image", "deploy/gangsched", "gangsched=bad:1")
    assert image() == "bad:1"
    type_in(plane, [" ".join(undo.split())])
    assert image() == before

    # Who sets a field by another command owns it.
    kubectl(plane, "-n", NAMESPACE, "set", "image", "deploy/gangsched", "gangsched=bad:2")
    with pytest.raises(CommandError, match="conflict"):
        kubectl(plane, "apply", "--server-side", "-f", INSTALL)
    type_in(plane, [" ".join(again.replace("install.yaml", str(INSTALL)).split())])
    assert image() == before
