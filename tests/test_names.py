"""Names of variables: they say what they hold, `pod`, `node`, `gang`, and are no participle."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.density import PACKAGE, PACKAGES

VAGUE = frozenset(
    {
        "alone",
        "again",
        "apart",
        "behind",
        "each",
        "found",
        "gave",
        "made",
        "of",
        "put_off",
        "said",
        "seen",
        "standing",
        "told",
        "whole",
    }
)
"""Each of these has stood for values of five and more types."""
ELSEWHERE = "elsewhere"
MOST = {"core": 183, "state": 158, "visibility": 71, ELSEWHERE: 29}
"""How many variables may still have such a name, by folder of the package; it only becomes less."""


def stored(source: str) -> Iterator[str]:
    """The names that are assigned, and those of parameters."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg


def vague_names(path: Path) -> Counter[str]:
    """The vague names of a file."""
    names = stored(path.read_text(encoding="utf-8"))
    return Counter(name for name in names if name in VAGUE)


def test_variables_say_what_they_hold() -> None:
    """In new code no name is vague; old code only becomes better."""
    by_folder: Counter[str] = Counter()
    where: dict[str, list[str]] = {folder: [] for folder in MOST}
    for package in PACKAGES:
        for path in sorted(package.rglob("*.py")):
            folder = path.relative_to(package).parts[0] if package == PACKAGE else ""
            if folder not in MOST:
                folder = ELSEWHERE

            names = vague_names(path)
            by_folder[folder] += names.total()
            if names:
                where[folder].append(f"  {path.relative_to(package.parent)}: {', '.join(names)}")

    advice = []
    for folder, most in MOST.items():
        if by_folder[folder] > most:
            advice.append(f"{folder} has {by_folder[folder]} vague names, at most {most} may be.")
            advice += where[folder]

    assert advice == [], "\n".join(
        ["Call a variable what it holds: `pod`, `node`, `gang`. One of these is new:", *advice]
    )


def test_what_is_counted() -> None:
    """Assignments and parameters, not what is read or called."""
    source = "def told(each):\n    found = [of for of in each]\n    return found.whole\n"
    assert Counter(stored(source)) == {"each": 1, "found": 1, "of": 1}
