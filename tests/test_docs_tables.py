"""The tables of the manual are those of the code: `make docs-tables` would change nothing."""

from __future__ import annotations

import pytest

from tests.docs_tables import FILES, ROOT, TABLES, marked, with_tables


@pytest.mark.parametrize("file", FILES)
def test_the_tables_are_as_the_code_makes_them(file: str) -> None:
    """After a change of a setting, a metric, a key or a right: run `make docs-tables`."""
    text = (ROOT / file).read_text()
    assert text == with_tables(text)


def test_every_table_stands_in_the_manual_once() -> None:
    """None is forgotten, and none is marked in a way that nobody finds."""
    assert sorted(name for _, name in marked()) == sorted(TABLES)
    texts = [(ROOT / file).read_text() for file in FILES]
    assert sum(text.count("<!-- table:") for text in texts) == len(TABLES)


def test_a_table_that_differs_is_seen() -> None:
    """A row that somebody edits by hand, or deletes, is written anew."""
    text = (ROOT / "docs/operations.md").read_text()
    row = next(line for line in text.splitlines() if line.startswith("| `gangsched_cycles_total`"))
    for edited in (text.replace(row, row.replace("cycles", "turns")), text.replace(f"{row}\n", "")):
        assert edited != text
        assert with_tables(edited) == text
