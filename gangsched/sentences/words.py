"""Words that several sentences share: amounts with their unit, requests, counts of nodes."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from typing import Final

from gangsched.model.gang import shown
from gangsched.model.resources import PODS, ResourceVector, format_quantity
from gangsched.model.verdict_facts import NodeCounts

EQUAL: Final = 1_024
"""Parts of sentences that are kept: thousands of gangs wait for the same room, and only their names
differ.
"""
NO_NODES = "no nodes available to schedule pods"


def who(gang: str) -> str:
    """`gang ml/a`; of a pod without a gang `pod ml/p`."""
    name = shown(gang)
    return name if name != gang else f"gang {gang}"


def amount(name: str, number: int) -> str:
    """`8 nvidia.com/gpu`."""
    return f"{format_quantity(name, number)} {name}"


def named_amounts(amounts: ResourceVector) -> str:
    """`4 cpu and 8 nvidia.com/gpu`."""
    parts = [amount(name, number) for name, number in amounts]
    return " and ".join(parts) if len(parts) < 3 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def principal(requests: ResourceVector) -> ResourceVector:
    """The requests that matter most: devices where there are any, else cpu, memory and the like.

    Stable: what is scarce at the moment may change with each plan.
    """
    devices = tuple((name, number) for name, number in requests if "/" in name)
    return devices or tuple((name, number) for name, number in requests if name != PODS)


@lru_cache(maxsize=EQUAL)
def nodes_available(nodes: NodeCounts) -> str:
    """kube-scheduler's message: `0/N nodes are available: 3 Insufficient cpu, 9 node(s) had
    untolerated taint(s).`
    """
    if not nodes.total:
        return NO_NODES
    if nodes.of_pod:
        return f"0/{nodes.total} nodes are available: {nodes.of_pod}."

    counts: Counter[str] = Counter()
    for count_of in nodes.excluded:
        counts[count_of.reason] += count_of.nodes

    # Sorted as text, as FitError does.
    counted_reasons = sorted(f"{count} {reason}" for reason, count in counts.items())
    return f"0/{nodes.total} nodes are available: {', '.join(counted_reasons)}."
