"""Completion of `kubectl gangsched`: commands, options and values; files where nothing else may
follow.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kubectl_gangsched.completion import candidates
from tests.fake_api import forbidden, listed, pod, served


@pytest.mark.parametrize(
    ("words", "lines"),
    [
        (["sn"], ["snapshot", ":4"]),
        (["why", "--conte"], ["--context", ":4"]),
        (["why", "x", "-o", ""], ["text", "json", "yaml", ":4"]),
        (["plan", "-f", ""], [":0"]),
        (["no-such-command", "--fi"], [":0"]),
        (["why", "'"], [":0"]),
    ],
    ids=["command", "option", "value", "file", "misuse", "an open quote"],
)
def test_what_may_follow(words: list[str], lines: list[str]) -> None:
    """Candidates, then cobra's directive; the environment stays as it was."""
    before = dict(os.environ)
    assert candidates(words) == lines
    assert dict(os.environ) == before


def test_all_commands_are_offered() -> None:
    """Without any word."""
    assert {"why", "queue", "plan", "map", "doctor", "snapshot", "replay"} <= set(candidates([""]))


PODS = "/api/v1/namespaces/team/pods"


def test_names_of_gangs_and_pods_are_offered(tmp_path: Path) -> None:
    """`why` takes both, `history` gangs alone; the flags before say which cluster is asked."""
    pods = listed(*(pod(f"train-{i}", gang="train") for i in range(2)), pod("web", gang=""))
    with served(tmp_path, {PODS: pods}) as (_, kubeconfig):
        flags = ["--kubeconfig", str(kubeconfig)]
        assert candidates(["why", *flags, "tr"]) == ["train", "train-0", "train-1", ":4"]
        assert candidates([*flags, "history", ""]) == ["train", ":4"]


def test_without_an_answer_there_are_no_names(tmp_path: Path) -> None:
    """No rights and no kubeconfig are no text in the middle of a command line."""
    with served(tmp_path, {PODS: forbidden("list", "pods")}) as (_, kubeconfig):
        assert candidates(["why", "--kubeconfig", str(kubeconfig), "tr"]) == [":0"]
    assert candidates(["why", "--kubeconfig", str(tmp_path / "none"), "tr"]) == [":0"]
