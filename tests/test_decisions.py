"""Every number of a decision leads to the paragraph of a chapter that holds it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "decisions"
CHAPTERS = {
    page.name: page.read_text(encoding="utf-8")
    for page in FOLDER.glob("*.md")
    if page.name != "README.md"
}
ANCHOR = re.compile(r'^<a id="(\d{4})"></a>\*\*', re.MULTILINE)
ROW = re.compile(r"^\| \[(\d{4})\]\(([a-z]+\.md)#(\d{4})\) \|", re.MULTILINE)
CHANGE = re.compile(r"^- \d{4}-\d{2}-\d{2}, (\d{4}): ", re.MULTILINE)
CITED = re.compile(r"\bdecisions?\s+\[?(\d{1,4})\b(?:\s+and\s+(\d{1,4})\b)?", re.IGNORECASE)
# The numbers that had a file of their own before there were chapters; gaps are numbers that were
# never used.
OLD_RANGES = [
    (1, 28),
    (35, 36),
    (40, 41),
    (44, 51),
    (53, 53),
    (55, 55),
    (57, 65),
    (67, 85),
    (87, 111),
    (115, 118),
    (121, 122),
]
OLD = {f"{number:04}" for first, last in OLD_RANGES for number in range(first, last + 1)}


def rows() -> dict[str, str]:
    """The chapter of each number, as the table of the README has it."""
    table = ROW.findall((FOLDER / "README.md").read_text(encoding="utf-8"))
    assert all(number == anchor for number, _, anchor in table)
    assert len({number for number, _, _ in table}) == len(table)
    return {number: chapter for number, chapter, _ in table}


def numbers(pattern: re.Pattern[str]) -> list[tuple[str, str]]:
    """Each number that the pattern finds in the chapters, and the chapter."""
    found = [(number, name) for name, text in CHAPTERS.items() for number in pattern.findall(text)]
    return sorted(found)


def test_every_old_number_leads_to_an_anchor() -> None:
    """A reference that was written when each decision had a file still leads somewhere."""
    table = rows()
    assert set(table) >= OLD
    assert numbers(ANCHOR) == sorted(table.items())


def test_every_decision_is_in_its_chapters_list_of_changes() -> None:
    """One dated line for each number, in the chapter that holds the decision."""
    assert numbers(CHANGE) == sorted(rows().items())


def test_the_readme_lists_every_chapter() -> None:
    """A chapter that nobody links to would not be read."""
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert [name for name in CHAPTERS if f"]({name})" not in text] == []
    assert [page.name for page in FOLDER.glob("[0-9]*")] == []


def test_cited_decisions_exist() -> None:
    """A number in a comment or on a page is that of a decision."""
    tracked = subprocess.run(
        ["git", "ls-files", "*.py", "*.md", "*.yaml"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    named = {
        (name, f"{int(number):04}")
        for name in tracked.stdout.split()
        for found in CITED.findall((ROOT / name).read_text(encoding="utf-8"))
        for number in found
        if number
    }
    assert len(named) > 30
    assert {where for where in named if where[1] not in rows()} == set()
