"""Sentences about nodes on which members of a gang died (semantics L8)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gangsched.api.timestamps import format_timestamp


def avoided(node: str, until_s: float, pods: Sequence[str], cause: str) -> str:
    """Which node the gang avoids, until when, and why: the last cause of the deaths of `pods`."""
    until = format_timestamp(math.ceil(until_s / 60) * 60, seconds=False)
    more = f" and {len(pods) - 1} more" if len(pods) > 1 else ""
    return f"node {node} is avoided until {until}: {pods[-1]}{more} ended there: {cause}"


def opened(node: str) -> str:
    """The gang uses a node again that it avoids."""
    return f"node {node} is used again, although members ended there: no other node has room"


def suspected(gangs: int) -> str:
    """Several gangs avoid a node."""
    return (
        f"{gangs} gangs avoid this node, because members ended there: check its devices, memory and"
        " kubelet, and cordon it if it is faulty"
    )
