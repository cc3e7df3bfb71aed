"""How much is on one line of the package: `python -m tests.density` prints it by package, beside
other projects.

A limit on the lines of a file, without one on what a line holds, made the lines of this project
twice as dense as those of its peers. So this is measured: tokens for each line of code, blank lines
inside functions, parallel assignments, comprehensions, and the length of local names.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "gangsched"
PACKAGES = (
    PACKAGE,
    ROOT / "packages" / "kubernetes-cel" / "kubernetes_cel",
    ROOT / "packages" / "kubectl-gangsched" / "kubectl_gangsched",
)
"""All code that is installed; a file is named below the folder of its package."""
COUNTED = frozenset({tokenize.NAME, tokenize.OP, tokenize.NUMBER})
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True, slots=True)
class Density:
    """What some files hold in all. Strings count as no token: a message may be as long as it is."""

    tokens: int
    #: Lines with at least one token.
    code_lines: int
    #: Lines of functions, and how many of them are blank.
    function_lines: int
    blank_lines: int
    assignments: int
    #: Assignments of several values to several names at once, `a, b = x, y`.
    parallel: int
    comprehensions: int
    local_names: int
    letters: int

    @property
    def tokens_a_line(self) -> float:
        """Mean number of tokens on a line of code."""
        return self.tokens / max(1, self.code_lines)

    @property
    def blank_share(self) -> float:
        """Share of blank lines among the lines of functions."""
        return self.blank_lines / max(1, self.function_lines)

    @property
    def parallel_share(self) -> float:
        """Share of parallel assignments among all."""
        return self.parallel / max(1, self.assignments)

    @property
    def comprehensions_a_thousand(self) -> float:
        """Comprehensions for a thousand lines of code."""
        return 1_000 * self.comprehensions / max(1, self.code_lines)

    @property
    def name_length(self) -> float:
        """Mean length of local names, each counted once a function."""
        return self.letters / max(1, self.local_names)


def density_of(paths: Iterable[Path]) -> Density:
    """Measure these files together."""
    counts = [_of_source(path.read_text(encoding="utf-8")) for path in paths]
    return Density(*(sum(column) for column in zip(*counts, strict=True)))


def _of_source(source: str) -> tuple[int, ...]:
    tree = ast.parse(source)
    by_line = tokens_by_line(source)
    inside = _function_lines(tree)
    lines = source.splitlines()

    nodes = [*ast.walk(tree)]
    assignments = [node for node in nodes if isinstance(node, ast.Assign)]
    names = [name for node in nodes if isinstance(node, FUNCTIONS) for name in _local_names(node)]
    return (
        sum(by_line.values()),
        len(by_line),
        len(inside),
        sum(not lines[number - 1].strip() for number in inside),
        len(assignments),
        sum(map(_is_parallel, assignments)),
        sum(isinstance(node, COMPREHENSIONS) for node in nodes),
        len(names),
        sum(map(len, names)),
    )


def tokens_by_line(source: str) -> dict[int, int]:
    """The number of tokens of each line that has any; lines count from 1."""
    by_line: dict[int, int] = {}
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in COUNTED:
            line = token.start[0]
            by_line[line] = by_line.get(line, 0) + 1
    return by_line


def _function_lines(tree: ast.Module) -> set[int]:
    inside: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, FUNCTIONS):
            inside.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return inside


def _is_parallel(node: ast.Assign) -> bool:
    return isinstance(node.targets[0], ast.Tuple) and isinstance(node.value, ast.Tuple)


def _local_names(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """Names that are assigned in a function, without `_`."""
    stored = (
        node
        for node in ast.walk(function)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    )
    return {node.id for node in stored} - {"_"}


def packages() -> Iterator[tuple[str, list[Path]]]:
    """Each package, and each folder of gangsched, with their files."""
    for package in PACKAGES:
        yield package.name, sorted(package.rglob("*.py"))

    for folder in sorted(PACKAGE.iterdir()):
        files = sorted(folder.rglob("*.py"))
        if folder.is_dir() and files:
            yield f"gangsched/{folder.name}", files


def main() -> None:
    """Print the table; with folders as arguments, of their files instead."""
    asked = [(folder, sorted(Path(folder).rglob("*.py"))) for folder in sys.argv[1:]]
    table = Table(
        "",
        "code lines",
        "tokens a line",
        "blank %",
        "parallel %",
        "comprehensions / 1,000",
        "name length",
    )

    for name, files in asked or packages():
        density = density_of(files)
        table.add_row(
            name,
            f"{density.code_lines:,}",
            f"{density.tokens_a_line:.2f}",
            f"{100 * density.blank_share:.1f}",
            f"{100 * density.parallel_share:.1f}",
            f"{density.comprehensions_a_thousand:.1f}",
            f"{density.name_length:.1f}",
        )
    Console().print(table)


if __name__ == "__main__":
    main()
