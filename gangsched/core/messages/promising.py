"""Sentences about room that is kept for members to come (semantics B8)."""

from __future__ import annotations

from collections.abc import Sequence

from gangsched.api.timestamps import time_of_day
from gangsched.model.text import counted, named


def kept(number: int, nodes: Sequence[str], *, until_s: int, wall_s: int) -> str:
    """Room is kept, until an epoch second; the time of day in UTC, with its date if that is not today."""
    return f"{_room(number)} is kept on {named(nodes)} until {time_of_day(until_s, wall_s)}"


def released(number: int, nodes: Sequence[str], why: str) -> str:
    """Room is kept no longer."""
    return f"{_room(number)} is no longer kept on {named(nodes)}: {why}"


def time_over() -> str:
    """The members did not come in time."""
    return "they did not come within the wait time of the gang"


def used_by_others(node: str) -> str:
    """Pods use the room that need not respect the promise."""
    return f"other pods use the room on node {node}"


def node_gone(node: str) -> str:
    """The node does not exist any more."""
    return f"node {node} is gone"


def _room(number: int) -> str:
    return f"room for {counted(number, 'member')} to come"
