"""Company: how many pods of which kind are in each topology domain, the members placed by this plan included.

Law: counts start from the snapshot's population and follow every move that the ledger reports, each move counted once;
a move taken back leaves every count as it was. Counting is lazy: a tally takes in what moved since it was last read,
so a plan that asks nothing about other pods pays nothing for them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from gangsched.core.filter.node_affinity import label_column
from gangsched.core.filter.volumes import Volumes
from gangsched.model.inter_pod import PodTerm, selects
from gangsched.model.objects import NOTHING, Pod, Shape
from gangsched.model.pods_by_node import PodsByNode, Question, ResolvedTerm, TermOwner
from gangsched.model.snapshot import Bools, Codes, Ints, NodeTable
from gangsched.model.storage import Storage

Scope = tuple[Shape, int]
"""Which nodes a spread constraint looks at: (shape, index of the constraint); filled in by `pod_topology_spread`."""
Move = tuple[Sequence[Pod], Sequence[int], int]
"""Pods, the node index of each, and +1 for coming or -1 for going."""


@dataclass(slots=True)
class Tally:
    """`counts[domain]` pods that a question counts, on nodes in scope; as of the first `seen` moves.

    `codes[node]` is the node's domain, -1 without one; the last entry of `counts` is for those and stays 0.
    `exists[domain]` is whether a node in scope has that domain.
    """

    counts: Ints
    codes: Codes
    scope: Bools | None
    exists: Bools
    seen: int = 0

    def here(self) -> Ints:
        """`here[node]`: the count in the node's domain, 0 where it has none."""
        found: Ints = self.counts[self.codes]
        return found

    def add(self, pods: int, node: int) -> None:
        """Count `pods` more on `node`."""
        code = self.codes[node]
        if code >= 0 and (self.scope is None or self.scope[node]):
            self.counts[code] += pods


