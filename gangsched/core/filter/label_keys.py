"""The label keys that inter-pod terms read.

Invariant: nothing is copied for each key, of which the pods of a cluster may read any number.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Set
from dataclasses import dataclass
from typing import TypeAlias

Labels: TypeAlias = Mapping[str, str]

FEW = 64
"""Keys that are looked up in the labels of each pod; of more, each label is looked up in them."""


@dataclass(frozen=True, slots=True)
class LabelKeys:
    """The keys in any of these sets."""

    sets: tuple[Set[str], ...]

    def __contains__(self, key: str) -> bool:
        return any(key in keys for keys in self.sets)

    def of(self, labels: Labels) -> frozenset[tuple[str, str]]:
        """Those of these labels that terms read."""
        read = []
        for label in labels.items():
            key, _ = label
            if key in self:
                read.append(label)

        return frozenset(read)

    def read(self) -> Callable[[Labels], Hashable]:
        """Return a function of a pod's labels, equal for labels that differ only in what no term
        reads.
        """
        number = 0
        for keys in self.sets:
            number += len(keys)

        if number > FEW:
            return self.of

        # A fixed order makes the values of all pods comparable.
        none = frozenset[str]()
        all_keys = none.union(*self.sets)
        ordered = sorted(all_keys)

        return lambda labels: tuple(map(labels.get, ordered))
