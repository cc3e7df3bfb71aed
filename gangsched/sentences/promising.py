"""Messages about room that is promised to members to come (semantics B8)."""

from __future__ import annotations

from collections.abc import Sequence

from gangsched.model.text import counted, named
from gangsched.sentences.times import by


def reserved(number: int, nodes: Sequence[str], *, until_s: int) -> str:
    """Message that room is promised until epoch second `until_s`."""
    return f"{_room(number)} is reserved on {named(nodes)} until {by(until_s)}"


def released(number: int, nodes: Sequence[str], why: str) -> str:
    """Message that the room is no longer promised, with the reason."""
    return f"{_room(number)} is no longer reserved on {named(nodes)}: {why}"


def time_over() -> str:
    """Reason: the members were not created in time."""
    return "they were not created within the wait time of the gang"


def used_by_others(node: str) -> str:
    """Reason: pods that need not respect the promise use the room, or larger members."""
    return f"other pods use the room on node {node}"


def node_gone(node: str) -> str:
    """Reason: the node no longer exists."""
    return f"node {node} is gone"


def _room(number: int) -> str:
    return f"room for {counted(number, 'member')} to come"
