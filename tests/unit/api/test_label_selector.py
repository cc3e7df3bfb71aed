"""Label selectors, as kubectl takes them (semantics I7)."""

from __future__ import annotations

import pytest

from gangsched.api.label_selector import parse_label_selector
from gangsched.api.values import BadValue


@pytest.mark.parametrize(
    ("text", "selector"),
    [
        ("", ""),
        ("  ", ""),
        ("pool=a", "pool=a"),
        ("pool == a", "pool=a"),
        ("pool!=a,zone=", "pool!=a,zone="),
        (" pool in (a, b) , !spot", "pool in (a,b),!spot"),
        ("pool notin(a,),gpu", "pool notin (a,),gpu"),
        ("! nvidia.com/gpu.present", "!nvidia.com/gpu.present"),
        ("in in (in)", "in in (in)"),
    ],
)
def test_selector_without_needless_spaces(text: str, selector: str) -> None:
    """Equality and sets, with commas between; a selector stays as it is when it is read again."""
    assert parse_label_selector(text) == selector
    assert parse_label_selector(selector) == selector


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("pool=a,", 'has "", which has none of'),
        ("pool in (a", 'has "pool in (a", which has none of'),
        ("pool in (a,b", 'has "pool in (a", which has none of'),
        ("pool in ()", 'has "pool in ()", which has no value'),
        ("pool>3", 'has "pool>3", which has none of'),
        ("pool = a b", 'has "pool = a b", which has none of'),
        ("a/b/c=1", 'has "a/b/c", which is not a label key'),
        ("Example.com/pool", 'has "Example.com/pool", which is not a label key'),
        ("-pool", 'has "-pool", which is not a label key'),
        ("p" * 64, "which is not a label key"),
        ("pool=a/b", 'has "a/b", which is not a label value'),
        ("pool in (a, b c)", 'has "b c", which is not a label value'),
        ("pool=" + "v" * 64, "which is not a label value"),
    ],
)
def test_what_is_no_selector_is_named(text: str, why: str) -> None:
    """The message names the part that is wrong."""
    with pytest.raises(BadValue) as caught:
        parse_label_selector(text)
    assert why in str(caught.value)
