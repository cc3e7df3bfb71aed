"""`map`: what is free and who has what, node by node."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from kubectl_gangsched.main import cli
from tests.fake_api import forbidden, listed, node, pod, served

NODES, PODS = "/api/v1/nodes", "/api/v1/pods"
DEVICE_LISTS = ("resourceslices", "resourceclaims")


def test_each_unit_has_the_letter_of_its_user(tmp_path: Path) -> None:
    """Gangs are users as a whole, plain pods alone; the largest comes first; a cordoned node has
    nothing free.
    """
    nodes = listed(node("n0", 8), node("n1", 4, unschedulable=True), node("cpu", 0))
    ended = pod("ended", node="n0", gpus=5)
    ended["status"]["phase"] = "Succeeded"
    pods = listed(
        pod("a-0", gang="a", node="n0", gpus=2),
        pod("a-1", gang="a", node="n1", gpus=2),
        pod("b", node="n0", gpus=1),
        ended,
    )
    with served(tmp_path, {NODES: nodes, PODS: pods}) as (_, kubeconfig):
        text = CliRunner().invoke(cli, ["map", "--kubeconfig", str(kubeconfig)])
        told = CliRunner().invoke(cli, ["map", "-o", "json", "--kubeconfig", str(kubeconfig)])
    assert text.exit_code == 0
    assert text.output.splitlines() == [
        "5 of 12 nvidia.com/gpu are free on 2 nodes; at most 5 on one node.",
        "n0    5 free of 8    AAB.....",
        "n1    0 free of 4    AAxx  (cordoned: takes no new pods)",
        "",
        "   GANG OR POD  HAS  NODES",
        "A  team/a       4    2",
        "B  team/b       1    1",
    ]
    assert json.loads(told.output)["resources"]["nvidia.com/gpu"][0] == {
        "node": "n0",
        "product": "",
        "total": 8,
        "free": 5,
        "closed": "",
        "users": {"team/a": 2, "team/b": 1},
    }


def test_amounts_have_the_units_of_kubernetes(tmp_path: Path) -> None:
    """Cores and bytes as in a manifest, not as they are counted."""
    machine = node("n0", 0)
    machine["status"]["allocatable"] |= {"cpu": "64", "memory": "512Gi"}
    user = pod("a", node="n0")
    user["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "1500m", "memory": "256Gi"}
    with served(tmp_path, {NODES: listed(machine), PODS: listed(user)}) as (_, kubeconfig):
        shown = {
            name: CliRunner()
            .invoke(cli, ["map", "--resource", name, "--kubeconfig", str(kubeconfig)])
            .output.splitlines()
            for name in ("cpu", "memory")
        }
    assert shown["cpu"][:2] == [
        "62500m of 64 cpu are free on 1 node; at most 62500m on one node.",
        "n0  62500m free of 64   A×1500m ",
    ]
    assert shown["memory"][0] == (
        "256Gi of 512Gi memory are free on 1 node; at most 256Gi on one node."
    )
    assert shown["memory"][-1].split() == ["A", "team/a", "256Gi", "1"]


@pytest.mark.parametrize(
    ("condition", "taint", "word"),
    [
        ({"type": "Ready", "status": "False"}, None, "not ready"),
        ({"type": "Ready", "status": "Unknown"}, None, "unreachable"),
        ({"type": "Ready", "status": "True"}, "node.kubernetes.io/unreachable", "unreachable"),
        (None, "node.kubernetes.io/not-ready", "not ready"),
    ],
    ids=["not ready", "no report", "tainted unreachable", "tainted not ready"],
)
def test_a_node_that_is_not_ready_has_nothing_free(
    tmp_path: Path, condition: dict[str, str] | None, taint: str | None, word: str
) -> None:
    """By its condition or the taint that follows it: drawn as closed, with the word for it."""
    lost = node("n0", 4, **({"taints": [{"key": taint, "effect": "NoSchedule"}]} if taint else {}))
    lost["status"]["conditions"] = [
        {"type": "MemoryPressure", "status": "False"},
        *([condition] if condition else []),
    ]
    with served(tmp_path, {NODES: listed(lost, node("n1", 4)), PODS: listed()}) as (_, kubeconfig):
        text = CliRunner().invoke(cli, ["map", "--kubeconfig", str(kubeconfig)])
        told = CliRunner().invoke(cli, ["map", "-o", "json", "--kubeconfig", str(kubeconfig)])
    assert text.output.splitlines()[0].startswith("4 of 8 nvidia.com/gpu are free")
    assert f"n0    0 free of 4    xxxx  ({word}: takes no new pods)" in text.output.splitlines()
    first, _ = json.loads(told.output)["resources"]["nvidia.com/gpu"]
    assert (first["free"], first["closed"]) == (0, word)


def test_what_the_settings_call_an_accelerator_is_drawn(tmp_path: Path) -> None:
    """The setting `accelerators` of the installed scheduler counts, where its Deployment and
    ConfigMap may be read.
    """
    machine = node("n0", 0)
    machine["status"]["allocatable"]["example.com/tpu"] = "2"
    mounted = {
        "containers": [{"name": "c", "image": "i"}],
        "volumes": [{"configMap": {"name": "gangsched"}}],
    }
    meta: dict[str, Any] = {"name": "gangsched", "namespace": "gangsched-system"}
    meta["labels"] = {"app.kubernetes.io/name": "gangsched"}
    answers = {
        NODES: listed(machine),
        PODS: listed(),
        "/apis/apps/v1/deployments": listed(
            {"metadata": meta, "spec": {"template": {"spec": mounted}}}
        ),
        "/api/v1/namespaces/gangsched-system/configmaps/gangsched": {
            "data": {"config.yaml": "accelerators: [example.com/tpu]"}
        },
    }
    with served(tmp_path, answers) as (_, kubeconfig):
        text = CliRunner().invoke(cli, ["map", "--kubeconfig", str(kubeconfig)])
    assert text.output.startswith("2 of 2 example.com/tpu are free on 1 node"), text.output


def test_who_may_not_list_nodes_is_told_which_right_is_lacking(tmp_path: Path) -> None:
    """One sentence and exit code 2."""
    with served(tmp_path, {NODES: forbidden("list", "nodes"), PODS: listed()}) as (_, kubeconfig):
        answer = CliRunner().invoke(cli, ["map", "--kubeconfig", str(kubeconfig)])
    assert (answer.exit_code, answer.stdout) == (2, "")
    assert answer.stderr.startswith(
        "kubectl-gangsched: You (user alice) may not list nodes in the whole cluster, "
    )


@pytest.mark.parametrize("resource", ["resourceslices", "resourceclaims"])
def test_who_may_not_list_devices_is_told_so_below_the_map(tmp_path: Path, resource: str) -> None:
    """The map is whole but for these; who names a resource is not told."""
    refusal = forbidden("list", resource)
    answers = {NODES: listed(node("n0", 8)), PODS: listed()}
    answers |= {f"/apis/resource.k8s.io/v1/{name}": listed() for name in DEVICE_LISTS}
    answers[f"/apis/resource.k8s.io/v1/{resource}"] = refusal
    missing = (
        f"You (user alice) may not list {resource} in the whole cluster: devices of claims are not"
        " shown."
    )
    with served(tmp_path, answers) as (_, kubeconfig):
        config = ["--kubeconfig", str(kubeconfig)]
        text = CliRunner().invoke(cli, ["map", *config])
        named = CliRunner().invoke(cli, ["map", "--resource", "nvidia.com/gpu", *config])
        value = CliRunner().invoke(cli, ["map", "-o", "json", *config])

    assert text.exit_code == 0, text.output
    assert text.output.startswith("8 of 8 nvidia.com/gpu are free on 1 node;")
    assert text.output.endswith(f"........\n\n{missing}\n")
    assert "claims" not in named.output
    assert json.loads(value.output)["missing"] == missing


def test_a_cluster_without_accelerators_says_so(tmp_path: Path) -> None:
    """There is nothing to draw unless a resource is named."""
    with served(tmp_path, {NODES: listed(node("cpu", 0)), PODS: listed()}) as (_, kubeconfig):
        answer = CliRunner().invoke(cli, ["map", "--kubeconfig", str(kubeconfig)])
        named = CliRunner().invoke(
            cli, ["map", "--resource", "pods", "--kubeconfig", str(kubeconfig)]
        )
    assert answer.exit_code == 2
    assert "name a resource with --resource" in answer.stderr
    assert named.output.startswith("110 of 110 pods are free on 1 node;")