class Company:
    """Who is where while one plan is made, and (`volumes`) what of the storage they have."""

    def __init__(self, table: NodeTable, pods_by_node: PodsByNode, storage: Storage | None = None) -> None:
        self.table = table
        self.volumes = Volumes(table, storage or Storage())
        self.pods_by_node = pods_by_node
        self.preferring: list[TermOwner] = list(pods_by_node.term_owners)
        self._known_crowds = set(self.preferring)
        self._keys = frozenset(
            key for shape, _ in self.preferring for key in (shape.inter_pod.keys if shape.inter_pod else ())
        )
        self._moves: list[Move] = []
        self._tallies: dict[tuple[Question, str, Scope | None], Tally] = {}
        self._clauses: dict[tuple[PodTerm, str], ResolvedTerm] = {}
        self.scopes: dict[Scope, Bools] = {}

    def move(self, pods: Sequence[Pod], nodes: Sequence[int], sign: int) -> None:
        """`pods[i]` came to node `nodes[i]` (+1) or left it (-1)."""
        self._moves.append((pods, nodes, sign))
        for pod, node in zip(pods, nodes, strict=True):
            if pod.claims:
                (self.volumes.come if sign > 0 else self.volumes.go)(pod, node)
        for shape in {pod.shape for pod in pods if pod.shape.inter_pod is not None}:
            if shape.inter_pod is not None and shape.inter_pod.has_terms:
                for preferring_key in {
                    (shape, pod.namespace) for pod in pods if pod.shape is shape
                } - self._known_crowds:
                    self._known_crowds.add(preferring_key)
                    self.preferring.append(preferring_key)
                    self._keys |= shape.inter_pod.keys

    def take_back(self, pods: Sequence[Pod], nodes: Sequence[int], sign: int) -> None:
        """Undo a move; the newest are taken back first."""
        if self._tallies:
            self._moves.append((pods, nodes, -sign))
        else:
            self._moves.pop()  # nobody has looked yet, so the log is exactly what was not taken back
        for pod, node in zip(reversed(pods), reversed(nodes), strict=True):
            if pod.claims:
                (self.volumes.go if sign > 0 else self.volumes.come_back)(pod, node)

    def keys(self, pods: Sequence[Pod]) -> frozenset[str] | None:
        """The label keys by which pods may differ in what concerns other pods; None when nothing does."""
        own = [shape.inter_pod for shape in {pod.shape for pod in pods} if shape.inter_pod is not None]
        if not own and not self.preferring:
            return None
        return self._keys.union(*(inter_pod.keys for inter_pod in own))

    def kind(self, pods: Sequence[Pod]) -> Callable[[Pod], Hashable]:
        """What makes two of `pods` alike for every filter.

        That is shape and claims, and namespace and labels as far as they matter.
        """
        keys = self.keys(pods)
        claimed = self.volumes.kind if any(pod.claims for pod in pods) else None
        if keys is None:
            return (lambda pod: (id(pod.shape), claimed(pod))) if claimed else lambda pod: id(pod.shape)
        ordered = sorted(keys)
        return lambda pod: (id(pod.shape), pod.namespace, claimed and claimed(pod), *map(pod.labels.get, ordered))

    def tally(self, question: Question, topology_key: str, scope: Scope | None = None) -> Tally:
        """The count by domain of `topology_key` ("" = each node is its own), up to date; not to be kept."""
        known = self._tallies.get((question, topology_key, scope))
        if known is None:
            known = self._tallies[question, topology_key, scope] = self._start(question, topology_key, scope)
        for pods, nodes, sign in self._moves[known.seen :]:
            for pod, node in zip(pods, nodes, strict=True):
                if question.counts(pod):
                    known.add(sign, node)
        known.seen = len(self._moves)
        return known

    def clause(self, term: PodTerm, namespace: str) -> ResolvedTerm:
        """A term stated by a pod of `namespace` that is there, its namespaces looked up."""
        known = self._clauses.get((term, namespace))
        if known is None:
            known = self._clauses[term, namespace] = ResolvedTerm(self._namespaces(term, namespace), term.selector)
        return known

    def own_clause(self, term: PodTerm, namespace: str) -> ResolvedTerm:
        """A term stated by a pod of `namespace` that is to be placed.

        kube-scheduler 1.36 does not look up the labels of other pods' namespaces for it, so that a namespace selector
        which holds for a namespace without labels (NotIn, DoesNotExist) holds for every one.
        """
        if term.namespace_selector is not None and selects(term.namespace_selector, NOTHING):
            return ResolvedTerm(None, term.selector)
        return self.clause(term, namespace)

    def column(self, topology_key: str) -> Codes:
        """`codes[node]`: the node's domain, -1 without one."""
        if not topology_key:
            return np.arange(len(self.table), dtype=np.int32)
        return label_column(topology_key, self.table).codes

    def _start(self, question: Question, topology_key: str, scope: Scope | None) -> Tally:
        codes = self.column(topology_key)
        within = self.scopes[scope] if scope is not None else None
        size = int(codes.max(initial=-1)) + 1
        inside = codes >= 0 if within is None else (codes >= 0) & within
        counts = np.zeros(size + 1, dtype=np.int64)
        exists = np.zeros(size + 1, dtype=np.bool_)
        exists[codes[inside]] = True
        if len(self.pods_by_node.residents) == len(codes):
            np.add.at(counts, codes[inside], self.pods_by_node.counts(question)[inside])
        return Tally(counts, codes, within, exists)

    def _namespaces(self, term: PodTerm, namespace: str) -> frozenset[str] | None:
        if not term.namespaces and term.namespace_selector is None:
            return frozenset({namespace})
        if term.namespace_selector == ():
            return None
        known = self.pods_by_node.namespaces.items()
        chosen = (name for name, labels in known if selects(term.namespace_selector, labels))
        return frozenset((*chosen, *term.namespaces))
