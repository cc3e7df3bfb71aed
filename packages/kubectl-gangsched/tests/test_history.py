"""`history`: the leader's entries, else the gang's Events."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from kubectl_gangsched.main import cli
from kubectl_gangsched.session import GANGS
from tests.fake_api import forbidden, listed, pod, pod_group, served, status

PATH = f"{GANGS}/namespaces/team/gangs/g/history"
ENTRY = {
    "what": "Preempted",
    "firstTime": "2026-01-01T00:00:00Z",
    "lastTime": "2026-01-01T00:00:09Z",
    "times": 2,
    "reason": "Preempted",
    "message": "evicted\x1b[2J",
    "uid": "u",
    "plan": 7,
    "objects": [{"name": "", "uid": "v"}],
    "objectCount": 12,
}


def answer(role: str) -> dict[str, Any]:
    return {"completeSince": "2026-01-01T00:00:00Z", "servedBy": {"role": role}, "entries": [ENTRY]}


def event(name: str, about: str, message: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "involvedObject": {"name": about},
        "reason": "FailedBinding",
        "eventTime": "2026-01-01T00:00:01.000001Z",
        "series": {"count": 4, "lastObservedTime": "2026-01-01T00:00:05.000001Z"},
        "message": message,
    }


PODS = {
    "/api/v1/namespaces/team/pods": listed(pod("g-0", gang="g")),
    "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/team/podgroups/g": pod_group("g", 1),
    "/api/v1/namespaces/team/events": listed(
        event("a", "g-0", "no right"), event("b", "other", "of another gang")
    ),
}


def ask(tmp_path: Path, answers: dict[str, Any], *words: str) -> Result:
    with served(tmp_path, answers) as (_, kubeconfig):
        return CliRunner().invoke(cli, ["history", *words, "--kubeconfig", str(kubeconfig)])


def test_the_leaders_entries_are_shown(tmp_path: Path) -> None:
    """With the time since which none is missing; what tenants write is made harmless."""
    shown = ask(tmp_path, {PATH: answer("leader")}, "g")
    assert (shown.exit_code, shown.stderr) == (0, "")
    assert shown.output.splitlines() == [
        "History of gang team/g, complete since 2026-01-01T00:00:00Z.",
        "",
        "LAST                  TIMES  WHAT       PLAN  MESSAGE",
        "2026-01-01T00:00:09Z  2      Preempted  7     evicted�[2J",
    ]
    told = json.loads(ask(tmp_path, {PATH: answer("leader")}, "gang/g", "-o", "json").output)
    assert (told["entries"], told["instead"]) == ([ENTRY], "")


@pytest.mark.parametrize(
    ("of_api", "why"),
    [
        ({}, "the gangs API is not served"),
        ({PATH: forbidden("get", "gangs")}, "the gangs API is not served"),
        ({PATH: status(503, "ServiceUnavailable", "away")}, "the gangs API does not answer"),
        ({PATH: answer("standby")}, "a standby answered"),
    ],
    ids=["not served", "not served and no rights", "away", "standby"],
)
def test_without_the_leaders_entries_there_are_events(
    tmp_path: Path, of_api: dict[str, Any], why: str
) -> None:
    """Those on the PodGroup and on its pods."""
    shown = ask(tmp_path, {**PODS, **of_api}, "g")
    assert (shown.exit_code, shown.stderr) == (0, "")
    assert "2026-01-01T00:00:05Z  4      FailedBinding  -     no right" in shown.output.splitlines()
    assert "another gang" not in shown.output
    assert shown.output.splitlines()[-1].startswith(f"These are Events of the last hour: {why}")


def test_a_gang_that_nobody_knows_gets_the_nearest_name(tmp_path: Path) -> None:
    """Exit code 2, with and without the gangs API."""
    gone = status(404, "NotFound", 'gangs.visibility.gangsched.dev "gg" not found')
    for of_api in ({}, {PATH.replace("/g/", "/gg/"): gone}):
        refused = ask(tmp_path, {**PODS, **of_api}, "gg")
        assert (refused.exit_code, refused.stdout) == (2, "")
        assert refused.stderr.startswith(
            "kubectl-gangsched: There is no gang gg in namespace team; did you mean g"
        )


def test_the_leader_is_asked_for_although_a_standby_answers(tmp_path: Path) -> None:
    """The API server sends requests to any replica: a few are sent before Events are shown."""
    with served(tmp_path, {**PODS, PATH: answer("standby")}) as (api, kubeconfig):
        shown = CliRunner().invoke(cli, ["history", "g", "--kubeconfig", str(kubeconfig)])
    assert len([path for path in api.asked if path.endswith("/history")]) == 4
    assert "ask again to reach the leader" in shown.output


def test_the_owner_of_pods_stands_for_its_gang(tmp_path: Path) -> None:
    """As with `why`; pods that are in no gang have no history."""
    body = pod("p", gang="g")
    plain = pod("q")
    for each, owner in ((body, "mine"), (plain, "other")):
        reference = {"kind": "Job", "name": owner, "uid": owner, "controller": True}
        each["metadata"]["ownerReferences"] = [{"apiVersion": "batch/v1", **reference}]
    answers = {"/api/v1/namespaces/team/pods": listed(body, plain), PATH: answer("leader")}
    for word in ("mine", "job/mine"):
        assert ask(tmp_path, answers, word).stdout.startswith("History of gang team/g"), word
    for word, said in (
        ("other", "The pods of other are in no gang"),
        ("pod/p", "A pod has no history of its own"),
    ):
        refused = ask(tmp_path, answers, word)
        assert (refused.exit_code, refused.stdout) == (2, "")
        assert said in refused.stderr
