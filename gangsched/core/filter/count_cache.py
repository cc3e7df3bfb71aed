"""Counts of pods by node, cached across plans.

Invariant: a count depends only on the question and on the pods of the node. It is cached with the
version of the node's pods, so repeating a question reads only nodes whose pods changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from gangsched.core.filter.pod_columns import PodColumns
from gangsched.core.filter.term_columns import Kind
from gangsched.core.work import Work
from gangsched.model.inter_pod import Selector, selects
from gangsched.model.pods_by_node import Addressee, Ints, PodsByNode, Question, TermsAbout

QUESTIONS_IN_AN_AGE = 1_000
"""Questions answered in one age; beyond it a new age begins (80 KB each on 5,000 nodes)."""
NAMESPACES_A_UNIT = 4
"""Namespaces of which the labels are compared with a requirement."""
MOST_ONE_BY_ONE = 4_000
"""Comparisons with pods one by one, each about a microsecond; more pods are read as columns."""

Namespaces: TypeAlias = Mapping[str, Mapping[str, str]]
"""The labels of namespaces, by name."""


@dataclass(slots=True)
class CachedCounts:
    """`counts[node]` as of `versions[node]`."""

    counts: Ints
    versions: Ints


class CountCache:
    """Counts by question. A count that was not used for one and a half ages is dropped, together
    with the pods that its question refers to.
    """

    def __init__(self) -> None:
        self._young: dict[Question, CachedCounts] = {}
        self._old: dict[Question, CachedCounts] = {}
        self._columns = PodColumns()
        self._columns_before = 0
        self._is_asked = False

        self._namespaces: Namespaces = {}
        self._selected: dict[Selector, frozenset[str]] = {}
        self._selectors_read = 0

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def counts(self, question: Question, pods: PodsByNode, work: Work | None = None) -> Ints:
        """`counts[node]`: number of pods that the question counts, as a copy. Reads only nodes that
        changed. Raises OutOfWork; what was read until then stays.
        """
        work = Work() if work is None else work
        known = self._known(question, pods)
        stale = np.flatnonzero(known.versions != pods.versions)
        nodes = stale.tolist()
        number = sum(len(pods.residents[node]) for node in nodes)

        # A pod may have any number of terms: one by one, that is more than is charged.
        is_of_terms = isinstance(question, TermsAbout) and number > 0
        if is_of_terms or number * question.cost > MOST_ONE_BY_ONE:
            self._is_asked = True
            known.counts[:] = self._columns.counts(question, pods, work)
            known.versions[:] = pods.versions
            return known.counts.copy()

        work.charge(stale.size // 4 + number * question.cost)
        counts = question.counts
        numbers = []
        for node in nodes:
            there = pods.residents[node]
            numbers.append(sum(map(counts, there.values())) if there else 0)

        known.counts[stale] = numbers
        known.versions[stale] = pods.versions[stale]

        # A copy, since the plan's moves are added to it; the cache only knows the pods of the
        # snapshot.
        return known.counts.copy()

    def namespaces(
        self,
        selector: Selector,
        namespaces: Namespaces,
        work: Work,
    ) -> frozenset[str]:
        """The namespaces whose labels meet a selector. Raises OutOfWork."""
        if namespaces is not self._namespaces:
            self._namespaces = namespaces
            self._selected = {}

        known = self._selected.get(selector)
        if known is None:
            requirements = 1 + len(selector or ())
            work.charge(1 + len(namespaces) * requirements // NAMESPACES_A_UNIT)
            meant = [name for name, labels in namespaces.items() if selects(selector, labels)]
            known = frozenset(meant)

            self._selectors_read += 1
            if len(self._selected) >= QUESTIONS_IN_AN_AGE:
                self._selected = {}

            self._selected[selector] = known

        return known

    def kinds(
        self,
        addressee: Addressee,
        topology_keys: Set[str],
        pods: PodsByNode,
        work: Work,
    ) -> Sequence[Kind]:
        """The kinds, of some topology keys, of the terms of these pods that mean one pod.
        Raises OutOfWork; what was read until then stays.
        """
        self._is_asked = True
        return self._columns.kinds(addressee, topology_keys, pods, work)

    @property
    def read(self) -> int:
        """Steps of reading that were done so far: progress of whoever was out of work meanwhile."""
        return self._columns_before + self._columns.read + self._selectors_read

    def new_age(self) -> None:
        """Begin a new age; drop counts that were not used since the last age began."""
        # Two generations instead of an LRU list: a use is one dict lookup, and dropping costs
        # nothing per entry.
        self._old = self._young
        self._young = {}

        # Pods that are gone stay in columns until they are asked.
        if not self._is_asked:
            self._columns_before += self._columns.read
            self._columns = PodColumns()

        self._is_asked = False

    def _known(self, question: Question, pods: PodsByNode) -> CachedCounts:
        """What is known; nothing of any node for a new question, or if there are more or fewer
        nodes than before.
        """
        known = self._young.get(question)
        if known is None:
            if len(self._young) >= QUESTIONS_IN_AN_AGE:
                self.new_age()

            known = self._old.pop(question, None)

        if known is None or known.counts.size != pods.versions.size:
            size = pods.versions.size
            # -1 is no version of any node's pods.
            nothing = np.zeros(size, dtype=np.int64)
            unread = np.full(size, -1, dtype=np.int64)
            known = CachedCounts(nothing, unread)

        self._young[question] = known
        return known
