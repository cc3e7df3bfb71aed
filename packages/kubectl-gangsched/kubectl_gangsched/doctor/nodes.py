"""A check of nodes: those whose kubelet is lost, where nothing starts."""

from __future__ import annotations

from collections.abc import Iterator

from gangsched.kube.http.blocking import BlockingClient
from gangsched.model.text import counted, is_or_are, named
from kubectl_gangsched.doctor.finding import Finding
from kubectl_gangsched.gpu_map import read_nodes


def lost(client: BlockingClient) -> Iterator[Finding]:
    """Nodes that are not ready or do not report. Raises Fault."""
    nodes, unready = read_nodes(client)
    if not unready:
        return

    names = sorted(unready)
    words = [f"{name} ({unready[name]})" for name in names]
    yield Finding(
        "nodes",
        f"{len(names)} of {counted(len(nodes), 'node')} {is_or_are(len(names))} lost:"
        f" {named(words)}. Nothing starts there, and gangs that run there may be broken.",
        f"kubectl describe node {names[0]}, and repair or replace it.",
    )
