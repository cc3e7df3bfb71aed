"""Internal errors: what was raised, in which part of the work, and for which group.

Invariant: pure values. `state.bulkhead` decides what becomes of the group (semantics I10).
"""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b
from typing import Final

from gangsched.model.gang import Refusal
from gangsched.model.reasons import Reason
from gangsched.model.verdict_facts import NotPlanned

REFERENCE_BYTES: Final = 2
"""Four digits: enough to find the line of the log, and no more than a user copies by hand."""
UNKNOWN_REFERENCE: Final = "0000"
"""The reference of a fault that is not recorded yet; the refusal that has it is replaced in the
same turn.
"""
FRAMES: Final = 4
"""Innermost frames that tell one fault from another; those above them depend on who called."""


class FaultPlace(StrEnum):
    """The part of the work in which something was raised; a label of the metric."""

    APPLY = "apply"  # a message of the API server
    REFRESH = "refresh"  # views of gangs and groups
    PLAN = "plan"
    VERIFY = "verify"
    COMMIT = "commit"
    REPORT = "report"
    SERVE = "serve"  # the gangs API
    TURN = "turn"  # what a turn does for all groups together
    SUSPECT = "suspect"  # an earlier process ended while it worked on the group


class AtWork:
    """The group that is being worked on, "" between groups.

    What is raised meanwhile is its fault. One slot that is written in place: a context manager for
    each of hundreds of groups would be measurable.
    """

    __slots__ = ("group",)

    def __init__(self) -> None:
        self.group = ""

    def enter(self, group: str) -> None:
        """The plan comes to a group."""
        self.group = group

    def begin(self) -> None:
        """A plan begins."""
        self.group = ""

    def end(self) -> None:
        """The plan has ended, or raised."""


class UnverifiedError(Exception):
    """A verdict that does not keep what it must; the text says which rule."""


@dataclass(frozen=True, slots=True)
class InternalFault:
    """What was raised. `reference` is the same for the same exception at the same place of the
    code.
    """

    reference: str
    place: FaultPlace
    #: The exception and its innermost frame, in one line.
    cause: str
    #: The traceback; no frame is kept, since frames keep a whole plan in memory.
    trace: str
    #: "" if it is nobody's.
    group: str = ""


def fault_of(error: BaseException, place: FaultPlace, group: str = "") -> InternalFault:
    """The fault of an exception that was caught."""
    frames = traceback.extract_tb(error.__traceback__)
    innermost = frames[-1] if frames else None
    where = f" ({innermost.name}, line {innermost.lineno})" if innermost is not None else ""
    kind = type(error).__name__

    # Not the message: it may name objects, and the same bug would have thousands of references.
    lines = [kind, *(f"{frame.filename}:{frame.lineno}" for frame in frames[-FRAMES:])]
    reference = blake2b("\n".join(lines).encode(), digest_size=REFERENCE_BYTES).hexdigest()
    return InternalFault(
        reference,
        place,
        f"{kind}: {error}{where}",
        "".join(traceback.format_exception(error)),
        group,
    )


def not_planned(reference: str) -> Refusal:
    """The refusal of a group that is set aside."""
    return Refusal(Reason.INTERNAL_ERROR, NotPlanned(reference))
