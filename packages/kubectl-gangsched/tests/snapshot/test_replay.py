"""`replay`: the verdicts of the real state and plan on what a snapshot has."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from gangsched.snapshots import file
from kubectl_gangsched.main import cli
from tests.fake_api import listed, node, pod, pod_group, served

X = "scheduling.x-k8s.io"


def cluster(*pods: dict[str, Any], groups: tuple[dict[str, Any], ...] = ()) -> dict[str, Any]:
    return {
        "/version": {"gitVersion": "v1.36.0"},
        "/api/v1/pods": listed(*pods),
        "/api/v1/nodes": listed(node("n0", 8), node("n1", 8)),
        "/api/v1/namespaces": listed({"metadata": {"name": "team"}}),
        f"/apis/{X}": {"versions": [{"version": "v1alpha1"}]},
        f"/apis/{X}/v1alpha1/podgroups": listed(*groups),
    }


def play(path: Path, *words: str) -> Result:
    return CliRunner().invoke(cli, ["replay", str(path), *words])


def taken(tmp_path: Path, answers: dict[str, Any], *words: str) -> Path:
    path = tmp_path / "snapshot.gz"
    with served(tmp_path, answers) as (_, kubeconfig):
        answer = CliRunner().invoke(
            cli, ["snapshot", "-o", str(path), "--kubeconfig", str(kubeconfig), *words]
        )
    assert answer.exit_code == 0, answer.output
    return path


def test_what_fits_starts_and_what_does_not_is_told_why(tmp_path: Path) -> None:
    """A gang of 8 GPUs starts beside 4 that are taken; one of 16 is told what it lacks, a third
    misses its PodGroup.
    """
    small = [pod(f"small-{i}", gang="small", gpus=4) for i in range(2)]
    large = [pod(f"large-{i}", gang="large", gpus=8) for i in range(2)]
    lost = pod("lost-0", gang="lots")
    groups = (pod_group("small", 2), pod_group("large", 2))
    for each, day in ((groups[0], 1), (groups[1], 2), *((each, 2) for each in (*large, lost))):
        each["metadata"]["creationTimestamp"] = f"2026-01-0{day}T00:00:00Z"
    path = taken(
        tmp_path, cluster(pod("busy", node="n0", gpus=4), *small, *large, lost, groups=groups)
    )
    told = {each["gang"]: each for each in json.loads(play(path, "-o", "json").output)["gangs"]}
    assert told["team/small"]["reason"] == "Scheduled"
    assert set(told["team/small"]["starts"]) == {"small-0", "small-1"}
    assert told["team/large"]["reason"] == "Unschedulable"
    assert "team/large" in told["team/large"]["message"]
    assert told["team/large"]["pods"].keys() == {"large-0", "large-1"}
    assert told["team/lots"]["reason"] == "PodGroupMissing"
    text = play(path).output
    assert text.startswith("3 gangs and plain pods wait; 1 would start now.\n")
    assert "2 pods on " in text


def test_pods_of_other_schedulers_take_room_and_wait_for_others(tmp_path: Path) -> None:
    """Only what is ours is planned; --scheduler-name says what is."""
    path = taken(tmp_path, cluster(pod("theirs", scheduler="other"), pod("mine")))
    assert [each["gang"] for each in json.loads(play(path, "-o", "json").output)["gangs"]] == [
        "team/mine"
    ]
    others = json.loads(play(path, "--scheduler-name", "other", "-o", "json").output)["gangs"]
    assert [each["gang"] for each in others] == ["team/theirs"]


def test_the_verdicts_are_the_same_under_other_names(tmp_path: Path) -> None:
    """Redacted names sort as the names did, so ties are broken alike."""
    pods = [
        pod(f"{name}-{i}", gang=name, gpus=5) for name in ("zeta", "alpha", "mid") for i in range(2)
    ]
    answers = cluster(*pods, groups=tuple(pod_group(name, 2) for name in ("zeta", "alpha", "mid")))
    plain = json.loads(play(taken(tmp_path, answers), "-o", "json").output)["gangs"]
    hidden = json.loads(play(taken(tmp_path, answers, "--redact-names"), "-o", "json").output)[
        "gangs"
    ]
    assert [each["reason"] for each in hidden] == [each["reason"] for each in plain]
    assert [bool(each["starts"]) for each in plain] == [True, False, False]
    assert len({each["gang"] for each in plain} & {each["gang"] for each in hidden}) == 0


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"text", "it is no snapshot"),
        (gzip.compress(b"{}"), "is no snapshot of kubectl gangsched, or is damaged"),
        (gzip.compress(b"{}")[:-9], "is no snapshot of kubectl gangsched, or is damaged"),
        (
            gzip.compress(
                json.dumps(
                    {
                        "kind": file.KIND,
                        "format": 99,
                        "gangsched": "9.9",
                        "apiServer": "",
                        "takenAt": "",
                        "settings": {},
                        "resources": {},
                        "unread": {},
                        "podGroups": {},
                    }
                ).encode()
            ),
            "of format 99, made by gangsched 9.9: replay it with that version.",
        ),
    ],
    ids=["text", "json", "cut", "later"],
)
def test_a_file_that_is_no_snapshot_is_one_sentence(
    tmp_path: Path, content: bytes, said: str
) -> None:
    """Exit code 2, no traceback."""
    path = tmp_path / "x.gz"
    path.write_bytes(content)
    answer = play(path)
    assert (answer.exit_code, answer.stdout) == (2, "")
    assert said in answer.stderr
    assert play(tmp_path / "none").exit_code == 2


def test_a_bad_setting_is_one_sentence(tmp_path: Path) -> None:
    """That of `settings`."""
    config = tmp_path / "config.yaml"
    config.write_text("reservations: none")
    answer = play(taken(tmp_path, cluster()), "--config", str(config))
    assert answer.exit_code == 2
    assert "reservations" in answer.stderr
