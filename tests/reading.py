"""`python -m tests.reading [SEED]`: ten random pieces of each kind of text, to count stumbles in
(decision 76).
"""

from __future__ import annotations

import ast
import random
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from typer.main import get_command

from gangsched.cli import cli
from kubectl_gangsched.main import cli as kubectl
from tests.density import PACKAGES

ROOT: Final = Path(__file__).parents[1]
PACKAGE: Final = ROOT / "gangsched"
PAGES: Final = (
    "README.md",
    "SECURITY.md",
    "CONTRIBUTING.md",
    "docs/*.md",
    "docs/semantics/*.md",
    "docs/guides/*.md",
)
SENTENCES: Final = ("core", "state", "api", "kube/write", "model")
PIECES: Final = 10


def documents() -> Iterator[tuple[str, str]]:
    """Paragraphs, list items and table rows of at least eight words, without code blocks."""
    for path in sorted(path for page in PAGES for path in ROOT.glob(page)):
        prose = re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)
        for block in re.split(r"\n\s*\n|\n(?=[-|*] |\d+\. )", prose):
            if len(re.findall(r"[a-z]{2,}", block)) >= 8 and not block.startswith(
                ("#", "<", "|--")
            ):
                yield str(path.relative_to(ROOT)), block.strip()


def docstrings() -> Iterator[tuple[str, str]]:
    """Those of modules, public classes and public functions."""
    for path in sorted(path for package in PACKAGES for path in package.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                text = ast.get_docstring(node)
                if text and not getattr(node, "name", "").startswith("_"):
                    yield (
                        (
                            f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}"
                            f" {getattr(node, 'name', '')}"
                        ),
                        text,
                    )


def helps() -> Iterator[tuple[str, str]]:
    """The texts of commands, arguments and options."""
    waiting = [("gangsched", get_command(cli)), ("kubectl gangsched", get_command(kubectl))]
    while waiting:
        name, command = waiting.pop()
        waiting += [
            (f"{name} {each}", sub) for each, sub in getattr(command, "commands", {}).items()
        ]
        if command.help:
            yield name, command.help
        for each in command.params:
            if text := getattr(each, "help", None):
                yield f"{name} {' '.join(each.opts)}", text


def sentences() -> Iterator[tuple[str, str]]:
    """Literals of three or more words that Events, conditions and refusals are made of; `{}` stands
    for a value.
    """
    for path in sorted(path for folder in SENTENCES for path in (PACKAGE / folder).rglob("*.py")):
        tree = ast.parse(path.read_text())
        inner = {
            id(each)
            for node in ast.walk(tree)
            if isinstance(node, ast.JoinedStr)
            for each in node.values
        }
        inner |= {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                text = "".join(
                    str(each.value) if isinstance(each, ast.Constant) else "{}"
                    for each in node.values
                )
            elif (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and id(node) not in inner
            ):
                text = node.value
            else:
                continue
            if len(re.findall(r"(?<!\S)[A-Za-z']{2,}", text)) >= 3 and path.stem != "validate":
                yield f"{path.relative_to(ROOT)}:{node.lineno}", text


def main() -> None:
    """Print the seed, and per kind the pieces drawn with their words."""
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else random.randrange(10**6)
    print(f"seed {seed}")
    for kind in (documents, docstrings, helps, sentences):
        # each text once
        all_of = [(place, text) for text, place in {text: place for place, text in kind()}.items()]
        drawn = random.Random(f"{seed} {kind.__name__}").sample(all_of, PIECES)
        print(
            f"\n# {kind.__name__}: {PIECES} of {len(all_of)},"
            f" {sum(len(text.split()) for _, text in drawn)} words"
        )
        for number, (place, text) in enumerate(drawn, 1):
            print(f"\n{number}. {place} ({len(text.split())} words)\n{text}")


if __name__ == "__main__":
    main()
