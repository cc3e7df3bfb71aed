"""The answer of all filters about one pod: its feasible nodes, or the message without any."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import structs

from gangsched.core.filter import narrow
from gangsched.core.findings import node_counts
from gangsched.core.reserve import Ledger
from gangsched.model.inter_pod import InterPodConstraints, Requirement, Selector
from gangsched.model.objects import Node, Pod, Shape
from gangsched.sentences.words import nodes_available
from tests.builders import amounts, node, pod, snapshot

ZONE = "topology.kubernetes.io/zone"
HOSTNAME = "kubernetes.io/hostname"
Placed = Iterable[tuple[Pod, str]]
Namespaces = Mapping[str, Mapping[str, str]]


def app(*names: str) -> Selector:
    """Selects pods labelled `app` with one of these."""
    return (Requirement("app", "In", names),)


def tied(
    name: str, label: str = "", *, namespace: str = "ns", deleting: bool = False, **inter_pod: Any
) -> Pod:
    """A small pod labelled `app: label` (by default its own name) with these fields of
    `InterPodConstraints`.
    """
    shape = Shape(
        requests=amounts(cpu_milli=100, pods=1),
        inter_pod=InterPodConstraints(**inter_pod) if inter_pod else None,
    )
    return pod(
        name, of=shape, labels={"app": label or name}, namespace=namespace, deleting=deleting
    )


def zoned(**zones: str) -> list[Node]:
    """One node per keyword, in the zone it names; "" for a node without that label."""
    return [node(name, labels={ZONE: zone} if zone else {}) for name, zone in zones.items()]


def ledger(
    nodes: Iterable[Node], placed: Placed = (), namespaces: Namespaces | None = None
) -> Ledger:
    """The ledger of a plan for this cluster."""
    shot = snapshot(nodes, placed)
    pods_by_node = structs.replace(shot.pods_by_node, namespaces=namespaces or {})
    return Ledger(structs.replace(shot, pods_by_node=pods_by_node))


def open_nodes(probe: Pod, on: Ledger) -> set[str]:
    """The nodes that no filter refuses."""
    fits = narrow(probe, on.room(probe.shape), on.occupancy) > 0
    return {name for name, fit in zip(on.table.names, fits.tolist(), strict=True) if fit}


def refusal(probe: Pod, on: Ledger) -> str:
    """The message of a pod without a feasible node."""
    return nodes_available(node_counts(probe, on))
