"""The last reports about one gang, so that only changes are written (semantics E1-E4). Part of the
gang's record.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gangsched.model.text import named

if TYPE_CHECKING:
    from gangsched.state.reporting.conditions import PodCondition


@dataclass(slots=True)
class Start:
    """Results of the binds of one gang so far: how many pods are bound, and which were refused and
    why.
    """

    bound: int = 0
    refused: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The text to report once all binds are answered; "" if none succeeded."""
        if not self.bound:
            return ""

        text = "1 pod is bound" if self.bound == 1 else f"{self.bound} pods are bound together"
        if self.refused:
            return f"{text}; {len(self.refused)} refused: {named(self.refused)}"

        return text


@dataclass(frozen=True, slots=True)
class WrittenStatus:
    """The status of a PodGroup as written at `at_s`; `uid` is the PodGroup's."""

    uid: str
    status: dict[str, object]
    at_s: float
    #: The watch has shown it: from then on, what differs was written by somebody else.
    is_shown: bool = False
    #: The watch has shown another status since, older or newer.
    is_contested: bool = False
    #: Fields that the object's definition does not have, so that the API server dropped them.
    dropped: frozenset[str] = frozenset()

    @property
    def kept(self) -> dict[str, object]:
        """What the API server stores of it."""
        return {key: value for key, value in self.status.items() if key not in self.dropped}


@dataclass(slots=True)
class Reported:
    """The last reports about one gang."""

    #: The condition of each pod by uid, and the monotonic second in which it was reported.
    pods: dict[str, tuple[PodCondition, float]] = field(default_factory=dict)
    #: Reason and message of each Event that still holds.
    events: frozenset[tuple[str, str]] = frozenset()
    status: WrittenStatus | None = None
    #: The uid of the PodGroup on which this process reported first, and the monotonic second.
    first: tuple[str, float] | None = None
    #: Monotonic second since which nothing of the gang has lived; None while something does.
    quiet_since_s: float | None = None
    #: The start under way, until all its binds are answered.
    start: Start | None = None
    #: The condition `Reserved` after the end of its reservation: whether it is true, its reason and
    #: its message (H13).
    reservation_end: tuple[bool, str, str] | None = None
