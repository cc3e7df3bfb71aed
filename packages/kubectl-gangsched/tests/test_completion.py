"""Completion of `kubectl gangsched`: commands, options and values; files where nothing else may
follow.
"""

from __future__ import annotations

import os

import pytest

from kubectl_gangsched.completion import candidates


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
