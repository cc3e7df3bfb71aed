"""The terms of existing pods that select one pod, as questions to count.

Invariant: however many owners of terms there are, those that are known at the start of a plan are
few questions. Of very many terms, only the kinds are known, and each kind is one question.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from gangsched.core.filter.term_columns import Kind
from gangsched.model.pods_by_node import (
    Addressee,
    OwnedBy,
    OwnedByAny,
    Question,
    TermsAbout,
    Weights,
)
from gangsched.model.term_index import TermEntry

MOST_QUESTIONS = 16
"""Owners that are counted one by one, which is kept from plan to plan; more are counted together.
"""
ByKey: TypeAlias = dict[str, Weights]
"""The weight of each owner, by topology key."""


@dataclass(slots=True)
class ExistingTerms:
    """Terms of existing pods that select the given pod, as of the first `seen` term owners that
    came in this plan.

    `anti_affinity` has the topology key of each term. `preferred` also has its weight, negative for
    anti-affinity.
    """

    anti_affinity: list[tuple[Question, str]] = field(default_factory=list)
    preferred: list[tuple[Question, str, int]] = field(default_factory=list)
    seen: int = 0

    @classmethod
    def of(cls, entries: Iterable[TermEntry]) -> ExistingTerms:
        """These terms, which select the pod."""
        forbids: ByKey = {}
        weighs: ByKey = {}
        for owner, term, weight in entries:
            key = term.topology_key
            if weight is None:
                forbids.setdefault(key, {})[owner] = 1
                continue

            weights = weighs.setdefault(key, {})
            weights[owner] = weights.get(owner, 0) + weight

        terms = cls()
        for key, owners in forbids.items():
            for question, _ in _questions(owners):
                terms.anti_affinity.append((question, key))

        for key, owners in weighs.items():
            for question, weight in _questions(owners):
                terms.preferred.append((question, key, weight))

        return terms

    def add(self, entry: TermEntry) -> None:
        """Add a term, which selects the pod."""
        owner, term, weight = entry
        question = OwnedBy(owner)
        if weight is None:
            self.anti_affinity.append((question, term.topology_key))
        else:
            self.preferred.append((question, term.topology_key, weight))


class TermsByKind(ExistingTerms):
    """Very many terms of existing pods that select one pod, as of the first `seen` kinds of terms
    that came in this plan.
    """

    __slots__ = ("_addressee", "_asked")

    def __init__(self, addressee: Addressee) -> None:
        super().__init__()
        self._addressee = addressee
        self._asked: set[Kind] = set()

    def ask(self, kind: Kind) -> None:
        """Ask, once, how many terms of a kind mean the pod."""
        if kind in self._asked:
            return

        self._asked.add(kind)
        key, is_required = kind
        question = TermsAbout(self._addressee, key, is_required)
        if is_required:
            self.anti_affinity.append((question, key))
        else:
            self.preferred.append((question, key, 1))


def _questions(weights: Weights) -> Iterator[tuple[Question, int]]:
    """The questions that count these owners, each with its weight."""
    if len(weights) > MOST_QUESTIONS:
        yield OwnedByAny.of(weights), 1
        return

    for owner, weight in weights.items():
        yield OwnedBy(owner), weight
