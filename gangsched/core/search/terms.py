"""Required pod terms as topology: members that must be together, and parts of a gang that must be
apart.

A *part* is a set of members with the same single required affinity, which selects all of them and
no running pod: the members start in one domain of its label. Anti-affinity between parts keeps
their domains apart, as in JobSet's exclusive placement. Terms that match running pods exclude
nodes.

Invariant: if `Terms` are returned, placing a member has no other effect on the nodes of other
members, so a packing is exact. If None is returned, the order of placing matters, and only rounds
decide.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations
from typing import TypeAlias

from gangsched.core.filter import restricts_by_terms
from gangsched.core.filter.inter_pod_affinity import first_of_its_kind
from gangsched.core.reserve import Ledger
from gangsched.core.topology import exactly
from gangsched.model.gang import Gang, Group
from gangsched.model.objects import Pod
from gangsched.model.pods_by_node import Selected

MAX_CLASSES = 32
"""Kinds of members that differ for terms. To compare 32 with each other takes most of a plan."""

Affinity: TypeAlias = tuple[Selected, tuple[str, ...]]
"""The pods that all required affinity terms of a pod select, and their labels of nodes."""


@dataclass(frozen=True, slots=True)
class Part:
    """Members that must start in one domain of each of `keys`.

    `gang` is the index of their gang, -1 if they belong to several gangs. No two parts that are
    `alone` share a domain.
    """

    gang: int
    keys: tuple[str, ...]
    pods: tuple[Pod, ...]
    alone: bool = False


@dataclass(frozen=True, slots=True)
class Terms:
    """Topology constraints in the terms of the members: `parts`, and by gang the `loose` members,
    in no part.
    """

    parts: tuple[Part, ...]
    loose: tuple[tuple[Pod, ...], ...]

    @property
    def is_one_part(self) -> bool:
        """Whether one part contains all members."""
        if len(self.parts) != 1:
            return False

        return not any(self.loose)


def terms_of(gangs: Sequence[Gang], ledger: Ledger) -> Terms | None:
    """Topology constraints in the terms of all pending members; None if the terms are more than
    that.
    """
    # The gangs are part of the result: their ids, which are its name, stay theirs as long as it is
    # kept.
    name = ("terms", *map(id, gangs))
    # What members say of each other does not change with what runs; which parts are still open does
    # (`_terms`).
    kept: tuple[Sequence[Gang], _Compared | None] = ledger.recall(
        (*name, "compared"),
        lambda: (gangs, _compared(gangs, ledger)),
        lasting=True,
    )
    _, compared = kept
    if compared is None:
        return None

    terms: Terms | None = ledger.recall(name, lambda: _terms(len(gangs), compared, ledger))
    return terms


def required_by_terms(group: Group, ledger: Ledger) -> tuple[str, ...]:
    """The node labels for which the waiting members' own affinity requires them all in
    one domain.
    """
    gangs = []
    for gang in group.gangs:
        if gang.pending and not gang.free_running:
            gangs.append(gang)

    if not gangs or not all(gang.pending[0].shape.constraints.affinity for gang in gangs):
        return ()

    affinity = _affinity(gangs[0].pending[0], ledger)
    if affinity is None:
        return ()

    selected, _ = affinity
    for gang in gangs:
        # the terms of several parts are read only where a search needs them
        if not selected.counts(gang.pending[0]) or not selected.counts(gang.pending[-1]):
            return ()

    terms = terms_of(gangs, ledger)
    if terms is not None and terms.is_one_part:
        return terms.parts[0].keys

    return ()


@dataclass(frozen=True, slots=True)
class _Compared:
    """Members by what filters read of them, with their gangs: which of them terms select, whatever
    runs.

    `families[i]` is the number of the affinity that members of class i share, -1 without any; those
    of a `wanted` family select each other. `apart` are pairs of families that share no domain.
    """

    classes: tuple[tuple[tuple[int, Pod], ...], ...]
    families: tuple[int, ...]
    wanted: frozenset[int]
    apart: frozenset[tuple[int, int]]

    @property
    def firsts(self) -> list[Pod]:
        """The first member of each class of interchangeable members."""
        return [own[0][1] for own in self.classes]


def _compared(gangs: Sequence[Gang], ledger: Ledger) -> _Compared | None:
    """The members' affinity terms about each other; None if they require more than a common
    topology.
    """
    members = []
    for number, gang in enumerate(gangs):
        for pod in gang.pending:
            members.append((number, pod))

    ledger.work.charge(len(members))
    alike = ledger.occupancy.equivalence([pod for _, pod in members])
    classes: dict[Hashable, list[tuple[int, Pod]]] = {}

    for number, pod in members:
        own = classes.setdefault(alike(pod), [])
        own.append((number, pod))

    firsts = [own[0][1] for own in classes.values()]
    shapes = {id(pod.shape) for pod in firsts}
    if len(firsts) > MAX_CLASSES or len(shapes) < len(firsts):
        return None  # a packing tells members apart by their shape

    numbers: dict[Affinity, int] = {}
    families: list[int] = []
    for pod in firsts:
        affinity = _affinity(pod, ledger)
        if affinity is None:
            families.append(-1)
        else:
            families.append(numbers.setdefault(affinity, len(numbers)))

    wanted = _wanted(numbers, families, firsts, ledger)
    if wanted is None:
        return None

    sizes = [len(own) for own in classes.values()]
    pairs = _apart(firsts, sizes, families, ledger)
    if pairs is None:
        return None

    return _Compared(
        tuple(map(tuple, classes.values())),
        tuple(families),
        frozenset(wanted),
        frozenset(pairs),
    )


def _wanted(
    numbers: Mapping[Affinity, int],
    families: Sequence[int],
    firsts: Sequence[Pod],
    ledger: Ledger,
) -> set[int] | None:
    """The families whose members select each other; None if a term selects others, or only some."""
    wanted = set()
    for (affinity, _), family in numbers.items():
        ledger.work.charge(len(firsts) * affinity.cost)
        selected = set()
        left_out = False

        for of_pod, pod in zip(families, firsts, strict=True):
            if affinity.counts(pod):
                selected.add(of_pod)
            elif of_pod == family:
                left_out = True

        if selected - {family} or (selected and left_out):
            return None  # others that come first decide where these may go

        wanted |= selected

    return wanted


def _terms(
    gangs: int,
    compared: _Compared,
    ledger: Ledger,
) -> Terms | None:
    """The terms with the pods that run now: affinity to those stays as it is, for members come only
    where they are.
    """
    firsts = compared.firsts
    families = compared.families

    if not all(restricts_by_terms(pod, ledger.occupancy) for pod in firsts):
        return None

    examples = dict(zip(families, firsts, strict=True))
    # Once a pod that the terms select runs anywhere, members may only go to its domain: a filter,
    # not a part.
    open_ = {
        family
        for family in compared.wanted
        if first_of_its_kind(examples[family], ledger.occupancy)
    }
    # Anti-affinity to a part that runs already excludes its domains, which filters know and the
    # packing does not.
    if any(family not in open_ for pair in compared.apart for family in pair):
        return None

    loose: list[list[Pod]] = [[] for _ in range(gangs)]
    by_family: dict[int, list[tuple[int, Pod]]] = {}

    for family, own in zip(families, compared.classes, strict=True):
        if family in open_:
            by_family.setdefault(family, []).extend(own)
            continue

        for number, pod in own:
            loose[number].append(pod)

    parts = []
    for family, members in by_family.items():
        gang = -1
        gangs_of_family = {number for number, _ in members}
        if len(gangs_of_family) == 1:
            (gang,) = gangs_of_family

        excludes = any(family in pair for pair in compared.apart)
        keys = []
        for key in _keys(members[0][1]):
            keys.append(exactly(key, ledger.table))

        pods = tuple([pod for _, pod in members])
        parts.append(Part(gang, tuple(keys), pods, excludes))

    terms = Terms(tuple(parts), tuple(map(tuple, loose)))
    is_packed = all(part.gang >= 0 and len(part.keys) == 1 for part in parts)
    if terms.is_one_part or is_packed:
        return terms

    return None


def _keys(pod: Pod) -> tuple[str, ...]:
    return tuple(dict.fromkeys(term.topology_key for term in pod.shape.constraints.affinity))


def _affinity(pod: Pod, ledger: Ledger) -> Affinity | None:
    stated = pod.shape.constraints.affinity
    if not stated:
        return None

    selected = ledger.occupancy.pods.selected(stated, pod)
    return selected, tuple(term.topology_key for term in stated)


def _apart(
    firsts: Sequence[Pod],
    sizes: Sequence[int],
    families: Sequence[int],
    ledger: Ledger,
) -> set[tuple[int, int]] | None:
    """Pairs of families that share no domain; None if anti-affinity between members is more than
    that.

    `sizes[i]` pods are like `firsts[i]`.
    """
    pairs: set[tuple[int, int]] = set()
    for i, pod in enumerate(firsts):
        for term in pod.shape.constraints.anti_affinity:
            selected = ledger.occupancy.pods.selected((term,), pod)
            ledger.work.charge(len(firsts) * selected.cost)

            for j, other in enumerate(firsts):
                # A single pod does not keep itself off.
                if (i == j and sizes[i] == 1) or not selected.counts(other):
                    continue

                family = families[i]
                excluded = families[j]
                if min(family, excluded) < 0 or family == excluded:
                    return None
                if {*_keys(pod), *_keys(other)} != {term.topology_key}:
                    return None

                pairs |= {(family, excluded), (excluded, family)}

    several = sorted(set(chain.from_iterable(pairs)))
    # `alone` excludes all such parts from each other; if only some exclude each other, the packing
    # would be too strict.
    if all(pair in pairs for pair in combinations(several, 2)):
        return pairs

    return None
