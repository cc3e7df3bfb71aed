"""What happens next to a gang that waits."""

from __future__ import annotations

import pytest

from gangsched.model.reasons import Reason
from gangsched.sentences.next_steps import next_step


@pytest.mark.parametrize("reason", [reason for reason in Reason if reason is not Reason.SCHEDULED])
def test_every_reason_has_a_next_step(reason: Reason) -> None:
    """S8: whoever waits reads what comes without them, with the time if it is known."""
    assert next_step(reason, retry_s=1_893_456_001.0)


def test_lack_of_room_depends_on_what_is_reserved() -> None:
    """A promise is repeated as it is; without one none is made."""
    lacks = Reason.UNSCHEDULABLE
    assert next_step(lacks, never=True) == "nothing, until nodes are added or the gang changes"
    assert next_step(lacks, reservation="room on 1 node (a) is reserved", before=2) == (
        "room on 1 node (a) is reserved"
    )
    assert next_step(lacks, before=2) == (
        "it is tried again as soon as room is freed, after 2 groups ahead of it; no start time is"
        " promised"
    )
    assert "ahead" not in next_step(lacks, before=0)


def test_a_time_is_said_where_it_is_known() -> None:
    """Rounded up to the minute."""
    assert next_step(Reason.INTERNAL_ERROR, retry_s=1_893_456_001.0) == (
        "it is tried again by 2030-01-01T00:01Z"
    )
