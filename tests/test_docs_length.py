"""The documents stay short enough to be read: all of them but the decisions have a bound."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]
MOST_WORDS = 52_000
"""As `wc -w` counts. Whoever adds a paragraph shortens another one; the bound is not raised."""


def documents() -> list[str]:
    """The pages that users, operators and contributors read, without the chapters of decisions."""
    tracked = subprocess.run(
        ["git", "ls-files", "docs/*.md", "README.md", "SECURITY.md", "CONTRIBUTING.md"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    return [name for name in tracked if not name.startswith("docs/decisions/")]


def test_the_documents_are_short() -> None:
    """The message names the longest pages."""
    words = {name: len((ROOT / name).read_text(encoding="utf-8").split()) for name in documents()}
    assert len(words) > 30
    longest = sorted(words, key=words.__getitem__, reverse=True)[:10]
    assert sum(words.values()) <= MOST_WORDS, [f"{name}: {words[name]}" for name in longest]
