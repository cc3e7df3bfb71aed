"""Names of gangs and pods for the shell's completion.

Invariant: whatever fails, there are no names and no text: a shell shows nothing else well.
"""

from __future__ import annotations

import typer

from gangsched.api.gang_identity import gang_id
from kubectl_gangsched.connection import merged, session
from kubectl_gangsched.from_pods import pods_at
from kubectl_gangsched.session import Session

WITHIN = "2s"
"""How long a shell waits for names."""


def gangs(context: typer.Context, incomplete: str) -> list[str]:
    """Gangs of the namespace whose name begins so."""
    return _named(context, incomplete, with_pods=False)


def gangs_and_pods(context: typer.Context, incomplete: str) -> list[str]:
    """Gangs and pods of the namespace whose name begins so."""
    return _named(context, incomplete, with_pods=True)


def _named(context: typer.Context, incomplete: str, *, with_pods: bool) -> list[str]:
    try:
        cluster = _session(context)
        path = f"/api/v1/namespaces/{cluster.namespace}/pods"
        names = set()
        for pod in pods_at(cluster.client, path):
            ref = gang_id(pod)
            if ref is not None:
                names.add(ref.id.partition("/")[2])
            if with_pods:
                names.add(pod.name)
    except Exception:  # no kubeconfig, no rights, no answer
        return []

    return sorted(name for name in names if name.startswith(incomplete))


def _session(context: typer.Context) -> Session:
    """The session that the flags of the incomplete command line ask for."""
    before = context.parent.params if context.parent is not None else {}
    flags = merged(before, context.params)
    return session(flags | {"request_timeout": WITHIN})
