"""`history`: what was decided about a gang, oldest first.

Invariant: the leader's audit trail is asked through the gangs API. Where that is not served, or a
standby answers, the gang's Events are shown instead, which Kubernetes keeps for an hour, and the
output says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import msgspec

from gangsched.console import DONE
from gangsched.kube.http.answers import understood
from gangsched.kube.http.faults import FORBIDDEN, NOT_FOUND, ApiFault
from kubectl_gangsched import from_pods
from kubectl_gangsched.outputs import HistoryOutput, PrintedHappening
from kubectl_gangsched.session import GANGS, CannotAnswer, Session, is_unserved, serves_gangs
from kubectl_gangsched.target import GANG, POD, Owned, Target, not_there, owned, parsed
from kubectl_gangsched.terminal import Cell, Line, Output, columns, write, write_value

REQUESTS = 4
"""How often the leader's history is asked for before a standby's answer is accepted."""
STYLES = {"Started": "green", "Waits": "dim", "Reserved": "cyan"}


def history(session: Session, name: str, output: Output) -> int:
    """Print the history; return the exit code. Raises Fault and CannotAnswer."""
    printed = history_of(session, parsed(name))
    if output is Output.TEXT:
        write(_told(printed))
    else:
        write_value(printed, output)

    return DONE


def history_of(session: Session, target: Target) -> HistoryOutput:
    """The leader's answer, else Events. Raises Fault and CannotAnswer."""
    if target.kind == POD:
        raise CannotAnswer("A pod has no history of its own: name its gang or its owner.")

    if target.kind in {"", GANG}:
        printed = _of_gang(session, target.name)
        if printed is not None:
            return printed

    pods = Owned("", "") if target.kind == GANG else owned(session, target)
    if pods.pod:
        raise CannotAnswer(f"The pods of {target.name} are in no gang, so they have no history.")

    printed = _of_gang(session, pods.gang) if pods.gang else None
    if printed is None:
        raise CannotAnswer(not_there(session, target._replace(kind=target.kind or GANG)))

    return printed


def _of_gang(session: Session, name: str) -> HistoryOutput | None:
    """The leader's answer, else Events; None if there is no such gang. Raises Fault."""
    answer = _of_api(session, name)
    return _of_events(session, name, answer) if isinstance(answer, str) else answer


def _of_api(session: Session, name: str) -> HistoryOutput | str | None:
    """The leader's answer, else why there is none; None if it knows no such gang."""
    path = f"{GANGS}/namespaces/{quote(session.namespace, safe='')}"
    path += f"/gangs/{quote(name, safe='')}/history"
    try:
        answer = _asked(session, path)
    except ApiFault as fault:
        if fault.status == NOT_FOUND and not is_unserved(fault):
            return None

        if is_unserved(fault):
            if fault.status != NOT_FOUND:
                return "the gangs API does not answer"

            return "the gangs API is not served"

        if fault.status == FORBIDDEN and not serves_gangs(session):
            return "the gangs API is not served"

        raise

    with understood("The history"):
        if answer["servedBy"].get("role") == "standby":
            return (
                "a standby answered, and only the leader knows what it has decided: ask again to"
                " reach the leader"
            )

        return HistoryOutput(
            namespace=session.namespace,
            name=name,
            complete_since=str(answer["completeSince"]),
            entries=msgspec.convert(answer["entries"], list[PrintedHappening]),
            instead="",
        )


def _asked(session: Session, path: str) -> Mapping[str, Any]:
    """The answer, of the leader if one of a few requests reaches it. Raises Fault."""
    # The API server sends each request to any replica.
    answer: Mapping[str, Any] = {}
    for _ in range(REQUESTS):
        answer = session.client.get(path)
        if (answer.get("servedBy") or {}).get("role") != "standby":
            break

    return answer


def _of_events(session: Session, name: str, instead: str) -> HistoryOutput | None:
    gang = from_pods.gang_named(session.client, session.namespace, name)
    if gang is None:
        return None

    entries = []
    for event in from_pods.events_of(session.client, session.namespace, gang):
        entries.append(_happening(event))

    return HistoryOutput(
        namespace=session.namespace,
        name=name,
        complete_since="",
        entries=entries,
        instead=instead,
    )


def _happening(event: Mapping[str, Any]) -> PrintedHappening:
    last = from_pods.last_seen(event)
    first = str(event.get("eventTime") or event.get("firstTimestamp") or "")
    times = (event.get("series") or {}).get("count") or event.get("count") or 1
    reason = str(event.get("reason") or "")

    return PrintedHappening(
        what=reason,
        first_time=f"{first[:19]}Z" if first else last,
        last_time=last,
        times=int(times),
        reason=reason,
        message=str(event.get("message") or ""),
    )


def _told(output: HistoryOutput) -> list[Line | str]:
    gang = f"{output.namespace}/{output.name}"
    rows = []

    for printed_happening in output.entries:
        rows.append(
            (
                printed_happening.last_time,
                str(printed_happening.times),
                Cell(printed_happening.what, STYLES.get(printed_happening.what, "yellow")),
                str(printed_happening.plan or "-"),
                printed_happening.message,
            )
        )

    head = f"History of gang {gang}" if rows else f"Nothing has been decided about gang {gang}"
    since = f", complete since {output.complete_since}" if output.complete_since else ""
    lines: list[Line | str] = [[Cell(f"{head}{since}.", "bold")]]

    if rows:
        lines += ["", *columns(("LAST", "TIMES", "WHAT", "PLAN", "MESSAGE"), rows)]

    if output.instead:
        lines += ["", f"These are Events of the last hour: {output.instead}."]

    return lines
