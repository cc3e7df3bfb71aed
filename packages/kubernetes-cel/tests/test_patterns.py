"""Patterns: RE2's matches, in linear time."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubernetes_cel.faults import UnknownToSelectors
from kubernetes_cel.patterns import Pattern

ATOMS = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", "\\d", "(?:a|b)", "(a|)", "1"])
PLACES = st.sampled_from(["^", "$", "\\b"])
PARTS = PLACES | st.builds(
    str.__add__,
    ATOMS,
    st.sampled_from(["", "", "*", "+", "?", "{2}", "{1,2}", "{0}", "{1,}", "*?"]),
)
PATTERNS = st.lists(st.lists(PARTS, max_size=4).map("".join), min_size=1, max_size=3).map("|".join)


def found(source: str, text: str) -> bool:
    return Pattern(source).found(text, lambda steps: None)


@given(PATTERNS, st.text(alphabet="ab1 ", max_size=6))
def test_matches_are_those_of_a_backtracking_matcher(source: str, text: str) -> None:
    """A5: where Python reads a pattern as RE2 does, both find the same."""
    assert found(source, text) == (
        re.search(source.replace("$", r"\Z"), text, re.ASCII) is not None
    )


@pytest.mark.parametrize(
    ("source", "text", "expected"),
    [
        ("^a100$", "a100\n", False),
        ("\\d", "٣", False),
        ("[\\d.]+$", "1.2", True),
        ("a{,2}", "a{,2}", True),
        ("\\x41\\.", "A.", True),
        ("(?P<model>a|h)100", "xh100", True),
        (".", "\n", False),
        ("[]a]", "]", True),
        ("[a-]", "-", True),
        ("é$", "hé", True),
    ],
)
def test_the_grammar_is_re2s(source: str, text: str, expected: bool) -> None:
    """A5: classes are ASCII, `$` is the end of the text."""
    assert found(source, text) is expected


@pytest.mark.parametrize(
    "source",
    [
        "(",
        ")",
        "[",
        "[b-a]",
        "*",
        "a**",
        "(?i)a",
        "\\pL",
        "[[:alpha:]]",
        "a{2,1}",
        "a{1001}",
        "(" * 60 + ")" * 60,
        "((a{30}){30}){30}",
        "((((a{0}){1000}){1000}){1000}){1000}",
        "(" + "|" * 4000 + "){1000}",
        "a{" + "1" * 5000 + "}",
        "\\",
    ],
)
def test_what_is_not_known_or_too_large_is_refused(source: str) -> None:
    """A5: such a pattern is named, before any text is seen."""
    with pytest.raises(UnknownToSelectors, match=r"in a pattern|a pattern of more than"):
        Pattern(source)


def test_a_catastrophic_pattern_is_linear() -> None:
    """A5: scenario 24; a backtracking matcher would need 2^60 steps."""
    charged: list[int] = []
    assert not Pattern("(a+)+$").found("a" * 60 + "!", charged.append)
    assert sum(charged) < 1000
