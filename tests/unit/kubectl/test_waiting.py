"""`queue`: the gangs that wait in the order of the gangs API, which alone knows it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from gangsched.kubectl.main import cli
from gangsched.kubectl.session import GANGS
from tests.unit.kubectl.fake_api import forbidden, listed, served, status


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
    assert [each["metadata"]["name"] for each in json.loads(everywhere.output)] == ["first", "late"]
    assert ask(tmp_path, {f"{GANGS}/gangs": listed()}, "-A").output == "No gang waits in the cluster.\n"


REFUSED = forbidden("list", "gangs", 'in the namespace "team"')


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ({}, "is not served in this cluster: an operator turns it on with `kubectl apply -k manifests/visibility`"),
        ({f"{GANGS}/namespaces/team/gangs": REFUSED}, "is not served in this cluster"),
        ({f"{GANGS}/namespaces/team/gangs": status(503, "ServiceUnavailable", "away")}, "does not answer"),
        (
            {f"{GANGS}/namespaces/team/gangs": REFUSED, GANGS: {}},
            "You (user alice) may not list gangs in namespace team",
        ),
    ],
    ids=["not served", "not served and no rights", "away", "no rights"],
)
def test_without_the_api_there_is_one_sentence(tmp_path: Path, answers: dict[str, Any], said: str) -> None:
    """Exit code 2, and how to turn it on."""
    answer = ask(tmp_path, answers)
    assert (answer.exit_code, answer.stdout) == (2, "")
    assert said in answer.stderr
