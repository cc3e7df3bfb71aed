"""Label selectors and the namespaces of terms, of which one pod is compared with all at once.

Invariant: as `model.inter_pod.selects` and `PodTerm.means_namespace` say of each.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

import numpy as np

from gangsched.model.inter_pod import PodTerm, Requirement, Selector
from gangsched.model.pods_by_node import Addressee, Ints, Label
from gangsched.model.snapshot import Bools

ADDED_AT_ONCE = 4_096
"""Numbers that become an array while more are added, so that whoever asks need not wait for all."""
Scope: TypeAlias = tuple[tuple[str, ...], Selector]
"""The names of the namespaces of a term, and the selector of others."""


class Column:
    """Numbers that are added one by one, and read all at once."""

    __slots__ = ("_added", "_numbers")

    def __init__(self) -> None:
        self._numbers: Ints = np.zeros(0, dtype=np.int64)
        self._added: list[int] = []

    def __len__(self) -> int:
        return self._numbers.size + len(self._added)

    def append(self, number: int) -> None:
        """Add a number."""
        self._added.append(number)
        if len(self._added) >= ADDED_AT_ONCE:
            self._keep()

    @property
    def numbers(self) -> Ints:
        """All numbers; read-only."""
        if self._added:
            self._keep()

        return self._numbers

    def _keep(self) -> None:
        self._numbers = np.concatenate((self._numbers, self._added))
        self._added = []


class SelectorTable:
    """Different label selectors by number, and which of them labels meet."""

    def __init__(self) -> None:
        self._number_of: dict[Selector, int] = {}
        self._requirement_of: dict[Requirement, int] = {}

        # By requirement, whether it wants the key or one of the values to be there.
        self._wants = Column()
        # The selectors, each beside one of its requirements.
        self._selector = Column()
        self._requirement = Column()

        self._with_key: dict[str, Column] = {}
        self._with_value: dict[Label, Column] = {}

    def __len__(self) -> int:
        return len(self._number_of)

    @property
    def size(self) -> int:
        """What is compared with labels."""
        return len(self._selector) + len(self._wants)

    def number(self, selector: tuple[Requirement, ...]) -> int:
        """The number of a selector."""
        number = self._number_of.get(selector)
        if number is None:
            number = self._number_of[selector] = len(self._number_of)
            for requirement in selector:
                self._selector.append(number)
                self._requirement.append(self._numbered(requirement))

        return number

    def _numbered(self, requirement: Requirement) -> int:
        known = self._requirement_of.get(requirement)
        if known is not None:
            return known

        number = self._requirement_of[requirement] = len(self._requirement_of)
        operator = requirement.operator

        if operator in {"In", "NotIn"}:
            self._wants.append(operator == "In")
            for value in {*requirement.values}:
                label = (requirement.key, value)
                column = self._with_value.setdefault(label, Column())
                column.append(number)
        elif operator in {"Exists", "DoesNotExist"}:
            self._wants.append(operator == "Exists")
            column = self._with_key.setdefault(requirement.key, Column())
            column.append(number)
        else:  # operators of the future: no match, as in `model.inter_pod.selects`
            self._wants.append(1)

        return number

    def met_by(self, labels: Iterable[Label]) -> Bools:
        """By selector, whether labels meet it."""
        holds = np.zeros(len(self._requirement_of), dtype=np.bool_)
        for label in labels:
            key, _ = label
            of_key = self._with_key.get(key)
            if of_key is not None:
                holds[of_key.numbers] = True

            of_value = self._with_value.get(label)
            if of_value is not None:
                holds[of_value.numbers] = True

        is_met = holds == self._wants.numbers
        fails = ~is_met[self._requirement.numbers]
        failing = self._selector.numbers[fails]
        met = np.ones(len(self), dtype=np.bool_)
        met[failing] = False
        return met


class ScopeTable:
    """The namespaces that terms are about, by number."""

    def __init__(self) -> None:
        self._number_of: dict[Scope, int] = {}
        self._with_name: dict[str, Column] = {}
        self._selectors = SelectorTable()
        # Those with a selector, each beside its number among selectors.
        self._by_selector = Column()
        self._selector = Column()
        self._everywhere = Column()

    @property
    def size(self) -> int:
        """What is compared with a namespace."""
        return len(self._number_of) + self._selectors.size

    def number(self, term: PodTerm, of: str) -> int:
        """The number of the namespaces of a term of a pod in namespace `of`."""
        names = term.namespaces
        selector = term.namespace_selector
        if not names and selector is None:
            names = (of,)

        scope = (names, selector)
        number = self._number_of.get(scope)
        if number is not None:
            return number

        number = self._number_of[scope] = len(self._number_of)
        for name in {*names}:
            column = self._with_name.setdefault(name, Column())
            column.append(number)

        if selector == ():
            self._everywhere.append(number)
        elif selector is not None:
            self._by_selector.append(number)
            self._selector.append(self._selectors.number(selector))

        return number

    def with_addressee(self, addressee: Addressee) -> Bools:
        """By number, whether the namespaces are also that of a pod."""
        means = np.zeros(len(self._number_of), dtype=np.bool_)
        means[self._everywhere.numbers] = True
        named = self._with_name.get(addressee.namespace)
        if named is not None:
            means[named.numbers] = True

        labels = addressee.namespace_labels
        if labels is not None and len(self._selector):
            met = self._selectors.met_by(labels)[self._selector.numbers]
            means[self._by_selector.numbers[met]] = True

        return means
