"""Which statuses of a PodGroup may follow each other (semantics E8): for tests that watch one for
the life of its gang.

Invariant: written from the semantics alone. Statuses are written with delays, so phases may be
skipped; what is forbidden contradicts the memory of a start.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

PHASES: Final = frozenset(
    {
        "Pending",
        "PreScheduling",
        "Scheduling",
        "Scheduled",
        "Running",
        "Finished",
        "Failed",
        "Unknown",
    }
)
WITHIN_A_START: Final[Mapping[str, frozenset[str]]] = {
    **dict.fromkeys(PHASES, PHASES),
    # Its minimum has succeeded, which nothing takes back: it is over, or its controller goes on.
    "Finished": frozenset({"Finished", "Running"}),
}
"""What may follow a phase while the gang has the same start."""
CUMULATIVE: Final = ("succeeded", "failed")
"""Counts that never fall within a start."""


def faults(history: Sequence[Mapping[str, Any]]) -> list[str]:
    """What is wrong with the statuses of one PodGroup, in the order in which they were stored,
    while its minimum stays the same.
    """
    found = [fault for status in history for fault in _alone(status)]
    for before, after in pairwise(history):
        found += _pair(before, after)

    return found


def _alone(status: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with one status."""
    phase = status.get("phase", "Pending")
    live = _count(status, "scheduled") - _count(status, "succeeded") - _count(status, "failed")
    if phase not in PHASES:
        yield f"unknown phase {phase}"

    if _count(status, "running") > live:
        yield f"{phase}: {_count(status, 'running')} run of {live} that are bound"

    if phase == "Finished" and not _count(status, "succeeded"):
        yield "Finished, and nobody has succeeded"

    if phase == "Failed" and not _count(status, "failed"):
        yield "Failed, and nobody has failed"


def _pair(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with two statuses that follow each other."""
    if _start(before) != _start(after) or _waits_for_another(after):
        return

    first = before.get("phase", "Pending")
    then = after.get("phase", "Pending")
    if then not in WITHIN_A_START.get(first, PHASES):
        yield f"{then} after {first} in one start"

    for field in CUMULATIVE:
        if _count(after, field) < _count(before, field):
            yield (
                f"{field} fell from {_count(before, field)} to {_count(after, field)} between"
                f" {_brief(before)} and {_brief(after)}"
            )


def _brief(status: Mapping[str, Any]) -> dict[str, Any]:
    """A status without its conditions."""
    return {field: value for field, value in status.items() if field != "conditions"}


def _start(status: Mapping[str, Any]) -> object:
    return (status.get("start") or {}).get("epoch")


def _waits_for_another(status: Mapping[str, Any]) -> bool:
    """Whether pods wait for a start of their own: until they have it, only they count."""
    waits = status.get("phase") in {"Pending", "PreScheduling"}
    return waits and not _count(status, "scheduled")


def _count(status: Mapping[str, Any], field: str) -> int:
    return int(status.get(field) or 0)
