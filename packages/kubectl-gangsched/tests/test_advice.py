"""What `why` adds: who holds what a gang lacks, what would help, what comes next, and quotas."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from kubectl_gangsched.main import cli
from kubectl_gangsched.session import GANGS
from tests.fake_api import Json, forbidden, listed, pod, pod_group, served

TEAM = "/api/v1/namespaces/team"
GANG = f"{GANGS}/namespaces/team/gangs/train"
REVIEWS = f"{GANGS}/namespaces/team/placementreviews"
LACKS = "gang team/train needs room for 2 more pods"
NEXT = "it is tried again as soon as room is freed, after 2 groups ahead of it"
HOLDERS = {
    "resource": "nvidia.com/gpu",
    "own": [{"kind": "gang", "name": "other", "amount": "8"}],
    "ownCount": 1,
    "others": {"count": 3, "amount": "12"},
}


def ask(kubeconfig: Path, *words: str) -> Result:
    return CliRunner().invoke(cli, ["why", *words, "--kubeconfig", str(kubeconfig)])


def gang(minimum: int = 2, **status: Any) -> Json:
    """A gang as the gangs API shows it."""
    shown = {
        "members": {"total": 2, "byState": {"pending": 2}},
        "reason": "Unschedulable",
        "message": LACKS,
        "next": NEXT,
    }
    return {
        "metadata": {"namespace": "team", "name": "train"},
        "spec": {"min": minimum},
        "status": shown | status,
    }


def review(**status: Any) -> Json:
    """The answer to a review of the gang."""
    return {"kind": "PlacementReview", "status": {"fits": False, **status}}


def failed_create(owner: str, message: str, at: str = "2026-01-01T00:00:01Z") -> Json:
    """An Event of a Job controller."""
    return {
        "metadata": {"name": f"{owner}.{at}", "namespace": "team"},
        "involvedObject": {"kind": "Job", "name": owner, "namespace": "team"},
        "reason": "FailedCreate",
        "message": message,
        "lastTimestamp": at,
    }


def test_the_three_questions_that_follow_are_answered(tmp_path: Path) -> None:
    """S8: who holds what it lacks, what would help the gang that exists, what comes next."""
    answers = {
        GANG: gang(),
        REVIEWS: review(suggestions=["a minimum of 1 would start now"], holders=HOLDERS),
    }
    with served(tmp_path, answers) as (api, kubeconfig):
        text = ask(kubeconfig, "gang/train").output
        as_json = json.loads(ask(kubeconfig, "gang/train", "-o", "json").output)

    assert api.bodies[0]["spec"] == {"gang": {"existing": "train"}}
    lines = text.splitlines()
    assert (
        "Who holds it: nvidia.com/gpu is used by gang other (8); 3 gangs or pods of other"
        " namespaces use 12." in lines
    )
    assert lines[lines.index("What would help:") + 1] == "  - a minimum of 1 would start now"
    assert f"What happens next: {NEXT}." in lines
    assert as_json["helps"] == ["a minimum of 1 would start now"]
    assert as_json["next"] == NEXT


@pytest.mark.parametrize("reason", ["WaitingForMembers", "Paused"])
def test_no_plan_is_asked_for_what_no_room_would_end(tmp_path: Path, reason: str) -> None:
    """A plan would say nothing of it."""
    with served(tmp_path, {GANG: gang(reason=reason)}) as (api, kubeconfig):
        assert ask(kubeconfig, "gang/train").exit_code == 0
    assert not [asked for asked in api.asked if asked.startswith("POST")]


def test_without_the_right_to_ask_the_rest_is_said(tmp_path: Path) -> None:
    """An older scheduler, or no right to create reviews, is no fault of the command."""
    refused = forbidden("create", "placementreviews", 'in the namespace "team"')
    with served(tmp_path, {GANG: gang(), REVIEWS: refused}) as (_, kubeconfig):
        answer = ask(kubeconfig, "gang/train")
    assert answer.exit_code == 0
    assert "What would help" not in answer.output
    assert NEXT in answer.output


def test_a_quota_that_keeps_pods_from_being_created_is_named(tmp_path: Path) -> None:
    """S8: the newest Event of the controller, without what the Job controller puts before it."""
    quota = "exceeded quota: gpus, requested: requests.nvidia.com/gpu=8, used: 8, limited: 8"
    refused = f'Error creating: pods "train-x7" is forbidden: {quota}'
    pods = [pod(f"train-{i}", gang="train", message="waiting for members") for i in range(2)]
    answers = {
        f"{TEAM}/pods": listed(*pods),
        "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/team/podgroups/train": pod_group(
            "train", 4, "waiting for members"
        ),
        f"{TEAM}/events": listed(
            failed_create("train", "older", at="2026-01-01T00:00:00Z"),
            failed_create("train", refused),
            failed_create("another", "of another Job", at="2026-01-01T00:00:09Z"),
        ),
    }
    with served(tmp_path, answers) as (_, kubeconfig):
        lines = ask(kubeconfig, "gang/train").output.splitlines()
    assert f"Job team/train cannot create 2 pods: {quota}." in lines


def test_a_quota_is_named_where_the_minimum_is_unknown(tmp_path: Path) -> None:
    """S8: without the gangs API the minimum of a Job's gang is known to the scheduler alone."""
    said = "waiting for members of gang team/Job.train (Job team/train makes 4)"
    labels = {"gangsched.dev/gang": "owner"}
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "u"}
    pods = [pod(f"train-{i}", labels=labels, message=said) for i in range(2)]
    for member in pods:
        member["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
        member["status"]["conditions"][0]["reason"] = "WaitingForMembers"

    answers = {
        f"{TEAM}/pods": listed(*pods),
        f"{TEAM}/events": listed(failed_create("train", "exceeded quota: two")),
    }
    with served(tmp_path, answers) as (_, kubeconfig):
        lines = ask(kubeconfig, "gang/Job.train").output.splitlines()
    assert "Job team/train cannot create more pods: exceeded quota: two." in lines


def test_a_gang_below_its_minimum_does_not_have_its_nodes(tmp_path: Path) -> None:
    """S5: it runs with fewer pods than it needs, and says what is known of it."""
    lost: dict[str, Any] = {"members": {"byState": {"bound": 1}}, "reason": "Degraded"}
    said = "1 of 2 members is bound; Job team/train has not replaced the missing members yet"
    with served(tmp_path, {GANG: gang(message=said, **lost)}) as (_, kubeconfig):
        first = ask(kubeconfig, "gang/train").output.splitlines()[0]
    assert first == f"Gang team/train runs below its minimum: {said}."


def test_pods_are_in_natural_order_and_grouped_when_alike(tmp_path: Path) -> None:
    """S8: ten pods that wait for the same are one row, and no line is said twice."""
    pods = [pod(f"train-{i}", gang="train", message=LACKS) for i in range(11)]
    pods.append(pod("train-11", gang="train", node="n1"))
    group = pod_group("train", 12, LACKS)
    answers = {
        f"{TEAM}/pods": listed(*reversed(pods)),
        "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/team/podgroups/train": group,
    }
    with served(tmp_path, answers) as (_, kubeconfig):
        output = ask(kubeconfig, "gang/train").output
    rows = [line.split("  ")[0] for line in output.splitlines() if line.startswith("train-")]
    assert rows == ["train-0 … train-10 (11 pods)", "train-11"]
    assert output.count(LACKS) == 1
