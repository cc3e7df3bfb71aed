"""`snapshot`: what decides is in the file, and what must not leave the cluster is not."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from gangsched.api import keys
from gangsched.snapshots import file
from kubectl_gangsched.main import cli
from tests.fake_api import FakeApi, forbidden, listed, node, pod, pod_group, served

X = "scheduling.x-k8s.io"
(GROUPS,) = keys.GROUPS


def cluster() -> dict[str, Any]:
    """A pod full of secrets that waits, one that has the room, and their PodGroup."""
    waiting = pod("train-0", gang="train", message="no room", gpus=8)
    waiting["metadata"]["annotations"] = {
        "secret/annotation": "S3CRET",
        "gangsched.dev/expected-runtime": "1h",
    }
    waiting["metadata"]["labels"] |= {"app": "web", "customer": "S3CRET"}
    (container,) = waiting["spec"]["containers"]
    container |= {
        "image": "S3CRET/image",
        "args": ["--password", "S3CRET"],
        "command": ["S3CRET"],
        "env": [{"name": "S3CRET", "value": "S3CRET"}],
    }
    waiting["spec"]["affinity"] = {
        "podAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {
                    "weight": 1,
                    "podAffinityTerm": {
                        "topologyKey": "rack",
                        "labelSelector": {"matchLabels": {"app": "web"}},
                    },
                }
            ]
        }
    }
    running = pod("busy", node="n0", gpus=4)
    running["status"]["containerStatuses"] = [
        {"name": "c", "image": "S3CRET/image", "state": {"waiting": {"message": "S3CRET"}}}
    ]
    machine = node("n0", 8)
    machine["metadata"]["labels"] = {"rack": "r1", "owner": "S3CRET"}
    machine["metadata"]["annotations"] = {"any": "S3CRET"}
    group = pod_group("train", 1)
    group["metadata"]["annotations"] = {
        "kubectl.kubernetes.io/last-applied-configuration": "S3CRET"
    }
    return {
        "/version": {"gitVersion": "v1.36.0"},
        "/api/v1/pods": listed(waiting, running),
        "/api/v1/nodes": listed(machine),
        "/api/v1/namespaces": listed(
            {"metadata": {"name": "team", "labels": {"customer": "S3CRET"}}}
        ),
        "/api/v1/persistentvolumes": forbidden("list", "persistentvolumes"),
        f"/apis/{X}": {"versions": [{"version": "v1alpha1"}]},
        f"/apis/{X}/v1alpha1/podgroups": listed(group),
    }


def take(tmp_path: Path, answers: dict[str, Any], *words: str) -> tuple[Result, Path, FakeApi]:
    path = tmp_path / "snapshot.gz"
    with served(tmp_path, answers) as (fake, kubeconfig):
        answer = CliRunner().invoke(
            cli, ["snapshot", "-o", str(path), "--kubeconfig", str(kubeconfig), *words]
        )
    return answer, path, fake


def test_secrets_stay_where_they_are(tmp_path: Path) -> None:
    """No environment, argument, image, nor an annotation or label that nothing reads; what
    selectors name is kept.
    """
    answer, path, _ = take(tmp_path, cluster())
    assert answer.exit_code == 0, answer.output
    text = gzip.decompress(path.read_bytes()).decode()
    assert "S3CRET" not in text
    snapshot = file.read(path)
    waiting = json.loads(bytes(snapshot.resources["pods"][0]))
    assert waiting["metadata"]["labels"] == {"scheduling.x-k8s.io/pod-group": "train", "app": "web"}
    assert waiting["metadata"]["annotations"] == {"gangsched.dev/expected-runtime": "1h"}
    assert json.loads(bytes(snapshot.resources["nodes"][0]))["metadata"]["labels"] == {"rack": "r1"}


def test_what_may_not_be_read_is_unread(tmp_path: Path) -> None:
    """As for a daemon without the right: pods with such claims wait. Nodes, pods and namespaces
    must be readable.
    """
    answer, path, _ = take(tmp_path, cluster())
    unread = file.read(path).unread
    assert (
        unread["persistentvolumes"]
        == "You (user alice) may not list persistentvolumes in the whole cluster"
    )
    assert unread["resourceclaims"] == "not served in this cluster"
    assert "Not read: persistentvolumes: You (user alice) may not list" in answer.output
    refused, _, _ = take(tmp_path, {**cluster(), "/api/v1/nodes": forbidden("list", "nodes")})
    assert refused.exit_code == 2
    assert (
        "You (user alice) may not list nodes in the whole cluster, and a snapshot is made of that."
        in refused.stderr
    )


def test_names_can_be_replaced(tmp_path: Path) -> None:
    """Everywhere at once, in an order that stays: what named another object still does."""
    answer, path, _ = take(tmp_path, cluster(), "--redact-names")
    assert answer.exit_code == 0, answer.output
    text = re.sub(r"uid-[-a-z0-9]+", "", gzip.decompress(path.read_bytes()).decode())
    assert [
        name
        for name in ("train", "team", "busy", "n0", "no room")
        if re.search(rf"\b{name}\b", text)
    ] == []
    snapshot = file.read(path)
    waiting, running = (json.loads(bytes(raw)) for raw in snapshot.resources["pods"])
    (machine,) = (json.loads(bytes(raw)) for raw in snapshot.resources["nodes"])
    assert running["spec"]["nodeName"] == machine["metadata"]["name"]
    assert waiting["spec"]["schedulerName"] == "gangsched"
    (group,) = snapshot.pod_groups[X].items
    assert waiting["metadata"]["labels"][f"{X}/pod-group"] == group["metadata"]["name"]
    names = [running["metadata"]["name"], machine["metadata"]["name"], group["metadata"]["name"]]
    assert names == sorted(names)  # busy, n0, train


def test_names_of_any_spelling_are_replaced(tmp_path: Path) -> None:
    """Values of labels name gangs with capitals and underscores; a group may list gangs that are
    not there.
    """
    first, second = (pod(f"{name}-0", gang=name) for name in ("Team_A.x", "Team_B"))
    listed_gangs = ["secret-project/Merger_1", "team/Team_A.x", "team/Team_B"]
    first["metadata"]["annotations"] = {GROUPS: json.dumps(listed_gangs)}
    second["metadata"]["annotations"] = {GROUPS: "Hidden_Words, and no list"}
    first["spec"] |= {
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "absent.claim"}}]
    }
    first["status"]["nominatedNodeName"] = "absent-node"
    answers = {**cluster(), "/api/v1/pods": listed(first, second)}
    answer, path, _ = take(tmp_path, answers, "--redact-names")
    assert answer.exit_code == 0, answer.output
    text = re.sub(r"uid-[-_.A-Za-z0-9]+", "", gzip.decompress(path.read_bytes()).decode())
    hidden = (
        "Team_A",
        "Team_B",
        "secret-project",
        "Merger_1",
        "Hidden_Words",
        "absent.claim",
        "absent-node",
    )
    assert [name for name in hidden if name in text] == []
    one, _ = (json.loads(bytes(raw)) for raw in file.read(path).resources["pods"])
    gangs = json.loads(one["metadata"]["annotations"][GROUPS])
    assert len(gangs) == 3
    own = f"{one['metadata']['namespace']}/{one['metadata']['labels'][f'{X}/pod-group']}"
    assert own in gangs
    assert gangs == sorted(gangs)


def test_a_file_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    """Exit code 2."""
    with served(tmp_path, cluster()) as (_, kubeconfig):
        answer = CliRunner().invoke(
            cli, ["snapshot", "-o", "/no/such/place", "--kubeconfig", str(kubeconfig)]
        )
    assert (answer.exit_code, answer.stderr) == (
        2,
        "kubectl-gangsched: Cannot write /no/such/place: No such file or directory.\n",
    )
