"""Words that only this project used, and the field's word for each: they do not come back.

A word of the first table may stand nowhere in the package, in names and texts alike; one of the
second nowhere in what users and administrators read.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gangsched.cli import cli
from gangsched.settings import Settings

ROOT = Path(__file__).parents[1]
IN_THE_PACKAGE = {
    "Law:": "Invariant:",
    "stirred": "pods changed",
    "grown": "freed",
    "ripe": "pending",
    "barred": "ineligible",
    "seat": "nominee",
    "seats": "nominees",
    "crowded": "overflowed",
    "witness": "oracle",
    "mischief": "fault injection",
    "lately": "recently",
    "for ever": "indefinitely",
    "lest": "so that … not",
    "dearest": "most expensive",
}
"""The private word → what to write."""
FOR_USERS = IN_THE_PACKAGE | {
    "anew": "again",
    "in vain": "without effect",
    "looked through": "scanned",
    "never fits": "can never fit",
    "had found a node": "could be placed",
}
TRACKED = subprocess.run(
    ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
).stdout.splitlines()
CODE = re.compile(r"(gangsched|packages/[\w-]+/\w+_\w+)/.*\.py")
PACKAGE = [name for name in TRACKED if CODE.fullmatch(name)]
PAGES = [
    name
    for name in (*TRACKED, "--help")
    if name in {"README.md", "SECURITY.md", "--help"}
    or (name.startswith("docs/") and name.endswith(".md"))
]


def private(text: str, words: dict[str, str]) -> dict[str, str]:
    """The private words in a text, also as a part of a name with underscores, and what to write
    instead.
    """
    return {
        word: better
        for word, better in words.items()
        if re.search(rf"(?<![A-Za-z]){re.escape(word)}(?![A-Za-z])", text, re.IGNORECASE)
    }


def test_the_package_has_no_private_words() -> None:
    """Names, docstrings, comments and messages."""
    found = {name: private((ROOT / name).read_text(), IN_THE_PACKAGE) for name in PACKAGE}
    assert {name: words for name, words in found.items() if words} == {}


@pytest.mark.parametrize("name", PAGES)
def test_what_users_read_has_no_private_words(name: str) -> None:
    """The pages, and the help with the description of every setting."""
    text = (
        CliRunner().invoke(cli, ["run", "--help"]).stdout
        if name == "--help"
        else (ROOT / name).read_text()
    )
    assert name != "--help" or all(
        f"--{each.replace('_', '-')}" in text for each in Settings.model_fields
    )
    assert private(text, FOR_USERS) == {}


def test_a_private_word_is_noticed() -> None:
    """Also within a name, and not within another word."""
    assert private("take_stirred(); Law: x", IN_THE_PACKAGE) == {
        "stirred": "pods changed",
        "Law:": "Invariant:",
    }
    assert private("a striped shirt, outgrown", IN_THE_PACKAGE) == {}
