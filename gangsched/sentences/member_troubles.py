"""Sentences about members that run and may not run for long (semantics L1, L8)."""

from __future__ import annotations

from collections.abc import Sequence

from gangsched.model.text import named


def on_node(node: str, state: str, pods: Sequence[str]) -> str:
    """Members run on a node in such a state; they are not lost."""
    run = "runs" if len(pods) == 1 else "run"
    return f"{named(pods)} {run} on node {node}, which is {state}"


def restarts(pod: str, number: int) -> str:
    """A container of a member restarts in place."""
    return f"a container of pod {pod} has restarted {number} times"


def avoided(node: str) -> str:
    """The gang avoids a node because members died there."""
    return f"node {node} is avoided, because members of the gang ended there"
