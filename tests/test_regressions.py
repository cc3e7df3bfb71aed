"""tests/REGRESSIONS.md names tests and targets that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
NAMED = re.compile(r"`(tests/[^`]+|test_[^`]+|make [a-z-]+)[^`]*`")


def test_every_regression_names_a_test_that_exists() -> None:
    """Each row has at least one, and a renamed or deleted test is noticed here."""
    table = (ROOT / "tests" / "REGRESSIONS.md").read_text(encoding="utf-8")
    rows = [line for line in table.splitlines() if line.startswith("|")][2:]
    assert len(rows) > 60
    files = list((ROOT / "tests").rglob("*.py"))
    defined = {
        name
        for file in files
        for name in re.findall(r"def (test_\w+)", file.read_text(encoding="utf-8"))
    }
    defined |= {file.name for file in files}
    targets = set(
        re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    )
    for row in rows:
        named = NAMED.findall(row)
        assert named or 'scenario "' in row, row
        for name in named:
            if name.startswith("make "):
                assert name.removeprefix("make ") in targets, row
            elif name.startswith("tests/"):
                assert (ROOT / name).exists(), row
            else:
                assert name in defined, row
