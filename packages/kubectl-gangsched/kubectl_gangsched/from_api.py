"""A gang as reported by the gangs API (`visibility.gangsched.dev`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from gangsched.kube.http.blocking import BlockingClient
from kubectl_gangsched.session import GANGS
from kubectl_gangsched.story import DomainStory, GangStory

SOURCE = "the gangs API"
_QUEUED = {
    "active": "tried next",
    "parked": "tried again when something changes that could help it",
    "backoff": "tried again in seconds, since a bind was refused",
}
"""What the state of its queue means."""


def gang_named(client: BlockingClient, namespace: str, name: str) -> GangStory:
    """Read a gang. Raises Fault: ApiFault 404 if it does not exist or the API is not served
    (`session.is_unserved`).
    """
    return story(
        client.get(f"{GANGS}/namespaces/{quote(namespace, safe='')}/gangs/{quote(name, safe='')}")
    )


def waiting(client: BlockingClient, namespace: str | None) -> list[Mapping[str, Any]]:
    """Gangs with a queue position, in queue order, of one namespace or of all. Raises Fault."""
    scope = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
    gangs = []

    for item in client.items(f"{GANGS}{scope}/gangs"):
        if item.get("status", {}).get("position"):
            gangs.append(item)

    return sorted(gangs, key=lambda gang: int(gang["status"]["position"]))


def story(gang: Mapping[str, Any]) -> GangStory:
    """The facts that the API object contains."""
    metadata = gang["metadata"]
    spec = gang.get("spec") or {}
    status = gang.get("status") or {}
    members = status.get("members") or {}

    return GangStory(
        str(metadata.get("namespace") or ""),
        str(metadata["name"]),
        source=SOURCE,
        min_member=spec.get("min"),
        by_state={
            str(state): int(number) for state, number in (members.get("byState") or {}).items()
        },
        phase=str(status.get("phase") or ""),
        reason=str(status.get("reason") or ""),
        message=str(status.get("message") or ""),
        nodes=[str(node) for node in status.get("nodes") or ()],
        problems=[str(problem) for problem in status.get("problems") or ()],
        domains=domains(status),
        extra=_extra(spec, status),
        declared=True,
        status=status,
    )


def domains(status: Mapping[str, Any]) -> list[DomainStory]:
    """The best domains of the required levels, from the status of a gang or of
    a PlacementReview.
    """
    result: list[DomainStory] = []
    for domain in status.get("domains") or ():
        result.append(
            DomainStory(
                str(domain.get("domain")),
                int(domain.get("holds") or 0),
                int(domain.get("lacks") or 0),
                str(domain.get("refutedBy") or "-"),
            )
        )

    return result


def _extra(spec: Mapping[str, Any], status: Mapping[str, Any]) -> dict[str, str]:
    """Facts that only the scheduler knows, in words."""
    lacks = status.get("lacks") or {}
    reserved = status.get("reserved") or {}
    position = status.get("position")
    before = status.get("before")
    queued = _QUEUED.get(str(status.get("queue")), "waiting")
    facts = {
        "Declared by": spec.get("declaredBy"),
        # A group of one is the gang itself.
        "Group": (
            ", ".join(map(str, spec.get("group") or ())) if len(spec.get("group") or ()) > 1 else ""
        ),
        "Queue": (f"number {position} ({before or 0} before it); {queued}" if position else ""),
        "Waits since": status.get("waitingSince"),
        "Decided": (
            f"{status['lastDecisionAgeSeconds']} s ago"
            if "lastDecisionAgeSeconds" in status
            else ""
        ),
        "Lacks": (
            f"{lacks.get('amount')} more {lacks.get('resource')}; at most"
            f" {lacks.get('freeOnOneNode', lacks.get('largestHole'))} are free on one node now"
            if lacks
            else ""
        ),
        "Reserved": (
            (
                f"from {reserved['startTime']}"
                if reserved.get("startTime")
                else str(reserved.get("kind"))
            )
            if reserved
            else ""
        ),
        "Yields": status.get("yields"),
        "Preemptions": status.get("preemptions"),
    }

    return {name: str(value) for name, value in facts.items() if value}
