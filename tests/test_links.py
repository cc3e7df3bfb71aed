"""Links between the documents lead to files and headings that exist, and what is to be applied can
be read.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    subprocess.run(
        ["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
)
BLOCK = re.compile(r"^```yaml\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")


def anchors(page: Path) -> set[str]:
    """The anchors of a page: those of its headings, as GitHub makes them, and those that it names
    itself.
    """
    text = page.read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    named = re.findall(r'<a id="([^"]+)"></a>', text)
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings
    } | set(named)


@pytest.mark.parametrize("name", PAGES)
def test_links_of_a_page_lead_somewhere(name: str) -> None:
    """A page that is moved or a heading that is renamed is noticed here."""
    page = ROOT / name
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in LINK.findall(text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path) if path else page
        assert there.exists(), target
        if anchor and there.suffix == ".md":
            assert anchor in anchors(there), target


@pytest.mark.parametrize("name", PAGES)
def test_yaml_on_a_page_can_be_applied(name: str) -> None:
    """Whatever wraps the lines of a page must leave its blocks as they are: every document in them
    is one object.
    """
    for block in BLOCK.findall((ROOT / name).read_text(encoding="utf-8")):
        documents = list(yaml.safe_load_all(block))
        assert all(documents), block
        assert all(isinstance(each, dict | list) for each in documents), block
        assert all(("apiVersion" in each) is ("kind" in each) for each in documents), block
