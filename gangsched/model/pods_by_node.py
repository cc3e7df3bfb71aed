"""The pods on each node, and the questions that filters ask about them (`core.filter.count_cache`
answers them).

Invariant: a `PodsByNode` is immutable. A question, such as how many pods a term selects, is a pure
function of the pods on one node. One version number never identifies two different sets of pods,
even across node tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from gangsched.model.inter_pod import HostPort, Selector, selects
from gangsched.model.objects import Pod
from gangsched.model.peers import PeerNumbers
from gangsched.model.term_index import TermIndex, TermOwner, entries_of

Ints: TypeAlias = npt.NDArray[np.int64]
Residents: TypeAlias = Mapping[str, Pod]
Weights: TypeAlias = dict[TermOwner, int]
"""By owner of terms, the weight of a pod."""
Label: TypeAlias = tuple[str, str]
OwnerKey: TypeAlias = tuple[int, str]
"""The id of the shape of an owner of terms, and its namespace."""


@dataclass(frozen=True, slots=True)
class ResolvedTerm:
    """An inter-pod term with resolved namespaces: pods of `namespaces` (None: all) that `selector`
    matches.
    """

    namespaces: frozenset[str] | None
    selector: Selector

    @property
    def cost(self) -> int:
        """Approximate number of comparisons per pod."""
        return 1 + sum(1 + len(requirement.values) // 16 for requirement in self.selector or ())

    def matches(self, pod: Pod) -> bool:
        """Whether the term selects `pod`."""
        # The cheap comparison first: most pods are of other namespaces.
        if self.namespaces is not None and pod.namespace not in self.namespaces:
            return False

        return selects(self.selector, pod.labels)


@dataclass(frozen=True, slots=True)
class Selected:
    """The question how many pods all of these terms select. With `staying`, terminating pods do not
    count.
    """

    terms: tuple[ResolvedTerm, ...]
    staying: bool = False

    @property
    def cost(self) -> int:
        """Work units per pod (`core.work`)."""
        return sum(term.cost for term in self.terms)

    def counts(self, pod: Pod) -> bool:
        """Whether the question counts `pod`."""
        if self.staying and pod.deleting:
            return False

        return all(term.matches(pod) for term in self.terms)


@dataclass(frozen=True, slots=True)
class OwnedBy:
    """The question how many pods have the same inter-pod terms and namespace as one term owner."""

    owner: TermOwner

    @property
    def cost(self) -> int:
        """Work units per pod."""
        return 1

    def counts(self, pod: Pod) -> bool:
        """Whether the question counts `pod`."""
        # By identity: shapes are interned by the decoder.
        if pod.shape is not self.owner[0]:
            return False

        return pod.namespace == self.owner[1]


@dataclass(frozen=True, slots=True)
class UsingPort:
    """The question how many pods use a host port that conflicts with `port`."""

    port: HostPort

    @property
    def cost(self) -> int:
        """Work units per pod."""
        return 4

    def counts(self, pod: Pod) -> bool:
        """Whether the question counts `pod`."""
        inter_pod = pod.shape.inter_pod
        if inter_pod is None:
            return False

        return any(map(self.port.conflicts, inter_pod.ports))


@dataclass(frozen=True, slots=True)
class OwnedByAny:
    """The question how many pods any of these owners has, each with its weight; of many owners, one
    question takes as long as one of a single owner.
    """

    #: The ids of shapes stay while the question has the owners.
    weights: frozenset[tuple[OwnerKey, int]]
    owners: tuple[TermOwner, ...] = field(compare=False)
    weight_of: Mapping[OwnerKey, int] = field(compare=False)

    @classmethod
    def of(cls, weights: Weights) -> OwnedByAny:
        """The question about these owners."""
        weight_of: dict[OwnerKey, int] = {}
        for owner, weight in weights.items():
            shape, namespace = owner
            weight_of[id(shape), namespace] = weight

        return cls(frozenset(weight_of.items()), tuple(weights), weight_of)

    @property
    def cost(self) -> int:
        """Work units per pod."""
        return 1

    def counts(self, pod: Pod) -> int:
        """The weight of the owner of `pod`."""
        key = (id(pod.shape), pod.namespace)
        return self.weight_of.get(key, 0)


@dataclass(frozen=True, slots=True)
class Addressee:
    """A pod as the terms of other pods see it: its namespace, and those of its labels that any term
    reads. `namespace_labels` is None if nobody knows the namespace.
    """

    namespace: str
    labels: frozenset[Label]
    namespace_labels: frozenset[Label] | None = None


@dataclass(frozen=True, slots=True)
class TermsAbout:
    """The question how many terms of the pods on a node select one pod: the required anti-affinity
    of one topology key or, summed by weight, the other terms of one.
    """

    addressee: Addressee
    topology_key: str
    is_required: bool

    @property
    def cost(self) -> int:
        """Work units per pod without terms."""
        return 1

    def counts(self, pod: Pod) -> int:
        """The number of those terms of `pod`, or the sum of their weights."""
        inter_pod = pod.shape.inter_pod
        if inter_pod is None or not inter_pod.has_terms:
            return 0

        addressee = self.addressee
        labels = dict(addressee.labels)
        known = addressee.namespace_labels
        namespace_labels = None if known is None else dict(known)

        number = 0
        for entry in entries_of((pod.shape, pod.namespace)):
            term = entry.term
            if (term.topology_key, entry.is_required) != (self.topology_key, self.is_required):
                continue

            if not term.means_namespace(pod.namespace, addressee.namespace, namespace_labels):
                continue

            if selects(term.selector, labels):
                number += entry.counts_as

        return number


Question: TypeAlias = Selected | OwnedBy | OwnedByAny | TermsAbout | UsingPort


class PodsByNode(msgspec.Struct, frozen=True, eq=False):
    """`residents[node]`: the node's pods by uid, as of `versions[node]`; node indexes are those of
    the node table.

    `terms` are those of the pods on any of these nodes. `namespaces` has the labels
    of all namespaces. `peers` counts the peers of plain pods by node name.
    """

    residents: Sequence[Residents] = ()
    versions: Ints = msgspec.field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    terms: TermIndex = msgspec.field(default_factory=TermIndex)
    namespaces: Mapping[str, Mapping[str, str]] = msgspec.field(default_factory=dict)
    peers: PeerNumbers = msgspec.field(default_factory=PeerNumbers)
