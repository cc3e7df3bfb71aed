"""Counts of pods by node, cached across plans.

Invariant: a count depends only on the question and on the pods of the node. It is cached with the
version of the node's pods, so repeating a question reads only nodes whose pods changed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gangsched.model.pods_by_node import Ints, PodsByNode, Question

QUESTIONS_IN_AN_AGE = 1_000
"""Questions answered in one age; beyond it a new age begins (80 KB each on 5,000 nodes)."""


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

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def stale(self, question: Question, pods: PodsByNode) -> tuple[int, int]:
        """Number of nodes that `counts` would have to read for this question, and a lower bound of
        the number of pods on them.
        """
        # Versions grow with each change of a node's pods, so inequality is enough, whatever
        # happened in between.
        known = self._known(question, pods)
        stale = np.flatnonzero(known.versions != pods.versions)

        number = 0
        residents = pods.residents
        for node in stale.tolist():
            number += len(residents[node])

        return stale.size, number

    def counts(self, question: Question, pods: PodsByNode) -> Ints:
        """`counts[node]`: number of pods that the question counts, as a copy. Reads only nodes that
        changed.
        """
        known = self._known(question, pods)
        counts = question.counts
        stale = np.flatnonzero(known.versions != pods.versions)
        numbers = []
        for node in stale.tolist():
            there = pods.residents[node]
            numbers.append(sum(map(counts, there.values())) if there else 0)

        known.counts[stale] = numbers
        known.versions[stale] = pods.versions[stale]

        # A copy, since the plan's moves are added to it; the cache only knows the pods of the
        # snapshot.
        return known.counts.copy()

    def new_age(self) -> None:
        """Begin a new age; drop counts that were not used since the last age began."""
        # Two generations instead of an LRU list: a use is one dict lookup, and dropping costs
        # nothing per entry.
        self._old = self._young
        self._young = {}

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
