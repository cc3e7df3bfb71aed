"""docs/kubectl.md shows what the commands print: every example with output is run on the cluster
made up here.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from gangsched import __version__
from kubectl_gangsched.main import cli
from kubectl_gangsched.session import GANGS
from tests.fake_api import FakeApi, forbidden, listed, node, pod, pod_group, served

PAGE = Path(__file__).resolve().parents[1] / "docs" / "kubectl.md"
LACKS = (
    "gang team/training needs 2 pods of 4 nvidia.com/gpu; 1 fits, then no eligible node has 4 free."
    " 4 of 16 nvidia.com/gpu are free on the 2 nodes. After those, 0/2"
    " nodes are available: 2 Insufficient nvidia.com/gpu."
)
CONTAINER = {"name": "main", "image": "pause", "resources": {"limits": {"nvidia.com/gpu": 4}}}
JOB = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "train"},
    "spec": {
        "parallelism": 3,
        "template": {"spec": {"schedulerName": "gangsched", "containers": [CONTAINER]}},
    },
}
NAMESPACED = "/api/v1/namespaces/team"
X = "scheduling.x-k8s.io"
DEPLOYMENT = {
    "metadata": {
        "namespace": "gangsched-system",
        "name": "gangsched",
        "labels": {"app.kubernetes.io/name": "gangsched"},
    },
    "spec": {"template": {"spec": {"containers": [{"image": f"gangsched:{__version__}"}]}}},
    "status": {"readyReplicas": 2},
}
EXAMPLES = [
    (shlex.split(command)[2:], output)
    for block in re.findall(r"```console\n(.*?)```", PAGE.read_text(), re.DOTALL)
    for command, output in re.findall(
        r"^\$ (kubectl gangsched [^\n]*)\n(.*?)(?=^\$ |\Z)", block, re.DOTALL | re.MULTILINE
    )
    if output.strip()
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[FakeApi, Path]]:
    """Two nodes of 8 GPUs; `running` has 12 of them, `training` waits for 8, and `typo`
    for nobody.
    """
    running = [pod(f"running-{i}", gang="running", node=f"n{i // 2}", gpus=4) for i in range(3)]
    waiting = [
        pod(
            f"training-{i}", gang="training", gpus=4, message=f"{LACKS}; see PodGroup team/training"
        )
        for i in range(2)
    ]
    pods = [*running, *waiting, pod("typo", scheduler="gangshed")]
    groups = "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/team/podgroups"
    answers = {
        "/api/v1/nodes": listed(node("n0", 8), node("n1", 8)),
        "/api/v1/pods": listed(*pods),
        f"{NAMESPACED}/pods": listed(*pods),
        **{f"{NAMESPACED}/pods/{each['metadata']['name']}": each for each in pods},
        f"{groups}/training": pod_group("training", 2, LACKS),
    }
    for path in (
        "storage.k8s.io/v1/storageclasses",
        "storage.k8s.io/v1/csinodes",
        "policy/v1/poddisruptionbudgets",
    ):
        answers[f"/apis/{path}"] = listed()
    answers |= {
        f"/api/v1/{name}": listed()
        for name in ("persistentvolumeclaims", "persistentvolumes", "services")
    }
    answers |= {
        "/api/v1/namespaces": listed({"metadata": {"name": "team"}}),
        f"/apis/{X}": {"versions": [{"version": "v1alpha1"}]},
        "/version": {"gitVersion": "v1.36.0"},
        "/apis": {"groups": [{"name": X, "preferredVersion": {"groupVersion": f"{X}/v1alpha1"}}]},
        f"/apis/{X}/v1alpha1": {"resources": [{"name": "podgroups"}, {"name": "podgroups/status"}]},
        f"/apis/{X}/v1alpha1/podgroups": listed(pod_group("training", 2), pod_group("running", 3)),
        "/apis/apiregistration.k8s.io/v1/apiservices": listed(),
        "/apis/authorization.k8s.io/v1/subjectaccessreviews": {"status": {"allowed": True}},
        "/apis/apps/v1/deployments": listed(DEPLOYMENT),
        "/api/v1/events": listed(),
        f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/podgroups.{X}": forbidden(
            "get", "customresourcedefinitions"
        ),
    }
    folder = tmp_path_factory.mktemp("docs")
    (folder / "job.yaml").write_text(yaml.safe_dump(JOB))
    with served(folder, answers) as at_work:
        yield at_work


REFUSED = (
    'binding pod team/training-0 to node n1 failed and will be tried again: pods "training-0" is'
    " forbidden"
)
HISTORY = {
    "completeSince": "2026-11-22T14:00Z",
    "servedBy": {"role": "leader"},
    "entries": [
        {
            "what": what,
            "firstTime": moment,
            "lastTime": moment,
            "times": times,
            "reason": what,
            "message": message,
            "uid": "u",
            "plan": 0,
            "objects": [],
            "objectCount": 0,
        }
        for what, moment, times, message in (
            ("BindRefused", "2026-11-22T14:05Z", 12, REFUSED),
            ("Started", "2026-11-22T14:06Z", 1, "2 pods are bound together"),
        )
    ],
}


def waiting(position: int) -> dict[str, Any]:
    """The gang `training` as the gangs API shows it."""
    place = {"position": position, "before": position - 1, "waitingSince": "2026-11-22T14:05:09Z"}
    members = {"total": 2, "byState": {"pending": 2}}
    return {
        "metadata": {"namespace": "team", "name": "training"},
        "spec": {"min": 2},
        "status": {
            "members": members,
            "reason": "Unschedulable",
            "message": LACKS,
            "queue": "parked",
            **place,
        },
    }


@pytest.mark.parametrize(
    ("words", "output"),
    EXAMPLES,
    ids=lambda given: " ".join(given) if isinstance(given, list) else "",
)
def test_every_example_prints_what_the_page_shows(
    cluster: tuple[FakeApi, Path], words: list[str], output: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page has the output of each command as it is; a file that one writes is there for the
    next.
    """
    fake, kubeconfig = cluster
    monkeypatch.chdir(kubeconfig.parent)
    if words[0] == "history":
        monkeypatch.setitem(
            fake.answers, f"{GANGS}/namespaces/team/gangs/training/history", HISTORY
        )
    if words[0] == "queue":  # the one that needs the API
        monkeypatch.setitem(fake.answers, f"{GANGS}/namespaces/team/gangs", listed(waiting(3)))
    answer = CliRunner().invoke(cli, words, env={"KUBECONFIG": str(kubeconfig)})
    printed = timeless(answer.output.replace(__version__, "0.1.0"))
    wanted = timeless(output)
    assert len(printed) == len(wanted)
    for line, pattern in zip(printed, wanted, strict=True):
        assert line == pattern or is_shown(line, pattern)


def is_shown(line: str, pattern: str) -> bool:
    """Whether a line is what the page has, where ` …` at its end stands for further sentences."""
    return pattern.endswith(" …") and line.startswith(pattern.removesuffix("…"))


def timeless(text: str) -> list[str]:
    """The lines, whenever they are printed."""
    return re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\dZ", "2026-11-22T14:05Z", text).strip().splitlines()


def test_every_command_has_an_example() -> None:
    """No command is left out of the page; `ui` prints a link, and serves until it is ended."""
    names = {
        command.name or command.callback.__name__
        for command in cli.registered_commands
        if command.callback
    }
    assert names - {"version", "ui"} == {words[0] for words, _ in EXAMPLES}
