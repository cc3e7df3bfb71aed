"""What `-o json` and `-o yaml` print, as types; docs/reference/kubectl-output.json is their JSON
schema.

Invariant: names are in camelCase, times are RFC 3339 in fields of their own, and a field is always
there: "" or null if nothing is known.
"""

from __future__ import annotations

from typing import Any

import msgspec


class Printed(msgspec.Struct, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """Base of all that is printed."""


class PrintedCondition(Printed):
    """One condition of a PodGroup."""

    type: str
    status: str
    reason: str
    message: str


class PrintedEvent(Printed):
    """One Event; `last_seen` is a time."""

    type: str
    last_seen: str
    reason: str
    message: str


class PrintedDomain(Printed):
    """A domain of a required level: how many of the needed pods it holds and lacks."""

    domain: str
    holds: int
    lacks: int
    refuted_by: str


class PrintedGang(Printed):
    """One gang."""

    namespace: str
    name: str
    #: Where the facts come from, and why not from the gangs API ("" if they do).
    source: str
    instead: str
    sentence: str
    min_member: int | None
    by_state: dict[str, int]
    phase: str
    reason: str
    message: str
    nodes: list[str]
    problems: list[str]
    domains: list[PrintedDomain]
    conditions: list[PrintedCondition]
    events: list[PrintedEvent]
    members: list[PrintedPod]
    #: The status that the gangs API shows; null without it.
    status: dict[str, Any] | None


class PrintedPod(Printed):
    """One pod; `gang` is "namespace/name", "" for a plain one."""

    namespace: str
    name: str
    sentence: str
    state: str
    phase: str
    scheduler_name: str
    gang: str
    node: str
    reason: str
    message: str
    scheduling_gates: list[str]
    #: A time; "" where it is unknown.
    created_at: str


class WhyOutput(Printed, tag_field="kind", tag="Why"):
    """`why`: the pod that was asked for, and the gang; one of them may be null."""

    sentence: str
    pod: PrintedPod | None
    gang: PrintedGang | None
    #: Sentences about a gang that waits, "" or empty if there is nothing to say: who holds what it
    #: lacks, what would help, what happens next, and why its controller creates no pods.
    holders: str
    helps: list[str]
    next: str
    not_created: str


class PrintedNode(Printed):
    """Use of a resource on a node; `users` has the units of each gang or pod."""

    node: str
    product: str
    total: int
    free: int
    #: Why new pods get nothing there: "cordoned", "not ready" or "unreachable"; "" if they do.
    closed: str
    users: dict[str, int]


class MapOutput(Printed, tag_field="kind", tag="Map"):
    """`map`: the nodes that have each resource, and which permission is missing for others, ""
    if none is.
    """

    resources: dict[str, list[PrintedNode]]
    missing: str = ""


class PrintedFinding(Printed):
    """A problem and its remedy."""

    check: str
    sentence: str
    todo: str


class DoctorOutput(Printed, tag_field="kind", tag="Doctor"):
    """`doctor`: what was found, and what could not be checked, with reasons."""

    facts: dict[str, str]
    findings: list[PrintedFinding]
    not_checked: dict[str, str]


class PrintedWait(Printed):
    """A waiting gang. Without the gangs API there is no `position` and no `queue`."""

    namespace: str
    name: str
    position: int | None
    queue: str
    min_member: int | None
    bound: int
    #: A time; "" where it is unknown.
    waiting_since: str
    reason: str
    message: str


class QueueOutput(Printed, tag_field="kind", tag="Queue"):
    """`queue`: waiting gangs in queue order; `instead` says why the order is only that of their
    ages.
    """

    gangs: list[PrintedWait]
    instead: str


class PrintedObject(Printed):
    """A pod; its name is "" if it is another namespace's."""

    name: str
    uid: str


class PrintedHappening(Printed):
    """Something that happened to a gang, perhaps several times; from Events there are no uid, plan
    and objects.
    """

    what: str
    #: Times.
    first_time: str
    last_time: str
    times: int
    reason: str
    message: str
    uid: str = ""
    plan: int = 0
    objects: list[PrintedObject] = []
    object_count: int = 0


class HistoryOutput(Printed, tag_field="kind", tag="History"):
    """`history`: entries, oldest first; `instead` says why they are Events, "" if they are the
    leader's.
    """

    namespace: str
    name: str
    #: A time: since when no entry is missing; "" for Events.
    complete_since: str
    entries: list[PrintedHappening]
    instead: str


class PrintedAssignment(Printed):
    """So many pods of a set on a node."""

    pod_set: str
    node: str
    count: int


class PrintedKind(Printed):
    """So many nodes of a kind."""

    kind: str
    count: int


class PrintedPlan(Printed):
    """Whether one gang would start now."""

    gang: str
    namespace: str
    pods: int
    fits: bool
    reason: str
    message: str
    nodes: list[PrintedKind]
    assignments: list[PrintedAssignment]
    preempts: list[str]
    suggestions: list[str]
    problems: list[str]
    domains: list[PrintedDomain]


class PlanOutput(Printed, tag_field="kind", tag="Plan"):
    """`plan`: one entry per gang of the file; `instead` says why the plan was made here, "" if it
    was not.
    """

    gangs: list[PrintedPlan]
    notes: list[str]
    instead: str


class PrintedReason(Printed):
    """Reason and message of a pod."""

    reason: str
    message: str


class PrintedVerdict(Printed):
    """What the scheduler would report about a gang; `starts` maps pods to nodes."""

    gang: str
    plain: bool
    reason: str
    message: str
    pods: dict[str, PrintedReason]
    starts: dict[str, str]


class ReplayOutput(Printed, tag_field="kind", tag="Replay"):
    """`replay`: one entry per waiting gang or plain pod."""

    gangs: list[PrintedVerdict]


Outputs = (
    WhyOutput | MapOutput | DoctorOutput | QueueOutput | HistoryOutput | PlanOutput | ReplayOutput
)


def schema() -> dict[str, Any]:
    """The JSON schema of all outputs."""
    generated = msgspec.json.schema(Outputs)

    # Descriptions are docstrings, which are wrapped where the code is.
    for definition in generated.get("$defs", {}).values():
        if "description" in definition:
            definition["description"] = " ".join(definition["description"].split())

    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "kubectl gangsched -o json",
        **generated,
    }
