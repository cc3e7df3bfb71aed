"""`queue`: the gangs that wait in the order of the gangs API, which alone knows it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from kubectl_gangsched.main import cli
from kubectl_gangsched.session import GANGS
from tests.fake_api import forbidden, listed, pod, pod_group, served, status


def gang(name: str, position: int | None) -> dict[str, Any]:
    place = (
        {}
        if position is None
        else {"position": position, "before": position - 1, "waitingSince": "2026-01-01T00:00:00Z"}
    )
    members = {"total": 2, "byState": {"pending": 2} if position else {"bound": 2}}
    told = {"members": members, "reason": "Unschedulable", "message": f"why {name}\x1b[2J", **place}
    return {"metadata": {"namespace": "team", "name": name}, "spec": {"min": 2}, "status": told}


def ask(tmp_path: Path, answers: dict[str, Any], *words: str) -> Result:
    with served(tmp_path, answers) as (_, kubeconfig):
        return CliRunner().invoke(cli, ["queue", "--kubeconfig", str(kubeconfig), *words])


def test_gangs_are_in_the_order_of_their_positions(tmp_path: Path) -> None:
    """Those that do not wait are left out; what tenants write is made harmless."""
    found = listed(gang("late", 7), gang("bound", None), gang("first", 1))
    answer = ask(tmp_path, {f"{GANGS}/namespaces/team/gangs": found})
    assert answer.exit_code == 0
    assert answer.output.splitlines() == [
        "2 gangs wait in namespace team.",
        "",
        "POSITION  GANG        MIN  BOUND  WAITING SINCE         REASON         MESSAGE",
        "1         team/first  2    0      2026-01-01T00:00:00Z  Unschedulable  why first�[2J",
        "7         team/late   2    0      2026-01-01T00:00:00Z  Unschedulable  why late�[2J",
    ]
    everywhere = ask(tmp_path, {f"{GANGS}/gangs": found}, "-A", "-o", "json")
    assert [each["name"] for each in json.loads(everywhere.output)["gangs"]] == ["first", "late"]
    assert (
        ask(tmp_path, {f"{GANGS}/gangs": listed()}, "-A").output
        == "No gang waits in the cluster.\n"
    )


REFUSED = forbidden("list", "gangs", 'in the namespace "team"')
PODS = "/api/v1/namespaces/team/pods"
WITHOUT = {
    PODS: listed(
        pod("late-0", gang="late", message="of a pod"),
        pod("first-0", gang="first", message="of a pod", created="2025-01-01T00:00:00Z"),
        pod("first-1", gang="first", node="n0"),
        pod("running-0", gang="running", node="n0"),
        pod("plain", message="no gang"),
    ),
    "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/team/podgroups": listed(
        pod_group("first", 2, "of its PodGroup")
    ),
}


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        ({}, "is not served in this cluster"),
        ({f"{GANGS}/namespaces/team/gangs": REFUSED}, "is not served in this cluster"),
        (
            {f"{GANGS}/namespaces/team/gangs": status(503, "ServiceUnavailable", "away")},
            "does not answer",
        ),
    ],
    ids=["not served", "not served and no rights", "away"],
)
def test_without_the_api_gangs_are_found_by_their_pods(
    tmp_path: Path, answers: dict[str, Any], why: str
) -> None:
    """Oldest first, with what the PodGroup says, else a pod; the last line says why there are no
    positions.
    """
    answer = ask(tmp_path, {**WITHOUT, **answers})
    assert (answer.exit_code, answer.stderr) == (0, "")
    assert answer.output.splitlines() == [
        "2 gangs wait in namespace team.",
        "",
        "POSITION  GANG        MIN  BOUND  WAITING SINCE         REASON         MESSAGE",
        "-         team/first  2    1      2025-01-01T00:00:00Z  Unschedulable  of its PodGroup",
        "-         team/late   -    0      2026-01-01T00:00:00Z  Unschedulable  of a pod",
        "",
        f"Oldest first: the gangs API (visibility.gangsched.dev), which knows the queue, {why}.",
    ]
    told = json.loads(ask(tmp_path, {**WITHOUT, **answers}, "-o", "json").output)
    assert [(each["name"], each["position"]) for each in told["gangs"]] == [
        ("first", None),
        ("late", None),
    ]
    assert why in told["instead"]


def test_who_may_not_read_gangs_is_told(tmp_path: Path) -> None:
    """The API is served, so pods are no substitute; without it the right to list pods is named."""
    refused = ask(tmp_path, {**WITHOUT, f"{GANGS}/namespaces/team/gangs": REFUSED, GANGS: {}})
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "You (user alice) may not list gangs in namespace team" in refused.stderr
    neither = ask(tmp_path, {"/api/v1/pods": forbidden("list", "pods")}, "-A")
    assert (
        neither.stderr
        == "kubectl-gangsched: You (user alice) may not list pods in the whole cluster; ask for one"
        " namespace with -n.\n"
    )
