"""`plan -f`: a PlacementReview for each gang; without the API a plan made here, for who may read
enough.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from kubectl_gangsched.main import cli
from kubectl_gangsched.session import GANGS
from tests.fake_api import FakeApi, forbidden, listed, node, pod, pod_group, served, status

X = "scheduling.x-k8s.io"
REVIEWS = f"{GANGS}/namespaces/team/placementreviews"
SERVED = {"resources": [{"name": "gangs"}, {"name": "placementreviews"}]}


def job(
    gpus: int, parallelism: int, *, gang: str = "", name: str = "j", **spec: Any
) -> dict[str, Any]:
    container = {"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": gpus}}}
    marks = {"labels": {f"{X}/pod-group": gang}} if gang else {}
    template = {
        "metadata": marks,
        "spec": {"schedulerName": "gangsched", "containers": [container], **spec},
    }
    return {
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"parallelism": parallelism, "template": template},
    }


def cluster(**more: Any) -> dict[str, Any]:
    """Two nodes of 8 GPUs, 4 of them taken; no gangs API."""
    return {
        "/version": {"gitVersion": "v1.36.0"},
        "/api/v1/pods": listed(pod("busy", node="n0", gpus=4)),
        "/api/v1/nodes": listed(node("n0", 8), node("n1", 8)),
        "/api/v1/namespaces": listed({"metadata": {"name": "team"}}),
        f"/apis/{X}": {"versions": [{"version": "v1alpha1"}]},
        f"/apis/{X}/v1alpha1/podgroups": listed(),
        "/apis/scheduling.k8s.io/v1/priorityclasses": listed(
            {"metadata": {"name": "high"}, "value": 100}
        ),
        **more,
    }


def ask(
    tmp_path: Path, answers: dict[str, Any], documents: list[Any], *words: str
) -> tuple[Result, FakeApi]:
    path = tmp_path / "m.yaml"
    path.write_text(yaml.safe_dump_all(documents))
    with served(tmp_path, answers) as (fake, kubeconfig):
        command = ["plan", "-f", str(path), "--kubeconfig", str(kubeconfig), *words]
        return CliRunner().invoke(cli, command), fake


def test_a_gang_that_exists_is_planned_beside_itself(tmp_path: Path) -> None:
    """The ending that the API gives the name of the second one is not shown; what it means is."""
    message = "gang team/j-review-review needs 3 pods; gang team/j-review-2 holds room"
    review = {"status": {"fits": False, "reason": "Unschedulable", "message": message}}
    answer, _ = ask(tmp_path, {GANGS: SERVED, REVIEWS: review}, [job(4, 3)])
    assert answer.exit_code == 1
    said = " ".join(answer.output.split())
    assert "-review-review" not in said
    assert "gang team/j needs 3 pods; gang team/j-review-2 holds room" in said
    assert "gang team/j exists already: this is planned as a second one beside it." in said


def test_a_review_is_asked_for_each_gang(tmp_path: Path) -> None:
    """With its settings and templates; yes or no first, then nodes, victims and what would help."""
    review = {
        "status": {
            "fits": True,
            "nodes": [{"kind": "8 nvidia.com/gpu A100", "count": 2}],
            "preempts": [{"kind": "gang", "namespace": "low", "name": "old", "count": 3}],
            "suggestions": ["Tolerate the taint x."],
            "domains": [{"domain": "rack=r7", "holds": 1, "lacks": 2, "refutedBy": "sums"}],
            "problems": ["bad value"],
        }
    }
    group = {"kind": "PodGroup", "metadata": {"name": "train"}, "spec": {"minMember": 2}}
    answer, fake = ask(
        tmp_path, {GANGS: SERVED, REVIEWS: review}, [group, job(4, 3, gang="train"), job(1, 2)]
    )
    assert answer.exit_code == 0
    assert answer.output.splitlines()[:5] == [
        "Yes: Gang team/train would start now, its 3 pods on 2 nodes.",
        "  2 × 8 nvidia.com/gpu A100",
        "  It would have gang low/old (3 pods) evicted.",
        "  What would help: Tolerate the taint x.",
        "  Problem: bad value.",
    ]
    assert [line.split() for line in answer.output.splitlines()[6:8]] == [
        ["DOMAIN", "HOLDS", "LACKS", "REFUTED", "BY"],
        ["rack=r7", "1", "2", "sums"],
    ]
    assert [body["spec"]["gang"] for body in fake.bodies] == [
        {"name": "train", "min": 2},
        {"name": "j", "min": 2},
    ]
    assert [body["spec"]["podSets"][0]["count"] for body in fake.bodies] == [3, 2]
    assert "This plan was made here" not in answer.output


def test_a_no_has_the_message_and_exit_code_1(tmp_path: Path) -> None:
    """--min wins over what the file says."""
    review = {"status": {"fits": False, "reason": "Unschedulable", "message": "no room"}}
    answer, fake = ask(tmp_path, {GANGS: SERVED, REVIEWS: review}, [job(8, 3)], "--min", "1")
    assert answer.exit_code == 1
    assert answer.output.startswith(
        "No: team/j, as one gang of 3 pods, would not start now: no room.\n"
    )
    assert fake.bodies[0]["spec"]["gang"]["min"] == 1


@pytest.mark.parametrize(
    ("documents", "code", "said"),
    [
        (
            [job(4, 3)],
            0,
            "Yes: team/j, as one gang of 3 pods, would start now, its 3 pods on 2 nodes.",
        ),
        (
            [job(4, 4)],
            1,
            "No: team/j, as one gang of 4 pods, would not start now: gang team/j needs 4 pods",
        ),
        (
            [pod_group("train", 3), job(4, 3, gang="train")],
            0,
            "Yes: Gang team/train would start now",
        ),
        ([job(4, 1, gang="train")], 1, "PodGroup team/train does not exist"),
    ],
    ids=["fits", "does not fit", "with its PodGroup", "without its PodGroup"],
)
def test_without_the_api_the_plan_is_made_here(
    tmp_path: Path, documents: list[Any], code: int, said: str
) -> None:
    """By the scheduler's own plan on a snapshot, for who may list nodes; limits count
    as requests.
    """
    answer, _ = ask(tmp_path, cluster(), documents)
    assert said in answer.output
    assert answer.exit_code == code
    assert "This plan was made here: this cluster does not serve placement reviews" in answer.output


def test_who_would_have_others_evicted_would_start(tmp_path: Path) -> None:
    """As the API has it: after the eviction, and the answer says so."""
    low = [pod(f"low-{index}", node=f"n{index}", gpus=8) for index in range(2)]
    for each in low:
        each["status"]["startTime"] = "2026-01-01T00:00:00Z"
        each["spec"]["priority"] = 0
    budgets = {"/apis/policy/v1/poddisruptionbudgets": listed()}
    answers = cluster(**{"/api/v1/pods": listed(*low), **budgets})
    answer, _ = ask(tmp_path, answers, [job(8, 1, priorityClassName="high")])
    assert (answer.exit_code, answer.output.partition("\n")[0]) == (
        0,
        "Yes: team/j, as one gang of 1 pod, would start once others are evicted for it.",
    )
    assert "will start on n0 when pod team/" in answer.output


def test_pods_of_the_gang_that_wait_already_do_not_count_twice(tmp_path: Path) -> None:
    """A manifest that is applied already is asked about as if it were not."""
    there = [pod(f"j-{index}", gang="train", gpus=4) for index in range(3)]
    answers = cluster(
        **{
            "/api/v1/pods": listed(pod("busy", node="n0", gpus=4), *there),
            f"/apis/{X}/v1alpha1/podgroups": listed(pod_group("train", 3)),
        }
    )
    answer, _ = ask(
        tmp_path, answers, [pod_group("train", 3), job(4, 3, gang="train")], "-o", "json"
    )
    (told,) = json.loads(answer.output)["gangs"]
    assert (told["fits"], sum(each["count"] for each in told["assignments"])) == (True, 3)


def test_the_pod_groups_settings_count(tmp_path: Path) -> None:
    """Its annotations in the file are read as those of one in the cluster: both pods on
    one node.
    """
    group = pod_group("train", 2)
    group["metadata"]["annotations"] = {"gangsched.dev/topology": "kubernetes.io/hostname"}
    nodes = [node("n0", 8), node("n1", 8)]
    for each in nodes:
        each["metadata"]["labels"] = {"kubernetes.io/hostname": each["metadata"]["name"]}
    answers = cluster(**{"/api/v1/nodes": listed(*nodes)})
    free, _ = ask(tmp_path, answers, [pod_group("train", 2), job(5, 2, gang="train", name="a")])
    tied, _ = ask(tmp_path, answers, [group, job(5, 2, gang="train", name="a")])
    assert (free.exit_code, tied.exit_code) == (1, 1)
    one, _ = ask(tmp_path, answers, [group, job(4, 2, gang="train", name="a")], "-o", "json")
    assert json.loads(one.output)["gangs"][0]["assignments"] == [
        {"podSet": "a", "node": "n1", "count": 2}
    ]


def test_priorities_come_from_classes(tmp_path: Path) -> None:
    """One that does not exist is told, as the API server would."""
    answer, _ = ask(tmp_path, cluster(), [job(1, 1, priorityClassName="no-such")])
    assert (answer.exit_code, "There is no PriorityClass no-such" in answer.stderr) == (2, True)
    assert ask(tmp_path, cluster(), [job(1, 1, priorityClassName="high")])[0].exit_code == 0


@pytest.mark.parametrize(
    "api", [None, status(503, "ServiceUnavailable", "away"), {"resources": [{"name": "gangs"}]}]
)
def test_who_may_read_too_little_is_told_what_would_help(tmp_path: Path, api: Any) -> None:
    """One sentence: no API, no rights, and how to turn the API on."""
    answers = cluster(
        **{"/api/v1/nodes": forbidden("list", "nodes"), **({GANGS: api} if api else {})}
    )
    answer, _ = ask(tmp_path, answers, [job(1, 1)])
    assert (answer.exit_code, answer.stdout, answer.stderr.count("\n")) == (2, "", 1)
    assert "You (user alice) may not list nodes" in answer.stderr
    assert "is part of the default installation" in answer.stderr


def test_a_scheduler_name_of_another_is_noted(tmp_path: Path) -> None:
    """The plan is that of a pod of ours, and the manifest would not be scheduled by us."""
    answer, _ = ask(tmp_path, cluster(), [job(1, 1, schedulerName="default-scheduler")])
    assert answer.exit_code == 0
    assert 'Note: pods of j have schedulerName "default-scheduler"' in answer.output
