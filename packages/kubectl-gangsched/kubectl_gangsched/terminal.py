"""Terminal output: plain text, styled on a terminal, and free of control characters.

Invariant: names and messages are user-controlled. Every text passes through `clean`: control
characters, which could move the cursor or set the title, and bidirectional overrides become "�".
"""

from __future__ import annotations

import json
import os
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

import msgspec


class Output(StrEnum):
    """Output format: text, JSON or YAML."""

    TEXT = "text"
    JSON = "json"
    YAML = "yaml"


class Cell(NamedTuple):
    """A text with a rich style, which is used on a terminal only."""

    text: str
    style: str = ""


Line = Sequence[Cell | str]


def clean(text: str) -> str:
    """The text on one line, with unprintable characters replaced."""
    # isprintable() is false for control characters and for bidirectional overrides alike.
    return "".join(
        char if char.isprintable() else " " if char in "\n\t\r" else "�" for char in text
    )


def write(lines: Iterable[Line | str]) -> None:
    """Write lines to stdout; each is a text, or several texts that are concatenated."""
    # NO_COLOR turns bold off as well: it asks for plain text.
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        for line in lines:
            sys.stdout.write(
                clean(line if isinstance(line, str) else "".join(_text(cell) for cell in line))
                + "\n"
            )

        return

    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False, emoji=False, markup=False)
    for line in lines:
        for part in wrapped(line, console.width):
            styled = Text()
            for cell in part:
                styled.append(cell.text, style=cell.style)

            console.print(styled, soft_wrap=True)


def wrapped(line: Line | str, width: int) -> list[list[Cell]]:
    """The line as lines of at most `width` columns, wrapped at words.

    Only the last cell of a table is wrapped, below where it begins.
    """
    cells = []
    for cell in (line,) if isinstance(line, str) else line:
        cells.append(Cell(clean(_text(cell)), "" if isinstance(cell, str) else cell.style))

    *first, last = cells or [Cell("")]
    before = sum(len(cell.text) for cell in first)
    # In a narrow terminal even the first columns do not fit.
    if before + len(last.text) <= width or before > width // 2:
        return [cells]

    indent = before or len(last.text) - len(last.text.lstrip(" -"))
    parts = textwrap.wrap(
        last.text,
        width - before,
        subsequent_indent="" if before else " " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    rest = [[Cell(" " * before), Cell(part, last.style)] for part in parts[1:]]
    return [[*first, Cell(parts[0], last.style)], *rest]


def write_value(printed: msgspec.Struct, output: Output) -> None:
    """Write JSON or YAML to stdout; everything that is not ASCII is escaped."""
    value = msgspec.to_builtins(printed)
    if output is Output.YAML:
        import yaml

        sys.stdout.write(yaml.safe_dump(value, sort_keys=False))
        return

    sys.stdout.write(json.dumps(value, indent=2) + "\n")


def columns(
    head: Sequence[str],
    rows: Iterable[Sequence[Cell | str]],
    *,
    indent: str = "",
) -> list[Line]:
    """A table as in kubectl: columns as wide as their texts, separated by two spaces."""
    all_rows = [[Cell(title, "bold") for title in head]] if any(head) else []
    all_rows += [[cell if isinstance(cell, Cell) else Cell(cell) for cell in row] for row in rows]
    widths = (
        [max(len(clean(row[place].text)) for row in all_rows) for place in range(len(head))]
        if all_rows
        else []
    )
    lines: list[Line] = []

    for row in all_rows:
        last = len(row) - 1
        padded = [
            Cell(
                clean(cell.text) if place == last else clean(cell.text).ljust(widths[place] + 2),
                cell.style,
            )
            for place, cell in enumerate(row)
        ]
        lines.append([indent, *padded])

    return lines


def facts(values: Mapping[str, str]) -> list[Line]:
    """Lines with names and values, without empty values."""
    return columns(
        ("", ""), ((Cell(name, "bold"), value) for name, value in values.items() if value)
    )


def sentence(text: str) -> str:
    """The text with a full stop at its end."""
    text = text.strip()
    return text if not text or text[-1] in ".!?" else f"{text}."


def _text(cell: Cell | str) -> str:
    return cell if isinstance(cell, str) else cell.text
