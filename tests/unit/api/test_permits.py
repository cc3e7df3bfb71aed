"""The stamp of a Permit as text (B4, B8)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangsched.api.later_members import MOST_TO_COME
from gangsched.api.permits import format_permit, parse_permit
from gangsched.model.objects import PermitStamp, PromisedRoom
from tests.builders import amounts

NODES = st.dictionaries(st.from_regex(r"[a-z0-9][a-z0-9.-]{0,30}", fullmatch=True), st.integers(1, 600), max_size=20)
ASKED = st.builds(amounts, gpus=st.integers(0, 8), cpu_milli=st.integers(0, 9_999), memory_bytes=st.integers(0, 2**40))
GOOD = '1/1 {"until":"2026-11-28T12:04:31Z","each":{"nvidia.com/gpu":"1"},"nodes":{"gpu-01":3}}'


PLACES = NODES.map(lambda nodes: tuple(sorted(nodes.items())))
ROOMS = st.builds(PromisedRoom, until_s=st.integers(0, 2**32), each=ASKED, places=PLACES)


@given(st.builds(PermitStamp, st.integers(0, 10**9), st.integers(1, 10**9), st.none() | ROOMS))
def test_what_is_written_is_read(stamp: PermitStamp) -> None:
    """B8: any room, with exact amounts."""
    assert parse_permit(format_permit(stamp)) == stamp


def test_the_text_is_that_of_the_manual() -> None:
    """B8: as an administrator finds it on a leader."""
    stamp = parse_permit(GOOD)
    assert stamp == PermitStamp(1, 1, PromisedRoom(1795867471, amounts(gpus=1), (("gpu-01", 3),)))
    assert format_permit(stamp) == GOOD


@pytest.mark.parametrize(
    "room",
    [
        "{}",
        "{",
        "[]",
        GOOD[4:].replace("2026", "2o26"),
        GOOD[4:].replace('"1"', '"one"'),
        GOOD[4:].replace('"1"', "1"),
        GOOD[4:].replace("3}", '"3"}'),
        GOOD[4:].replace("3}", "1e400}"),
        GOOD[4:].replace('"each"', '"some"'),
        GOOD[4:-1] + ',"more":1}',
        GOOD[4:].replace('"gpu-01":3', ",".join(f'"n{n}":1' for n in range(MOST_TO_COME + 1))),
        "[" * 100_000,
    ],
)
def test_room_in_any_other_form_is_none(room: str) -> None:
    """B8: the stamp still says that the gang has started, or is none at all; nothing raises."""
    stamp = parse_permit(f"1/1 {room}")
    assert stamp in {None, PermitStamp(1, 1)}


@given(st.text())
def test_any_text_is_read(text: str) -> None:
    """B4: what owners write raises nothing."""
    parse_permit(text)
    parse_permit(f"1/1 {{{text}}}")
