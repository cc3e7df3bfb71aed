"""The pods on each node, and the counts that filters need of them.

Invariant: a `PodsByNode` is immutable. A question, such as how many pods a term selects, is a pure function of the pods
on one node. Answers are cached per node and version, so that repeating a question reads only nodes whose pods changed.
All objects of one node table share the cache; a version never stands for two different sets of pods.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from gangsched.model.inter_pod import HostPort, Selector, selects
from gangsched.model.objects import Pod, Shape
from gangsched.model.peers import PeerNumbers

Ints: TypeAlias = npt.NDArray[np.int64]
Residents: TypeAlias = Mapping[str, Pod]
TermOwner: TypeAlias = tuple[Shape, str]
"""Pods of one shape in one namespace that state inter-pod terms; the namespace says which pods the terms mean."""

MEMO_LIMIT = 1_000
"""Questions remembered in one age; beyond it a new age begins (80 KB each on 5,000 nodes)."""


@dataclass(frozen=True, slots=True)
class ResolvedTerm:
    """An inter-pod term with resolved namespaces: pods of `namespaces` (None: all) that `selector` matches."""

    namespaces: frozenset[str] | None
    selector: Selector

    @property
    def cost(self) -> int:
        """Approximate number of comparisons per pod."""
        return 1 + sum(1 + len(each.values) // 16 for each in self.selector or ())

    def matches(self, pod: Pod) -> bool:
        """Whether the term selects `pod`."""
        if self.namespaces is not None and pod.namespace not in self.namespaces:
            return False
        return selects(self.selector, pod.labels)


@dataclass(frozen=True, slots=True)
class Selected:
    """The question how many pods all of these terms select; with `staying`, pods that are terminating do not count."""

    terms: tuple[ResolvedTerm, ...]
    staying: bool = False

    @property
    def cost(self) -> int:
        """Work units per pod (`core.work`)."""
        return sum(term.cost for term in self.terms)

    def counts(self, pod: Pod) -> bool:
        """Whether the question counts `pod`."""
        return not (self.staying and pod.deleting) and all(term.matches(pod) for term in self.terms)


@dataclass(frozen=True, slots=True)
class OwnedBy:
    """The question how many pods of one term owner there are."""

    owner: TermOwner

    @property
    def cost(self) -> int:
        """Work units per pod."""
        return 1

    def counts(self, pod: Pod) -> bool:
        """Whether the question counts `pod`."""
        return pod.shape is self.owner[0] and pod.namespace == self.owner[1]


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
        return inter_pod is not None and any(map(self.port.conflicts, inter_pod.ports))


Question: TypeAlias = Selected | OwnedBy | UsingPort


@dataclass(slots=True)
class CachedCounts:
    """`counts[node]` as of `versions[node]`."""

    counts: Ints
    versions: Ints


class Memo:
    """Cached answers by question. An answer that was not used for one and a half ages is dropped, with the pods that it
    refers to.
    """

    def __init__(self) -> None:
        self._young: dict[Question, CachedCounts] = {}
        self._old: dict[Question, CachedCounts] = {}

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def answer(self, question: Question, size: int) -> CachedCounts:
        """The cached answer for `size` nodes; a new answer is outdated for every node."""
        answer = self._young.get(question)
        if answer is None:
            if len(self._young) >= MEMO_LIMIT:
                self.new_age()
            answer = self._old.pop(question, None)
            if answer is None:
                answer = CachedCounts(np.zeros(size, dtype=np.int64), np.full(size, -1, dtype=np.int64))
            self._young[question] = answer
        return answer

    def new_age(self) -> None:
        """Drop answers not used since the last age began."""
        self._young, self._old = {}, self._young


@dataclass(frozen=True, slots=True, eq=False)
class PodsByNode:
    """`residents[node]`: the pods by uid, with node indexes as in the node table, as of `versions[node]`.

    `term_owners` are the term owners with a pod on any of these nodes. `namespaces` has the labels of all namespaces.
    `peers` has the number of peers of plain pods on each node, by node name.
    """

    residents: Sequence[Residents] = ()
    versions: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    term_owners: tuple[TermOwner, ...] = ()
    namespaces: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    memo: Memo = field(default_factory=Memo)
    peers: PeerNumbers = field(default_factory=PeerNumbers)

    def stale(self, question: Question) -> tuple[int, int]:
        """Number of nodes that `counts` would have to read for this question, and a lower bound of the number of their
        pods.
        """
        answer = self.memo.answer(question, len(self.residents))
        nodes = np.flatnonzero(answer.versions != self.versions).tolist()
        return len(nodes), sum(len(self.residents[node]) for node in nodes)

    def counts(self, question: Question) -> Ints:
        """`counts[node]`: pods that the question counts; a copy. Reads only nodes that changed."""
        answer, counts = self.memo.answer(question, len(self.residents)), question.counts
        stale = np.flatnonzero(answer.versions != self.versions)
        there = [self.residents[node] for node in stale.tolist()]
        answer.counts[stale] = [sum(map(counts, pods.values())) if pods else 0 for pods in there]
        answer.versions[stale] = self.versions[stale]
        return answer.counts.copy()
