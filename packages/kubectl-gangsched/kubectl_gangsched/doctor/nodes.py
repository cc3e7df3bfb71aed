"""Checks of nodes: those whose kubelet is lost, where nothing starts, and those that are gone while
pods are bound to them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gangsched.kube.http.blocking import BlockingClient
from gangsched.model.objects import Pod
from gangsched.model.text import counted, is_or_are, named
from kubectl_gangsched.doctor.finding import Finding
from kubectl_gangsched.gpu_map import read_nodes


def lost(client: BlockingClient, pods: Sequence[Pod]) -> Iterator[Finding]:
    """Nodes that are not ready, do not report or do not exist; `pods` were read before.
    Raises Fault.
    """
    nodes, unready = read_nodes(client)
    if unready:
        names = sorted(unready)
        words = [f"{name} ({unready[name]})" for name in names]
        yield Finding(
            "nodes",
            f"{len(names)} of {counted(len(nodes), 'node')} {is_or_are(len(names))} lost:"
            f" {named(words)}. Nothing starts there, and gangs that run there may be broken.",
            f"kubectl describe node {names[0]}, and repair or replace it.",
        )

    existing = {node.name for node in nodes}
    stranded = [pod for pod in pods if pod.live and pod.node_name and pod.node_name not in existing]
    if stranded:
        gone = sorted({pod.node_name for pod in stranded})
        pods_are = f"{counted(len(stranded), 'pod')} {is_or_are(len(stranded))}"
        yield Finding(
            "nodes",
            f"{pods_are} bound to nodes that do not exist any more ({named(gone)}):"
            f" {named([pod.key for pod in stranded])}.",
            "Kubernetes deletes them within about a minute, and their controllers replace them;"
            " kubectl delete pod --force hastens it.",
        )
