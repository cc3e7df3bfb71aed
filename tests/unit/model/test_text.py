"""Text for people is bounded, and what is left out is counted."""

from __future__ import annotations

import pytest

from gangsched.model.text import MESSAGE_BYTES, cut, named


@pytest.mark.parametrize("letter", ["a", "ü", "名", "🚀"])
def test_long_text_says_how_much_is_left_out(letter: str) -> None:
    """Whatever the letters, it is at most a kilobyte and the numbers add up."""
    text = letter * 5_000
    short = cut(text)
    kept, _, rest = short.partition(" … (")
    assert len(short.encode()) <= MESSAGE_BYTES
    assert set(kept) == {letter}
    assert rest == f"{5_000 - len(kept)} more characters)"
    assert len(cut(short).encode()) == len(short.encode()), "cutting again changes nothing"


def test_text_that_fits_is_left_alone() -> None:
    """Up to the last byte."""
    assert cut("a" * MESSAGE_BYTES) == "a" * MESSAGE_BYTES


def test_names_beyond_the_first_few_are_counted() -> None:
    """Five are named."""
    assert named(["a", "b"]) == "a, b"
    assert named([str(number) for number in range(8)]) == "0, 1, 2, 3, 4 and 3 more"
