"""Sentences about waits that no plan can end (semantics E5)."""

from __future__ import annotations

from typing import Final, assert_never

from gangsched.model.text import counted, is_or_are, named
from gangsched.model.wait_facts import (
    AwaitsClaims,
    GangAwaitsBinds,
    GangAwaitsClaims,
    SchedulingPaused,
    UnboundClaim,
    WaitFact,
)
from gangsched.sentences.times import since

CLAIMS_NAMED: Final = 2
"""Claims of one pod that its sentence names."""


def worded_wait(fact: WaitFact) -> tuple[str, str]:
    """The part of the sentence that stays while the wait lasts, and what changes more often."""
    match fact:
        case AwaitsClaims():
            return _for_claims(fact), ""
        case GangAwaitsClaims():
            return _gang_for_claims(fact)
        case GangAwaitsBinds():
            return _gang_for_binds(fact), ""
        case SchedulingPaused():
            return f"scheduling is paused by an administrator: {fact.reason}", ""

    assert_never(fact)


def _for_claims(fact: AwaitsClaims) -> str:
    reserved = f"since {since(fact.since_s)}; node {fact.node} is reserved for it"
    if not fact.claims:
        return f"waits for the claims of pods that start with it {reserved}"

    names = [_claim(claim) for claim in fact.claims[:CLAIMS_NAMED]]
    more = len(fact.claims) - CLAIMS_NAMED
    if more > 0:
        names.append(counted(more, "more claim"))

    return f"waits for {' and '.join(names)} {reserved}"


def _gang_for_claims(fact: GangAwaitsClaims) -> tuple[str, str]:
    began = f"since {since(fact.since_s)}"
    have = "has its node" if fact.pods == 1 else "have their nodes"
    reserved = f"{counted(fact.pods, 'pod')} {have} reserved"
    if not fact.claims:
        text = f"gang {fact.gang} waits for the claims of gangs that start with it {began}"
        return text, reserved

    names = named([_claim(claim) for claim in fact.claims])
    text = f"gang {fact.gang} waits for {counted(len(fact.claims), 'claim')} {began}"
    return text, f"{names}; {reserved}"


def _gang_for_binds(fact: GangAwaitsBinds) -> str:
    are = is_or_are(fact.binds)
    return f"gang {fact.gang} starts: {counted(fact.binds, 'bind')} {are} sent and not answered yet"


def _claim(claim: UnboundClaim) -> str:
    """`claim data-0 (class fast)`."""
    kind = "resourceclaim" if claim.devices else "claim"
    if claim.storage_class:
        return f"{kind} {claim.name} (class {claim.storage_class})"

    return f"{kind} {claim.name}"
