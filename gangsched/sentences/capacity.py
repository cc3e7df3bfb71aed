"""Sentences about nodes that an autoscaler adds (semantics E9, E10)."""

from __future__ import annotations

from typing import Final, assert_never

from gangsched.model.capacity_facts import (
    CapacityFact,
    NodesAskedFor,
    NodesInsufficient,
    NotProvided,
    Provided,
)
from gangsched.model.text import counted, is_or_are
from gangsched.sentences.times import by, since

MOST_OF_MESSAGE: Final = 200


def capacity(fact: CapacityFact) -> str:
    """What the gang waits for instead of asking for nodes."""
    match fact:
        case NodesInsufficient():
            return _insufficient(fact)
        case NodesAskedFor():
            return _asked(fact)
        case Provided():
            return _provided(fact)
        case NotProvided():
            return _not_provided(fact)

    assert_never(fact)


def _asked(fact: NodesAskedFor) -> str:
    name = _name(fact.request)
    if not fact.is_made:
        return "An autoscaler is asked for all nodes at once if no room becomes free."
    if not fact.is_accepted:
        return f"{name} asks for nodes; no autoscaler has accepted it yet."
    if not fact.lacks_capacity:
        return f"{name} is accepted; the autoscaler looks for capacity."

    message = f": {_cut(fact.message).rstrip('.')}" if fact.message else ""
    return f"{name} is accepted and has no capacity yet{message}."


def _provided(fact: Provided) -> str:
    name = _name(fact.request)
    if not fact.nodes:
        return f"{name} is provisioned: its nodes are awaited until {by(fact.until_s)}."

    nodes = counted(fact.nodes, "new node")
    are = is_or_are(fact.nodes)
    return f"{name} is provisioned: {nodes} {are} reserved until {by(fact.until_s)}."


def _not_provided(fact: NotProvided) -> str:
    why = _cut(fact.why).rstrip(".")
    if not fact.until_s:
        return f"No autoscaler is asked for all nodes at once: {_in_sentence(why)}."

    ended = f"{_name(fact.request)} ended ({why})"
    if fact.asks_singly:
        return f"{ended}; each pod asks for a node until it is made again by {by(fact.until_s)}."

    return f"{ended}; it is made again by {by(fact.until_s)}."


def _in_sentence(sentence: str) -> str:
    """A sentence behind a colon."""
    if sentence.startswith("The "):
        return f"t{sentence[1:]}"

    return sentence


def _name(request: str) -> str:
    return f"ProvisioningRequest {request}" if request else "A ProvisioningRequest"


def _cut(message: str) -> str:
    """Of an autoscaler's message as much as fits beside what else is said."""
    return message if len(message) <= MOST_OF_MESSAGE else f"{message[:MOST_OF_MESSAGE]}…"


def _insufficient(fact: NodesInsufficient) -> str:
    next_request = f"nodes are requested again by {by(fact.until_s)}"
    if not fact.nodes:
        return f"New nodes do not help at present: {next_request}."

    began = since(fact.since_s)
    if fact.nodes == 1:
        return f"1 node was added since {began} and does not suffice: {next_request}."

    return f"{fact.nodes} nodes were added since {began} and do not suffice: {next_request}."
