"""Facts about one gang or pod, from any source, and the sentence about it.

Invariant: pure functions. The scheduler's messages are shown as written, but that something waits
and its name only once; missing ones are replaced here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gangsched.model.text import counted
from kubectl_gangsched.outputs import (
    PrintedCondition,
    PrintedDomain,
    PrintedEvent,
    PrintedGang,
    PrintedPod,
)
from kubectl_gangsched.terminal import Line, columns, sentence

WAITING = frozenset({"pending", "held", "waiting for claims", "binding", "kept", "retry"})
"""Words of `state.debug_view.MEMBER_STATES` for members that have no node yet, and may get one."""
BOUND = "bound"
GATED = "gated"


@dataclass(slots=True)
class StoryLine:
    """One condition of a pod or PodGroup, or an Event (`status` is then the time when it was seen
    last).
    """

    type: str
    status: str
    reason: str
    message: str


@dataclass(slots=True)
class DomainStory:
    """A domain of a required level: how many of the needed pods it `holds` and `lacks`;
    `refuted_by` sums, search or "-".
    """

    domain: str
    holds: int
    lacks: int
    refuted_by: str


@dataclass(slots=True)
class PodStory:
    """One pod; `gang` is "namespace/name", "" for a plain one. `state` is one
    of `MEMBER_STATES`.
    """

    namespace: str
    name: str
    state: str
    phase: str
    scheduler: str
    gang: str = ""
    node: str = ""
    reason: str = ""
    message: str = ""
    gates: tuple[str, ...] = ()
    age_s: float = 0.0
    created_at: str = ""


@dataclass(slots=True)
class GangStory:
    """One gang. `source` names where the facts come from; `extra` has facts that only the scheduler
    knows, by name.
    """

    namespace: str
    name: str
    source: str
    min_member: int | None = None
    by_state: dict[str, int] = field(default_factory=dict)
    phase: str = ""
    reason: str = ""
    message: str = ""
    nodes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    domains: list[DomainStory] = field(default_factory=list)
    conditions: list[StoryLine] = field(default_factory=list)
    events: list[StoryLine] = field(default_factory=list)
    members: list[PodStory] = field(default_factory=list)
    extra: dict[str, str] = field(default_factory=dict)
    declared: bool = False
    #: Names of the controllers of its pods.
    owners: tuple[str, ...] = ()
    #: As the gangs API shows it; None from another source.
    status: Mapping[str, Any] | None = None

    @property
    def total(self) -> int:
        """Number of known members."""
        return sum(self.by_state.values())

    @property
    def bound(self) -> int:
        """Number of members with a node."""
        return self.by_state.get(BOUND, 0)

    @property
    def is_below_minimum(self) -> bool:
        """Whether it runs with fewer pods than it needs. A gang whose pods have begun to succeed is
        about to end.
        """
        if self.min_member is None or self.by_state.get("succeeded"):
            return False

        return 0 < self.bound < self.min_member

    @property
    def waiting(self) -> int:
        """Number of members that wait for a node, including gated ones."""
        return sum(
            number for state, number in self.by_state.items() if state in WAITING or state == GATED
        )


def in_domains(domains: Sequence[DomainStory]) -> list[Line | str]:
    """An empty line and a table of domains; nothing if there are no domains."""
    if not domains:
        return []

    rows = []
    for domain_story in domains:
        rows.append(
            (
                domain_story.domain,
                str(domain_story.holds),
                str(domain_story.lacks),
                domain_story.refuted_by,
            )
        )

    return ["", *columns(("DOMAIN", "HOLDS", "LACKS", "REFUTED BY"), rows)]


def of_gang(gang: GangStory) -> str:
    """The sentence that explains a gang's state."""
    name = f"Gang {gang.namespace}/{gang.name}"
    if not gang.total:
        if gang.declared:
            return f"{name} has no pods yet; its PodGroup exists."

        return f"{name} has no pods."

    if not gang.waiting:
        if gang.is_below_minimum:
            left = (
                f"{gang.bound} of {counted(gang.min_member or 0, 'pod')} {_are(gang.bound)} bound"
            )
            return sentence(f"{name} runs below its minimum: {gang.message or left}")
        if gang.bound:
            return f"{name} has its nodes: {_pods_are(gang.bound)} bound."

        return f"{name} is over: {_listed(gang.by_state)}."

    start = (
        f"{name} waits"
        if not gang.bound
        else f"{name} has {counted(gang.bound, 'pod')} bound, and {gang.waiting} wait"
    )
    if gang.message:
        # The scheduler's refusals begin with the gang's name: say it once, as that it waits.
        if not gang.bound and gang.message.startswith(f"{name[:1].lower()}{name[1:]} "):
            return sentence(f"{name}{gang.message[len(name) :]}")

        if not gang.bound and (waits := _waits_for(gang.message)):
            itself = re.escape(f" of gang {gang.namespace}/{gang.name}")
            return sentence(f"{name} {re.sub(rf'{itself}(?=[ :;]|$)', '', waits, count=1)}")

        return sentence(f"{start}: {gang.message}")

    if gang.by_state.get(GATED) == gang.waiting:
        return (
            f"{start}: their scheduling gates keep them from being scheduled, until whoever set"
            " them takes them away."
        )

    return f"{start}. {unsaid(gang.members)}"


