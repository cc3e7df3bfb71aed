"""Changes of running pods that may affect reservations, and which groups they may help (semantics
H5, H6).

Invariant: a change that helps no pod of a group at any time does not move its reservation. A pod
that leaves a node before its expected end helps a shape only if a pod of the shape would fit there
without the pods that are expected to end by that time.
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
    """Changes of running pods since the last call."""

    #: By node, the latest expected end of the pods that left early, or are to.
    earlier: dict[str, float] = field(default_factory=dict)
    #: Nodes on which a pod stays and is to end earlier than was expected.
    sooner: set[str] = field(default_factory=set)
    #: A pod that left early may have excluded pods from other nodes, too.
    anywhere: bool = False
    #: A node became empty.
    emptied: bool = False
    #: Ids of groups, or keys of pods, that left nodes.
    left: set[str] = field(default_factory=set)

    def note(
        self,
        node: str,
        before: Sequence[Occupant],
        now: Sequence[Occupant],
        *,
        early_by_s: float,
        wall_s: float,
    ) -> None:
        """Compare the pods of a node with the earlier ones; a pod that leaves more than
        `early_by_s` before its expected end counts.
        """
        ends_s = {occupant.pod.uid: occupant.ends_s for occupant in now}
        for occupant in before:
            uid = occupant.pod.uid
            # A pod that is gone ended now.
            end_s = ends_s.get(uid, wall_s)
            if end_s + early_by_s >= occupant.ends_s:
                continue

            if uid in ends_s:
                self.sooner.add(node)

            latest_s = self.earlier.get(node, occupant.ends_s)
            self.earlier[node] = max(occupant.ends_s, latest_s)
            self.anywhere |= _keeps_others_off(occupant.pod)

        # Reservations name whom they wait for, and a name of what is gone must not stay in a
        # message.
        self.left.update(
            occupant.group or occupant.pod.key
            for occupant in before
            if occupant.pod.uid not in ends_s
        )
        self.emptied |= bool(before) and not now

    def may_help(
        self,
        shapes: Collection[Shape],
        snapshot: Snapshot,
        on: Mapping[str, Sequence[Occupant]],
        *,
        ends_known: bool,
    ) -> bool:
        """Whether a group with pods of these shapes may now get a start time, or an earlier one
        (H5).

        `on` are the pods by node. If no expected end is known, no group can get a start time.
        """
        if not self.earlier or not ends_known:
            return False

        over_by_then = {}
        for name, before_s in self.earlier.items():
            over_by_then[name] = [
                occupant.pod for occupant in on.get(name, ()) if occupant.ends_s < before_s
            ]

        # What kept others off elsewhere is on no node that could be looked at.
        return self.anywhere or takes_one(shapes, snapshot, over_by_then)


def takes_one(
    shapes: Collection[Shape],
    snapshot: Snapshot,
    without: Mapping[str, Collection[Pod]],
) -> bool:
    """Whether a pod of one of these shapes would fit on a node in `without` once the pods given
    there are gone.

    True for a shape whose filters depend on other pods.
    """
    if any(shape.inter_pod is not None for shape in shapes):
        return True

    nodes = [name for name in without if name in snapshot.table.index]
    index = np.array([snapshot.table.index[name] for name in nodes], dtype=np.int64)

    # An indexed copy: the snapshot itself is never changed.
    free = snapshot.free[:, index]
    for column, name in enumerate(nodes):
        for resource, amount in (
            request for pod in without[name] for request in pod.shape.requests
        ):
            if resource in snapshot.resources:
                free[snapshot.resources[resource], column] += amount

    return any(_takes(shape, free, index, snapshot) for shape in shapes)


def takes_one_empty(shape: Shape, nodes: Ints, snapshot: Snapshot) -> bool:
    """Whether a pod of this shape would fit on one of these nodes if it were empty; `nodes` are
    rows of the table.

    True for a shape whose filters depend on other pods.
    """
    return minds_pods(shape) or _takes(shape, snapshot.emptied()[:, nodes], nodes, snapshot)


def _takes(shape: Shape, free: Ints, nodes: Ints, snapshot: Snapshot) -> bool:
    with_room = nodes[room(shape, free, snapshot.resources) > 0]
    return bool(with_room.size) and bool(static_fit(shape, snapshot.table).mask[with_room].any())


def _keeps_others_off(pod: Pod) -> bool:
    """Whether the pod may keep others off nodes that it does not run on, or make them
    less liked.
    """
    return bool(pod.claims) or (pod.shape.inter_pod is not None and pod.shape.inter_pod.has_terms)
