"""Suspects: what the next process is told of groups at which one ended (semantics I10)."""

from __future__ import annotations

import pytest

from gangsched.model.suspects import LONGEST_NAME, MOST_SUSPECTS, Suspects


def told(*texts: str) -> dict[str, int]:
    """What is known after these texts."""
    suspects = Suspects()
    for text in texts:
        suspects.merge(text)
    return suspects.counts


def test_what_one_process_tells_another_learns() -> None:
    """Names and numbers survive, and the larger number counts."""
    first = Suspects()
    first.add("a/b")
    first.add("a/b")
    assert told(first.text(), '{"a/b":1,"c/d":1}') == {"a/b": 2, "c/d": 1}


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"a":"b"}', "null", '{"":1}', f'{{"{"x" * 600}":1}}']
)
def test_what_is_none_is_ignored(text: str) -> None:
    """Anybody who may write the Lease may write anything."""
    assert told(text) == {}


def test_few_are_kept() -> None:
    """The newest ones, however many are told."""
    suspects = Suspects()
    for number in range(100):
        suspects.add(f"a/{number}")
    suspects.add("x" * (LONGEST_NAME + 1))
    assert [*suspects.counts] == [f"a/{number}" for number in range(100 - MOST_SUSPECTS, 100)]


def test_who_is_no_suspect_any_more_is_dropped() -> None:
    """A group that was planned well meanwhile."""
    suspects = Suspects()
    suspects.add("a/b")
    suspects.is_wanted = lambda name: False
    assert suspects.text() == ""
    assert suspects.counts == {}
