"""Small builders of what `plan` takes, for benchmarks and for the tests that check the same claims.

Law: nothing here decides anything, and the same arguments give the same objects, but for the identity of shapes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from gangsched.core.reserve import Ledger
from gangsched.model.gang import Gang, Group, Mode
from gangsched.model.objects import Node, Pod, Shape
from gangsched.model.resources import PODS, from_dict
from gangsched.model.snapshot import NodeTable, Snapshot

GPU = "nvidia.com/gpu"


def shape(**amounts: int) -> Shape:
    """A shape by short names: `cpu` in thousandths, `memory` in bytes, `gpu` in whole devices; one pod of itself."""
    return Shape(requests=from_dict(_named(amounts) | {PODS: 1}))


def node(name: str, *, labels: Mapping[str, str] | None = None, pods: int = 110, **amounts: int) -> Node:
    """A node by the same short names."""
    return Node(name=name, labels=labels or {}, allocatable=from_dict(_named(amounts) | {PODS: pods}))


def pods(name: str, of: Shape, count: int) -> list[Pod]:
    """`count` pods `name-0000` and so on."""
    return [
        Pod(uid=f"{name}-{n:04}", namespace="ns", name=f"{name}-{n:04}", creation_s=0, shape=of) for n in range(count)
    ]


def gang(name: str, members: Iterable[Pod], *, minimum: int | None = None) -> Gang:
    """A Strict gang that needs `minimum`, or all, of its members."""
    pending = tuple(members)
    needed = len(pending) if minimum is None else minimum
    return Gang(id=f"ns/{name}", min_member=needed, total=needed, mode=Mode.STRICT, pending=pending)


def group(name: str, *gangs: Gang) -> Group:
    """Gangs decided together."""
    return Group(id=f"ns/{name}", gangs=gangs)


def snapshot(nodes: Sequence[Node]) -> Snapshot:
    """An empty cluster of these nodes."""
    table = NodeTable.of(nodes)
    names = sorted({PODS} | {name for each in nodes for name, _ in each.allocatable})
    resources = {name: row for row, name in enumerate(names)}
    allocatable = np.zeros((len(names), len(table)), dtype=np.int64)
    for index, each in enumerate(table.nodes):
        for name, amount in each.allocatable:
            allocatable[resources[name], index] = amount
    allocatable.flags.writeable = False
    return Snapshot(table, resources, allocatable, allocatable)


def ledger(nodes: Sequence[Node]) -> Ledger:
    """A fresh ledger of an empty cluster."""
    return Ledger(snapshot(nodes))


def _named(amounts: Mapping[str, int]) -> dict[str, int]:
    return {GPU if name == "gpu" else name: amount for name, amount in amounts.items()}
