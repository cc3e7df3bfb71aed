"""Sentences about nodes that an autoscaler adds (semantics E9)."""

from __future__ import annotations

from gangsched.model.capacity_facts import CapacityFact, NodesInsufficient
from gangsched.sentences.times import by, since


def capacity(fact: CapacityFact) -> str:
    """What the gang waits for instead of asking for nodes."""
    return _insufficient(fact)


def _insufficient(fact: NodesInsufficient) -> str:
    next_request = f"nodes are requested again by {by(fact.until_s)}"
    if not fact.nodes:
        return f"New nodes do not help at present: {next_request}."

    began = since(fact.since_s)
    if fact.nodes == 1:
        return f"1 node was added since {began} and does not suffice: {next_request}."

    return f"{fact.nodes} nodes were added since {began} and do not suffice: {next_request}."
