"""`queue`: waiting gangs in the order in which they are planned.

Invariant: only the scheduler knows the order, so positions come from the gangs API; they count the
gangs of all namespaces, so that a user with fewer permissions sees some of the gangs with the same
positions. Without that API the gangs are found by their pods, oldest first, and the output says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gangsched.console import DONE
from gangsched.kube.http.answers import understood
from gangsched.kube.http.faults import FORBIDDEN, ApiFault
from gangsched.model.text import counted
from kubectl_gangsched import from_api, from_pods
from kubectl_gangsched.outputs import PrintedWait, QueueOutput
from kubectl_gangsched.session import CannotAnswer, Session, is_unserved, lacking, serves_gangs
from kubectl_gangsched.terminal import Cell, Line, Output, columns, write, write_value

INSTALL = "the gangs API is part of the default installation (docs/visibility.md)"


def queue(session: Session, output: Output, *, all_namespaces: bool) -> int:
    """Print the queue; return the exit code. Raises Fault and CannotAnswer."""
    namespace = None if all_namespaces else session.namespace
    gangs, instead = _waiting(session, namespace)

    if output is not Output.TEXT:
        write_value(QueueOutput(gangs=gangs, instead=instead), output)
        return DONE

    where = "in the cluster" if all_namespaces else f"in namespace {session.namespace}"
    write([*_told(gangs, where), *(["", f"Oldest first: {instead}."] if instead and gangs else [])])
    return DONE


def _waiting(session: Session, namespace: str | None) -> tuple[list[PrintedWait], str]:
    """The gangs, and why they do not come from the gangs API; "" if they do."""
    instead = ""
    try:
        with understood("The list of gangs"):
            return [_of_api(gang) for gang in from_api.waiting(session.client, namespace)], ""
    except ApiFault as fault:
        if is_unserved(fault) or (fault.status == FORBIDDEN and not serves_gangs(session)):
            away = "does not answer" if fault.status >= 500 else "is not served in this cluster"
            instead = f"the gangs API (visibility.gangsched.dev), which knows the queue, {away}"
        else:
            raise _named(fault, namespace) from fault

    try:
        return from_pods.waiting(session.client, namespace), instead
    except ApiFault as fault:
        raise _named(fault, namespace) from fault


def _named(fault: ApiFault, namespace: str | None) -> Exception:
    """The refusal with what the user can do about it."""
    if fault.status == FORBIDDEN and namespace is None:
        return CannotAnswer(f"{lacking(fault)}; ask for one namespace with -n.")

    return fault


def _of_api(gang: Mapping[str, Any]) -> PrintedWait:
    metadata = gang["metadata"]
    spec = gang.get("spec") or {}
    status = gang.get("status") or {}

    return PrintedWait(
        namespace=str(metadata.get("namespace") or ""),
        name=str(metadata["name"]),
        position=int(status["position"]),
        queue=str(status.get("queue") or ""),
        min_member=spec.get("min"),
        bound=int(status.get("members", {}).get("byState", {}).get("bound", 0)),
        waiting_since=str(status.get("waitingSince") or ""),
        reason=str(status.get("reason") or ""),
        message=str(status.get("message") or ""),
    )


def _told(gangs: Sequence[PrintedWait], where: str) -> list[Line | str]:
    if not gangs:
        return [f"No gang waits {where}."]

    rows = []
    for gang in gangs:
        rows.append(
            (
                str(gang.position or "-"),
                f"{gang.namespace}/{gang.name}",
                str(gang.min_member if gang.min_member is not None else "-"),
                str(gang.bound),
                gang.waiting_since or "-",
                Cell(gang.reason or "-", "yellow"),
                gang.message,
            )
        )

    head = f"{counted(len(gangs), 'gang')} {'waits' if len(gangs) == 1 else 'wait'} {where}."
    return [
        [Cell(head, "bold")],
        "",
        *columns(("POSITION", "GANG", "MIN", "BOUND", "WAITING SINCE", "REASON", "MESSAGE"), rows),
    ]
