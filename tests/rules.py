"""`python -m tests.rules`: which tests prove which rule of the semantics.

Invariant: a test proves the rules that its docstring cites (`"P1, B1: …"`, `"R1 to R3: …"`), a
scenario those in its `rules`. Nothing is imported but read, so the table is the same wherever tests
can be run.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.scenarios.table import RULES, by_rule, load

FOLDER: Final = Path(__file__).parent
KINDS: Final = ("scenarios", "unit", "properties", "e2e")
CITED: Final = re.compile(r"\b([IQPFRBTDHVLEAO])(\d{1,2})(?:\s*(?:to|-|–)\s*\1(\d{1,2}))?\b")
Table = Mapping[str, Mapping[str, Sequence[str]]]


def table() -> Table:
    """rule → kind of test → names, in the order of the semantics; scenarios are played in both
    forms.
    """
    found: dict[str, dict[str, list[str]]] = {rule: defaultdict(list) for rule in RULES}
    for rule, names in by_rule(load()).items():
        found[rule]["scenarios"] += names
    for path in sorted(FOLDER.rglob("test_*.py")):
        folder = path.relative_to(FOLDER).parts[0]
        kind = folder if folder in KINDS else "unit"
        for name, text in _tests(path):
            for rule in cited(text):
                found[rule][kind].append(
                    f"{path.stem.removeprefix('test_')}::{name.removeprefix('test_')}"
                )
    return found


def cited(text: str) -> list[str]:
    """The rules that a docstring names, each once."""
    numbers = (
        (letter, range(int(first), int(last or first) + 1))
        for letter, first, last in CITED.findall(text)
    )
    named = (f"{letter}{number}" for letter, all_of in numbers for number in all_of)
    return [rule for rule in dict.fromkeys(named) if rule in RULES]


def unproven(of: Table) -> list[str]:
    """Rules without a scenario, or without any other test."""
    return [
        rule
        for rule, kinds in of.items()
        if not kinds.get("scenarios") or not any(kinds.get(k) for k in KINDS[1:])
    ]


def _tests(path: Path) -> Iterator[tuple[str, str]]:
    """(name, docstring) of every test function in a file."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith(
            "test_"
        ):
            yield node.name, ast.get_docstring(node) or ""


def main() -> int:
    """Print the table; 1 when a rule has no scenario or no other test."""
    of = table()
    print(f"| rule | {' | '.join(KINDS)} |\n|---|{'---|' * len(KINDS)}")
    for rule, kinds in of.items():
        print(f"| {rule} | {' | '.join(' · '.join(kinds.get(kind, ())) for kind in KINDS)} |")
    print(f"\n| rule | {' | '.join(KINDS)} |\n|---|{'--:|' * len(KINDS)}")
    for rule, kinds in of.items():
        print(f"| {rule} | {' | '.join(str(len(kinds.get(kind, ()))) for kind in KINDS)} |")
    if missing := unproven(of):
        print(
            f"\nWithout a scenario or without another test: {', '.join(missing)}.", file=sys.stderr
        )
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
