"""`why` explains why a gang or pod has no node; its first line is one sentence.

Invariant: it uses the gangs API if that is served and readable, otherwise conditions and Events,
and says so. A name is that of a gang, else of a pod, else of the owner of pods, such as a Job;
`gang/NAME`, `pod/NAME` and `job/NAME` say which.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import groupby

from gangsched.console import DONE
from gangsched.kube.http.faults import FORBIDDEN, NOT_FOUND, ApiFault
from gangsched.model.text import counted
from kubectl_gangsched import from_api, from_pods
from kubectl_gangsched.advice import Advice, advice
from kubectl_gangsched.outputs import WhyOutput
from kubectl_gangsched.session import CannotAnswer, Session, is_unserved, lacking, serves_gangs
from kubectl_gangsched.story import (
    GangStory,
    PodStory,
    StoryLine,
    in_domains,
    of_gang,
    of_pod,
    printed_gang,
    printed_pod,
)
from kubectl_gangsched.target import GANG, POD, Owned, Target, not_there, owned, parsed
from kubectl_gangsched.terminal import (
    Cell,
    Line,
    Output,
    columns,
    facts,
    sentence,
    write,
    write_value,
)

ROWS_SHOWN = 20
_digits = re.compile(r"(\d+)")
STYLES = {"bound": "green", "succeeded": "green", "failed": "red", "terminating": "dim"}


def why(session: Session, target: str, output: Output) -> int:
    """Print why; return the exit code. Raises Fault and CannotAnswer."""
    gang, pod, instead = _found(session, parsed(target))
    more = advice(session, gang) if gang is not None else Advice()
    _tell(gang, pod, instead, more, output)
    return DONE


def _found(session: Session, target: Target) -> tuple[GangStory | None, PodStory | None, str]:
    """The gang, the pod if it is not told as a member, and why the gang does not come from the
    gangs API. Raises Fault and CannotAnswer.
    """
    instead = ""
    pod = _pod(session, target) if target.kind in {"", POD} else None
    if target.kind in {"", GANG}:
        gang, instead = _gang(session, target.name)
        if gang is not None:
            return gang, None, instead

    if pod is not None:
        return _with_gang(session, pod, is_asked_for=target.kind == POD)

    # The scheduler knows no gang whose pods name another scheduler.
    if target.kind in {"", GANG} and not instead:
        gang = from_pods.gang_named(session.client, session.namespace, target.name)
        if gang is not None:
            return gang, None, _why_not_known(gang)

    return _of_owner(session, target)


def _of_owner(session: Session, target: Target) -> tuple[GangStory | None, PodStory | None, str]:
    """The gang that the pods of an owner are, else one of these pods."""
    pods = Owned("", "") if target.kind in {GANG, POD} else owned(session, target)
    if pods.gang:
        return _found(session, Target(GANG, pods.gang))
    if pods.pod:
        return _found(session, Target(POD, pods.pod))

    raise CannotAnswer(not_there(session, target))


def _with_gang(
    session: Session,
    pod: PodStory,
    *,
    is_asked_for: bool,
) -> tuple[GangStory | None, PodStory, str]:
    """A pod, and its gang unless only a pod that has its node was asked for."""
    if not pod.gang or (is_asked_for and pod.node):
        return None, pod, ""

    gang, instead = _gang(session, pod.gang.partition("/")[2])
    return gang, pod, instead


def _pod(session: Session, target: Target) -> PodStory | None:
    """The pod of this name. Raises CannotAnswer if it has to be there."""
    try:
        pod = from_pods.pod_named(session.client, session.namespace, target.name)
    except ApiFault as fault:
        if target.kind == POD or fault.status != FORBIDDEN:
            raise

        return None

    if pod is None and target.kind == POD:
        raise CannotAnswer(not_there(session, target))

    return pod


def _gang(session: Session, name: str) -> tuple[GangStory | None, str]:
    """The gang, and why it does not come from the gangs API; "" if it does."""
    try:
        return from_api.gang_named(session.client, session.namespace, name), ""
    except ApiFault as fault:
        if fault.status == NOT_FOUND and not is_unserved(fault):
            return None, ""

        instead = _why_not_the_api(session, fault)

    return from_pods.gang_named(session.client, session.namespace, name), instead


def _why_not_known(gang: GangStory) -> str:
    """Why the gangs API does not have a gang that pods or a PodGroup declare."""
    names = sorted({member.scheduler for member in gang.members})
    named = " and ".join(f'"{name}"' for name in names)
    return "the gangs API has no gang of this name" + (
        f"; the schedulerName of its pods is {named}" if names else ""
    )


def _why_not_the_api(session: Session, fault: ApiFault) -> str:
    if fault.status == NOT_FOUND or (fault.status == FORBIDDEN and not serves_gangs(session)):
        return "this cluster does not serve the gangs API (visibility.gangsched.dev)"
    if fault.status == FORBIDDEN:
        return lacking(fault)[:1].lower() + lacking(fault)[1:]

    return f"the gangs API does not answer ({str(fault).rstrip('.')})"


def _tell(
    gang: GangStory | None,
    pod: PodStory | None,
    instead: str,
    more: Advice,
    output: Output,
) -> None:
    story = pod if pod is not None else gang
    assert story is not None
    headline = of_pod(story) if isinstance(story, PodStory) else of_gang(story)

    if output is not Output.TEXT:
        printed = WhyOutput(
            sentence=headline,
            pod=printed_pod(pod) if pod is not None else None,
            gang=printed_gang(gang, instead) if gang is not None else None,
            holders=more.holders,
            helps=more.helps,
            next=more.next,
            not_created=more.not_created,
        )
        write_value(printed, output)
        return

    lines: list[Line | str] = [[Cell(headline, "bold")]]
    # A member waits for what its gang waits for: said once.
    if pod is not None and gang is not None and gang.message not in headline:
        lines += ["", of_gang(gang)]

    if gang is not None:
        lines += ["", *_details(gang, more)]

    if instead:
        lines += [
            "",
            f"This comes from {gang.source if gang is not None else 'the pod'}: {instead}.",
        ]

    write(lines)


def _details(gang: GangStory, more: Advice) -> list[Line | str]:
    states = ", ".join(f"{number} {state}" for state, number in gang.by_state.items() if number)
    lines: list[Line | str] = [
        *facts(
            {
                "Minimum": _minimum(gang),
                "Pods": states,
                "Phase": gang.phase,
                "Reason": gang.reason,
                "Nodes": ", ".join(gang.nodes),
                **gang.extra,
            }
        )
    ]
    lines += [line for problem in gang.problems for line in ("", f"Problem: {problem}")]
    lines += in_domains(gang.domains)
    lines += _advised(more)
    lines += _members(gang.members)

    known = {gang.message}
    conditions = []
    for line in _untold(gang.conditions, known):
        conditions.append((line.type, line.status, line.reason, line.message))

    if conditions:
        lines += ["", *columns(("CONDITION", "STATUS", "REASON", "MESSAGE"), conditions)]

    events = []
    for line in _untold(gang.events, known):
        events.append((line.status, line.type, line.reason, line.message))

    if events:
        lines += ["", *columns(("LAST SEEN", "TYPE", "EVENT", "MESSAGE"), events)]

    return lines


def _minimum(gang: GangStory) -> str:
    exist = f"{counted(gang.total, 'pod')} {'exists' if gang.total == 1 else 'exist'}"
    return f"{'none' if gang.min_member is None else gang.min_member}; {exist}"


def _advised(more: Advice) -> list[Line | str]:
    """The answers to the questions that follow: each is a paragraph of its own."""
    shown: list[Line | str] = []
    if more.not_created:
        shown += ["", [sentence(more.not_created)]]

    if more.holders:
        shown += ["", [Cell("Who holds it: ", "bold"), sentence(more.holders)]]

    if more.helps:
        shown += ["", [Cell("What would help:", "bold")]]
        shown += [[f"  - {suggestion}"] for suggestion in more.helps]

    if more.next:
        shown += ["", [Cell("What happens next: ", "bold"), sentence(more.next)]]

    return shown


def _untold(lines: Sequence[StoryLine], known: set[str]) -> Iterator[StoryLine]:
    """The lines with a message that was not `told` before; they are told then."""
    for line in lines:
        if line.message and line.message not in known:
            known.add(line.message)
            yield line


def _members(members: Sequence[PodStory]) -> list[Line | str]:
    """A table of pods in natural order, those that are alike in one row."""
    rows = []
    for alike, group in groupby(sorted(members, key=_naturally), key=_alike):
        names = [member.name for member in group]
        name = names[0]
        if len(names) > 1:
            name = f"{names[0]} … {names[-1]} ({len(names)} pods)"

        state, node, reason = alike
        style = STYLES.get(state, "yellow")
        rows.append((name, Cell(state, style), node or "-", reason or "-"))

    if not rows:
        return []

    shown = rows[:ROWS_SHOWN]
    lines: list[Line | str] = ["", *columns(("POD", "STATE", "NODE", "REASON"), shown)]
    if len(rows) > ROWS_SHOWN:
        lines.append(f"… and {counted(len(rows) - ROWS_SHOWN, 'more row')}")

    return lines


def _naturally(member: PodStory) -> list[tuple[int, str]]:
    """`w-2` before `w-10`."""
    key = []
    for part in _digits.split(member.name):
        key.append((int(part), "") if part.isdecimal() else (-1, part))

    return key


def _alike(member: PodStory) -> tuple[str, str, str]:
    return member.state, member.node, member.reason
