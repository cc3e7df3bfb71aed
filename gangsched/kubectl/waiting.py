"""`queue`: waiting gangs in the order in which they are planned.

Invariant: only the scheduler knows the order, so it comes from the gangs API. Positions count the gangs of all
namespaces; a user with fewer permissions sees only some of the gangs, with the same positions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gangsched.console import DONE
from gangsched.kube.http.faults import FORBIDDEN, ApiFault
from gangsched.kubectl import from_api
from gangsched.kubectl.session import CannotAnswer, Session, is_unserved, lacking, serves_gangs
from gangsched.kubectl.terminal import Cell, Line, Output, columns, write, write_value
from gangsched.model.text import counted

INSTALL = "an operator turns it on with `kubectl apply -k manifests/visibility` (docs/visibility.md)"


def queue(session: Session, output: Output, *, all_namespaces: bool) -> int:
    """Print the queue; return the exit code. Raises Fault and CannotAnswer."""
    try:
        gangs = from_api.waiting(session.client, None if all_namespaces else session.namespace)
    except ApiFault as fault:
        if is_unserved(fault) or (fault.status == FORBIDDEN and not serves_gangs(session)):
            away = "does not answer" if fault.status >= 500 else "is not served in this cluster"
            raise CannotAnswer(
                f"The gangs API (visibility.gangsched.dev), which knows the queue, {away}: {INSTALL}."
            ) from fault
        if fault.status == FORBIDDEN and all_namespaces:
            raise CannotAnswer(f"{lacking(fault)}; ask for one namespace with -n.") from fault
        raise
    if output is not Output.TEXT:
        write_value(gangs, output)
    else:
        where = "in the cluster" if all_namespaces else f"in namespace {session.namespace}"
        write(_told(gangs, where))
    return DONE


def _told(gangs: list[Mapping[str, Any]], where: str) -> list[Line | str]:
    if not gangs:
        return [f"No gang waits {where}."]
    rows = []
    for gang in gangs:
        metadata, spec, status = gang["metadata"], gang.get("spec") or {}, gang.get("status") or {}
        states = status.get("members", {}).get("byState", {})
        rows.append(
            (
                str(status.get("position")),
                f"{metadata.get('namespace')}/{metadata['name']}",
                str(spec.get("min", "-")),
                str(states.get("bound", 0)),
                str(status.get("waitingSince") or "-"),
                Cell(str(status.get("reason") or "-"), "yellow"),
                str(status.get("message") or ""),
            )
        )
    head = f"{counted(len(gangs), 'gang')} {'waits' if len(gangs) == 1 else 'wait'} {where}."
    return [
        [Cell(head, "bold")],
        "",
        *columns(("POSITION", "GANG", "MIN", "BOUND", "WAITING SINCE", "REASON", "MESSAGE"), rows),
    ]
