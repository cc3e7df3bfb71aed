"""Words that only this project used, and the field's word for each: they do not come back.

A word of the first table may stand nowhere in the package, in names and texts alike; one of the
second nowhere in what users and administrators read.
"""

from __future__ import annotations

import ast
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
IN_SENTENCES = FOR_USERS | {
    "hole": "free amount",
    "holes": "free amounts",
    "told": "reported",
    "kept for": "reserved for",
    "kept on": "reserved on",
    "culprit": "pod",
}
"""What no sentence of ours may say, although the package may use the word as a name."""
TRACKED = subprocess.run(
    ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
).stdout.splitlines()
CODE = re.compile(r"(gangsched|packages/[\w-]+/\w+_\w+)/.*\.py")
PACKAGE = [name for name in TRACKED if CODE.fullmatch(name)]
WORDED = [
    name for name in PACKAGE if name.startswith(("gangsched/sentences/", "gangsched/visibility/"))
] + [
    name
    for name in TRACKED
    if name.startswith("packages/kubectl-gangsched/kubectl_gangsched/") and name.endswith(".py")
]
"""The modules that word what users read."""
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


def sentences(source: str) -> list[str]:
    """The texts of several words in a module, without docstrings."""
    tree = ast.parse(source)
    docstrings = set()
    for each in ast.walk(tree):
        if isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant):
            docstrings.add(each.value)

    found = []
    for each in ast.walk(tree):
        if isinstance(each, ast.Constant) and each not in docstrings:
            text = str(each.value)
            if " " in text.strip():
                found.append(text)

    return found


@pytest.mark.parametrize("name", WORDED)
def test_sentences_have_no_private_words(name: str) -> None:
    """Conditions, Events, the gangs API and the command line."""
    texts = " | ".join(sentences((ROOT / name).read_text()))
    assert private(texts, IN_SENTENCES) == {}


def test_a_private_word_in_a_sentence_is_noticed() -> None:
    """Not in a docstring or in a name."""
    source = '"""What is told."""\ntold = f"the largest hole has {told} nodes"\n'
    assert private(" ".join(sentences(source)), IN_SENTENCES) == {"hole": "free amount"}


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
