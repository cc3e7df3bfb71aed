"""The page of the cases, `docs/troubleshooting.md`: what stands in it, and how it is written anew.

Invariant: under each `<!-- case: slug -->` stands what a real API server says then, line by line;
the rest is written by hand.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from tests.newcomer.case import ROOT

PAGE = ROOT / "docs" / "troubleshooting.md"
_BLOCK = re.compile(r"(<!-- case: ([a-z0-9-]+) -->\n```text\n)(.*?)(```\n)", re.DOTALL)


def documented() -> dict[str, list[str]]:
    """Slug → lines. Raises AssertionError for a slug that stands there twice."""
    found = [(slug, text.splitlines()) for _, slug, text, _ in _BLOCK.findall(PAGE.read_text())]
    assert len({slug for slug, _ in found}) == len(found), "a case stands in the page twice"
    return dict(found)


def write(said: Mapping[str, list[str]]) -> None:
    """Put these lines into the page."""

    def block(found: re.Match[str]) -> str:
        lines = said.get(found[2])
        return (
            found[0]
            if lines is None
            else found[1] + "".join(f"{line}\n" for line in lines) + found[4]
        )

    PAGE.write_text(_BLOCK.sub(block, PAGE.read_text()))
