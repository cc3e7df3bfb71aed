"""The inter-pod terms of pods that are on nodes, found by the labels of the pods that they may
select.

Invariant: a `TermIndex` never changes. `TermBook` has the terms as they are now; its `shown` copies
what changed since the last call. A pod's labels lead to all terms that may select it, and to few
others: ten thousand pods with terms about pods of their own cost a plan of other pods nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Final, NamedTuple, TypeAlias, TypeVar

from gangsched.model.inter_pod import PodTerm, Requirement
from gangsched.model.layers import Layers
from gangsched.model.objects import Pod, Shape

K = TypeVar("K")

TermOwner: TypeAlias = tuple[Shape, str]
"""Pods of one shape in one namespace that state inter-pod terms; the namespace says which pods the
terms mean.
"""
Place: TypeAlias = tuple[str | None, str, str | None]
"""Where a term is found: by its namespace (None: it may be about several), and by a label that it
requires, with or without its value ("": it requires none).
"""
EntryKey: TypeAlias = tuple[int, int]
"""The number of the owner, and of the term among its own."""
HARD_AFFINITY_WEIGHT: Final = 1
"""The weight of an existing pod's *required* affinity term for the pod that it means
(hardPodAffinityWeight).
"""
FEW_VALUES: Final = 16
"""A term that names more values of a label is found by the label."""


class TermEntry(NamedTuple):
    """A term of an owner; `weight` is None for required anti-affinity, and negative for
    preferred.
    """

    owner: TermOwner
    term: PodTerm
    weight: int | None

    @property
    def is_required(self) -> bool:
        """Whether the term keeps the pods off that it selects."""
        return self.weight is None

    @property
    def counts_as(self) -> int:
        """What each pod of the owner adds for a pod that the term selects."""
        return 1 if self.weight is None else self.weight

    @property
    def size(self) -> int:
        """The number of requirements, values and namespaces."""
        size = len(self.term.namespaces)
        for selector in (self.term.selector, self.term.namespace_selector):
            for requirement in selector or ():
                size += 1 + len(requirement.values)

        return size


@dataclass(frozen=True, slots=True)
class TermIndex:
    """The terms. `owners`, `label_keys` and `anti_affinity_keys` count pods, and the terms that
    read a label or have a topology key.
    """

    owners: Layers[TermOwner, int] = field(default_factory=Layers)
    entries: Layers[Place, tuple[TermEntry, ...]] = field(default_factory=Layers)
    label_keys: Layers[str, int] = field(default_factory=Layers)
    anti_affinity_keys: Layers[str, int] = field(default_factory=Layers)

    def about(self, pod: Pod) -> Iterator[Sequence[TermEntry]]:
        """The terms that may select a pod, by where they are found."""
        if not self.entries:
            return

        for namespace in (pod.namespace, None):
            yield self.entries.get((namespace, "", None), ())
            for key, value in pod.labels.items():
                yield self.entries.get((namespace, key, value), ())
                yield self.entries.get((namespace, key, None), ())


class TermBook:
    """The terms of the pods that are on nodes now."""

    def __init__(self) -> None:
        self._owners: dict[TermOwner, int] = {}
        self._numbers: dict[TermOwner, int] = {}
        self._next = count(1)
        self._entries: dict[Place, dict[EntryKey, TermEntry]] = {}
        self._label_keys = Counter[str]()
        self._anti_affinity_keys = Counter[str]()
        self._shown = TermIndex()
        #: What changed since it was shown.
        self._places: set[Place] = set()
        self._changed_owners: set[TermOwner] = set()
        self._changed_keys: set[str] = set()
        self._changed_topology_keys: set[str] = set()

    def count(self, owner: TermOwner, sign: int) -> None:
        """One more pod of an owner is on a node, or one less."""
        before = self._owners.get(owner, 0)
        number = before + sign
        self._changed_owners.add(owner)
        if number:
            self._owners[owner] = number
        else:
            del self._owners[owner]

        if not before or not number:
            self._put(owner, sign)

    def _put(self, owner: TermOwner, sign: int) -> None:
        """Add the terms of an owner, or remove them."""
        for key in owner[0].constraints.keys:
            _count(self._label_keys, key, sign)
            self._changed_keys.add(key)

        if sign > 0:
            self._numbers[owner] = next(self._next)

        owner_number = self._numbers[owner]
        if sign < 0:
            del self._numbers[owner]

        for number, entry in enumerate(entries_of(owner)):
            if entry.weight is None:
                _count(self._anti_affinity_keys, entry.term.topology_key, sign)
                self._changed_topology_keys.add(entry.term.topology_key)

            for place in places_of(entry):
                entries = self._entries.setdefault(place, {})
                if sign > 0:
                    entries[owner_number, number] = entry
                else:
                    del entries[owner_number, number]

                self._places.add(place)

    def shown(self) -> TermIndex:
        """The terms now, as they stay for whoever looks at them."""
        if not self._changed_owners:
            return self._shown

        entries = []
        for place in self._places:
            there = self._entries[place]
            entries.append((place, tuple(there.values()) or None))
            if not there:
                del self._entries[place]

        self._shown = TermIndex(
            self._shown.owners.changed(_now(self._owners, self._changed_owners)),
            self._shown.entries.changed(entries),
            self._shown.label_keys.changed(_now(self._label_keys, self._changed_keys)),
            self._shown.anti_affinity_keys.changed(
                _now(self._anti_affinity_keys, self._changed_topology_keys)
            ),
        )
        self._changed_owners = set()
        self._changed_keys = set()
        self._changed_topology_keys = set()
        self._places = set()
        return self._shown


def _now(numbers: Mapping[K, int], keys: Iterable[K]) -> Iterator[tuple[K, int | None]]:
    """What these keys have now; None if that is nothing."""
    for key in keys:
        yield key, numbers.get(key)


def entries_of(owner: TermOwner) -> Iterator[TermEntry]:
    """The terms of an owner; a required term of a running pod attracts the pods that it selects, as
    in kube-scheduler's scoring.
    """
    constraints = owner[0].constraints
    for term in constraints.anti_affinity:
        yield TermEntry(owner, term, None)
    for weighted in constraints.preferred:
        yield TermEntry(owner, weighted.term, weighted.weight)
    for term in constraints.affinity:
        yield TermEntry(owner, term, HARD_AFFINITY_WEIGHT)


def places_of(entry: TermEntry) -> Iterator[Place]:
    """Where a term is found: by one of its requirements, the one of the fewest values."""
    owner, term, _ = entry
    if term.selector is None:  # selects nothing
        return

    is_own = not term.namespaces and term.namespace_selector is None
    namespace = owner[1] if is_own else None
    best: Requirement | None = None
    for requirement in term.selector:
        if requirement.operator == "In":
            values = len(requirement.values)
            if best is None or best.operator != "In" or values < len(best.values):
                best = requirement
        elif requirement.operator == "Exists" and best is None:
            best = requirement

    if best is None:
        yield namespace, "", None
    elif best.operator == "In" and len(best.values) <= FEW_VALUES:
        for value in {*best.values}:
            yield namespace, best.key, value
    else:
        yield namespace, best.key, None


def _count(numbers: Counter[str], key: str, sign: int) -> None:
    """Count one more or less; what has none is not kept."""
    numbers[key] += sign
    if not numbers[key]:
        del numbers[key]
