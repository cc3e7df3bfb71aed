"""The headline of a refusal read back into the fields of the gangs API.

Invariant: every headline about room is one of these forms, and what is read is equal to the field
of `status.facts`. So no sentence says a number that programs cannot read, and no field contradicts
the sentence.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from gangsched.model.gang import Refusal
from gangsched.sentences import say
from gangsched.sentences.fields import fields

HEADLINE = 160
NEEDS = (
    r"(?:gang (?P<gang>\S+)|the group of gang (?P<group>\S+)) needs (?P<pods>\d+)(?P<more> more)?"
    r" pods?(?: of (?P<requests>[^;]+?)| of (?P<asked>\d+) devices? of class (?P<class>\S+))??"
    r"(?: in one (?P<levels>[^;]+?))??(?: in slices of (?P<slices>[^;]+?))??"
    r"(?:; pod (?P<pod>\S+) asks for [^;]+)?"
)
NEVER = (
    r"gang (?P<gang>\S+) can never start: it needs (?P<pods>\d+)(?P<more> more)? pods?"
    r"(?: of (?P<limited>.*))?, and the eligible nodes hold (?:at most )?(?P<fitsWhenEmpty>\d+)"
    r" (?:even when empty|when empty, for lack of (?P<limits>.*))",
    r"gang (?P<gang>\S+) can never start: (?:each pod|pod (?P<pod>\S+)) asks for .*, and no"
    r" (?:eligible )?node has (?:more than (?P<offeredOnOneNode>\S+)|any.*|all of it)",
    r"(?:gang (?P<gang>\S+)|the group of gang (?P<group>\S+)) can never start: it needs"
    r" (?P<needed>\d+) (?:more )?pods?(?: of (?P<limited>.*))? in one .*, and the best,"
    r" (?P<emptyBest>\S+), takes (?:at most )?(?P<emptyTakes>\d+)"
    r" (?:even when empty|when empty, for lack of (?P<limits>.*))",
    r"gang (?P<gang>\S+) can never start: the largest domain for a slice, (?P<emptyBest>\S+),"
    r" holds (?:at most )?(?P<emptyTakes>\d+) of its pods"
    r" (?:even when empty|when empty, for lack of (?P<limits>.*))",
)
BEST = (
    r"(?P<fits>\d+) fits?(?:, then no eligible node has .*| now; .*)?",
    r"(?P<atMost>at most) (?P<fits>\d+) fits?",
    r"(?P<none>none fits)(?: now; .*|, then no eligible node has .* free)?",
    r"no eligible node has free all that a pod asks for",
    r"no node takes (?:pod (?P<tried>\S+)|it|another pod like it)(?: \(.*\))?",
    r"no eligible node has (?P<scarce>\S+)(?: \S+)? free",
    r"no node (?:is eligible for|matches the node selector or affinity of) pod"
    r" (?P<hindered>\S+)",
    r"pod (?P<hindered>\S+) tolerates no node's taints",
    r"(?:there are no nodes|all nodes are cordoned)",
    r"(?P<free>\S+) of (?P<offered>\S+)(?: \S+)? are free on the .*?"
    r"(?:, at most (?P<freeOnOneNode>\S+) on one)?",
    r"(?P<fits>\d+) of (?:the )?\d+(?: pods of its group)? (?:fit|could be placed)[;,] .*",
    r"the best, (?P<best>\S+), takes (?:at most )?(?P<takes>\d+)",
    r"its other pods are in (?P<best>\S+), which takes (?:at most )?(?P<takes>\d+) of"
    r" (?P<needed>\d+)",
    r"(?P<tooSmall>\d+) of (?P<total>\d+) domains of .* lacks? room(?:, \d+ .*)?",
    r"\d+ of (?P<total>\d+) domains of .* (?:has|have) room, but too scattered",
    r"\d+ of (?P<total>\d+) domains of .* could not be filled",
    r"no node has the label .*",
    r"(?P<devices>\d+) of the \d+(?: that its group needs)? (?:is|are) free on eligible nodes",
    r"no eligible node has more than (?P<devicesOnOne>\d+) free",
    r"none that matches is free on eligible nodes",
    r"the best, (?P<sliceBest>\S+), takes (?:at most )?(?P<sliceTakes>\d+) of (?P<size>\d+)",
    r"(?:at most )?(?P<sliceFits>\d+) of (?P<sliceNeeded>\d+) slices fits?",
    r"room is too scattered over the domains of .*",
    r"\S+, where the other pods of its slice are, takes (?P<sliceTakes>\d+) of \d+ pods?",
)


def unparsed(refusal: Refusal) -> Iterator[str]:
    """What is wrong with the headline of a gang that lacks room: its form, length or numbers."""
    facts = fields(refusal)
    headline = say(refusal).headline
    if len(headline) > HEADLINE:
        yield f"the headline has {len(headline)} characters: {headline}"
    if "needs" not in facts or "children" in facts or "sibling" in facts:
        return

    known = known_values(facts)
    found = parsed(headline)
    if found is None:
        yield f"this headline has no known form: {headline}"
        return

    if facts.get("atMost") and "fits" in found and "atMost" not in found:
        yield f"an upper limit is told as a number: {headline}"

    for name, value in found.items():
        if known.get(name, value) != value:
            yield f"{name} is {known[name]}, and the headline says {value}: {headline}"


def parsed(headline: str) -> dict[str, str] | None:
    """The values in a headline by name; None if it has no known form."""
    for form in NEVER:
        if matched := re.fullmatch(form, headline):
            return _named(matched)

    for best in BEST:
        if matched := re.fullmatch(f"{NEEDS}; {best}", headline):
            return _named(matched)
        if matched := re.fullmatch(f"{NEEDS}: {best}", headline):
            return _named(matched)

    return None


def _named(matched: re.Match[str]) -> dict[str, str]:
    return {name: value for name, value in matched.groupdict().items() if value is not None}


def known_values(facts: Mapping[str, Any]) -> dict[str, str]:
    """The same values as the gangs API has them."""
    domains = facts.get("requiredDomains", {})
    slices = facts.get("slices", {})
    devices = facts.get("devices", {})
    scarcest = facts.get("scarcest", {})
    when_empty = domains.get("whenEmpty") or slices.get("whenEmpty") or {}
    limits = when_empty.get("limitedBy") or facts.get("limitedBy") or []
    requests = facts["needs"].get("requests", {})
    limited = [f"{requests[name]} {name}" for name in requests if name in limits]
    values = {
        "limits": " and ".join(limits) or None,
        "limited": " and ".join(limited) or None,
        "gang": facts["gang"],
        "group": facts["gang"],
        "pods": domains.get("needed", facts["needs"]["pods"]),
        "pod": facts.get("pod"),
        "hindered": facts.get("pod"),
        "fits": facts.get("fits"),
        "none": "none fits" if not facts.get("fits") else "some fit",
        "atMost": "at most" if facts.get("atMost") else "exactly",
        "fitsWhenEmpty": facts.get("fitsWhenEmpty"),
        "offeredOnOneNode": scarcest.get("offeredOnOneNode"),
        "scarce": scarcest.get("asked"),
        "free": scarcest.get("free"),
        "offered": scarcest.get("offered"),
        "freeOnOneNode": scarcest.get("freeOnOneNode"),
        "best": domains.get("best"),
        "takes": domains.get("takes"),
        "needed": domains.get("needed"),
        "total": domains.get("total"),
        "tooSmall": domains.get("tooSmall"),
        "emptyBest": when_empty.get("best"),
        "emptyTakes": when_empty.get("takes"),
        "class": devices.get("class"),
        "asked": devices.get("asked"),
        "devices": devices.get("free"),
        "devicesOnOne": devices.get("freeOnOneNode"),
        "size": slices.get("size"),
        "sliceBest": slices.get("best"),
        "sliceTakes": slices.get("takes"),
        "sliceFits": slices.get("fits"),
        "sliceNeeded": slices.get("needed"),
    }
    return {name: str(value) for name, value in values.items() if value is not None}
