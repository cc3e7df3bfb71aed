"""Times in RFC 3339."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangsched.api.timestamps import format_timestamp, parse_timestamp

LAST_S = 253_370_764_799
"""The end of the year 9998."""


@given(at_s=st.integers(0, LAST_S))
def test_every_second_is_written_and_read(at_s: int) -> None:
    """The text is what the standard library writes, and is read back as the same second."""
    text = format_timestamp(at_s)
    assert text == datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ").rjust(20, "0")
    assert parse_timestamp(text) == at_s


@pytest.mark.parametrize(
    "text", ["", "2026-11-22", "2026-13-01T00:00:00Z", "2026-11-22T14:05:09+01:00", "now"]
)
def test_what_is_no_time(text: str) -> None:
    """Anything else is no time, and no error."""
    assert parse_timestamp(text) is None


def test_forms() -> None:
    """Fractions are cut; seconds are left out on request."""
    assert parse_timestamp("1970-01-01T00:01:00.9Z") == 60
    assert format_timestamp(1_795_356_300, seconds=False) == "2026-11-22T14:05Z"


@pytest.mark.parametrize(
    ("at_s", "text"), [(-1, "1970-01-01T00:00:00Z"), (2**48, "9998-12-31T23:59:59Z")]
)
def test_times_that_no_calendar_has_are_written_as_the_nearest(at_s: int, text: str) -> None:
    """A grace period of centuries is a tenant's to state, and its end is told to others."""
    assert format_timestamp(at_s) == text
