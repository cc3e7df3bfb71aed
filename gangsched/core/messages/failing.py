"""Messages about groups that are set aside because of an internal error (semantics I10)."""

from __future__ import annotations

from gangsched.model.gang import Refusal
from gangsched.model.reasons import Reason

UNKNOWN = "0000"
"""The reference of a fault that is not recorded yet; the refusal that has it is replaced in the
same turn.
"""


def internal_error(reference: str) -> Refusal:
    """The refusal of a group that is set aside."""
    text = (
        f"gangsched could not plan this gang because of an internal error (reference {reference})"
    )
    return Refusal(
        Reason.INTERNAL_ERROR,
        f"{text}; other gangs are not affected; it is tried again when it changes",
    )
