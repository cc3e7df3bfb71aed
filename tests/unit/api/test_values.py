"""The grammars of annotation values (semantics I3)."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangsched.api.values import (
    BadValue,
    parse_count,
    parse_duration,
    parse_groups,
    parse_match_policy,
    parse_mode,
    parse_wait_time,
)
from gangsched.model.gang import MatchPolicy, Mode

UNITS = {
    "h": 3600.0,
    "m": 60.0,
    "s": 1.0,
    "ms": 1e-3,
    "us": 1e-6,
    "µs": 1e-6,
    "μs": 1e-6,
    "ns": 1e-9,
}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("3600s", 3600.0),
        ("1h30m", 5400.0),
        ("1.5h", 5400.0),
        ("100ms", 0.1),
        ("1m0.5s", 60.5),
        (".5s", 0.5),
        ("2.s", 2.0),
        ("-10s", -10.0),
        ("+10s", 10.0),
        ("0", 0.0),
        ("-0", 0.0),
        ("876000h", 876000 * 3600.0),
    ],
)
def test_go_durations(text: str, seconds: float) -> None:
    """I3: a wait time is what Go's time.ParseDuration reads, without an upper cap of ours."""
    assert parse_duration(text) == pytest.approx(seconds)


@given(
    st.lists(st.tuples(st.integers(0, 999), st.sampled_from(sorted(UNITS))), min_size=1, max_size=6)
)
def test_durations_add_up(terms: list[tuple[int, str]]) -> None:
    """A duration is the sum of its terms, in any order and with any unit repeated."""
    text = "".join(f"{number}{unit}" for number, unit in terms)
    assert parse_duration(text) == pytest.approx(
        sum(number * UNITS[unit] for number, unit in terms)
    )


@pytest.mark.parametrize(
    "text", ["", "10", "1d", "s", ".s", "1h 30m", "abc", "1e3s", "1" * 300 + "s", "9999999h", "+-0"]
)
def test_what_is_no_duration(text: str) -> None:
    """I3: what Go refuses is refused: no unit, unknown units, spaces, more than 292 years."""
    with pytest.raises(BadValue):
        parse_duration(text)


def test_zero_wait_time_is_as_good_as_none_and_negative_is_bad() -> None:
    """I3: training-operator writes 0 for "default", which is no reason for an Event; a negative
    time is.
    """
    assert parse_wait_time("0s") is None
    with pytest.raises(BadValue, match="is negative"):
        parse_wait_time("-1s")


@pytest.mark.parametrize(
    ("text", "count"), [("0", 0), ("5", 5), ("+5", 5), ("005", 5), ("2147483647", 2**31 - 1)]
)
def test_counts(text: str, count: int) -> None:
    """I3: 0 is legal; signs and zeros are read as Go's Atoi reads them."""
    assert parse_count(text) == count


@pytest.mark.parametrize(
    "text", ["", "-1", "abc", "1.0", " 3", "3 ", "٣", "1_0", "2147483648", "9" * 9000]
)
def test_what_is_no_count(text: str) -> None:
    """I3: negative, not an integer, or beyond int32 is a bad minimum, and says so."""
    with pytest.raises(BadValue, match="is not an integer"):
        parse_count(text)


def test_groups_are_sorted_and_unique() -> None:
    """I4 compares sets, so order and repetition in the list do not matter; an empty list
    is none.
    """
    assert parse_groups('["b/y", "a/x", "b/y"]') == ("a/x", "b/y")
    assert parse_groups("[]") is None
    assert parse_groups("") is None, "Koordinator's way to say: no group"


@pytest.mark.parametrize(
    "text",
    [
        "a/x",
        '{"a": 1}',
        "[1]",
        '["x"]',
        '["a/b/c"]',
        '["/x"]',
        '["a/"]',
        '["a /x"]',
        "null",
        "[" * 9999,
        "\ud800",
    ],
)
def test_what_is_no_list_of_gangs(text: str) -> None:
    """I3: anything but a JSON list of "namespace/name" is bad, however deep or broken it is."""
    with pytest.raises(BadValue):
        parse_groups(text)


def test_a_group_of_more_than_32_gangs_is_bad() -> None:
    """I3: each gang of a group is compared with each, so their number is bounded; 14,000 names are
    no group.
    """
    names = [f"ns/{index:02}" for index in range(33)]
    assert parse_groups(json.dumps(names[:32])) == tuple(names[:32])
    assert parse_groups(json.dumps([*names[:32], names[0]])) == tuple(names[:32])
    for texts in (names, [f"a/{index}" for index in range(14_000)]):
        with pytest.raises(BadValue, match="lists more than 32 gangs"):
            parse_groups(json.dumps(texts))


@given(st.lists(st.text(max_size=5) | st.from_regex(r"[a-z]/[a-z]", fullmatch=True), max_size=32))
def test_list_of_gangs_is_taken_whole_or_refused_whole(texts: list[str]) -> None:
    """I3: one entry that is not "namespace/name" makes the list bad; nobody is tied by half
    a list.
    """
    parts = [text.split("/") for text in texts]
    if all(
        len(pair) == 2 and all(pair) and not any(char.isspace() for char in "".join(pair))
        for pair in parts
    ):
        assert set(parse_groups(json.dumps(texts)) or ()) == set(texts)
    else:
        with pytest.raises(BadValue):
            parse_groups(json.dumps(texts))


def test_modes_and_policies_are_taken_as_spelled() -> None:
    """I3: the three policies and two modes, in their own spelling."""
    assert parse_mode("NonStrict") is Mode.NON_STRICT
    assert parse_match_policy("only-waiting") is MatchPolicy.ONLY_WAITING
    for parse in (parse_mode, parse_match_policy):
        with pytest.raises(BadValue):
            parse("strict")
