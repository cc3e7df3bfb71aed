"""News of the pods that take room: what reservations may rest on, and which groups they may help (semantics H5, H6).

Invariant: what helps no pod of a group at any time moves none of its reservations. A node helps a shape only if it
offers the room for a pod of it before the end that was expected, with everybody gone who is expected to end by then.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from gangsched.core.filter import static_fit
from gangsched.core.filter.node_resources_fit import room
from gangsched.model.objects import Pod, Shape
from gangsched.model.pods_by_node import Ints
from gangsched.model.reservation import Occupant
from gangsched.model.snapshot import Snapshot
from gangsched.state.queueing.parked import minds_pods


@dataclass(slots=True)
class News:
    """What happened to occupants since news were last taken.

    `earlier`: by node the latest of the ends that were expected of pods that go earlier; `anywhere` if one of those may
    have kept others off other nodes too. `emptied`: a node became empty. `left` are the ids of the groups, or keys of
    the pods, that left nodes.
    """

    earlier: dict[str, float] = field(default_factory=dict)
    anywhere: bool = False
    emptied: bool = False
    left: set[str] = field(default_factory=set)

    def note(
        self, node: str, before: Sequence[Occupant], now: Sequence[Occupant], *, early_by_s: float, wall_s: float
    ) -> None:
        """The occupants of a node were read anew; a pod that goes by more than `early_by_s` too early is news."""
        ends_s = {each.pod.uid: each.ends_s for each in now}
        for each in before:
            if ends_s.get(each.pod.uid, wall_s) + early_by_s < each.ends_s:
                self.earlier[node] = max(each.ends_s, self.earlier.get(node, each.ends_s))
                self.anywhere |= _keeps_others_off(each.pod)
        self.left.update(each.group or each.pod.key for each in before if each.pod.uid not in ends_s)
        self.emptied |= bool(before) and not now

    def may_help(
        self, shapes: Collection[Shape], snapshot: Snapshot, on: Mapping[str, Sequence[Occupant]], *, ends_known: bool
    ) -> bool:
        """Whether a group with pods of these shapes may have a time where it had none, or an earlier one (H5).

        `on` are the occupants by node; where the end of none of them is known, no group has a time.
        """
        if not self.earlier or not ends_known:
            return False
        over_by_then = {
            name: [each.pod for each in on.get(name, ()) if each.ends_s < before_s]
            for name, before_s in self.earlier.items()
        }
        return self.anywhere or takes_one(shapes, snapshot, over_by_then)


def takes_one(shapes: Collection[Shape], snapshot: Snapshot, without: Mapping[str, Collection[Pod]]) -> bool:
    """Whether one of the nodes in `without` has room for a pod of one of these shapes once those pods are gone.

    Of a shape that looks at other pods nothing is known: it may.
    """
    if any(shape.inter_pod is not None for shape in shapes):
        return True
    nodes = [name for name in without if name in snapshot.table.index]
    index = np.array([snapshot.table.index[name] for name in nodes], dtype=np.int64)
    free = snapshot.free[:, index]
    for column, name in enumerate(nodes):
        for resource, amount in (each for pod in without[name] for each in pod.shape.requests):
            if resource in snapshot.resources:
                free[snapshot.resources[resource], column] += amount
    return any(_takes(shape, free, index, snapshot) for shape in shapes)


def takes_one_empty(shape: Shape, nodes: Ints, snapshot: Snapshot) -> bool:
    """Whether one of these nodes takes a pod of this shape when nothing is on it; `nodes` are rows of the table.

    Of a shape whose filters look at other pods nothing is known: it may.
    """
    return minds_pods(shape) or _takes(shape, snapshot.emptied()[:, nodes], nodes, snapshot)


def _takes(shape: Shape, free: Ints, nodes: Ints, snapshot: Snapshot) -> bool:
    with_room = nodes[room(shape, free, snapshot.resources) > 0]
    return bool(with_room.size) and bool(static_fit(shape, snapshot.table).mask[with_room].any())


def _keeps_others_off(pod: Pod) -> bool:
    """Whether the pod may keep others off nodes that it does not run on, or make them less liked."""
    return bool(pod.claims) or (pod.shape.inter_pod is not None and pod.shape.inter_pod.has_terms)
