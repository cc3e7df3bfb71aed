"""The documents stay short enough to be read: all of them but the decisions have a bound."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]
MOST_WORDS = 45_000
"""Whoever adds a paragraph shortens another one; the bound is not raised."""


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


def words(text: str) -> int:
    """How many words a text has; the bars and rules of tables are none."""
    return len([word for word in text.split() if not re.fullmatch(r"[|:-]+", word)])


def test_the_documents_are_short() -> None:
    """The message names the longest pages."""
    counted = {name: words((ROOT / name).read_text(encoding="utf-8")) for name in documents()}
    assert len(counted) > 30
    longest = sorted(counted, key=counted.__getitem__, reverse=True)[:10]
    total = sum(counted.values())
    assert total <= MOST_WORDS, f"{total} words; {[f'{name}: {counted[name]}' for name in longest]}"


def test_bars_of_tables_are_no_words() -> None:
    """A table counts as much as a list that says the same."""
    assert words("| a | b c |\n|---|---:|\n| d | - |") == words("a b c d") == 4
