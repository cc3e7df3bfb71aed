"""What `why` adds about a gang that waits: who holds what it lacks, what would help, what happens
next, and why its controller creates no pods.

Invariant: each part is read with the permissions of the user, and left out where these do not
suffice. What would help is asked of the scheduler, for the gang as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from gangsched.kube.http.faults import Fault
from gangsched.model.reasons import LACKS_CAPACITY, Reason
from gangsched.model.text import counted, named
from gangsched.sentences.next_steps import next_step
from kubectl_gangsched.session import GANGS, Session
from kubectl_gangsched.story import GangStory

LACKS_ROOM = frozenset({*LACKS_CAPACITY, Reason.HOLDING})
"""Reasons for which a plan can say what would help."""
FAILED_CREATE = "FailedCreate"
"""The reason of Events in which controllers say that they cannot create pods."""
_FORBIDDEN = re.compile(r'^(?:Error creating: )?(?:pods "[^"]*" is forbidden: )?')


@dataclass(slots=True)
class Advice:
    """Sentences without a full stop; each is "" or empty if there is nothing to say."""

    holders: str = ""
    helps: list[str] = field(default_factory=list)
    next: str = ""
    not_created: str = ""


def advice(session: Session, gang: GangStory) -> Advice:
    """What can be said about a gang; sends up to two requests."""
    answer = Advice(next=next_of(gang))
    if gang.waiting and gang.status is not None and gang.reason in LACKS_ROOM:
        _review(session, gang, answer)

    if _lacks_members(gang):
        answer.not_created = not_created(session, gang)

    return answer


def _lacks_members(gang: GangStory) -> bool:
    """Whether its controllers may have failed to create pods."""
    # Without the gangs API the minimum of an owner is unknown.
    if gang.min_member is None:
        return gang.reason == Reason.WAITING_FOR_MEMBERS

    return gang.total < gang.min_member


def next_of(gang: GangStory) -> str:
    """What happens next, without a full stop; "" if its message says so."""
    if gang.status is not None:
        step = str(gang.status.get("next") or "")
        # A refusal ends with the reservation, which is what happens next.
        return "" if step.lower() in gang.message.lower() else step
    # Without the gangs API it is unknown what is reserved, so that nothing is said of room.
    if not gang.waiting or gang.reason == Reason.UNSCHEDULABLE or gang.reason not in set(Reason):
        return ""

    return next_step(Reason(gang.reason))


def _review(session: Session, gang: GangStory, advice: Advice) -> None:
    """Ask what would help the gang that exists."""
    try:
        advice.helps, advice.holders = helps(session, gang.namespace, gang.name)
    except Fault:
        return  # an older scheduler, or no right to ask


def helps(session: Session, namespace: str, name: str) -> tuple[list[str], str]:
    """What would help a gang that exists, and who holds what it lacks. Raises Fault."""
    body = {
        "apiVersion": "visibility.gangsched.dev/v1alpha1",
        "kind": "PlacementReview",
        "spec": {"gang": {"existing": name}},
    }
    path = f"{GANGS}/namespaces/{quote(namespace, safe='')}/placementreviews"
    status = session.client.json("POST", path, body).get("status") or {}
    suggestions = [str(suggestion) for suggestion in status.get("suggestions") or ()]
    return suggestions, _holders(status.get("holders") or {})


def _holders(holders: Mapping[str, Any]) -> str:
    """`nvidia.com/gpu is used by gang x (8), pod y (1)`, and how much other namespaces use."""
    own = []
    for holder in holders.get("own") or ():
        own.append(f"{holder['kind']} {holder['name']} ({holder['amount']})")

    others = holders.get("others") or {}
    count = int(others.get("count") or 0)
    parts = []
    if own:
        parts.append(f"{holders['resource']} is used by {named(own)}")

    if count:
        use = "uses" if count == 1 else "use"
        what = counted(count, "gang or pod") if count == 1 else f"{count} gangs or pods"
        parts.append(f"{what} of other namespaces {use} {others.get('amount')}")

    return "; ".join(parts)


def not_created(session: Session, gang: GangStory) -> str:
    """The newest Event of its controller about pods that could not be created."""
    namespace = quote(gang.namespace, safe="")
    try:
        events = session.client.items(
            f"/api/v1/namespaces/{namespace}/events",
            fieldSelector=f"reason={FAILED_CREATE}",
        )
    except Fault:
        return ""

    newest = max(_about(events, gang), key=_seen, default=None)
    if newest is None:
        return ""

    owner = newest.get("involvedObject") or {}
    missing = "more pods"
    if gang.min_member is not None:
        missing = counted(gang.min_member - gang.total, "pod")

    cause = _FORBIDDEN.sub("", str(newest.get("message") or ""))
    return (
        f"{owner.get('kind')} {gang.namespace}/{owner.get('name')} cannot create {missing}: {cause}"
    )


def _about(events: Iterable[Mapping[str, Any]], gang: GangStory) -> list[Mapping[str, Any]]:
    """The Events on an object that owns the gang's pods, or has the gang's name."""
    names = {gang.name, *gang.owners}
    parts = []
    for event in events:
        owner = event.get("involvedObject") or {}
        if owner.get("name") in names:
            parts.append(event)

    return parts


def _seen(event: Mapping[str, Any]) -> str:
    series = event.get("series") or {}
    stamps = (series.get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime"))
    return str(next((stamp for stamp in stamps if stamp), ""))
