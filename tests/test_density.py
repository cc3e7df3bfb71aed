"""Lines with air: how much one line of the package holds is bounded, as its length is."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

from tests.density import PACKAGES, density_of, packages, tokens_by_line

TOKENS_A_LINE = 9.0
"""The most that a file may have on average; structlog, attrs, aiohttp, kopf and asyncio have 5.1 to
7.1.
"""
SMALL = 20
"""Lines of code below which one long table or import says nothing about a file."""
FULLEST = 8
"""Lines that are shown of a file that is too dense."""
PARALLEL_SHARE = 0.01
BLANK_SHARE = 0.04
STILL_DENSE = Path(__file__).with_name("still_dense.txt")
"""Files that were above the limit when it was set, each with its figure then: none may become
denser.
"""


def still_dense() -> dict[str, float]:
    """The allowed figure of each such file, by its path from its package on."""
    rows = (line.split() for line in STILL_DENSE.read_text(encoding="utf-8").splitlines())
    return {path: float(figure) for figure, path in rows}


@cache
def figures() -> dict[str, float]:
    """The tokens a line of each file."""
    densities = {
        str(path.relative_to(package.parent)): density_of([path])
        for package in PACKAGES
        for path in package.rglob("*.py")
    }
    return {
        path: density.tokens_a_line
        for path, density in densities.items()
        if density.code_lines > SMALL
    }


def too_dense(path: str, figure: float, most: float) -> str:
    """What a contributor reads: the fullest lines, which are the ones to take apart."""
    package = next(folder for folder in PACKAGES if folder.name == path.split("/", maxsplit=1)[0])
    source = (package.parent / path).read_text(encoding="utf-8")
    lines = source.splitlines()

    by_line = tokens_by_line(source)
    fullest = sorted(by_line, key=by_line.__getitem__, reverse=True)[:FULLEST]
    rows = [f"  {number}: {lines[number - 1].strip()}" for number in sorted(fullest)]

    summary = (
        f"{path} has {figure:.2f} tokens a line, at most {most} are allowed. Name what an "
        "expression passes on, make a loop of a comprehension that fills its line, return early. "
        "The fullest lines:"
    )
    return "\n".join([summary, *rows])


def test_no_file_is_denser_than_its_limit() -> None:
    """A new file has at most `TOKENS_A_LINE`; one of `still_dense.txt` at most what it had."""
    allowed = still_dense()
    found = figures()
    advice = []
    for path, figure in found.items():
        most = allowed.get(path, TOKENS_A_LINE)
        if figure > most:
            advice.append(too_dense(path, figure, most))

    assert advice == [], "\n".join(["One idea a line, please:", *advice])


def test_files_that_are_no_longer_dense_are_off_the_list() -> None:
    """So that the list only becomes shorter."""
    found = figures()
    assert [path for path in still_dense() if found.get(path, 0.0) <= TOKENS_A_LINE] == []


@pytest.mark.parametrize("name", [name for name, _ in packages()])
def test_steps_are_apart_and_values_are_assigned_one_by_one(name: str) -> None:
    """Of each folder of the package."""
    density = density_of(dict(packages())[name])
    assert density.blank_share >= BLANK_SHARE
    assert density.parallel_share <= PARALLEL_SHARE


def test_a_file_that_is_too_dense_is_told_which_lines_are_full() -> None:
    """A contributor sees what to take apart, not only that something is too much."""
    advice = too_dense("gangsched/core/score.py", 9.1, 9.0)
    assert "gangsched/core/score.py has 9.10 tokens a line, at most 9.0 are allowed" in advice
    assert len(advice.splitlines()) == 1 + FULLEST


def test_what_is_measured(tmp_path: Path) -> None:
    """Each figure, on a few lines that can be counted by hand."""
    path = tmp_path / "few.py"
    source = 'a, b = 1, 2\n\n\ndef f(x):\n    """Doc."""\n    y = [z for z in x]\n\n    return y\n'
    path.write_text(source)
    assert ast.parse(source)

    density = density_of([path])
    assert (density.code_lines, density.tokens) == (4, 7 + 6 + 9 + 2)
    assert (density.function_lines, density.blank_lines) == (5, 1)
    assert (density.assignments, density.parallel, density.comprehensions) == (2, 1, 1)
    assert density.name_length == 1.0
