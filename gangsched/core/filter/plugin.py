"""The Filter protocol: which nodes a plugin refuses to a pod, and why. Also the node usage that
filters read.

Invariant: a filter only reads, and a reason is kube-scheduler's text. A `StaticFilter` depends on
the shape and the node only; a `StatefulFilter` also depends on the pods on the nodes, so its result
changes with each reservation and rollback of the plan.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import ClassVar

import msgspec
import numpy as np

from gangsched.core.filter.pod_counts import PodCounts
from gangsched.core.filter.volumes.storage_use import StorageUse
from gangsched.core.work import Work
from gangsched.model.gang import Refusal
from gangsched.model.inter_pod import Requirement
from gangsched.model.objects import ClaimUse, Pod, Shape
from gangsched.model.snapshot import Bools, Ints, NodeTable, RefusedNodes

# In C: each is asked of every pod of a plan.
_shape: Callable[[Pod], Shape] = attrgetter("shape")
_claims: Callable[[Pod], tuple[ClaimUse, ...]] = attrgetter("claims")


class Occupancy(msgspec.Struct, frozen=True):
    """Usage of the nodes during one plan; stateful filters read nothing else.

    `free[r][node]` is in exact units, rows as in `resources`; the other fields have the pods by
    topology domain and the storage in use. Every reservation updates all of these, and undoing a
    reservation restores them exactly.
    """

    table: NodeTable
    resources: Mapping[str, int]
    free: Ints
    pods: PodCounts
    storage: StorageUse
    work: Work = msgspec.field(default_factory=Work)
    #: The filters that apply, by shape and whether a pod has claims (`core.filter.applying`).
    applying: dict[tuple[Shape, bool], Sequence[StatefulFilter]] = msgspec.field(
        default_factory=dict
    )

    def move(
        self,
        pods: Sequence[Pod],
        nodes: Sequence[int],
        sign: int,
    ) -> None:
        """Move `pods[i]`, all of one shape, onto node `nodes[i]` (+1) or off it (-1); the ledger
        updates `free`.
        """
        self.pods.move(pods, nodes, sign)
        # Pods without claims never reach the storage, so that they pay nothing for it.
        if not any(map(_claims, pods)):
            return

        note = self.storage.come if sign > 0 else self.storage.go
        for pod, node in zip(pods, nodes, strict=True):
            if pod.claims:
                note(pod, node)

    def come(
        self,
        pods: Sequence[Pod],
        nodes: Sequence[int],
    ) -> None:
        """Add `pods[i]` to node `nodes[i]`; the pods may have different shapes."""
        self.pods.come(pods, nodes)
        for pod, node in zip(pods, nodes, strict=True):
            if pod.claims:
                self.storage.come(pod, node)

    def leave(
        self,
        pods: Sequence[Pod],
        nodes: Sequence[int],
        claiming: Sequence[int],
    ) -> None:
        """Remove `pods[i]` from node `nodes[i]`; the pods may have different shapes, and those at
        the indices `claiming` have claims.
        """
        self.pods.leave(pods, nodes)
        for index in claiming:
            self.storage.go(pods[index], nodes[index])

    def take_back_leave(
        self,
        pods: Sequence[Pod],
        nodes: Sequence[int],
        claiming: Sequence[int],
    ) -> None:
        """Undo a `leave`; the latest one must be undone first."""
        self.pods.take_back(pods, nodes, -1)
        for index in reversed(claiming):
            self.storage.come_back(pods[index], nodes[index])

    def take_back(
        self,
        pods: Sequence[Pod],
        nodes: Sequence[int],
        sign: int,
    ) -> None:
        """Undo a `move`; the latest one must be undone first."""
        self.pods.take_back(pods, nodes, sign)
        # In reverse: volumes picked for a later pod depend on those of an earlier one.
        undo = self.storage.take_back if sign > 0 else self.storage.come_back
        for pod, node in zip(reversed(pods), reversed(nodes), strict=True):
            if pod.claims:
                undo(pod, node)

    def equivalence(self, pods: Sequence[Pod]) -> Callable[[Pod], Hashable]:
        """Return a key function for `pods`: for pods with equal keys, every filter and preference
        gives the same result.

        The key consists of the shape, the claims, the namespace, and the labels that any term
        reads.
        """
        keys = self.pods.label_keys(pods)
        # Comparing claims is charged per pod; plain pods must not pay for it.
        claims = None
        if any(map(_claims, pods)):
            claims = self.storage.equivalence

        if keys is None:
            if claims:
                return lambda pod: (id(pod.shape), claims(pod))

            return _shape

        of_labels = keys.read()
        return lambda pod: (
            id(pod.shape),
            pod.namespace,
            claims and claims(pod),
            of_labels(pod.labels),
        )


class Filter(ABC):  # noqa: B024 - the two forms have the abstract methods
    """Base class of both forms."""

    def pre_filter(self, pod: Pod, occupancy: Occupancy) -> Refusal | None:
        """Refusal if no node at all can take the pod, otherwise None."""
        return None


class StaticFilter(Filter):
    """A filter that depends on the shape and the node; computed once per shape and node table."""

    reason: ClassVar[str]

    @abstractmethod
    def allowed(self, shape: Shape, table: NodeTable) -> Bools:
        """`allowed[node]`: the node may take pods of the shape."""


class StatefulFilter(Filter):
    """A filter that depends on pods, ports, volumes or devices on the nodes; evaluated again after
    each reservation.

    `lasting`: the filter also applies to a pod that already has a node; if the filter rejects that
    node, the pod must release it. `several_reasons`: every reason of the filter for a node is
    reported, not only the first.
    """

    lasting: ClassVar[bool] = False
    several_reasons: ClassVar[bool] = False

    @abstractmethod
    def refusals(self, pod: Pod, occupancy: Occupancy) -> Iterator[RefusedNodes]:
        """Yield each reason with the nodes that it refuses."""

    def applies(self, pod: Pod, occupancy: Occupancy) -> bool:
        """Whether the filter may reject this pod on a node that has enough room.

        Depends on the shape, on whether the pod has claims and on other pods' terms, nothing else.
        """
        return True

    def serial(self, pod: Pod, occupancy: Occupancy) -> bool:
        """Whether placing one such pod may change which nodes the next one may use; such pods are
        placed one by one. Asked only of a filter that applies.
        """
        return self.applies(pod, occupancy)

    def room(self, pod: Pod, occupancy: Occupancy) -> Ints | None:
        """`room[node]`: number of such pods that fit; None if the filter does not limit
        the number.
        """
        return None

    def narrowed(
        self,
        pod: Pod,
        room: Ints,
        occupancy: Occupancy,
    ) -> Ints:
        """`room`, reduced to the number of such pods that the filter allows on each node."""
        limit = self.room(pod, occupancy)
        if limit is None:
            return room

        return np.minimum(room, limit)

    def stays(
        self,
        pod: Pod,
        node: int,
        occupancy: Occupancy,
    ) -> bool:
        """Whether the filter allows a pod to stay on its node; the pod itself is not counted."""
        return not any(refused.nodes[node] for refused in self.refusals(pod, occupancy))

    def fault(self, pod: Pod, occupancy: Occupancy) -> Refusal | None:
        """An error of the pod itself, such as a claim that cannot be evaluated, found by the last
        call of `narrowed`. Such a pod fits on no node.
        """
        return None


class ClaimFilter(StatefulFilter):
    """Base class of filters that read claims."""

    def applies(self, pod: Pod, occupancy: Occupancy) -> bool:
        return bool(pod.claims)

    def serial(self, pod: Pod, occupancy: Occupancy) -> bool:
        if not pod.claims:
            return False

        return occupancy.storage.serial(pod)


def static_cost(shape: Shape, table: NodeTable) -> int:
    """Work units of evaluating the static filters for one shape (`core.work`)."""
    size = len(table)
    terms = [*(shape.required or ())]
    for preferred_term in shape.preferred:
        terms.append(preferred_term.term)

    values = 0
    asked: list[Requirement] = []
    for term in terms:
        asked += term.labels
        asked += term.fields

        # A requirement is evaluated per distinct value; a column that does not exist yet costs a
        # look at every node.
        for requirement in term.labels:
            column = table.label_columns.get(requirement.key)
            values += size if column is None else len(column.values)

    # Parsing numbers costs about eight times a lookup in a set.
    per_value = 8
    listed = 0
    for requirement in asked:
        listed += len(requirement.values)
        if requirement.operator in {"Gt", "Lt"}:
            per_value = 1

    # By distinct list of taints: reading them per node made plans of 99 ms with 1,000 shapes.
    taints = len(table.tainted) * (4 + len(shape.tolerations))
    per_node = 4 + len(asked) + len(shape.node_selector)
    nodes = size // 300 * per_node

    return 60 + 4 * len(asked) + values // per_value + listed // 16 + taints + nodes
