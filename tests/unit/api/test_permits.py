"""The stamp of a Permit as text (B4, B8)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangsched.api.later_members import MOST_TO_COME
from gangsched.api.permits import format_permit, parse_permit
from gangsched.model.objects import JointStart, PermitStamp, PromisedRoom
from tests.builders import amounts

NODES = st.dictionaries(
    st.from_regex(r"[a-z0-9][a-z0-9.-]{0,30}", fullmatch=True), st.integers(1, 600), max_size=20
)
ASKED = st.builds(
    amounts,
    gpus=st.integers(0, 8),
    cpu_milli=st.integers(0, 9_999),
    memory_bytes=st.integers(0, 2**40),
)
ADMISSION = Path(__file__).parents[3] / "manifests" / "admission.yaml"
UID = "0f4e2a6c-6a3e-4c1e-9a57-3b1d8f0f2c11"
ROOM = '{"until":"2026-11-28T12:04:31Z","each":{"nvidia.com/gpu":"1"},"nodes":{"gpu-01":3}}'
GOOD = f"1/1 {UID} {ROOM}"


PLACES = NODES.map(lambda nodes: tuple(sorted(nodes.items())))
ROOMS = st.builds(PromisedRoom, until_s=st.integers(0, 2**32), each=ASKED, places=PLACES)


STARTS = st.builds(JointStart, st.integers(0, 10**9), st.integers(0, 2**32))


@given(
    st.builds(
        PermitStamp,
        st.integers(0, 10**9),
        st.integers(1, 10**9),
        st.none() | ROOMS,
        st.none() | STARTS,
    )
)
def test_what_is_written_is_read(stamp: PermitStamp) -> None:
    """B8: any room, with exact amounts."""
    assert parse_permit(format_permit(stamp, UID), UID) == stamp


@given(
    st.builds(
        PermitStamp,
        st.integers(0, 10**9),
        st.integers(1, 10**9),
        st.none() | ROOMS,
        st.none() | STARTS,
    )
)
def test_the_admission_policy_lets_every_stamp_pass(stamp: PermitStamp) -> None:
    """B4: a stamp that the policy for bindings does not know would refuse every bind that
    has it.
    """
    found = re.findall(r"matches\(\s*'([^']+)'", ADMISSION.read_text())
    (pattern,) = [each for each in found if '"together"' in each]
    assert re.search(pattern, format_permit(stamp, UID)), format_permit(stamp, UID)
    for text in ("1/1", f"1/1 {UID} x", f'1/1 {UID} {{"more":1}}', f"1/1 {UID} {ROOM}{ROOM}"):
        assert not re.search(pattern, text), text


def test_the_text_is_that_of_the_manual() -> None:
    """B8: as an administrator finds it on a leader."""
    stamp = parse_permit(GOOD, UID)
    assert stamp == PermitStamp(1, 1, PromisedRoom(1795867471, amounts(gpus=1), (("gpu-01", 3),)))
    assert format_permit(stamp, UID) == GOOD


def test_members_of_one_start_share_what_it_promised() -> None:
    """B4: the text after the uid is read once for all of them, unless users may have written it as
    long as they like.
    """
    other = UID[:-1] + "2"
    stamp = PermitStamp(8, 1, together=JointStart(8, 1795867471))
    first = parse_permit(format_permit(stamp, UID), UID)
    second = parse_permit(format_permit(stamp, other), other)
    assert first is not None
    assert second is not None
    assert first.together is second.together

    promised = stamp._replace(room=PromisedRoom(1795867471, amounts(gpus=1), (("gpu-01", 3),)))
    first = parse_permit(format_permit(promised, UID), UID)
    second = parse_permit(format_permit(promised, UID), UID)
    assert first == second == promised
    assert first.together is not second.together


def test_a_stamp_of_an_older_release_says_nothing_of_its_start() -> None:
    """B4: releases up to 0.1.0 wrote only minimum, number and uid."""
    assert parse_permit(f"8/1 {UID}", UID) == PermitStamp(8, 1)


@pytest.mark.parametrize("other", ["", UID[:-1], UID.upper(), "u"])
def test_a_stamp_of_another_pod_is_none(other: str) -> None:
    """B4: nobody knows the uid of a pod before its creation, so a pod cannot be created with a
    stamp of its own.
    """
    assert parse_permit(GOOD, other) is None
    assert parse_permit("1/1", other) is None


@pytest.mark.parametrize(
    "room",
    [
        "{}",
        "{",
        "[]",
        ROOM.replace("2026", "2o26"),
        ROOM.replace('"1"', '"one"'),
        ROOM.replace('"1"', "1"),
        ROOM.replace("3}", '"3"}'),
        ROOM.replace("3}", "1e400}"),
        ROOM.replace('"each"', '"some"'),
        ROOM[:-1] + ',"more":1}',
        ROOM.replace('"gpu-01":3', ",".join(f'"n{n}":1' for n in range(MOST_TO_COME + 1))),
        "[" * 100_000,
    ],
)
def test_room_in_any_other_form_is_none(room: str) -> None:
    """B8: the stamp still says that the gang has started, or is none at all; nothing raises."""
    stamp = parse_permit(f"1/1 {UID} {room}", UID)
    assert stamp in {None, PermitStamp(1, 1)}


@given(st.text())
def test_any_text_is_read(text: str) -> None:
    """B4: what owners write raises nothing."""
    parse_permit(text, UID)
    parse_permit(f"1/1 {UID} {{{text}}}", UID)