def of_pod(pod: PodStory) -> str:
    """The sentence that explains a pod's state."""
    name = f"Pod {pod.namespace}/{pod.name}"
    if pod.state in {"succeeded", "failed"}:
        return f"{name} is over: {pod.phase}."
    if pod.state == "terminating":
        return f"{name} is being deleted."
    if pod.node:
        return f"{name} has its node: {pod.node} ({pod.phase})."

    if pod.state == GATED:
        gates = ", ".join(pod.gates)
        kept = f"its scheduling gates ({gates}) keep it from being scheduled"
        return f"{name} waits: {kept}, until whoever set them takes them away."

    whose = (
        f" as part of gang {pod.gang}" if pod.gang and f"gang {pod.gang}" not in pod.message else ""
    )
    if waits := _waits_for(pod.message):
        return sentence(f"{name}{whose} {waits}")

    if pod.message:
        return sentence(f"{name} waits{whose}: {pod.message}")

    return f"{name} waits{whose}. {unsaid([pod])}"


def _waits_for(message: str) -> str:
    """A message that says itself what is waited for, after a name; "" for others."""
    for begins in ("waits for ", "waiting for "):
        if message.startswith(begins):
            return f"waits for {message.removeprefix(begins)}"

    return ""


JUST_NOW_S = 5.0


def unsaid(pods: list[PodStory]) -> str:
    """The sentence for waiting pods about which no reason was reported."""
    waiting = [pod for pod in pods if pod.state in WAITING]
    if not waiting:
        return "Nobody has said why yet."

    if min(pod.age_s for pod in waiting) < JUST_NOW_S:
        if len(waiting) > 1:
            return "Its pods were created a moment ago: ask again."

        return "It was created a moment ago: ask again."

    names = sorted({pod.scheduler for pod in waiting})
    asked = " and ".join(f'"{name}"' for name in names)
    return (
        "No scheduler has said why: is there one that serves schedulerName"
        f" {asked}?{_nearest(names)}"
    )


OURS = "gangsched"
"""The name under which the scheduler serves unless it is told otherwise."""


def _nearest(names: list[str]) -> str:
    """What to look at next: whether the scheduler runs, if the name is right."""
    from difflib import get_close_matches

    if OURS in names:
        return " `kubectl gangsched doctor` says whether it runs."

    wrong = [name for name in names if get_close_matches(name, [OURS], cutoff=0.75)]
    return f' The usual name is "{OURS}".' if wrong else ""


def _are(number: int) -> str:
    return "is" if number == 1 else "are"


def _pods_are(number: int) -> str:
    if number == 1:
        return "its pod is"

    return f"all {number} pods are"


def _listed(by_state: dict[str, int]) -> str:
    return ", ".join(
        f"{counted(number, 'pod')} {state}" for state, number in sorted(by_state.items()) if number
    )


def printed_gang(gang: GangStory, instead: str) -> PrintedGang:
    """The facts for `-o json`; `instead` says why they are not from the gangs API."""
    return PrintedGang(
        namespace=gang.namespace,
        name=gang.name,
        source=gang.source,
        instead=instead,
        sentence=of_gang(gang),
        min_member=gang.min_member,
        by_state=gang.by_state,
        phase=gang.phase,
        reason=gang.reason,
        message=gang.message,
        nodes=gang.nodes,
        problems=gang.problems,
        domains=printed_domains(gang.domains),
        conditions=[
            PrintedCondition(
                type=story_line.type,
                status=story_line.status,
                reason=story_line.reason,
                message=story_line.message,
            )
            for story_line in gang.conditions
        ],
        events=[
            PrintedEvent(
                type=story_line.type,
                last_seen=story_line.status,
                reason=story_line.reason,
                message=story_line.message,
            )
            for story_line in gang.events
        ],
        members=[printed_pod(pod_story) for pod_story in gang.members],
        status=dict(gang.status) if gang.status is not None else None,
    )


def printed_domains(domains: Sequence[DomainStory]) -> list[PrintedDomain]:
    """Domains for `-o json`."""
    result: list[PrintedDomain] = []
    for domain_story in domains:
        result.append(
            PrintedDomain(
                domain=domain_story.domain,
                holds=domain_story.holds,
                lacks=domain_story.lacks,
                refuted_by=domain_story.refuted_by,
            )
        )

    return result


def printed_pod(pod: PodStory) -> PrintedPod:
    """The facts for `-o json`."""
    return PrintedPod(
        namespace=pod.namespace,
        name=pod.name,
        sentence=of_pod(pod),
        state=pod.state,
        phase=pod.phase,
        scheduler_name=pod.scheduler,
        gang=pod.gang,
        node=pod.node,
        reason=pod.reason,
        message=pod.message,
        scheduling_gates=list(pod.gates),
        created_at=pod.created_at,
    )
