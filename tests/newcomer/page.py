"""The page of the cases, `docs/troubleshooting.md`: what stands in it, and how it is written anew.

Invariant: under each `<!-- case: slug, slug -->` stands what a real API server says in each of
these cases, line by line; the rest is written by hand.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from tests.newcomer.case import ROOT

PAGE = ROOT / "docs" / "troubleshooting.md"
_BLOCK = re.compile(r"(<!-- case: ([a-z0-9, -]+) -->\n```text\n)(.*?)(```\n)", re.DOTALL)


def blocks() -> list[tuple[list[str], list[str]]]:
    """The cases that share a block, and its lines."""
    found = _BLOCK.findall(PAGE.read_text())
    return [(slugs.split(", "), text.splitlines()) for _, slugs, text, _ in found]


def documented() -> dict[str, list[str]]:
    """Slug → lines. Raises AssertionError for a slug that stands there twice."""
    found = [(slug, lines) for slugs, lines in blocks() for slug in slugs]
    assert len({slug for slug, _ in found}) == len(found), "a case stands in the page twice"
    return dict(found)


def write(said: Mapping[str, list[str]]) -> None:
    """Put these lines into the page. Raises AssertionError if cases of a block differ."""

    def block(found: re.Match[str]) -> str:
        played = [said[slug] for slug in found[2].split(", ") if slug in said]
        if not played:
            return found[0]

        assert all(lines == played[0] for lines in played), f"these differ: {found[2]}"
        return found[1] + "".join(f"{line}\n" for line in played[0]) + found[4]

    PAGE.write_text(_BLOCK.sub(block, PAGE.read_text()))
