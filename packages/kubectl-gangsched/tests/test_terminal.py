"""What reaches the terminal: nothing that moves its cursor, styles there alone, columns as wide as
they must be.
"""

from __future__ import annotations

import os
import pty
import sys

import pytest

from kubectl_gangsched.terminal import Cell, clean, columns, sentence, wrapped, write

EVIL = "a\x1b[31mb\x9bc\rd\ne\u202ef\u2066g\x00h\x7fi\u200bj"


def test_everything_unprintable_is_replaced() -> None:
    """C0 and C1 controls, DEL, direction marks and what has no width; line breaks become spaces."""
    assert clean(EVIL) == "a�[31mb�c d e�f�g�h�i�j"
    assert clean("plain – text, 中文, é") == "plain – text, 中文, é"


def test_off_a_terminal_there_are_no_styles(capsys: pytest.CaptureFixture[str]) -> None:
    """Nor line breaks of ours in long lines."""
    write([[Cell("a" * 300, "bold red"), EVIL[:6]]])
    assert capsys.readouterr().out == "a" * 300 + "a�[31m\n"


def test_on_a_terminal_there_are_styles_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is written by others cannot add a style, by escape sequences or by rich's markup."""
    ours, theirs = pty.openpty()
    for name, value in (("TERM", "xterm-256color"), ("COLUMNS", "200")):
        monkeypatch.setenv(name, value)
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    with os.fdopen(theirs, "w") as terminal:
        monkeypatch.setattr(sys, "stdout", terminal)
        write([[Cell("ours", "red"), " \x1b[2Jtheirs [bold]x[/bold] :smile:"]])
        terminal.flush()
        seen = os.read(ours, 10_000).decode()
    os.close(ours)
    assert seen.replace("\r\n", "\n") == "\x1b[31mours\x1b[0m �[2Jtheirs [bold]x[/bold] :smile:\n"


def test_columns_are_as_wide_as_their_texts() -> None:
    """A head in bold, two spaces between, none at the end; without a head there is none."""
    lines = columns(("A", "LONG"), [("1", "2"), (Cell("long\n", "red"), "x")], indent="  ")
    assert [
        "".join(cell if isinstance(cell, str) else cell.text for cell in line) for line in lines
    ] == ["  A      LONG", "  1      2", "  long   x"]
    assert columns(("", ""), []) == []


@pytest.mark.parametrize(
    ("text", "said"), [("no", "no."), ("no. ", "no."), ("why?", "why?"), ("", "")]
)
def test_a_sentence_ends(text: str, said: str) -> None:
    """With one full stop."""
    assert sentence(text) == said


def test_lines_are_wrapped_at_words() -> None:
    """The last cell of a table goes on below where it begins; a narrow terminal is left alone."""
    of_table = wrapped([Cell("NAME    ", "bold"), "one two three"], 16)
    texts = ["".join(cell.text for cell in line) for line in of_table]
    assert texts == ["NAME    one two", "        three"]
    assert ["".join(cell.text for cell in line) for line in wrapped("  - one two", 9)] == [
        "  - one",
        "    two",
    ]
    assert wrapped([Cell("NAME            "), "one two"], 18) == [
        [Cell("NAME            "), Cell("one two")]
    ]
    assert wrapped([], 10) == [[]] or wrapped([], 10) == [[Cell("")]]
